// SPDX-License-Identifier: (GPL-2.0 OR MIT)
/* BIC for the kernel's TCP; the algorithm is in bic.h. */
#include "glue.h"
#include "bic.h"

_Static_assert(sizeof(struct bic) <= STATE_BYTES, "the state of a connection");

MEMBER(init)
{
	bic_start(state_of(SOCK));
	return 0;
}

MEMBER(pkts_acked)
{
	struct tcp_sock *tp = SOCK;
	const struct ack_sample *sample = (const struct ack_sample *)ctx[1];

	if (ca_state(tp) == OPEN)
		bic_measure(state_of(tp), sample->pkts_acked);
	return 0;
}

MEMBER(cong_avoid)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	if (!window_limits(tp))
		return 0;
	bic_acked(state_of(tp), &f, (u32)ctx[2]);
	set_window(tp, &f);
	return 0;
}

MEMBER(ssthresh)
{
	struct tcp_sock *tp = SOCK;

	return bic_loss(state_of(tp), tp->snd_cwnd);
}

MEMBER(set_state)
{
	if ((u8)ctx[1] == LOSS)
		bic_forget(state_of(SOCK));
	return 0;
}
