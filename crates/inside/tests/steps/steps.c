/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs made-up executions through the object's hooks, on a counter and a clock of its own, so that the truth is known to the cycle. Prints
 * for each pattern what was recorded and what is true.
 */
unsigned long fake_cycles(void);
#define FATHOM_CYCLES fake_cycles
#include "inside.c"

int printf(const char *format, ...);

/* A cycle is a nanosecond. What a reading costs, and how often the tick changes. */
#define READING 17
#define TICK 4000000

static u64 now = 5000000000, readings;
static u32 tick;

static void pass_time(u64 cycles)
{
	now += cycles;
	tick = (u32)(now / TICK * TICK % 1000000000);
}

u64 fake_cycles(void)
{
	readings++;
	pass_time(READING);
	return now;
}

static int fake_clock(int clock, s64 *time)
{
	(void)clock;
	pass_time(READING);
	time[0] = (s64)(now / 1000000000);
	time[1] = (s64)(now % 1000000000);
	return 0;
}

static int fake_cpu(u32 *cpu, u32 *node, void *none)
{
	(void)node, (void)none;
	*cpu = 3;
	return 0;
}

struct pattern {
	const char *name;
	u64 step, gap; /* cycles */
	u64 rows; /* of an execution */
	u64 executions;
	u64 heavy_step_every, heavy_step; /* in rows, over all executions; cycles */
	u64 heavy_gap_every, heavy_gap;
	u64 is_reset; /* before its end is seen */
};

static const struct pattern patterns[] = {
	{ "scan", 70, 10, 100000, 3, 0, 0, 0, 0, 0 },
	{ "scan_with_work_between", 70, 300, 20000, 3, 0, 0, 0, 0, 0 },
	{ "point", 300, 40, 1, 20000, 0, 0, 0, 0, 0 },
	{ "point_reset_after_row", 300, 400, 1, 20000, 0, 0, 0, 0, 1 },
	{ "scan_with_reads", 70, 40, 100000, 3, 50, 2500, 0, 0, 0 },
	{ "scan_with_slow_steps", 70, 40, 100000, 3, 1000, 100000, 0, 0, 0 },
	{ "scan_with_slow_gaps", 70, 40, 100000, 3, 0, 0, 1000, 100000, 0 },
	{ "scan_with_both", 70, 40, 100000, 3, 777, 30000, 1000, 100000, 0 },
	{ "scan_with_one_long_gap", 70, 40, 10000, 1, 0, 0, 7000, 50000000, 0 },
	{ "scan_with_one_long_step", 70, 40, 10000, 1, 7000, 50000000, 0, 0, 0 },
	{ "sorting_first", 60, 40, 5000, 4, 5000, 900000, 0, 0, 0 },
	{ "rows_of_two_kinds", 60, 40, 50000, 2, 2, 900, 0, 0, 0 },
	{ "insert", 5000, 0, 0, 1000, 0, 0, 0, 0, 0 },
	{ "single_row_kept_long", 300, 30000000, 1, 40, 0, 0, 0, 0, 1 },
};

static const struct pattern *pattern;
static u64 row, rows_all, inside;

static s32 step(void *stmt)
{
	u64 took = pattern->step;

	(void)stmt;
	rows_all++;
	if (pattern->heavy_step_every && rows_all % pattern->heavy_step_every == pattern->heavy_step_every / 2)
		took += pattern->heavy_step;
	pass_time(took);
	inside += took;
	return row++ < pattern->rows ? SQLITE_ROW : 101;
}

static s32 reset(void *stmt)
{
	(void)stmt;
	return 0;
}

static u64 words[RING_WORDS];
static struct ring_control ring;
static struct process one;
static u64 open;

static void run(void *stmt)
{
	static const struct plan_library library;
	static const struct site steps = { (void *)step, 0, &library, 0, 0 }, resets = { (void *)reset, 0, &library, 0, 0 };
	u64 i, at = ring.head, sum[4] = { 0, 0, 0, 0 }, ended = 0;

	inside = readings = rows_all = 0;
	for (i = 0; i < pattern->executions; i++) {
		row = 0;
		while (fathom_hook_step(stmt, &steps, 0) == SQLITE_ROW) {
			u64 took = pattern->gap;

			if (pattern->heavy_gap_every && rows_all % pattern->heavy_gap_every == pattern->heavy_gap_every / 3)
				took += pattern->heavy_gap;
			pass_time(took);
			if (pattern->is_reset && row == pattern->rows)
				break;
		}
		fathom_hook_reset(stmt, &resets, 0);
		for (; at < ring.head; at += words[at & (RING_WORDS - 1)] & 1023) {
			const u64 *r = words + (at & (RING_WORDS - 1));

			if ((r[0] >> RECORD_KIND_SHIFT & 63) != RECORD_OP_END)
				continue;
			ended++;
			sum[0] += r[4];
			sum[1] += r[5];
			sum[2] += r[6];
			sum[3] += r[1] - r[3];
		}
		ring.tail = at;
	}
	printf("%s executions=%lu rows=%lu steps=%lu inside=%lu all=%lu truth_executions=%lu truth_steps=%lu truth_inside=%lu "
	       "readings=%lu\n",
	       pattern->name, ended, sum[0], sum[1], sum[2], sum[3], pattern->executions, rows_all, inside, readings);
}

/* Finds the kernel's tick as the object does, and prints how often it was the coarse clock's time, of ten ticks. */
static int find_real_tick(void)
{
	s64 before[2] = { 0, 0 }, after[2] = { 0, 0 };
	u32 ticks = 0, equal = 0, found;

	if (!read_auxiliary() || !find_clock())
		return 1;
	find_tick();
	while (has_tick() && ticks < 10) {
		vdso_clock_gettime(CLOCK_MONOTONIC_COARSE, before);
		found = *tick_at;
		vdso_clock_gettime(CLOCK_MONOTONIC_COARSE, after);
		/* A tick may come in between. */
		if (before[1] != after[1])
			continue;
		ticks++;
		equal += found == (u32)before[1];
		while (before[1] == after[1])
			vdso_clock_gettime(CLOCK_MONOTONIC_COARSE, after);
	}
	printf("tick found=%d ticks=%u equal=%u\n", has_tick(), ticks, equal);
	return 0;
}

int main(int count, char **arguments)
{
	static u64 stmts[32][8];
	u32 i;

	if (count > 1 && arguments[1][0] == 'f')
		return find_real_tick();
	process = &one;
	one.generation = self.generation = 1;
	self.ring = &ring;
	self.words = words;
	self.closed = &open;
	ring.populated = RING_WORDS;
	vdso_clock_gettime = fake_clock;
	vdso_getcpu = fake_cpu;
	/* No system call whose result depends on the machine. */
	sealed = 1;
	pass_time(0);
	if (count < 2 || arguments[1][0] != 'n')
		tick_at = &tick;
	measure_reading();
	for (i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		pattern = &patterns[i];
		run(stmts[i]);
	}
	return 0;
}
