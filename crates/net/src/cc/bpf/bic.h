/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * BIC: L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control for Fast, Long Distance Networks", INFOCOM 2004.
 *
 * A loss says that the window was too large; so the best window lies between the one after the loss and the one before it, and BIC
 * searches it the way one looks up a word in a dictionary: each step is a fixed part of the distance, at most S_max (far away, the window
 * grows linearly) and at least S_min (close by, it hardly moves). Past the old maximum BIC looks for a new one, first slowly, then
 * faster, as in slow start (the paper's "max probing"). The names are from the paper's section on the implementation of the protocol:
 * low_window, S_max, S_min, beta, max_win, and fast convergence.
 *
 * Where the paper leaves values free or uses others in its simulations, they are those that Linux documents as parameters of tcp_bic
 * (/sys/module/tcp_bic/parameters): S_max 16 (paper 32), beta 819/1024 (paper 0.875), low_window 14 (as in the paper), a step of a
 * quarter of the distance (paper: half), and 20 round-trips per quarter-step for S_min (smooth_part): 4 / 20 of a segment. As with
 * tcp_bic (measured: docs/guide/congestion-controls.md), above low_window growth is multiplied by the mean number of segments per
 * acknowledgement, about two where a receiver delays acknowledgements.
 */
#ifndef FATHOM_CC_BIC_H
#define FATHOM_CC_BIC_H

#include "flow.h"

#define BIC_LOW_WINDOW 14 /* segments; up to here, growth is standard TCP's */
#define BIC_PART 4 /* a step is this part of the distance */
#define BIC_BETA 819 /* the part of the window that a loss leaves, in 1/BIC_ONE */
#define BIC_ONE 1024 /* one segment, in the unit of steps */
#define BIC_STEP_MAX (16 * BIC_ONE)
#define BIC_STEP_MIN (BIC_PART * BIC_ONE / 20)
/* If no maximum is known, the window grows by at least a twentieth per round-trip. */
#define BIC_BLIND_PART 20

/* The unit of segments per acknowledgement, and the weight of the past in their mean. */
#define BIC_PER_ACK_ONE 16
#define BIC_PER_ACK_MOST 0xffff

struct bic {
	u32 max; /* the window at which packets were lost, as far as still credible; 0: none is known */
	u32 per_ack; /* mean number of segments per acknowledgement, in 1/BIC_PER_ACK_ONE */
};

INLINE void bic_start(struct bic *b)
{
	*b = (struct bic){ .per_ack = 2 * BIC_PER_ACK_ONE };
}

/* Handles an acknowledgement of `segments` while no segment is missing. */
INLINE void bic_measure(struct bic *b, u32 segments)
{
	b->per_ack += at_most(segments, BIC_PER_ACK_MOST) - b->per_ack / BIC_PER_ACK_ONE;
}

/* Returns how much the window grows in one round-trip, in 1/BIC_ONE segments. */
INLINE u64 bic_step(const struct bic *b, u32 cwnd)
{
	u64 step;

	if (cwnd <= BIC_LOW_WINDOW)
		return BIC_ONE;
	if (cwnd < b->max) {
		/* Binary search, in whole segments: a step of fewer than two means that the maximum is as good as reached. */
		u32 whole = (b->max - cwnd) / BIC_PART;

		step = whole > 1 ? (u64)whole * BIC_ONE : BIC_STEP_MIN;
	} else {
		/* Max probing: the step is proportional to the distance from the old maximum. */
		u32 beyond = cwnd - b->max;

		step = beyond < BIC_PART ? BIC_STEP_MIN : (u64)beyond * BIC_ONE / (BIC_PART - 1);
	}
	if (step > BIC_STEP_MAX)
		step = BIC_STEP_MAX;
	if (!b->max && step < (u64)cwnd * BIC_ONE / BIC_BLIND_PART)
		step = (u64)cwnd * BIC_ONE / BIC_BLIND_PART;
	return step;
}

INLINE void bic_acked(const struct bic *b, struct flow *f, u32 acked)
{
	u64 need;

	if (f->cwnd < f->ssthresh)
		acked = flow_slow_start(f, acked);
	if (!acked)
		return;
	need = (u64)f->cwnd * BIC_ONE / bic_step(b, f->cwnd);
	if (f->cwnd > BIC_LOW_WINDOW)
		need = need * BIC_PER_ACK_ONE / at_least(b->per_ack, 1);
	flow_grow(f, need > 0xffffffff ? 0xffffffff : (u32)need, acked);
}

/* Handles a loss: remembers the maximum and returns the window to continue with. */
INLINE u32 bic_loss(struct bic *b, u32 cwnd)
{
	u32 left = (u32)((u64)cwnd * BIC_BETA / BIC_ONE);

	/*
	 * Fast convergence: a flow that did not get as far as last time has a growing rival, and makes room by aiming only half way
	 * between the current window and the one that it continues with.
	 */
	b->max = cwnd < b->max ? (u32)((u64)cwnd * (BIC_ONE + BIC_BETA) / (2 * BIC_ONE)) : cwnd;
	return at_least(cwnd <= BIC_LOW_WINDOW ? cwnd / 2 : left, MIN_SSTHRESH);
}

/* Handles a timeout: nothing is known about the path any more. */
INLINE void bic_forget(struct bic *b)
{
	bic_start(b);
}

#endif
