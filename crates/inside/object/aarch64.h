/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* aarch64-specific parts of the object: system calls, the time counter, and differences in the kernel's structures. */
#ifndef FATHOM_INSIDE_AARCH64_H
#define FATHOM_INSIDE_AARCH64_H

#include "compiler.h"

#define SYS_ftruncate 46
#define SYS_openat 56
#define SYS_close 57
#define SYS_read 63
#define SYS_pwrite64 68
#define SYS_newfstatat 79
#define SYS_clock_gettime 113
#define SYS_tgkill 131
#define SYS_getrusage 165
#define SYS_prctl 167
#define SYS_getcpu 168
#define SYS_getpid 172
#define SYS_gettid 178
#define SYS_socket 198
#define SYS_connect 203
#define SYS_sendto 206
#define SYS_recvfrom 207
#define SYS_setsockopt 208
#define SYS_munmap 215
#define SYS_mmap 222
#define SYS_mprotect 226
#define SYS_mincore 232
#define SYS_madvise 233
#define SYS_prlimit64 261
#define SYS_process_vm_readv 270
#define SYS_seccomp 277

/* For shadow stacks (GCS), supported since Linux 6.13. */
#define PR_GET_SHADOW_STACK_STATUS 74
/* EM_AARCH64. */
#define ELF_MACHINE 183
/* Offset of the mode in struct stat, in eight-byte words. */
#define STAT_MODE_AT 2
#define VDSO_CLOCK_GETTIME "__kernel_clock_gettime"
#define LOADER_OF_GLIBC "ld-linux-aarch64.so.1"

/*
 * The stack position at which a function's hook begins. The compiler decides where in its frame a function keeps the frame record;
 * that of the code that calls each hook (aarch64_code.h) is at a fixed distance.
 */
#define HOOK_STACK (*(const u64 *)__builtin_frame_address(0))

static inline long call6(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 asm("x8") = n;
	register long x0 asm("x0") = a;
	register long x1 asm("x1") = b;
	register long x2 asm("x2") = c;
	register long x3 asm("x3") = d;
	register long x4 asm("x4") = e;
	register long x5 asm("x5") = f;

	asm volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory", "cc");
	return x0;
}

/* A counter of 19 MHz to 1 GHz, the same on all processors: it measures parts of a duration, summed over many steps. */
static inline u64 cycles(void)
{
	u64 now;

	asm volatile("mrs %0, cntvct_el0" : "=r"(now));
	return now;
}

/* Returns a word of a thread's own memory, at an offset from the thread pointer. */
static inline u32 thread_word(s64 at)
{
	return *(const volatile u32 *)((const u8 *)__builtin_thread_pointer() + at);
}

static inline void relax(void)
{
	asm volatile("yield");
}

/* Returns part * whole / all, which is less than `whole`. */
static inline u64 share(u64 part, u64 whole, u64 all)
{
	u64 low = part * whole, high, quotient = 0;
	int i;

	asm("umulh %0, %1, %2" : "=r"(high) : "r"(part), "r"(whole));
	if (likely(!high))
		return low / all;
	/* Longer than some seconds: one bit at a time. */
	for (i = 0; i < 64; i++) {
		u64 carry = high >> 63;

		high = high << 1 | low >> 63;
		low <<= 1;
		quotient <<= 1;
		if (carry || high >= all) {
			high -= all;
			quotient |= 1;
		}
	}
	return quotient;
}

/* As compiler.h declares them. */
void *memcpy(void *to, const void *from, u64 size)
{
	u64 i = 0, word;

	for (; i + 8 <= size; i += 8)
		asm volatile("ldr %0, [%1]\n	str %0, [%2]"
			     : "=&r"(word)
			     : "r"((const u8 *)from + i), "r"((u8 *)to + i)
			     : "memory");
	for (; i < size; i++)
		((volatile u8 *)to)[i] = ((const u8 *)from)[i];
	return to;
}

void *memset(void *at, int byte, u64 size)
{
	u64 i = 0, word = (u8)byte * 0x0101010101010101UL;

	for (; i + 8 <= size; i += 8)
		asm volatile("str %0, [%1]" : : "r"(word), "r"((u8 *)at + i) : "memory");
	for (; i < size; i++)
		((volatile u8 *)at)[i] = (u8)byte;
	return at;
}

#endif
