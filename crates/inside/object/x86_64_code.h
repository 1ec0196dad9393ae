/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * x86-64 code that the object generates for trampolines and for reaching hooks: a jump of five bytes, with a range of 2 GiB.
 */
#ifndef FATHOM_INSIDE_X86_64_CODE_H
#define FATHOM_INSIDE_X86_64_CODE_H

#include "environment.h"
#include "seal.h"
#include "sqlite.h"

#define JUMP 5
/* Bytes of a uprobe's breakpoint. */
#define BREAKPOINT 1
/* How far around a library to look for memory. */
#define REACH (1UL << 30)
/* jmp [rip + 2] */
#define JUMP_TO_NEXT_WORD "\xff\x25\x02\0\0\0\xcc\xcc"

/* Whether a trampoline ends in a call, which pushes its return address: a shadow stack would not have it (CET). */
static int moves_calls(const struct plan_library *library)
{
	u32 i, j;

	for (i = 0; i < library->functions; i++) {
		for (j = 0; j < library->function[i].fixups; j++) {
			if (library->function[i].fixup[j].absolute)
				return 1;
		}
	}
	return 0;
}

static inline void put32(u8 *at, u64 value)
{
	u32 word = (u32)value;

	memcpy(at, &word, 4);
}

/* Whether a displacement relative to `from` reaches `to`. */
static inline int spans(u64 from, u64 to)
{
	s64 distance = (s64)(to - from);

	return distance == (s32)distance;
}

/* Whether a jump at `at` reaches `to`. */
static inline int reaches(u64 at, u64 to)
{
	return spans(at + JUMP, to);
}

/* Writes a jump from `at` to `to`. */
static inline void put_jump(u8 *code, u64 at, u64 to)
{
	*code = 0xe9;
	put32(code + 1, to - (at + JUMP));
}

/* Returns the target of a jump; 0: there is no jump. */
static inline u64 read_jump(const u8 *at)
{
	u32 distance;

	if (*at != 0xe9)
		return 0;
	memcpy(&distance, at + 1, 4);
	return (u64)at + JUMP + (s64)(s32)distance;
}

/* Written code takes effect from the next jump on. */
static inline void synchronise_code(u64 at, u64 size)
{
	(void)at, (void)size;
}

/* Writes a site's stub and trampoline at `code`; returns the address after them, or null if something is out of range. */
static u8 *build(u8 *code, struct site *site, u64 entry, u64 *stub)
{
	const struct plan_function *f = site->function;
	const struct site *first = (const struct site *)((u64)site & ~(SITES_ALIGNED - 1));
	u32 i;

	*stub = (u64)code;
	if (f->undo) {
		/* lea rsp, [rsp + undo], which leaves the flags alone */
		memcpy(code, "\x48\x8d\xa4\x24", 4);
		put32(code + 4, f->undo);
		code += 8;
	}
	if (f->kind == FUNCTION_NAMED) {
		/* push site's number; call [rip + site->hook], which returns to the trampoline and touches no register */
		code[0] = 0x6a;
		code[1] = (u8)(site - first);
		memcpy(code + 2, "\xff\x15", 2);
		put32(code + 4, (u64)&site->hook - (u64)(code + 8));
		code += 8;
		site->real = code;
	} else {
		/* lea r11, [rip + site]; jmp [rip + site->hook] */
		memcpy(code, "\x4c\x8d\x1d", 3);
		put32(code + 3, (u64)site - (u64)(code + 7));
		code += 7;
		memcpy(code, "\xff\x25", 2);
		put32(code + 2, (u64)&site->hook - (u64)(code + 6));
		code += 6;
		/* Called through a pointer, and left by a direct jump, whose target needs no landing pad (CET). */
		site->real = code;
		memcpy(code, "\xf3\x0f\x1e\xfa", 4);
		code += 4;
	}
	memcpy(code, f->code, f->code_size);
	for (i = 0; i < f->fixups; i++) {
		u64 target = entry + (s64)f->fixup[i].target;
		u64 from = (u64)code + f->fixup[i].end;

		if (f->fixup[i].absolute) {
			memcpy(code + f->fixup[i].at, &target, sizeof(target));
			continue;
		}
		if (!spans(from, target))
			return 0;
		put32(code + f->fixup[i].at, target - from);
	}
	code += f->code_size;
	entry += f->moved;
	if (!reaches((u64)code, entry))
		return 0;
	put_jump(code, (u64)code, entry);
	return code + JUMP;
}

