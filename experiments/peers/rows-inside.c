/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Statements that need no disk: MODE SECONDS. What recording adds to each is the processor's time, so that is measured, in pieces of about a
 * millisecond of which the lower quartile is printed: other load on the machine disturbs it less than a rate. rows-inside.py runs it.
 *
 *   scan     rows of one integer, about 60 ns each
 *   columns  rows of five columns, about 200 ns
 *   point    SELECTs by rowid, within a transaction
 *   insert   INSERTs into a table in memory, within a transaction
 *   prepare  SELECTs by rowid that are prepared anew each time
 */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ROWS 10000
#define PIECES 1000000

static sqlite3 *db;
static double took[PIECES];
static long long sum;
static unsigned seed = 1;

static double now_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, db ? sqlite3_errmsg(db) : "no database");
	exit(1);
}

static void execute(const char *sql)
{
	if (sqlite3_exec(db, sql, 0, 0, 0))
		fail(sql);
}

static sqlite3_stmt *prepare(const char *sql)
{
	sqlite3_stmt *stmt;

	if (sqlite3_prepare_v2(db, sql, -1, &stmt, 0))
		fail(sql);
	return stmt;
}

static long scan(sqlite3_stmt *stmt, int columns)
{
	long rows = 0;
	int i;

	for (; sqlite3_step(stmt) == SQLITE_ROW; rows++) {
		for (i = 0; i < columns; i++)
			sum += sqlite3_column_int64(stmt, i);
	}
	sqlite3_reset(stmt);
	return rows;
}

static long point(sqlite3_stmt *stmt)
{
	long i;

	for (i = 0; i < 1000; i++) {
		seed = seed * 1664525 + 1013904223;
		sqlite3_bind_int64(stmt, 1, 1 + (seed >> 8) % ROWS);
		scan(stmt, 1);
	}
	return i;
}

static long insert(sqlite3_stmt *stmt)
{
	long i;

	for (i = 0; i < 1000; i++) {
		sqlite3_bind_int64(stmt, 1, i);
		sqlite3_bind_text(stmt, 2, "abcdefgh", 8, SQLITE_STATIC);
		if (sqlite3_step(stmt) != SQLITE_DONE)
			fail("INSERT");
		sqlite3_reset(stmt);
	}
	return i;
}

static long prepared(void)
{
	long i;

	for (i = 0; i < 200; i++) {
		sqlite3_stmt *stmt = prepare("SELECT v FROM t WHERE id = 77");

		scan(stmt, 1);
		sqlite3_finalize(stmt);
	}
	return i;
}

static int order(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

int main(int count, char **arguments)
{
	const char *mode = count > 2 ? arguments[1] : "";
	double end, begin;
	sqlite3_stmt *stmt = 0;
	long pieces = 0, units;

	if (sqlite3_open(":memory:", &db))
		fail("open");
	execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER, s TEXT); CREATE TABLE u (a, b); BEGIN");
	execute("WITH c (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 10000) "
		"INSERT INTO t (v, s) SELECT i * 7, 'abcdefghijklmnop' FROM c");
	if (!strcmp(mode, "scan"))
		stmt = prepare("SELECT v FROM t");
	else if (!strcmp(mode, "columns"))
		stmt = prepare("SELECT id, v, s, v + 1, length(s) FROM t");
	else if (!strcmp(mode, "point"))
		stmt = prepare("SELECT v FROM t WHERE id = ?");
	else if (!strcmp(mode, "insert"))
		stmt = prepare("INSERT INTO u VALUES (?, ?)");
	else if (strcmp(mode, "prepare"))
		fail("usage: MODE SECONDS");
	for (end = now_ns(CLOCK_MONOTONIC) + atof(arguments[2]) * 1e9; now_ns(CLOCK_MONOTONIC) < end && pieces < PIECES; pieces++) {
		if (*mode == 'i' && pieces % 50 == 49)
			execute("DELETE FROM u");
		begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
		units = *mode == 'i' ? insert(stmt) : !strcmp(mode, "prepare") ? prepared() : !strcmp(mode, "point") ? point(stmt) :
			scan(stmt, *mode == 's' ? 1 : 5);
		took[pieces] = (now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / units;
	}
	qsort(took, pieces, sizeof(*took), order);
	printf("{\"each_ns\": %.2f}\n", took[pieces / 4]);
	return sum == 1;
}
