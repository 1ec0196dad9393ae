/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * System calls on files: the entry fills the task's slot, the exit writes the one record. Most calls on a machine are not wanted,
 * so the number is looked up first, in a table that the verifier treats as constant memory.
 *
 * A wanted call on something that is not storage (a pipe, a terminal, a socket) is dropped at entry, before it costs more.
 */

/* Writes longer than this also emit each piece, as its pages may reach the disk before the call returns. */
#define LONG_WRITE (64 << 10)

#define ARG(args, i) ((args)[(i) & 7])

static __always_inline u64 number_arg(u64 *args, u8 at)
{
	u64 value = ARG(args, at);

	if (unlikely(at & WIDE_ARG))
		value |= ARG(args, at + 1) << 32;
	return value;
}

/* How to decode a call; false: not wanted. */
static __always_inline bool shape_of(u64 nr, bool compat, struct call_shape *shape)
{
	const volatile struct call_shape *of;

	if (nr >= CALLS)
		return false;
	of = likely(!compat) ? &call_shapes[nr] : &compat_shapes[nr];
	shape->call = of->call;
	if (!shape->call)
		return false;
	shape->fd = of->fd;
	shape->pos = of->pos;
	shape->bytes = of->bytes;
	return true;
}

/*
 * RWF_DSYNC and RWF_SYNC (uapi/linux/fs.h): this write waits for the medium, regardless of the file's open flags
 * (kiocb_set_rw_flags).
 */
#define AT_REMOVEDIR 0x200
#define RWF_SYNCED (0x2 | 0x4)

/*
 * The sixth argument of the calls that Fathom's object, not the program, makes inside the program (system.h of the crate `inside`).
 * Any program can pass it in its own calls: it counts only if there is an object.
 */
#define OWN_CALL 0x6c6c61436e776f46UL

static __always_inline bool call_writes(u16 call)
{
	return (call >= FATHOM_CALL_WRITE && call <= FATHOM_CALL_PWRITEV) || call == FATHOM_CALL_PWRITEV2;
}

static __always_inline bool call_reads(u16 call)
{
	return (call >= FATHOM_CALL_READ && call <= FATHOM_CALL_PREADV) || call == FATHOM_CALL_PREADV2;
}

static __always_inline bool call_transfers(u16 call)
{
	return call_reads(call) || call_writes(call);
}

/* Whether the call returns only when data is on the medium. */
static __always_inline bool awaits_medium(struct slot *slot, u16 call)
{
	return call_syncs(call) || (slot->file_flags & FATHOM_SYNC_FILE && call_writes(call));
}

/* Identifies the file that the call is about. False: not storage. */
static __always_inline bool enter_file(struct task_struct *task, struct slot *slot, u16 call, int fd)
{
	struct open_file open;
	u16 type;

	find_file(task, fd, &open);
	if (!open.file)
		return false;
	type = open.id.mode & S_IFMT;
	if (type != S_IFREG && type != S_IFBLK && !call_syncs(call))
		return false;
	slot->file = open.file;
	slot->inode = open.inode;
	slot->ino = open.id.ino;
	slot->dev = open.id.dev;
	slot->file_flags = 0;
	if (type == S_IFREG)
		slot->file_flags |= FATHOM_REGULAR;
	if (open.flags & open_direct)
		slot->file_flags |= FATHOM_DIRECT;
	/* O_SYNC is O_DSYNC plus one more bit. */
	if (open.flags & open_dsync)
		slot->file_flags |= FATHOM_SYNC_FILE;
	return true;
}

/* The thread's current call of io_uring_enter begins to count. */
static __always_inline void enter_ring(struct slot *slot)
{
	slot->inode = 0;
	slot->file = 0;
	slot->ino = 0;
	slot->dev = 0;
	slot->file_flags = 0;
	slot->fd = -1;
	slot->requested = 0;
	slot->fs_start_ns = 0;
	slot->txn = 0;
	slot->txn_dev = 0;
	slot->handles = 0;
	slot->cache_added = 0;
	slot->fs_writes = 0;
	slot->start_ns = slot->ring_enter_ns;
	slot->call = FATHOM_CALL_IO_URING_ENTER;
}

