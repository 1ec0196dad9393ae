/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The few system calls that the object makes: it has no libc, and must not disturb the program's. */
#ifndef FATHOM_INSIDE_SYSTEM_H
#define FATHOM_INSIDE_SYSTEM_H

#include "compiler.h"
#if defined(__x86_64__)
#include "x86_64.h"
#elif defined(__aarch64__)
#include "aarch64.h"
#else
#error "The object is written for x86-64 and aarch64 only"
#endif

#define AT_FDCWD (-100)
#define S_IFMT 0170000
#define S_IFREG 0100000
#define S_IXANY 0111

#define O_RDONLY 0
#define O_RDWR 2
#define O_CREAT 0100
#define O_EXCL 0200
#define O_CLOEXEC 02000000
#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_NORESERVE 0x4000
#define MAP_FIXED_NOREPLACE 0x100000
#define MADV_DONTFORK 10
#define MADV_DONTDUMP 16
#define MADV_WIPEONFORK 18
#define MADV_POPULATE_WRITE 23
#define RLIMIT_FSIZE 1
#define RUSAGE_THREAD 1
#define AF_UNIX 1
#define SOCK_STREAM 1
#define SOL_SOCKET 1
#define SO_RCVTIMEO 20
#define SO_SNDTIMEO 21
#define MSG_NOSIGNAL 0x4000
#define EINTR 4
#define ESRCH 3
#define CLOCK_BOOTTIME 7

/*
 * Passed as the sixth argument, which no recorded system call takes: it tells the BPF programs that a call is the object's own, not the
 * program's. As in syscalls.bpf.c.
 */
#define OWN_CALL 0x6c6c61436e776f46L
#define call0(n) call6(n, 0, 0, 0, 0, 0, OWN_CALL)
#define call1(n, a) call6(n, (long)(a), 0, 0, 0, 0, OWN_CALL)
#define call2(n, a, b) call6(n, (long)(a), (long)(b), 0, 0, 0, OWN_CALL)
#define call3(n, a, b, c) call6(n, (long)(a), (long)(b), (long)(c), 0, 0, OWN_CALL)
#define call4(n, a, b, c, d) call6(n, (long)(a), (long)(b), (long)(c), (long)(d), 0, OWN_CALL)

static inline void *map(u64 at, u64 size, int protection, int flags, int fd)
{
	long result = call6(SYS_mmap, (long)at, (long)size, protection, flags, fd, 0);

	return result < 0 && result > -4096 ? (void *)0 : (void *)result;
}

/* Uses openat, as the C libraries do: a filter of system calls that allows theirs allows this. */
static inline long open_file(const char *path, int flags, int mode)
{
	return call4(SYS_openat, AT_FDCWD, path, flags, mode);
}

static inline u64 text_length(const char *text, u64 most)
{
	u64 n = 0;

	while (n < most && text[n])
		n++;
	return n;
}

/* Reads a small file; returns the number of bytes. */
static inline long read_file(const char *path, void *to, u64 most)
{
	long fd = open_file(path, O_RDONLY | O_CLOEXEC, 0);
	long got = 0, n;

	if (fd < 0)
		return fd;
	do {
		n = call3(SYS_read, fd, (u8 *)to + got, most - got);
		if (n > 0)
			got += n;
	} while ((n > 0 && got < (long)most) || n == -EINTR);
	call1(SYS_close, fd);
	return got;
}

/* Returns a file's identity; returns 0 if there is no such file. */
static inline int identify(const char *path, u64 *dev, u64 *ino)
{
	u64 about[18];

	if (call4(SYS_newfstatat, AT_FDCWD, path, about, 0))
		return 0;
	*dev = about[0];
	*ino = about[1];
	return 1;
}

#endif
