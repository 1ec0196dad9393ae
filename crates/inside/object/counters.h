/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SQLite's own counters: of a statement (sqlite3_stmt_status) and of its connection's page caches (sqlite3_db_status). They are read at an
 * execution's begin and end; the record has the differences.
 *
 * To call SQLite's functions for them costs as much as a short statement, and sqlite3_db_status takes the connection's mutex, which another
 * thread may hold for long. So they are called only until it is known at which offsets SQLite keeps the counters, in the statement and in
 * its pager; after that these are loaded. An offset is that at which the values that a function returned were found, alone, at two
 * executions with different ones. sqlite3_stmt_status takes no mutex for these counters; sqlite3_db_status is called only if the mutex is
 * free.
 *
 * The loads follow the pointers of a connection without its mutex. Its own database and its temporary one are closed with the connection,
 * not before, so they are valid while it has a statement. Attached ones may be detached by another thread: with them, nothing is read.
 *
 * Uncertainty: the counters of the cache are the connection's; executions that alternate on it share them.
 */
#ifndef FATHOM_INSIDE_COUNTERS_H
#define FATHOM_INSIDE_COUNTERS_H

#include "process.h"

/* Operations of sqlite3_db_status. */
#define STATUS_CACHE_HIT 7
#define STATUS_CACHE_MISS 8
#define STATUS_CACHE_WRITE 9
#define STATUS_CACHE_SPILL 12

/* struct sqlite3: its list of databases, which is in it as long as none is attached. In SQLite since 3.7.15. */
#define DATABASES_AT 32
#define DATABASE_COUNT_AT 40
#define CONNECTION_BYTES_MOST 2048
/* An entry of that list: name, Btree, two words. */
#define DATABASE_BYTES 32
#define BTREE_AT 8
/* How far to search in a pager. It is allocated together with its cache and files, which are larger than the difference. */
#define PAGER_BYTES_SEARCHED 384
/* Fewer hits could be any other number. */
#define HITS_LEAST 16
#define LEARN_TRIES_MOST 256

/* An offset that is not known yet, or will not be: no offset is 1. */
#define AT_UNKNOWN 0
#define AT_GIVEN_UP 1
/* How far before the pointer to its text a statement has its counters, at most. */
#define COUNTERS_BEFORE_TEXT_MOST 64
/* Fewer instructions could be any other number. */
#define OPS_LEAST 6
#define VM_STEP 3

struct counts {
	u32 known; /* a bit for each */
	u32 of[COUNTS]; /* full scan steps, sorts, rows of automatic indices, VM steps, reprepares, runs; hits, misses, writes, spills */
};

/* Where counters are, as far as was learnt. */
struct counters_place {
	u32 at; /* their offset; or AT_UNKNOWN, AT_GIVEN_UP */
	u32 candidate; /* where they were, alone, when the number that is to change was `number` */
	u32 number;
	u32 tries;
};

/* Functions of one loaded SQLite, and what was learnt of it. */
struct counters {
	s32 (*stmt_status)(void *, s32, s32);
	void *(*db_handle)(void *); /* null, as those below, if one of them was not found */
	s32 (*db_status)(void *, s32, s32 *, s32 *, s32);
	void *(*db_mutex)(void *);
	s32 (*mutex_try)(void *);
	void (*mutex_leave)(void *);
	u32 counted;
	u32 text_at; /* offset of the pointer to its text in a statement; 0: not known */
	u32 cache_counted;
	u32 busy;
	struct counters_place stmt; /* of the counters in a statement */
	struct counters_place cache; /* in a pager */
};

static inline u64 word_at(u64 at, u64 offset)
{
	return *(const u64 *)(at + offset);
}

/* Whether a connection's list of databases is where this code expects it, with no others than its own and the temporary one. */
static inline int has_own_databases_only(u64 db)
{
	u64 list = word_at(db, DATABASES_AT);

	return list - db < CONNECTION_BYTES_MOST && *(const s32 *)(db + DATABASE_COUNT_AT) == 2;
}

