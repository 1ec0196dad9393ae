/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sleeps 30 ms in places where a stack is hard to unwind or to symbolise. argv: where (library, unlinked, replaced, closed, thread, deep,
 * wide, made, handler, vdso, endless), and a library that has `work` (sleeper.c). `run` is the caller of all of it.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#define KEPT __attribute__((noinline, noclone))

static const struct timespec rest = { 0, 30000000 };
/* Written after each call, so that no call is a tail call. */
volatile int done;

KEPT void sleep_here(void)
{
	nanosleep(&rest, NULL);
	done++;
}

KEPT void call_library(const char *where, const char *path)
{
	void *library = dlopen(path, RTLD_NOW);
	void (*work)(const char *, const char *);
	char other[4096];
	FILE *file;

	work = library ? (void (*)(const char *, const char *))dlsym(library, "work") : NULL;
	if (!work)
		exit(3);
	if (!strcmp(where, "unlinked") && unlink(path))
		exit(3);
	/* Like an upgrade of a package: another file gets its name. */
	if (!strcmp(where, "replaced")) {
		snprintf(other, sizeof(other), "%s.new", path);
		file = fopen(other, "w");
		if (!file || fputs("another one\n", file) < 0 || fclose(file) || rename(other, path))
			exit(3);
	}
	/* The recorder read its mapping long ago, and does not read it again before the library is gone. */
	while (!strcmp(where, "closed") && clock() < CLOCKS_PER_SEC * 6 / 10)
		done++;
	work("timer", NULL);
	done++;
	if (!strcmp(where, "closed") && dlclose(library))
		exit(3);
}

KEPT void go_down(int left)
{
	if (left)
		go_down(left - 1);
	else
		sleep_here();
	done++;
}

KEPT void go_down_wide(int left)
{
	volatile char room[1500];

	memset((void *)room, left, sizeof(room));
	if (left)
		go_down_wide(left - 1);
	else
		sleep_here();
	done += room[7];
}

KEPT void call_made(void)
{
#if defined(__x86_64__)
	/* push %rbp; mov %rsp,%rbp; call *%rdi; pop %rbp; ret */
	static const unsigned char code[] = { 0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3 };
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		exit(3);
	memcpy(page, code, sizeof(code));
	if (mprotect(page, 4096, PROT_READ | PROT_EXEC))
		exit(3);
	((void (*)(void (*)(void)))page)(sleep_here);
#endif
	done++;
}

KEPT void sleep_endlessly_described(void)
{
	/* The CFA is the result of an expression that jumps to its own beginning. */
	asm volatile(".cfi_remember_state\n.cfi_escape 0x0f, 3, 0x2f, 0xfd, 0xff");
	nanosleep(&rest, NULL);
	done++;
	asm volatile(".cfi_restore_state");
}

static void handle(int signal)
{
	(void)signal;
	sleep_here();
	done++;
}

#if defined(__x86_64__)
/* Sleeps in the handler of a signal that arrived while the vDSO read the clock. */
static void handle_in_vdso(int signal, siginfo_t *info, void *context)
{
	unsigned long vdso = getauxval(AT_SYSINFO_EHDR);
	unsigned long ip = ((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];

	(void)signal;
	(void)info;
	if (done || ip - vdso >= 8192)
		return;
	sleep_here();
	done++;
}

KEPT void tell_time(void)
{
	const struct itimerval often = { { 0, 500 }, { 0, 500 } }, never = { { 0, 0 }, { 0, 0 } };
	struct sigaction action = { .sa_sigaction = handle_in_vdso, .sa_flags = SA_SIGINFO };
	struct timespec now;

	sigaction(SIGALRM, &action, NULL);
	setitimer(ITIMER_REAL, &often, NULL);
	while (!done)
		clock_gettime(CLOCK_MONOTONIC, &now);
	setitimer(ITIMER_REAL, &never, NULL);
	done++;
}
#endif

KEPT void *run(void *arguments)
{
	char **argv = arguments;

	if (!strcmp(argv[1], "deep"))
		go_down(200);
	else if (!strcmp(argv[1], "wide"))
		go_down_wide(30);
	else if (!strcmp(argv[1], "made"))
		call_made();
#if defined(__x86_64__)
	else if (!strcmp(argv[1], "vdso"))
		tell_time();
#endif
	else if (!strcmp(argv[1], "endless"))
		sleep_endlessly_described();
	else if (!strcmp(argv[1], "handler")) {
		signal(SIGUSR1, handle);
		raise(SIGUSR1);
	} else
		call_library(argv[1], argv[2]);
	done++;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_attr_t small;
	pthread_t thread;

	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "thread")) {
		if (pthread_attr_init(&small) || pthread_attr_setstacksize(&small, 64 << 10) ||
		    pthread_create(&thread, &small, run, argv) || pthread_join(thread, NULL))
			return 3;
	} else {
		run(argv);
	}
	/* The recorder reads the files while the process exists: it processes stacks every half second. */
	sleep(2);
	return 0;
}