static int is_padding(const u8 *at, u64 size)
{
	static const u8 known[][15] = {
		{ 0x66, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 },
		{ 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0 },
		{ 0xcc, 0xcc, 0xcc, 0xcc, 0xcc },
		{ 0x0f, 0x1f, 0x44, 0, 0 },
	};
	u32 i, j;

	for (i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		for (j = 0; j < size && at[j] == known[i][j]; j++)
			;
		if (j == size)
			return 1;
	}
	return 0;
}

/* Returns where a jump can be placed in the loader's empty function, which is a single return followed by padding; 0: it is not. */
static u64 empty_body(const u8 *empty)
{
	/* endbr64 */
	if (empty[0] == 0xf3 && empty[1] == 0x0f && empty[2] == 0x1e && empty[3] == 0xfa)
		empty += 4;
	/* A debugger's breakpoint is not a return. */
	return empty[0] == 0xc3 && is_padding(empty + 1, JUMP - 1) ? (u64)empty : 0;
}

/*
 * The stubs jump here with the site in r11 and everything else as it was on entry to the function. A prepare uses all argument
 * registers, so the site is pushed onto the stack, which also aligns it.
 */
asm(".pushsection .text\n"
    ".hidden fathom_enter_step, fathom_enter_reset, fathom_enter_prepare\n"
    ".globl fathom_enter_step, fathom_enter_reset, fathom_enter_prepare\n"
    ".type fathom_enter_step, @function\n"
    "fathom_enter_step:\n"
    "	.cfi_startproc\n"
    "	endbr64\n"
    "	mov %r11, %rsi\n"
    "	jmp fathom_hook_step\n"
    "	.cfi_endproc\n"
    ".type fathom_enter_reset, @function\n"
    "fathom_enter_reset:\n"
    "	.cfi_startproc\n"
    "	endbr64\n"
    "	mov %r11, %rsi\n"
    "	jmp fathom_hook_reset\n"
    "	.cfi_endproc\n"
    ".type fathom_enter_prepare, @function\n"
    "fathom_enter_prepare:\n"
    "	.cfi_startproc\n"
    "	endbr64\n"
    "	push %r11\n"
    "	.cfi_adjust_cfa_offset 8\n"
    "	call fathom_hook_prepare\n"
    "	pop %r11\n"
    "	.cfi_adjust_cfa_offset -8\n"
    "	ret\n"
    "	.cfi_endproc\n"
    ".popsection\n");
extern hidden void fathom_enter_step(void), fathom_enter_reset(void), fathom_enter_prepare(void);

/* The hooked function then runs as if it had been called without the object: arguments on the stack stay where they are. */
#define BEFORE(name, called)                                                                                                      \
	".hidden " name "\n"                                                                                                      \
	".globl " name "\n"                                                                                                       \
	".type " name ", @function\n" name ":\n"                                                                                  \
	"	.cfi_startproc\n"                                                                                                 \
	"	endbr64\n"                                                                                                        \
	"	push %rax\n"                                                                                                      \
	"	push %r11\n"                                                                                                      \
	"	push %rdi\n"                                                                                                      \
	"	push %rsi\n"                                                                                                      \
	"	push %rdx\n"                                                                                                      \
	"	push %rcx\n"                                                                                                      \
	"	push %r8\n"                                                                                                       \
	"	push %r9\n"                                                                                                       \
	"	sub $8, %rsp\n"                                                                                                   \
	"	.cfi_adjust_cfa_offset 72\n"                                                                                      \
	"	call " called "\n"                                                                                                \
	"	add $8, %rsp\n"                                                                                                   \
	"	pop %r9\n"                                                                                                        \
	"	pop %r8\n"                                                                                                        \
	"	pop %rcx\n"                                                                                                       \
	"	pop %rdx\n"                                                                                                       \
	"	pop %rsi\n"                                                                                                       \
	"	pop %rdi\n"                                                                                                       \
	"	pop %r11\n"                                                                                                       \
	"	pop %rax\n"                                                                                                       \
	"	.cfi_adjust_cfa_offset -72\n"                                                                                     \
	"	jmp *(%r11)\n"                                                                                                    \
	"	.cfi_endproc\n"

asm(".pushsection .text\n" BEFORE("fathom_enter_prctl", "fathom_before_prctl")
	    BEFORE("fathom_enter_syscall", "fathom_before_syscall") ".hidden fathom_enter_execve\n"
								     ".globl fathom_enter_execve\n"
								     ".type fathom_enter_execve, @function\n"
								     "fathom_enter_execve:\n"
								     "	.cfi_startproc\n"
								     "	endbr64\n"
								     "	mov %r11, %rcx\n"
								     "	jmp fathom_hook_execve\n"
								     "	.cfi_endproc\n"
								     ".popsection\n");
extern hidden void fathom_enter_prctl(void), fathom_enter_syscall(void), fathom_enter_execve(void);

#endif
