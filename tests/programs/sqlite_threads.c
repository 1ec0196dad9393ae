/*
 * Sixteen concurrent threads that run statements in in-memory databases, then fifty threads one after the other.
 *
 *   sqlite_threads ROUNDS
 */
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>

static long rounds;

static void *work(void *unused)
{
	sqlite3 *db;
	sqlite3_stmt *insert, *select;
	long i, rows;

	(void)unused;
	sqlite3_open(":memory:", &db);
	sqlite3_exec(db, "create table t(a integer, b)", 0, 0, 0);
	sqlite3_prepare_v2(db, "insert into t values (?, ?)", -1, &insert, 0);
	sqlite3_prepare_v2(db, "select a from t limit 10", -1, &select, 0);
	for (i = 0; i < rounds; i++) {
		sqlite3_bind_int64(insert, 1, i);
		sqlite3_step(insert);
		sqlite3_reset(insert);
		/* Stops after a number of rows that differs from round to round. */
		for (rows = 0; sqlite3_step(select) == SQLITE_ROW && ++rows < i % 7 + 1;)
			;
		sqlite3_reset(select);
	}
	sqlite3_finalize(insert);
	sqlite3_finalize(select);
	sqlite3_close(db);
	return 0;
}

int main(int count, char **words)
{
	pthread_t threads[16];
	int i;

	rounds = count > 1 ? atol(words[1]) : 1;
	for (i = 0; i < 16; i++)
		pthread_create(&threads[i], 0, work, 0);
	for (i = 0; i < 16; i++)
		pthread_join(threads[i], 0);
	for (i = 0; i < 50; i++) {
		pthread_create(&threads[0], 0, work, 0);
		pthread_join(threads[0], 0);
	}
	puts("done");
	return 0;
}
