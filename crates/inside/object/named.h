/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Records functions named by --op, as functions.bpf.c of crate `capture` does at uprobes. Nothing is known of their arguments and
 * results, so every register is preserved, and the stack stays as it is.
 *
 * The return is caught the way the kernel does it (uretprobe): the return address on the stack is replaced by a stub's address. A stub
 * stands for one return address, permanently and for every user: a copied one (fork), one returned to twice (vfork, setjmp) or never
 * (exceptions, longjmp), or one moved with its stack (coroutines) returns correctly at any time. CFI lets unwinders pass.
 */
#ifndef FATHOM_INSIDE_NAMED_H
#define FATHOM_INSIDE_NAMED_H

#include "sqlite.h"

/* Whether this is a child of vfork, which shares the memory of the thread that waits for it. */
static int is_other_task(const struct thread *t)
{
	return !sealed && (u64)call0(SYS_gettid) != t->tid;
}

static void enter_function(struct thread *t, const struct plan_function *function, u64 *slot)
{
	struct op *op;
	u32 stub;

	settle_functions(t, (u64)slot);
	op = find_op(t, function->key, OP_FUNCTION);
	/* Recursive calls are one operation. */
	if (op) {
		op->steps++;
		return;
	}
	stub = stub_of(*slot);
	if (stub == STUBS) {
		t->ring->dropped++;
		return;
	}
	op = begin_op(t, function->key, OP_FUNCTION);
	op->steps = 1;
	op->slot = (u64)slot;
	op->stub = stub;
	op->shared = function->shared;
	*slot = stub_address(stub);
}

/* `at`: points to the trampoline's address, the site's number, and the return address. */
__attribute__((used)) hidden void fathom_hook_function(u64 *at)
{
	const struct site *site = (const struct site *)(at[0] & ~(SITES_ALIGNED - 1)) + at[1];
	struct thread *t = own_thread();

	if (!t || !ready(t))
		return;
	if (site->function->shared && is_other_task(t)) {
		fathom_inside_lost();
		return;
	}
	if (!begin_change(t, (u64)at))
		return;
	settle_left(t, (u64)at);
	enter_function(t, site->function, at + 2);
	publish(t);
	end_change(t);
}

/* `at`: the stack slot of the return address. Returns the original return address. */
__attribute__((used)) hidden u64 fathom_return_function(u64 *at, u64 result)
{
	u32 i, stub = (at[0] - STUB_CALL - (u64)fathom_returns) / STUB_SIZE;
	u64 original = fathom_originals[stub];
	struct thread *t = own_thread();
	struct op *op = 0;

	if (!t || !t->functions || !ready(t))
		return original;
	for (i = 0; i < OPS; i++) {
		if (t->ops[i].open && t->ops[i].kind == OP_FUNCTION && t->ops[i].slot == (u64)at && t->ops[i].stub == stub)
			op = &t->ops[i];
	}
	if (!op || (op->shared && is_other_task(t)) || !begin_change(t, (u64)at))
		return original;
	/* Functions that it called have returned, or were left. */
	for (i = 0; i < OPS; i++) {
		struct op *inner = &t->ops[i];

		if (inner->open && inner->kind == OP_FUNCTION && was_left(inner->slot + 1, (u64)at))
			end_op(t, inner, 0, OP_LEFT, 0, 0);
	}
	end_op(t, op, (s32)result, OP_FUNCTION, 0, 0);
	publish(t);
	end_change(t);
	return original;
}

/* Every register that may hold an argument or a result, or that a caller may know the function to preserve. */
#define SAVE                                                                                                                      \
	"	push %rax\n"                                                                                                      \
	"	push %rcx\n"                                                                                                      \
	"	push %rdx\n"                                                                                                      \
	"	push %rsi\n"                                                                                                      \
	"	push %rdi\n"                                                                                                      \
	"	push %r8\n"                                                                                                       \
	"	push %r9\n"                                                                                                       \
	"	push %r10\n"                                                                                                      \
	"	push %r11\n"                                                                                                      \
	"	push %rbp\n"                                                                                                      \
	"	.cfi_adjust_cfa_offset 80\n"                                                                                      \
	"	mov %rsp, %rbp\n"                                                                                                 \
	"	.cfi_def_cfa_register %rbp\n"                                                                                     \
	"	.cfi_offset %rbp, "
