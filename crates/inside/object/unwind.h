/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Exceptions and cancellation pass through code that the unwinder finds a description (FDE) of. It asks the loader, which does not know an
 * object that was loaded into a running process. So libgcc's _Unwind_Find_FDE has a jump that leads here, and answers for the object's
 * code itself. Nothing is registered, no lock is taken, and nothing remains when the jump is removed.
 */
#ifndef FATHOM_INSIDE_UNWIND_H
#define FATHOM_INSIDE_UNWIND_H

#include "process.h"
#include "site.h"

#define PT_GNU_EH_FRAME 0x6474e550
/* Encodings of numbers (DWARF): signed, 4 bytes, relative to itself or to the table's start; unsigned, 4 bytes. */
#define RELATIVE_TO_ITSELF 0x1b
#define RELATIVE_TO_TABLE 0x3b
#define UNSIGNED 0x03

extern hidden const struct elf_header __ehdr_start;

/* .eh_frame_hdr */
struct descriptions {
	u8 version, frame_encoding, count_encoding, table_encoding;
	s32 frame;
	u32 count;
	struct {
		s32 code, description; /* relative to the header */
	} entry[];
};

/* What the unwinder gets besides (struct dwarf_eh_bases). */
struct bases {
	u64 text, data, function;
};

static const struct descriptions *descriptions(void)
{
	const u8 *base = (const u8 *)&__ehdr_start;
	const struct program_header *p = (const void *)(base + __ehdr_start.phoff);
	const struct descriptions *found;
	u32 i;

	for (i = 0; i < __ehdr_start.phnum; i++) {
		if (p[i].type != PT_GNU_EH_FRAME)
			continue;
		found = (const void *)(base + p[i].vaddr);
		if (found->version == 1 && found->count_encoding == UNSIGNED && found->table_encoding == RELATIVE_TO_TABLE)
			return found;
	}
	return 0;
}

/* Returns the description of the object's code at an address; null: there is none, as for all other code. */
static const u8 *own_description(u64 at, struct bases *bases)
{
	const struct descriptions *all = descriptions();
	u32 low = 0, high = all ? all->count : 0, middle;
	const u8 *found;
	u32 size;

	while (high - low > 1) {
		middle = low + (high - low) / 2;
		if ((u64)all + (s64)all->entry[middle].code <= at)
			low = middle;
		else
			high = middle;
	}
	if (high <= low || at < (u64)all + (s64)all->entry[low].code)
		return 0;
	found = (const u8 *)all + all->entry[low].description;
	/* After its length and the place of what it has in common with others: the code's address and size. */
	memcpy(&size, found + 12, sizeof(size));
	if (at - ((u64)all + (s64)all->entry[low].code) >= size)
		return 0;
	bases->text = 0;
	bases->data = 0;
	bases->function = (u64)all + (s64)all->entry[low].code;
	return found;
}

typedef const u8 *(*find_fde)(u64, struct bases *, const struct site *);

__attribute__((used)) hidden const u8 *fathom_hook_find_fde(u64 at, struct bases *bases, const struct site *site)
{
	const u8 *found = fathom_attached.pid ? own_description(at, bases) : 0;

	if (found)
		return found;
	__attribute__((musttail)) return ((find_fde)site->real)(at, bases, site);
}

asm(".pushsection .text\n"
    ".hidden fathom_enter_find_fde\n"
    ".globl fathom_enter_find_fde\n"
    ".type fathom_enter_find_fde, @function\n"
    "fathom_enter_find_fde:\n"
    "	.cfi_startproc\n"
    "	endbr64\n"
    "	mov %r11, %rdx\n"
    "	jmp fathom_hook_find_fde\n"
    "	.cfi_endproc\n"
    ".popsection\n");
extern hidden void fathom_enter_find_fde(void);

#endif
