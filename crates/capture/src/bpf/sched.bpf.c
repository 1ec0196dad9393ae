/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * When a thread of an operation, or one in a recorded system call, was off the CPU: asleep, and runnable but not running.
 * One record when it runs again. Also of all recorded threads outside their operations, whose time has an account too; if every process
 * is recorded, only of those that store something, whose calls may be those of a transaction, and of all once the command marks
 * intervals.
 */

/* A thread can be woken while it leaves the CPU, before the switch is seen: this much earlier at most, in ns. */
#define LEAVING 100000

/*
 * When a thread that runs again was woken; 0: it was never asleep. If the wake-up was not seen, it counts as asleep until now: that it
 * slept is certain, that it waited for a CPU is not.
 */
static __always_inline u64 woken_at(struct slot *slot, u64 now)
{
	/* Read once, as the record's length depends on it. */
	u64 woken = *(volatile u64 *)&slot->wake_ns;

	if (!slot->out_state)
		return 0;
	if (likely(woken >= slot->out_ns))
		return woken;
	if (slot->out_ns - woken < LEAVING)
		return slot->out_ns;
	count_waking_unseen();
	slot->waker = 0;
	slot->waker_tgid = 0;
	return now;
}

/*
 * Whether a task that was about to sleep does not: a signal was pending (before Linux 6.14 the tracepoint still has its state from
 * before), or it was woken meanwhile.
 */
static __always_inline bool is_runnable(struct task_struct *task)
{
	struct task_struct___long_state *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return !*(volatile unsigned int *)&task->__state;
	return !BPF_CORE_READ(old, state);
}

SEC("tp_btf/sched_switch")
int PROBE(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct slot *out = look_inside(slot_of_thread(prev));
	struct slot *in = slot_of_thread(next);
	struct who who;
	u64 now, woken, throttled, queue = 0, *r;
	u32 words;

	if (!(out && (out->call || sleeps_matter(out))) && !(in && in->out_ns))
		return 0;
	now = bpf_ktime_get_boot_ns();
	if (unlikely(between_rows(out)))
		settle_statements(out, now);
	if (out && (out->call || sleeps_matter(out))) {
		if (unlikely(out->out_ns))
			count_switch_unseen();
		/* TASK_RUNNING is 0, TASK_INTERRUPTIBLE 1, TASK_UNINTERRUPTIBLE 2; higher bits refine. */
		if (preempt || !prev_state || is_runnable(prev))
			out->out_state = 0;
		else if (prev_state & 3)
			out->out_state = prev_state & 1 ? 1 : 2;
		else
			out->out_state = 3;
		out->sleeps_for = out->out_state ? sleeps_for(prev, out) : 0;
		out->throttled_ns = quota_used_up(prev, &out->cpu_queue);
		out->out_ns = now;
	}
	if (in && in->out_ns) {
		woken = woken_at(in, now);
		if (woken && woken - in->out_ns >= LONG_SLEEP &&
		    (!in->sleeps_for || in->sleeps_for == FATHOM_WAIT_PAGE_FAULT))
			look_at_stack(next, in);
		who = who_is(next);
		throttled = quota_used_up(next, &queue) - in->throttled_ns;
		if (likely(!throttled || queue != in->cpu_queue))
			throttled = 0;
		words = unlikely(throttled) ? 5 : woken ? 3 : 1;
		if (woken && in->sleeps_for && words < 4)
			words = 4;
		r = ring_reserve(PACKED_OFF_CPU, words, now, who, context(in, who));
		if (r) {
			r[0] = in->out_ns << 2 | in->out_state;
			if (words > 1) {
				r[1] = woken;
				r[2] = in->waker;
			}
			if (words > 3)
				r[3] = two_words(in->waker_tgid, in->sleeps_for);
			if (words > 4)
				r[4] = throttled;
			submit(r);
		}
		/* A thread that only may be in a transaction is mostly idle: its sleeps would use up the budget. */
		if (stacks_a_window && woken && (in->call || in_operation(in) || marks_mapped) &&
		    stack_is_wanted(woken - in->out_ns, now))
			take_kernel_stack(next, in, now);
		in->out_ns = 0;
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int PROBE(sched_waking, struct task_struct *task)
{
	struct slot *slot = slot_of_thread(task);
	u64 by;

	/* Only the first one ends a sleep. */
	if (!slot || (slot->out_ns && slot->wake_ns >= slot->out_ns))
		return 0;
	slot->wake_ns = bpf_ktime_get_boot_ns();
	slot->waker = 0;
	slot->waker_tgid = 0;
	/* A timer's interrupt hits an arbitrary thread; a thread that wakes a futex is in that call. */
	if (slot->sleeps_for == FATHOM_WAIT_FUTEX && !in_call_of((void *)bpf_get_current_task_btf(), FATHOM_WAIT_FUTEX))
		return 0;
	by = bpf_get_current_pid_tgid();
	slot->waker = (u32)by;
	slot->waker_tgid = by >> 32;
	return 0;
}
