// SPDX-License-Identifier: (GPL-2.0 OR MIT)
/* H-TCP for the kernel's TCP; the algorithm is in htcp.h. */
#include "glue.h"
#include "htcp.h"

_Static_assert(sizeof(struct htcp) <= STATE_BYTES, "the state of a connection");

MEMBER(init)
{
	struct tcp_sock *tp = SOCK;

	htcp_start(state_of(tp), tp->tcp_mstamp);
	return 0;
}

MEMBER(pkts_acked)
{
	struct tcp_sock *tp = SOCK;
	const struct ack_sample *sample = (const struct ack_sample *)ctx[1];
	struct flow f = flow_of(tp);
	u32 state = ca_state(tp);

	htcp_measure(state_of(tp), &f, sample->pkts_acked, sample->rtt_us, state == OPEN, state > DISORDER);
	return 0;
}

MEMBER(cong_avoid)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	if (!window_limits(tp))
		return 0;
	htcp_grow(state_of(tp), &f, (u32)ctx[2]);
	set_window(tp, &f);
	return 0;
}

MEMBER(ssthresh)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	return htcp_loss(state_of(tp), &f);
}

MEMBER(set_state)
{
	struct tcp_sock *tp = SOCK;
	u8 state = (u8)ctx[1];

	if (state == CWR || state == RECOVERY || state == LOSS)
		htcp_reduced(state_of(tp), tp->tcp_mstamp);
	return 0;
}
