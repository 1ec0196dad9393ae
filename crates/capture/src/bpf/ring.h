/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where records go: a ring for each CPU, in memory that user space maps.
 *
 * As only its own CPU writes to a ring, there is no lock, no position moves from CPU to CPU, and a record costs one
 * compare-and-swap (an interrupt, or another task after a preemption, may reserve room in between). This also works for several
 * CPUs, which share a ring if there are more CPUs than memory is available for. A ring is several chunks, each an element of one
 * array, since the verifier must see how far a record may reach: a chunk's last record may extend into the chunk's spare bytes,
 * which replace the first bytes of the next chunk.
 *
 * A record is as short as possible, since most of its cost is memory that is no longer in any cache. It consists of words of 8
 * bytes:
 *
 *   its word   bits 0-9 number of words, 10-15 its kind, 16-19 the header's flags, 20 whether it has a last word, 26-47 the
 *              thread (PID_MAX_LIMIT is 2^22), 48-63 the check
 *   a time     bits 0-8 the context (FATHOM_IN_OP and so on), 9-63 the low bits of CLOCK_BOOTTIME
 *   its body   as in events.h, or packed (packed.h)
 *   last word  bits 0-31 the process, 32-47 the CPU: if the process's number differs from the thread's, or the ring's from the CPU's
 *
 * Zero words at a body's end need not be written. User space (../rings.rs, ../unpack.rs) restores the whole record from it.
 *
 * The check is the number of the chunk, counted from the first byte ever reserved, mixed with a number that only this recording
 * knows: data left in the memory by an earlier lap is not taken for a record. The word is stored inverted until the record is
 * complete. User space stops at the first incomplete one.
 *
 * The kernel's own ring buffer does the same for all CPUs at once, and costs 60 to 75 ns more per record on one CPU.
 */
#ifndef FATHOM_RING_H
#define FATHOM_RING_H

/* As in rings.rs. The largest element that Linux 6.1 can allocate is 4 MiB. */
#define CHUNK (1 << 20)
#define CHUNK_SPARE (8 << 10)
/* The bit positions in a record's word. */
#define KIND_SHIFT 10
#define FLAGS_SHIFT 16
#define LAST_SHIFT 20
#define THREAD_SHIFT 26
#define CHECK_SHIFT 48
/* Bits of the context, below the time. */
#define CONTEXT_BITS 9
/* The words before a body. */
#define HEAD_WORDS 2
/* Maximum number of consecutive interruptions between reading and reserving. */
#define TAKES 8

/* Rings; CPUs of higher numbers share them. */
const volatile u32 ring_count;
/* Chunks of a ring; a power of two. */
const volatile u32 ring_chunks;
/* Mixed into the bits of the check. */
const volatile u64 ring_salt;

/* Control data of a CPU, and of the ring of that number, if there is one. */
struct ring_control {
	u64 head; /* total bytes reserved */
	u64 lost;
	u64 table_full;
	u64 late_ns; /* total time by which the recorded ends of reset statements may be too late */
	u64 reset_wanted; /* that time is too long: user space should probe resets */
	/* Proved by a later event: the kernel did not run the program (docs/guide/record.md, Completeness). */
	u64 switches_unseen;
	u64 wakings_unseen;
	u64 pad;
	u64 tail; /* bytes that user space has read; in a separate cache line, since another CPU writes it */
	u64 pad_tail[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* one per CPU */
	__type(key, u32);
	__type(value, struct ring_control);
} ring_controls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* `ring_chunks` for each ring */
	__uint(key_size, sizeof(u32));
	__uint(value_size, CHUNK + CHUNK_SPARE);
} ring_memory SEC(".maps");

/* Wakes user space, which otherwise polls by timer: a wake-up costs more than all probes together. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} wakeups SEC(".maps");

static __always_inline void ring_bell(void)
{
	u64 nothing = 0;

	bpf_ringbuf_output(&wakeups, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct ring_control *ring_control_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&ring_controls, &cpu);
}

/* Stores a word after all earlier stores. */
static __always_inline void ring_store(u64 *at, u64 word)
{
#if defined(__TARGET_ARCH_x86)
	asm volatile("" ::: "memory");
	*(volatile u64 *)at = word;
	asm volatile("" ::: "memory");
#else
	__sync_lock_test_and_set(at, word);
#endif
}

