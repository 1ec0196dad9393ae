/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* Runs statements in several threads, through the system's SQLite; without headers, which are in another architecture's package. */
typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
int sqlite3_open(const char *, sqlite3 **);
int sqlite3_prepare_v2(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
int sqlite3_step(sqlite3_stmt *);
int sqlite3_reset(sqlite3_stmt *);
int sqlite3_finalize(sqlite3_stmt *);
int pthread_create(unsigned long *, const void *, void *(*)(void *), void *);
int pthread_join(unsigned long, void **);
int puts(const char *);
char *getenv(const char *);
int __libc_start_main(int (*)(void), int, char **, void (*)(void), void (*)(void), void (*)(void), void *);

static void all(sqlite3 *db, const char *sql, int times, int *rows)
{
	sqlite3_stmt *stmt = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, 0))
		return;
	while (times--) {
		while (sqlite3_step(stmt) == 100)
			++*rows;
		sqlite3_reset(stmt);
	}
	sqlite3_finalize(stmt);
}

static void *thread(void *rows)
{
	sqlite3 *db;

	sqlite3_open(":memory:", &db);
	all(db, "create table t (a integer primary key, b text)", 1, rows);
	all(db, "insert into t (b) values ('x')", 100, rows);
	all(db, "select a from t", 3, rows);
	all(db, "insert into t (a) values (1)", 1, rows);
	/* Nothing to finalise. */
	sqlite3_finalize(0);
	return 0;
}

static int run(void)
{
	unsigned long threads[3];
	int rows[4] = { 0 }, i;

	for (i = 0; i < 3; i++)
		pthread_create(&threads[i], 0, thread, &rows[i]);
	thread(&rows[3]);
	for (i = 0; i < 3; i++)
		pthread_join(threads[i], 0);
	for (i = 0; i < 4; i++) {
		if (rows[i] != 300)
			return 1;
	}
	puts("done");
	return 0;
}

__attribute__((used)) void begin(char **stack)
{
	__libc_start_main(run, (int)(long)stack[0], stack + 1, 0, 0, 0, stack);
}

__asm__(".globl _start\n_start:\n	mov x29, #0\n	mov x0, sp\n	bl begin\n");
