/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The algorithms compiled natively, behind one interface for tests/arithmetic.rs. */
#include "../src/cc/bpf/bic.h"
#include "../src/cc/bpf/htcp.h"
#include "../src/cc/bpf/westwood.h"

union state {
	struct bic bic;
	struct htcp htcp;
	struct westwood westwood;
	unsigned long long room[13];
};
_Static_assert(sizeof(union state) == 104, "what the kernel gives a connection");

enum { BIC, HTCP, WESTWOOD };

void start(int which, union state *s, struct flow *f)
{
	if (which == BIC)
		bic_start(&s->bic);
	else if (which == HTCP)
		htcp_start(&s->htcp, f->now_us);
	else
		westwood_start(&s->westwood, f);
}

/* Handles an acknowledgement of `acked` segments; `state` is the kernel's: 0 open, 1 disorder, above 1 reducing or recovering. */
void acked(int which, union state *s, struct flow *f, u32 acked, s32 rtt_us, u32 state)
{
	if (which == BIC && state == 0)
		bic_measure(&s->bic, acked);
	else if (which == HTCP)
		htcp_measure(&s->htcp, f, acked, rtt_us, state == 0, state > 1);
	else if (which == WESTWOOD)
		westwood_measure(&s->westwood, f, rtt_us);
	if (state > 1)
		return;
	if (which == BIC)
		bic_acked(&s->bic, f, acked);
	else if (which == HTCP)
		htcp_grow(&s->htcp, f, acked);
	else
		westwood_grow(f, acked);
}

u32 loss(int which, union state *s, struct flow *f)
{
	if (which == BIC)
		return bic_loss(&s->bic, f->cwnd);
	if (which == WESTWOOD)
		return westwood_loss(&s->westwood, f);
	u32 ssthresh = htcp_loss(&s->htcp, f);
	htcp_reduced(&s->htcp, f->now_us);
	return ssthresh;
}

/* Handles a packet that is sent when none is in flight. */
void resumed(int which, union state *s, struct flow *f)
{
	if (which == WESTWOOD)
		westwood_resume(&s->westwood, f);
}

void timeout(int which, union state *s)
{
	if (which == BIC)
		bic_forget(&s->bic);
	else if (which == WESTWOOD)
		westwood_forget(&s->westwood);
}

unsigned long long step_of_bic(u32 max, u32 cwnd)
{
	struct bic b = { .max = max };

	return bic_step(&b, cwnd);
}

u32 alpha_of_htcp(u64 since_us, u32 rtt_min_us, u32 beta)
{
	struct htcp h = { .rtt_min_us = rtt_min_us, .beta = beta };

	return htcp_alpha(&h, since_us);
}

u64 rate_of_westwood(const union state *s)
{
	return s->westwood.rate;
}
