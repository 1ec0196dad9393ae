/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * aarch64 code that the object generates for trampolines and for reaching hooks: a jump of one instruction, with a range of 128 MiB.
 *
 * Registers x16 and x17 belong to the linker, which may change them at any call, and so do the stubs. Pages of the object and of its
 * stubs are not guarded (BTI), so indirect branches may target any place in them; branches from them into the middle of a function,
 * where a guarded page allows no indirect ones, are direct. x18 is left alone: it may hold a shadow call stack.
 */
#ifndef FATHOM_INSIDE_AARCH64_CODE_H
#define FATHOM_INSIDE_AARCH64_CODE_H

#include "environment.h"
#include "seal.h"
#include "sqlite.h"

#define JUMP 4
/* Bytes of a uprobe's breakpoint. */
#define BREAKPOINT 4
/* How far around a library to look for memory: the targets of the stubs must be within range of a jump too. */
#define REACH (120UL << 20)
/* ldr x17, [pc + 8]; br x17 */
#define JUMP_TO_NEXT_WORD "\x51\x00\x00\x58\x20\x02\x1f\xd6"

#define INSTRUCTION_B 0x14000000u
#define INSTRUCTION_RET 0xd65f03c0u
#define INSTRUCTION_BTI_C 0xd503245fu
#define INSTRUCTION_AUTIASP 0xd50323bfu
#define INSTRUCTION_AUTIBSP 0xd50323ffu
/* With a shadow stack (GCS), ret checks the return address, so that no return may be redirected. */
static int moves_calls(const struct plan_library *library)
{
	return library != 0;
}

static inline u32 instruction_at(const void *at)
{
	u32 word;

	memcpy(&word, at, 4);
	return word;
}

static inline u8 *put_instruction(u8 *at, u32 word)
{
	memcpy(at, &word, 4);
	return at + 4;
}

/* Whether a jump at `at` reaches `to`. */
static inline int reaches(u64 at, u64 to)
{
	s64 distance = (s64)(to - at);

	return distance >= -(1L << 27) && distance < 1L << 27 && !(distance & 3);
}

/* Writes a jump from `at` to `to`. */
static inline void put_jump(u8 *code, u64 at, u64 to)
{
	put_instruction(code, INSTRUCTION_B | ((to - at) >> 2 & 0x3ffffff));
}

/* Returns the target of a jump; 0: there is no jump. */
static inline u64 read_jump(const u8 *at)
{
	u32 word = instruction_at(at);

	if ((word & 0xfc000000) != INSTRUCTION_B)
		return 0;
	return (u64)at + ((s64)(s32)(word << 6) >> 4);
}

/* Makes code that was written as data executable on every processor (Arm ARM, B2.4.4). */
static void synchronise_code(u64 at, u64 size)
{
	u64 types, data, code, line;

	asm volatile("mrs %0, ctr_el0" : "=r"(types));
	data = 4UL << (types >> 16 & 15);
	code = 4UL << (types & 15);
	for (line = at & ~(data - 1); line < at + size; line += data)
		asm volatile("dc cvau, %0" : : "r"(line) : "memory");
	asm volatile("dsb ish" : : : "memory");
	for (line = at & ~(code - 1); line < at + size; line += code)
		asm volatile("ic ivau, %0" : : "r"(line) : "memory");
	asm volatile("dsb ish\n	isb" : : : "memory");
}

/* Writes the code that undoes a function's first instruction (../src/hook/aarch64.rs). */
static u8 *put_undo(u8 *code, u8 undo)
{
	if (undo == UNDO_AUTIASP)
		return put_instruction(code, INSTRUCTION_AUTIASP);
	if (undo == UNDO_AUTIBSP)
		return put_instruction(code, INSTRUCTION_AUTIBSP);
	/* add sp, sp, #... */
	return undo ? put_instruction(code, 0x910003ff | (u32)undo * UNDO_UNIT_AARCH64 << 10) : code;
}

/* Writes a site's stub and trampoline at `code`; returns the address after them, or null if something is out of range. */
static u8 *build(u8 *code, struct site *site, u64 entry, u64 *stub)
{
	const struct plan_function *f = site->function;
	s64 distance;
	u32 i;

	*stub = (u64)code;
	code = put_undo(code, f->undo);
	/* adr x16, site; ldr x17, site->hook; br x17 */
	distance = (s64)((u64)site - (u64)code);
	code = put_instruction(code, 0x10000010 | (u32)(distance & 3) << 29 | (u32)(distance >> 2 & 0x7ffff) << 5);
	distance = (s64)((u64)&site->hook - (u64)code);
	code = put_instruction(code, 0x58000011 | (u32)(distance >> 2 & 0x7ffff) << 5);
	code = put_instruction(code, 0xd61f0220);
	site->real = code;
	memcpy(code, f->code, f->code_size);
	for (i = 0; i < f->fixups; i++) {
		u64 target = entry + (s64)f->fixup[i].target;
		u8 *at = code + f->fixup[i].at;

		if (f->fixup[i].absolute) {
			memcpy(at, &target, sizeof(target));
			continue;
		}
		if (!reaches((u64)at, target))
			return 0;
		put_jump(at, (u64)at, target);
	}
	code += f->code_size;
	entry += f->moved;
	if (!reaches((u64)code, entry))
		return 0;
	put_jump(code, (u64)code, entry);
	return code + JUMP;
}

