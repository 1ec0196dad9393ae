/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Westwood+: C. Casetti, M. Gerla, S. Mascolo, M. Sanadidi, R. Wang, "TCP Westwood: bandwidth estimation for enhanced transport over
 * wireless links", MobiCom 2001; with the bandwidth estimate of L. Grieco, S. Mascolo, "Performance evaluation and comparison of
 * Westwood+, New Reno, and Vegas TCP congestion control", ACM CCR 34(2), 2004.
 *
 * Reno halves the window blindly. Westwood measures the bandwidth of what arrives: after a loss the window is what the path carried in
 * its shortest round-trip, BWE x RTT_min, so a random loss on a wireless link costs little and a full queue just empties. Growth is
 * Reno's. Westwood+ takes one sample of the bandwidth per round-trip, not per acknowledgement (which bursts of acknowledgements
 * inflated), and smooths it with a constant factor of 0.9. A round-trip counts as at least 50 ms, so that short paths are not measured
 * over a handful of segments.
 */
#ifndef FATHOM_CC_WESTWOOD_H
#define FATHOM_CC_WESTWOOD_H

#include "flow.h"

#define WESTWOOD_SPAN_LEAST_US 50000

struct westwood {
	u64 since_us; /* start of the sample */
	u64 rate; /* BWE, bytes per second; 0: unknown */
	u32 delivered; /* segments that had arrived at the start of the sample */
	u32 rtt_us; /* of the last acknowledgement; 0: unknown */
	u32 rtt_min_us; /* 0: unknown */
};

INLINE void westwood_start(struct westwood *w, const struct flow *f)
{
	*w = (struct westwood){ .since_us = f->now_us, .delivered = f->delivered };
}

/*
 * Handles a first packet when none is in flight. What arrives from here on depends on the path; the time before depends on the
 * application, which had nothing to send: a first sample that includes it turns 50 Mb/s into a few kb/s, and the window after the next
 * loss into a few segments.
 */
INLINE void westwood_resume(struct westwood *w, const struct flow *f)
{
	w->since_us = f->now_us;
	w->delivered = f->delivered;
}

/* Handles an acknowledgement, with an RTT if `rtt_us` is above 0. Duplicates count as the segments whose arrival they report. */
INLINE void westwood_measure(struct westwood *w, const struct flow *f, s32 rtt_us)
{
	u64 span = f->now_us > w->since_us ? f->now_us - w->since_us : 0;
	u64 sample;

	if (rtt_us > 0) {
		w->rtt_us = (u32)rtt_us;
		if (!w->rtt_min_us || w->rtt_us < w->rtt_min_us)
			w->rtt_min_us = w->rtt_us;
	}
	if (!w->rtt_us || span <= at_least(w->rtt_us, WESTWOOD_SPAN_LEAST_US))
		return;
	sample = (u64)(f->delivered - w->delivered) * f->mss * 1000000 / span;
	w->rate = w->rate ? (9 * w->rate + sample) / 10 : sample;
	w->since_us = f->now_us;
	w->delivered = f->delivered;
}

INLINE void westwood_grow(struct flow *f, u32 acked)
{
	if (f->cwnd < f->ssthresh)
		acked = flow_slow_start(f, acked);
	if (acked)
		flow_grow(f, f->cwnd, acked);
}

/* Handles a loss, detected by duplicates or by a timeout: returns the window to continue with. */
INLINE u32 westwood_loss(const struct westwood *w, const struct flow *f)
{
	u64 window;

	if (!w->rate || !w->rtt_min_us || !f->mss)
		return at_least(f->cwnd / 2, MIN_SSTHRESH);
	/* In bytes per millisecond, a rate of 18 Tb/s with an RTT of an hour still fits; dividing late keeps the microseconds. */
	window = w->rate / 1000 * w->rtt_min_us / 1000 / f->mss;
	if (window > 0x7fffffff)
		window = 0x7fffffff;
	return at_least((u32)window, MIN_SSTHRESH);
}

/* Handles a timeout: the path may have changed, and its shortest round-trip may be longer. */
INLINE void westwood_forget(struct westwood *w)
{
	w->rtt_min_us = 0;
}

#endif
