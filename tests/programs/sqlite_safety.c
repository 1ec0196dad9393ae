// What a program may do while its SQLite is probed: forbid itself system calls (through prctl, or with BY_SYSCALL through syscall),
// load SQLite so that it binds its own symbols first, unload it and load it again. Prints "safe" if all statements succeeded.
//
//   sqlite_safety filter | deepbind | reload
#define _GNU_SOURCE
#include <dlfcn.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef LINKED
#include <sqlite3.h>
#endif

typedef int (*open_function)(const char *, void **);
typedef int (*exec_function)(void *, const char *, int (*)(void *, int, char **, char **), void *, char **);
typedef int (*close_function)(void *);

static open_function open_db;
static exec_function exec_sql;
static close_function close_db;

static void *load(int flags)
{
#ifdef LINKED
	(void)flags;
	open_db = (open_function)sqlite3_open;
	exec_sql = (exec_function)sqlite3_exec;
	close_db = (close_function)sqlite3_close;
	return (void *)1;
#else
	void *library = dlopen("libsqlite3.so.0", RTLD_NOW | flags);

	if (!library)
		return 0;
	open_db = (open_function)dlsym(library, "sqlite3_open");
	exec_sql = (exec_function)dlsym(library, "sqlite3_exec");
	close_db = (close_function)dlsym(library, "sqlite3_close");
	return library;
#endif
}

static int run(void *db, const char *sql, int count)
{
	int failed = 0;

	while (count-- > 0)
		failed |= exec_sql(db, sql, 0, 0, 0);
	return failed;
}

// Forbids all system calls but those that a test in its steady state makes, which prints and exits.
static int forbid(void)
{
	static const int allowed[] = { SYS_write, SYS_exit, SYS_exit_group, SYS_futex, SYS_brk, SYS_mmap, SYS_munmap,
				       SYS_newfstatat, SYS_fstat, SYS_rt_sigprocmask, SYS_clock_gettime, SYS_lseek };
	struct sock_filter filter[64] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)) };
	struct sock_fprog program = { 1, filter };

	for (size_t i = 0; i < sizeof(allowed) / sizeof(allowed[0]); i++) {
		filter[program.len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	filter[program.len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		return 1;
	return getenv("BY_SYSCALL") ? syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) != 0 :
				      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0;
}

static int filtered(void)
{
	int failed = 0;
	void *db;

	failed |= !load(0) || open_db(":memory:", &db) || run(db, "create table t(a)", 1);
	failed |= forbid();
	// More records than the ring's initially populated memory holds.
	failed |= run(db, "insert into t values (1)", 20000);
	return failed;
}

static int reloaded(int flags)
{
	int failed = 0;

	for (int i = 0; i < 150; i++) {
		void *library = load(flags), *db;

		if (!library || open_db(":memory:", &db))
			return 1;
		failed |= run(db, "select 1", 5);
		close_db(db);
#ifndef LINKED
		failed |= dlclose(library);
#endif
		// Memory that takes its place is not SQLite's.
		free(malloc(1 << 21));
	}
	return failed;
}

int main(int count, char **words)
{
	const char *what = count > 1 ? words[1] : "";
	int failed = 1;

	if (!strcmp(what, "filter"))
		failed = filtered();
	else if (!strcmp(what, "deepbind"))
		failed = reloaded(RTLD_DEEPBIND);
	else if (!strcmp(what, "reload"))
		failed = reloaded(0);
	puts(failed ? "failed" : "safe");
	fflush(stdout);
	return failed;
}
