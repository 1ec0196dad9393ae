/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A program that is linked statically: no loader brings the object in, so the recorder does, while the program is stopped before its
 * first instruction (the room `capture`, inside/implant.rs). It begins here instead of at the program's own entry, to which this code
 * jumps when the jumps are written. There is no thread-local memory yet, no libc, and no other thread.
 */
#ifndef FATHOM_INSIDE_STATIC_H
#define FATHOM_INSIDE_STATIC_H

/* Written by the recorder; ../src/image.rs names the places. */
hidden struct {
	u64 entry; /* the program's own */
	u64 bias; /* how far from its file's addresses it stands */
	char folder[PATH_MOST]; /* the recorder's, with a slash at its end */
} fathom_implant __attribute__((used, section(".data"))) = { 1, 0, { 0 } };

__attribute__((used)) hidden void fathom_begin_implanted(void)
{
	u64 n = text_length(fathom_implant.folder, PATH_MOST);

	if (!n || n + 64 > PATH_MOST)
		return;
	memcpy(folder, fathom_implant.folder, n);
	folder_length = n;
	if (read_auxiliary() && !is_filtered() && read_plan() && find_clock())
		look_at("/proc/self/exe", fathom_implant.bias);
}

/* All registers are as the kernel made them when the program begins. */
asm(".pushsection .text\n"
    ".hidden fathom_start_implanted\n"
    ".globl fathom_start_implanted\n"
    ".type fathom_start_implanted, @function\n"
    "fathom_start_implanted:\n"
    "	.cfi_startproc\n"
    "	.cfi_undefined rip\n"
    "	endbr64\n"
    "	pushfq\n"
    "	push %rax\n"
    "	push %rbx\n"
    "	push %rcx\n"
    "	push %rdx\n"
    "	push %rsi\n"
    "	push %rdi\n"
    "	push %rbp\n"
    "	push %r8\n"
    "	push %r9\n"
    "	push %r10\n"
    "	push %r11\n"
    "	mov %rsp, %rbp\n"
    "	and $-16, %rsp\n"
    "	cld\n"
    "	call fathom_begin_implanted\n"
    "	mov %rbp, %rsp\n"
    "	pop %r11\n"
    "	pop %r10\n"
    "	pop %r9\n"
    "	pop %r8\n"
    "	pop %rbp\n"
    "	pop %rdi\n"
    "	pop %rsi\n"
    "	pop %rdx\n"
    "	pop %rcx\n"
    "	pop %rbx\n"
    "	pop %rax\n"
    "	popfq\n"
    "	jmp *fathom_implant(%rip)\n"
    "	.cfi_endproc\n"
    ".popsection\n");

#endif
