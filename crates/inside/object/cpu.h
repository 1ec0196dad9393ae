/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The processor that a thread is on. glibc (2.35 and later) registers an area for each thread that the kernel keeps up to date (rseq), at
 * an offset from the thread pointer that the loader exports. Otherwise it is the vDSO's function, some 5 ns, or, on aarch64, whose vDSO
 * has none, a system call of some 100 ns.
 */
#ifndef FATHOM_INSIDE_CPU_H
#define FATHOM_INSIDE_CPU_H

#include "process.h"

/* Offset in struct rseq. */
#define RSEQ_CPU_AT 4
#define RSEQ_SIZE 20

/* Offset from the thread pointer; 0: there is none. */
static s64 rseq_at;

static __attribute__((noinline)) u32 ask_for_cpu(void)
{
	u32 cpu = 0;

#ifdef VDSO_GETCPU
	vdso_getcpu(&cpu, 0, 0);
#else
	if (!sealed)
		call3(SYS_getcpu, &cpu, 0, 0);
#endif
	return cpu;
}

static inline u32 current_cpu(void)
{
	u32 cpu;

	if (unlikely(!rseq_at))
		return ask_for_cpu();
	cpu = thread_word(rseq_at + RSEQ_CPU_AT);
	/* Negative if the registration failed. */
	return unlikely((s32)cpu < 0) ? ask_for_cpu() : cpu;
}

static int is_loader_of_glibc(const char *name)
{
	static const char known[] = LOADER_OF_GLIBC;
	u64 length = text_length(name, PATH_MOST);

	return length >= sizeof(known) - 1 && same_text(name + length - (sizeof(known) - 1), known);
}

static void find_cpu(void)
{
	const s64 *offset = 0;
	const u32 *size = 0;
	const struct link_map *m;

	for (m = loader->first; m; m = m->next) {
		if (!m->name || !is_loader_of_glibc(m->name))
			continue;
		offset = find_symbol(m->dynamic, m->bias, "__rseq_offset");
		size = find_symbol(m->dynamic, m->bias, "__rseq_size");
	}
	if (offset && size && *size >= RSEQ_SIZE)
		rseq_at = *offset;
}

#endif
