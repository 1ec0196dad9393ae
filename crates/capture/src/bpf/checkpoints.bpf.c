/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * When btrfs, f2fs and XFS write what they logged to the medium, and who waits for that.
 *
 *   XFS    xfs_log_force: this thread wants a checkpoint of the log on the medium (an fsync requests the one that contains
 *          its inode); xlog_iclog_callback: a piece of the log is on the medium, and all before it (Linux 5.14). The
 *          checkpoints that end in that piece are attached to it until then.
 *   f2fs   f2fs_write_checkpoint, at its begin and at its end, in the thread that writes it; f2fs_sync_file_exit reports
 *          whether that call needed one.
 *   btrfs  btrfs_transaction_commit, at its end, in the thread that committed. There is no tracepoint for its begin, nor
 *          for its tree log, which most fsyncs write instead.
 *
 * The file systems may be modules that are loaded after these programs, so their types may be unknown when the programs are loaded.
 * The offsets of fields are therefore in a table, which user space fills when such a file system appears; see ../kernel/places.rs.
 */

/* As in ../kernel/places.rs. */
enum place {
	XFS_MOUNT_SUPER,
	XFS_MOUNT_LOG,
	XLOG_MOUNT,
	XLOG_CIL,
	XFS_CIL_SEQUENCE,
	XLOG_PIECE_LOG,
	XLOG_PIECE_CHECKPOINTS,
	XFS_CHECKPOINT_ENTRY,
	XFS_CHECKPOINT_SEQUENCE,
	BTRFS_SUPER,
	BTRFS_COMMITTED,
	F2FS_CHECKPOINT,
	F2FS_VERSION,
	PLACES,
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PLACES);
	__type(key, u32);
	__type(value, u32);
} places SEC(".maps");

#define XFS_MAGIC 0x58465342
#define BTRFS_MAGIC 0x9123683e
#define F2FS_MAGIC 0xf2f52010

static __always_inline u64 place_of(u64 object, u32 place)
{
	u32 *at = bpf_map_lookup_elem(&places, &place);

	return at && object ? object + *at : 0;
}

/* Reads the word at an offset of an object. */
static __always_inline u64 word_at(u64 object, u32 place)
{
	u64 value = 0, at = place_of(object, place);

	if (at)
		bpf_probe_read_kernel(&value, sizeof(value), (void *)at);
	return value;
}

seldom void emit_checkpoint(u64 super, u64 magic, u64 number, u16 phase)
{
	struct super_block *sb = (void *)super;
	struct slot *slot = slot_here();
	struct who who = whoami();
	struct fathom_checkpoint *r;

	/* An older kernel may pass something else. */
	if (!sb || BPF_CORE_READ(sb, s_magic) != magic)
		return;
	r = RESERVE(checkpoint, CHECKPOINT, bpf_ktime_get_boot_ns(), who);
	if (!r)
		return;
	r->number = number;
	r->syscall_ns = identity_of(slot);
	r->dev = BPF_CORE_READ(sb, s_dev);
	r->phase = phase;
	r->ctx = context(slot, who);
	submit(r);
}

/*
 * One force passes this tracepoint twice: in xfs_log_force or xfs_log_force_seq, and then in xlog_cil_force_seq, which both call
 * (in Linux 6.1 and 6.18; in 5.10 the latter has no tracepoint). It is emitted once. The second is recognised because it follows
 * the first immediately, from the same thread in the same call and for the same checkpoint. A thread that moves to another CPU
 * between the two emits both, which only costs a record.
 */
struct force {
	u64 mount;
	u64 sequence;
	u64 call_ns;
	u64 time_ns;
	u64 thread;
};
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct force);
} forces SEC(".maps");

/* Between the two are only a few instructions; an interrupt may take longer. */
#define FORCE_AGAIN_NS 100000

