/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Who is recorded: a slot is inherited at fork, found by name at exec, dropped at exit. Also the names of processes. */

/* Processes that were named in the trace without being recorded; the oldest are forgotten and named again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, u8);
} named SEC(".maps");

seldom void emit_task(struct task_struct *task, u16 what, u64 now)
{
	struct who who = { .tgid = task->tgid, .tid = task->pid, .flags = !!(task->flags & PF_KTHREAD) };
	struct scratch *s = take_scratch();
	long len;

	if (!s)
		return;
	s->task.r.parent = task->real_parent->tgid;
	s->task.r.what = what;
	len = bpf_probe_read_kernel_str(s->task.text, sizeof(s->task.text), task->comm);
	len = len > 0 ? (len - 1) & 15 : 0;
	s->task.r.len = len;
	output(&s->task, FATHOM_KIND_TASK, sizeof(s->task.r) + len, now, who);
	put_scratch(s);
}

/* A process that is not recorded performs I/O: records its name once. */
seldom void name_stranger(u32 tgid, u64 now)
{
	struct task_struct *task;
	u8 yes = 1;

	if (bpf_map_lookup_elem(&named, &tgid))
		return;
	bpf_map_update_elem(&named, &tgid, &yes, BPF_ANY);
	task = (void *)bpf_get_current_task_btf();
	emit_task(task->group_leader, 3, now);
}

seldom void emit_inner_task(struct task_struct *task, u64 now)
{
	u32 level = level_of(task);
	struct fathom_inner_task *r;

	/* The deepest level that the kernel allows (MAX_PID_NS_LEVEL). */
	if (!level || level > 32)
		return;
	r = RESERVE(inner_task, INNER_TASK, now, whoami());
	if (!r)
		return;
	r->inner_tgid = number_at(BPF_CORE_READ(task, group_leader), level);
	r->inner_tid = number_at(task, level);
	r->tgid = task->tgid;
	r->tid = task->pid;
	submit(r);
}

/* The thread, or its former program, no longer exists. */
static __always_inline void forget_slot(u32 tid)
{
	struct slot *slot = slot_of(tid);

	if (slot)
		stack_is_done(slot);
	bpf_map_delete_elem(&tasks, &tid);
}

/* Called for every task, including those of io_uring's workers, which sched_process_fork does not report. */
SEC("tp_btf/task_newtask")
int PROBE(task_fork, struct task_struct *child, u64 clone_flags)
{
	struct slot *slot = slot_of((u32)bpf_get_current_pid_tgid());
	u64 now;

	u32 tid = child->pid;
	u16 standing;

	if (!slot)
		return 0;
	standing = slot->standing;
	/* A thread with the same ID whose end was missed. */
	forget_slot(tid);
	slot = make_slot(child->tgid, tid, standing);
	now = bpf_ktime_get_boot_ns();
	/* It is runnable from now on, and waits for a CPU first. */
	if (slot && standing & FATHOM_TRACKED && idle_sleeps)
		slot->out_ns = now;
	if (standing & FATHOM_TRACKED)
		emit_inner_task(child, now);
	if (child->pid != child->tgid)
		return 0;
	inherit_inside(child->tgid);
	tell_moved(child->tgid, bpf_get_current_pid_tgid() >> 32);
	emit_task(child, 0, now);
	return 0;
}

static __always_inline bool comm_is_wanted(struct task_struct *task)
{
	char comm[16];
	int i;

	if (!wanted_comm[0])
		return false;
	bpf_probe_read_kernel(comm, sizeof(comm), task->comm);
#pragma unroll
	for (i = 0; i < 16; i++) {
		if (comm[i] != wanted_comm[i])
			return false;
		if (!comm[i])
			return true;
	}
	return true;
}

SEC("tp_btf/sched_process_exec")
int PROBE(task_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	u32 old_tid = old_pid;
	struct slot *slot = slot_of(old_tid);
	u64 now;
	u16 standing = slot ? slot->standing : 0;

	if (comm_is_wanted(task))
		standing |= FATHOM_TRACKED;
	else if (!slot)
		return 0;
	/* Another program: the old one's statements and calls are over. The thread may have taken over its leader's ID. */
	forget_slot(old_tid);
	slot = make_slot(task->tgid, task->pid, standing);
	if (!slot)
		return 0;
	forget_inside(task->tgid);
	now = bpf_ktime_get_boot_ns();
	emit_task(task, 1, now);
	emit_file(bprm->file, 1, now);
	tell_moved(task->tgid, 0);
	ring_bell();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int PROBE(task_exit, struct task_struct *task)
{
	u32 tid = task->pid;
	struct slot *slot = slot_of(tid);

	if (!slot)
		return 0;
	if (unlikely(slot->out_ns))
		count_switch_unseen();
	emit_task(task, 2, bpf_ktime_get_boot_ns());
	forget_slot(tid);
	return 0;
}
