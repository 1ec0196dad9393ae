/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Records SQLite's functions, as sqlite.bpf.c of crate `capture` does at uprobes. An execution begins at a statement's first step and
 * ends when a step returns anything but SQLITE_ROW, or when the statement is reset or finalised.
 *
 * The clock is read at an execution's begin and end. The time of its steps is counted in cycles.
 */
#ifndef FATHOM_INSIDE_SQLITE_H
#define FATHOM_INSIDE_SQLITE_H

#define SQLITE_ROW 100

/* Alignment of the memory that starts with the sites. */
#define SITES_ALIGNED (1UL << 20)

/* A patched function, as its stub passes it to the code below. */
struct site {
	void *real; /* the trampoline: runs the original function */
	void *hook;
	const struct plan_library *library;
	const struct plan_function *function;
};

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

static void settle_functions(struct thread *t, u64 slot);

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
			op->inside_cycles += cycles() - op->entered;
	}
}

static inline struct op *op_of_step(struct thread *t, void *stmt, const struct site *site)
{
	struct op *op = find_op(t, (u64)stmt, OP_STATEMENT);
	const char *text;

	if (likely(op)) {
		op->entered = cycles();
		return op;
	}
	/* A displaced execution continues: it is not a new one, and must not displace another. */
	if (unlikely(t->any_gone) && runs_already(stmt, site))
		return 0;
	text = statement_text(stmt, site);
	if (unlikely(known_of(t, (u64)stmt)->stmt != (u64)stmt || known_of(t, (u64)stmt)->text != (u64)text)) {
		tell_statement(t, (u64)stmt, text, 0, 0, 0);
		remember(t, (u64)stmt, (u64)text);
	}
	return begin_op(t, (u64)stmt, OP_STATEMENT);
}

/* Begins to record a step. Returns whether it is recorded. */
static inline __attribute__((always_inline)) int begin_step(struct thread *t, const void *stmt, u64 sp)
{
	return t && stmt && ready(t) && begin_change(t, sp);
}

/*
 * Leaves a hook by a tail call, where the return is not needed: nothing returns here, so that the object can be removed from the process.
 */
typedef s32 (*hook_function)(void *, const struct site *);
#define LEAVE_TO(site, stmt) __attribute__((musttail)) return ((hook_function)(site)->real)(stmt, site)

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
	if (op)
		op->steps++;
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
	if (unlikely(!is_same(t, generation)))
		return result;
	t->busy = sp;
	t->depth = depth;
	if (depth < OPS) {
		t->inside[depth] = 0;
		op = find_op(t, (u64)stmt, OP_STATEMENT);
		if (likely(op)) {
			op->inside_cycles += cycles() - op->entered;
			if (result == SQLITE_ROW)
				op->rows++;
			else
				end_op(t, op, result, OP_STATEMENT);
		}
	}
	publish(t);
	end_change(t);
	return result;
}

__attribute__((used)) hidden s32 fathom_hook_step(void *stmt, const struct site *site)
{
	struct thread *t = own_thread();

	if (unlikely(!begin_step(t, stmt, HOOK_STACK)))
		LEAVE_TO(site, stmt);
	return record_step(t, stmt, site);
}

/* Ends the execution of a statement that is reset or finalised. */
static void abandon(struct thread *t, u64 stmt)
{
	struct op *op = find_op(t, stmt, OP_STATEMENT);
	u32 i;

	if (!op)
		return;
	/* sqlite3_step itself resets a statement that it reprepares; the execution does not end there. */
	for (i = 0; i < t->depth && i < OPS; i++) {
		if (t->inside[i] == stmt)
			return;
	}
	end_op(t, op, 0, OP_STATEMENT);
	publish(t);
}

__attribute__((used)) hidden s32 fathom_hook_reset(void *stmt, const struct site *site)
{
	u64 sp = HOOK_STACK;
	struct thread *t = own_thread();

	if (t && t->open && ready(t) && begin_change(t, sp)) {
		settle_left(t, sp);
		abandon(t, (u64)stmt);
		end_change(t);
	}
	LEAVE_TO(site, stmt);
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
	const char *text;
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
	text = statement_text(stmt, site);
	remember(t, (u64)stmt, (u64)text);
	/* Otherwise use the caller's text, which may contain further statements; UTF-16 is skipped. */
	if (!text && !function->utf16) {
		text = (const char *)arguments[function->sql_arg % 6];
		if ((s32)arguments[function->length_arg % 6] > 0)
			most = (u32)arguments[function->length_arg % 6];
	}
	tell_statement(t, (u64)stmt, text, most, start_ns, result);
	end_change(t);
	return result;
}

#endif
