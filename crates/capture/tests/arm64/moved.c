/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Runs pieces of code twice, unchanged and hooked by the object's own code (inside.c), and compares everything that they leave behind:
 * registers, flags, vectors, the stack pointer. A static program without a libc, for a user-mode emulator. Reads cases from stdin; prints
 * those that differ, and the number of cases.
 */
#include "inside.c"

#define WORDS 8
#define AREA (64 * 4096UL)
#define DATA (1UL << 20)

struct piece {
	u32 code[WORDS];
	u64 flags;
	struct plan_function function;
};

struct left {
	u64 x[31];
	u64 sp, flags, top[2], real_sp, pad[28];
	u64 vectors[16];
};

_Static_assert(__builtin_offsetof(struct left, sp) == 248 && __builtin_offsetof(struct left, real_sp) == 280, "run");
_Static_assert(__builtin_offsetof(struct left, vectors) == 512, "run");

struct left area __attribute__((aligned(4096)));
/* x0 to x27 on entry to a piece, and its stack. */
u64 given[32];

void run(u64 entry, u64 flags);
asm(".pushsection .text\n"
    ".balign 4\n"
    ".globl run\n"
    "run:\n"
    "	stp x29, x30, [sp, #-176]!\n"
    "	stp x19, x20, [sp, #16]\n"
    "	stp x21, x22, [sp, #32]\n"
    "	stp x23, x24, [sp, #48]\n"
    "	stp x25, x26, [sp, #64]\n"
    "	stp x27, x28, [sp, #80]\n"
    "	stp d8, d9, [sp, #96]\n"
    "	stp d10, d11, [sp, #112]\n"
    "	stp d12, d13, [sp, #128]\n"
    "	stp d14, d15, [sp, #144]\n"
    "	adrp x28, area\n"
    "	mov x2, sp\n"
    "	str x2, [x28, #280]\n"
    "	mov x17, x0\n"
    "	msr nzcv, x1\n"
    "	adrp x28, given\n"
    "	add x28, x28, :lo12:given\n"
    "	ldr x0, [x28, #248]\n"
    "	mov sp, x0\n"
    "	ldp q0, q1, [x28]\n"
    "	ldp q2, q3, [x28, #32]\n"
    "	ldp q4, q5, [x28, #64]\n"
    "	ldp q6, q7, [x28, #96]\n"
    "	ldp x0, x1, [x28]\n"
    "	ldp x2, x3, [x28, #16]\n"
    "	ldp x4, x5, [x28, #32]\n"
    "	ldp x6, x7, [x28, #48]\n"
    "	ldp x8, x9, [x28, #64]\n"
    "	ldp x10, x11, [x28, #80]\n"
    "	ldp x12, x13, [x28, #96]\n"
    "	ldp x14, x15, [x28, #112]\n"
    "	ldp x18, x19, [x28, #144]\n"
    "	ldp x20, x21, [x28, #160]\n"
    "	ldp x22, x23, [x28, #176]\n"
    "	ldp x24, x25, [x28, #192]\n"
    "	ldp x26, x27, [x28, #208]\n"
    "	ldr x29, [x28, #232]\n"
    "	adr x30, back\n"
    "	mov x28, x30\n"
    "	br x17\n"
    "back:\n"
    "	adrp x28, area\n"
    "	stp x0, x1, [x28]\n"
    "	stp x2, x3, [x28, #16]\n"
    "	stp x4, x5, [x28, #32]\n"
    "	stp x6, x7, [x28, #48]\n"
    "	stp x8, x9, [x28, #64]\n"
    "	stp x10, x11, [x28, #80]\n"
    "	stp x12, x13, [x28, #96]\n"
    "	stp x14, x15, [x28, #112]\n"
    "	stp x18, x19, [x28, #144]\n"
    "	stp x20, x21, [x28, #160]\n"
    "	stp x22, x23, [x28, #176]\n"
    "	stp x24, x25, [x28, #192]\n"
    "	stp x26, x27, [x28, #208]\n"
    "	stp x29, x30, [x28, #232]\n"
    "	mov x0, sp\n"
    "	mrs x1, nzcv\n"
    "	stp x0, x1, [x28, #248]\n"
    "	ldp x0, x1, [sp]\n"
    "	stp x0, x1, [x28, #264]\n"
    "	stp q0, q1, [x28, #512]\n"
    "	stp q2, q3, [x28, #544]\n"
    "	stp q4, q5, [x28, #576]\n"
    "	stp q6, q7, [x28, #608]\n"
    "	ldr x0, [x28, #280]\n"
    "	mov sp, x0\n"
    "	ldp d14, d15, [sp, #144]\n"
    "	ldp d12, d13, [sp, #128]\n"
    "	ldp d10, d11, [sp, #112]\n"
    "	ldp d8, d9, [sp, #96]\n"
    "	ldp x27, x28, [sp, #80]\n"
    "	ldp x25, x26, [sp, #64]\n"
    "	ldp x23, x24, [sp, #48]\n"
    "	ldp x21, x22, [sp, #32]\n"
    "	ldp x19, x20, [sp, #16]\n"
    "	ldp x29, x30, [sp], #176\n"
    "	ret\n"
    ".popsection\n");

