/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is about to restrict its own system calls (seccomp) would be killed by those of the object. Jumps in the C library's
 * prctl and syscall detect it: this thread's ring is given all its memory, and from then on the object makes no call.
 *
 * A program that calls the kernel without the C library is not detected; nor is a thread that is in the middle of a call at that moment.
 */
#ifndef FATHOM_INSIDE_SEAL_H
#define FATHOM_INSIDE_SEAL_H

#include "thread.h"

#define PR_SET_SECCOMP 22
/* Modes of prctl, one above the operations of seccomp. */
#define SECCOMP_MODE_STRICT 1
#define SECCOMP_MODE_FILTER 2

static void seal(void)
{
	struct thread *t = own_thread();
	struct ring_control *ring;

	if (sealed)
		return;
	/* Threads without a ring can get none from now on. */
	if (t && process->arena && ready(t)) {
		ring = t->ring;
		if (!call3(SYS_madvise, t->words, RING_WORDS * 8, MADV_POPULATE_WRITE))
			ring->populated = RING_WORDS;
	}
	__atomic_store_n(&sealed, 1, __ATOMIC_RELEASE);
}

/* Browsers test for filter support by setting a null filter, which the kernel rejects; they continue without a filter. */
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

#endif
