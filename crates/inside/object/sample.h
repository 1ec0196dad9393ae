/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * How long an execution was inside its steps, without a clock at each of them: a row from the cache takes as long as four readings of
 * the cycle counter (70 ns; 17 ns each on a virtual machine), and a step has two.
 *
 * Rows and steps are counted, each. Of a statement whose steps and gaps (the time between two steps, in which the application runs) have
 * been timed several times, only one step and the gap after it are timed in each batch of up to SAMPLE_BATCH, at random. The others are
 * passed over: their time together is known, from the two readings around them, and is divided in the proportion of the means of what was
 * timed. The begin and the end of an execution are always timed, so that its duration is exact, and of one with one step all is.
 *
 * What stands out is not divided by means: if steps that were passed over took longer than their means by the time of SAMPLE_EXCESS steps
 * with their gaps, the excess lies in one of the steps or gaps, and is placed there
 * - where the tick (clock.h) changed, if it did: it does, once a few milliseconds have passed,
 * - else by the means, if the thread was preempted,
 * - else in the proportion in which timed steps and gaps stood out,
 * - else in the steps: it is the statement's, unless something shows that it is the application's.
 * What is placed in the last two ways is limited: if it exceeds both a 64th of all time of the statement and twice what was timed or placed
 * by the tick, each step is timed until it no longer does. So an execution's time in its steps is wrong by a 64th, by one excess that is
 * shorter than a tick, or by as much as two of three outliers may differ from the third. Where a sleep or a system call was, the kernel's
 * records show as well.
 *
 * Uncertainty: times of single steps include half of a reading, or the reading is deducted where the processor had it done in parallel.
 */
#ifndef FATHOM_INSIDE_SAMPLE_H
#define FATHOM_INSIDE_SAMPLE_H

#include "clock.h"

/* Steps and gaps that are timed before any are passed over. */
#define SAMPLE_FIRST 16
/* Steps of a batch in the mean, once SAMPLE_FIRST times as many were seen. */
#define SAMPLE_BATCH 32
/* In steps with their gaps. */
#define SAMPLE_EXCESS 16
/* So few steps are not divided in proportion: each gap is taken to be as long as its mean. */
#define SAMPLE_FEW 4
/* The number of timed ones that a mean goes back. */
#define SAMPLE_MEMORY 256
/* Fractional bits of a mean. */
#define SAMPLE_BITS 4
#define SAMPLE_CYCLES_MAX (1UL << 28)
/* Log2 of the cycles in a unit of sums. */
#define SAMPLE_SUM_UNIT 6
/* A time is not among those that follow it if it is this many times as long as one of them and these cycles. */
#define SAMPLE_CHANGE 8
#define SAMPLE_CHANGE_CYCLES 64
/* From here on an excess is worth the system call that tells whether it was a preemption. */
#define SAMPLE_SWITCH_CYCLES (1UL << 15)
/* Texts of a thread of which this is known. Where two exclude each other, the first steps are timed each time. */
#define SAMPLES 32

/* What is known of the steps of statements with one text, over all their executions. */
struct sample {
	u32 of; /* the tag of the statements' text */
	u32 step; /* mean, in cycles << SAMPLE_BITS */
	u32 gap;
	u16 steps_timed; /* at most SAMPLE_MEMORY */
	u16 gaps_timed;
	u16 seen; /* steps, at most SAMPLE_FIRST * SAMPLE_BATCH */
	u16 left; /* steps that are passed over before the next is timed */
	/* In units of SAMPLE_SUM_UNIT. All are halved when one overflows. */
	u32 all; /* all time */
	u32 excess_steps; /* what stood out in steps, and in gaps */
	u32 excess_gaps;
	u32 excess_placed; /* what was placed without evidence */
};

/* Context switches of a thread, as far as it has looked. */
struct switches {
	u64 voluntary;
	u64 preempted;
};

/* Whether the thread lost its processor since it last looked, and never waited. */
static __attribute__((noinline)) int was_preempted(struct switches *seen)
{
	u64 usage[18];
	int result;

	if (sealed || call2(SYS_getrusage, RUSAGE_THREAD, usage))
		return 0;
	/* ru_nvcsw and ru_nivcsw */
	result = usage[16] == seen->voluntary && usage[17] != seen->preempted;
	seen->voluntary = usage[16];
	seen->preempted = usage[17];
	return result;
}

/* Cycles between two readings with nothing in between; part of each time that is measured. */
static u32 reading_cycles;
static u32 sample_seed;

static void measure_reading(void)
{
	u64 least = 1000, before, after;
	u32 i;

	for (i = 0; !reading_cycles && i < 32; i++) {
		before = cycles();
		after = cycles();
		if (after - before < least)
			least = after - before;
	}
	if (!reading_cycles)
		reading_cycles = (u32)least;
}

