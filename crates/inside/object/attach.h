/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Attaching to a running process: the recorder loads the object while it holds all threads (crate `capture`, inside/attach/), and lets
 * one of them start here, on a stack of the object's own, with all signals blocked. Nothing here may wait for another thread. The
 * recorder writes the jumps, from the list of them.
 */
#ifndef FATHOM_INSIDE_ATTACH_H
#define FATHOM_INSIDE_ATTACH_H

#include "static.h"

static u64 attach(void)
{
	u64 n = text_length(fathom_implant.directory, PATH_MOST);
	struct arena *a;

	if (!n || n + 64 > PATH_MOST)
		return ATTACH_UNFIT;
	memcpy(directory, fathom_implant.directory, n);
	directory_length = n;
	if (!read_auxiliary() || is_filtered() || !find_loader() || !read_plan() || !find_clock())
		return ATTACH_UNFIT;
	if (shadowed)
		return ATTACH_UNFIT;
	if (loader->state != RT_CONSISTENT)
		return ATTACH_BUSY;
	if (!make_places() || !take_process())
		return ATTACH_NO_MEMORY;
	a = have_arena();
	release_process();
	if (!a)
		return ATTACH_NO_ARENA;
	fathom_attached.arena = (u64)a;
	connect();
	find_cpu();
	follow_loader();
	look_at_all();
	has_begun = 1;
	if (fathom_attached.untold || fathom_attached.jumps == JUMPS)
		return ATTACH_FULL;
	return has_execve ? ATTACH_DONE : ATTACH_NO_LIBC;
}

__attribute__((used)) hidden void fathom_begin_attached(void)
{
	u64 outcome;

	deferred = 1;
	outcome = attach();
	deferred = 0;
	__atomic_store_n(&fathom_attached.outcome, outcome, __ATOMIC_RELEASE);
}

/*
 * A piece of code that the recorder writes into the zero padding after some library's code, for a stopped thread to execute: a list of
 * system calls and function calls. It is self-contained: if the recorder dies, the thread finishes it and resumes where it was. Its
 * data follow it, where rbx points; see ../src/piece.rs. The thread's stack pointer stays in place until the end, when two words
 * below the red zone are used, as a signal handler may use them at any time.
 *
 * All signals are blocked meanwhile; the recorder has already done that, unless it died in between. No address of the piece gets onto
 * a stack, except through a signal handler before or after it.
 */
#define SET_MASK                                                                                                                  \
	"	mov $14, %eax\n" /* rt_sigprocmask */                                                                             \
	"	mov $2, %edi\n" /* SIG_SETMASK */                                                                                 \
	"	xor %edx, %edx\n"                                                                                                 \
	"	mov $8, %r10d\n"                                                                                                  \
	"	mov 32(%rbx), %r9\n"                                                                                              \
	"	syscall\n"
asm(".pushsection .text\n"
    ".hidden fathom_piece, fathom_piece_end\n"
    ".globl fathom_piece, fathom_piece_end\n"
    ".type fathom_piece, @function\n"
    "fathom_piece:\n"
    "	cld\n"
    "	mov %rsp, %r15\n"
    "	lea 8(%rbx), %rsi\n"
    SET_MASK
    "	lea 176(%rbx), %r12\n"
    "	mov 24(%rbx), %r13\n"
    "	mov $-1, %r14\n" /* no file yet */
    "1:	test %r13, %r13\n"
    "	jz 4f\n"
    "	mov 8(%r12), %rdi\n"
    "	mov (%r12), %rax\n"
    "	test %rax, %rax\n"
    "	js 2f\n"
    "	mov 16(%r12), %rsi\n"
    "	mov 24(%r12), %rdx\n"
    "	mov 32(%r12), %r10\n"
    "	mov 40(%r12), %r8\n"
    "	mov 48(%r12), %r9\n"
    "	cmp $-2, %r8d\n" /* the file that was opened */
    "	cmove %r14, %r8\n"
    "	syscall\n"
    "	cmp $-4095, %rax\n"
    "	jae 4f\n"
    "	cmpq $257, (%r12)\n" /* openat */
    "	jne 3f\n"
    "	mov %rax, %r14\n"
    "	jmp 3f\n"
    "2:	mov 16(%rbx), %rsp\n"
    "	call *%rdi\n"
    "	mov %r15, %rsp\n"
    "3:	add $56, %r12\n"
    "	dec %r13\n"
    "	jmp 1b\n"
    "4:	test %r14, %r14\n"
    "	js 5f\n"
    "	mov %r14, %rdi\n"
    "	mov $3, %eax\n" /* close */
    "	mov 32(%rbx), %r9\n"
    "	syscall\n"
    "5:	mov %rbx, %rsi\n"
    SET_MASK
    "	lea -128(%rsp), %rsp\n"
    "	push 40(%rbx)\n"
    "	push 48(%rbx)\n"
    "	mov 56(%rbx), %r15\n"
    "	mov 64(%rbx), %r14\n"
    "	mov 72(%rbx), %r13\n"
    "	mov 80(%rbx), %r12\n"
    "	mov 88(%rbx), %r11\n"
    "	mov 96(%rbx), %r10\n"
    "	mov 104(%rbx), %r9\n"
    "	mov 112(%rbx), %r8\n"
    "	mov 120(%rbx), %rbp\n"
    "	mov 128(%rbx), %rdi\n"
    "	mov 136(%rbx), %rsi\n"
    "	mov 144(%rbx), %rdx\n"
    "	mov 152(%rbx), %rcx\n"
    "	mov 160(%rbx), %rax\n"
    "	mov 168(%rbx), %rbx\n"
    "	popfq\n"
    "	ret $128\n"
    "fathom_piece_end:\n"
    ".popsection\n");

#endif