#define NO_ROOM ~0ULL

/* Retries after an interruption. Not static, so that the verifier checks it once and not at every record. */
__attribute__((noinline)) u64 ring_take_again(u32 ring, u32 size)
{
	struct ring_control *control = bpf_map_lookup_elem(&ring_controls, &ring);
	u64 place;
	int i;

	if (!control)
		return NO_ROOM;
#pragma clang loop unroll(disable)
	for (i = 0; i < TAKES; i++) {
		place = *(volatile u64 *)&control->head;
		if (place + size - *(volatile u64 *)&control->tail > (u64)ring_chunks * CHUNK)
			break;
		if (__sync_val_compare_and_swap(&control->head, place, place + size) == place)
			return place;
	}
	return NO_ROOM;
}

/* Reserves `size` bytes of a ring; NO_ROOM if there are none. */
static __always_inline u64 ring_take(u32 ring, u32 size)
{
	struct ring_control *control = bpf_map_lookup_elem(&ring_controls, &ring);
	u64 place;

	if (unlikely(!control))
		return NO_ROOM;
	place = *(volatile u64 *)&control->head;
	if (unlikely(place + size - *(volatile u64 *)&control->tail > (u64)ring_chunks * CHUNK))
		return NO_ROOM;
	if (likely(__sync_val_compare_and_swap(&control->head, place, place + size) == place))
		return place;
	return ring_take_again(ring, size);
}

/* The task that a record is about. */
struct who {
	u32 tgid;
	u32 tid;
	u8 flags;
};

/* Counts a record that found no room. */
seldom void count_lost(void)
{
	struct ring_control *control = ring_control_here();

	if (control)
		__sync_fetch_and_add(&control->lost, 1);
}

/*
 * Reserves room for a record with a body of this many words, all of which the caller writes. Returns the body.
 *
 * Written so that no branch and no address here depends on a number that the verifier tracks: Linux 6.1 would trace its origin, and
 * if a call lies between, it distinguishes from then on all states in which any number differs.
 */
static __always_inline u64 *ring_reserve(u8 kind, u32 words, u64 now, struct who who, u16 ctx)
{
	u32 cpu = bpf_get_smp_processor_id();
	u32 ring = cpu < ring_count ? cpu : cpu % ring_count;
	u64 differs = (who.tid ^ who.tgid) | (cpu ^ ring);
	u64 negative = -differs;
	u64 place, word, *at;
	u32 last, all, index;
	void *chunk;

	/* 1 if any bit is set; the compiler would turn it into a branch. */
	asm volatile("" : "+r"(negative));
	last = (differs | negative) >> 63;
	all = HEAD_WORDS + words + last;
	place = ring_take(ring, all * sizeof(u64));
	if (unlikely(place == NO_ROOM)) {
		count_lost();
		return NULL;
	}
	index = ring * ring_chunks + (place / CHUNK & (ring_chunks - 1));
	chunk = bpf_map_lookup_elem(&ring_memory, &index);
	if (unlikely(!chunk))
		return NULL;
	/* All lengths are multiples of 8, so the mask changes nothing; the verifier needs it. */
	at = chunk + (place & (CHUNK - sizeof(u64)));
	word = place / CHUNK << CHECK_SHIFT ^ ring_salt;
	word |= (u64)who.tid << THREAD_SHIFT | (u64)last << LAST_SHIFT | (u32)who.flags << FLAGS_SHIFT | kind << KIND_SHIFT | all;
	ring_store(at, ~word);
	at[1] = now << CONTEXT_BITS | ctx;
	if (last) {
		/* Reads the length back from memory. */
		index = ~*(volatile u64 *)at;
		at[1 + (index - HEAD_WORDS & ((1 << KIND_SHIFT) - 1))] = (u64)cpu << 32 | who.tgid;
	}
	return at + HEAD_WORDS;
}

/* Marks the record of this body as complete. */
static __always_inline void submit(void *body)
{
	u64 *at = (u64 *)body - HEAD_WORDS;

	ring_store(at, ~*at);
}

#endif
