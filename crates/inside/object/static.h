/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * A statically linked program has no loader to load the object, so the recorder does it, while the program is stopped before its first
 * instruction (crate `capture`, inside/implant.rs). Execution starts here instead of at the program's own entry point, to which this code
 * jumps once the jumps are written. There is no thread-local memory yet, no libc, and no other thread.
 */
#ifndef FATHOM_INSIDE_STATIC_H
#define FATHOM_INSIDE_STATIC_H

#include "load.h"

/* Written by the recorder, which finds it by name (../src/image.rs). */
hidden struct {
	u64 entry; /* the program's own entry point */
	u64 bias; /* offset of the program from its file's addresses */
	char directory[PATH_MOST]; /* the recorder's directory, with a slash at its end */
} fathom_implant __attribute__((used, section(".data"))) = { 1, 0, { 0 } };

__attribute__((used)) hidden void fathom_begin_implanted(void)
{
	u64 n = text_length(fathom_implant.directory, PATH_MOST);

	if (!n || n + 64 > PATH_MOST)
		return;
	memcpy(directory, fathom_implant.directory, n);
	directory_length = n;
	connect();
	if (read_auxiliary() && !is_filtered() && read_plan() && find_clock())
		look_at("/proc/self/exe", fathom_implant.bias);
}

#endif
