/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The time of a reading of the cycle counter. Reading the clock through the vDSO costs 30 ns, of which reading the counter is one half;
 * a short statement has two such readings, so the other half is saved: a counter is converted relative to the thread's latest reading of
 * both.
 *
 * Such a pair is valid until the kernel's next tick: the kernel changes the clock's rate, and notices a suspend, only when it updates the
 * page that the vDSO reads (timekeeping_update_from_shadow, timekeeping_update before Linux 6.13), and then also changes the time there
 * that the coarse clocks return. That word, the tick, is found by its value. It also shows, for the price of a load, that milliseconds
 * have passed (sample.h).
 *
 * Where it cannot be found (a time namespace, a program without a vDSO or in a root without /proc, aarch64), each time is the vDSO's.
 *
 * Uncertainty: a pair is two readings, one after another; the counter's is taken to be in the middle between those before and after the
 * clock's, which are up to 40 ns apart.
 */
#ifndef FATHOM_INSIDE_CLOCK_H
#define FATHOM_INSIDE_CLOCK_H

#include "process.h"

#define CLOCK_MONOTONIC_COARSE 6
/* More cycles than this are not converted by a rate: the product would overflow. */
#define PAIRED_CYCLES_MAX (1UL << 28)

/* A time on both clocks. */
struct instant {
	u64 cycles;
	u64 ns;
};

struct thread_clock {
	struct instant pair;
	u64 rate; /* nanoseconds in 2^32 cycles; 0: not known yet */
	u64 last_ns; /* the last time that was returned */
	u32 tick; /* at which the pair was read */
	u32 pad;
};

/* Records of a thread are in order, and an execution's end names its begin by the time: none may be earlier than the one before. */
static inline u64 in_order(struct thread_clock *clock, u64 ns)
{
	if (unlikely(ns < clock->last_ns))
		ns = clock->last_ns;
	clock->last_ns = ns;
	return ns;
}

static const u32 no_tick;
/* Nanoseconds of the second of the latest tick; never changes if unknown. */
static const volatile u32 *tick_at = &no_tick;

static inline int has_tick(void)
{
	return tick_at != &no_tick;
}

/* Returns by how much a tick is later than another, at most a second. */
static inline u32 ticks_between(u32 before, u32 after)
{
	return after >= before ? after - before : after + 1000000000 - before;
}

#ifdef __x86_64__
/* As in a thread's clock. */
static u64 cycles_rate;
/* The pair from which the rate was last determined, or 0. */
static struct instant rated;
/* Held by the thread that determines the rate. */
static u32 rating;
/* The duration from which the rate is determined: seconds at most, since it may change; a tenth of one, for the first time 2 ms, at least. */
#define RATED_CYCLES_MAX (1UL << 33)
#define RATED_CYCLES_MIN (1UL << 27)
#define RATED_CYCLES_FIRST (1UL << 22)
/* From the vDSO's data to its code, in bytes. */
#define VVAR_DISTANCE_MAX (1UL << 16)

static u64 number_from_hex(const char **text)
{
	u64 number = 0;

	for (;; (*text)++) {
		if (**text >= '0' && **text <= '9')
			number = number << 4 | (u64)(**text - '0');
		else if (**text >= 'a' && **text <= 'f')
			number = number << 4 | (u64)(**text - 'a' + 10);
		else
			return number;
	}
}

