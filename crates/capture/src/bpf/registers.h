/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The registers that contain a system call's number and arguments when a program enters the kernel. */
#ifndef FATHOM_REGISTERS_H
#define FATHOM_REGISTERS_H

#if defined(__TARGET_ARCH_x86)
/* 32-bit code: its code segment is __USER32_CS. */
#define FOREIGN_ABI(regs) ((regs)->cs == 0x23)
/* A call of i386, by whatever code (TS_COMPAT in asm/thread_info.h): the numbers mean other calls, with other registers. */
#define COMPAT_CALL(task, regs) ((task)->thread_info.status & 2)
#define CALL_NR(regs) ((regs)->orig_ax)
#define READ_COMPAT_ARGS(args, regs) \
	args[0] = (u32)(regs)->bx; args[1] = (u32)(regs)->cx; args[2] = (u32)(regs)->dx; \
	args[3] = (u32)(regs)->si; args[4] = (u32)(regs)->di; args[5] = (u32)(regs)->bp
#define READ_ARGS(args, regs) \
	args[0] = (regs)->di; args[1] = (regs)->si; args[2] = (regs)->dx; \
	args[3] = (regs)->r10; args[4] = (regs)->r8; args[5] = (regs)->r9
#elif defined(__TARGET_ARCH_arm64)
/*
 * A signed number of 32 bits, -1 outside of calls. As an unsigned one it needs no sign extension: of two ways to extend it, Linux
 * 6.1's verifier does not know that the one that was compared bounds the other.
 */
#define CALL_NR(regs) ((u32)(regs)->syscallno)
/* PSR_MODE32_BIT */
#define FOREIGN_ABI(regs) ((regs)->pstate & 0x10)
/* Its numbers mean other calls. */
#define COMPAT_CALL(task, regs) FOREIGN_ABI(regs)
#define READ_COMPAT_ARGS(args, regs) \
	args[0] = (u32)(regs)->orig_x0; args[1] = (u32)(regs)->regs[1]; args[2] = (u32)(regs)->regs[2]; \
	args[3] = (u32)(regs)->regs[3]; args[4] = (u32)(regs)->regs[4]; args[5] = (u32)(regs)->regs[5]
#define READ_ARGS(args, regs) \
	args[0] = (regs)->orig_x0; args[1] = (regs)->regs[1]; args[2] = (regs)->regs[2]; \
	args[3] = (regs)->regs[3]; args[4] = (regs)->regs[4]; args[5] = (regs)->regs[5]
#endif

static __always_inline void read_args(u64 *args, struct pt_regs *regs, bool compat)
{
	if (unlikely(compat)) {
		READ_COMPAT_ARGS(args, regs);
	} else {
		READ_ARGS(args, regs);
	}
}

#endif
