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

__attribute__((used)) hidden void fathom_before_prctl(u64 option)
{
	if ((u32)option == PR_SET_SECCOMP)
		seal();
}

__attribute__((used)) hidden void fathom_before_syscall(u64 number, u64 option)
{
	if (number == SYS_seccomp || (number == SYS_prctl && (u32)option == PR_SET_SECCOMP))
		seal();
}

#endif
