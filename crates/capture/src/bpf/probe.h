/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The entry of a program: PROBE on a tracepoint (instead of libbpf's BPF_PROG), PROBE_FUNCTION on a function of a program. Both
 * return at once if only the cost of attached probes is measured.
 */
#ifndef FATHOM_PROBE_H
#define FATHOM_PROBE_H

/* Nothing is recorded. Constant for the verifier, which removes unreachable code. */
const volatile u32 hollow;

#define PROBE(name, args...)                                                                                           \
	name(unsigned long long *ctx);                                                                                 \
	static __always_inline int name##_body(unsigned long long *ctx, ##args);                                       \
	int name(unsigned long long *ctx)                                                                              \
	{                                                                                                              \
		_Pragma("GCC diagnostic push")                                                                         \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")                                                 \
		return hollow ? 0 : name##_body(___bpf_ctx_cast(args));                                                \
		_Pragma("GCC diagnostic pop")                                                                          \
	}                                                                                                              \
	static __always_inline int name##_body(unsigned long long *ctx, ##args)

#define PROBE_FUNCTION(name)                                                                                           \
	name(struct pt_regs *ctx);                                                                                     \
	static __always_inline int name##_body(struct pt_regs *ctx);                                                   \
	int name(struct pt_regs *ctx)                                                                                  \
	{                                                                                                              \
		return hollow ? 0 : name##_body(ctx);                                                                  \
	}                                                                                                              \
	static __always_inline int name##_body(struct pt_regs *ctx)

/* A program declared with it would record all the same. */
#undef BPF_PROG
#pragma GCC poison BPF_PROG

#endif
