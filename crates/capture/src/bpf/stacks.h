/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where a thread slept for long: the kernel's functions and the program's.
 *
 * Nothing is done for a sleep before it has proved long, so all others cost one comparison each. When the thread is switched in
 * again, its kernel stack is still that of its sleep; it is walked from the CPU that switches to it. The thread's memory cannot be
 * accessed from there: the program's part is taken when it leaves the system call, where its registers and its stack are still the
 * same. They are copied, not walked: libraries are compiled without frame pointers, and the caller of a library's function would be
 * missing. User space (../stacks/) unwinds the copy at once and keeps only functions.
 *
 * Budget: STACKS_A_WINDOW in each window of STACK_WINDOW. If sleeps are more frequent, the threshold rises, so that the longest are
 * examined; it falls again when there are few.
 *
 * Uncertain: between the two parts a signal's handler may run on the same stack, below the copied part; it hides nothing. A thread
 * that page-faulted leaves no system call: of the program's part only the function is known.
 */
#ifndef FATHOM_STACKS_H
#define FATHOM_STACKS_H

/* Maximum number per window; 0: none are taken at all. */
const volatile u32 stacks_a_window;
/* Sleeps that are shorter are never examined, in ns. */
const volatile u64 stacks_from_ns;

#define STACK_WINDOW 100000000ULL
/* The highest threshold: longer sleeps are always among the longest. */
#define STACK_LONGEST (1ULL << 30)

/* As in ../stacks/raw.rs. */
#define STACK_FRAMES 64
#define STACK_PIECE 1024
#define STACK_PIECES 17
/* Of uretprobes, and of functions that are probed inside. */
#define STACK_RETURNS 16
#define HALF_RETURNS (STACK_RETURNS / 2)

enum stack_what {
	STACK_ASLEEP = 1, /* with the kernel's functions */
	STACK_OF_CALL,	  /* with the program's memory: for all sleeps of the thread since its previous one */
	STACK_MOVED,	  /* the process has new code mappings: another program, more code, or a fork by the process `tid` */
};

struct stack_head {
	u32 what;
	u32 tgid;
	u32 tid;
	u32 count; /* number of frames, or of pieces */
	u64 out_ns;
	u64 time_ns;
	u64 ip, sp, bp, lr;
	u64 stubs; /* address of the stubs that replace return addresses of functions that are probed inside */
	u32 ctx;
	u32 comes; /* STACK_* */
};

/* Whether the program's part follows. */
enum stack_comes {
	STACK_FOLLOWS,
	STACK_PAGE_FAULT,
	STACK_FOREIGN, /* a 32-bit program */
};

struct stack_asleep {
	struct stack_head head;
	u64 frames[STACK_FRAMES];
};

/* A return address that a probe replaced: its address on the stack, and its original value. */
struct stack_return {
	u64 at;
	u64 original;
};

struct stack_of_call {
	struct stack_head head;
	struct stack_return returns[STACK_RETURNS];
	u8 bytes[STACK_PIECES * STACK_PIECE];
};

/* User space enlarges it if stacks are taken. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} stacks SEC(".maps");

/* As in ../stacks/mod.rs. */
struct stack_state {
	u64 window; /* its number in the upper half, the number of sleeps in the lower */
	u64 threshold;
	u64 taken;
	u64 skipped; /* longer than `stacks_from_ns`, but not taken */
	u64 no_room;
	u64 longest_skipped;
	u64 pad[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct stack_state);
} stack_states SEC(".maps");

/* Number of threads whose program part is wanted. All system calls of the machine read it, so it is not a map element. */
u32 stacks_due;

static __always_inline struct stack_state *stack_state(void)
{
	u32 only = 0;

	return bpf_map_lookup_elem(&stack_states, &only);
}

