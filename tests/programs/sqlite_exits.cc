// Leaves SQLite in every way that a program can: signals, longjmp, exceptions, fork, vfork, posix_spawn, exec, cancellation, and an exit
// while a thread runs statements. The number of statements of each kind is known; the output is always the same.
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <spawn.h>
#include <sqlite3.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static jmp_buf back;
static volatile sig_atomic_t signals;

static void jump(sqlite3_context *, int, sqlite3_value **) { longjmp(back, 1); }
static void toss(sqlite3_context *, int, sqlite3_value **) { throw 5; }
static void split(sqlite3_context *context, int, sqlite3_value **)
{
	int status;
	pid_t child = fork();

	if (child) {
		waitpid(child, &status, 0);
		sqlite3_result_int(context, WEXITSTATUS(status));
	} else {
		sqlite3_result_int(context, 1);
	}
}
static void die(sqlite3_context *, int, sqlite3_value **)
{
	pthread_cancel(pthread_self());
	pthread_testcancel();
}

static void run(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr))
		printf("failed: %s: %s\n", sql, sqlite3_errmsg(db));
}

static sqlite3 *memory()
{
	sqlite3 *db;

	// A forked child could not release the locks that its parent holds.
	sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, nullptr);
	sqlite3_create_function(db, "jump", 0, SQLITE_UTF8, nullptr, jump, nullptr, nullptr);
	sqlite3_create_function(db, "toss", 0, SQLITE_UTF8, nullptr, toss, nullptr, nullptr);
	sqlite3_create_function(db, "split", 0, SQLITE_UTF8, nullptr, split, nullptr, nullptr);
	sqlite3_create_function(db, "die", 0, SQLITE_UTF8, nullptr, die, nullptr, nullptr);
	run(db, "create table t(a)");
	run(db, "insert into t values (1)");
	return db;
}

static int first_number(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *statement;

	sqlite3_prepare_v2(db, sql, -1, &statement, nullptr);
	sqlite3_step(statement);
	int number = sqlite3_column_int(statement, 0);
	sqlite3_finalize(statement);
	return number;
}

static void *is_cancelled(void *)
{
	first_number(memory(), "select die()");
	return nullptr;
}

static void *runs_on(void *)
{
	for (sqlite3 *db = memory();;)
		first_number(db, "select count(*) + 1 from t");
}

static void *inserts(void *)
{
	sqlite3 *db = memory();

	for (int i = 0; i < 20; i++)
		run(db, "insert into t values (3) returning a");
	sqlite3_close(db);
	return nullptr;
}

static void wait_for(pid_t child, const char *what)
{
	int status;

	waitpid(child, &status, 0);
	if (status)
		printf("%s: %x\n", what, status);
}

int main(int count, char **words)
{
	sqlite3 *db = memory();
	struct sigaction action = {};
	struct itimerval often = {{0, 300}, {0, 300}}, never = {};
	pthread_t threads[40];
	pid_t child, self = getpid();

	if (count > 1 && !strcmp(words[1], "wait")) {
		// It is recorded from then on.
		printf("ready\n");
		fflush(stdout);
		while (getchar() > '\n')
			;
	} else if (count > 1) {
		run(db, "insert into t values (9), (9)");
		return 0;
	}
	action.sa_handler = [](int) { signals = signals + 1; };
	sigaction(SIGALRM, &action, nullptr);
	setitimer(ITIMER_REAL, &often, nullptr);
	for (int i = 0; i < 3000; i++)
		run(db, "update t set a = a");
	// A fast machine is done with these before many signals come.
	while (signals < 10)
		run(db, "delete from t where a < 0");
	setitimer(ITIMER_REAL, &never, nullptr);

	for (int i = 0; i < 12; i++) {
		if (!setjmp(back))
			first_number(memory(), "select jump()");
	}
	for (int i = 0; i < 5; i++) {
		try {
			first_number(memory(), "select toss()");
		} catch (int number) {
			printf("caught %d\n", number);
		}
	}
	printf("after both %d\n", first_number(db, "select count(*) from t where a > 0"));

	int number = first_number(db, "select split()");
	if (getpid() != self) {
		first_number(db, "select a, a from t");
		_exit(number);
	}
	printf("forked within a step: %d\n", number);
	for (int i = 0; i < 20; i++) {
		child = fork();
		if (!child) {
			run(memory(), "insert into t values (5), (6), (7)");
			_exit(0);
		}
		wait_for(child, "fork");
	}
	for (int i = 0; i < 5; i++) {
		child = vfork();
		if (!child) {
			execl("/proc/self/exe", words[0], "again", (char *)nullptr);
			_exit(9);
		}
		wait_for(child, "vfork");
		char *again[] = {words[0], (char *)"again", nullptr};
		posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, again, environ);
		wait_for(child, "posix_spawn");
	}
	for (int i = 0; i < 5; i++) {
		void *result;

		pthread_create(&threads[0], nullptr, is_cancelled, nullptr);
		pthread_join(threads[0], &result);
		if (result != PTHREAD_CANCELED)
			puts("not cancelled");
	}
	for (pthread_t &thread : threads)
		pthread_create(&thread, nullptr, inserts, nullptr);
	for (pthread_t &thread : threads)
		pthread_join(thread, nullptr);
	pthread_create(&threads[0], nullptr, runs_on, nullptr);
	usleep(2000);
	fflush(stdout);
	exit(7);
}