static void say(const char *text)
{
	call3(64, 1, text, text_length(text, 200));
}

static void fill(u64 at, u64 size)
{
	u64 i;

	for (i = 0; i < size; i += 8)
		*(volatile u64 *)(at + i) = i * 0x9e3779b97f4a7c15UL | 1;
}

/* Maps a fresh range of pages with the piece in it; the emulator drops its translation of the earlier one. */
static u64 place(const struct piece *p, u64 at)
{
	u64 entry = at + AREA / 2 + (p->function.address & 4095);

	call2(SYS_munmap, at, AREA);
	if ((u64)map(at, AREA, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | 0x10, -1) != at)
		return 0;
	fill(at, AREA);
	memcpy((void *)entry, p->code, sizeof(p->code));
	synchronise_code(entry, sizeof(p->code));
	return entry;
}

static int differs(const struct left *a, const struct left *b, u32 first)
{
	const u64 *x = (const u64 *)a, *y = (const u64 *)b;
	u64 i;
	/* What the first instruction stored on the stack; otherwise the contents below the old stack pointer are undefined. */
	int pair = (first & 0xbfc00000) == 0xa9800000, one = (first & 0xffe00c00) == 0xf8000c00;

	for (i = 0; i < sizeof(*a) / 8; i++) {
		/* The linker's registers, and the return address. */
		if (i == 16 || i == 17 || i == 28 || i == 35 || (i == 33 && !pair && !one) || (i == 34 && !pair))
			continue;
		if (x[i] != y[i])
			return 1 + (int)i;
	}
	return 0;
}

__attribute__((used)) void begin_moved(void)
{
	static struct plan_library library;
	u64 size = 64UL << 20, at = 0x7000000000UL, n = 0, got = 0, i, wrong = 0;
	u8 *input = map(0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	u64 data = (u64)map(0, DATA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	char number[64];
	long r;

	while ((r = call3(SYS_read, 0, input + got, size - got)) > 0)
		got += r;
	for (; (n + 1) * sizeof(struct piece) <= got; n++) {
		const struct piece *p = (const struct piece *)input + n;
		struct left bare, hooked_left;
		u64 entry = place(p, at);
		int which;

		append_text(append_number(number, n), "\n");
		call3(64, 2, number, text_length(number, 64));
		/* Distinct pointers, with readable memory on either side. */
		for (i = 0; i < 31; i++)
			given[i] = data + 0x40000 + i * 0x1010;
		given[31] = data + 0x20000;
		fill(data, DATA);
		run(entry, p->flags);
		memcpy(&bare, &area, sizeof(bare));
		fill(data, DATA);
		entry = place(p, at);
		library.functions = 1;
		library.function[0] = p->function;
		hooked_count = 0;
		which = hook_library(&library, entry - p->function.address);
		if (which != LIBRARY_HOOKED) {
			wrong++;
			append_text(append_number(number, n), " is not hooked\n");
			say(number);
			continue;
		}
		run(entry, p->flags);
		memcpy(&hooked_left, &area, sizeof(hooked_left));
		call2(SYS_munmap, hooked[0].room, ROOM);
		which = differs(&bare, &hooked_left, p->code[0]);
		if (which) {
			wrong++;
			append_text(append_number(append_text(append_number(number, n), " differs at "), which - 1), "\n");
			say(number);
		}
	}
	append_text(append_number(append_text(append_number(number, n), " ran, "), wrong), " wrong\n");
	say(number);
	call1(93, wrong != 0);
}

asm(".globl _start\n_start:\n	mov x29, #0\n	bl begin_moved\n");