/* Begins a new window: its threshold follows from the number of sleeps in the last one. */
static __always_inline void adapt_threshold(struct stack_state *state, u64 last, u64 window)
{
	u64 threshold = state->threshold, came = (u32)last, passed = window - (last >> 32);

	if (came > stacks_a_window && passed == 1)
		threshold *= came > 4ULL * stacks_a_window ? 8 : 2;
	else if (passed > 1 || came < stacks_a_window / 2)
		threshold >>= passed > 16 ? 16 : passed;
	if (threshold < stacks_from_ns)
		threshold = stacks_from_ns;
	if (threshold > STACK_LONGEST)
		threshold = STACK_LONGEST;
	state->threshold = threshold;
}

/* Whether a sleep is one of those that are examined. */
static __always_inline bool stack_is_wanted(u64 slept, u64 now)
{
	struct stack_state *state;
	u64 window, last;

	if (!stacks_a_window || slept < stacks_from_ns)
		return false;
	state = stack_state();
	if (!state)
		return false;
	window = now / STACK_WINDOW;
	last = *(volatile u64 *)&state->window;
	if (last >> 32 < window && __sync_val_compare_and_swap(&state->window, last, window << 32) == last)
		adapt_threshold(state, last, window);
	if (slept >= *(volatile u64 *)&state->threshold) {
		last = __sync_fetch_and_add(&state->window, 1);
		if ((u32)last < stacks_a_window)
			return true;
	}
	__sync_fetch_and_add(&state->skipped, 1);
	if (slept > state->longest_skipped)
		state->longest_skipped = slept;
	return false;
}

