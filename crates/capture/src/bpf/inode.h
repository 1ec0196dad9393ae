/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which file a kernel object belongs to. Pointers that come out of arrays or of raw tracepoints are mere numbers to the
 * verifier, so these read through bpf_probe_read_kernel.
 */
#ifndef FATHOM_INODE_H
#define FATHOM_INODE_H

struct file_id {
	u64 ino;
	u32 dev;
	u16 mode;
};

/*
 * Several fields of a struct in one read, since a guarded read costs far more than the bytes it copies. `head` holds the
 * struct's first bytes; a field that lies beyond them (the offsets are constants when the verifier looks) is read by itself.
 */
#define HEAD 96
struct head {
	u8 bytes[HEAD];
};

static __always_inline void read_head(struct head *head, const void *from)
{
	if (bpf_probe_read_kernel(head, sizeof(*head), from))
		__builtin_memset(head, 0, sizeof(*head));
}

#define FIELD_WITHIN(head, size, type, from, field)                                                                    \
	({                                                                                                             \
		typeof(((type *)0)->field) value;                                                                      \
		u32 offset = bpf_core_field_offset(type, field);                                                       \
		if (offset <= (size) - sizeof(value))                                                                  \
			value = *(typeof(value) *)&(head)->bytes[offset];                                              \
		else                                                                                                   \
			bpf_probe_read_kernel(&value, sizeof(value), (const void *)(from) + offset);                   \
		value;                                                                                                 \
	})
#define HEAD_FIELD(head, type, from, field) FIELD_WITHIN(head, HEAD, type, from, field)

static __always_inline struct file_id identify(struct inode *inode)
{
	struct file_id id = {};
	struct super_block *sb;
	struct head head;

	read_head(&head, inode);
	id.mode = HEAD_FIELD(&head, struct inode, inode, i_mode);
	id.ino = HEAD_FIELD(&head, struct inode, inode, i_ino);
	/* All block devices' inodes live on one pseudo file system; what tells them apart is the device they stand for. */
	if ((id.mode & S_IFMT) == S_IFBLK) {
		id.dev = HEAD_FIELD(&head, struct inode, inode, i_rdev);
		return id;
	}
	sb = HEAD_FIELD(&head, struct inode, inode, i_sb);
	id.dev = BPF_CORE_READ(sb, s_dev);
	return id;
}

/* The open file of that number in the running thread. */
static __always_inline struct file *file_of(int fd)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct fdtable *table = task->files->fdt;
	struct file **files = table->fd;
	struct file *file = NULL;

	if (fd < 0 || (u32)fd >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), &files[fd]);
	return file;
}

#define PAGE_SHIFT 12

static __always_inline u32 folio_pages(struct folio *folio)
{
	unsigned long flags;
	u32 pages;

	if (bpf_core_field_exists(((struct folio___wrapped *)0)->flags.f))
		flags = BPF_CORE_READ((struct folio___wrapped *)folio, flags.f);
	else
		flags = BPF_CORE_READ((struct folio___plain *)folio, flags);
	if (!(flags & (1UL << bpf_core_enum_value(enum pageflags, PG_head))))
		return 1;
	if (bpf_core_field_exists(((struct folio___new_count *)0)->_nr_pages))
		pages = BPF_CORE_READ((struct folio___new_count *)folio, _nr_pages);
	else
		pages = BPF_CORE_READ((struct folio___old_count *)folio, _folio_nr_pages);
	return pages ? pages : 1;
}

#endif
