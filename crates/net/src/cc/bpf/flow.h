/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The part of a connection that an algorithm sees, and the two ways of growing a window that all algorithms share. This file and the
 * algorithms' headers use neither the kernel nor BPF: they compile for BPF, where glue.h fills struct flow from the socket, and natively,
 * where the tests fill it.
 */
#ifndef FATHOM_CC_FLOW_H
#define FATHOM_CC_FLOW_H

typedef unsigned char u8;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;

/* Everything is inlined: an object then has no calls to relocate, and the verifier follows one straight path. */
#define INLINE static inline __attribute__((always_inline))

/* A window is never less than this after a loss (RFC 5681, equation 4). */
#define MIN_SSTHRESH 2

struct flow {
	u32 cwnd; /* the window, segments */
	u32 credit; /* segments acknowledged that have not yet grown the window */
	u32 ssthresh; /* segments; slow start below it */
	u32 clamp; /* upper limit of the window, segments */
	u32 mss; /* bytes in a segment */
	u32 delivered; /* segments that have arrived, cumulative, modulo 2^32 */
	u64 now_us; /* when the last packet was received or sent, microseconds */
};

INLINE u32 at_least(u32 value, u32 low)
{
	return value < low ? low : value;
}

INLINE u32 at_most(u32 value, u32 high)
{
	return value > high ? high : value;
}

INLINE u32 window_plus(const struct flow *f, u64 more)
{
	u64 window = f->cwnd + more;

	return window > f->clamp ? f->clamp : (u32)window;
}

/* RFC 5681, section 3.1: a window below ssthresh grows by what was acknowledged. Returns what is left over at ssthresh. */
INLINE u32 flow_slow_start(struct flow *f, u32 acked)
{
	u32 room = f->ssthresh - f->cwnd;
	u32 used = at_most(acked, room);

	f->cwnd = window_plus(f, used);
	return acked - used;
}

/*
 * Grows the window by one segment for every `per_segment` acknowledged; if that is the window, this is the one segment per round-trip of
 * RFC 5681, section 3.1. Credit saved while growth was slower counts for at most one segment, so that a change of pace causes no burst.
 */
INLINE void flow_grow(struct flow *f, u32 per_segment, u32 acked)
{
	u32 need = at_least(per_segment, 1);
	u64 credit = (u64)at_most(f->credit, need) + acked;

	f->credit = (u32)(credit % need);
	f->cwnd = window_plus(f, credit / need);
}

#endif
