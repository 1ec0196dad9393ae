/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Finds the plan's libraries by their files: those that are loaded when the program starts, and those loaded later, which the loader
 * reports to debuggers by calling an empty function (r_brk). glibc, musl and bionic all have it.
 */
#ifndef FATHOM_INSIDE_LOAD_H
#define FATHOM_INSIDE_LOAD_H

#include "patch.h"
#include "price.h"

/* Number of objects remembered as examined. Further ones are examined every time. */
#define SEEN 512

static struct {
	u64 object;
	u64 bias;
} seen[SEEN];
static u32 seen_count;
static u32 has_execve;

static int was_seen(const struct link_map *m)
{
	u32 i;

	for (i = 0; i < seen_count; i++) {
		if (seen[i].object == (u64)m && seen[i].bias == m->bias)
			return 1;
	}
	return 0;
}

static void set_status(u32 library, u32 status)
{
	struct arena *a;

	if (!take_process())
		return;
	a = have_arena();
	/* A failure is kept, even if the library can be hooked another time. */
	if (a && (status != LIBRARY_HOOKED || a->library[library] == LIBRARY_UNSEEN))
		a->library[library] = status;
	release_process();
}

static int is_libc(const struct plan_library *library)
{
	return library->function[0].kind == FUNCTION_EXECVE;
}

static int is_unwinder(const struct plan_library *library)
{
	return library->function[0].kind == FUNCTION_FIND_FDE;
}

/* The C library's functions are hooked for the object's own use: their calls are not recorded. */
static void hook_libc(const struct plan_library *library, u64 bias)
{
	if (hook_library(library, bias) == LIBRARY_HOOKED)
		has_execve = 1;
}

/* Files that the recorder was asked about, so that none is asked about twice. */
static struct {
	u64 dev;
	u64 ino;
} asked_about[SEEN];
static u32 asked_count;
/* Whether the program has started: the recorder already knew the libraries loaded with it. */
static u32 has_begun;

/* Asks about a library that is not in the plan; returns whether it is now. */
static int learn(const char *file, u64 dev, u64 ino)
{
	const struct plan *before = plan;
	u8 answer = ANSWER_NOTHING;
	long connection;
	u32 i;

	for (i = 0; i < asked_count; i++) {
		if (asked_about[i].dev == dev && asked_about[i].ino == ino)
			return 0;
	}
	if (!has_begun || asked_count == SEEN)
		return 0;
	asked_about[asked_count].dev = dev;
	asked_about[asked_count++].ino = ino;
	connection = ask(ASK_LOADED, file, text_length(file, ASK_PATH), dev, ino, &answer);
	if (connection < 0)
		return 0;
	call1(SYS_close, connection);
	if (answer != ANSWER_PLANNED)
		return 0;
	/* The earlier plan stays mapped: generated code points into it. */
	if (map_plan())
		return 1;
	plan = before;
	return 0;
}

static int is_planned(u64 dev, u64 ino)
{
	u32 i;

	for (i = 0; i < plan->libraries && i < PLAN_LIBRARIES; i++) {
		if (plan->library[i].dev == dev && plan->library[i].ino == ino)
			return 1;
	}
	return 0;
}

static void look_at(const char *file, u64 bias)
{
	u64 dev, ino;
	u32 i, status;

	if (!identify(file, &dev, &ino) || (!is_planned(dev, ino) && !learn(file, dev, ino)))
		return;
	for (i = 0; i < plan->libraries && i < PLAN_LIBRARIES; i++) {
		if (plan->library[i].dev != dev || plan->library[i].ino != ino)
			continue;
		if (is_libc(&plan->library[i])) {
			hook_libc(&plan->library[i], bias);
			continue;
		}
		/* Without it, exceptions end at the object's code, as they do at a uprobe's. */
		if (is_unwinder(&plan->library[i])) {
			hook_library(&plan->library[i], bias);
			continue;
		}
		/* A process without an arena cannot record, and must not appear to. */
		if (!take_process())
			return;
		status = have_arena() ? LIBRARY_HOOKED : LIBRARY_UNSEEN;
		release_process();
		if (status == LIBRARY_UNSEEN)
			return;
		status = hook_library(&plan->library[i], bias);
		/* If deferred, the recorder reports it once it has written the jumps. */
		if (status == LIBRARY_HOOKED && deferred)
			continue;
		if (status == LIBRARY_HOOKED)
			fathom_inside_hooked(i);
		set_status(i, status);
	}
}

static void look_at_all(void)
{
	const struct link_map *m;

	for (m = loader->first; m; m = m->next) {
		if (was_seen(m))
			continue;
		/* The program is the first, and has no name with glibc; the kernel's code has none with musl. */
		if (m == loader->first)
			look_at("/proc/self/exe", m->bias);
		else if (m->dynamic != _DYNAMIC && m->name && m->name[0])
			look_at(m->name, m->bias);
		if (seen_count < SEEN) {
			seen[seen_count].object = (u64)m;
			seen[seen_count].bias = m->bias;
			seen_count++;
		}
	}
}

/* The loader holds its lock, so one thread at a time is here. */
__attribute__((used)) hidden void fathom_loader_changed(void)
{
	if (sealed)
		return;
	if (loader->state == RT_CONSISTENT)
		look_at_all();
	else if (loader->state == RT_DELETE)
		/* The next object may be loaded where one is being unloaded. */
		seen_count = 0;
}

/* The jump in the loader's empty function, and the original code there. */
static u64 loader_jump;
static u8 loader_original[JUMP];

/* Makes the empty function jump to the one above. Returns whether it succeeded. */
static int follow_loader(void)
{
	const u8 *empty = (const u8 *)loader->notify;
	u64 at = empty ? empty_body(empty) : 0;
	u8 jump[JUMP], *room;
	u64 target = (u64)fathom_loader_changed;

	if (!at)
		return 0;
	room = map_near(at);
	if (!room)
		return 0;
	memcpy(room, JUMP_TO_NEXT_WORD, 8);
	memcpy(room + 8, &target, sizeof(target));
	synchronise_code((u64)room, 16);
	if (call3(SYS_mprotect, room, ROOM, PROT_READ | PROT_EXEC) || !reaches(at, (u64)room))
		return 0;
	note_mapping(room, ROOM);
	put_jump(jump, at, (u64)room);
	memcpy(loader_original, (const u8 *)at, JUMP);
	if (!change_code(at, jump, loader_original, 0, NO_LIBRARY))
		return 0;
	loader_jump = at;
	return 1;
}

/* Ends the object's work when the recording is over: once, in the next call that would have been recorded. */
static void leave(void)
{
	static u32 left;

	if (sealed || __atomic_exchange_n(&left, 1, __ATOMIC_RELAXED))
		return;
	if (stat_field(STAT_THREADS) != 1)
		return;
	unhook_all();
	if (loader_jump)
		write_code(loader_jump, loader_original, JUMP);
	hidden_variable = 0;
}

/* Sets what thread.h calls. */
static void connect(void)
{
	on_recording_over = leave;
	on_first_ring = tell_prices;
}

static void watch_libraries(void)
{
	connect();
	find_cpu();
	follow_loader();
	look_at_all();
	has_begun = 1;
	if (has_execve)
		hide_variable();
}

#endif
