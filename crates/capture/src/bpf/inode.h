/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Which file a kernel object belongs to. Pointers from arrays or raw tracepoints are mere numbers to the verifier, so these are
 * read through bpf_probe_read_kernel.
 */
#ifndef FATHOM_INODE_H
#define FATHOM_INODE_H

struct file_id {
	u64 ino;
	u32 dev;
	u16 mode;
};

/*
 * Reads several fields of a struct at once, since a guarded read costs far more than the bytes it copies. `head` holds the struct's
 * first bytes; a field beyond them (the offsets are constants for the verifier) is read separately.
 */
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
	/* All block devices' inodes are on one pseudo file system; they differ by the device they represent. */
	if ((id.mode & S_IFMT) == S_IFBLK) {
		id.dev = HEAD_FIELD(&head, struct inode, inode, i_rdev);
		return id;
	}
	sb = HEAD_FIELD(&head, struct inode, inode, i_sb);
	id.dev = BPF_CORE_READ(sb, s_dev);
	return id;
}

/* What a call on a file needs to know about it. */
struct open_file {
	u64 file; /* address; 0: no such file */
	u64 inode; /* address */
	unsigned int flags;
	struct file_id id;
};

/*
 * The commonest case: a low number in a table that is part of the struct. The verifier then knows every type on the way and all
 * fields are plain loads, while the general case takes four guarded reads of about 28 ns each. The comment in the assembly prevents
 * the compiler from merging the cases into one load at a computed offset, which the verifier refuses.
 */
#define LOW_FILE(n)                                                                                                    \
	case n:                                                                                                        \
		file = files->fd_array[n];                                                                             \
		asm volatile("# " #n : "+r"(file));                                                                    \
		break
static __always_inline bool low_file(struct task_struct *task, int fd, struct open_file *open)
{
	struct files_struct *files = task->files;
	struct file *file;
	struct inode *inode;

	if (files->fdt != &files->fdtab)
		return false;
	switch (fd) {
	LOW_FILE(0); LOW_FILE(1); LOW_FILE(2); LOW_FILE(3); LOW_FILE(4); LOW_FILE(5); LOW_FILE(6); LOW_FILE(7);
	LOW_FILE(8); LOW_FILE(9); LOW_FILE(10); LOW_FILE(11); LOW_FILE(12); LOW_FILE(13); LOW_FILE(14); LOW_FILE(15);
	LOW_FILE(16); LOW_FILE(17); LOW_FILE(18); LOW_FILE(19); LOW_FILE(20); LOW_FILE(21); LOW_FILE(22); LOW_FILE(23);
	default:
		return false;
	}
	inode = file->f_inode;
	open->file = (u64)file;
	open->inode = (u64)inode;
	open->flags = file->f_flags;
	open->id.mode = inode->i_mode;
	open->id.ino = inode->i_ino;
	open->id.dev = (open->id.mode & S_IFMT) == S_IFBLK ? inode->i_rdev : inode->i_sb->s_dev;
	return true;
}

/* The open file with that descriptor. */
static __always_inline struct file *file_of(struct task_struct *task, int fd)
{
	struct fdtable *table = task->files->fdt;
	struct file **files = table->fd;
	struct file *file = NULL;

	if (fd < 0 || (u32)fd >= table->max_fds)
		return NULL;
	bpf_probe_read_kernel(&file, sizeof(file), &files[fd]);
	return file;
}

seldom void find_any_file(struct task_struct *task, int fd, struct open_file *open)
{
	struct file *file;
	struct head head;

	file = file_of(task, fd);
	open->file = (u64)file;
	if (!file)
		return;
	read_head(&head, file);
	open->inode = (u64)HEAD_FIELD(&head, struct file, file, f_inode);
	open->flags = HEAD_FIELD(&head, struct file, file, f_flags);
	open->id = identify((struct inode *)open->inode);
}

static __always_inline void find_file(struct task_struct *task, int fd, struct open_file *open)
{
	if (!low_file(task, fd, open))
		find_any_file(task, fd, open);
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
