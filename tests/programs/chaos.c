// Children that load SQLite, run statements, unload it, fork, start programs and threads, get signals and end, all at random; the choices
// depend on the seed alone, and so does the output: a hash of how the children ended, and with CHAOS_SAYS in the environment each one's
// status.
//
//   chaos SEED ROUNDS [LIBRARY...]
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_context sqlite3_context;

struct library {
	void *handle;
	int (*open)(const char *, sqlite3 **, int, const char *);
	int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
	int (*close)(sqlite3 *);
	int (*function)(sqlite3 *, const char *, int, int, void *, void (*)(sqlite3_context *, int, void **), void *, void *);
	void (*result)(sqlite3_context *, int);
};

static const char **libraries;
static int library_count;
static uint64_t state;
static sigjmp_buf back;
static volatile sig_atomic_t signals, leap;
static const char *own;

static uint64_t draw(uint64_t below)
{
	uint64_t x = state += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (x ^ x >> 31) % below;
}

// Named by --op; also called by signal handlers.
__attribute__((noinline)) int operation(int depth)
{
	int result = depth ? operation(depth - 1) + 1 : 0;

	__asm__ volatile("" : "+r"(result));
	return result;
}

static void on_signal(int signal)
{
	(void)signal;
	signals++;
	operation(2);
}

static void on_leap(int signal)
{
	(void)signal;
	siglongjmp(back, 1);
}

static void jump(sqlite3_context *context, int count, void **values)
{
	(void)context, (void)count, (void)values;
	raise(SIGUSR1);
}

static void split(sqlite3_context *context, int count, void **values)
{
	int status;
	pid_t child = fork();

	(void)context, (void)count, (void)values;
	if (!child)
		_exit(operation(1));
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
}

static int load(struct library *l)
{
	static const int flags[] = { RTLD_NOW, RTLD_LAZY, RTLD_NOW | RTLD_DEEPBIND, RTLD_NOW | RTLD_GLOBAL };
	const char *name = libraries[draw(library_count)];

	l->handle = dlopen(name, flags[draw(4)]);
	if (!l->handle)
		return 0;
	*(void **)&l->open = dlsym(l->handle, "sqlite3_open_v2");
	*(void **)&l->exec = dlsym(l->handle, "sqlite3_exec");
	*(void **)&l->close = dlsym(l->handle, "sqlite3_close");
	*(void **)&l->function = dlsym(l->handle, "sqlite3_create_function");
	*(void **)&l->result = dlsym(l->handle, "sqlite3_result_int");
	return l->open && l->exec && l->close && l->function;
}

// READWRITE | CREATE | NOMUTEX
static sqlite3 *memory(struct library *l)
{
	sqlite3 *db = 0;

	if (l->open(":memory:", &db, 0x2 | 0x4 | 0x8000, 0))
		return 0;
	l->function(db, "jump", 0, 1, 0, jump, 0, 0);
	l->function(db, "split", 0, 1, 0, split, 0, 0);
	l->exec(db, "create table t(a)", 0, 0, 0);
	return db;
}

static void work(struct library *l, int count)
{
	sqlite3 *db = memory(l);

	if (!db)
		return;
	for (int i = 0; i < count; i++)
		l->exec(db, i % 3 ? "insert into t values (5), (6)" : "select count(*), max(a) from t", 0, 0, 0);
	operation(1);
	l->close(db);
}

struct job {
	struct library *library;
	int count;
	int on;
};

static void *runs(void *at)
{
	struct job *job = at;

	do {
		work(job->library, job->count);
	} while (job->on);
	return 0;
}

// Leaves a step in the middle, for good, with its connection.
static void leaves_step(struct library *l)
{
	sqlite3 *db = memory(l);

	if (db && !sigsetjmp(back, 1))
		l->exec(db, "select jump()", 0, 0, 0);
}

static int finished(pid_t child)
{
	int status = -1;

	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	return status;
}

static void starts(int by_vfork)
{
	char *words[] = { "true", 0 }, *none[] = { 0 };
	pid_t child = by_vfork ? vfork() : fork();

	if (!child) {
		execve("/bin/true", words, draw(2) ? environ : none);
		_exit(3);
	}
	finished(child);
}

static void ends(int way)
{
	char *words[] = { (char *)own, "end", 0 };
	struct itimerval never = { 0 };

	// Otherwise the timer would continue in the executed program.
	setitimer(ITIMER_REAL, &never, 0);
	switch (way) {
	case 0:
		exit(1);
	case 1:
		_exit(2);
	case 2:
		abort();
	case 3:
		raise(SIGKILL);
	case 4:
		*(volatile int *)8 = 1;
	case 5:
		execv(own, words);
	case 6:
		raise(SIGTERM);
	}
	_exit(9);
}

static void child(void)
{
	struct library one = { 0 }, two = { 0 };
	struct itimerval every = { { 0, 300 + draw(2000) }, { 0, 500 } };
	struct job jobs[3];
	pthread_t threads[3];
	int left = 0;

	signal(SIGALRM, on_signal);
	signal(SIGUSR1, on_leap);
	if (draw(2))
		setitimer(ITIMER_REAL, &every, 0);
	for (int n = 1 + draw(6); n; n--) {
		struct library *l = draw(2) ? &one : &two;

		if (!l->handle && !load(l))
			_exit(8);
		switch (draw(9)) {
		case 0:
			if (!left) {
				dlclose(l->handle);
				l->handle = 0;
			}
			break;
		case 1:
			for (int i = 0; i < 3; i++) {
				jobs[i] = (struct job){ l, 1 + (int)draw(20), 0 };
				pthread_create(&threads[i], 0, runs, &jobs[i]);
			}
			for (int i = 0; i < 3; i++)
				pthread_join(threads[i], 0);
			break;
		case 2:
			// The thread keeps running while the process ends, or forks.
			if (!left++) {
				jobs[0] = (struct job){ l, 3, 1 };
				pthread_create(&threads[0], 0, runs, &jobs[0]);
			}
			break;
		case 3:
			leaves_step(l);
			break;
		case 4:
			if (!left) {
				pid_t inner = fork();

				if (!inner) {
					work(l, draw(10));
					ends(draw(7));
				}
				finished(inner);
			}
			break;
		case 5:
			starts(draw(2));
			break;
		case 6: {
			sqlite3 *db = memory(l);

			if (db && !left)
				l->exec(db, "select split()", 0, 0, 0);
			break;
		}
		default:
			work(l, draw(30));
		}
	}
	ends(draw(7));
}

int main(int count, char **words)
{
	static const char *known[] = { "libsqlite3.so.0" };
	uint64_t seed, sum = 0;
	int rounds;

	if (count < 3)
		return 4;
	seed = strtoull(words[1], 0, 0);
	rounds = atoi(words[2]);
	own = "/proc/self/exe";
	libraries = count > 3 ? (const char **)words + 3 : known;
	library_count = count > 3 ? count - 3 : 1;
	// Line-buffered, so that children do not write the parent's buffer again.
	setvbuf(stdout, 0, _IOLBF, 4096);
	setrlimit(RLIMIT_CORE, &(struct rlimit){ 0, 0 });
	for (int i = 0; i < rounds; i++) {
		pid_t one = fork();
		int status;

		if (!one) {
			state = seed * 1000003 + i;
			child();
		}
		status = finished(one);
		sum = sum * 31 + status;
		if (getenv("CHAOS_SAYS"))
			printf("%d: %x\n", i, status);
	}
	printf("%d rounds: %016llx\n", rounds, (unsigned long long)sum);
	return 0;
}
