/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Records SQLite's functions, as sqlite.bpf.c of crate `capture` does at uprobes. An execution begins at a statement's first step and
 * ends when a step returns anything but SQLITE_ROW, or when the statement is reset or finalised.
 *
 * The clock is read at an execution's begin and end. The time of its steps is counted in cycles, of many of them by samples (sample.h).
 */
#ifndef FATHOM_INSIDE_SQLITE_H
#define FATHOM_INSIDE_SQLITE_H

#include "site.h"
#include "stubs.h"

#define SQLITE_ROW 100

static inline const char *statement_text(const void *stmt, const struct site *site)
{
	u64 at = site->library->text_at;

	return at ? *(const char *const *)((const u8 *)stmt + at - 1) : 0;
}

/* Whether a statement is known to be in the middle of an execution. */
static inline int runs_already(const void *stmt, const struct site *site)
{
	u64 at = site->library->running_at;

	return at && ((const u8 *)stmt)[at - 1] == site->library->running;
}

/* Ends steps that were left without returning (longjmp, an exception): the stack pointer is above them. */
static inline void settle_left(struct thread *t, u64 sp)
{
	while (t->depth) {
		u32 last = t->depth < OPS ? t->depth - 1 : OPS - 1;
		struct op *op;

		if (likely(!was_left(t->inside_sp[last], sp)))
			break;
		/* Steps too deep to be tracked are nested in this one, hence left too. */
		t->depth = last;
		op = find_op(t, t->inside[last], OP_STATEMENT);
		t->inside[last] = 0;
		if (op)
			end_inside(t, op, 0);
	}
}

static struct op *op_of_step(struct thread *t, void *stmt, const struct site *site)
{
	struct op *op = find_op(t, (u64)stmt, OP_STATEMENT);
	struct counts before;
	const char *text;

	if (op) {
		begin_inside(t, op);
		return op;
	}
	/* A displaced execution continues: it is not a new one, and must not displace another. */
	if (unlikely(t->any_gone) && runs_already(stmt, site))
		return 0;
	text = statement_text(stmt, site);
	if (unlikely(known_of(t, (u64)stmt)->stmt != (u64)stmt || known_of(t, (u64)stmt)->text != (u64)text)) {
		remember(t, (u64)stmt, (u64)text, tell_statement(t, (u64)stmt, text, 0, 0, 0));
	}
	/* Before its time begins. */
	read_counts(site->counters, (u64)stmt, &before);
	op = begin_op(t, (u64)stmt, OP_STATEMENT);
	t->before[op - t->ops] = before;
	return op;
}

/* Begins to record a step. Returns whether it is recorded. */
static inline __attribute__((always_inline)) int begin_step(struct thread *t, const void *stmt, u64 sp)
{
	return t && stmt && ready(t) && begin_change(t, sp);
}

/*
 * Leaves a hook by a tail call, where the return is not needed: nothing returns here, so that the object can be removed from the process.
 */
typedef s32 (*hook_function)(void *, const struct site *, struct thread *);
#define TAIL_CALL(function, stmt, site, t) __attribute__((musttail)) return (function)(stmt, site, t)
#define LEAVE_TO(site, stmt, t) TAIL_CALL((hook_function)(site)->real, stmt, site, t)

/* The next step is a plain one if this one was at the outermost level, and the next need not be timed. */
static inline void expect_plain(struct thread *t, struct op *op, u64 stmt)
{
	if (t->depth || t->functions || !op->left)
		return;
	t->plain_op = op;
	t->plain_state = (u64)t->open << 32;
	t->plain = stmt;
}

static inline int is_execution_of(const struct op *op, const void *stmt)
{
	return op->stmt == (u64)stmt && op->open && op->kind == OP_STATEMENT;
}

