/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * This thread: its ring, and its open executions of statements. They are tracked the way the BPF programs do it (operations.bpf.c of
 * crate `capture`), so that a recording comes out the same either way.
 *
 * A ring is written only by its own thread. When a thread has ended, another takes over its ring. What a signal handler does while its
 * thread changes this is dropped, and counted.
 */
#ifndef FATHOM_INSIDE_THREAD_H
#define FATHOM_INSIDE_THREAD_H

#include "ask.h"
#include "attach_thread.h"
#include "cpu.h"

static struct ring_control *find_ring(struct arena *a, u64 tgid, u32 tid)
{
	u32 i, owner;

	for (i = 0; i < RINGS; i++) {
		owner = __atomic_load_n(&a->ring[i].owner, __ATOMIC_RELAXED);
		if (owner && owner != tid && !has_ended(tgid, owner))
			continue;
		if (__atomic_compare_exchange_n(&a->ring[i].owner, &owner, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &a->ring[i];
	}
	return 0;
}

static u32 asked_whether_over;

/* Handles the first statement of a thread, or of a fork's child. */
static __attribute__((noinline)) int enter_thread(struct thread *t)
{
	struct arena *a;

	if (sealed || !take_process()) {
		fathom_inside_lost();
		return 0;
	}
	a = have_arena();
	release_process();
	if (!a) {
		/* A fork's child that starts after the recording has no arena. */
		if (!asked_whether_over && !is_recording())
			on_recording_over();
		asked_whether_over = 1;
		fathom_inside_lost();
		return 0;
	}
	if (t->generation != process->generation) {
		memset(t, 0, sizeof(*t));
		t->tid = call0(SYS_gettid);
		t->closed = &a->closed;
		t->ring = find_ring(a, a->tgid, t->tid);
		t->words = (u64 *)((u8 *)a + RINGS_AT) + (t->ring - a->ring) * RING_WORDS;
		t->generation = process->generation;
		if (t->ring) {
			find_tick();
			measure_reading();
			t->ring->state = 0;
			t->ring->stubs = (u64)fathom_returns;
			t->ring->operations = (u64)t->ops;
			if (!__atomic_load_n(&a->statement_ns[0], __ATOMIC_RELAXED))
				on_first_ring(a);
			fathom_inside_thread(&t->ring->state);
		}
	}
	if (!t->ring)
		__atomic_fetch_add(&a->no_ring, 1, __ATOMIC_RELAXED);
	return t->ring != 0;
}

/* Whether this thread is being recorded. */
static inline int ready(struct thread *t)
{
	if (unlikely(t->generation != __atomic_load_n(&process->generation, __ATOMIC_RELAXED) || !t->ring))
		return enter_thread(t);
	if (likely(!__atomic_load_n(t->closed, __ATOMIC_RELAXED)))
		return 1;
	on_recording_over();
	return 0;
}

/* Whether it is still the same process, after code of the program ran. */
static inline int is_same(const struct thread *t, u64 generation)
{
	return t->generation == generation && __atomic_load_n(&process->generation, __ATOMIC_RELAXED) == generation;
}

static u64 innermost_function(const struct thread *t)
{
	u64 slot = 0;
	u32 i;

	for (i = 0; i < OPS; i++) {
		if (t->ops[i].open && t->ops[i].kind == OP_FUNCTION && (!slot || t->ops[i].slot < slot))
			slot = t->ops[i].slot;
	}
	return slot;
}

/* Publishes the state that the BPF programs read, in a single word, which is stored after the data that it refers to. */
static inline void publish(struct thread *t)
{
	u64 functions = t->functions, statements = t->open - t->functions;

	if (unlikely(functions))
		t->ring->function = innermost_function(t);
	__atomic_store_n(&t->ring->state, functions << 48 | statements << 32 | t->depth, __ATOMIC_RELAXED);
}

/* Whether a function whose frame began at `entered` has been left, given that a new frame begins at `sp`. */
static inline int was_left(u64 entered, u64 sp)
{
	return entered <= sp && sp - entered < ONE_STACK;
}

/* Reserves space for a record where the ring wraps around, or may be full or not backed by memory. */
static __attribute__((noinline)) u64 *reserve_anew(struct thread *t, u32 words)
{
	struct ring_control *ring = t->ring;
	u64 at = ring->head & (RING_WORDS - 1);
	u64 pad = at + words > RING_WORDS ? RING_WORDS - at : 0;
	u64 start = ring->head + pad;
	u64 full = __atomic_load_n(&ring->tail, __ATOMIC_ACQUIRE) + RING_WORDS;

	if (unlikely(start + words > full)) {
		ring->dropped++;
		return 0;
	}
	while (unlikely(ring->populated < RING_WORDS && ring->populated < start + words)) {
		if (sealed || call3(SYS_madvise, t->words + ring->populated, POPULATE_WORDS * 8, MADV_POPULATE_WRITE)) {
			ring->dropped++;
			return 0;
		}
		ring->populated += POPULATE_WORDS;
	}
	if (pad) {
		t->words[at] = pad;
		__atomic_store_n(&ring->head, start, __ATOMIC_RELEASE);
	}
	t->until = (start | (RING_WORDS - 1)) + 1;
	if (full < t->until)
		t->until = full;
	if (ring->populated < RING_WORDS && ring->populated < t->until)
		t->until = ring->populated;
	return t->words + (start & (RING_WORDS - 1));
}

/* Reserves space for a record; null if there is none. */
static inline u64 *reserve(struct thread *t, u32 words)
{
	u64 head = t->ring->head;

	if (unlikely(head + words > t->until))
		return reserve_anew(t, words);
	return t->words + (head & (RING_WORDS - 1));
}

/* Passes a record to the recorder. */
static inline void submit(struct thread *t, u32 words)
{
	__atomic_store_n(&t->ring->head, t->ring->head + words, __ATOMIC_RELEASE);
}

static inline u64 first_word(const struct thread *t, u32 words, u64 kind, u64 flags)
{
	return words | kind << RECORD_KIND_SHIFT | flags << RECORD_FLAGS_SHIFT |
	       (u64)(current_cpu() & 0xfff) << RECORD_CPU_SHIFT | t->tid << RECORD_TID_SHIFT;
}

/*
 * Calls by a signal handler while its thread changes these fields are not recorded: the handler would see a half-done change. A handler
 * that exits by longjmp leaves the mark set; the stack pointer is then above it again.
 */
static inline int begin_change(struct thread *t, u64 sp)
{
	if (unlikely(t->busy && !was_left(t->busy, sp))) {
		t->ring->dropped++;
		return 0;
	}
	t->busy = sp;
	asm volatile("" : : : "memory");
	/* Unless what follows finds otherwise. */
	t->plain = 0;
	return 1;
}

static inline void end_change(struct thread *t)
{
	asm volatile("" : : : "memory");
	t->busy = 0;
}

static struct op *find_op(struct thread *t, u64 stmt, u32 kind)
{
	u32 others = t->open;
	u32 i;

	for (i = 0; others && i < OPS; i++) {
		if (!t->ops[i].open)
			continue;
		if (t->ops[i].stmt == stmt && t->ops[i].kind == kind)
			return &t->ops[i];
		others--;
	}
	return 0;
}

static void tell_begin(struct thread *t, const struct op *op)
{
	u64 *r = reserve(t, 4);

	if (unlikely(!r))
		return;
	r[0] = first_word(t, 4, RECORD_OP_BEGIN, 0);
	r[1] = op->start_ns;
	r[2] = op->stmt;
	/* Statements that wait between their rows do not count: executions that begin meanwhile are not nested in them. */
	r[3] = op->kind | (u64)(t->depth + t->functions + t->functions_gone + 1) << 32;
	submit(t, 4);
}

static inline u32 tag_of(u64 hash)
{
	return (u32)(hash * 0x9e3779b97f4a7c15UL >> 32) | 1;
}

static inline struct sample *place_of_sample(struct thread *t, u32 tag)
{
	return &t->samples[tag >> 1 & (SAMPLES - 1)];
}

static struct sample *sample_of(struct thread *t, u32 tag)
{
	struct sample *s = place_of_sample(t, tag);

	if (unlikely(s->of != tag)) {
		memset(s, 0, sizeof(*s));
		s->of = tag;
	}
	return s;
}

/* Passes over the next `steps` steps, of which the current one is the first. */
static inline void pass(struct op *op, u32 steps)
{
	op->batch = steps;
	op->left = steps ? steps - 1 : 0;
	op->tick = *tick_at;
	op->ticks_steps = 0;
	op->ticks_gaps = 0;
}

static inline void note_tick(struct op *op, u32 *sum)
{
	u32 tick = *tick_at;

	if (unlikely(tick != op->tick)) {
		*sum += ticks_between(op->tick, tick);
		op->tick = tick;
	}
}

/* Counts the steps that were passed over; the last of them returned a row if `is_row`. */
static inline void settle_passed(struct thread *t, struct op *op, struct sample *s, u64 now, int in_step, int is_row)
{
	u32 passed = op->batch - op->left;

	op->inside_cycles +=
		divide(s, &t->switches, now - op->at, passed, passed - in_step, op->ticks_steps, op->ticks_gaps);
	op->steps += passed;
	op->rows += passed - !is_row;
	op->batch = op->left = 0;
	count_seen(s, passed);
}

/* Begins a step that is not the first. */
static void begin_inside(struct thread *t, struct op *op)
{
	struct sample *s;
	u64 now;

	if (op->left) {
		op->left--;
		note_tick(op, &op->ticks_gaps);
		return;
	}
	now = cycles();
	s = sample_of(t, op->tag);
	if (op->batch) {
		settle_passed(t, op, s, now, 0, 1);
	} else {
		count_gap(s, now - op->at);
		pass(op, pass_over(s));
	}
	op->at = now;
}

/* Ends a step that is not the last, and returned a row if `is_row`. */
static void end_inside(struct thread *t, struct op *op, int is_row)
{
	struct sample *s;
	u64 now;

	if (op->batch) {
		note_tick(op, &op->ticks_steps);
		/* Will be counted among those with a row. */
		op->rows -= !is_row;
		return;
	}
	now = cycles();
	s = sample_of(t, op->tag);
	op->inside_cycles += now - op->at;
	op->steps++;
	op->rows += is_row;
	count_step(s, now - op->at);
	count_seen(s, 1);
	op->at = now;
}

/* Ends an execution's last step, which returned no row, or the gap after it. */
static void settle_steps(struct thread *t, struct op *op, u64 now, int in_step)
{
	u64 took = now - op->at;
	u32 left = op->left;
	struct sample *s;

	/* A single step takes the whole time. */
	if (in_step && !op->steps && op->batch - left <= 1) {
		op->inside_cycles = took;
		op->steps = 1;
		return;
	}
	s = sample_of(t, op->tag);
	if (op->batch) {
		note_tick(op, in_step ? &op->ticks_steps : &op->ticks_gaps);
		settle_passed(t, op, s, now, in_step, !in_step);
		s->left = (u16)left;
		return;
	}
	if (in_step) {
		op->inside_cycles += took;
		op->steps++;
		count_step(s, took);
		count_seen(s, 1);
	} else {
		count_gap(s, took);
	}
	s->left = (u16)pass_over(s);
}

/*
 * Converts the cycles of an execution's steps to nanoseconds: by the ratio over its whole duration, if the counter's rate is not known or
 * the gaps are long.
 */
static u64 inside_ns(const struct thread *t, const struct op *op, u64 now, u64 now_cycles)
{
	u64 all = now_cycles - op->start_cycles;
	u64 ns = now - op->start_ns;
	u64 gaps = all - op->inside_cycles;

	if (op->kind == OP_FUNCTION || op->inside_cycles >= all)
		return ns;
	if (unlikely(!t->clock.rate || gaps > PAIRED_CYCLES_MAX))
		return share(op->inside_cycles, ns, all);
	gaps = gaps * t->clock.rate >> 32;
	return ns > gaps ? ns - gaps : 0;
}

/* Whether a step of a statement is under way. */
static int is_inside(const struct thread *t, u64 stmt)
{
	u32 i;

	for (i = 0; i < t->depth && i < OPS; i++) {
		if (t->inside[i] == stmt)
			return 1;
	}
	return 0;
}

/*
 * `kind` as in the record `op_end`; `in_step`: at the end of a step, which took up to now; `counters`: of the SQLite whose statement this is,
 * if the statement is known to exist.
 */
static void end_op(struct thread *t, struct op *op, s32 result, u32 kind, int in_step, struct counters *counters)
{
	u64 now_cycles = cycles(), now = time_of(&t->clock, now_cycles), words, *r;
	struct counts counts;

	if (now < op->start_ns)
		now = op->start_ns;
	if (op->kind == OP_STATEMENT)
		settle_steps(t, op, now_cycles, in_step);
	read_counts(counters, op->stmt, &counts);
	words = counts.known ? COUNTED_END_WORDS : OP_END_WORDS;
	r = reserve(t, words);
	if (likely(r)) {
		r[0] = first_word(t, words, RECORD_OP_END, 0);
		r[1] = now;
		r[2] = op->stmt;
		r[3] = op->start_ns;
		r[4] = op->rows;
		r[5] = op->steps;
		r[6] = kind == OP_LEFT ? 0 : inside_ns(t, op, now, now_cycles);
		r[7] = (u32)result | (u64)kind << 32;
		if (counts.known)
			put_growth(r + OP_END_WORDS, &t->before[op - t->ops], &counts);
		submit(t, words);
	}
	op->open = 0;
	t->open--;
	if (op->kind == OP_FUNCTION) {
		t->functions--;
		t->functions_gone += kind == OP_GAVE_WAY;
	}
}

static inline struct known *known_of(struct thread *t, u64 stmt)
{
	return &t->known[(stmt >> 4 ^ stmt >> 10) & (KNOWN_STATEMENTS - 1)];
}

/* Begins an execution, a statement's with its first step. */
static struct op *begin_op(struct thread *t, u64 stmt, u32 kind)
{
	const struct known *known = known_of(t, stmt);
	struct op *op = &t->ops[0];
	const struct sample *s;
	u32 i;

	/* A free slot, else displace the execution that has been open longest: it may have been left open for good. */
	for (i = 1; i < OPS && op->open; i++) {
		if (!t->ops[i].open || t->ops[i].start_ns < op->start_ns)
			op = &t->ops[i];
	}
	if (op->open) {
		t->any_gone = 1;
		end_op(t, op, 0, OP_GAVE_WAY, op->kind == OP_STATEMENT && is_inside(t, op->stmt), 0);
	}
	op->stmt = stmt;
	op->kind = kind;
	op->rows = 0;
	op->steps = 0;
	op->inside_cycles = 0;
	op->tag = known->stmt == stmt ? known->tag : tag_of(stmt);
	s = place_of_sample(t, op->tag);
	pass(op, kind == OP_STATEMENT && s->of == op->tag ? s->left : 0);
	op->start_cycles = cycles();
	op->at = op->start_cycles;
	op->start_ns = time_of(&t->clock, op->start_cycles);
	/* The longest open function is the outermost, so displaced ones run as long as any function is open. */
	if (!t->functions)
		t->functions_gone = 0;
	tell_begin(t, op);
	op->open = 1;
	t->open++;
	t->functions += kind == OP_FUNCTION;
	return op;
}

/* Whether statements are open but no step is running. */
static inline int between_rows(const struct thread *t)
{
	return t->open > t->functions && !t->depth;
}

/* `most` limits the length of a text that is not zero-terminated; 0: it is. Returns the tag of the text, by which statements are alike. */
static u32 tell_statement(struct thread *t, u64 stmt, const char *text, u64 most, u64 start_ns, s32 result)
{
	u64 length = 0, cut = 0, hash = 0, words, i, *r;

	if (text)
		length = text_length(text, most && most < LONGEST_TEXT ? most : LONGEST_TEXT);
	cut = length == LONGEST_TEXT;
	words = 5 + (length + 7) / 8;
	r = reserve(t, words);
	if (!r)
		return tag_of(stmt);
	r[0] = first_word(t, words, RECORD_STATEMENT, between_rows(t) ? RECORD_BETWEEN_ROWS : 0);
	r[1] = in_order(&t->clock, clock_ns());
	r[2] = stmt;
	r[3] = start_ns;
	r[4] = (u32)result | cut << 32 | length << 48;
	if (length) {
		r[words - 1] = 0;
		memcpy(r + 5, text, length);
	}
	for (i = 5; i < words; i++)
		hash = (hash ^ r[i]) * 0xff51afd7ed558ccdUL + (hash >> 29);
	submit(t, words);
	return tag_of(length ? hash : stmt);
}

static inline void remember(struct thread *t, u64 stmt, u64 text, u32 tag)
{
	struct known *known = known_of(t, stmt);

	known->stmt = stmt;
	known->text = text;
	known->tag = tag;
}

#endif
