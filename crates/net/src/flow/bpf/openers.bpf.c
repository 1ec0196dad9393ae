// SPDX-License-Identifier: Apache-2.0 OR MIT
/*
 * Which process opened or closed a TCP connection, by the socket's cookie: for connections that are gone before user space looks for
 * their process. Attached to the BTF tracepoint inet_sock_set_state (Linux 5.5; the helper for cookies 5.12).
 *
 * A connection enters SYN_SENT in connect(), FIN_WAIT1 and LAST_ACK in close() or shutdown(), all by its own process; other changes of
 * state happen wherever a packet arrives. The map drops its oldest entries: user space counts connections that it does not find.
 */
typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
enum bpf_map_type { BPF_MAP_TYPE_LRU_HASH = 9 };
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define TCP_SYN_SENT 2
#define TCP_FIN_WAIT1 4
#define TCP_LAST_ACK 9
#define ANCESTORS 4

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct task_struct {
	__s32 tgid;
	struct task_struct *real_parent;
};
#pragma clang attribute pop

/* The process and its ancestors, 0 for none: flow/openers.rs reads it. */
struct opener {
	__u32 pids[ANCESTORS];
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct opener);
} openers SEC(".maps");

SEC("tp_btf/inet_sock_set_state")
int inet_sock_set_state(__u64 *ctx)
{
	void *sk = (void *)ctx[0];
	__s32 state = (__s32)ctx[2];
	struct opener opener = {};
	struct task_struct *task;
	__u64 cookie;

	if (state != TCP_SYN_SENT && state != TCP_FIN_WAIT1 && state != TCP_LAST_ACK)
		return 0;
	cookie = bpf_get_socket_cookie(sk);
	task = (struct task_struct *)bpf_get_current_task();
	for (int i = 0; i < ANCESTORS; i++) {
		opener.pids[i] = BPF_CORE_READ(task, tgid);
		task = BPF_CORE_READ(task, real_parent);
	}
	bpf_map_update_elem(&openers, &cookie, &opener, 0);
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
