/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Processes whose SQLite is probed inside (the crate `inside`): their object records the statements. The kernel side only has to
 * know, for all other records, which statement a thread is in: it reads that from the thread's own memory, at an address that the
 * object reports once per thread. The object reports it by calling empty functions, which have these uprobes.
 */

/* Which of the plan's libraries are hooked in a process, one bit each. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} inside_libraries SEC(".maps");

/* The process of a thread that reported its address, so that user space need not trust the thread's memory. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, u32);
} inside_threads SEC(".maps");

/* In the cookies of a library's uprobes: its index in the plan, plus one. */
#define LIBRARY_SHIFT 57

/* Whether the uprobe belongs to a library that this process records itself: other processes need it. */
static __always_inline bool recorded_inside(struct slot *slot, struct pt_regs *ctx)
{
	u64 library = bpf_get_attach_cookie(ctx) >> LIBRARY_SHIFT;
	u32 tgid = slot->tgid;
	u32 *hooked;

	if (likely(!library))
		return false;
	hooked = bpf_map_lookup_elem(&inside_libraries, &tgid);
	return hooked && *hooked >> (library - 1 & 31) & 1;
}

/* A fork's child has the parent's code, hooks included. */
static __always_inline void inherit_inside(u32 child)
{
	u32 parent = bpf_get_current_pid_tgid() >> 32;
	u32 *hooked = bpf_map_lookup_elem(&inside_libraries, &parent);
	u32 copy;

	if (likely(!hooked))
		return;
	copy = *hooked;
	bpf_map_update_elem(&inside_libraries, &child, &copy, BPF_ANY);
}

/* Another program was executed: it is not hooked yet. */
static __always_inline void forget_inside(u32 tgid)
{
	bpf_map_delete_elem(&inside_libraries, &tgid);
}

/* Whether a function was left that was called with its return address at `entered`. */
static __always_inline bool inside_was_left(struct slot *slot, u64 entered, u64 sp)
{
	u64 to;

	if (was_left(entered, sp))
		return true;
	/* Another stack may be unmapped, and never return or be reused: only an address that is other code is evidence. */
	return !bpf_probe_read_user(&to, sizeof(to), (void *)entered) && to - slot->inside_stubs >= STUBS_SIZE;
}

/* Reports the functions that were left: the object reports them only when it runs again; reporting twice is harmless. */
seldom void tell_left_inside(struct slot *slot, u64 sp, u64 now)
{
	u32 i;

	for (i = 0; i < OPS; i++) {
		struct inside_op op;
		struct fathom_op_end *r;

		if (bpf_probe_read_user(&op, sizeof(op), (void *)(slot->inside_operations + i * sizeof(op))))
			return;
		if (!op.returns.open || op.returns.kind != OP_FUNCTION || !inside_was_left(slot, op.returns.slot, sp))
			continue;
		if (slot->inside_left[i & (OPS - 1)] == op.start_ns)
			continue;
		slot->inside_left[i & (OPS - 1)] = op.start_ns;
		r = RESERVE(op_end, OP_END, now, whoami());
		if (!r)
			continue;
		__builtin_memset(r, 0, sizeof(*r));
		r->key = op.key;
		r->start_ns = op.start_ns;
		r->kind = OP_LEFT;
		submit(r);
	}
}

/* Before a call of the kernel: see settle_left. */
static __always_inline void settle_inside(struct slot *slot, u64 sp)
{
	if (likely(!slot->inside_functions))
		return;
	if (inside_was_left(slot, slot->inside_function, sp))
		tell_left_inside(slot, sp, bpf_ktime_get_boot_ns());
}

SEC("uprobe")
int PROBE_FUNCTION(inside_thread)
{
	u64 id = bpf_get_current_pid_tgid();
	u32 tid = id, tgid = id >> 32;
	struct slot *slot = my_slot();

	if (!slot)
		return 0;
	slot->inside_state = PT_REGS_PARM1(ctx);
	bpf_map_update_elem(&inside_threads, &tid, &tgid, BPF_ANY);
	return 0;
}

SEC("uprobe")
int PROBE_FUNCTION(inside_hooked)
{
	u32 tgid = bpf_get_current_pid_tgid() >> 32;
	u32 bit = 1u << (PT_REGS_PARM1(ctx) & 31);
	u32 *hooked = bpf_map_lookup_elem(&inside_libraries, &tgid);
	u32 all = hooked ? *hooked | bit : bit;

	bpf_map_update_elem(&inside_libraries, &tgid, &all, BPF_ANY);
	return 0;
}

/* A statement's call that could not be recorded: its thread has no memory for it. */
SEC("uprobe")
int PROBE_FUNCTION(inside_lost)
{
	if (my_slot())
		count_lost();
	return 0;
}