/* Returns where a jump can be placed in the loader's empty function, which is a single return; 0: it is not. */
static u64 empty_body(const u8 *empty)
{
	if (instruction_at(empty) == INSTRUCTION_BTI_C)
		empty += 4;
	/* A debugger's breakpoint is not a return. */
	return instruction_at(empty) == INSTRUCTION_RET ? (u64)empty : 0;
}

/* The stubs jump here with the site in x16 and everything else as it was on entry to the function. */
#define INSTEAD(name, called, site)                                                                                               \
	".hidden " name "\n"                                                                                                      \
	".globl " name "\n"                                                                                                       \
	".type " name ", %function\n" name ":\n"                                                                                  \
	"	.cfi_startproc\n"                                                                                                 \
	"	stp x29, x30, [sp, #-16]!\n"                                                                                      \
	"	.cfi_def_cfa_offset 16\n"                                                                                         \
	"	.cfi_offset x29, -16\n"                                                                                           \
	"	.cfi_offset x30, -8\n"                                                                                            \
	"	mov x29, sp\n"                                                                                                    \
	"	mov " site ", x16\n"                                                                                              \
	"	bl " called "\n"                                                                                                  \
	"	ldp x29, x30, [sp], #16\n"                                                                                        \
	"	.cfi_def_cfa_offset 0\n"                                                                                          \
	"	.cfi_restore x29\n"                                                                                               \
	"	.cfi_restore x30\n"                                                                                               \
	"	ret\n"                                                                                                            \
	"	.cfi_endproc\n"

/* The hooked function then runs as if it had been called without the object. */
#define BEFORE(name, called)                                                                                                      \
	".hidden " name "\n"                                                                                                      \
	".globl " name "\n"                                                                                                       \
	".type " name ", %function\n" name ":\n"                                                                                  \
	"	.cfi_startproc\n"                                                                                                 \
	"	stp x29, x30, [sp, #-112]!\n"                                                                                      \
	"	.cfi_def_cfa_offset 112\n"                                                                                        \
	"	.cfi_offset x29, -112\n"                                                                                          \
	"	.cfi_offset x30, -104\n"                                                                                          \
	"	mov x29, sp\n"                                                                                                    \
	"	stp x0, x1, [sp, #16]\n"                                                                                          \
	"	stp x2, x3, [sp, #32]\n"                                                                                          \
	"	stp x4, x5, [sp, #48]\n"                                                                                          \
	"	stp x6, x7, [sp, #64]\n"                                                                                          \
	"	stp x8, x16, [sp, #80]\n"                                                                                         \
	"	mrs x17, nzcv\n"                                                                                                  \
	"	str x17, [sp, #96]\n"                                                                                             \
	"	bl " called "\n"                                                                                                  \
	"	ldr x17, [sp, #96]\n"                                                                                             \
	"	msr nzcv, x17\n"                                                                                                  \
	"	ldp x8, x16, [sp, #80]\n"                                                                                         \
	"	ldp x6, x7, [sp, #64]\n"                                                                                          \
	"	ldp x4, x5, [sp, #48]\n"                                                                                          \
	"	ldp x2, x3, [sp, #32]\n"                                                                                          \
	"	ldp x0, x1, [sp, #16]\n"                                                                                          \
	"	ldp x29, x30, [sp], #112\n"                                                                                        \
	"	.cfi_def_cfa_offset 0\n"                                                                                          \
	"	.cfi_restore x29\n"                                                                                               \
	"	.cfi_restore x30\n"                                                                                               \
	"	ldr x17, [x16]\n"                                                                                                 \
	"	br x17\n"                                                                                                         \
	"	.cfi_endproc\n"

asm(".pushsection .text\n"
    ".balign 4\n" INSTEAD("fathom_enter_step", "fathom_hook_step", "x1")
	    INSTEAD("fathom_enter_reset", "fathom_hook_reset", "x1") INSTEAD("fathom_enter_prepare", "fathom_hook_prepare", "x6")
		    INSTEAD("fathom_enter_execve", "fathom_hook_execve", "x3") BEFORE("fathom_enter_prctl", "fathom_before_prctl")
			    BEFORE("fathom_enter_syscall", "fathom_before_syscall") ".popsection\n");
extern hidden void fathom_enter_step(void), fathom_enter_reset(void), fathom_enter_prepare(void);
extern hidden void fathom_enter_prctl(void), fathom_enter_syscall(void), fathom_enter_execve(void);

#endif
