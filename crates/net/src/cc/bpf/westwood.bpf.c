// SPDX-License-Identifier: (GPL-2.0 OR MIT)
/* Westwood+ for the kernel's TCP; the algorithm is in westwood.h. */
#include "glue.h"
#include "westwood.h"

_Static_assert(sizeof(struct westwood) <= STATE_BYTES, "the state of a connection");

MEMBER(init)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	westwood_start(state_of(tp), &f);
	return 0;
}

MEMBER(cwnd_event)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	if ((u32)ctx[1] == TX_START)
		westwood_resume(state_of(tp), &f);
	return 0;
}

MEMBER(pkts_acked)
{
	struct tcp_sock *tp = SOCK;
	const struct ack_sample *sample = (const struct ack_sample *)ctx[1];
	struct flow f = flow_of(tp);

	westwood_measure(state_of(tp), &f, sample->rtt_us);
	return 0;
}

MEMBER(cong_avoid)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	if (!window_limits(tp))
		return 0;
	westwood_grow(&f, (u32)ctx[2]);
	set_window(tp, &f);
	return 0;
}

MEMBER(ssthresh)
{
	struct tcp_sock *tp = SOCK;
	struct flow f = flow_of(tp);

	return westwood_loss(state_of(tp), &f);
}

MEMBER(set_state)
{
	if ((u8)ctx[1] == LOSS)
		westwood_forget(state_of(SOCK));
	return 0;
}
