/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SQLite's statements. An execution begins at a statement's first sqlite3_step and ends when a step returns anything except "row",
 * or when the statement is reset or finalised; rows are counted here, never emitted one by one.
 *
 * The attach cookie describes how this SQLite is built: see uprobes.rs, which packs it.
 */

#define SQLITE_ROW 100
/* In the cookie: the call passes its SQL as UTF-16. */
#define PREPARE_UTF16 (1ULL << 56)

/*
 * Statements whose text was emitted. The oldest are evicted and emitted again. A statement's memory is reused for another one;
 * SQLite does not always call the probed finalize, so the text's address and beginning are compared.
 */
struct statement_key {
	u64 stmt;
	u32 tgid;
	u32 pad;
};
struct statement_print {
	u64 text;
	u64 beginning[3];
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct statement_key);
	__type(value, struct statement_print);
} known SEC(".maps");

/* The address of a statement's text; 0: unknown. */
static __always_inline u64 statement_text(u64 stmt, u64 cookie)
{
	u64 offset = cookie & 0xffff;
	u64 text = 0;

	if (offset)
		bpf_probe_read_user(&text, sizeof(text), (void *)(stmt + offset - 1));
	return text;
}

static __always_inline struct statement_print fingerprint(u64 text)
{
	struct statement_print print = { .text = text };

	/* A shorter text ends earlier; the bytes after it are compared too, and at worst the text is emitted again. */
	if (text)
		bpf_probe_read_user(print.beginning, sizeof(print.beginning), (void *)text);
	return print;
}

static __always_inline void remember(struct statement_key *key, u64 text)
{
	struct statement_print print = fingerprint(text);

	bpf_map_update_elem(&known, key, &print, BPF_ANY);
}

static __always_inline bool is_known(struct statement_key *key, u64 text)
{
	struct statement_print *old = bpf_map_lookup_elem(&known, key);
	struct statement_print new = fingerprint(text);

	return old && old->text == new.text && old->beginning[0] == new.beginning[0] &&
	       old->beginning[1] == new.beginning[1] && old->beginning[2] == new.beginning[2];
}

/* `most` is the maximum length of an unterminated text; 0: it ends with a zero. */
static __always_inline void emit_statement(struct who who, u64 stmt, u64 text, u64 most, u64 start_ns, s32 result,
					    u64 now)
{
	struct scratch *s = take_scratch();
	long len = 0;

	if (!s)
		return;
	s->statement.r.flags = 0;
	if (text)
		len = bpf_probe_read_user_str(s->statement.text, TEXT_MAX, (void *)text);
	len = len > 0 ? (len - 1) & (TEXT_MAX - 1) : 0;
	if (len == TEXT_MAX - 1)
		s->statement.r.flags = 1;
	if (most && len > most)
		len = most & (TEXT_MAX - 1);
	s->statement.r.stmt = stmt;
	s->statement.r.start_ns = start_ns;
	s->statement.r.result = result;
	s->statement.r.len = len;
	output(&s->statement, FATHOM_KIND_STATEMENT, sizeof(s->statement.r) + len, now, who);
	put_scratch(s);
}

/* Emits the text of a statement that this thread did not step last, if it was not emitted yet. */
seldom void emit_text(struct slot *slot, u64 stmt, u64 text, u64 now)
{
	struct statement_key key = { .stmt = stmt, .tgid = slot->tgid };

	if (!is_known(&key, text)) {
		remember(&key, text);
		emit_statement(whoami_between(slot), stmt, text, 0, 0, 0, now);
	}
	slot->emitted_stmt = stmt;
	slot->emitted_text = text;
}

/* Whether a statement is in the middle of an execution, as far as that can be read. */
static __always_inline bool runs_already(u64 stmt, u64 cookie)
{
	u16 at = cookie >> 16;
	u8 state;

	if (!at || bpf_probe_read_user(&state, sizeof(state), (void *)(stmt + at - 1)))
		return false;
	return state == (u8)(cookie >> 32);
}

SEC("uprobe")
int PROBE_FUNCTION(sqlite_step)
{
	struct slot *slot = my_slot();
	u64 stmt = PT_REGS_PARM1(ctx);
	struct op *op;
	u64 now, text, cookie;

	if (!slot || !stmt || recorded_inside(slot, ctx))
		return 0;
	now = bpf_ktime_get_boot_ns();
	if (unlikely(between_rows(slot)))
		settle_statements(slot, now);
	settle_before(slot, ctx, now);
	op = find_op(slot, stmt, OP_STATEMENT);
	if (!op) {
		cookie = bpf_get_attach_cookie(ctx);
		/* A displaced execution continues: it is not a new one, and must not displace another. */
		if (unlikely(slot->any_gone) && runs_already(stmt, cookie))
			goto inside;
		text = statement_text(stmt, cookie);
		/* A loop over one statement queries the table only once. */
		if (slot->emitted_stmt != stmt || slot->emitted_text != text)
			emit_text(slot, stmt, text, now);
		op = begin_op(slot, stmt, OP_STATEMENT, now);
		op->running_at = cookie >> 16;
		op->running = cookie >> 32;
	}
	op->steps++;
	op->entered_ns = now;
	op->sp = PT_REGS_SP(ctx);
inside:
	if (slot->depth < OPS)
		slot->inside[slot->depth & (OPS - 1)] = stmt;
	slot->depth++;
	return 0;
}