/* Notifies user space to read the locations of a process's code: at once, since many end soon after they slept. */
seldom void tell_moved(u32 tgid, u32 parent)
{
	struct stack_head *r;

	if (!stacks_a_window)
		return;
	r = bpf_ringbuf_reserve(&stacks, sizeof(*r), 0);
	if (!r)
		return;
	__builtin_memset(r, 0, sizeof(*r));
	r->what = STACK_MOVED;
	r->tgid = tgid;
	r->tid = parent;
	bpf_ringbuf_submit(r, parent ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
}

seldom void count_stack(bool taken)
{
	struct stack_state *state = stack_state();

	if (state)
		__sync_fetch_and_add(taken ? &state->taken : &state->no_room, 1);
}

static __always_inline void put_registers(struct stack_head *head, struct pt_regs *regs)
{
#if defined(__TARGET_ARCH_x86)
	head->ip = regs->ip;
	head->sp = regs->sp;
	head->bp = regs->bp;
	head->lr = 0;
#else
	head->ip = regs->pc;
	head->sp = regs->sp;
	head->bp = regs->regs[29];
	head->lr = regs->regs[30];
#endif
	head->comes = FOREIGN_ABI(regs)		   ? STACK_FOREIGN :
		      (u64)(s64)CALL_NR(regs) < CALLS ? STACK_FOLLOWS :
							STACK_PAGE_FAULT;
}

/* For a thread that is about to run again after a sleep. */
seldom void take_kernel_stack(struct task_struct *task, struct slot *slot, u64 now)
{
	struct stack_asleep *r = bpf_ringbuf_reserve(&stacks, sizeof(*r), 0);
	struct pt_regs *regs;
	struct who who;
	long bytes;

	/*
	 * Compared once: after a second comparison Linux 6.1 forgets that this memory exists (reg_type_not_null), and misses its
	 * release.
	 */
	if (!r) {
		count_stack(false);
		return;
	}
	who = who_is(task);
	regs = (void *)bpf_task_pt_regs(task);
	r->head.what = STACK_ASLEEP;
	r->head.tgid = task->tgid;
	r->head.tid = task->pid;
	r->head.out_ns = slot->out_ns;
	r->head.time_ns = now;
	r->head.stubs = 0;
	r->head.ctx = context(slot, who);
	put_registers(&r->head, regs);
	bytes = bpf_get_task_stack(task, r->frames, sizeof(r->frames), 0);
	r->head.count = bytes > 0 ? bytes / sizeof(u64) : 0;
	if (r->head.comes == STACK_FOLLOWS && !slot->stack_due) {
		slot->stack_due = 1;
		__sync_fetch_and_add(&stacks_due, 1);
	}
	bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	count_stack(true);
}

/* Nothing more is needed from a thread. */
static __always_inline void stack_is_done(struct slot *slot)
{
	if (likely(!slot->stack_due))
		return;
	slot->stack_due = 0;
	__sync_fetch_and_add(&stacks_due, -1);
}

/* The return addresses that the kernel replaced on the running thread's stack, innermost first. */
static __always_inline void put_returns(struct task_struct *task, struct stack_of_call *r)
{
	struct return_instance *instance = NULL;
	struct uprobe_task *utask;
	int i;

	if (bpf_core_field_exists(((struct task_struct *)0)->utask) &&
	    bpf_core_field_exists(((struct return_instance *)0)->orig_ret_vaddr)) {
		utask = BPF_CORE_READ(task, utask);
		if (utask)
			instance = BPF_CORE_READ(utask, return_instances);
	}
#pragma clang loop unroll(disable)
	for (i = 0; i < HALF_RETURNS; i++) {
		r->returns[i].at = 0;
		r->returns[i].original = 0;
		if (!instance)
			continue;
		r->returns[i].at = BPF_CORE_READ(instance, stack);
		r->returns[i].original = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
	}
}

/* Those that the object inside the program replaced by its stubs: read while the program is still in memory. */
static __always_inline void put_returns_inside(struct slot *slot, struct stack_of_call *r)
{
	u64 original;
	int i, j;

#pragma clang loop unroll(disable)
	for (i = 0; i < HALF_RETURNS; i++) {
		const struct inside_op *ops = (void *)slot->inside_operations;
		struct inside_return op = {};

		r->returns[HALF_RETURNS + i].at = 0;
		r->returns[HALF_RETURNS + i].original = 0;
		if (!slot->inside_functions || !slot->inside_stubs)
			continue;
		bpf_probe_read_user(&op, sizeof(op), &ops[i].returns);
		if (!op.open || op.kind != OP_FUNCTION)
			continue;
		original = slot->inside_stubs + op.stub * 8ULL;
		/* A function that was jumped to returns to the stub of the one that jumped. */
#pragma clang loop unroll(disable)
		for (j = 0; j < 4 && original - slot->inside_stubs < STUBS_SIZE; j++)
			if (bpf_probe_read_user(&original, sizeof(original), (void *)(original + STUBS_SIZE)))
				break;
		r->returns[HALF_RETURNS + i].at = op.slot;
		r->returns[HALF_RETURNS + i].original = original;
	}
}

/* For the running thread, which leaves a system call. */
seldom void take_program_stack(struct pt_regs *regs)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct slot *slot = slot_of_thread(task);
	struct stack_of_call *r;
	u64 at;
	int i;

	if (!slot || !slot->stack_due)
		return;
	stack_is_done(slot);
	r = bpf_ringbuf_reserve(&stacks, sizeof(*r), 0);
	if (!r)
		return;
	read_inside(slot);
	r->head.what = STACK_OF_CALL;
	r->head.tgid = task->tgid;
	r->head.tid = task->pid;
	r->head.out_ns = 0;
	r->head.time_ns = bpf_ktime_get_boot_ns();
	r->head.stubs = slot->inside_stubs;
	r->head.ctx = 0;
	put_registers(&r->head, regs);
	put_returns(task, r);
	put_returns_inside(slot, r);
	at = r->head.sp & ~(STACK_PIECE - 1ULL);
	/* No piece spans two pages. The last mapped one is the stack's end. */
#pragma clang loop unroll(disable)
	for (i = 0; i < STACK_PIECES; i++)
		if (bpf_probe_read_user(r->bytes + i * STACK_PIECE, STACK_PIECE, (void *)(at + i * STACK_PIECE)))
			break;
	r->head.count = i;
	/* The first one of a thread is reported at once: its process may end right after it. */
	bpf_ringbuf_submit(r, slot->stack_told ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP);
	slot->stack_told = 1;
}

#endif
