/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The base of every probe: the configuration, the rings, and the slot of a task.
 *
 * The kernel side keeps no state about I/O: it emits raw pointers, and the linker joins them. It does keep the context of a task
 * (its operation and system call), since that turns two records per call into one.
 */
#ifndef FATHOM_COMMON_H
#define FATHOM_COMMON_H

/* Configuration, written by user space before the object is loaded; the verifier sees constants. */

/* CLOCK_BOOTTIME - CLOCK_MONOTONIC: the kernel stamps requests with the latter. */
const volatile u64 boot_offset_ns;
/* Fathom itself; never recorded. */
const volatile u32 tracer_tgid;
/* 1: tasks are recorded without being requested; 2: and count as requested. */
const volatile u32 everyone;
/* Whether all sleeps of recorded threads matter: not if these are all threads of a machine. */
const volatile u32 idle_sleeps;
/* Programs of this name are recorded from their exec on; empty: none. */
const volatile char wanted_comm[16];

/* O_DIRECT and O_DSYNC, whose values differ between architectures. */
const volatile u32 open_direct;
const volatile u32 open_dsync;
/* Whether Fathom's object is in the recorded processes. */
const volatile u32 with_object;
/* The memory in which the command marks its own intervals: inode and file system; 0: none. */
const volatile u64 marks_ino;
const volatile u32 marks_dev;
/* Whether a process mapped it: from then on, any interval may turn out to be marked. */
u32 marks_mapped;
/* The call whose sixth argument contains the flags of this one write. */
const volatile u32 pwritev2_number;
const volatile u32 compat_pwritev2_number;

/* How to decode a system call; by its number. */
struct call_shape {
	u8 call; /* FATHOM_CALL_*, 0: not wanted */
	u8 fd; /* which argument is the file, NO_ARG: none */
	u8 pos; /* which argument is the position (of unlink: the name), NO_ARG: the file's own */
	u8 bytes; /* which argument is the length, NO_ARG: unknown until it returns */
};
#define NO_ARG 0xff
/* Of 32-bit calls: the number is 64 bits wide, and the next argument contains its upper half. */
#define WIDE_ARG 0x40
#define CALLS 512
const volatile struct call_shape call_shapes[CALLS];
/* The same for the calls of 32-bit programs. */
const volatile struct call_shape compat_shapes[CALLS];

/* Functions called at a bio's end, and the kind of bio that each indicates. */
#define END_FUNCTIONS 16
const volatile u64 end_functions[END_FUNCTIONS];
const volatile u8 end_classes[END_FUNCTIONS];

/* Called at the end of a block of ext4's fast commits; 0: not known. */
const volatile u64 log_block_end;

#include "ring.h"
#include "packed.h"

/*
 * Maximum number of executions open at once on a thread. A scan that updates another table between its rows needs two. User space
 * uses the same number.
 */
#define OPS 8

#define OP_STATEMENT 0
#define OP_FUNCTION 1

struct op {
	u64 key;
	u64 start_ns;
	u64 rows;
	u64 steps;
	u64 inside_ns;
	union {
		u64 entered_ns; /* in a step: when it began */
		u64 left_ns;	/* between two steps: when the last one returned */
	};
	u64 sp; /* Stack pointer at the entry of its function, or of its last step. */
	/* Offset of the statement's running flag, plus one (0: unknown), and the flag's value while it runs. */
	u16 running_at;
	u8 running;
	u8 open;
	u32 kind; /* OP_STATEMENT, OP_FUNCTION */
};

#define PREPARES 2
/* A call of prepare, between entry and return. */
struct prepare {
	u64 start_ns;
	u64 out_stmt;
	u64 text;
	s32 length; /* negative: zero-terminated */
	/* Whether statements were between their rows when it began: how they stand at its return may be found out only meanwhile. */
	u32 between_rows;
};

struct slot {
	/* Identity and standing. User space writes these two when it tracks a task: see session.rs. */
	u32 tgid;
	u16 standing; /* FATHOM_TRACKED, FATHOM_KERNEL_THREAD */

	/* The recorded system call it is in. */
	u16 call; /* 0: none */
	s32 fd;
	u32 dev;
	u64 start_ns;
	u64 inode; /* address */
	u64 ino;
	union {
		u64 file; /* address */
		u64 kept; /* the file that the call removes has another name, or is in use */
	};
	u64 requested; /* bytes */
	u64 fs_start_ns;
	u32 txn;
	u32 txn_dev;
	u32 fs_writes;
	u16 cache_added;
	u16 file_flags;
	u16 handles;
	u16 ops_open;
	u16 functions_open; /* of ops_open; the others are statements */
	u8 functions_gone; /* displaced while they ran; they enclose all that are open */
	u8 any_gone; /* whether an execution was ever displaced */
	u8 stores; /* it wrote to storage, or created, changed, removed or synced a file: what it does between such calls matters */

