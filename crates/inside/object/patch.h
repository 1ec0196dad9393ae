/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes jumps into the code of a library, before any of it runs.
 *
 * The jump is placed after the function's first instruction. At that instruction the kernel puts the breakpoint of a uprobe, whoever owns
 * it; it executes the instruction out of line and continues after it, so it would tear apart a jump placed there. The stub undoes the
 * effect of the first instruction, and the trampoline executes it again. The recorder worked out both (../src/hook.rs).
 *
 * Breakpoints that are already there are removed from this process's copy of the page: the recorder's own uprobes are on the file from
 * the start, for processes that are not hooked, and would trap here for nothing.
 */
#ifndef FATHOM_INSIDE_PATCH_H
#define FATHOM_INSIDE_PATCH_H

#include "attach_code.h"
#if defined(__x86_64__)
#include "named.h"
#include "unwind.h"
#else
#include "unnamed.h"
#endif

#define NEAR_STEP SITES_ALIGNED

static u8 *map_near(u64 place)
{
	u64 distance, at;
	u8 *got;
	int way;

	for (distance = NEAR_STEP; distance < REACH; distance += NEAR_STEP) {
		for (way = 0; way < 2; way++) {
			at = ((way ? place - distance : place + distance) | (NEAR_STEP - 1)) + 1;
			if (way && distance >= place)
				continue;
			got = map(at, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1);
			if ((u64)got == at)
				return got;
			/* A kernel that does not support the flag treats the address as a hint. */
			if (got)
				call2(SYS_munmap, got, ROOM);
		}
	}
	return 0;
}

static void *hook_of(u8 kind)
{
	if (kind == FUNCTION_STEP)
		return fathom_enter_step;
	if (kind == FUNCTION_EXECVE)
		return fathom_enter_execve;
	if (kind == FUNCTION_PRCTL)
		return fathom_enter_prctl;
	if (kind == FUNCTION_SYSCALL)
		return fathom_enter_syscall;
	if (kind == FUNCTION_NAMED)
		return fathom_enter_function;
	if (kind == FUNCTION_FIND_FDE)
		return fathom_enter_find_fde;
	return kind == FUNCTION_PREPARE ? fathom_enter_prepare : fathom_enter_reset;
}

/* Whether the function is as it was when the plan was made. At its start there may be a uprobe's breakpoint. */
static int is_original(const u8 *entry, const struct plan_function *f)
{
	u32 i;

	for (i = BREAKPOINT; i < f->moved; i++) {
		if (entry[i] != f->original[i])
			return 0;
	}
	return 1;
}

/* Hooked libraries, and where they are loaded. */
#define HOOKED 64
static struct {
	const struct plan_library *library;
	u64 bias;
	u64 room;
} hooked[HOOKED];
static u32 hooked_count;
/* Their SQLites' counters, by the same index. */
static struct counters counters_of[HOOKED];

static int is_hooked(const struct plan_library *library, u64 bias)
{
	u32 i;

	for (i = 0; i < hooked_count; i++) {
		const struct plan_library *other = hooked[i].library;

		/* The other may be of an earlier plan. */
		if (other->dev == library->dev && other->ino == library->ino && hooked[i].bias == bias &&
		    other->function[0].address == library->function[0].address)
			return 1;
	}
	return 0;
}

/* Whether the jumps of a library lead to its mapping: it may have been unloaded since, and perhaps loaded again. */
static int stands(u32 n)
{
	const struct plan_function *f = &hooked[n].library->function[0];
	u64 leads_to = jump_target(hooked[n].bias + f->address + f->first);

	return leads_to >= hooked[n].room && leads_to < hooked[n].room + ROOM;
}

/*
 * Returns the index for a new entry of `hooked`: that of an unloaded library, if there is one. While jumps are deferred, none is in place
 * yet.
 */
static u32 place_of_account(void)
{
	u32 i = 0;

	while (i < hooked_count && (deferred || stands(i)))
		i++;
	return i;
}

static int is_near(u64 room, const struct plan_library *library, u64 bias)
{
	u32 i;

	for (i = 0; i < library->functions; i++) {
		u64 jump = bias + library->function[i].address + library->function[i].first;

		if (!reaches(jump, room) || !reaches(jump, room + ROOM - 1))
			return 0;
	}
	return 1;
}

/* Reuses the mapping of an unloaded library: nothing runs there any more. 0: there is none within range. */
static u8 *room_again(u32 place, const struct plan_library *library, u64 bias)
{
	u8 *room = place < hooked_count ? (u8 *)hooked[place].room : 0;

	if (!room || !is_near((u64)room, library, bias) || call3(SYS_mprotect, room, ROOM, PROT_READ | PROT_WRITE))
		return 0;
	memset(room, 0, ROOM);
	return room;
}

static void give_back(u8 *room, int is_kept)
{
	if (!is_kept)
		call2(SYS_munmap, room, ROOM);
}