/* Returns the address of the mapping of this name, the last word of its line in /proc/self/maps; 0: there is none. */
static u64 find_mapping(const char *name)
{
	char text[1024], *line, *end, *last, *word;
	long fd = open_file("/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
	long have = 0, got;
	u64 found = 0;

	if (fd < 0)
		return 0;
	while (!found) {
		got = call3(SYS_read, fd, text + have, sizeof(text) - 1 - have);
		if (got <= 0)
			break;
		last = text + have + got;
		*last = 0;
		for (line = text;; line = end + 1) {
			for (end = line; end < last && *end != '\n'; end++)
				;
			if (end == last)
				break;
			*end = 0;
			for (word = end; word > line && word[-1] != ' '; word--)
				;
			if (same_text(word, name)) {
				const char *digits = line;

				found = number_from_hex(&digits);
			}
		}
		have = last - line;
		/* A line that is longer than the buffer is a path, of which the rest is read as further lines. */
		if (have == sizeof(text) - 1)
			have = 0;
		/* The part of a line is moved to the start; memcpy copies upwards. */
		memcpy(text, line, have);
	}
	call1(SYS_close, fd);
	return found;
}

/* Whether the kernel itself takes the counter for its clock: then it runs at one rate, alike on all processors. */
static int counter_is_clock(void)
{
	char name[16];
	long size = read_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", name, sizeof(name) - 1);

	return size == 4 && name[0] == 't' && name[1] == 's' && name[2] == 'c' && name[3] == '\n';
}

/* Reads both clocks. The shorter of two tries is taken: the thread may be interrupted in between. */
static struct instant read_pair(void)
{
	struct instant best = { 0, 0 };
	u64 width = ~0UL, before, ns, after;
	u32 i;

	for (i = 0; i < 2; i++) {
		before = cycles();
		ns = clock_ns();
		after = cycles();
		if (after - before >= width)
			continue;
		width = after - before;
		best.cycles = before + width / 2;
		best.ns = ns;
	}
	return best;
}

static void determine_rate(struct instant now)
{
	u64 passed, least = cycles_rate ? RATED_CYCLES_MIN : RATED_CYCLES_FIRST;
	u32 free = 0;

	if (!__atomic_compare_exchange_n(&rating, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	passed = now.cycles - rated.cycles;
	if (!rated.ns || passed > RATED_CYCLES_MAX || now.ns <= rated.ns) {
		rated = now;
	} else if (passed >= least) {
		__atomic_store_n(&cycles_rate, share(1UL << 32, now.ns - rated.ns, passed), __ATOMIC_RELAXED);
		rated = now;
	}
	__atomic_store_n(&rating, 0, __ATOMIC_RELEASE);
}

/* Finds the tick: two words of the vDSO's first page that are the coarse clock's seconds and nanoseconds, each time. */
static void find_tick(void)
{
	const volatile u64 *page;
	s64 before[2], after[2];
	u32 i, tries, found = 0, at = 0;

	if (sealed || has_tick() || !vdso || !vdso_clock_gettime || !counter_is_clock())
		return;
	page = (const volatile u64 *)find_mapping("[vvar]");
	/* It is just before the code; a file may have such a name. */
	if (vdso - (u64)page > VVAR_DISTANCE_MAX)
		return;
	for (tries = 0; tries < 8 && !found; tries++) {
		vdso_clock_gettime(CLOCK_MONOTONIC_COARSE, before);
		for (i = 0; i + 1 < 512; i++) {
			if (page[i] == (u64)before[0] && page[i + 1] == (u64)before[1]) {
				at = i + 1;
				found++;
			}
		}
		vdso_clock_gettime(CLOCK_MONOTONIC_COARSE, after);
		if (before[0] != after[0] || before[1] != after[1])
			found = 0;
	}
	if (found != 1)
		return;
	/* The lower half: the word is less than 2^32. */
	tick_at = (const volatile u32 *)(page + at);
	determine_rate(read_pair());
}

/* Reads both clocks anew, where the last pair cannot be used. */
static __attribute__((noinline)) u64 time_anew(struct thread_clock *clock, u64 counter)
{
	u64 since = counter - __atomic_load_n(&rated.cycles, __ATOMIC_RELAXED);

	clock->rate = __atomic_load_n(&cycles_rate, __ATOMIC_RELAXED);
	if (!has_tick() || (!clock->rate && since < RATED_CYCLES_FIRST))
		return clock_ns();
	clock->tick = *tick_at;
	clock->pair = read_pair();
	determine_rate(clock->pair);
	/* The counter was read just before. */
	return clock->pair.ns - ((clock->pair.cycles - counter) * clock->rate >> 32);
}

/* Returns the time of a counter that was read just now. */
static inline u64 time_of(struct thread_clock *clock, u64 counter)
{
	u64 since = counter - clock->pair.cycles;

	if (unlikely(!clock->rate || clock->tick != *tick_at || since > PAIRED_CYCLES_MAX))
		return in_order(clock, time_anew(clock, counter));
	return in_order(clock, clock->pair.ns + (since * clock->rate >> 32));
}

/* Lets times be converted at any rate, for a measurement of how long that takes. */
static void prepare_clock(struct thread_clock *clock)
{
	if (!has_tick())
		return;
	clock->tick = *tick_at;
	clock->pair = read_pair();
	clock->rate = 1UL << 31;
}
#else
static void find_tick(void)
{
}

static void prepare_clock(struct thread_clock *clock)
{
	(void)clock;
}

static inline u64 time_of(struct thread_clock *clock, u64 counter)
{
	(void)counter;
	return in_order(clock, clock_ns());
}
#endif

#endif