/* `op`: the execution, unless it has ended or another took its place meanwhile. */
static __attribute__((noinline)) void end_step(struct thread *t, struct op *op, void *stmt, s32 result, u64 sp, u32 depth,
					       const struct site *site)
{
	t->busy = sp;
	t->plain = 0;
	t->depth = depth;
	if (depth < OPS) {
		t->inside[depth] = 0;
		if (unlikely(!op || !is_execution_of(op, stmt)))
			op = find_op(t, (u64)stmt, OP_STATEMENT);
		if (op && result == SQLITE_ROW) {
			end_inside(t, op, 1);
			expect_plain(t, op, (u64)stmt);
		} else if (op) {
			end_op(t, op, result, OP_STATEMENT, 1, site->counters);
		}
	}
	publish(t);
	end_change(t);
}

static inline __attribute__((always_inline)) s32 record_step(struct thread *t, void *stmt, const struct site *site)
{
	s32 (*real)(void *) = (s32(*)(void *))site->real;
	u64 sp = HOOK_STACK;
	u64 generation = t->generation;
	struct op *op;
	u32 depth;
	s32 result;

	settle_left(t, sp);
	/* The step's own return address is above the start of its frame. */
	if (unlikely(t->functions))
		settle_functions(t, sp + 8);
	op = op_of_step(t, stmt, site);
	depth = t->depth;
	if (depth < OPS) {
		t->inside[depth] = (u64)stmt;
		t->inside_sp[depth] = sp;
	}
	t->depth = depth + 1;
	publish(t);
	end_change(t);

	result = real(stmt);

	/* A user function that the statement called may have forked. */
	if (likely(is_same(t, generation)))
		end_step(t, op, stmt, result, sp, depth, site);
	return result;
}

/*
 * A plain step is one that only has to be counted: another than the first and the last of its execution, at the outermost level, of a
 * batch that is passed over (sample.h). Rows that come from the cache take less time than everything else above and below, so it has a
 * path of its own. Any other change of the thread's state ends it (begin_change).
 */
#define IN_PLAIN_STEP 1

/* Returns whether the step is a plain one. */
static inline __attribute__((always_inline)) int begin_plain_step(struct thread *t, u64 stmt, u64 sp)
{
	struct op *op;

	if (t->busy || t->generation != __atomic_load_n(&process->generation, __ATOMIC_RELAXED) ||
	    __atomic_load_n(t->closed, __ATOMIC_RELAXED))
		return 0;
	t->busy = sp;
	asm volatile("" : : : "memory");
	/* A signal's handler may have come first. */
	if (unlikely(t->plain != stmt)) {
		end_change(t);
		return 0;
	}
	op = t->plain_op;
	op->left--;
	note_tick(op, &op->ticks_gaps);
	t->plain = IN_PLAIN_STEP;
	t->inside[0] = stmt;
	t->inside_sp[0] = sp;
	t->depth = 1;
	__atomic_store_n(&t->ring->state, t->plain_state + 1, __ATOMIC_RELAXED);
	end_change(t);
	return 1;
}

static inline __attribute__((always_inline)) void end_plain_step(struct thread *t, void *stmt, s32 result, u64 sp,
								  const struct site *site)
{
	struct op *op = t->plain_op;

	t->busy = sp;
	asm volatile("" : : : "memory");
	if (unlikely(t->plain != IN_PLAIN_STEP || result != SQLITE_ROW)) {
		end_step(t, op, stmt, result, sp, 0, site);
		return;
	}
	note_tick(op, &op->ticks_steps);
	t->inside[0] = 0;
	t->depth = 0;
	t->plain = op->left ? (u64)stmt : 0;
	__atomic_store_n(&t->ring->state, t->plain_state, __ATOMIC_RELAXED);
	end_change(t);
}

static __attribute__((noinline)) s32 step_otherwise(void *stmt, const struct site *site, struct thread *t)
{
	if (unlikely(!begin_step(t, stmt, HOOK_STACK)))
		LEAVE_TO(site, stmt, t);
	return record_step(t, stmt, site);
}

static __attribute__((noinline)) s32 step_plainly(void *stmt, const struct site *site, struct thread *t)
{
	u64 sp = HOOK_STACK, generation = t->generation;
	s32 result;

	if (unlikely(!begin_plain_step(t, (u64)stmt, sp)))
		TAIL_CALL(step_otherwise, stmt, site, t);
	result = ((s32(*)(void *))site->real)(stmt);
	if (likely(is_same(t, generation)))
		end_plain_step(t, stmt, result, sp, site);
	return result;
}

