/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests: made, given to the driver, completed. Which bios a request carries is read off it at issue, where merging is
 * over and they hang on one chain; at completion they are gone already.
 */

#define LISTED 4
#define LISTED_MORE 8
#define RQ_BIOS_RECORDS 32

/* flush_issue, which is run for flushes only. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(u32));
	__uint(value_size, sizeof(u32));
} flush_program SEC(".maps");

static __always_inline u32 rq_disk(struct request *rq)
{
	/* rq->part is NULL for the flush machinery's requests. */
	return disk_number(rq->q->disk);
}

static __always_inline u16 rq_flags(struct request *rq)
{
	u32 set = rq->rq_flags;
	u16 flags = op_flags(rq->cmd_flags);
	u32 flush_seq = 1 << 4;
	u32 io_stat = 1 << 13;

	if (bpf_core_enum_value_exists(enum rqf_flags, __RQF_IO_STAT)) {
		flush_seq = 1 << bpf_core_enum_value(enum rqf_flags, __RQF_FLUSH_SEQ);
		io_stat = 1 << bpf_core_enum_value(enum rqf_flags, __RQF_IO_STAT);
	}
	if (set & flush_seq)
		flags |= FATHOM_BIO_FLUSH_SEQUENCE;
	if (set & io_stat)
		flags |= FATHOM_BIO_COUNTED;
	return flags;
}

SEC("tp_btf/block_rq_insert")
int BPF_PROG(rq_insert, struct request *rq)
{
	struct fathom_rq_insert *r = RESERVE(rq_insert, RQ_INSERT, bpf_ktime_get_boot_ns(), whoami());

	if (!r)
		return 0;
	r->rq = (u64)rq;
	r->disk = rq_disk(rq);
	r->pad = 0;
	submit(r);
	return 0;
}

/* The bios that its record has no room for. */
seldom void list_rest(struct request *rq, struct bio *bio, u64 now)
{
	struct fathom_rq_bios *more;
	int i, j;

	for (i = 0; bio && i < RQ_BIOS_RECORDS; i++) {
		more = RESERVE(rq_bios, RQ_BIOS, now, whoami());
		if (!more)
			return;
		more->rq = (u64)rq;
		more->listed = 0;
#pragma unroll
		for (j = 0; j < LISTED_MORE; j++) {
			more->bios[j] = (u64)bio;
			if (bio) {
				more->listed++;
				bio = bio->bi_next;
			}
		}
		submit(more);
	}
}

SEC("tp_btf/block_rq_issue")
int BPF_PROG(rq_issue, struct request *rq)
{
	struct who who = whoami();
	u64 now = bpf_ktime_get_boot_ns();
	u64 made = rq->start_time_ns;
	struct fathom_rq_issue *r;
	struct bio *bio = rq->bio;
	struct bio *rest;
	u32 total = 0;
	int i;

	r = RESERVE(rq_issue, RQ_ISSUE, now, who);
	if (!r)
		return 0;
	r->rq = (u64)rq;
	r->sector = rq->__sector;
	r->alloc_ns = made ? made + boot_offset_ns : 0;
	r->bytes = rq->__data_len;
	r->disk = rq_disk(rq);
	r->op = disk_op(rq->cmd_flags);
	r->flags = rq_flags(rq);
#pragma unroll
	for (i = 0; i < LISTED; i++) {
		r->bios[i] = (u64)bio;
		if (bio) {
			total++;
			bio = bio->bi_next;
		}
	}
	r->listed = total;
	/* Counted to the end first, since the record says how many follow. */
	rest = bio;
	for (i = 0; bio && i < RQ_BIOS_RECORDS * LISTED_MORE; i++) {
		total++;
		bio = bio->bi_next;
	}
	r->total = total;
	submit(r);

	/* Goes on there and does not return; where that program was refused, it goes on here. */
	if ((rq->cmd_flags & 0xff) == 2)
		bpf_tail_call(ctx, &flush_program, 0);

	if (rest)
		list_rest(rq, rest, now);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int BPF_PROG(rq_done, struct request *rq, u32 error, unsigned int bytes)
{
	struct fathom_rq_done *r = RESERVE(rq_done, RQ_DONE, bpf_ktime_get_boot_ns(), nobody());

	if (!r)
		return 0;
	r->rq = (u64)rq;
	r->sector = rq->__sector;
	r->bytes = bytes;
	r->disk = rq_disk(rq);
	r->error = status_error(error);
	r->op = disk_op(rq->cmd_flags);
	/* Told before the request moves on (blk_update_request), so this is what was left of it. */
	r->last = bytes >= rq->__data_len;
	r->flags = rq_flags(rq);
	submit(r);
	return 0;
}
