/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Requests: created, passed to the driver, completed. The bios that a request carries are read at issue, when merging is over and
 * they are on one chain; at completion they are no longer there.
 */

/* Number of bios listed by flush_issue. */
#define LISTED 4
/* Number of bios listed by rq_issue, packed; user space makes an rq_bios record of those that do not fit in its own. */
#define PACKED_BIOS 12
#define LISTED_MORE 8
#define RQ_BIOS_RECORDS 32

/* flush_issue, which is run only for flushes. */
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
int PROBE(rq_insert, struct request *rq)
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

/*
 * Emits the bios that do not fit in the request's record. Not static, so that the verifier checks it once and not after each way of
 * counting them; hence addresses.
 */
__attribute__((noinline)) int list_rest(u64 rq, u64 bio, u64 now)
{
	struct fathom_rq_bios *more;
	int i, j;

	for (i = 0; bio && i < RQ_BIOS_RECORDS; i++) {
		more = RESERVE(rq_bios, RQ_BIOS, now, whoami());
		if (!more)
			return 0;
		more->rq = rq;
		more->listed = 0;
#pragma unroll
		for (j = 0; j < LISTED_MORE; j++) {
			more->bios[j] = bio;
			if (bio) {
				more->listed++;
				bio = (u64)BPF_CORE_READ((struct bio *)bio, bi_next);
			}
		}
		submit(more);
	}
	return 0;
}

/* An address as a mere number. Through the ring's memory, since the verifier tracks values on the stack. */
static __always_inline u64 number_of(u64 *scratch, void *address)
{
	*(volatile u64 *)scratch = (u64)address;
	return *(volatile u64 *)scratch;
}

/*
 * One after the other, unrolled by hand: in a loop the compiler keeps them all on the stack. The chain is followed twice, and does
 * not change meanwhile: an issued request is no longer merged. If it did, some would be emitted as 0.
 */
#define TAKE_BIO(n)                                                                                                    \
	if (!bio)                                                                                                      \
		goto taken;                                                                                            \
	listed = n + 1;                                                                                                \
	bio = bio->bi_next
#define PUT_BIO(n)                                                                                                     \
	if (n >= listed)                                                                                               \
		goto put;                                                                                              \
	put_with_byte(&r[4 + n], (u64)bio, 0);                                                                          \
	if (bio)                                                                                                       \
		bio = bio->bi_next

SEC("tp_btf/block_rq_issue")
int PROBE(rq_issue, struct request *rq)
{
	struct who who = whoami();
	u64 now = bpf_ktime_get_boot_ns();
	u64 made = rq->start_time_ns;
	struct bio *bio = rq->bio;
	u64 first = 0, rq_address = 0;
	u32 listed = 0;
	u32 more = 0;
	u64 *r;
	int i;

	TAKE_BIO(0); TAKE_BIO(1); TAKE_BIO(2); TAKE_BIO(3); TAKE_BIO(4); TAKE_BIO(5);
	TAKE_BIO(6); TAKE_BIO(7); TAKE_BIO(8); TAKE_BIO(9); TAKE_BIO(10); TAKE_BIO(11);
taken:
	/* Otherwise the compiler duplicates all following code for each count. */
	asm volatile("" : "+r"(listed));
	r = ring_reserve(PACKED_RQ_ISSUE, 4 + listed, now, who, 0);
	if (!r)
		return 0;
	bio = rq->bio;
	PUT_BIO(0); PUT_BIO(1); PUT_BIO(2); PUT_BIO(3); PUT_BIO(4); PUT_BIO(5);
	PUT_BIO(6); PUT_BIO(7); PUT_BIO(8); PUT_BIO(9); PUT_BIO(10); PUT_BIO(11);
put:
	put_with_byte(&r[1], rq->__sector, disk_op(rq->cmd_flags));
	r[2] = two_words(rq->__data_len, rq_disk(rq));
	if (unlikely(bio)) {
		rq_address = number_of(&r[0], rq);
		first = number_of(&r[0], bio);
		for (i = 0; bio && i < RQ_BIOS_RECORDS * LISTED_MORE; i++) {
			more++;
			bio = bio->bi_next;
		}
		((volatile u8 *)&r[4])[7] = more;
		((volatile u8 *)&r[5])[7] = more >> 8;
	}
	r[3] = made ? made + boot_offset_ns : 0;
	put_with_byte(&r[0], (u64)rq, rq_flags(rq));
	submit(r);

	/* Continues there and does not return; if that program was refused, it continues here. */
	if ((rq->cmd_flags & 0xff) == 2)
		bpf_tail_call(ctx, &flush_program, 0);

	if (unlikely(more))
		list_rest(rq_address, first, now);
	return 0;
}

SEC("tp_btf/block_rq_complete")
int PROBE(rq_done, struct request *rq, u32 error, unsigned int bytes)
{
	s32 number = status_error(error);
	/* Fires before the request advances (blk_update_request), so this is what was left of it. */
	bool last = bytes >= rq->__data_len;
	u64 *r = ring_reserve(PACKED_RQ_DONE, number ? 4 : 3, bpf_ktime_get_boot_ns(), no_task(), 0);

	if (!r)
		return 0;
	put_with_byte(&r[0], (u64)rq, rq_flags(rq));
	put_with_byte(&r[1], rq->__sector, last << 7 | disk_op(rq->cmd_flags));
	r[2] = two_words(bytes, rq_disk(rq));
	if (number)
		r[3] = (u32)number;
	submit(r);
	return 0;
}
