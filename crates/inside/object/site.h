/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* A patched function, as its stub passes it to the hooks. */
#ifndef FATHOM_INSIDE_SITE_H
#define FATHOM_INSIDE_SITE_H

#include "counters.h"

/* Alignment of the memory that starts with the sites, which their stubs and trampolines follow. */
#define SITES_ALIGNED (1UL << 20)

struct site {
	void *real; /* the trampoline: runs the original function */
	void *hook;
	const struct plan_library *library;
	const struct plan_function *function;
	struct counters *counters; /* of SQLite's own; null: they are not read */
};

#endif
