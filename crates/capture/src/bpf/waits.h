/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What a thread sleeps for.
 *
 * Outside a recorded call it is the system call, when the thread leaves the CPU: the number is in the registers with which the
 * program entered the kernel (no number: a page fault). Within a recorded call, and in a page fault, it is given by the kernel's
 * own functions on its stack; user space looks up their addresses. That walk takes about 2 us, so it is done when the thread
 * resumes, and only after a sleep of at least LONG_SLEEP: it takes at most 0.4 % of the time that the thread slept, and none of a
 * fast disk's.
 *
 * Uncertain: a function that the compiler inlined into its caller is not found; the sleep then has no name.
 */
#ifndef FATHOM_WAITS_H
#define FATHOM_WAITS_H

/* By the number of a system call on this machine: FATHOM_WAIT_*; 0: not known. */
const volatile u8 wait_calls[CALLS];
/* The same for the calls of 32-bit programs. */
const volatile u8 compat_wait_calls[CALLS];
/* For calls that read and write anything: by the file's type. */
#define WAIT_BY_FILE 0xff

/* Address ranges of the functions that wait for something known, and for what; the rest is empty. */
#define WAIT_FUNCTIONS 48
const volatile u64 wait_from[WAIT_FUNCTIONS];
const volatile u64 wait_to[WAIT_FUNCTIONS];
const volatile u8 wait_what[WAIT_FUNCTIONS];

#define WAIT_FRAMES 16
#define LONG_SLEEP 500000

struct waiting_stack {
	struct slot *slot;
	u64 frames[WAIT_FRAMES];
};

/* A step of its own: the verifier checks it once, instead of once for each frame and each way to here. */
static long look_at_frame(u32 i, struct waiting_stack *stack)
{
	u64 at;
	int j;

	if (i >= WAIT_FRAMES)
		return 1;
	at = stack->frames[i];
	if (!at)
		return 1;
#pragma clang loop unroll(disable)
	for (j = 0; j < WAIT_FUNCTIONS; j++) {
		if (!wait_to[j])
			break;
		if (at >= wait_from[j] && at < wait_to[j]) {
			stack->slot->sleeps_for = wait_what[j];
			return 1;
		}
	}
	return 0;
}

/*
 * Examines the stack of a thread that is about to run again after a sleep. The result goes through memory: otherwise Linux 6.1
 * would check all following code once for each value.
 */
seldom void look_at_stack(struct task_struct *task, struct slot *slot)
{
	struct waiting_stack stack = { .slot = slot };

	if (bpf_get_task_stack(task, stack.frames, sizeof(stack.frames), 0) > 0)
		bpf_loop(WAIT_FRAMES, look_at_frame, &stack, 0);
}

/* The type of the file with that descriptor, if a thread can wait for it. */
seldom u32 wait_on_file(struct task_struct *task, int fd)
{
	struct file *file = file_of(task, fd);
	u32 type;

	if (!file)
		return 0;
	type = BPF_CORE_READ(file, f_inode, i_mode) & S_IFMT;
	return type == S_IFIFO ? FATHOM_WAIT_PIPE : type == S_IFSOCK ? FATHOM_WAIT_SOCKET : 0;
}

/* For the running thread, which is about to sleep. */
static __always_inline u32 sleeps_for(struct task_struct *task, struct slot *slot)
{
	struct pt_regs *regs;
	bool compat;
	u64 args[8];
	u64 nr;
	u32 what;

	if (slot->call)
		return 0;
	regs = (void *)bpf_task_pt_regs(task);
	nr = (s64)CALL_NR(regs);
	if (nr >= CALLS)
		return FATHOM_WAIT_PAGE_FAULT;
	compat = COMPAT_CALL(task, regs);
	what = likely(!compat) ? wait_calls[nr] : compat_wait_calls[nr];
	if (likely(what != WAIT_BY_FILE))
		return what;
	read_args(args, regs, compat);
	return wait_on_file(task, args[0]);
}

/* Whether a task is in a system call of that kind. */
static __always_inline bool in_call_of(struct task_struct *task, u8 what)
{
	struct pt_regs *regs = (void *)bpf_task_pt_regs(task);
	u64 nr = (s64)CALL_NR(regs);

	if (nr >= CALLS)
		return false;
	return (likely(!COMPAT_CALL(task, regs)) ? wait_calls[nr] : compat_wait_calls[nr]) == what;
}

/* Total time for which the thread's CPU queue has been without time of its cgroups. */
static __always_inline u64 quota_used_up(struct task_struct *task, u64 *queue)
{
	struct cfs_rq *rq;

	if (!bpf_core_field_exists(((struct cfs_rq *)0)->throttled_clock_pelt_time) ||
	    !bpf_core_field_exists(((struct sched_entity *)0)->cfs_rq))
		return 0;
	rq = task->se.cfs_rq;
	*queue = (u64)rq;
	return rq->throttled_clock_pelt_time;
}

#endif
