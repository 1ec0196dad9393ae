/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Functions named by --op. The attach cookie's lower bits are the function's number in that list. A recursion is one operation. */

SEC("uprobe")
int PROBE_FUNCTION(function_enter)
{
	struct slot *slot = my_slot();
	u64 key = bpf_get_attach_cookie(ctx) & ((1ULL << LIBRARY_SHIFT) - 1);
	struct op *op;
	u64 now;

	if (!slot || recorded_inside(slot, ctx))
		return 0;
	now = bpf_ktime_get_boot_ns();
	settle_before(slot, ctx, now);
	op = find_op(slot, key, OP_FUNCTION);
	if (!op) {
		op = begin_op(slot, key, OP_FUNCTION, now);
		op->sp = PT_REGS_SP(ctx);
	}
	op->steps++;
	return 0;
}

SEC("uretprobe")
int PROBE_FUNCTION(function_return)
{
	struct slot *slot = my_slot();
	u64 key = bpf_get_attach_cookie(ctx) & ((1ULL << LIBRARY_SHIFT) - 1);
	struct op *op;
	u64 now;

	if (!slot || recorded_inside(slot, ctx))
		return 0;
	op = find_op(slot, key, OP_FUNCTION);
	if (!op)
		return 0;
	/* A return from within a recursion leaves the stack as it was for the outermost call, or longer. */
#if defined(__TARGET_ARCH_x86)
	if (PT_REGS_SP(ctx) <= op->sp)
		return 0;
#else
	if (PT_REGS_SP(ctx) < op->sp)
		return 0;
#endif
	now = bpf_ktime_get_boot_ns();
	if (slot->functions_open > 1)
		settle_left(slot, op->sp, false, now);
	op->inside_ns = now - op->start_ns;
	end_op(slot, op, (s32)PT_REGS_RC(ctx), now);
	return 0;
}
