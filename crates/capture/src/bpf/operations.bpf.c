/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Operations of a thread: executions of statements and of functions. Several may be open at once (a scan that updates between its rows),
 * so the slot holds a few. If more are open, a new one displaces the one that began first: it may have been left open forever.
 */

/* In op_end only: a function that was left without returning. */
#define OP_LEFT 2
/* In op_end only: an execution of either kind that was displaced. Its later activity, and its end, are unknown. */
#define OP_GAVE_WAY 3

/* Addresses farther apart are on different stacks, and cannot be compared. */
#define ONE_STACK (1 << 20)

/* Whether a call that was entered with the stack pointer at `entered` can no longer be running now that it is at `sp`. */
static __always_inline bool was_left(u64 entered, u64 sp)
{
	return entered < sp && sp - entered < ONE_STACK;
}

/*
 * The operation at an index. Through memory, so that the verifier forgets which index it was; else it would check all following
 * code once for each.
 */
static __always_inline struct op *op_at(struct slot *slot, u32 place)
{
	*(volatile u32 *)&slot->op_place = place;
	place = *(volatile u32 *)&slot->op_place;
	asm volatile("" : "+r"(place));
	place &= OPS - 1;
	return &slot->ops[place];
}

static __always_inline struct op *find_op(struct slot *slot, u64 key, u32 kind)
{
	u32 others = slot->ops_open;
	int i;

	/* Mostly none is open: a new execution begins. */
	if (!others)
		return NULL;
#pragma unroll
	for (i = 0; i < OPS; i++) {
		if (!slot->ops[i].open)
			continue;
		if (slot->ops[i].key == key && slot->ops[i].kind == kind)
			return op_at(slot, i);
		if (!--others)
			return NULL;
	}
	return NULL;
}

static __always_inline void end_op(struct slot *slot, struct op *op, s32 result, u64 now)
{
	struct fathom_op_end *r = RESERVE(op_end, OP_END, now, whoami());

	if (r) {
		r->key = op->key;
		r->start_ns = op->start_ns;
		r->rows = op->rows;
		r->steps = op->steps;
		r->inside_ns = op->inside_ns;
		r->result = result;
		r->kind = op->kind;
		submit(r);
	}
	op->open = 0;
	if (slot->ops_open)
		slot->ops_open--;
	if (op->kind == OP_FUNCTION && slot->functions_open)
		slot->functions_open--;
}

/* Gives up an execution. */
seldom void give_up_op(struct slot *slot, struct op *op, u64 now)
{
	end_op(slot, op, 0, now);
}

/* Stops following an execution, which must not look like an end: its rows, calls and time are unknown. */
seldom void forget_op(struct slot *slot, struct op *op, u32 how, u64 now)
{
	if (op->kind == OP_FUNCTION && slot->functions_open) {
		slot->functions_open--;
		if (how == OP_GAVE_WAY)
			slot->functions_gone++;
	}
	op->kind = how;
	end_op(slot, op, 0, now);
}

/* Whether a statement that waits between its rows was reset, as far as that can be read. */
static __always_inline bool was_reset(struct op *op)
{
	u8 state;

	if (!op->running_at || bpf_probe_read_user(&state, sizeof(state), (void *)(op->key + op->running_at - 1)))
		return false;
	return state != op->running;
}

/* Maximum total delay, per CPU, of the ends of statements. */
#define LATE_NS 1000000

/*
 * Called when the thread, which has statements between their rows, does something other than continue within a step. The probe on
 * sqlite3_reset costs a trap in each execution, and is useful only for these statements; so it is attached (see ../uprobes.rs) when
 * it begins to matter: a PRAGMA that is left after its row must not slow down a million INSERTs. Until then a statement that was
 * reset ends here, at the first thing that its thread does afterwards, which is too late by at most the time since its step.
 */
seldom void settle_statements(struct slot *slot, u64 now)
{
	struct ring_control *control = ring_control_here();
	u64 late_ns = 0;
	int i;

#pragma unroll
	for (i = 0; i < OPS; i++) {
		struct op *op = &slot->ops[i];

		if (!op->open || op->kind != OP_STATEMENT || !was_reset(op))
			continue;
		late_ns += now - op->left_ns;
		give_up_op(slot, op, now);
	}
	if (!late_ns || !control || control->reset_wanted)
		return;
	control->late_ns += late_ns;
	if (control->late_ns < LATE_NS)
		return;
	control->reset_wanted = 1;
	ring_bell();
}

