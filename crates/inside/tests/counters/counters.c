/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Reads the counters of a real SQLite's statements as the object does (counters.h), beside what SQLite's functions return, and prints how
 * often each was known and equal. Prints nothing if there is no SQLite.
 */
#include "inside.c"

int printf(const char *format, ...);
void *dlopen(const char *file, int mode);
void *dlsym(void *library, const char *name);
int pthread_create(u64 *thread, const void *attributes, void *(*start)(void *), void *argument);
int pthread_join(u64 thread, void **result);

#define RTLD_NOW 2

static s32 (*sql_open)(const char *, void **);
static s32 (*sql_prepare)(void *, const char *, s32, void **, const char **);
static s32 (*sql_step)(void *), (*sql_reset)(void *), (*sql_finalize)(void *);
static s32 (*sql_exec)(void *, const char *, void *, void *, void *);
static const char *(*sql_text)(void *);
static void (*sql_enter)(void *), (*sql_leave)(void *);
static struct counters counters;
static void *db;

static int is_connected(void *sqlite)
{
#define FUNCTION(to, name)                              \
	*(void **)&to = dlsym(sqlite, "sqlite3_" name); \
	if (!to)                                                \
		return 0;
	FUNCTION(sql_open, "open")
	FUNCTION(sql_prepare, "prepare_v2")
	FUNCTION(sql_step, "step")
	FUNCTION(sql_reset, "reset")
	FUNCTION(sql_finalize, "finalize")
	FUNCTION(sql_exec, "exec")
	FUNCTION(sql_text, "sql")
	FUNCTION(sql_enter, "mutex_enter")
	FUNCTION(sql_leave, "mutex_leave")
	FUNCTION(counters.stmt_status, "stmt_status")
	FUNCTION(counters.db_handle, "db_handle")
	FUNCTION(counters.db_status, "db_status")
	FUNCTION(counters.db_mutex, "db_mutex")
	FUNCTION(counters.mutex_try, "mutex_try")
	FUNCTION(counters.mutex_leave, "mutex_leave")
	counters.counted = COUNTS - CACHE_COUNTS;
	return 1;
}

/* Where a statement has the pointer to its text; the recorder reads it from sqlite3_sql's code. */
static u32 text_place(void *stmt)
{
	u64 text = (u64)sql_text(stmt);
	u32 at = 0;

	while (at < 1024 && word_at((u64)stmt, at) != text)
		at += 8;
	return at;
}

static u32 known_stmt, known_cache, equal, different;

static void compare(void *stmt)
{
	static const s32 operations[CACHE_COUNTS] = { STATUS_CACHE_HIT, STATUS_CACHE_MISS, STATUS_CACHE_WRITE, STATUS_CACHE_SPILL };
	struct counts ours;
	u32 i;

	read_counts(&counters, (u64)stmt, &ours);
	known_stmt += (ours.known & 63) == 63;
	known_cache += ours.known >> 6 == 15;
	for (i = 0; i < COUNTS; i++) {
		s32 truth = 0, most = 0;

		if (!(ours.known >> i & 1))
			continue;
		if (i < COUNTS - CACHE_COUNTS)
			truth = counters.stmt_status(stmt, (s32)i + 1, 0);
		else
			counters.db_status(db, operations[i - (COUNTS - CACHE_COUNTS)], &truth, &most, 0);
		*(ours.of[i] == (u32)truth ? &equal : &different) += 1;
	}
}

static void report(const char *name, u32 executions)
{
	printf("%s executions=%u stmt=%u cache=%u equal=%u different=%u stmt_at=%u cache_at=%u\n", name, executions, known_stmt, known_cache,
	       equal, different, counters.stmt.at, counters.cache.at);
	known_stmt = known_cache = equal = different = 0;
}

static void execute(const char *sql, u32 executions)
{
	void *stmt = 0;
	u32 i;

	if (sql_prepare(db, sql, -1, &stmt, 0))
		return;
	for (i = 0; i < executions; i++) {
		while (sql_step(stmt) == SQLITE_ROW)
			;
		compare(stmt);
		sql_reset(stmt);
	}
	sql_finalize(stmt);
}

static void *hold(void *argument)
{
	volatile u32 *state = argument;
	void *mutex = counters.db_mutex(db);

	sql_enter(mutex);
	*state = 1;
	while (*state == 1)
		relax();
	sql_leave(mutex);
	return 0;
}

int main(int count, char **arguments)
{
	static const char *const kinds[] = { "SELECT a FROM t WHERE rowid = 5", "SELECT count(*) FROM t WHERE a = 3",
					     "SELECT a FROM t ORDER BY a", "UPDATE t SET a = a + 1" };
	void *sqlite = dlopen("libsqlite3.so.0", RTLD_NOW);
	volatile u32 state = 0;
	struct counts ours;
	void *stmt = 0;
	u64 thread;
	u32 i;

	if (count < 2 || !sqlite || !is_connected(sqlite) || sql_open(arguments[1], &db))
		return 0;
	sql_exec(db, "CREATE TABLE t (a); WITH n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 3000) INSERT INTO t SELECT i FROM n", 0,
		 0, 0);
	/* While another thread is in SQLite, nothing is asked that would wait for it. */
	sql_prepare(db, kinds[0], -1, &stmt, 0);
	counters.text_at = text_place(stmt);
	pthread_create(&thread, 0, hold, (void *)&state);
	while (!state)
		relax();
	read_counts(&counters, (u64)stmt, &ours);
	state = 2;
	pthread_join(thread, 0);
	printf("held known=%u\n", ours.known);
	sql_finalize(stmt);
	for (i = 0; i < 4; i++)
		execute(kinds[i], 20);
	report("own", 80);
	sql_exec(db, "CREATE TEMP TABLE x (a); INSERT INTO x VALUES (1)", 0, 0, 0);
	execute("SELECT * FROM x, t", 5);
	report("temporary", 5);
	sql_exec(db, "ATTACH ':memory:' AS other", 0, 0, 0);
	execute(kinds[0], 5);
	report("attached", 5);
	sql_exec(db, "DETACH other; PRAGMA cache_size = 10; BEGIN", 0, 0, 0);
	execute(kinds[3], 5);
	report("detached", 5);
	return 0;
}
