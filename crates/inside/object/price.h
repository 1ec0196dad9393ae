/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Measures what recording costs this process: runs the hooks' code for a fake statement, on a ring that nobody reads, and compares that
 * with the bare call. Done once, before the first statement: a few times 10 us. A fork's child inherits the result.
 *
 * Uncertainty: all memory touched is in the caches then, as in a loop over one statement, and the jumps to the hooks are not included.
 */
#ifndef FATHOM_INSIDE_PRICE_H
#define FATHOM_INSIDE_PRICE_H

#include "sqlite.h"

#define SQLITE_DONE 101

static struct {
	struct thread thread;
	struct ring_control ring;
	u64 words[512];
	u64 closed;
	/* A statement, its connection, and what leads to the counters of the connection's cache. */
	u64 stmt[4];
	u64 connection[8];
	u64 databases[8];
	u64 btree[2];
	u64 shared[2];
	u64 pager[4];
	struct counters counters;
	struct plan_library library;
	u32 began;
	u32 step_ns[PRICE_BATCHES];
	u32 statement_ns[PRICE_BATCHES];
} trial;

_Static_assert(sizeof(trial.words) >= (PRICE_STATEMENTS * (4 + COUNTED_END_WORDS) + 5) * sizeof(u64), "a batch of records must fit");

static s32 say_row(void *stmt)
{
	(void)stmt;
	return SQLITE_ROW;
}

static s32 say_done(void *stmt)
{
	(void)stmt;
	return SQLITE_DONE;
}

/* As in a SQLite of which it is known where the counters are (counters.h). */
static void prepare_trial_counters(void)
{
	trial.stmt[0] = (u64)trial.connection;
	trial.connection[DATABASES_AT / 8] = (u64)trial.databases;
	trial.connection[DATABASE_COUNT_AT / 8] = 2;
	trial.databases[BTREE_AT / 8] = (u64)trial.btree;
	trial.btree[1] = (u64)trial.shared;
	trial.shared[0] = (u64)trial.pager;
	trial.counters.counted = COUNTS - CACHE_COUNTS;
	trial.counters.stmt.at = 8;
	trial.counters.cache.at = 8;
	trial.counters.cache_counted = CACHE_COUNTS;
}

/* Steps as if the function were hooked. */
static __attribute__((noinline)) s32 tried_step(void *stmt, const struct site *site)
{
	struct thread *t = &trial.thread;

	if (likely(t->plain == (u64)stmt))
		return step_plainly(stmt, site, t);
	return step_otherwise(stmt, site, t);
}

/* Returns by how much recording prolongs `calls` calls. */
static u32 try(s32 (*real)(void *), u32 calls)
{
	struct site site = { (void *)real, 0, &trial.library, 0, &trial.counters };
	s32 (*volatile bare)(void *) = real;
	u64 start, middle, end;
	u32 i;

	trial.ring.head = 0;
	trial.ring.tail = 0;
	start = clock_ns();
	for (i = 0; i < calls; i++)
		tried_step(trial.stmt, &site);
	middle = clock_ns();
	for (i = 0; i < calls; i++)
		bare(trial.stmt);
	end = clock_ns();
	return middle - start > end - middle ? middle - start - (end - middle) : 0;
}

/* Stores the costs in a new arena. */
static void tell_prices(struct arena *a)
{
	u32 i;

	if (!__atomic_exchange_n(&trial.began, 1, __ATOMIC_RELAXED)) {
		trial.thread.generation = process->generation;
		trial.thread.ring = &trial.ring;
		trial.thread.words = trial.words;
		trial.thread.closed = &trial.closed;
		trial.ring.populated = RING_WORDS;
		prepare_clock(&trial.thread.clock);
		prepare_trial_counters();
		for (i = 0; i < PRICE_BATCHES; i++) {
			trial.statement_ns[i] = try(say_done, PRICE_STATEMENTS);
			/* The first step begins an execution, which stays open; the first ones are timed (sample.h). */
			try(say_row, i ? 1 : SAMPLE_FIRST * SAMPLE_BATCH);
			/* An interruption so far must not make each step be timed. */
			sample_of(&trial.thread, tag_of((u64)trial.stmt))->excess_placed = 0;
			trial.step_ns[i] = try(say_row, PRICE_STEPS);
			/* End the execution. */
			try(say_done, 1);
		}
	}
	memcpy(a->step_ns, trial.step_ns, sizeof(trial.step_ns));
	memcpy(a->statement_ns, trial.statement_ns, sizeof(trial.statement_ns));
}

#endif
