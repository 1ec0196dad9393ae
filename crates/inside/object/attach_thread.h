/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Where a thread's state is stored. A program that started with the object has thread-local memory for it. In a program that was already
 * running, the layout of that memory is fixed, so the states are in a table searched by thread ID, which the C library keeps at a fixed
 * offset from the thread pointer; the recorder determines that offset.
 */
#ifndef FATHOM_INSIDE_ATTACH_THREAD_H
#define FATHOM_INSIDE_ATTACH_THREAD_H

#include "thread_state.h"

#if defined(__x86_64__)
#define THREADS 512
/* Number of slots in which a thread's state may be, starting at the one of its thread ID. */
#define TRIED 16

struct place {
	u32 owner;
	struct thread thread;
};

static struct place *places;

static inline u32 thread_number(void)
{
	return thread_word((s64)fathom_attached.thread_at);
}

/* Marks a slot that a thread is about to use: a signal's handler that interrupts it finds no slot of its own yet, and takes another. */
#define TAKEN 0x80000000U

/* Handles the first call of a thread. Null: there is no free slot, or the thread has no number yet or any more. */
static __attribute__((noinline)) struct thread *take_place(u32 number)
{
	u64 tgid = sealed ? 0 : call0(SYS_getpid);
	u32 i, owner;

	for (i = 0; i < TRIED && number; i++) {
		struct place *place = &places[(number + i) & (THREADS - 1)];

		if (__atomic_load_n(&place->owner, __ATOMIC_RELAXED) == number)
			return &place->thread;
	}
	for (i = 0; i < TRIED && number && !sealed; i++) {
		struct place *place = &places[(number + i) & (THREADS - 1)];

		owner = __atomic_load_n(&place->owner, __ATOMIC_RELAXED);
		/* Slots of threads of the parent of a fork are free too. */
		if (owner && !has_ended(tgid, owner & ~TAKEN))
			continue;
		if (__atomic_compare_exchange_n(&place->owner, &owner, number | TAKEN, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED)) {
			memset(&place->thread, 0, sizeof(place->thread));
			__atomic_store_n(&place->owner, number, __ATOMIC_RELEASE);
			return &place->thread;
		}
	}
	fathom_inside_lost();
	return 0;
}

static __attribute__((noinline)) struct thread *thread_of_number(void)
{
	u32 number = thread_number();
	struct place *place;
	struct thread *t;

	place = &places[number & (THREADS - 1)];
	t = likely(place->owner == number && number) ? &place->thread : take_place(number);
	/* An earlier thread with this ID has ended, and another thread took over its ring. */
	if (t && unlikely(t->ring && t->generation == process->generation && t->ring->owner != (u32)t->tid))
		t->generation = 0;
	return t;
}

/* Whether a program was already running when the object came. */
static inline int is_attached(void)
{
	return fathom_attached.pid != 0;
}

static inline struct thread *own_thread(void)
{
	return unlikely(is_attached()) ? thread_of_number() : &self;
}

static int make_places(void)
{
	u64 size = (THREADS * sizeof(struct place) + 4095) & ~4095UL;

	places = map(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
	if (places)
		note_mapping(places, size);
	return places != 0;
}
#else
static inline int is_attached(void)
{
	return 0;
}

static inline struct thread *own_thread(void)
{
	return &self;
}
#endif

#endif