	/* io_uring: the current call of io_uring_enter, the number of file requests in flight, and the one that is being submitted. */
	u64 ring_enter_ns;
	u64 ring_req; /* address */
	u64 ring_ns; /* its submission time, which identifies it */
	u64 ring_reported; /* identity of the last one reported */
	u32 ring_open;
	u32 op_place; /* see op_at */

	/* When it left the CPU. */
	u64 out_ns;
	u64 wake_ns;
	u32 waker;
	u32 waker_tgid;
	u32 out_state;
	u32 sleeps_for; /* FATHOM_WAIT_*; 0: not known */
	u64 cpu_queue; /* address */
	u64 throttled_ns; /* of that queue, when the thread left the CPU */
	/* See stacks.h: whether the program's part of its stack is wanted, and whether one was taken before. */
	u32 stack_due;
	u32 stack_told;

	/* Probed inside (inside.bpf.c): the address of the thread's state in its memory, and its last report. */
	u64 inside_state; /* address; 0: this thread is not probed inside */
	u16 inside_open; /* statements */
	u16 inside_functions;
	u32 inside_depth; /* number of running steps of statements */
	u64 inside_function; /* stack slot of the innermost function's return address */
	u64 inside_stubs; /* address of the stubs that replace return addresses */
	u64 inside_operations; /* address of the thread's open executions */
	u64 inside_left[OPS]; /* start times of those that a record reported as left */

	/* The statement whose text was looked up last. */
	u64 emitted_stmt;
	u64 emitted_text;

	/* Calls of prepare it is in, innermost last. */
	struct prepare prepares[PREPARES];
	u32 prepares_open;
	/* The operations that the thread is inside of, innermost last: a step may run a function that steps. */
	u32 depth;
	u64 inside[OPS];
	struct op ops[OPS];
};
/* User space writes whole slots, so it must use the same size. */
#define SLOT_SIZE 1000
_Static_assert(sizeof(struct slot) <= SLOT_SIZE, "SLOT_SIZE in session.rs");

/* An open execution of a thread that is probed inside: `struct op` of thread_state.h of the crate `inside`. */
struct inside_op {
	u64 key;
	u64 start_ns;
	u64 others[5];
	/* What replaced a function's return address, and where. */
	struct inside_return {
		u64 slot;
		u32 stub;
		u16 kind;
		u8 shared;
		u8 open;
	} returns;
	u32 samples[6];
};
_Static_assert(sizeof(struct inside_op) == 96 && __builtin_offsetof(struct inside_op, returns) == 56, "as thread_state.h says");
/* Size of the stubs, and of the table of the originals behind them (named.h of the crate `inside`). */
#define STUBS_SIZE 0x4000

union slot_value {
	struct slot slot;
	u8 bytes[SLOT_SIZE];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, u32);
	__type(value, union slot_value);
} tasks SEC(".maps");

/* A stack frame holds 512 bytes; a new slot is copied from here. */
static const union slot_value empty_slot;

static __always_inline void count_table_full(void)
{
	struct ring_control *control = ring_control_here();

	if (control)
		__sync_fetch_and_add(&control->table_full, 1);
}

/* Counts a thread that runs although no switch to it was seen. Since when it runs is not known. */
seldom void count_switch_unseen(void)
{
	struct ring_control *control = ring_control_here();

	if (control)
		__sync_fetch_and_add(&control->switches_unseen, 1);
}

/* Counts a thread that no longer sleeps although no wake-up was seen. */
seldom void count_waking_unseen(void)
{
	struct ring_control *control = ring_control_here();

	if (control)
		__sync_fetch_and_add(&control->wakings_unseen, 1);
}

static __always_inline bool call_syncs(u16 call)
{
	return (call >= FATHOM_CALL_FSYNC && call <= FATHOM_CALL_SYNC_FILE_RANGE) || call == FATHOM_CALL_MSYNC ||
	       call == FATHOM_CALL_SYNC;
}

static __always_inline struct who who_is(struct task_struct *task)
{
	struct who who = { .tgid = task->tgid, .tid = task->pid, .flags = !!(task->flags & PF_KTHREAD) };

	return who;
}

static __always_inline struct who whoami(void)
{
	return who_is((void *)bpf_get_current_task_btf());
}

