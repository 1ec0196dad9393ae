/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* x86-64-specific parts of the object: system calls, the cycle counter, and differences in the kernel's structures. */
#ifndef FATHOM_INSIDE_X86_64_H
#define FATHOM_INSIDE_X86_64_H

#include "compiler.h"

#define SYS_read 0
#define SYS_close 3
#define SYS_mmap 9
#define SYS_mprotect 10
#define SYS_munmap 11
#define SYS_pwrite64 18
#define SYS_mincore 27
#define SYS_madvise 28
#define SYS_getpid 39
#define SYS_socket 41
#define SYS_connect 42
#define SYS_sendto 44
#define SYS_recvfrom 45
#define SYS_setsockopt 54
#define SYS_ftruncate 77
#define SYS_getrusage 98
#define SYS_prctl 157
#define SYS_gettid 186
#define SYS_clock_gettime 228
#define SYS_tgkill 234
#define SYS_openat 257
#define SYS_newfstatat 262
#define SYS_prlimit64 302
#define SYS_process_vm_readv 310
#define SYS_seccomp 317

/* EM_X86_64. */
#define ELF_MACHINE 62
/* Offset of the mode in struct stat, in eight-byte words. */
#define STAT_MODE_AT 3
#define VDSO_CLOCK_GETTIME "__vdso_clock_gettime"
#define VDSO_GETCPU "__vdso_getcpu"
#define LOADER_OF_GLIBC "ld-linux-x86-64.so.2"

/* The stack position at which a function's hook begins; the hook is called in the function's place. */
#define HOOK_STACK ((u64)__builtin_frame_address(0))

static inline long call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long r10 asm("r10") = d;
	register long r8 asm("r8") = e;
	register long r9 asm("r9") = f;
	long result;

	asm volatile("syscall"
		     : "=a"(result)
		     : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
		     : "rcx", "r11", "memory");
	return result;
}

/* FATHOM_CYCLES: a test's own counter. */
static inline u64 cycles(void)
{
#ifdef FATHOM_CYCLES
	return FATHOM_CYCLES();
#else
	u32 low, high;

	asm volatile("rdtsc" : "=a"(low), "=d"(high));
	return (u64)high << 32 | low;
#endif
}

/* Returns a word of a thread's own memory, at an offset from the thread pointer. */
static inline u32 thread_word(s64 at)
{
	u32 word;

	asm volatile("movl %%fs:(%1), %0" : "=r"(word) : "r"(at));
	return word;
}

static inline void relax(void)
{
	__builtin_ia32_pause();
}

/* Returns part * whole / all, which is less than `whole`, so that the quotient does not overflow. */
static inline u64 share(u64 part, u64 whole, u64 all)
{
	u64 high;

	/* No floating-point registers are touched: they may hold a function's result. */
	asm("mulq %[ns]; divq %[all]" : "+a"(part), "=&d"(high) : [ns] "r"(whole), [all] "r"(all) : "cc");
	return part;
}

/* As compiler.h declares them. */
void *memcpy(void *to, const void *from, u64 size)
{
	void *start = to;

	asm volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
	return start;
}

void *memset(void *at, int byte, u64 size)
{
	void *start = at;

	asm volatile("rep stosb" : "+D"(at), "+c"(size) : "a"(byte) : "memory");
	return start;
}

#endif
