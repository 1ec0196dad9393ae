/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The stubs that replace the return addresses of functions named by --op (named.h): which of them stands for which address, and which
 * functions were left without returning to theirs. There are none on aarch64.
 */
#ifndef FATHOM_INSIDE_STUBS_H
#define FATHOM_INSIDE_STUBS_H

#include "thread.h"

#if defined(__x86_64__)
/* Size of the call in it, whose return address identifies the stub. */
#define STUB_CALL 5

/* The original return address of each stub; 0: free. */
extern hidden u64 fathom_originals[];
static u32 originals_writable;

/* The table is in the code, at a distance that the stubs' unwind information can express. */
static int prepare_stubs(void)
{
	if (shadowed)
		return 0;
	if (!originals_writable && call3(SYS_mprotect, fathom_originals, STUBS * 8, PROT_READ | PROT_WRITE))
		return 0;
	originals_writable = 1;
	return 1;
}

/* Returns the stub of a return address; STUBS: none is free. */
static u32 stub_of(u64 original)
{
	u64 hash = original * 0x9e3779b97f4a7c15UL >> 32;
	u64 known;
	u32 i, at;

	for (i = 0; i < STUBS; i++) {
		at = (hash + i) % STUBS;
		known = __atomic_load_n(&fathom_originals[at], __ATOMIC_RELAXED);
		if (known == original)
			return at;
		if (known)
			continue;
		if (__atomic_compare_exchange_n(&fathom_originals[at], &known, original, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED) ||
		    known == original)
			return at;
	}
	return STUBS;
}

static inline u64 stub_address(u32 stub)
{
	return (u64)fathom_returns + stub * STUB_SIZE;
}

/* Whether a stack slot still leads to a stub: directly, or through the stubs of functions that this one ended with a jump to. */
static int leads_to(u64 slot, u32 stub)
{
	u64 to = *(const u64 *)slot;
	u32 i;

	for (i = 0; i < OPS; i++) {
		if (to == stub_address(stub))
			return 1;
		if (to - (u64)fathom_returns >= STUBS * STUB_SIZE)
			return 0;
		to = fathom_originals[(to - (u64)fathom_returns) / STUB_SIZE];
	}
	return 0;
}

/*
 * Ends functions that were left without returning: the stack pointer is above them, or their return slot holds something else. `slot` is
 * the stack slot of the return address of the function that begins now. Another stack may be unmapped: check before reading.
 */
static void settle_functions(struct thread *t, u64 slot)
{
	u32 i;

	for (i = 0; i < OPS && t->functions; i++) {
		struct op *op = &t->ops[i];
		u64 distance = op->slot < slot ? slot - op->slot : op->slot - slot;

		if (!op->open || op->kind != OP_FUNCTION || distance >= ONE_STACK)
			continue;
		if (op->slot < slot) {
			end_op(t, op, 0, OP_LEFT, 0, 0);
			continue;
		}
		if ((op->slot ^ slot) >> 12 && (sealed || !is_mapped(op->slot)))
			continue;
		if (!leads_to(op->slot, op->stub))
			end_op(t, op, 0, OP_LEFT, 0, 0);
	}
}
#else
const u8 fathom_returns[1];

static int prepare_stubs(void)
{
	return 0;
}

static void settle_functions(struct thread *t, u64 slot)
{
	(void)t, (void)slot;
}
#endif

#endif
