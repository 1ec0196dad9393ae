/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The IDs of a task: it has one in each PID namespace that it is in, from the machine's own inwards. */
#ifndef FATHOM_NUMBERS_H
#define FATHOM_NUMBERS_H

/* How many levels inside the machine's own namespace it lives. */
static __always_inline u32 level_of(struct task_struct *task)
{
	return BPF_CORE_READ(task, thread_pid, level);
}

/* Its ID in the namespace of that level, which is not deeper than its own. */
static __always_inline u32 number_at(struct task_struct *task, u32 level)
{
	struct pid *pid = BPF_CORE_READ(task, thread_pid);
	u64 numbers = (u64)pid + bpf_core_field_offset(struct pid, numbers);

	return BPF_CORE_READ((struct upid *)(numbers + level * (u64)bpf_core_type_size(struct upid)), nr);
}

#endif