/* Whether a statement is open that waits for its next step: what the thread does meanwhile does not belong to the statement. */
static __always_inline bool between_rows(struct slot *slot)
{
	if (!slot)
		return false;
	if (slot->inside_open)
		return !slot->inside_depth;
	return slot->ops_open > slot->functions_open && !slot->depth;
}

/* Whether any execution is open. */
static __always_inline bool in_operation(struct slot *slot)
{
	return slot->ops_open || slot->inside_open || slot->inside_functions;
}

/* Whether the sleeps of a thread matter that is in no recorded call. */
static __always_inline bool sleeps_matter(struct slot *slot)
{
	return in_operation(slot) ||
	       (slot->standing & FATHOM_TRACKED && (idle_sleeps || slot->stores || marks_mapped));
}

/* For records without `ctx`. */
static __always_inline struct who whoami_between(struct slot *slot)
{
	struct who who = whoami();

	if (between_rows(slot))
		who.flags |= FATHOM_HEADER_BETWEEN_ROWS;
	return who;
}

/* For completions, which belong to no task. */
static __always_inline struct who no_task(void)
{
	struct who who = {};

	return who;
}

#define RESERVE(name, KIND, now, who) \
	(struct fathom_##name *)ring_reserve(FATHOM_KIND_##KIND, sizeof(struct fathom_##name) / sizeof(u64), now, who, 0)

/* Records that end in a text are assembled in a scratch buffer and copied out at their actual length. */
#define TEXT_MAX 4096
/* Number of leading bytes of a kernel struct that are read at once; see inode.h. */
#define HEAD 96
struct head {
	u8 bytes[HEAD];
};

struct path_walk {
	u64 root;
	u64 root_vfs;
	u64 dentry;
	u64 vfs;
	u64 at;
	struct head head; /* of one step; on the stack it would exceed what Linux 6.1 allows a program, its function and this callback */
};

struct scratch {
	u32 busy;
	u32 pad;
	union {
		struct {
			struct fathom_statement r;
			char text[TEXT_MAX];
		} statement;
		struct {
			struct fathom_file r;
			char text[TEXT_MAX];
		} file;
		struct {
			struct fathom_task r;
			char text[16];
		} task;
	};
	struct path_walk walk;
	/* A path grows from its end; twice as long, so that a name may start anywhere in the first half. */
	char path[TEXT_MAX * 2];
};

#define SCRATCHES 3
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SCRATCHES);
	__type(key, u32);
	__type(value, struct scratch);
} scratches SEC(".maps");

/* Takes a buffer. Each CPU has several: programs on uprobes may be preempted by one another, or interrupted. */
static __always_inline struct scratch *take_scratch(void)
{
	u32 i;

#pragma unroll
	for (i = 0; i < SCRATCHES; i++) {
		u32 index = i;
		struct scratch *s = bpf_map_lookup_elem(&scratches, &index);

		if (s && !__sync_lock_test_and_set(&s->busy, 1))
			return s;
	}
	count_lost();
	return NULL;
}

static __always_inline void put_scratch(struct scratch *s)
{
	__sync_lock_test_and_set(&s->busy, 0);
}

/* The longest body with a text. */
#define LONGEST (TEXT_MAX + 256)
_Static_assert(LONGEST + 64 < CHUNK_SPARE && LONGEST / 8 + 3 < 1 << KIND_SHIFT, "a record must fit");

/* Copies out a record whose body of `size` bytes is in a scratch buffer. */
static __always_inline void output(const void *body, u8 kind, u32 size, u64 now, struct who who)
{
	u32 words = (size + 7) / 8;
	void *to;

	if (size > LONGEST)
		return;
	to = ring_reserve(kind, words, now, who, 0);
	if (!to)
		return;
	bpf_probe_read_kernel(to, size, body);
	submit(to);
}

static __always_inline struct slot *slot_of(u32 tid)
{
	return bpf_map_lookup_elem(&tasks, &tid);
}

static __always_inline struct slot *make_slot(u32 tgid, u32 tid, u16 standing)
{
	struct slot *slot;

	if (bpf_map_update_elem(&tasks, &tid, &empty_slot, BPF_NOEXIST)) {
		/* It exists already, or there is no room. */
		slot = slot_of(tid);
		if (!slot)
			count_table_full();
		return slot;
	}
	slot = slot_of(tid);
	if (!slot)
		return NULL;
	slot->tgid = tgid;
	slot->standing = standing;
	return slot;
}

/* Kernel threads have no slot, and cause much of the I/O: they are excluded before the look-up. */
static __always_inline struct slot *slot_of_thread(struct task_struct *task)
{
	return task->flags & PF_KTHREAD ? NULL : slot_of(task->pid);
}

