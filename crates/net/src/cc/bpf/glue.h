/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Connects an algorithm with the kernel: only the fields of a socket that are used. Each struct is matched with the running kernel's by
 * name when the object is loaded (CO-RE), so order and gaps do not matter.
 *
 * A function of an object implements the member of the kernel's struct tcp_congestion_ops that has its name; the loader (cc/load.rs)
 * relies on that. The state is in icsk_ca_priv, 104 bytes that the kernel provides in every connection for it.
 */
#ifndef FATHOM_CC_GLUE_H
#define FATHOM_CC_GLUE_H

#include "flow.h"

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef signed char __s8;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
/* bpf_helpers.h also declares helpers for maps, none of which is used. */
enum bpf_map_type { BPF_MAP_TYPE_NONE };
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct inet_connection_sock {
	__u8 icsk_ca_state : 5;
	u64 icsk_ca_priv[13];
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	u32 snd_cwnd;
	u32 snd_cwnd_cnt;
	u32 snd_cwnd_clamp;
	u32 snd_ssthresh;
	u32 prior_cwnd;
	u32 mss_cache;
	u32 max_packets_out;
	u32 delivered;
	u64 tcp_mstamp;
	u8 is_cwnd_limited : 1;
};

struct ack_sample {
	u32 pkts_acked;
	s32 rtt_us;
};

#pragma clang attribute pop

/* enum tcp_ca_state, from the user-space ABI (linux/tcp.h). */
enum { OPEN = 0, DISORDER = 1, CWR = 2, RECOVERY = 3, LOSS = 4 };

/* enum tcp_ca_event (net/tcp.h), unchanged since it was added: the first packet when none is in flight. */
enum { TX_START = 0 };

/* The largest state; kernels before 5.6 are not supported. */
#define STATE_BYTES 104

char licence[] __attribute__((section("license"), used)) = "Dual MIT/GPL";

/* A member of tcp_congestion_ops. Its arguments are in an array of 64-bit words. */
#define MEMBER(name) __attribute__((used)) u32 name(u64 *ctx)
#define SOCK ((struct tcp_sock *)ctx[0])

/* Returns the algorithm's state of a connection. */
INLINE void *state_of(struct tcp_sock *tp)
{
	return (void *)tp->inet_conn.icsk_ca_priv;
}

INLINE struct flow flow_of(struct tcp_sock *tp)
{
	return (struct flow){
		.cwnd = tp->snd_cwnd,
		.credit = tp->snd_cwnd_cnt,
		.ssthresh = tp->snd_ssthresh,
		.clamp = tp->snd_cwnd_clamp,
		.mss = tp->mss_cache,
		.delivered = tp->delivered,
		.now_us = tp->tcp_mstamp,
	};
}

INLINE void set_window(struct tcp_sock *tp, const struct flow *f)
{
	tp->snd_cwnd = f->cwnd;
	tp->snd_cwnd_cnt = f->credit;
}

INLINE u32 ca_state(struct tcp_sock *tp)
{
	return BPF_CORE_READ_BITFIELD(&tp->inet_conn, icsk_ca_state);
}

/*
 * Whether the window limits the sender. A sender that does not use its window learns nothing about the path, and must not grow the window
 * (RFC 7661); in slow start, using half of it is enough, since it doubles.
 */
INLINE u32 window_limits(struct tcp_sock *tp)
{
	if (BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited))
		return 1;
	return tp->snd_cwnd < tp->snd_ssthresh && tp->snd_cwnd < 2 * tp->max_packets_out;
}

/*
 * The one member that is the same for every algorithm. The reduction was a mistake (nothing was lost): returns to the window before it.
 */
MEMBER(undo_cwnd)
{
	struct tcp_sock *tp = SOCK;

	return at_least(tp->snd_cwnd, tp->prior_cwnd);
}

#endif
