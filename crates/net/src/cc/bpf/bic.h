/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * BIC: L. Xu, K. Harfoush, I. Rhee, "Binary Increase Congestion Control for Fast, Long Distance Networks", INFOCOM 2004.
 *
 * A loss says that the window was too large; so the best window lies between the one after the loss and the one before it,
 * and BIC searches it as one searches a word in a dictionary: a step that is a fixed part of the distance, at most S_max
 * (far away it grows in a straight line) and at least S_min (close by it hardly moves). Past the old maximum it looks for a
 * new one, first slowly, then faster, as in slow start (the paper's "max probing"). The names in the paper's section on
 * the protocol's implementation: low_window, S_max, S_min, beta, max_win, and fast convergence.
 *
 * The values are those that Linux documents as parameters of tcp_bic (/sys/module/tcp_bic/parameters), where the paper
 * leaves them free or uses others in its simulations: S_max 16 (paper 32), beta 819/1024 (paper 0.875), low_window 14 (as
 * the paper), a step of a quarter of the distance (paper: half), and 20 round-trips a quarter-step for S_min
 * (smooth_part): 4 / 20 of a segment. And as tcp_bic does (measured: docs/guide/congestion-controls.md), above low_window it grows by
 * as much faster as an acknowledgement covers segments on average, about two where a receiver delays acknowledgements.
 */
#ifndef FATHOM_CC_BIC_H
#define FATHOM_CC_BIC_H

#include "flow.h"

#define BIC_LOW_WINDOW 14 /* segments; up to here it is standard TCP */
#define BIC_PART 4 /* a step is this part of the distance */
#define BIC_BETA 819 /* of BIC_ONE: what a loss leaves of the window */
#define BIC_ONE 1024 /* one segment, in the unit of steps */
#define BIC_STEP_MAX (16 * BIC_ONE)
#define BIC_STEP_MIN (BIC_PART * BIC_ONE / 20)
/* Where no maximum is known, it grows by a twentieth of the window a round-trip at least. */
#define BIC_BLIND_PART 20

/* The unit of segments an acknowledgement, and how slowly their mean follows. */
#define BIC_PER_ACK_ONE 16
#define BIC_PER_ACK_MOST 0xffff

struct bic {
	u32 max; /* the window at which packets were lost, as far as it is still believed; 0: none is known */
	u32 per_ack; /* segments that an acknowledgement covers, mean, 1/BIC_PER_ACK_ONE */
};

INLINE void bic_start(struct bic *b)
{
	*b = (struct bic){ .per_ack = 2 * BIC_PER_ACK_ONE };
}

/* An acknowledgement of `segments` while nothing is missing. */
INLINE void bic_measure(struct bic *b, u32 segments)
{
	b->per_ack += at_most(segments, BIC_PER_ACK_MOST) - b->per_ack / BIC_PER_ACK_ONE;
}

/* How much a window grows in one round-trip, in 1/BIC_ONE segments. */
INLINE u64 bic_step(const struct bic *b, u32 cwnd)
{
	u64 step;

	if (cwnd <= BIC_LOW_WINDOW)
		return BIC_ONE;
	if (cwnd < b->max) {
		/* Binary search, in whole segments: less than two is as good as there. */
		u32 whole = (b->max - cwnd) / BIC_PART;

		step = whole > 1 ? (u64)whole * BIC_ONE : BIC_STEP_MIN;
	} else {
		/* Max probing: as far from the old maximum as it has come, so will it go on. */
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

/* A loss: remembers the maximum and gives the window to go on with. */
INLINE u32 bic_loss(struct bic *b, u32 cwnd)
{
	u32 left = (u32)((u64)cwnd * BIC_BETA / BIC_ONE);

	/*
	 * Fast convergence: a flow that did not get as far as last time has a rival that is growing, and makes room by
	 * looking only half way between here and where it will go on.
	 */
	b->max = cwnd < b->max ? (u32)((u64)cwnd * (BIC_ONE + BIC_BETA) / (2 * BIC_ONE)) : cwnd;
	return at_least(cwnd <= BIC_LOW_WINDOW ? cwnd / 2 : left, MIN_SSTHRESH);
}

/* A timeout: nothing is known of the path any more. */
INLINE void bic_forget(struct bic *b)
{
	bic_start(b);
}

#endif
