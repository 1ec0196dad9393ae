/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The path of a file as its process sees it: up from the directory entry, over the mounts, to the process's root. The
 * walk takes no lock; a rename that happens at the same moment can mix old and new names, as it can in /proc.
 */
#ifndef FATHOM_PATH_H
#define FATHOM_PATH_H

#define PATH_COMPONENTS 24
#define NAME_MAX 255

/* Writes the path into the scratch buffer's text; returns its bytes. Of a path too deep the last components are kept. */
static __always_inline u32 write_path(struct scratch *s, struct file *file)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct dentry *root = task->fs->root.dentry;
	struct vfsmount *root_mount = task->fs->root.mnt;
	struct dentry *dentry = BPF_CORE_READ(file, f_path.dentry);
	struct vfsmount *vfs = BPF_CORE_READ(file, f_path.mnt);
	u32 at = TEXT_MAX - 1;
	u32 size;
	int i;

	for (i = 0; i < PATH_COMPONENTS; i++) {
		struct dentry *parent;
		const unsigned char *name;
		u32 len;

		if (dentry == root && vfs == root_mount)
			break;
		if (dentry == BPF_CORE_READ(vfs, mnt_root)) {
			struct mount *mount = (void *)vfs - bpf_core_field_offset(struct mount, mnt);
			struct mount *above = BPF_CORE_READ(mount, mnt_parent);

			if (above == mount)
				break;
			dentry = BPF_CORE_READ(mount, mnt_mountpoint);
			vfs = (void *)above + bpf_core_field_offset(struct mount, mnt);
			continue;
		}
		parent = BPF_CORE_READ(dentry, d_parent);
		if (parent == dentry)
			break;
		len = BPF_CORE_READ(dentry, d_name.len);
		name = BPF_CORE_READ(dentry, d_name.name);
		if (len > NAME_MAX || at < len + 1)
			break;
		at -= len + 1;
		/* The masks change nothing; they are what the verifier understands. */
		s->path[at & (TEXT_MAX - 1)] = '/';
		bpf_probe_read_kernel(&s->path[(at + 1) & (TEXT_MAX - 1)], len & NAME_MAX, name);
		dentry = parent;
	}
	size = (TEXT_MAX - 1 - at) & (TEXT_MAX - 1);
	bpf_probe_read_kernel(s->file.text, size, &s->path[at & (TEXT_MAX - 1)]);
	return size;
}

static __always_inline void emit_file(struct file *file, u16 what, u64 now, u64 flags)
{
	struct file_id id = identify(BPF_CORE_READ(file, f_inode));
	struct scratch *s;
	u32 len;

	if ((id.mode & S_IFMT) != S_IFREG)
		return;
	s = take_scratch();
	if (!s)
		return;
	len = write_path(s, file);
	s->file.r.ino = id.ino;
	s->file.r.dev = id.dev;
	s->file.r.what = what;
	s->file.r.len = len;
	output(&s->file.r.h, FATHOM_KIND_FILE, sizeof(s->file.r) + (len & (TEXT_MAX - 1)), now, whoami(), flags);
	put_scratch(s);
}

#endif
