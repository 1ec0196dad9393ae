/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The object that the loader loads into a recorded program (LD_PRELOAD). It has no libc and exports nothing, so that no symbol of
 * the program binds differently because of it. One translation unit; each include is one concern.
 *
 *   layout.h    what is shared with the recorder
 *   compiler.h  what the compiler is told
 *   system.h    system calls; x86_64.h, aarch64.h: what differs by processor
 *   process.h   this process: its plan, its arena, its clock
 *   clock.h     the time of a reading of the cycle counter
 *   sample.h    the time inside an execution's steps, of which not each is timed
 *   cpu.h       the processor that a thread is on
 *   ask.h       asks the recorder about files that may not be in the plan
 *   thread_state.h, attach_thread.h  the state of a thread, and where it is stored
 *   thread.h    this thread: its ring, and the executions it has open
 *   stubs.h     the stubs that return addresses are replaced by
 *   counters.h  SQLite's own counters
 *   site.h      a patched function
 *   sqlite.h    records SQLite's functions
 *   price.h     measures the cost of recording
 *   environment.h, seal.h  the C library's functions that concern the object
 *   x86_64_code.h, aarch64_code.h  the generated code, and the code that leads to the hooks
 *   named.h     records functions named by --op (unnamed.h: nothing, on aarch64)
 *   unwind.h    tells the unwinder of a process about the object's code
 *   code.h      writes code; attach_code.h: so that the recorder can revert it
 *   patch.h     puts the jumps into the libraries' code
 *   load.h      finds the libraries, now and when more are loaded
 *   static.h    starts in a program without a loader; x86_64_start.h, aarch64_start.h: its first instructions
 *   attach.h    starts in a running process
 *
 * Each header includes those that it uses, which are above it in this list, and compiles alone.
 */
#include "layout.h"
#include "compiler.h"
#include "system.h"
#include "process.h"
#include "clock.h"
#include "sample.h"
#include "cpu.h"
#include "ask.h"
#include "thread_state.h"
#include "attach_thread.h"
#include "thread.h"
#include "stubs.h"
#include "site.h"
#include "sqlite.h"
#include "price.h"
#include "environment.h"
#include "seal.h"
#if defined(__x86_64__)
#include "x86_64_code.h"
#include "named.h"
#include "unwind.h"
#else
#include "aarch64_code.h"
#include "unnamed.h"
#endif
#include "code.h"
#include "attach_code.h"
#include "patch.h"
#include "load.h"
#include "static.h"
#if defined(__x86_64__)
#include "x86_64_start.h"
#include "attach.h"
#else
#include "aarch64_start.h"
#endif

__attribute__((constructor)) static void begin(void)
{
	if (read_auxiliary() && !is_filtered() && find_loader() && find_directory() && read_plan() && find_clock())
		watch_libraries();
}
