/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * H-TCP: D. Leith, R. Shorten, "H-TCP: TCP for high-speed and long-distance networks", PFLDnet 2004, and the Internet-Draft
 * draft-leith-tcp-htcp-06.
 *
 * The longer ago the last loss was, the more capacity is assumed free, and the faster the window grows: alpha(delta) is 1 for the first
 * second (delta_L), then 1 + 10 d + (d / 2)^2 with d the seconds after that. A loss leaves the part beta = RTT_min / RTT_max of the
 * window, between 0.5 and 0.8, so that the queue just empties. alpha is scaled by 2 (1 - beta), so that flows with different beta get
 * equal shares. If the rate changed by more than a fifth from one loss to the next, conditions are changing and beta is 0.5. Flows are
 * made equal over RTTs by scaling alpha with RTT / 100 ms (the draft's section on RTT scaling), at most by 2 and at least by 1/10, and
 * never below standard TCP's.
 *
 * The draft leaves open how growth is counted, which matters: where alpha is large, a segment is due every few acknowledgements. It is
 * counted as in Linux's tcp_htcp (measured: docs/guide/congestion-controls.md): alpha is in whole segments before it is scaled by beta,
 * and is recomputed when the window grows; the window grows by one segment on the acknowledgement after the one that made the growth due,
 * and the segments that this acknowledgement covers are not counted.
 */
#ifndef FATHOM_CC_HTCP_H
#define FATHOM_CC_HTCP_H

#include "flow.h"

#define HTCP_ONE 128 /* the unit of alpha and beta */
#define HTCP_BETA_MIN 64 /* 0.5 */
#define HTCP_BETA_MAX 102 /* 0.8 */
#define HTCP_LOW_US 1000000 /* delta_L */
#define HTCP_RTT_REFERENCE_US 100000
/* The adaptive backoff is not used where RTTs are so short that their ratio means little. */
#define HTCP_RTT_LEAST_US 10000
/* An RTT that exceeds the longest by more than this is an outlier, such as from a busy host. */
#define HTCP_RTT_JUMP_US 20000
/* An hour without loss counts as the maximum; keeps the square in range. */
#define HTCP_AGE_MOST_US 3600000000ULL

struct htcp {
	u64 loss_us; /* time of the last loss */
	u64 count_us; /* start of the count of delivered segments */
	u32 alpha; /* segments per round-trip, in 1/HTCP_ONE */
	u32 beta; /* 1/HTCP_ONE */
	u32 rtt_min_us; /* 0: unknown */
	u32 rtt_max_us;
	u32 counted; /* segments delivered since count_us */
	u32 rate; /* smoothed, segments per second; 0: unknown */
	u32 rate_max; /* the highest since the last loss */
	u32 rate_max_before; /* the same before that loss */
	u32 adaptive; /* conditions were steady at the last loss */
	u32 windows; /* windows measured since the last loss, up to 4 */
};

INLINE void htcp_start(struct htcp *h, u64 now_us)
{
	*h = (struct htcp){ .loss_us = now_us, .count_us = now_us, .alpha = HTCP_ONE, .beta = HTCP_BETA_MIN };
}

/* Returns alpha for the time since the last loss, in 1/HTCP_ONE segments per round-trip. */
INLINE u32 htcp_alpha(const struct htcp *h, u64 now_us)
{
	u64 since = now_us > h->loss_us ? now_us - h->loss_us : 0;
	u64 alpha = 1;

	if (since > HTCP_AGE_MOST_US)
		since = HTCP_AGE_MOST_US;
	if (since > HTCP_LOW_US) {
		u64 ms = (since - HTCP_LOW_US) / 1000;

		alpha += (10 * ms + ms * ms / 4000) / 1000;
	}
	if (h->rtt_min_us) {
		u64 rtt = h->rtt_min_us;

		if (rtt < HTCP_RTT_REFERENCE_US / 10)
			rtt = HTCP_RTT_REFERENCE_US / 10;
		if (rtt > 2 * HTCP_RTT_REFERENCE_US)
			rtt = 2 * HTCP_RTT_REFERENCE_US;
		alpha = alpha * rtt / HTCP_RTT_REFERENCE_US;
		if (alpha < 1)
			alpha = 1;
	}
	return (u32)(2 * alpha * (HTCP_ONE - h->beta));
}

INLINE void htcp_grow(struct htcp *h, struct flow *f, u32 acked)
{
	if (f->cwnd < f->ssthresh)
		acked = flow_slow_start(f, acked);
	if (!acked)
		return;
	if ((u64)f->credit * h->alpha / HTCP_ONE < f->cwnd) {
		u64 credit = (u64)f->credit + acked;

		f->credit = credit > 0xffffffff ? 0xffffffff : (u32)credit;
		return;
	}
	f->credit = 0;
	f->cwnd = window_plus(f, 1);
	h->alpha = at_least(htcp_alpha(h, f->now_us), 1);
}

/*
 * Handles an acknowledgement of `segments` segments, with an RTT if `rtt_us` is above 0. `steady`: nothing was lost lately; only then do
 * RTTs count for the maximum. `recovering`: lost segments are being retransmitted, and rates mean nothing.
 */
INLINE void htcp_measure(struct htcp *h, const struct flow *f, u32 segments, s32 rtt_us, u32 steady, u32 recovering)
{
	u32 enough, rate;
	u64 span;

	if (rtt_us > 0) {
		u32 rtt = (u32)rtt_us;

		if (!h->rtt_min_us || rtt < h->rtt_min_us)
			h->rtt_min_us = rtt;
		if (steady) {
			h->rtt_max_us = at_least(h->rtt_max_us, h->rtt_min_us);
			if (rtt > h->rtt_max_us && rtt - h->rtt_max_us <= HTCP_RTT_JUMP_US)
				h->rtt_max_us = rtt;
		}
	}
	if (recovering) {
		h->counted = 0;
		h->count_us = f->now_us;
		return;
	}
	/* A rate is measured over a window's worth of segments, and at least a round-trip. */
	h->counted += segments;
	span = f->now_us > h->count_us ? f->now_us - h->count_us : 0;
	enough = f->cwnd - at_most(at_least(h->alpha / HTCP_ONE, 1), f->cwnd);
	if (h->counted < enough || !h->rtt_min_us || span < h->rtt_min_us)
		return;
	rate = (u32)((u64)h->counted * 1000000 / span);
	if (h->windows < 4) {
		/* Just after a loss the rate is arbitrary: start again. */
		h->windows++;
		h->rate = h->rate_max = rate;
	} else {
		h->rate = (u32)((3 * (u64)h->rate + rate) / 4);
		h->rate_max = at_least(h->rate_max, h->rate);
	}
	h->counted = 0;
	h->count_us = f->now_us;
}

/* Handles a loss: recomputes beta and returns the window to continue with. */
INLINE u32 htcp_loss(struct htcp *h, const struct flow *f)
{
	u64 before = h->rate_max_before, rate = h->rate_max;

	h->rate_max_before = h->rate_max;
	if (5 * rate < 4 * before || 5 * rate > 6 * before) {
		h->beta = HTCP_BETA_MIN;
		h->adaptive = 0;
	} else if (h->adaptive && h->rtt_min_us > HTCP_RTT_LEAST_US && h->rtt_max_us) {
		u32 beta = (u32)((u64)h->rtt_min_us * HTCP_ONE / h->rtt_max_us);

		h->beta = at_most(at_least(beta, HTCP_BETA_MIN), HTCP_BETA_MAX);
	} else {
		h->beta = HTCP_BETA_MIN;
		h->adaptive = 1;
	}
	/* The longest RTT decays, so that a path that became shorter is noticed. */
	if (h->rtt_min_us && h->rtt_max_us > h->rtt_min_us)
		h->rtt_max_us = h->rtt_min_us + (u32)((u64)(h->rtt_max_us - h->rtt_min_us) * 95 / 100);
	return at_least((u32)((u64)f->cwnd * h->beta / HTCP_ONE), MIN_SSTHRESH);
}

/* Handles a reduction of the window: the time since the last loss restarts. */
INLINE void htcp_reduced(struct htcp *h, u64 now_us)
{
	h->loss_us = now_us;
	h->windows = 0;
}

#endif
