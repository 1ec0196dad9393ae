/*
 * A process to attach to while its threads fork, start programs and get signals, all at random.
 *
 *   running_forks SEED WORKERS STARTERS MICROSECONDS
 *
 * WORKERS execute statements, STARTERS have children of fork, vfork and exec, of which those of vfork wait up to MICROSECONDS, and a timer
 * interrupts any of them. Prints `ready`; from a line `spin` to a line `halt` they run; at the end it prints `whole` if each result was
 * right and each child ended as it should, otherwise the number of `faults`.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

extern char **environ;
static atomic_int spinning;
static atomic_long faults, done, children;
static long most_us;
static uint64_t seed;

static uint64_t draw(uint64_t *state, uint64_t below)
{
	uint64_t x = *state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31) % below;
}

/* Named by --op; also called by the handler, and by children. */
__attribute__((noinline)) int operation(int depth)
{
	int result = depth ? operation(depth - 1) + 1 : 0;

	__asm__ volatile("" : "+r"(result));
	return result;
}

static void on_signal(int number)
{
	int before = errno;

	(void)number;
	if (operation(2) != 2)
		faults++;
	errno = before;
}

static int query(sqlite3 *db, const char *text)
{
	sqlite3_stmt *statement;
	int value = -1;

	if (sqlite3_prepare_v2(db, text, -1, &statement, 0))
		return -2;
	if (sqlite3_step(statement) == SQLITE_ROW)
		value = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	return value;
}

static void *work(void *at)
{
	uint64_t state = seed * 1000 + (uint64_t)at;
	sqlite3 *db;
	int i;

	if (sqlite3_open(":memory:", &db))
		exit(3);
	for (i = 0;; i++) {
		if (!spinning) {
			usleep(1000);
			continue;
		}
		if (query(db, "select 5 + 1") != 6 || operation(i % 4) != i % 4)
			faults++;
		done++;
		if (!draw(&state, 50))
			usleep(draw(&state, 200));
	}
	return 0;
}

static int ended(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

/* On its parent's memory: it changes none of it. */
static pid_t starts_by_vfork(const struct timespec *wait, int executes)
{
	char *words[] = { "true", 0 };
	pid_t child = vfork();

	if (child)
		return child;
	if (operation(1) != 1)
		_exit(9);
	nanosleep(wait, 0);
	if (executes)
		execve("/bin/true", words, environ);
	_exit(0);
}

static void *starts(void *at)
{
	uint64_t state = seed * 1000 + 500 + (uint64_t)at;
	struct timespec wait = { 0, 0 };
	pid_t child;

	for (;;) {
		if (!spinning) {
			usleep(1000);
			continue;
		}
		if (draw(&state, 2)) {
			child = fork();
			/* No statement: another thread may have held a lock of SQLite's. */
			if (!child)
				_exit(operation(3) == 3 ? 0 : 9);
		} else {
			uint64_t us = draw(&state, most_us + 1);

			wait = (struct timespec){ us / 1000000, us % 1000000 * 1000 };
			child = starts_by_vfork(&wait, draw(&state, 2));
		}
		if (child < 0 || ended(child))
			faults++;
		children++;
		usleep(draw(&state, 5000));
	}
	return 0;
}

int main(int count, char **words)
{
	struct itimerval every = { { 0, 3000 }, { 0, 3000 } };
	struct sigaction action = { 0 };
	pthread_t thread;
	char line[32];
	long i;

	if (count < 5)
		return 2;
	seed = strtoull(words[1], 0, 0);
	most_us = atol(words[4]);
	action.sa_handler = on_signal;
	action.sa_flags = SA_RESTART;
	sigaction(SIGALRM, &action, 0);
	for (i = 0; i < atoi(words[2]); i++)
		pthread_create(&thread, 0, work, (void *)i);
	for (i = 0; i < atoi(words[3]); i++)
		pthread_create(&thread, 0, starts, (void *)i);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		spinning = !strcmp(line, "spin\n");
		if (!spinning)
			every = (struct itimerval){ { 0, 0 }, { 0, 0 } };
		setitimer(ITIMER_REAL, &every, 0);
		printf("done\n");
		fflush(stdout);
	}
	printf("%s %ld, %ld queries, %ld children\n", faults ? "faults" : "whole", (long)faults, (long)done, (long)children);
	fflush(stdout);
	_exit(0);
}
