// Forks children that run a few statements each and end in a way drawn at random: by themselves, by a signal, killed, as another program,
// with running threads. Prints how many statements they must have run in total; the random choices depend on the seed alone.
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LEAVE, EXIT, ABORT, KILL, FAULT, EXEC, SPLIT, JUMP, KILLED, VFORK, THREAD, WAYS };

static sigjmp_buf back;
static uint64_t state;

static uint64_t draw(uint64_t below)
{
	uint64_t x = state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31) % below;
}

static void leave(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

// Called within a step.
static void jump(sqlite3_context *context, int count, sqlite3_value **values)
{
	(void)context, (void)count, (void)values;
	raise(SIGUSR1);
}

static void run(sqlite3 *db, const char *sql)
{
	if (sqlite3_exec(db, sql, 0, 0, 0))
		printf("failed: %s: %s\n", sql, sqlite3_errmsg(db));
}

static sqlite3 *memory(void)
{
	sqlite3 *db;

	// A forked child could not release the locks that its parent's threads hold.
	sqlite3_open_v2(":memory:", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, 0);
	sqlite3_create_function(db, "jump", 0, SQLITE_UTF8, 0, jump, 0, 0);
	run(db, "create table t(a)");
	return db;
}

// Runs the statements that are counted.
static void insert(sqlite3 *db, int count)
{
	for (int i = 0; i < count; i++)
		run(db, "insert into t values (5)");
}

static void *runs_on(void *unused)
{
	for (sqlite3 *db = memory();; run(db, "update t set a = 1"))
		;
	return unused;
}

static int finished(pid_t child)
{
	int status;

	waitpid(child, &status, 0);
	return status;
}

static void end(const char *self, int way, int count)
{
	char *again[] = { (char *)self, "again", 0 };
	sqlite3 *db = memory();
	pthread_t thread;
	pid_t child;

	insert(db, count);
	switch (way) {
	case EXIT:
		exit(3);
	case ABORT:
		abort();
	case KILL:
		kill(getpid(), SIGKILL);
		break;
	case FAULT:
		raise(SIGSEGV);
		break;
	case EXEC:
		execv("/proc/self/exe", again);
		break;
	case SPLIT:
		child = fork();
		insert(db, count);
		if (!child)
			kill(getpid(), SIGKILL);
		finished(child);
		break;
	case JUMP:
		signal(SIGUSR1, leave);
		if (!sigsetjmp(back, 1))
			run(db, "select jump()");
		insert(memory(), count);
		break;
	case KILLED:
		runs_on(0);
		break;
	case VFORK:
		child = vfork();
		if (!child) {
			execv("/proc/self/exe", again);
			_exit(9);
		}
		finished(child);
		insert(db, count);
		break;
	case THREAD:
		pthread_create(&thread, 0, runs_on, 0);
		insert(db, count);
		exit(3);
	}
	_exit(3);
}

int main(int words, char **word)
{
	struct rlimit none = { 0, 0 };
	long counted = 0, again = 0, odd = 0;

	if (words == 2) {
		run(memory(), "insert into t values (5), (6)");
		return 0;
	}
	setrlimit(RLIMIT_CORE, &none);
	state = strtoull(word[1], 0, 10);
	for (long round = strtol(word[2], 0, 10); round > 0; round--) {
		int way = draw(WAYS), count = draw(6), pause = draw(3000), status;
		int twice = way == JUMP || way == VFORK || way == THREAD;
		pid_t child;

		// How many it runs before it is killed is unknown.
		if (way == KILLED)
			count = 0;
		child = fork();
		if (!child)
			end(word[0], way, count);
		if (way == KILLED) {
			usleep(pause);
			kill(child, SIGKILL);
		}
		status = finished(child);
		counted += count * (way == SPLIT ? 3 : 1 + twice);
		again += way == EXEC || way == VFORK;
		if (way == KILL || way == KILLED)
			odd += status != SIGKILL;
		else if (way == ABORT || way == FAULT)
			odd += status != (way == ABORT ? SIGABRT : SIGSEGV);
		else
			odd += status != (way == EXEC ? 0 : 3 << 8);
	}
	printf("counted %ld again %ld odd %ld\n", counted, again, odd);
	return 0;
}
