/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* The object's entry point in an x86-64 program without a loader (static.h): registers are as the kernel set them. */
#ifndef FATHOM_INSIDE_X86_64_START_H
#define FATHOM_INSIDE_X86_64_START_H

#include "static.h"

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