/*
 * Whether a call, entered with the stack pointer at `entered`, has lost its place there. On x86 its return address is stored at that
 * place: the address at which the kernel catches returns, the beginning of a page of the kernel's own (uprobe_get_trampoline_vaddr). If
 * the function was left and later code makes a call, another address is stored there. Must not be called during a return, when the
 * kernel's page itself uses the stack.
 */
static __always_inline bool was_overwritten(u64 entered)
{
#if defined(__TARGET_ARCH_x86)
	u64 to;

	if (bpf_probe_read_user(&to, sizeof(to), (void *)entered))
		return false;
	return !to || to & 0xfff;
#else
	return false;
#endif
}

/*
 * A function may be left without returning: by longjmp, or by an exception. There is no event for it; but the stack then ends above
 * where it ended when the function was entered, which is how the kernel checks its own list of pending returns
 * (arch_uretprobe_is_alive), or its memory there is reused (`look`: see was_overwritten). This is detected only at the thread's
 * next call of a probed function or of the kernel. Steps of statements are left in the same way; their statements stay open,
 * between rows, until they are reset. A program that switches between small stacks misleads this, as it does the kernel.
 */
seldom void settle_left(struct slot *slot, u64 sp, bool look, u64 now)
{
	int i;

#pragma unroll
	for (i = 0; i < OPS; i++) {
		struct op *op = &slot->ops[i];

		if (!op->open || op->kind != OP_FUNCTION)
			continue;
		if (!was_left(op->sp, sp) && !(look && was_overwritten(op->sp)))
			continue;
		forget_op(slot, op, OP_LEFT, now);
	}
#pragma unroll
	for (i = 0; i < OPS; i++) {
		u32 innermost = slot->depth - 1;
		struct op *op;

		if (innermost >= OPS)
			break;
		/* The compiler knows the bound now and drops the mask; the verifier of Linux 6.1 has lost it by then. */
		asm volatile("" : "+r"(innermost));
		innermost &= OPS - 1;
		op = find_op(slot, slot->inside[innermost], OP_STATEMENT);
		if (!op || (!was_left(op->sp, sp) && !(look && was_overwritten(op->sp))))
			break;
		slot->depth--;
		slot->inside[innermost] = 0;
		op->inside_ns += now - op->entered_ns;
		op->left_ns = now;
	}
}

/* Before a probed function is entered. */
static __always_inline void settle_before(struct slot *slot, struct pt_regs *ctx, u64 now)
{
	u64 sp = PT_REGS_SP(ctx);

	if (!slot->functions_open && !slot->depth)
		return;
#if !defined(__TARGET_ARCH_x86)
	/*
	 * A function that ends with a jump to another leaves its own place on the stack to it: the stack's end is the same. But
	 * then it returns to where the kernel catches returns.
	 */
	sp += (PT_REGS_RET(ctx) & 0xfff) != 0;
#endif
	settle_left(slot, sp, true, now);
}

static __always_inline struct op *begin_op(struct slot *slot, u64 key, u32 kind, u64 now)
{
	struct fathom_op_begin *r;
	struct op *op = &slot->ops[0];
	u32 running, place = 0;
	int i;

	/* A free place, else the one open for longest. */
#pragma unroll
	for (i = 1; i < OPS; i++) {
		if (!op->open)
			break;
		if (!slot->ops[i].open || slot->ops[i].start_ns < op->start_ns) {
			op = &slot->ops[i];
			place = i;
		}
	}
	op = op_at(slot, place);
	if (op->open) {
		count_table_full();
		slot->any_gone = 1;
		forget_op(slot, op, OP_GAVE_WAY, now);
	}
	op->key = key;
	op->kind = kind;
	op->start_ns = now;
	op->rows = 0;
	op->steps = 0;
	op->inside_ns = 0;
	op->running_at = 0;
	op->open = 1;
	slot->ops_open++;
	/* The function open for longest is the outermost: those that were displaced are still running while any other is open. */
	if (!slot->functions_open)
		slot->functions_gone = 0;
	running = slot->depth + slot->functions_open + slot->functions_gone + slot->inside_depth + slot->inside_functions;
	if (kind == OP_FUNCTION)
		slot->functions_open++;
	r = RESERVE(op_begin, OP_BEGIN, now, whoami());
	if (r) {
		r->key = key;
		r->kind = kind;
		/* Statements that wait between their rows do not count: an operation that begins meanwhile is not inside them. */
		r->depth = running + 1;
		submit(r);
	}
	return op;
}
