/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The object that the loader brings into a recorded program (LD_PRELOAD). It has no libc and exports nothing, so that no symbol of
 * the program binds otherwise than without it. One translation unit; each include is one concern.
 *
 *   layout.h    what is shared with the recorder
 *   system.h    system calls; x86_64.h, aarch64.h: what differs by processor
 *   process.h   this process: its plan, its arena, its clock
 *   cpu.h       which processor a thread is on
 *   thread.h    this thread: its ring, and the executions it has open
 *   sqlite.h    what is recorded of SQLite's functions
 *   price.h     what recording costs
 *   named.h     what is recorded of functions that --op names (unnamed.h: nothing, on aarch64)
 *   ask.h       asks the recorder about files that the plan may not have
 *   environment.h, seal.h  what of the C library's functions concerns the object
 *   x86_64_code.h, aarch64_code.h  the code that is made, and that leads to the hooks
 *   patch.h     puts the jumps into the libraries' code
 *   load.h      finds the libraries, now and when more are loaded
 *   static.h    begins in a program that has no loader
 *   attach.h    begins in a process that runs (attach_thread.h, attach_code.h: what differs there)
 */
#include "layout.h"
#include "system.h"
#include "process.h"
#include "cpu.h"
#include "ask.h"
#include "thread.h"
#include "sqlite.h"
#include "price.h"
#include "environment.h"
#include "seal.h"
#if defined(__x86_64__)
#include "x86_64_code.h"
#include "named.h"
#else
#include "aarch64_code.h"
#include "unnamed.h"
#endif
#include "patch.h"
#include "load.h"
#include "static.h"
#if defined(__x86_64__)
#include "attach.h"
#endif

__attribute__((constructor)) static void begin(void)
{
	if (read_auxiliary() && !is_filtered() && find_loader() && find_folder() && read_plan() && find_clock())
		watch_libraries();
}