#define RESTORE                                                                                                                   \
	"	pop %rbp\n"                                                                                                       \
	"	.cfi_restore %rbp\n"                                                                                              \
	"	pop %r11\n"                                                                                                       \
	"	pop %r10\n"                                                                                                       \
	"	pop %r9\n"                                                                                                        \
	"	pop %r8\n"                                                                                                        \
	"	pop %rdi\n"                                                                                                       \
	"	pop %rsi\n"                                                                                                       \
	"	pop %rdx\n"                                                                                                       \
	"	pop %rcx\n"                                                                                                       \
	"	pop %rax\n"                                                                                                       \
	"	.cfi_adjust_cfa_offset -80\n"

/*
 * To an unwinder, a stub is a caller with an empty frame: its return address is in the table, as far after the stub's own address as all
 * stubs together are long. The stub's address is read from the return slot, just below the frame. An unwinder looks up the byte before a
 * return address, hence the byte before the first stub. Both frames have the same CFA; libgcc, which identifies a frame by it, tells them
 * apart only if the inner one is a signal frame (uw_identify_context), and for the caller of a signal frame it looks up the exact
 * address: hence the 1 that is subtracted.
 */
asm(".pushsection .text\n"
    ".hidden fathom_enter_function, fathom_returns, fathom_originals, fathom_returned\n"
    ".globl fathom_enter_function, fathom_returns, fathom_originals, fathom_returned\n"
    ".type fathom_enter_function, @function\n"
    "fathom_enter_function:\n"
    "	.cfi_startproc\n"
    "	.cfi_def_cfa_offset 24\n"
    "	endbr64\n" SAVE "-104\n"
    "	lea 80(%rsp), %rdi\n"
    "	and $-16, %rsp\n"
    "	cld\n"
    "	call fathom_hook_function\n"
    "	mov %rbp, %rsp\n"
    "	.cfi_def_cfa_register %rsp\n" RESTORE "	ret $8\n"
    "	.cfi_endproc\n"
    ".type fathom_returned, @function\n"
    "fathom_returned:\n"
    "	.cfi_startproc\n"
    /* Address of the original: *(frame - 8) - 5 + 0x4000 */
    "	.cfi_escape 0x10, 16, 7, 0x38, 0x1c, 0x06, 0x0a, 0xfb, 0x3f, 0x22\n" SAVE "-88\n"
    "	lea 80(%rsp), %rdi\n"
    "	mov %rax, %rsi\n"
    "	and $-16, %rsp\n"
    "	cld\n"
    "	call fathom_return_function\n"
    "	mov %rbp, %rsp\n"
    "	.cfi_def_cfa_register %rsp\n"
    "	mov %rax, 80(%rsp)\n"
    "	.cfi_offset %rip, -8\n" RESTORE "	ret\n"
    "	.cfi_endproc\n"
    "	.cfi_startproc\n"
    "	.cfi_def_cfa %rsp, 0\n"
    "	.cfi_signal_frame\n"
    /* *(*(rsp - 8) + 0x4000) - 1 */
    "	.cfi_escape 0x16, 16, 10, 0x77, 0x78, 0x06, 0x0a, 0x00, 0x40, 0x22, 0x06, 0x31, 0x1c\n"
    "	nop\n"
    "	.balign 4096, 0x90\n"
    "fathom_returns:\n"
    "	.rept 2048\n"
    "	call fathom_returned\n"
    "	.byte 0xcc, 0xcc, 0xcc\n"
    "	.endr\n"
    "	.cfi_endproc\n"
    "fathom_originals:\n"
    "	.fill 2048, 8, 0\n"
    ".popsection\n");
extern hidden void fathom_enter_function(void);
_Static_assert(STUBS == 2048 && STUB_SIZE == 8 && STUBS * STUB_SIZE == 0x4000, "as the description for unwinders says");

#endif
