/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Who waits for a flush. A disk's queue has one flush request, shared by all that need one at that moment (block/blk-flush.c): it
 * carries no bio, but when it is issued its waiters are on the queue's running list. Each waiter is a request: a journal's commit
 * record before or after its data, or an fsync that needs only the flush.
 *
 * A separate program, since it reads structures that are private to the block layer: a kernel that changes them disables only this
 * program. It is not attached, but called at the end of rq_issue.
 */

#define WAITERS 64
#define FSEQ_PREFLUSH 1
#define FSEQ_DATA 2

/* One waiter, as in its record, and the next on the list. Most of it is read at once. */
static __attribute__((noinline)) u64 read_waiter(struct request *waiter, struct list_head **next)
{
	struct head head;
	u64 bio, step;
	u32 seq;

	read_head(&head, waiter);
	/* After its data phase the bio is only in biotail. */
	bio = (u64)HEAD_FIELD(&head, struct request, waiter, bio);
	if (!bio)
		bio = (u64)HEAD_FIELD(&head, struct request, waiter, biotail);
	seq = BPF_CORE_READ(waiter, flush.seq);
	/* flush.seq contains the steps that are done or not needed. */
	if (seq & FSEQ_PREFLUSH)
		step = 4;
	else
		step = seq & FSEQ_DATA ? 7 : 1;
	if (bpf_core_field_exists(((struct request___own_list *)0)->flush.list))
		*next = BPF_CORE_READ((struct request___own_list *)waiter, flush.list.next);
	else
		*next = HEAD_FIELD(&head, struct request, waiter, queuelist.next);
	return bio << 8 >> 8 | step << 56;
}

SEC("tp_btf/block_rq_issue")
int PROBE(flush_issue, struct request *rq)
{
	struct blk_flush_queue *fq;
	struct list_head *list, *at;
	u64 waiters[LISTED] = {};
	u64 link, running, *r;
	u32 listed = 0;
	int i;

	fq = rq->mq_hctx->fq;
	if (fq->flush_rq != rq)
		return 0;
	running = BPF_CORE_READ_BITFIELD_PROBED(fq, flush_running_idx);
	list = (void *)fq + bpf_core_field_offset(struct blk_flush_queue, flush_queue) + (running & 1) * 2 * sizeof(u64);
	if (bpf_core_field_exists(((struct request___own_list *)0)->flush.list))
		link = bpf_core_field_offset(((struct request___own_list *)0)->flush.list);
	else
		link = bpf_core_field_offset(struct request, queuelist);
	at = BPF_CORE_READ(list, next);
#pragma unroll
	for (i = 0; i < LISTED; i++) {
		if (!at || at == list)
			continue;
		waiters[i] = read_waiter((void *)at - link, &at);
		listed++;
	}
	r = ring_reserve(PACKED_FLUSH_ISSUE, 1 + listed, bpf_ktime_get_boot_ns(), whoami(), 0);
	if (!r)
		return 0;
#pragma unroll
	for (i = 0; i < LISTED; i++) {
		if (i < listed)
			r[1 + i] = waiters[i];
	}
	for (i = 0; at && at != list && i < WAITERS; i++) {
		listed++;
		at = BPF_CORE_READ(at, next);
	}
	put_with_byte(&r[0], (u64)rq, listed);
	submit(r);
	return 0;
}