static __attribute__((noinline)) s32 step_attached(void *stmt, const struct site *site, struct thread *t)
{
	t = own_thread();
	if (t && stmt && t->plain == (u64)stmt)
		TAIL_CALL(step_plainly, stmt, site, t);
	TAIL_CALL(step_otherwise, stmt, site, t);
}

/* The last parameter is there for the tail calls; nothing is passed. */
__attribute__((used)) hidden s32 fathom_hook_step(void *stmt, const struct site *site, struct thread *t)
{
	/* Without a call, it needs no frame. */
	if (unlikely(is_attached()))
		TAIL_CALL(step_attached, stmt, site, t);
	t = &self;
	if (likely(stmt && t->plain == (u64)stmt))
		TAIL_CALL(step_plainly, stmt, site, t);
	TAIL_CALL(step_otherwise, stmt, site, t);
}

/* Ends the execution of a statement that is reset or finalised. */
static void abandon(struct thread *t, u64 stmt, const struct site *site)
{
	struct op *op = find_op(t, stmt, OP_STATEMENT);

	/* sqlite3_step itself resets a statement that it reprepares; the execution does not end there. */
	if (!op || is_inside(t, stmt))
		return;
	end_op(t, op, 0, OP_STATEMENT, 0, site->counters);
	publish(t);
}

__attribute__((used)) hidden s32 fathom_hook_reset(void *stmt, const struct site *site, struct thread *t)
{
	u64 sp = HOOK_STACK;

	t = own_thread();
	if (t && t->open && ready(t) && begin_change(t, sp)) {
		settle_left(t, sp);
		abandon(t, (u64)stmt, site);
		end_change(t);
	}
	LEAVE_TO(site, stmt, t);
}

typedef s32 (*prepare_function)(u64, u64, u64, u64, u64, u64);

/* Counts this call, so that the recorder does not remove the object before the call has returned here, on whatever stack. */
static inline s32 prepare_within(prepare_function real, const u64 *a)
{
	u64 *count = &fathom_attached.preparing;
	s32 result;

	/* An object that the loader loaded is never removed. */
	if (!fathom_attached.pid)
		return real(a[0], a[1], a[2], a[3], a[4], a[5]);
	__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	result = real(a[0], a[1], a[2], a[3], a[4], a[5]);
	__atomic_fetch_sub(count, 1, __ATOMIC_RELAXED);
	return result;
}

__attribute__((used)) hidden s32 fathom_hook_prepare(u64 a, u64 b, u64 c, u64 d, u64 e, u64 f, const struct site *site)
{
	prepare_function real = (prepare_function)site->real;
	const struct plan_function *function = site->function;
	u64 arguments[6] = { a, b, c, d, e, f };
	struct thread *t = own_thread();
	void **out = (void **)arguments[function->stmt_arg % 6];
	u64 start_ns, generation, most = 0;
	const char *text, *own;
	void *stmt;
	s32 result;

	if (!out || !t || !ready(t))
		return prepare_within(real, arguments);
	generation = t->generation;
	start_ns = clock_ns();
	result = prepare_within(real, arguments);
	stmt = *out;
	/* An empty text or an error prepares nothing. */
	if (!stmt || !is_same(t, generation) || !begin_change(t, HOOK_STACK))
		return result;
	settle_left(t, HOOK_STACK);
	own = text = statement_text(stmt, site);
	/* Otherwise use the caller's text, which may contain further statements; UTF-16 is skipped. */
	if (!text && !function->utf16) {
		text = (const char *)arguments[function->sql_arg % 6];
		if ((s32)arguments[function->length_arg % 6] > 0)
			most = (u32)arguments[function->length_arg % 6];
	}
	remember(t, (u64)stmt, (u64)own, tell_statement(t, (u64)stmt, text, most, start_ns, result));
	end_change(t);
	return result;
}

#endif
