/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What is recorded of functions that --op names: the same as functions.bpf.c of the room `capture` records at uprobes. Nothing is
 * known of their arguments and results, so every register is kept, and the stack stays as it is.
 *
 * The return is met as the kernel meets it (uretprobe): the return address on the stack is replaced by a stub's. A stub stands for one
 * return address, for good, and for whoever has it: what is copied (by a fork), returned to twice (vfork, setjmp) or never
 * (exceptions, longjmp), or moved with its stack (coroutines) finds its way at any time. CFI lets unwinders pass.
 */
#ifndef FATHOM_INSIDE_NAMED_H
#define FATHOM_INSIDE_NAMED_H

/* Places in all that named functions are called from. Calls from further ones are not recorded, but counted. */
#define STUBS 2048
#define STUB_SIZE 8
/* Of that a call, which tells which stub it was. */
#define STUB_CALL 5

/* Where each returns to; 0: free. */
extern hidden u64 fathom_originals[];
static u32 originals_writable;

static int is_mapped(u64 at);

/* The table stands in the code, at a distance that the description of the stubs for unwinders can name. */
static int prepare_stubs(void)
{
	if (shadowed)
		return 0;
	if (!originals_writable && call3(SYS_mprotect, fathom_originals, STUBS * 8, PROT_READ | PROT_WRITE))
		return 0;
	originals_writable = 1;
	return 1;
}

/* The stub of a return address; STUBS: none is free. */
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

/* Whether a stack's place still leads to a stub: directly, or by way of those of functions that this one ended with a jump to. */
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
 * Functions that were left otherwise than by returning: the stack ends above them, or something else stands where they would return
 * to. `slot` is the place of the return address of what begins now. Another stack may be gone: it is not looked at unasked.
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
			end_op(t, op, 0, OP_LEFT);
			continue;
		}
		if ((op->slot ^ slot) >> 12 && (sealed || !is_mapped(op->slot)))
			continue;
		if (!leads_to(op->slot, op->stub))
			end_op(t, op, 0, OP_LEFT);
	}
}

/* Whether this is a child of vfork, on the memory of the thread that waits for it. */
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
	/* A recursion is one operation. */
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

/* `at`: the trampoline, the site's number, and the return address. */
__attribute__((used)) hidden void fathom_hook_function(u64 *at)
{
	const struct site *site = (const struct site *)(at[0] & ~(SITES_ALIGNED - 1)) + at[1];
	struct thread *t = &self;

	if (!ready(t))
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

/* `at`: where the return address stood. Returns it. */
__attribute__((used)) hidden u64 fathom_return_function(u64 *at, u64 result)
{
	u32 i, stub = (at[0] - STUB_CALL - (u64)fathom_returns) / STUB_SIZE;
	u64 original = fathom_originals[stub];
	struct thread *t = &self;
	struct op *op = 0;

	if (!t->functions || !ready(t))
		return original;
	for (i = 0; i < OPS; i++) {
		if (t->ops[i].open && t->ops[i].kind == OP_FUNCTION && t->ops[i].slot == (u64)at && t->ops[i].stub == stub)
			op = &t->ops[i];
	}
	if (!op || (op->shared && is_other_task(t)) || !begin_change(t, (u64)at))
		return original;
	/* What it called has returned, or was left. */
	for (i = 0; i < OPS; i++) {
		struct op *inner = &t->ops[i];

		if (inner->open && inner->kind == OP_FUNCTION && was_left(inner->slot + 1, (u64)at))
			end_op(t, inner, 0, OP_LEFT);
	}
	end_op(t, op, (s32)result, OP_FUNCTION);
	publish(t);
	end_change(t);
	return original;
}

/* Every register that a function may be called with, or return in, or that a caller may know it to leave alone. */
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
 * For an unwinder a stub is a caller whose frame is empty: its return address stands in the table, as far behind the stub's own
 * place as all stubs are long. The place is read where the function would have returned to, just below the frame. An unwinder
 * looks one byte before a return address, hence the byte before the first. Both frames have the same end; libgcc, which knows a frame by
 * it, tells them apart only if the inner one is a signal's (uw_identify_context), behind which it looks at the very address that it is
 * given: hence the one before.
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
    /* The place of the original: *(frame - 8) - 5 + 0x4000 */
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