static inline void count_sum(struct sample *s, u32 *sum, u64 cycles)
{
	u64 more = (cycles + (1 << SAMPLE_SUM_UNIT) - 1) >> SAMPLE_SUM_UNIT;

	while (unlikely(*sum + more > 0x7fffffff)) {
		s->all /= 2;
		s->excess_steps /= 2;
		s->excess_gaps /= 2;
		s->excess_placed /= 2;
		more /= 2;
	}
	*sum += (u32)more;
}

static inline void count_seen(struct sample *s, u32 steps)
{
	u32 seen = s->seen + steps;

	s->seen = (u16)(seen < SAMPLE_FIRST * SAMPLE_BATCH ? seen : SAMPLE_FIRST * SAMPLE_BATCH);
}

static inline u64 mean_of_pair(const struct sample *s)
{
	return (u64)s->step + s->gap;
}

/* Adds a timed step or gap to its mean; what stands out is counted apart. */
static void count_timed(struct sample *s, u32 *mean, u16 *timed, u32 *excess, u64 took)
{
	u64 is = took > reading_cycles ? took - reading_cycles : 1;
	u64 limit = *mean + SAMPLE_EXCESS * mean_of_pair(s);

	count_sum(s, &s->all, took);
	is = (is < SAMPLE_CYCLES_MAX ? is : SAMPLE_CYCLES_MAX) << SAMPLE_BITS;
	/* The first ones, which set it, stood out: the step that sorts, a gap in which the application waited. */
	if (!*timed || (is + (SAMPLE_CHANGE_CYCLES << SAMPLE_BITS)) * SAMPLE_CHANGE < *mean) {
		count_sum(s, excess, *mean >> SAMPLE_BITS);
		*mean = (u32)is;
		*timed = 1;
		return;
	}
	if (is > limit) {
		count_sum(s, excess, took - (*mean >> SAMPLE_BITS));
		is = limit < SAMPLE_CYCLES_MAX << SAMPLE_BITS ? limit : *mean;
		/* It sets the mean where it occurs as often as not; otherwise it must not move it far. */
		if (*timed >= SAMPLE_FIRST)
			return;
	}
	if (*timed < SAMPLE_MEMORY)
		++*timed;
	*mean = (u32)((s64)*mean + ((s64)is - (s64)*mean) / *timed);
}

static inline void count_step(struct sample *s, u64 took)
{
	count_timed(s, &s->step, &s->steps_timed, &s->excess_steps, took);
}

static inline void count_gap(struct sample *s, u64 took)
{
	count_timed(s, &s->gap, &s->gaps_timed, &s->excess_gaps, took);
}

/* Whether too much was placed without evidence. */
static inline int is_doubtful(const struct sample *s)
{
	return s->excess_placed > s->all / 64 && s->excess_placed / 2 > s->excess_steps + s->excess_gaps;
}

/* Returns how many of the next steps are passed over. */
static u32 pass_over(struct sample *s)
{
	u32 batch = s->seen / SAMPLE_FIRST;

	if (!has_tick() || s->steps_timed < SAMPLE_FIRST || s->gaps_timed < SAMPLE_FIRST || is_doubtful(s))
		return 0;
	/* A step that always comes at the same place of a pattern must not be timed each time, or never. Races do no harm. */
	sample_seed = sample_seed * 1664525 + 1013904223;
	return batch / 2 + (u32)((u64)(sample_seed >> 8) * batch >> 24);
}

/* Returns the part of `all` cycles, of which `steps` steps and `gaps` gaps were passed over, that lies in the steps. */
static inline u64 divide(struct sample *s, struct switches *seen, u64 all, u64 steps, u64 gaps, u32 ticks_steps, u32 ticks_gaps)
{
	u64 in = steps * s->step, out = gaps * s->gap, usual = in + out;
	u64 excess = 0, inside, known;

	count_sum(s, &s->all, all);
	/* Nothing is known any more if another statement took its place meanwhile. */
	if (!gaps || !usual)
		return all;
	if (unlikely(all > (usual + SAMPLE_EXCESS * mean_of_pair(s)) >> SAMPLE_BITS))
		excess = all - (usual >> SAMPLE_BITS);
	/* A division takes as long as the rest. */
	else if (steps < SAMPLE_FEW && all > out >> SAMPLE_BITS)
		return all - (out >> SAMPLE_BITS);
	inside = share(in, all - excess, usual);
	if (likely(!excess))
		return inside;
	if (ticks_steps + ticks_gaps) {
		known = share(ticks_steps, excess, (u64)ticks_steps + ticks_gaps);
		count_sum(s, &s->excess_steps, known);
		count_sum(s, &s->excess_gaps, excess - known);
		return inside + known;
	}
	/* It may have been anywhere. */
	if (excess > SAMPLE_SWITCH_CYCLES && was_preempted(seen))
		return inside + share(in, excess, usual);
	known = (u64)s->excess_steps + s->excess_gaps;
	count_sum(s, &s->excess_placed, excess);
	return inside + (known ? share(s->excess_steps, excess, known) : excess);
}

#endif