/* Returns the offset from `base`, between these two, at which these numbers are next to each other; 0: at none, or at several. */
static u32 find_numbers(u64 base, u32 from, u32 to, const u32 *numbers, u32 count)
{
	u32 found = 0, at, i;

	for (at = from; at + 4 * count <= to; at += 4) {
		for (i = 0; i < count && ((const u32 *)(base + at))[i] == numbers[i]; i++)
			;
		if (i < count)
			continue;
		if (found)
			return 0;
		found = at;
	}
	return found;
}

static void note_place(struct counters_place *p, u32 at, u32 number)
{
	if (at && at == p->candidate && number != p->number)
		__atomic_store_n(&p->at, at, __ATOMIC_RELEASE);
	p->candidate = at;
	p->number = number;
}

/* Whether there is something left to learn of a place; counts the attempt. */
static int may_learn(struct counters_place *p)
{
	if (p->tries++ < LEARN_TRIES_MOST)
		return 1;
	__atomic_store_n(&p->at, AT_GIVEN_UP, __ATOMIC_RELAXED);
	return 0;
}

/* Asks SQLite for the cache's counters, and where they are. Its mutex is held. */
static void cache_ask(struct counters *c, u64 stmt, u64 db, struct counts *to)
{
	static const u8 operations[CACHE_COUNTS] = { STATUS_CACHE_HIT, STATUS_CACHE_MISS, STATUS_CACHE_WRITE, STATUS_CACHE_SPILL };
	u32 *numbers = to->of + COUNTS - CACHE_COUNTS;
	u64 list, btree, shared;
	u32 count;

	for (count = 0; count < CACHE_COUNTS; count++) {
		s32 now = 0, most = 0;

		/* Older versions do not have all. */
		if (c->db_status((void *)db, operations[count], &now, &most, 0))
			break;
		numbers[count] = (u32)now;
	}
	to->known |= ((1U << count) - 1) << (COUNTS - CACHE_COUNTS);
	if (count < 2 || word_at(stmt, 0) != db) {
		__atomic_store_n(&c->cache.at, AT_GIVEN_UP, __ATOMIC_RELAXED);
		return;
	}
	list = word_at(db, DATABASES_AT);
	btree = word_at(list, BTREE_AT);
	if (numbers[0] < HITS_LEAST || !btree || word_at(list, DATABASE_BYTES + BTREE_AT))
		return;
	shared = word_at(btree, 8);
	if (word_at(btree, 0) != db || !shared || word_at(shared, 8) != db)
		return;
	c->cache_counted = count;
	note_place(&c->cache, find_numbers(word_at(shared, 0), 8, PAGER_BYTES_SEARCHED, numbers, count), numbers[0]);
}

static __attribute__((noinline)) void cache_learn(struct counters *c, u64 stmt, struct counts *to)
{
	void *db, *mutex;

	if (!c->db_handle) {
		__atomic_store_n(&c->cache.at, AT_GIVEN_UP, __ATOMIC_RELAXED);
		return;
	}
	if (__atomic_exchange_n(&c->busy, 1, __ATOMIC_ACQUIRE))
		return;
	db = c->db_handle((void *)stmt);
	if (db && has_own_databases_only((u64)db) && may_learn(&c->cache)) {
		mutex = c->db_mutex(db);
		if (!c->mutex_try(mutex)) {
			cache_ask(c, stmt, (u64)db, to);
			c->mutex_leave(mutex);
		}
	}
	__atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
}

