/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Puts jumps into the code of a library, before anything of it runs.
 *
 * The jump stands behind the function's first instruction. There the kernel puts the breakpoint of a uprobe, whosever it is, carries
 * that instruction out elsewhere and goes on behind it: a jump in its place would be torn in two. What the first instruction did
 * is undone by the stub, and done again by the trampoline. The recorder worked out both (../src/hook.rs).
 *
 * Breakpoints that stand there already are taken out of this process's copy of the page: the recorder's own uprobes are on the file
 * from the start, for processes that are not hooked, and would trap here for nothing.
 */
#ifndef FATHOM_INSIDE_PATCH_H
#define FATHOM_INSIDE_PATCH_H

#define PAGE 4096UL
#define ROOM (2 * PAGE)
#define JUMP 5
/* How far around a library memory is looked for; a jump reaches 2 GiB. */
#define REACH (1UL << 30)
#define NEAR_STEP (1UL << 20)

static inline void put32(u8 *at, u64 value)
{
	u32 word = (u32)value;

	memcpy(at, &word, 4);
}

/* Whether a displacement that is counted from `from` reaches `to`. */
static inline int reaches(u64 from, u64 to)
{
	s64 distance = (s64)(to - from);

	return distance == (s32)distance;
}

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
			/* A kernel that does not know the flag takes the address for a wish. */
			if (got)
				call2(SYS_munmap, got, ROOM);
		}
	}
	return 0;
}

/*
 * Writes into code that nothing runs, or no other thread. By way of the file of this process's memory the kernel copies the page and
 * changes no mapping, which would have it put uprobes' breakpoints in again.
 */
static int write_code(u64 at, const u8 *bytes, u64 size)
{
	u64 start = at & ~(PAGE - 1);
	u64 length = ((at + size + PAGE - 1) & ~(PAGE - 1)) - start;
	long fd = call3(SYS_open, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
	long written = -1;

	if (fd >= 0) {
		written = call4(SYS_pwrite64, fd, bytes, size, at);
		call1(SYS_close, fd);
	}
	if (written == (long)size)
		return 1;
	if (call3(SYS_mprotect, start, length, PROT_READ | PROT_WRITE))
		return 0;
	memcpy((void *)at, bytes, size);
	return !call3(SYS_mprotect, start, length, PROT_READ | PROT_EXEC);
}

static void *hook_of(u8 kind)
{
	if (kind == FUNCTION_STEP)
		return fathom_enter_step;
	return kind == FUNCTION_PREPARE ? fathom_enter_prepare : fathom_enter_reset;
}

/* Whether the function is as it was when the plan was made. Its first byte may be a uprobe's. */
static int is_original(const u8 *entry, const struct plan_function *f)
{
	u32 i;

	for (i = 1; i < f->moved; i++) {
		if (entry[i] != f->original[i])
			return 0;
	}
	return 1;
}

/* Makes a site's stub and trampoline at `code`; returns what follows them, or null if something is out of reach. */
static u8 *build(u8 *code, struct site *site, u64 entry, u64 *stub)
{
	const struct plan_function *f = site->function;
	u32 i;

	*stub = (u64)code;
	if (f->undo) {
		/* lea rsp, [rsp + undo], which leaves the flags alone */
		memcpy(code, "\x48\x8d\xa4\x24", 4);
		put32(code + 4, f->undo);
		code += 8;
	}
	/* lea r11, [rip + site]; jmp [rip + site->hook] */
	memcpy(code, "\x4c\x8d\x1d", 3);
	put32(code + 3, (u64)site - (u64)(code + 7));
	code += 7;
	memcpy(code, "\xff\x25", 2);
	put32(code + 2, (u64)&site->hook - (u64)(code + 6));
	code += 6;

	site->real = code;
	memcpy(code, f->code, f->code_size);
	for (i = 0; i < f->fixups; i++) {
		u64 target = entry + (s64)f->fixup[i].target;
		u64 from = (u64)code + f->fixup[i].end;

		if (!reaches(from, target))
			return 0;
		put32(code + f->fixup[i].at, target - from);
	}
	code += f->code_size;
	/* jmp [rip], and the address behind it */
	memcpy(code, "\xff\x25\0\0\0\0", 6);
	entry += f->moved;
	memcpy(code + 6, &entry, 8);
	return code + 14;
}

/* Where the first functions of hooked libraries are. */
#define HOOKED 64
static u64 hooked[HOOKED];
static u32 hooked_count;

static int is_hooked(u64 entry)
{
	u32 i;

	for (i = 0; i < hooked_count; i++) {
		if (hooked[i] == entry)
			return 1;
	}
	return 0;
}

/* Hooks the functions of a library that was loaded at `bias`: all or none. */
static u32 hook_library(const struct plan_library *library, u64 bias)
{
	u64 stubs[PLAN_FUNCTIONS];
	struct site *site;
	u8 bytes[PLAN_ORIGINAL];
	u8 *room, *code;
	u32 i;

	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];

		/* One that was looked at before. Had it been loaded anew, its code would be its file's. */
		if (!is_original((const u8 *)(bias + f->address), f))
			return is_hooked(bias + library->function[0].address) ? LIBRARY_HOOKED : LIBRARY_CHANGED;
	}
	if (!library->functions || hooked_count == HOOKED)
		return LIBRARY_NO_ROOM;
	room = map_near(bias + library->function[0].address);
	if (!room)
		return LIBRARY_NO_ROOM;
	site = (struct site *)room;
	code = room + PLAN_FUNCTIONS * sizeof(struct site);
	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];
		u64 entry = bias + f->address;

		site[i].hook = hook_of(f->kind);
		site[i].library = library;
		site[i].function = f;
		code = build(code, &site[i], entry, &stubs[i]);
		if (!code || !reaches(entry + f->first + JUMP, stubs[i])) {
			call2(SYS_munmap, room, ROOM);
			return LIBRARY_NO_ROOM;
		}
	}
	if (call3(SYS_mprotect, room, ROOM, PROT_READ | PROT_EXEC)) {
		call2(SYS_munmap, room, ROOM);
		return LIBRARY_FORBIDDEN;
	}
	for (i = 0; i < library->functions; i++) {
		const struct plan_function *f = &library->function[i];
		u64 entry = bias + f->address;

		/* With the first instruction, in whose place a uprobe's breakpoint may stand: a trap for nothing. */
		memcpy(bytes, f->original, f->first);
		bytes[f->first] = 0xe9;
		put32(bytes + f->first + 1, stubs[i] - (entry + f->first + JUMP));
		/* The first refusal leaves nothing behind. One of a later function, whose page is like the first one's, is not met. */
		if (!write_code(entry, bytes, f->first + JUMP))
			return LIBRARY_FORBIDDEN;
	}
	hooked[hooked_count++] = bias + library->function[0].address;
	return LIBRARY_HOOKED;
}

#endif