static __always_inline bool is_emitted(u64 mount, u64 sequence)
{
	struct force now = {
		.mount = mount,
		.sequence = sequence,
		.call_ns = identity_of(slot_here()),
		.time_ns = bpf_ktime_get_boot_ns(),
		.thread = bpf_get_current_pid_tgid(),
	};
	u32 only = 0;
	struct force *last = bpf_map_lookup_elem(&forces, &only);
	bool again;

	if (!last)
		return false;
	again = last->mount == now.mount && last->sequence == now.sequence && last->call_ns == now.call_ns &&
		last->thread == now.thread && now.time_ns - last->time_ns < FORCE_AGAIN_NS;
	*last = now;
	/* A third is another force. */
	if (again)
		last->sequence = 0;
	return again;
}

/* `sequence` is 0 for everything that is logged. */
SEC("raw_tp/xfs_log_force")
int PROBE(xfs_force, u64 mount, u64 sequence)
{
	if (!sequence)
		sequence = word_at(word_at(word_at(mount, XFS_MOUNT_LOG), XLOG_CIL), XFS_CIL_SEQUENCE);
	if (!is_emitted(mount, sequence))
		emit_checkpoint(word_at(mount, XFS_MOUNT_SUPER), XFS_MAGIC, sequence, 0);
	return 0;
}

/* Maximum number of checkpoints emitted that end in one piece of the log. */
#define PIECE_CHECKPOINTS 8

SEC("raw_tp/xlog_iclog_callback")
int PROBE(xfs_logged, u64 piece)
{
	u64 super = word_at(word_at(word_at(piece, XLOG_PIECE_LOG), XLOG_MOUNT), XFS_MOUNT_SUPER);
	u64 head = place_of(piece, XLOG_PIECE_CHECKPOINTS), at = head;
	u32 entry = XFS_CHECKPOINT_ENTRY;
	u32 *offset = bpf_map_lookup_elem(&places, &entry);
	int i;

	if (!offset)
		return 0;
	for (i = 0; i < PIECE_CHECKPOINTS; i++) {
		if (bpf_probe_read_kernel(&at, sizeof(at), (void *)at) || !at || at == head)
			break;
		emit_checkpoint(super, XFS_MAGIC, word_at(at - *offset, XFS_CHECKPOINT_SEQUENCE), 1);
	}
	return 0;
}

SEC("raw_tp/xfs_file_fsync")
int PROBE(xfs_sync_enter)
{
	return sync_began(NULL);
}

SEC("raw_tp/btrfs_transaction_commit")
int PROBE(btrfs_committed, u64 info)
{
	emit_checkpoint(word_at(info, BTRFS_SUPER), BTRFS_MAGIC, word_at(info, BTRFS_COMMITTED), 1);
	return 0;
}

SEC("raw_tp/btrfs_sync_file")
int PROBE(btrfs_sync_enter, struct file *file)
{
	return sync_began(BPF_CORE_READ(file, f_inode));
}

/* `step`: a text; in newer kernels a number. */
SEC("raw_tp/f2fs_write_checkpoint")
int PROBE(f2fs_checkpoint, struct super_block *sb, u64 reason, u64 step)
{
	u64 version = word_at(word_at((u64)BPF_CORE_READ(sb, s_fs_info), F2FS_CHECKPOINT), F2FS_VERSION);
	char text[8] = {};

	/* "start block_ops", "finish block_ops", "finish checkpoint" */
	if (step > 0xffff) {
		bpf_probe_read_kernel(text, sizeof(text), (void *)step);
		step = text[0] == 's' ? 0 : text[7] == 'c' ? 2 : 1;
	}
	/* The version is incremented between the two. */
	if (step == 0)
		emit_checkpoint((u64)sb, F2FS_MAGIC, version + 1, 0);
	else if (step == 2)
		emit_checkpoint((u64)sb, F2FS_MAGIC, version, 1);
	return 0;
}

SEC("raw_tp/f2fs_sync_file_exit")
int PROBE(f2fs_sync_exit, struct inode *inode, int reason)
{
	if (reason)
		emit_checkpoint((u64)BPF_CORE_READ(inode, i_sb), F2FS_MAGIC, (u32)reason, 2);
	return 0;
}
