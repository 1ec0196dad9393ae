/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/* What the compiler is told, and the functions that it expects to exist: there is no libc. */
#ifndef FATHOM_INSIDE_COMPILER_H
#define FATHOM_INSIDE_COMPILER_H

#include "layout.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define hidden __attribute__((visibility("hidden")))

/* Compilers generate calls to these. */
hidden void *memcpy(void *to, const void *from, u64 size);
hidden void *memset(void *at, int byte, u64 size);

#endif
