/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Writes code, and reads the jumps that stand there. */
#ifndef FATHOM_INSIDE_CODE_H
#define FATHOM_INSIDE_CODE_H

#if defined(__x86_64__)
#include "x86_64_code.h"
#else
#include "aarch64_code.h"
#endif

/*
 * Writes code that no other thread executes. Through /proc/self/mem the kernel copies the page and changes no mapping; a mapping change
 * would make it insert uprobes' breakpoints again.
 */
static int write_code(u64 at, const u8 *bytes, u64 size)
{
	u64 start = at & ~(PAGE - 1);
	u64 length = ((at + size + PAGE - 1) & ~(PAGE - 1)) - start;
	long fd = open_file("/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
	long written = -1;

	if (fd >= 0) {
		written = call4(SYS_pwrite64, fd, bytes, size, at);
		call1(SYS_close, fd);
	}
	if (written == (long)size) {
		synchronise_code(at, size);
		return 1;
	}
	if (call3(SYS_mprotect, start, length, PROT_READ | PROT_WRITE))
		return 0;
	memcpy((void *)at, bytes, size);
	synchronise_code(at, size);
	return !call3(SYS_mprotect, start, length, PROT_READ | PROT_EXEC);
}

/* Returns the target of the jump at an address; 0: there is none, as in a library that was unloaded meanwhile. */
static u64 jump_target(u64 at)
{
	return is_mapped(at) && is_mapped(at + JUMP - 1) ? read_jump((const u8 *)at) : 0;
}

#endif
