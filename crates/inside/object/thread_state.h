/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The state of a thread: its ring, its open executions, and what is remembered of its statements. `self` is its place in a program that
 * started with the object; attach_thread.h has the one in a program that was already running.
 */
#ifndef FATHOM_INSIDE_THREAD_STATE_H
#define FATHOM_INSIDE_THREAD_STATE_H

#include "clock.h"
#include "counters.h"
#include "sample.h"

#define OPS 8
/* Addresses farther apart are on different stacks and cannot be compared. */
#define ONE_STACK (1 << 20)
/* Number of statements remembered as having their text recorded; an evicted one is recorded again. */
#define KNOWN_STATEMENTS 64

#define OP_STATEMENT 0
#define OP_FUNCTION 1
/* In end records only: a function that was left without returning; an execution of either kind that was displaced. */
#define OP_LEFT 2
#define OP_GAVE_WAY 3

/* An open execution. The BPF programs read it (inside.bpf.c, stacks.h). */
struct op {
	u64 stmt; /* of a function: its index in the list */
	u64 start_ns;
	u64 start_cycles;
	u64 rows;
	u64 steps;
	u64 inside_cycles; /* up to `at` */
	u64 at; /* cycles when a step was last timed: at its begin, or at its end */
	u64 slot; /* of a function: stack slot of its return address */
	u32 stub; /* and the stub that replaced it there */
	u16 kind;
	u8 shared; /* a child of vfork may call it too */
	u8 open;
	u32 batch; /* number of steps from `at` that are passed over; `steps` and `rows` do not count them yet */
	u32 left; /* those of them that have not begun */
	u32 tick; /* when the last of them began or ended */
	u32 ticks_steps; /* ns by which the tick changed in them */
	u32 ticks_gaps; /* and between them */
	u32 tag; /* of the statement's text */
};

_Static_assert(sizeof(struct op) == 96 && __builtin_offsetof(struct op, slot) == 56, "as common.h of the BPF programs says");

struct known {
	u64 stmt;
	u64 text;
	u32 tag; /* of its text */
	u32 pad;
};

struct thread {
	u64 generation; /* of the process in which it has a ring */
	struct ring_control *ring;
	u64 *words;
	const u64 *closed;
	u64 tid;
	u64 busy; /* the stack pointer while the fields below are changed, and records written */
	u64 until; /* where the ring has room without a gap, as far as is known; in words, as its head */
	u32 open; /* open executions, functions included */
	u32 functions;
	u32 functions_gone; /* displaced while they ran; they enclose all that are open */
	u32 depth;
	u32 any_gone;
	u64 plain; /* a statement whose next step is a plain one (sqlite.h); IN_PLAIN_STEP */
	struct op *plain_op;
	u64 plain_state; /* of the ring, between its steps */
	struct thread_clock clock;
	struct switches switches;
	u64 inside[OPS];
	u64 inside_sp[OPS];
	struct op ops[OPS];
	struct counts before[OPS]; /* SQLite's counters when they began */
	struct known known[KNOWN_STATEMENTS];
	struct sample samples[SAMPLES];
};

/* The stubs that replace return addresses (named.h), of which only the place is needed here. */
extern hidden const u8 fathom_returns[];

/*
 * Calls of code in headers that use this one, set by `connect` (load.h) before any jump is in place: when the recording is over, and
 * before the first record of an arena.
 */
static void (*on_recording_over)(void);
static void (*on_first_ring)(struct arena *a);

static __thread struct thread self __attribute__((tls_model("initial-exec")));

static int has_ended(u64 tgid, u32 tid)
{
	return call3(SYS_tgkill, tgid, tid, 0) == -ESRCH;
}

#endif
