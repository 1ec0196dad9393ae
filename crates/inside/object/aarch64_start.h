/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The object's entry point in an aarch64 program without a loader (static.h): registers are as the kernel set them. The program is entered
 * by a return, for which a guarded page needs no landing pad.
 */
#ifndef FATHOM_INSIDE_AARCH64_START_H
#define FATHOM_INSIDE_AARCH64_START_H

#include "static.h"

asm(".pushsection .text\n"
    ".hidden fathom_start_implanted\n"
    ".globl fathom_start_implanted\n"
    ".type fathom_start_implanted, %function\n"
    ".balign 4\n"
    "fathom_start_implanted:\n"
    "	.cfi_startproc\n"
    "	.cfi_undefined x30\n"
    "	sub sp, sp, #160\n"
    "	.cfi_def_cfa_offset 160\n"
    "	stp x0, x1, [sp]\n"
    "	stp x2, x3, [sp, #16]\n"
    "	stp x4, x5, [sp, #32]\n"
    "	stp x6, x7, [sp, #48]\n"
    "	stp x8, x9, [sp, #64]\n"
    "	stp x10, x11, [sp, #80]\n"
    "	stp x12, x13, [sp, #96]\n"
    "	stp x14, x15, [sp, #112]\n"
    "	stp x18, x29, [sp, #128]\n"
    "	str x30, [sp, #144]\n"
    "	bl fathom_begin_implanted\n"
    "	ldr x30, [sp, #144]\n"
    "	ldp x18, x29, [sp, #128]\n"
    "	ldp x14, x15, [sp, #112]\n"
    "	ldp x12, x13, [sp, #96]\n"
    "	ldp x10, x11, [sp, #80]\n"
    "	ldp x8, x9, [sp, #64]\n"
    "	ldp x6, x7, [sp, #48]\n"
    "	ldp x4, x5, [sp, #32]\n"
    "	ldp x2, x3, [sp, #16]\n"
    "	ldp x0, x1, [sp]\n"
    "	add sp, sp, #160\n"
    "	adrp x16, fathom_implant\n"
    "	ldr x16, [x16, :lo12:fathom_implant]\n"
    "	ret x16\n"
    "	.cfi_endproc\n"
    ".popsection\n");

#endif
