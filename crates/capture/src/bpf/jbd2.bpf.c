/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * ext4's journal: who joined which transaction, and when the journal thread committed it. A transaction is (disk, number).
 *
 * The first transaction joined within a recorded call is folded into the slot with the count of handles. Any other join is emitted,
 * but for a thread that joins the same one repeatedly only at its 1st, 2nd, 4th, 8th, … handle: each record carries the number of
 * handles since the last, so that the sum is right within a factor of two.
 */

struct join {
	u32 txn;
	u32 dev;
	u32 handles;
	u32 emitted;
};

/* Threads that joined outside a recorded call. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, u32);
	__type(value, struct join);
} joins SEC(".maps");

seldom void emit_join(u32 dev, u32 txn, u32 handles, struct slot *slot)
{
	struct who who = whoami();
	u64 now = bpf_ktime_get_boot_ns();
	struct fathom_join *r = RESERVE(join, JOIN, now, who);

	if (!r)
		return;
	r->start_ns = now;
	r->dev = dev;
	r->txn = txn;
	r->handles = handles;
	r->ctx = context(slot, who);
	submit(r);
}

SEC("raw_tp/jbd2_handle_start")
int PROBE(jbd2_handle_start, u32 dev, u32 txn)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct slot *slot = look_inside(slot_of_thread(task));
	struct join first = { .txn = txn, .dev = dev, .handles = 1, .emitted = 1 };
	u32 tid = task->pid;
	struct join *join;

	if (in_file_call(slot) && (!slot->handles || (slot->txn == txn && slot->txn_dev == dev))) {
		slot->txn = txn;
		slot->txn_dev = dev;
		slot->handles++;
		return 0;
	}
	if (slot)
		emit_ring(slot);
	join = bpf_map_lookup_elem(&joins, &tid);
	if (!join || join->txn != txn || join->dev != dev) {
		/* Updated in place: replacing an entry of this table costs a quarter of a microsecond. */
		if (join)
			*join = first;
		else
			bpf_map_update_elem(&joins, &tid, &first, BPF_ANY);
		emit_join(dev, txn, 1, slot);
		return 0;
	}
	join->handles++;
	if (join->handles < 2 * join->emitted)
		return 0;
	emit_join(dev, txn, join->handles - join->emitted, slot);
	join->emitted = join->handles;
	return 0;
}

/* Their arguments are jbd2's own types: the loader needs that module's BTF if jbd2 is a module. */
SEC("raw_tp/jbd2_start_commit")
int PROBE(jbd2_start_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	struct fathom_commit_begin *r;
	u32 dev = BPF_CORE_READ(journal, j_fs_dev, bd_dev);
	u32 txn = BPF_CORE_READ(transaction, t_tid);

	r = RESERVE(commit_begin, COMMIT_BEGIN, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->dev = dev;
	r->txn = txn;
	submit(r);
	return 0;
}

SEC("raw_tp/jbd2_end_commit")
int PROBE(jbd2_end_commit, struct journal_s *journal, struct transaction_s *transaction)
{
	struct fathom_commit_end *r;
	u32 dev = BPF_CORE_READ(journal, j_fs_dev, bd_dev);
	u32 txn = BPF_CORE_READ(transaction, t_tid);

	r = RESERVE(commit_end, COMMIT_END, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->dev = dev;
	r->txn = txn;
	submit(r);
	return 0;
}
