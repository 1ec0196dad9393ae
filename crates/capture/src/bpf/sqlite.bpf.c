/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * SQLite's statements. An execution begins at a statement's first sqlite3_step and ends when a step says anything but
 * "row", or when the statement is reset or finalised; rows are counted here, never told one by one.
 *
 * The attach cookie says how this SQLite is built: see uprobes.rs, which packs it.
 */

#define SQLITE_ROW 100
/* In the cookie: the call gives its SQL as UTF-16. */
#define PREPARE_UTF16 (1ULL << 56)

/* Statements whose text was told. The oldest are forgotten and told again. */
struct statement_key {
	u64 stmt;
	u32 tgid;
	u32 pad;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct statement_key);
	__type(value, u8);
} known SEC(".maps");

/* Where a statement keeps the pointer to its text; 0: not known. */
static __always_inline u64 statement_text(u64 stmt, u64 cookie)
{
	u64 offset = cookie & 0xffffffff;
	u64 text = 0;

	if (offset)
		bpf_probe_read_user(&text, sizeof(text), (void *)(stmt + offset - 1));
	return text;
}

/* `most` cuts a text that goes on; 0: it ends in a zero. */
static __always_inline void emit_statement(u64 stmt, u64 text, u64 most, u64 start_ns, s32 result, u64 now)
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
	output(&s->statement.r.h, FATHOM_KIND_STATEMENT, sizeof(s->statement.r) + len, now, whoami(),
	       BPF_RB_NO_WAKEUP);
	put_scratch(s);
}

SEC("uprobe")
int sqlite_step(struct pt_regs *ctx)
{
	struct statement_key key = {};
	struct slot *slot = my_slot();
	u64 stmt = PT_REGS_PARM1(ctx);
	struct op *op;
	u8 yes = 1;
	u64 now;

	if (!slot || !stmt)
		return 0;
	now = bpf_ktime_get_boot_ns();
	op = find_op(slot, stmt, OP_STATEMENT);
	if (!op) {
		key.stmt = stmt;
		key.tgid = slot->tgid;
		if (!bpf_map_lookup_elem(&known, &key)) {
			bpf_map_update_elem(&known, &key, &yes, BPF_ANY);
			emit_statement(stmt, statement_text(stmt, bpf_get_attach_cookie(ctx)), 0, 0, 0, now);
		}
		op = begin_op(slot, stmt, OP_STATEMENT, now);
	}
	op->steps++;
	op->entered_ns = now;
	if (slot->depth < OPS)
		slot->inside[slot->depth & (OPS - 1)] = stmt;
	slot->depth++;
	return 0;
}

SEC("uretprobe")
int sqlite_step_return(struct pt_regs *ctx)
{
	struct slot *slot = my_slot();
	s32 result = PT_REGS_RC(ctx);
	struct op *op;
	u32 depth;
	u64 now;

	if (!slot || !slot->depth)
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
	if (result == SQLITE_ROW)
		op->rows++;
	else
		end_op(slot, op, result, now);
	return 0;
}

static __always_inline void abandon(struct slot *slot, u64 stmt)
{
	struct op *op = find_op(slot, stmt, OP_STATEMENT);
	int i;

	if (!op)
		return;
	/* sqlite3_step itself resets a statement that it prepares anew; that is no end. */
#pragma unroll
	for (i = 0; i < OPS; i++) {
		if (slot->inside[i] == stmt)
			return;
	}
	end_op(slot, op, 0, bpf_ktime_get_boot_ns());
}

SEC("uprobe")
int sqlite_reset(struct pt_regs *ctx)
{
	struct slot *slot = my_slot();

	if (slot && slot->ops_open)
		abandon(slot, PT_REGS_PARM1(ctx));
	return 0;
}

SEC("uprobe")
int sqlite_finalize(struct pt_regs *ctx)
{
	struct statement_key key = {};
	struct slot *slot = my_slot();

	if (!slot)
		return 0;
	key.stmt = PT_REGS_PARM1(ctx);
	key.tgid = slot->tgid;
	bpf_map_delete_elem(&known, &key);
	if (slot->ops_open)
		abandon(slot, key.stmt);
	return 0;
}

static __always_inline u64 parameter(struct pt_regs *ctx, u8 index)
{
	switch (index) {
	case 0:
		return PT_REGS_PARM1(ctx);
	case 1:
		return PT_REGS_PARM2(ctx);
	case 2:
		return PT_REGS_PARM3(ctx);
	case 3:
		return PT_REGS_PARM4(ctx);
	case 4:
		return PT_REGS_PARM5(ctx);
	case 5:
		return PT_REGS_PARM6(ctx);
	default:
		return 0;
	}
}

SEC("uprobe")
int sqlite_prepare(struct pt_regs *ctx)
{
	struct slot *slot = my_slot();
	u64 cookie = bpf_get_attach_cookie(ctx);

	/* One that is wrapped in another (prepare_v2 over LockAndPrepare) is the outer one's. */
	if (!slot || slot->prepare.start_ns)
		return 0;
	slot->prepare.start_ns = bpf_ktime_get_boot_ns();
	slot->prepare.out_stmt = parameter(ctx, cookie >> 32);
	slot->prepare.text = parameter(ctx, cookie >> 40);
	slot->prepare.length = parameter(ctx, cookie >> 48);
	return 0;
}

SEC("uretprobe")
int sqlite_prepare_return(struct pt_regs *ctx)
{
	struct slot *slot = my_slot();
	struct statement_key key = {};
	struct prepare prepare;
	u64 now, text, cookie;
	u64 most = 0;
	u8 yes = 1;

	if (!slot || !slot->prepare.start_ns)
		return 0;
	prepare = slot->prepare;
	slot->prepare.start_ns = 0;
	now = bpf_ktime_get_boot_ns();
	if (prepare.out_stmt)
		bpf_probe_read_user(&key.stmt, sizeof(key.stmt), (void *)prepare.out_stmt);
	/* An empty text or an error prepares nothing. */
	if (!key.stmt)
		return 0;
	key.tgid = slot->tgid;
	bpf_map_update_elem(&known, &key, &yes, BPF_ANY);
	cookie = bpf_get_attach_cookie(ctx);
	text = statement_text(key.stmt, cookie);
	/* Else what the caller gave, which may hold further statements; UTF-16 is left out. */
	if (!text && !(cookie & PREPARE_UTF16)) {
		text = prepare.text;
		if (prepare.length > 0)
			most = prepare.length;
	}
	emit_statement(key.stmt, text, most, prepare.start_ns, (s32)PT_REGS_RC(ctx), now);
	return 0;
}
