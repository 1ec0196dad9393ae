/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The IDs of every task in the reader's PID namespace, at the moment this list is read: no file of a namespace's own /proc has
 * them. A separate object, since most recordings run in no such namespace and do not need it.
 */
#include "kernel.h"
#include "numbers.h"

/* How many levels outside the reader's own namespace the one of its /proc is. */
const volatile u32 proc_outwards;

/* Both are members of unions in the kernel, at the same offsets as here. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct seq_file {
	unsigned long count;
};
struct bpf_iter_meta {
	struct seq_file *seq;
};
#pragma clang attribute pop
struct iterated_task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

/* As in ../namespace.rs. */
struct numbers {
	u32 tgid, tid; /* in the machine's own namespace, as in records */
	u32 own_tgid, own_tid; /* in the reader's namespace */
	u32 proc_tgid, proc_tid; /* in the namespace of the reader's /proc */
	u32 inner_tgid, inner_tid; /* in the task's own namespace */
};

SEC("iter/task")
int list_numbers(struct iterated_task *ctx)
{
	struct task_struct *task = ctx->task, *leader;
	u32 own, proc, inner;
	struct numbers n;

	if (!task)
		return 0;
	leader = BPF_CORE_READ(task, group_leader);
	own = level_of((void *)bpf_get_current_task_btf());
	inner = level_of(task);
	/* The deepest level that the kernel allows (MAX_PID_NS_LEVEL). A task that ends has no IDs any more. */
	if (own > 32 || inner > 32 || inner < own || proc_outwards > own)
		return 0;
	proc = own - proc_outwards;
	n.tgid = BPF_CORE_READ(task, tgid);
	n.tid = BPF_CORE_READ(task, pid);
	n.own_tgid = number_at(leader, own);
	n.own_tid = number_at(task, own);
	n.proc_tgid = number_at(leader, proc);
	n.proc_tid = number_at(task, proc);
	n.inner_tgid = number_at(leader, inner);
	n.inner_tid = number_at(task, inner);
	bpf_seq_write(ctx->meta->seq, &n, sizeof(n));
	return 0;
}

/* The helpers used are available only to GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
