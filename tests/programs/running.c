/*
 * A process to attach to while it runs: threads that execute statements, threads that wait in system calls, threads that come and go.
 *
 *   running WORKERS ROUNDS WAITERS CHURNERS
 *
 * Prints `ready`; on a line `go`, each worker executes ROUNDS rounds and `done` is printed with a checksum; on `spin` they run until a line
 * `halt`; at the end it prints `whole` if each database has what was inserted, otherwise `faults`, and how many waits were interrupted.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

static int workers, waiters, churners;
static long rounds;
static atomic_int spinning;
static atomic_long interrupted, faults, checksum;
static pthread_barrier_t start, end;

static sqlite3 *open_database(void)
{
	sqlite3 *db;

	if (sqlite3_open(":memory:", &db) || sqlite3_exec(db, "create table t(a integer, b)", 0, 0, 0))
		exit(3);
	return db;
}

static void check(sqlite3 *db, long inserted, long sum)
{
	sqlite3_stmt *all;

	sqlite3_prepare_v2(db, "select count(*), coalesce(sum(a), 0) from t", -1, &all, 0);
	if (sqlite3_step(all) != SQLITE_ROW || sqlite3_column_int64(all, 0) != inserted || sqlite3_column_int64(all, 1) != sum)
		faults++;
	sqlite3_finalize(all);
}

static _Noreturn void *work(void *unused)
{
	long inserted = 0, sum = 0, i, rows;
	sqlite3_stmt *insert, *select;
	sqlite3 *db = open_database();
	double in_register = 1;
	volatile double in_memory = 1;

	(void)unused;
	sqlite3_prepare_v2(db, "insert into t values (?, ?)", -1, &insert, 0);
	sqlite3_prepare_v2(db, "select a from t limit 10", -1, &select, 0);
	pthread_barrier_wait(&end);
	for (;;) {
		pthread_barrier_wait(&start);
		sqlite3_exec(db, "delete from t", 0, 0, 0);
		inserted = sum = 0;
		for (i = 0; spinning || i < rounds; i++) {
			sqlite3_bind_int64(insert, 1, i);
			if (sqlite3_step(insert) != SQLITE_DONE)
				faults++;
			sqlite3_reset(insert);
			inserted++;
			sum += i;
			for (rows = 0; sqlite3_step(select) == SQLITE_ROW && ++rows < i % 7 + 1;)
				;
			sqlite3_reset(select);
			/* Nothing may change a register that a system call preserves. */
			in_register = in_register / 3 + i;
			in_memory = in_memory / 3 + i;
			if (in_register != in_memory)
				faults++;
			if (inserted % 20000 == 0) {
				check(db, inserted, sum);
				sqlite3_exec(db, "delete from t", 0, 0, 0);
				inserted = sum = 0;
			}
		}
		check(db, inserted, sum);
		checksum += sum;
		pthread_barrier_wait(&end);
	}
}

/* Waits for as long as the program runs; it uses no signals, so that nothing should interrupt it. */
static _Noreturn void *waits(void *at)
{
	struct epoll_event event;
	int epoll = epoll_create1(0);
	struct timespec while_ = { 0, 30000000 };
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	for (;;) {
		int result = 0;

		switch ((long)at % 4) {
		case 0:
			result = epoll_wait(epoll, &event, 1, 30);
			break;
		case 1:
			result = sigtimedwait(&set, 0, &while_) < 0 && errno == EAGAIN ? 0 : -1;
			break;
		case 2:
			result = poll(0, 0, 30);
			break;
		case 3:
			result = nanosleep(&while_, 0);
		}
		if (result)
			interrupted++;
	}
}

static void *once(void *unused)
{
	sqlite3 *db = open_database();

	sqlite3_exec(db, "insert into t values (5, 6)", 0, 0, 0);
	check(db, 1, 5);
	sqlite3_close(db);
	return unused;
}

static _Noreturn void *churns(void *unused)
{
	(void)unused;
	for (;;) {
		pthread_t thread;

		if (pthread_create(&thread, 0, once, 0))
			exit(4);
		pthread_join(thread, 0);
	}
}

int main(int count, char **words)
{
	char line[32];
	sigset_t set;
	pthread_t thread;
	long i;

	if (count < 5)
		return 2;
	workers = atoi(words[1]), rounds = atol(words[2]), waiters = atoi(words[3]), churners = atoi(words[4]);
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, 0);
	pthread_barrier_init(&start, 0, workers + 1);
	pthread_barrier_init(&end, 0, workers + 1);
	for (i = 0; i < workers; i++)
		pthread_create(&thread, 0, work, 0);
	for (i = 0; i < waiters; i++)
		pthread_create(&thread, 0, waits, (void *)i);
	for (i = 0; i < churners; i++)
		pthread_create(&thread, 0, churns, 0);
	pthread_barrier_wait(&end);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		checksum = 0;
		spinning = !strcmp(line, "spin\n");
		pthread_barrier_wait(&start);
		while (spinning) {
			if (!fgets(line, sizeof(line), stdin) || !strcmp(line, "halt\n"))
				spinning = 0;
		}
		pthread_barrier_wait(&end);
		printf("done %ld\n", (long)checksum);
		fflush(stdout);
	}
	printf("%s, %ld interrupted\n", faults ? "faults" : "whole", (long)interrupted);
	fflush(stdout);
	return 0;
}
