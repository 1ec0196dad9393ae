/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Locks on files that a thread of an operation did not get at once, and who holds them. The tracepoints fire at each attempt of any
 * task; successful attempts return first, since nearly all are.
 *
 * The holder is looked up in the inode's list right after the kernel has left it. It may have released the lock meanwhile: then it
 * is unknown.
 */

#define EAGAIN 11
/* FILE_LOCK_DEFERRED: the caller will sleep until it is granted. */
#define DEFERRED 1
#define F_WRLCK 1
#define FL_OFDLCK 1024
/* Maximum number of locks of a file that are examined. */
#define LOCKS 32

/* The fields of a lock that are needed; "filelock: split common fields into struct file_lock_core" (6.9) moved them. */
struct lock_facts {
	u64 owner;
	u64 next;
	s64 start;
	s64 end;
	u32 flags;
	u32 pid;
	u8 type;
};

static __always_inline void read_lock(void *lock, struct lock_facts *facts)
{
	struct file_lock___core *core = lock;
	struct file_lock *plain = lock;

	if (bpf_core_field_exists(((struct file_lock___core *)0)->c)) {
		facts->owner = (u64)BPF_CORE_READ(core, c.flc_owner);
		facts->next = (u64)BPF_CORE_READ(core, c.flc_list.next);
		facts->flags = BPF_CORE_READ(core, c.flc_flags);
		facts->type = BPF_CORE_READ(core, c.flc_type);
		facts->pid = BPF_CORE_READ(core, c.flc_pid);
	} else {
		facts->owner = (u64)BPF_CORE_READ(plain, fl_owner);
		facts->next = (u64)BPF_CORE_READ(plain, fl_list.next);
		facts->flags = BPF_CORE_READ(plain, fl_flags);
		facts->type = BPF_CORE_READ(plain, fl_type);
		facts->pid = BPF_CORE_READ(plain, fl_pid);
	}
	facts->start = BPF_CORE_READ(plain, fl_start);
	facts->end = BPF_CORE_READ(plain, fl_end);
}

static __always_inline u64 list_offset(void)
{
	if (bpf_core_field_exists(((struct file_lock___core *)0)->c))
		return bpf_core_field_offset(struct file_lock___core, c) +
		       bpf_core_field_offset(struct file_lock_core, flc_list);
	return bpf_core_field_offset(struct file_lock, fl_list);
}

/* The process that holds a lock that conflicts with this one, from the list that begins at `head`. */
static __always_inline u32 holder_of(u64 head, struct lock_facts *wanted)
{
	struct lock_facts other = {};
	u64 offset = list_offset();
	u64 at = 0;
	int i;

	bpf_probe_read_kernel(&at, sizeof(at), (void *)head);
#pragma clang loop unroll(disable)
	for (i = 0; i < LOCKS; i++) {
		if (!at || at == head)
			return 0;
		read_lock((void *)(at - offset), &other);
		if (other.owner != wanted->owner && other.start <= wanted->end && wanted->start <= other.end &&
		    (other.type == F_WRLCK || wanted->type == F_WRLCK))
			return other.pid;
		at = other.next;
	}
	return 0;
}

seldom void lock_wanted(struct inode *inode, void *lock, int result, bool whole)
{
	struct file_lock_context *known;
	struct lock_facts wanted = {};
	struct slot *slot = slot_here();
	struct fathom_lock *r;
	struct file_id id;
	struct who who;
	u32 holder = 0;
	u64 now;

	if (!slot || !in_operation(slot))
		return;
	now = bpf_ktime_get_boot_ns();
	read_lock(lock, &wanted);
	known = BPF_CORE_READ(inode, i_flctx);
	if (known) {
		u64 head = (u64)known + (whole ? bpf_core_field_offset(struct file_lock_context, flc_flock) :
						 bpf_core_field_offset(struct file_lock_context, flc_posix));

		holder = holder_of(head, &wanted);
	}
	id = identify(inode);
	who = whoami();
	r = RESERVE(lock, LOCK, now, who);
	if (!r)
		return;
	r->ino = id.ino;
	r->pos = wanted.start;
	r->dev = id.dev;
	r->holder = holder;
	r->kind = whole ? 3 : wanted.flags & FL_OFDLCK ? 2 : 1;
	r->phase = result == DEFERRED;
	r->ctx = context(slot, who);
	r->pad = 0;
	submit(r);
}

SEC("tp_btf/posix_lock_inode")
int PROBE(posix_lock, struct inode *inode, struct file_lock *lock, int result)
{
	if (unlikely(result == -EAGAIN || result == DEFERRED) && inode && lock)
		lock_wanted(inode, lock, result, false);
	return 0;
}

SEC("tp_btf/flock_lock_inode")
int PROBE(flock_lock, struct inode *inode, struct file_lock *lock, int result)
{
	if (unlikely(result == -EAGAIN || result == DEFERRED) && inode && lock)
		lock_wanted(inode, lock, result, true);
	return 0;
}