/* Prepares to read the counters of a SQLite; null if they cannot be read. */
static struct counters *prepare_counters(u32 place, const struct plan_library *library, u64 bias)
{
	struct counters *c = &counters_of[place];

	if (!library->counted || !library->stmt_status)
		return 0;
	memset(c, 0, sizeof(*c));
	c->stmt_status = (void *)(bias + library->stmt_status);
	c->counted = library->counted;
	c->text_at = library->text_at ? library->text_at - 1U : 0;
	if (!library->db_handle || !library->db_status || !library->db_mutex || !library->mutex_try || !library->mutex_leave)
		return c;
	c->db_handle = (void *)(bias + library->db_handle);
	c->db_status = (void *)(bias + library->db_status);
	c->db_mutex = (void *)(bias + library->db_mutex);
	c->mutex_try = (void *)(bias + library->mutex_try);
	c->mutex_leave = (void *)(bias + library->mutex_leave);
	return c;
}

/* Hooks all or none of the functions of a library that was loaded at `bias`. */
static u32 hook_library(const struct plan_library *library, u64 bias)
{
	u64 stubs[PLAN_FUNCTIONS];
	struct counters *counters;
	struct site *site;
	u8 bytes[PLAN_ORIGINAL];
	u8 *room, *code;
	u32 i, place;
	int again;

	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];

		/* Hooked before, or patched by something else: a newly loaded library has the code of its file. */
		if (!is_original((const u8 *)(bias + f->address), f))
			return is_hooked(library, bias) ? LIBRARY_HOOKED : LIBRARY_CHANGED;
	}
	place = place_of_account();
	if (!library->functions || place == HOOKED || !has_room_for_jumps(library->functions))
		return LIBRARY_NO_ROOM;
	for (i = 0; fathom_attached.pid && i < library->functions; i++) {
		if (lies_across(bias + library->function[i].address, library->function[i].first + JUMP))
			return LIBRARY_ACROSS;
	}
	if (shadowed && moves_calls(library))
		return LIBRARY_SHADOWED;
	if (library->function[0].kind == FUNCTION_NAMED && !prepare_stubs())
		return shadowed ? LIBRARY_SHADOWED : LIBRARY_FORBIDDEN;
	room = room_again(place, library, bias);
	again = !!room;
	if (!again)
		room = map_near(bias + library->function[0].address);
	if (!room)
		return LIBRARY_NO_ROOM;
	site = (struct site *)room;
	code = room + PLAN_FUNCTIONS * sizeof(struct site);
	counters = prepare_counters(place, library, bias);
	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];
		u64 entry = bias + f->address;

		site[i].hook = hook_of(f->kind);
		site[i].library = library;
		site[i].function = f;
		site[i].counters = counters;
		code = build(code, &site[i], entry, &stubs[i]);
		if (!code || !reaches(entry + f->first, stubs[i])) {
			give_back(room, again);
			return LIBRARY_NO_ROOM;
		}
	}
	synchronise_code((u64)room, ROOM);
	if (call3(SYS_mprotect, room, ROOM, PROT_READ | PROT_EXEC)) {
		give_back(room, again);
		return LIBRARY_FORBIDDEN;
	}
	if (!again)
		note_mapping(room, ROOM);
	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];
		u64 entry = bias + f->address;

		/* Includes the first instruction, to overwrite a uprobe's breakpoint, which would trap for nothing. */
		memcpy(bytes, f->original, f->first);
		put_jump(bytes + f->first, entry + f->first, stubs[i]);
		/*
		 * A failure of the first leaves nothing behind. One of a later function, whose page is like the first one's, does not
		 * occur.
		 */
		if (!change_code(entry, bytes, f->original, f->first, (u32)(library - plan->library)))
			return LIBRARY_FORBIDDEN;
	}
	/* A mapping that was too far away for reuse stays mapped: only the recorder unmaps those that were noted. */
	hooked[place].library = library;
	hooked[place].room = (u64)room;
	hooked[place].bias = bias;
	hooked_count += place == hooked_count;
	return LIBRARY_HOOKED;
}

/*
 * Removes the jumps once the recording is over: during a call of the only thread, so that no other can be about to execute the code
 * written. Calls in progress return through the object's code, which stays.
 */
static void unhook_all(void)
{
	u32 i, j;

	for (i = 0; i < hooked_count; i++) {
		/* Exceptions may still pass through the calls in progress. */
		if (hooked[i].library->function[0].kind == FUNCTION_FIND_FDE)
			continue;
		for (j = 0; j < hooked[i].library->functions; j++) {
			const struct plan_function *f = &hooked[i].library->function[j];
			u64 at = hooked[i].bias + f->address + f->first;
			u64 leads_to = jump_target(at);

			if (leads_to >= hooked[i].room && leads_to < hooked[i].room + ROOM)
				write_code(at, f->original + f->first, JUMP);
		}
	}
	hooked_count = 0;
}

#endif