/* Names a directory that is synced: only files are named when they are opened. */
seldom void name_directory(struct task_struct *task, int fd, u64 now)
{
	struct file *file = file_of(task, fd);

	if (file)
		emit_file(file, 0, now);
}

/* Since when all sleeps of recorded threads have been recorded, because the memory for marks is mapped; 0: it is not. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, u64);
} marks_from SEC(".maps");

/* Something is mapped: maybe the memory for marks. */
seldom void note_marks(struct task_struct *task, int fd)
{
	struct file *file = file_of(task, fd);
	struct file_id id;
	u32 only = 0;
	u64 *from;

	if (!file)
		return;
	id = identify(BPF_CORE_READ(file, f_inode));
	from = bpf_map_lookup_elem(&marks_from, &only);
	if (id.ino != marks_ino || id.dev != marks_dev || !from)
		return;
	marks_mapped = 1;
	*from = bpf_ktime_get_boot_ns();
}

SEC("tp_btf/sys_enter")
int PROBE(sys_enter, struct pt_regs *regs, long nr)
{
	struct fathom_sync_begin *r;
	struct call_shape shape;
	struct task_struct *task;
	struct slot *slot;
	struct who who;
	bool compat;
	u64 args[8];
	int fd = -1;
	u64 now;

	task = (void *)bpf_get_current_task_btf();
	compat = COMPAT_CALL(task, regs);
	if (!shape_of(nr, compat, &shape))
		return 0;
	slot = slot_for(task->tgid, task->pid);
	if (!slot)
		return 0;
	if (unlikely(slot->functions_open))
		settle_left(slot, PT_REGS_SP(regs), true, bpf_ktime_get_boot_ns());
	read_args(args, regs, compat);
	if (unlikely(args[5] == OWN_CALL) && with_object && slot->standing & FATHOM_TRACKED)
		return 0;
	if (unlikely(shape.call == FATHOM_CALL_MMAP) && !(args[2] & PROT_EXEC)) {
		if (unlikely(marks_ino) && !marks_mapped && (s32)args[4] >= 0)
			note_marks(task, args[4]);
		return 0;
	}
	if (unlikely(shape.call == FATHOM_CALL_IO_URING_ENTER)) {
		/* Most rings of a machine are for sockets: the call counts only once it involves a file. */
		slot->ring_enter_ns = bpf_ktime_get_boot_ns();
		if (slot->ring_open) {
			read_inside(slot);
			enter_ring(slot);
		}
		return 0;
	}
	slot->inode = 0;
	slot->file = 0;
	slot->ino = 0;
	slot->dev = 0;
	slot->file_flags = 0;
	if (shape.fd != NO_ARG) {
		fd = ARG(args, shape.fd);
		slot->fd = fd;
		if (!enter_file(task, slot, shape.call, fd))
			return 0;
		/* Read again: the verifier would check all that follows once for each number of low_file. */
		fd = *(volatile s32 *)&slot->fd;
		if (unlikely(nr == (compat ? compat_pwritev2_number : pwritev2_number)) && args[5] & RWF_SYNCED)
			slot->file_flags |= FATHOM_SYNC_FILE;
	}
	read_inside(slot);
	settle_inside(slot, PT_REGS_SP(regs));
	now = bpf_ktime_get_boot_ns();
	/* Statements that end here, end before the call begins. */
	if (unlikely(between_rows(slot)))
		settle_statements(slot, now++);
	slot->fd = fd;
	slot->start_ns = now;
	slot->requested = shape.bytes == NO_ARG ? 0 : number_arg(args, shape.bytes);
	slot->fs_start_ns = 0;
	slot->txn = 0;
	slot->txn_dev = 0;
	slot->handles = 0;
	slot->cache_added = 0;
	slot->fs_writes = 0;
	slot->call = shape.call;
	/* The third argument of unlink, whose name is the first one, is whatever the register has. */
	if (unlikely(shape.call == FATHOM_CALL_UNLINK && shape.pos != 0 && args[2] & AT_REMOVEDIR))
		slot->call = FATHOM_CALL_RMDIR;
	if (likely(!awaits_medium(slot, shape.call)))
		return 0;
	if (unlikely(fd >= 0 && !(slot->file_flags & FATHOM_REGULAR)))
		name_directory(task, fd, now);
	who = who_is(task);
	r = RESERVE(sync_begin, SYNC_BEGIN, now, who);
	if (!r)
		return 0;
	r->ino = slot->ino;
	r->dev = slot->dev;
	r->call = slot->call;
	r->ctx = context(slot, who) | slot->file_flags;
	submit(r);
	return 0;
}