/* Asks SQLite for a statement's counters, and where they are. */
static __attribute__((noinline)) void stmt_ask(struct counters *c, u64 stmt, struct counts *to)
{
	u32 i, at = __atomic_load_n(&c->stmt.at, __ATOMIC_RELAXED), from;

	for (i = 0; i < COUNTS - CACHE_COUNTS && i < c->counted; i++)
		to->of[i] = (u32)c->stmt_status((void *)stmt, (s32)i + 1, 0);
	if (at != AT_UNKNOWN || __atomic_exchange_n(&c->busy, 1, __ATOMIC_ACQUIRE))
		return;
	from = c->text_at > COUNTERS_BEFORE_TEXT_MOST ? c->text_at - COUNTERS_BEFORE_TEXT_MOST : 0;
	if (!from || c->counted <= VM_STEP) {
		__atomic_store_n(&c->stmt.at, AT_GIVEN_UP, __ATOMIC_RELAXED);
	} else if (to->of[VM_STEP] >= OPS_LEAST && may_learn(&c->stmt)) {
		at = find_numbers(stmt, from & ~3U, c->text_at, to->of, c->counted);
		note_place(&c->stmt, at, to->of[VM_STEP]);
	}
	__atomic_store_n(&c->busy, 0, __ATOMIC_RELEASE);
}

static inline void read_stmt(struct counters *c, u64 stmt, struct counts *to)
{
	u32 at = __atomic_load_n(&c->stmt.at, __ATOMIC_ACQUIRE), i;

	if (unlikely(at <= AT_GIVEN_UP)) {
		stmt_ask(c, stmt, to);
	} else {
		for (i = 0; i < COUNTS - CACHE_COUNTS && i < c->counted; i++)
			to->of[i] = ((const u32 *)(stmt + at))[i];
	}
	to->known = (1U << c->counted) - 1;
}

static inline void read_cache(struct counters *c, u64 stmt, struct counts *to)
{
	u32 at = __atomic_load_n(&c->cache.at, __ATOMIC_ACQUIRE), which, i;
	u64 db, list;

	if (unlikely(at <= AT_GIVEN_UP)) {
		if (at == AT_UNKNOWN)
			cache_learn(c, stmt, to);
		return;
	}
	db = word_at(stmt, 0);
	if (unlikely(!has_own_databases_only(db)))
		return;
	list = word_at(db, DATABASES_AT);
	for (which = 0; which < 2; which++) {
		u64 btree = word_at(list, which * DATABASE_BYTES + BTREE_AT);
		const u32 *numbers;

		if (!btree)
			continue;
		numbers = (const u32 *)(word_at(word_at(btree, 8), 0) + at);
		for (i = 0; i < CACHE_COUNTS && i < c->cache_counted; i++)
			to->of[COUNTS - CACHE_COUNTS + i] += numbers[i];
	}
	to->known |= ((1U << c->cache_counted) - 1) << (COUNTS - CACHE_COUNTS);
}

/* Reads the counters of a statement that the caller knows to exist. */
static inline void read_counts(struct counters *c, u64 stmt, struct counts *to)
{
	u64 *calling = &fathom_attached.preparing;
	u32 i;

	to->known = 0;
	if (!c)
		return;
	/* SQLite's functions return here: the recorder must not remove the object before. One that the loader loaded is never removed. */
	if (unlikely(fathom_attached.pid))
		__atomic_fetch_add(calling, 1, __ATOMIC_RELAXED);
	for (i = COUNTS - CACHE_COUNTS; i < COUNTS; i++)
		to->of[i] = 0;
	read_stmt(c, stmt, to);
	read_cache(c, stmt, to);
	if (unlikely(fathom_attached.pid))
		__atomic_fetch_sub(calling, 1, __ATOMIC_RELAXED);
}

/* Returns by how much a counter grew. The program may set it back to zero, and it may wrap around. */
static inline u32 growth(u32 before, u32 now)
{
	u32 more = now - before;

	return now < before && more >> 31 ? now : more;
}

/* Writes the growth of the counters to a record, two to a word, after a word that says which are known. */
static inline void put_growth(u64 *words, const struct counts *before, const struct counts *now)
{
	u32 known = before->known & now->known, i;

	words[0] = known;
	for (i = 0; i < COUNTS; i += 2) {
		u64 low = known >> i & 1 ? growth(before->of[i], now->of[i]) : 0;
		u64 high = known >> (i + 1) & 1 ? growth(before->of[i + 1], now->of[i + 1]) : 0;

		words[1 + i / 2] = low | high << 32;
	}
}

#endif
