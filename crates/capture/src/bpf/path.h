/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The path of a file as its process sees it: up from the directory entry, over the mounts, to the process's root. The walk takes no
 * lock; a concurrent rename can mix old and new names, as in /proc.
 */
#ifndef FATHOM_PATH_H
#define FATHOM_PATH_H

/* Maximum number of components and mounts; deeper paths lose their beginning. */
#define PATH_STEPS 32
#define NAME_MAX 255

/* One step up. The state is in the scratch buffer, which the verifier does not track: it checks the step once. */
static long step_up(u32 i, struct scratch **context)
{
	struct scratch *s = *context;
	struct path_walk *w = &s->walk;
	struct dentry *dentry = (void *)w->dentry;
	struct vfsmount *vfs = (void *)w->vfs;
	struct dentry *parent;
	const unsigned char *name;
	u32 len, at;

	if (w->dentry == w->root && w->vfs == w->root_vfs)
		return 1;
	if (dentry == BPF_CORE_READ(vfs, mnt_root)) {
		struct mount *mount = (void *)vfs - bpf_core_field_offset(struct mount, mnt);
		struct mount *above = BPF_CORE_READ(mount, mnt_parent);

		if (above == mount)
			return 1;
		w->dentry = (u64)BPF_CORE_READ(mount, mnt_mountpoint);
		w->vfs = (u64)above + bpf_core_field_offset(struct mount, mnt);
		return 0;
	}
	read_head(&w->head, dentry);
	parent = HEAD_FIELD(&w->head, struct dentry, dentry, d_parent);
	if (parent == dentry)
		return 1;
	len = HEAD_FIELD(&w->head, struct dentry, dentry, d_name.len);
	name = HEAD_FIELD(&w->head, struct dentry, dentry, d_name.name);
	at = w->at;
	if (len > NAME_MAX || at < len + 1)
		return 1;
	at -= len + 1;
	/* The masks change nothing; the verifier needs them. */
	s->path[at & (TEXT_MAX - 1)] = '/';
	bpf_probe_read_kernel(&s->path[(at + 1) & (TEXT_MAX - 1)], len & NAME_MAX, name);
	w->at = at;
	w->dentry = (u64)parent;
	return 0;
}

/* Writes the path into the scratch buffer's text; returns its length. Of a path too deep the last components are kept. */
static __always_inline u32 write_path(struct scratch *s, struct file *file)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	u32 size, at;

	s->walk.root = (u64)task->fs->root.dentry;
	s->walk.root_vfs = (u64)task->fs->root.mnt;
	s->walk.dentry = (u64)BPF_CORE_READ(file, f_path.dentry);
	s->walk.vfs = (u64)BPF_CORE_READ(file, f_path.mnt);
	s->walk.at = TEXT_MAX - 1;
	bpf_loop(PATH_STEPS, step_up, &s, 0);
	at = s->walk.at;
	size = (TEXT_MAX - 1 - at) & (TEXT_MAX - 1);
	bpf_probe_read_kernel(s->file.text, size, &s->path[at & (TEXT_MAX - 1)]);
	return size;
}

/* The path of an open file, as the name of an inode: the file's own, or one below it. */
static __always_inline void emit_name(struct file *file, struct file_id id, u16 what, u64 now)
{
	struct scratch *s;
	u32 len;

	if ((id.mode & S_IFMT) != S_IFREG && (id.mode & S_IFMT) != S_IFDIR)
		return;
	s = take_scratch();
	if (!s)
		return;
	len = write_path(s, file);
	s->file.r.ino = id.ino;
	s->file.r.dev = id.dev;
	s->file.r.what = what;
	s->file.r.len = len;
	output(&s->file, FATHOM_KIND_FILE, sizeof(s->file.r) + (len & (TEXT_MAX - 1)), now, whoami());
	put_scratch(s);
}

static __always_inline void emit_file(struct file *file, u16 what, u64 now)
{
	emit_name(file, identify(BPF_CORE_READ(file, f_inode)), what, now);
}

/* How an open file was opened. */
static __always_inline u16 opened_as(struct file *file)
{
	return BPF_CORE_READ(file, f_mode) & FMODE_CREATED ? 5 : 0;
}

/*
 * Open files whose calls write another inode than their own, that of a file system below (overlayfs), by address: the address of the
 * inode that was given the file's name.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, u64);
} named_below SEC(".maps");
u32 any_named_below;

/* An open file may have the address of one that was closed. */
static __always_inline void forget_below(struct file *file)
{
	u64 key = (u64)file;

	if (unlikely(*(volatile u32 *)&any_named_below))
		bpf_map_delete_elem(&named_below, &key);
}

#endif
