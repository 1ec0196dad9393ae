/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is about to forbid itself system calls (seccomp) would be killed by those of the object. The C library's prctl and
 * syscall have jumps that notice it: this thread's ring is given all its memory, and from then on the object makes no call.
 *
 * Who asks the kernel without the C library is not noticed; nor is a thread that is in the middle of a call at that moment.
 */
#ifndef FATHOM_INSIDE_SEAL_H
#define FATHOM_INSIDE_SEAL_H

#define PR_SET_SECCOMP 22
/* Modes of prctl, one above the operations of seccomp. */
#define SECCOMP_MODE_STRICT 1
#define SECCOMP_MODE_FILTER 2

static void seal(void)
{
	struct thread *t = &self;
	struct ring_control *ring;

	if (sealed)
		return;
	/* Threads without a ring get none any more. */
	if (process->arena && ready(t)) {
		ring = t->ring;
		if (!call3(SYS_madvise, t->words, RING_WORDS * 8, MADV_POPULATE_WRITE))
			ring->populated = RING_WORDS;
	}
	__atomic_store_n(&sealed, 1, __ATOMIC_RELEASE);
}

/* Browsers ask whether there are filters by setting none, which the kernel refuses; they live on without any. */
static int forbids(u64 mode, u64 filter)
{
	return mode == SECCOMP_MODE_STRICT || (mode == SECCOMP_MODE_FILTER && filter);
}

__attribute__((used)) hidden void fathom_before_prctl(u64 option, u64 mode, u64 filter)
{
	if ((u32)option == PR_SET_SECCOMP && forbids(mode, filter))
		seal();
}

__attribute__((used)) hidden void fathom_before_syscall(u64 number, u64 a, u64 b, u64 c)
{
	if (number == SYS_seccomp ? forbids((u32)a + 1UL, c) : number == SYS_prctl && (u32)a == PR_SET_SECCOMP && forbids(b, c))
		seal();
}

/* The function runs as if it had been called without the object: arguments on the stack stay where they are. */
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
