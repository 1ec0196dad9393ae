/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where records go: a ring for each CPU, in memory that user space maps.
 *
 * As only its own CPU writes into a ring, no lock and no position goes from CPU to CPU, and a record costs one
 * compare-and-swap (an interrupt, or another task after a preemption, may take room in between). That also serves several
 * CPUs, which share a ring where there are more than memory is to be spent on. A ring is several chunks, each an element of
 * one array, since the verifier must see how far a record may reach: a chunk's last record may run on into the chunk's
 * spare bytes, in place of those that the next chunk begins with.
 *
 * A record is a word and the record itself. The word holds the record's length and its place, counted from the first byte
 * ever taken, mixed with a number that only this recording knows: what an earlier lap left in the memory is never taken
 * for it. It stands inverted until the record is whole. User space (../rings.rs) stops at the first that is not.
 *
 * The kernel's own ring buffer does the same for all CPUs at once, and costs 60 to 75 ns a record more on one CPU.
 */
#ifndef FATHOM_RING_H
#define FATHOM_RING_H

/* As in rings.rs. The memory of Linux 6.1's largest element is 4 MiB. */
#define CHUNK (1 << 20)
#define CHUNK_SPARE (8 << 10)
/* Bits of a word that hold the length. */
#define LENGTH_BITS 13
/* Interruptions between reading and taking that are put up with, one after the other. */
#define TAKES 8

/* Rings; CPUs of higher numbers share them. */
const volatile u32 ring_count;
/* Chunks of a ring; a power of two. */
const volatile u32 ring_chunks;
const volatile u64 ring_salt;

/* Of a CPU, and of the ring of that number, if there is one. */
struct ring_control {
	u64 head; /* bytes ever taken */
	u64 seq; /* records so far, those lost included */
	u64 lost;
	u64 table_full;
	u64 late_ns; /* by which statements that were reset may have ended too late */
	u64 reset_wanted; /* that is too much: resets are to be seen */
	u64 pad[2];
	u64 tail; /* bytes that user space has read; in a line of its own, since another CPU writes it */
	u64 pad_tail[7];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* a CPU each */
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

/* Wakes user space, which else looks by timer: a wake-up costs more than all probes together. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} bell SEC(".maps");

static __always_inline void ring_bell(void)
{
	u64 nothing = 0;

	bpf_ringbuf_output(&bell, &nothing, sizeof(nothing), BPF_RB_FORCE_WAKEUP);
}

static __always_inline struct ring_control *ring_control_here(void)
{
	u32 cpu = bpf_get_smp_processor_id();

	return bpf_map_lookup_elem(&ring_controls, &cpu);
}

static __always_inline u64 ring_word(u64 place, u32 length)
{
	return (place / 8 ^ ring_salt) << LENGTH_BITS | length;
}

/* Stores a word after all that was stored before it. */
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

/*
 * Takes `size` bytes of a ring; NO_ROOM if there are none. Not static, so that the verifier looks at it once and not at
 * every record.
 */
__attribute__((noinline)) u64 ring_take(u32 ring, u32 size)
{
	struct ring_control *control = bpf_map_lookup_elem(&ring_controls, &ring);
	u64 place;
	int i;

	if (!control)
		return NO_ROOM;
	for (i = 0; i < TAKES; i++) {
		place = *(volatile u64 *)&control->head;
		if (place + size - *(volatile u64 *)&control->tail > (u64)ring_chunks * CHUNK)
			break;
		if (__sync_val_compare_and_swap(&control->head, place, place + size) == place)
			return place;
	}
	return NO_ROOM;
}

/* Which record this is. */
struct ring_number {
	u32 cpu;
	u32 seq;
};

/* Room for a record, and its number, which is taken first, so that a record that found no room leaves a hole. */
static __always_inline void *ring_reserve(u32 size, struct ring_number *number)
{
	u32 cpu = bpf_get_smp_processor_id();
	struct ring_control *control = bpf_map_lookup_elem(&ring_controls, &cpu);
	u32 ring = cpu < ring_count ? cpu : cpu % ring_count;
	u64 place, *at;
	void *chunk;
	u32 index;

	if (!control)
		return NULL;
	number->cpu = cpu;
	number->seq = __sync_fetch_and_add(&control->seq, 1);
	place = ring_take(ring, sizeof(u64) + ((size + 7) & ~7U));
	if (place == NO_ROOM) {
		__sync_fetch_and_add(&control->lost, 1);
		return NULL;
	}
	index = ring * ring_chunks + (place / CHUNK & (ring_chunks - 1));
	chunk = bpf_map_lookup_elem(&ring_memory, &index);
	if (!chunk)
		return NULL;
	/* All lengths are multiples of 8, so the mask changes nothing; it is what the verifier understands. */
	at = chunk + (place & (CHUNK - sizeof(u64)));
	ring_store(at, ~ring_word(place, size));
	return at + 1;
}

/* The record is whole. */
static __always_inline void submit(void *record)
{
	u64 *at = (u64 *)record - 1;

	ring_store(at, ~*at);
}

#endif
