/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Functions that sleep, each in a known call, for 30 ms or until the disk has written: `work` calls `middle`, which calls them. argv: how
 * (timer, pipe, futex, disk, garbage, many), and a file to write for `disk`.
 *
 * Compiled with and without frame pointers and unwind information, it is the reference for recorded stacks.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* From linux/futex.h, which musl's compiler does not find. */
#define FUTEX_WAIT_PRIVATE 128
#define KEPT __attribute__((noinline, noclone))

static const struct timespec rest = { 0, 30000000 };
/* Written after each call, so that no call is a tail call. */
volatile int done;

KEPT void sleep_by_timer(void)
{
	nanosleep(&rest, NULL);
	done++;
}

KEPT void wait_for_pipe(void)
{
	int ends[2];
	char byte;

	if (pipe(ends))
		exit(3);
	if (!fork()) {
		nanosleep(&rest, NULL);
		_exit(write(ends[1], "x", 1) != 1);
	}
	if (read(ends[0], &byte, 1) != 1)
		exit(3);
	done++;
	wait(NULL);
	done++;
}

KEPT void wait_for_futex(void)
{
	static int word = 7;

	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, &rest, NULL, 0);
	done++;
}

KEPT void wait_for_disk(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY, 0644);

	if (fd < 0 || write(fd, path, strlen(path)) < 0)
		exit(3);
	done++;
	fdatasync(fd);
	done++;
	close(fd);
}

/* Points the frame pointer at a fabricated list of frames meanwhile. */
KEPT void sleep_astray(void)
{
	static void *frames[6] = { &frames[2], (void *)sleep_by_timer, &frames[4], (void *)wait_for_futex, (void *)0x10, (void *)0x20 };
#if defined(__x86_64__)
	register long number asm("rax") = SYS_nanosleep;
	register const void *how_long asm("rdi") = &rest;
	register void *left asm("rsi") = NULL;

	asm volatile("push %%rbp\n mov %1, %%rbp\n syscall\n pop %%rbp"
		     : "+r"(number)
		     : "r"(frames), "r"(how_long), "r"(left)
		     : "rcx", "r11", "memory");
#else
	(void)frames;
	nanosleep(&rest, NULL);
#endif
	done++;
}

KEPT void middle(const char *how, const char *path)
{
	if (!strcmp(how, "timer"))
		sleep_by_timer();
	else if (!strcmp(how, "pipe"))
		wait_for_pipe();
	else if (!strcmp(how, "futex"))
		wait_for_futex();
	else if (!strcmp(how, "disk"))
		wait_for_disk(path);
	else
		sleep_astray();
	done++;
}

KEPT void work(const char *how, const char *path)
{
	middle(how, path);
	done++;
}

/* Sleeps briefly, to be called as often as the machine can. */
KEPT void nap(void)
{
	const struct timespec short_rest = { 0, 150000 };

	nanosleep(&short_rest, NULL);
	done++;
}

static void *naps(void *unused)
{
	int i;

	(void)unused;
	for (i = 0; i < 400; i++)
		nap();
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[40];
	int i;

	if (argc < 2)
		return 2;
	if (!strcmp(argv[1], "many")) {
		for (i = 0; i < 40; i++)
			if (pthread_create(&threads[i], NULL, naps, NULL))
				return 3;
		for (i = 0; i < 40; i++)
			pthread_join(threads[i], NULL);
		return 0;
	}
	work(argv[1], argc > 2 ? argv[2] : "/dev/null");
	return 0;
}