/* An open file or code mapping has become known. */
seldom void exit_names(struct task_struct *task, struct slot *slot, int fd, u64 now)
{
	struct file *file = file_of(task, fd);
	struct file_id id;

	if (!file)
		return;
	if (slot->call == FATHOM_CALL_MMAP) {
		emit_file(file, 1, now);
		tell_moved(task->tgid, 0);
		ring_bell();
		return;
	}
	id = identify(BPF_CORE_READ(file, f_inode));
	slot->ino = id.ino;
	slot->dev = id.dev;
	if ((id.mode & S_IFMT) == S_IFREG) {
		slot->file_flags |= FATHOM_REGULAR;
		/* Another file's data under this inode number is obsolete after this call. */
		emit_file(file, opened_as(file), now);
		if (opened_as(file) == 5)
			slot->stores = 1;
		forget_below(file);
	}
}

/* A removed file's name, as passed by the program. Its inode was read during the call, on ext4 only: see filesystem.bpf.c. */
seldom void exit_unlink(struct slot *slot, u64 name, u64 now)
{
	struct scratch *s = take_scratch();
	long len;

	if (!s)
		return;
	len = bpf_probe_read_user_str(s->file.text, TEXT_MAX, (void *)name);
	len = len > 0 ? (len - 1) & (TEXT_MAX - 1) : 0;
	s->file.r.ino = slot->ino;
	s->file.r.dev = slot->dev;
	s->file.r.what = slot->kept ? 6 : 2;
	s->file.r.len = len;
	output(&s->file, FATHOM_KIND_FILE, sizeof(s->file.r) + len, now, whoami());
	put_scratch(s);
}

static __always_inline s64 position(struct slot *slot, u8 pos_arg, u64 *args, s64 result)
{
	struct file *file = (void *)slot->file;
	s64 pos = -1;

	if (pos_arg != NO_ARG)
		pos = number_arg(args, pos_arg);
	/* preadv2 and pwritev2 take -1 for the file's own position. */
	if (pos == -1 && call_transfers(slot->call) && file) {
		pos = BPF_CORE_READ(file, f_pos);
		if (result > 0)
			pos -= result;
	}
	return pos;
}

/* The descriptor that a call is about; for an open, its result. */
static __always_inline s32 call_fd(struct slot *slot, s64 result)
{
	return slot->call == FATHOM_CALL_OPEN ? result : slot->fd;
}

/* A call that lasted seconds, or with unusually large numbers. */
seldom void emit_odd_call(struct slot *slot, s64 pos, u64 requested, s64 result, u64 now)
{
	struct who who = whoami();
	struct fathom_syscall *r = RESERVE(syscall, SYSCALL, now, who);

	if (!r)
		return;
	r->start_ns = slot->start_ns;
	r->ino = slot->ino;
	r->pos = pos;
	r->bytes = requested;
	r->result = result;
	r->fs_start_ns = slot->fs_start_ns;
	r->fs_end_ns = slot->fs_start_ns ? now : 0;
	r->dev = slot->dev;
	r->txn = slot->txn;
	r->handles = slot->handles;
	r->cache_added = slot->cache_added;
	r->call = slot->call;
	r->ctx = context(slot, who) | slot->file_flags;
	r->fd = call_fd(slot, result);
	r->fs_writes = slot->fs_writes;
	submit(r);
}

