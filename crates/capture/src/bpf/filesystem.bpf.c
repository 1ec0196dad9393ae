/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Inside the file system: when its code was entered, and which ranges were written.
 *
 * There is no probe on its exit: the call's end is used instead. The time after the file systems' own last tracepoint is mostly
 * theirs (ext4_da_write_end fires before the pages are marked dirty and the inode is logged, and an unlinked inode is evicted after
 * ext4_unlink_exit), and such a probe fires more often than any other of the file system.
 *
 * Within a recorded call this is folded into the slot. It is emitted for tasks whose calls are not recorded (a loop disk's worker,
 * other processes, faults on a mapped file) and for long calls, whose pages may be written back early.
 *
 * File systems may be modules, so these are raw tracepoints; the arguments read are types of the kernel proper.
 */

seldom void emit_fs_write(struct inode *inode, s64 pos, u32 len, struct slot *slot)
{
	struct file_id id = identify(inode);
	struct fathom_fs_write *r =
		RESERVE(fs_write, FS_WRITE, bpf_ktime_get_boot_ns(), whoami_between(slot));

	if (!r)
		return;
	r->ino = id.ino;
	r->pos = pos;
	r->bytes = len;
	r->dev = id.dev;
	r->syscall_ns = identity_of(slot);
	submit(r);
}

/* Whether it is in a call that is about one file; io_uring_enter is about any number. */
static __always_inline bool in_file_call(struct slot *slot)
{
	return slot && slot->call && slot->call != FATHOM_CALL_IO_URING_ENTER;
}

#define OVERLAYFS_SUPER_MAGIC 0x794c7630

/*
 * The call's own inode may be in a layer above (overlayfs): the one that is written counts. It gets the name of the open file, once,
 * as of the beginning of the call. Other file systems also write to inodes that are none of the call's, such as those of quotas.
 */
seldom void learn_inode(struct slot *slot, struct inode *inode)
{
	struct file_id id = identify(inode);
	u64 key = slot->file, value = (u64)inode;
	u64 *named;

	slot->inode = (u64)inode;
	slot->ino = id.ino;
	slot->dev = id.dev;
	if (!key || BPF_CORE_READ((struct file *)key, f_inode, i_sb, s_magic) != OVERLAYFS_SUPER_MAGIC)
		return;
	named = bpf_map_lookup_elem(&named_below, &key);
	if (named && *named == value)
		return;
	bpf_map_update_elem(&named_below, &key, &value, BPF_ANY);
	any_named_below = 1;
	emit_name((struct file *)key, id, opened_as((struct file *)key), slot->start_ns);
}

static __always_inline void adopt_inode(struct slot *slot, struct inode *inode)
{
	if (slot->inode != (u64)inode)
		learn_inode(slot, inode);
}

static __always_inline int write_began(struct inode *inode, s64 pos, u32 len)
{
	struct slot *slot = slot_here();
	bool folded = in_file_call(slot);

	if (folded) {
		if (!slot->fs_start_ns)
			slot->fs_start_ns = bpf_ktime_get_boot_ns();
		slot->fs_writes++;
		adopt_inode(slot, inode);
		if (call_transfers(slot->call) && slot->requested <= LONG_WRITE)
			return 0;
	}
	emit_fs_write(inode, pos, len, slot);
	return 0;
}

static __always_inline int sync_began(struct inode *inode)
{
	struct slot *slot = slot_here();

	if (!in_file_call(slot))
		return 0;
	if (!slot->fs_start_ns)
		slot->fs_start_ns = bpf_ktime_get_boot_ns();
	/* msync does not refer to a file; here it is known. */
	if (inode)
		adopt_inode(slot, inode);
	return 0;
}

SEC("raw_tp/ext4_da_write_begin")
int PROBE(ext4_da_write_begin, struct inode *inode, s64 pos, unsigned int len)
{
	return write_began(inode, pos, len);
}

SEC("raw_tp/ext4_write_begin")
int PROBE(ext4_write_begin, struct inode *inode, s64 pos, unsigned int len)
{
	return write_began(inode, pos, len);
}

SEC("raw_tp/ext4_sync_file_enter")
int PROBE(ext4_sync_enter, struct file *file)
{
	return sync_began(BPF_CORE_READ(file, f_inode));
}

/* The name no longer exists when the call returns, so the inode is read here. */
SEC("raw_tp/ext4_unlink_enter")
int PROBE(ext4_unlink, struct inode *directory, struct dentry *dentry)
{
	struct slot *slot = slot_here();
	struct inode *inode;

	if (!slot || slot->call != FATHOM_CALL_UNLINK)
		return 0;
	slot->fs_start_ns = bpf_ktime_get_boot_ns();
	inode = BPF_CORE_READ(dentry, d_inode);
	adopt_inode(slot, inode);
	/* The call itself holds one reference to the entry, each open file another. */
	slot->kept = BPF_CORE_READ(inode, i_nlink) > 1 || BPF_CORE_READ(dentry, d_lockref.count) > 1;
	return 0;
}

SEC("raw_tp/f2fs_write_begin")
int PROBE(f2fs_write_begin, struct inode *inode, s64 pos, unsigned int len)
{
	return write_began(inode, pos, len);
}

SEC("raw_tp/f2fs_sync_file_enter")
int PROBE(f2fs_sync_enter, struct inode *inode)
{
	return sync_began(inode);
}

/* XFS reports the beginning of a whole write. */
SEC("raw_tp/xfs_file_buffered_write")
int PROBE(xfs_write, struct kiocb *iocb, struct iov_iter *from)
{
	struct inode *inode = BPF_CORE_READ(iocb, ki_filp, f_inode);

	return write_began(inode, BPF_CORE_READ(iocb, ki_pos), BPF_CORE_READ(from, count));
}

/* The pages of a mapped file that a store dirtied: no call reports them, only the fault. Recorded tasks only. */
SEC("tp_btf/writeback_dirty_folio")
int PROBE(page_dirtied, struct folio *folio, struct address_space *mapping)
{
	struct slot *slot = slot_here();
	struct file_id id;

	if (!slot || in_file_call(slot) || !mapping)
		return 0;
	id = identify(mapping->host);
	if ((id.mode & S_IFMT) != S_IFREG)
		return 0;
	emit_fs_write(mapping->host, (s64)folio->index << PAGE_SHIFT, folio_pages(folio) << PAGE_SHIFT, slot);
	return 0;
}
