/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * All probes in one object, so that they share their maps. Each include is one concern. Programs that a kernel refuses are omitted
 * one by one (see ../probes.rs); nothing here may rely on another program being loaded.
 */
#include "kernel.h"
#include "events.h"
#include "probe.h"
#include "common.h"
#include "inode.h"
#include "path.h"
#include "numbers.h"
#include "registers.h"
#include "waits.h"
#include "stacks.h"
#include "operations.bpf.c"
#include "inside.bpf.c"
#include "tasks.bpf.c"
#include "sched.bpf.c"
#include "locks.bpf.c"
#include "syscalls.bpf.c"
#include "filesystem.bpf.c"
#include "jbd2.bpf.c"
#include "checkpoints.bpf.c"
#include "pagecache.bpf.c"
#include "bio.bpf.c"
#include "request.bpf.c"
#include "flush.bpf.c"
#include "driver.bpf.c"
#include "uring.bpf.c"
#include "sqlite.bpf.c"
#include "functions.bpf.c"

/* The helpers used are available only to GPL-compatible programs. */
char LICENSE[] SEC("license") = "Dual MIT/GPL";
