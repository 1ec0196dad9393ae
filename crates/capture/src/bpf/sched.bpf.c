/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * When a thread of an operation, or one in a recorded system call, was off the CPU: asleep, and runnable but not running.
 * One record when it runs again.
 */

SEC("tp_btf/sched_switch")
int PROBE(sched_switch, bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state)
{
	struct slot *out = look_inside(slot_of_thread(prev));
	struct slot *in = slot_of_thread(next);
	struct who who;
	u64 now, woken, *r;

	if (!(out && (out->ops_open || out->inside_open || out->call)) && !(in && in->out_ns))
		return 0;
	now = bpf_ktime_get_boot_ns();
	if (unlikely(between_rows(out)))
		settle_statements(out, now);
	if (out && (out->ops_open || out->inside_open || out->call)) {
		out->wake_ns = 0;
		out->waker = 0;
		/* TASK_RUNNING is 0, TASK_INTERRUPTIBLE 1, TASK_UNINTERRUPTIBLE 2; higher bits refine. */
		if (preempt || !prev_state)
			out->out_state = 0;
		else if (prev_state & 3)
			out->out_state = prev_state & 1 ? 1 : 2;
		else
			out->out_state = 3;
		out->out_ns = now;
	}
	if (in && in->out_ns) {
		who = who_is(next);
		/* Read once, as the record's length hangs on it. */
		woken = *(volatile u64 *)&in->wake_ns;
		r = ring_reserve(PACKED_OFF_CPU, woken ? 3 : 1, now, who, context(in, who));
		if (r) {
			r[0] = in->out_ns << 2 | in->out_state;
			if (woken) {
				r[1] = woken;
				r[2] = in->waker;
			}
			submit(r);
		}
		in->out_ns = 0;
	}
	return 0;
}

SEC("tp_btf/sched_waking")
int PROBE(sched_waking, struct task_struct *task)
{
	struct slot *slot = slot_of_thread(task);

	if (!slot || !slot->out_ns || slot->wake_ns)
		return 0;
	slot->wake_ns = bpf_ktime_get_boot_ns();
	slot->waker = (u32)bpf_get_current_pid_tgid();
	return 0;
}