SEC("uretprobe")
int PROBE_FUNCTION(sqlite_step_return)
{
	struct slot *slot = my_slot();
	s32 result = PT_REGS_RC(ctx);
	struct op *op;
	u32 depth;
	u64 now;

	if (!slot || !slot->depth || recorded_inside(slot, ctx))
		return 0;
	depth = --slot->depth;
	if (depth >= OPS)
		return 0;
	op = find_op(slot, slot->inside[depth & (OPS - 1)], OP_STATEMENT);
	slot->inside[depth & (OPS - 1)] = 0;
	if (!op)
		return 0;
	now = bpf_ktime_get_boot_ns();
	op->inside_ns += now - op->entered_ns;
	if (result == SQLITE_ROW) {
		op->rows++;
		op->left_ns = now;
	} else {
		end_op(slot, op, result, now);
	}
	return 0;
}

static __always_inline void abandon(struct slot *slot, u64 stmt)
{
	struct op *op = find_op(slot, stmt, OP_STATEMENT);
	int i;

	if (!op)
		return;
	/* sqlite3_step itself resets a statement that it prepares again; that is not an end. */
#pragma unroll
	for (i = 0; i < OPS; i++) {
		if (slot->inside[i] == stmt)
			return;
	}
	give_up_op(slot, op, bpf_ktime_get_boot_ns());
}

SEC("uprobe")
int PROBE_FUNCTION(sqlite_reset)
{
	struct slot *slot = my_slot();

	if (slot && slot->ops_open && !recorded_inside(slot, ctx))
		abandon(slot, PT_REGS_PARM1(ctx));
	return 0;
}

SEC("uprobe")
int PROBE_FUNCTION(sqlite_finalize)
{
	struct statement_key key = {};
	struct slot *slot = my_slot();

	if (!slot || recorded_inside(slot, ctx))
		return 0;
	key.stmt = PT_REGS_PARM1(ctx);
	key.tgid = slot->tgid;
	slot->emitted_stmt = 0;
	bpf_map_delete_elem(&known, &key);
	if (slot->ops_open)
		abandon(slot, key.stmt);
	return 0;
}

#define PARAMETERS 8

/* All are read, as the verifier allows no computed offset into the registers. */
static __always_inline void read_parameters(struct pt_regs *ctx, u64 *parameters)
{
	parameters[0] = PT_REGS_PARM1(ctx);
	parameters[1] = PT_REGS_PARM2(ctx);
	parameters[2] = PT_REGS_PARM3(ctx);
	parameters[3] = PT_REGS_PARM4(ctx);
	parameters[4] = PT_REGS_PARM5(ctx);
	parameters[5] = PT_REGS_PARM6(ctx);
}

SEC("uprobe")
int PROBE_FUNCTION(sqlite_prepare)
{
	struct slot *slot = my_slot();
	u64 cookie = bpf_get_attach_cookie(ctx);
	u64 parameters[PARAMETERS] = {};

	struct prepare *p;

	if (!slot || recorded_inside(slot, ctx))
		return 0;
	/* They nest: the first one of a connection reads the schema, through further statements. */
	if (slot->prepares_open < PREPARES) {
		p = &slot->prepares[slot->prepares_open & (PREPARES - 1)];
		read_parameters(ctx, parameters);
		p->start_ns = bpf_ktime_get_boot_ns();
		p->out_stmt = parameters[cookie >> 32 & (PARAMETERS - 1)];
		p->text = parameters[cookie >> 40 & (PARAMETERS - 1)];
		p->length = parameters[cookie >> 48 & (PARAMETERS - 1)];
		p->between_rows = between_rows(slot);
	}
	slot->prepares_open++;
	return 0;
}

SEC("uretprobe")
int PROBE_FUNCTION(sqlite_prepare_return)
{
	struct slot *slot = my_slot();
	struct statement_key key = {};
	struct prepare prepare;
	struct who who = whoami();
	u64 now, text, cookie;
	u64 most = 0;

	if (!slot || !slot->prepares_open || recorded_inside(slot, ctx))
		return 0;
	if (--slot->prepares_open >= PREPARES)
		return 0;
	prepare = slot->prepares[slot->prepares_open & (PREPARES - 1)];
	now = bpf_ktime_get_boot_ns();
	if (prepare.out_stmt)
		bpf_probe_read_user(&key.stmt, sizeof(key.stmt), (void *)prepare.out_stmt);
	/* An empty text or an error prepares nothing. */
	if (!key.stmt)
		return 0;
	key.tgid = slot->tgid;
	cookie = bpf_get_attach_cookie(ctx);
	text = statement_text(key.stmt, cookie);
	remember(&key, text);
	/* Otherwise the caller's text, which may contain further statements; UTF-16 is omitted. */
	if (!text && !(cookie & PREPARE_UTF16)) {
		text = prepare.text;
		if (prepare.length > 0)
			most = prepare.length;
	}
	if (prepare.between_rows)
		who.flags |= FATHOM_HEADER_BETWEEN_ROWS;
	emit_statement(who, key.stmt, text, most, prepare.start_ns, (s32)PT_REGS_RC(ctx), now);
	return 0;
}