/* Reads the current activity of a thread that is probed inside. Only for the running thread: no other's memory can be read. */
static __always_inline void read_inside(struct slot *slot)
{
	u64 state[4] = {};

	if (likely(!slot->inside_state))
		return;
	bpf_probe_read_user(state, sizeof(state), (void *)slot->inside_state);
	slot->inside_open = state[0] >> 32;
	slot->inside_functions = state[0] >> 48;
	slot->inside_depth = (u32)state[0];
	slot->inside_function = state[1];
	slot->inside_stubs = state[2];
	slot->inside_operations = state[3];
}

/*
 * The same, if it may have changed: only the program's own code changes it, so within a recorded call the value read at its entry
 * is valid. A read costs 50 to 80 ns, and a call has several records.
 */
static __always_inline struct slot *look_inside(struct slot *slot)
{
	if (slot && !slot->call)
		read_inside(slot);
	return slot;
}

/* The slot of the running thread, if it has one. */
static __always_inline struct slot *slot_here(void)
{
	return look_inside(slot_of_thread((void *)bpf_get_current_task_btf()));
}

/* The slot of a thread, created now if everyone is recorded. NULL: not recorded. */
static __always_inline struct slot *slot_for(u32 tgid, u32 tid)
{
	struct slot *slot = slot_of(tid);

	if (slot || !everyone || tgid == tracer_tgid)
		return slot;
	return make_slot(tgid, tid, everyone == 2 ? FATHOM_TRACKED : 0);
}

/* The slot of the running thread. */
static __always_inline struct slot *my_slot(void)
{
	u64 id = bpf_get_current_pid_tgid();

	return look_inside(slot_for(id >> 32, (u32)id));
}

/* The context of a thread, as stored in records. */
static __always_inline u16 context(struct slot *slot, struct who who)
{
	u16 ctx = 0;

	if (who.flags)
		ctx |= FATHOM_KERNEL_THREAD;
	if (who.tgid == tracer_tgid)
		ctx |= FATHOM_TRACER;
	if (!slot)
		return ctx;
	ctx |= slot->standing;
	if (between_rows(slot))
		ctx |= FATHOM_BETWEEN_ROWS;
	else if (slot->ops_open > slot->functions_open || slot->inside_open)
		ctx |= FATHOM_IN_OP;
	if (slot->functions_open || slot->inside_functions)
		ctx |= FATHOM_IN_OP;
	if (slot->call)
		ctx |= FATHOM_IN_SYSCALL;
	return ctx;
}

/* Requests of io_uring that are followed, since their completions do not identify a task: who submitted them, and when. */
struct ring_request {
	u64 start_ns;
	u32 tid;
	u32 tgid;
};
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, struct ring_request);
} urings SEC(".maps");

/* A worker refers to its request (io_worker.cur_work, embedded in the request). */
seldom u64 worker_identity(struct task_struct *task)
{
	struct io_worker *worker = task->worker_private;
	struct ring_request *known;
	u64 req;

	if (!worker)
		return 0;
	req = (u64)BPF_CORE_READ(worker, cur_work);
	if (!req)
		return 0;
	req -= bpf_core_field_offset(struct io_kiocb, work);
	known = bpf_map_lookup_elem(&urings, &req);
	return known ? known->start_ns : 0;
}

/*
 * The identity of the running thread's current work: the ring request that it submits or (one of io_uring's workers) executes, else
 * its system call, else 0.
 */
static __always_inline u64 identity_of(struct slot *slot)
{
	struct task_struct *task;

	if (!slot)
		return 0;
	if (slot->ring_ns)
		return slot->ring_ns;
	if (slot->call)
		return slot->start_ns;
	task = (void *)bpf_get_current_task_btf();
	return task->flags & PF_IO_WORKER ? worker_identity(task) : 0;
}

/* Whether the running thread works for a ring request. */
static __always_inline bool in_ring(struct slot *slot)
{
	return slot->ring_ns || (!slot->call && identity_of(slot));
}

/* Emits once which ring request the thread works for, before a record that does not contain it. */
static __always_inline void emit_ring(struct slot *slot)
{
	u64 request = in_ring(slot) ? identity_of(slot) : 0;
	struct fathom_uring *r;

	if (!request || request == slot->ring_reported)
		return;
	r = RESERVE(uring, URING, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return;
	slot->ring_reported = request;
	__builtin_memset(r, 0, sizeof(*r));
	r->result = request;
	r->phase = 2;
	submit(r);
}

#endif