static __always_inline void emit_call(struct task_struct *task, struct slot *slot, s64 pos, u64 requested, s64 result,
				      u64 now)
{
	u64 inside = slot->fs_start_ns ? slot->fs_start_ns - slot->start_ns + 1 : 0;
	u64 took = now - slot->start_ns;
	s32 fd = call_fd(slot, result);
	struct who who = who_is(task);
	u64 place = pos + 1;
	u64 done, joined;
	/* Whether there is something to emit in this word or a later one. */
	u64 from_3, from_4, *r;
	u32 words = 3;

	if (unlikely((took | inside | requested) >> 32 || (s32)result != result || (s16)fd != fd ||
		     slot->fs_writes > 0xff)) {
		emit_odd_call(slot, pos, requested, result, now);
		return;
	}
	done = two_words(result, requested - result);
	joined = two_words(slot->txn, (u32)slot->cache_added << 16 | slot->handles);
	from_4 = joined | place;
	from_3 = done | from_4;
	if (joined)
		words = 6;
	else if (from_4)
		words = 5;
	else if (from_3)
		words = 4;
	r = ring_reserve(PACKED_SYSCALL, words, now, who, context(slot, who) | slot->file_flags);
	if (!r)
		return;
	r[0] = two_words(took, inside);
	r[1] = slot->ino;
	r[2] = two_words(slot->dev, slot->fs_writes << 24 | (u32)slot->call << 16 | (u16)fd);
	if (from_3) {
		r[3] = done;
		if (from_4) {
			r[4] = place;
			if (joined)
				r[5] = joined;
		}
	}
	submit(r);
}

SEC("tp_btf/sys_exit")
int PROBE(sys_exit, struct pt_regs *regs, long result)
{
	struct call_shape shape;
	struct task_struct *task;
	struct slot *slot;
	bool compat;
	u64 args[8];
	u64 requested;
	u64 now;
	s64 pos;

	if (unlikely(*(volatile u32 *)&stacks_due))
		take_program_stack(regs);
	task = (void *)bpf_get_current_task_btf();
	compat = COMPAT_CALL(task, regs);
	if (!shape_of((s64)CALL_NR(regs), compat, &shape))
		return 0;
	slot = slot_of(task->pid);
	if (!slot)
		return 0;
	slot->ring_enter_ns = 0;
	slot->ring_ns = 0;
	if (!slot->call)
		return 0;
	now = bpf_ktime_get_boot_ns();
	read_args(args, regs, compat);
	if (unlikely(slot->call == FATHOM_CALL_MMAP)) {
		if (result > 0 || result < -4095)
			exit_names(task, slot, args[4], now);
		goto out;
	}
	if (unlikely(slot->call == FATHOM_CALL_OPEN && result >= 0))
		exit_names(task, slot, result, now);
	if (unlikely(slot->call == FATHOM_CALL_UNLINK && result == 0 && slot->ino))
		exit_unlink(slot, ARG(args, shape.pos), now);
	/* Opening something that is not a file is not storage. */
	if (slot->call == FATHOM_CALL_OPEN && !slot->handles && !(slot->file_flags & FATHOM_REGULAR))
		goto out;
	/* io_uring's requests are recorded apart from the call. */
	if (!call_reads(slot->call) && slot->call != FATHOM_CALL_IO_URING_ENTER &&
	    (slot->call != FATHOM_CALL_OPEN || slot->handles))
		slot->stores = 1;
	pos = -1;
	if (shape.call != FATHOM_CALL_UNLINK)
		pos = position(slot, shape.pos, args, result);
	requested = slot->requested;
	if (shape.bytes == NO_ARG && call_transfers(slot->call) && result > 0)
		requested = result;
	emit_call(task, slot, pos, requested, result, now);
out:
	slot->call = 0;
	slot->start_ns = 0;
	return 0;
}
