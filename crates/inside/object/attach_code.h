/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Code changes, which a process that was attached to while running records, so that the recorder can revert them. During the attach the
 * recorder also makes them, while no thread runs. Each is a single write to a single page, so that a death in the middle never leaves
 * half of a jump.
 */
#ifndef FATHOM_INSIDE_ATTACH_CODE_H
#define FATHOM_INSIDE_ATTACH_CODE_H

#include "code.h"

static inline int lies_across(u64 at, u64 size)
{
	return (at ^ (at + size - 1)) & ~(PAGE - 1) ? 1 : 0;
}

/* Drops the jumps of libraries that were unloaded. */
static void drop_stale_jumps(void)
{
	struct attached *all = &fathom_attached;
	u32 i, n = 0;

	for (i = 0; i < all->jumps; i++) {
		const struct jump *j = &all->jump[i];

		if (!jump_target(j->at + j->first))
			continue;
		if (n != i)
			memcpy(&all->jump[n], j, sizeof(*j));
		n++;
	}
	all->jumps = n;
}

static int has_room_for_jumps(u32 count)
{
	if (!fathom_attached.pid)
		return 1;
	if (!deferred && fathom_attached.jumps + count > JUMPS)
		drop_stale_jumps();
	return fathom_attached.jumps + count <= JUMPS;
}

/* Returns the entry of the jump at an address: that of a library that was there before, or a new one, if there is room. */
static struct jump *account_of(u64 at)
{
	struct attached *all = &fathom_attached;
	u32 i;

	for (i = 0; i < all->jumps; i++) {
		if (all->jump[i].at == at)
			return &all->jump[i];
	}
	return has_room_for_jumps(1) ? &all->jump[all->jumps] : 0;
}

/* `bytes`: the `first` original bytes of the code, followed by a jump. */
static int change_code(u64 at, const u8 *bytes, const u8 *original, u32 first, u32 library)
{
	u32 size = first + JUMP;
	struct jump *j;

	if (!fathom_attached.pid)
		return write_code(at, bytes, size);
	if (size > JUMP_BYTES || lies_across(at, size))
		return 0;
	j = account_of(at);
	if (!j)
		return 0;
	j->at = at;
	j->library = library;
	j->first = (u8)first;
	j->bytes = (u8)size;
	memcpy(j->now, bytes, size);
	memcpy(j->original, original, size);
	fathom_attached.jumps += j == &fathom_attached.jump[fathom_attached.jumps];
	return deferred || write_code(at, bytes, size);
}

#endif
