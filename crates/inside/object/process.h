/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * This process: its auxiliary vector, the recorder's plan, the clock, and the arena that its records go to.
 *
 * A fork's child must create a new arena at its first statement: the flag that an arena exists is in a page that the kernel clears in the
 * child, and the arena is not mapped there at all.
 */
#ifndef FATHOM_INSIDE_PROCESS_H
#define FATHOM_INSIDE_PROCESS_H

#include "system.h"

#define AT_NULL 0
#define AT_PHDR 3
#define AT_PHNUM 5
#define AT_PAGESZ 6
#define AT_SECURE 23
#define AT_SYSINFO_EHDR 33
#define PT_LOAD 1
#define PT_DYNAMIC 2
#define PT_PHDR 6
#define DT_NULL 0
#define DT_STRTAB 5
#define DT_SYMTAB 6
#define DT_DEBUG 21
#define RT_CONSISTENT 0
#define RT_DELETE 2

struct elf_header {
	u8 ident[16];
	u16 type, machine;
	u32 version;
	u64 entry, phoff, shoff;
	u32 flags;
	u16 ehsize, phentsize, phnum, shentsize, shnum, shstrndx;
};
struct program_header {
	u32 type, flags;
	u64 offset, vaddr, paddr, filesz, memsz, align;
};
struct dynamic {
	s64 tag;
	u64 value;
};
struct symbol {
	u32 name;
	u8 info, other;
	u16 section;
	u64 value, size;
};
struct link_map {
	u64 bias;
	const char *name;
	const struct dynamic *dynamic;
	struct link_map *next, *previous;
};
struct debug {
	s32 version;
	struct link_map *first;
	u64 notify; /* a function that the loader calls when the list changes */
	s32 state;
};

extern hidden const struct dynamic _DYNAMIC[];

#define PATH_MOST 256
#define PAGE 4096UL

/* State that the kernel clears in a fork's child. */
struct process {
	u64 generation; /* its ID, once it has an arena */
	u64 refused; /* no arena could be created */
	u32 busy; /* ID of the thread that holds it; 0: free */
	struct arena *arena;
};

/* The link to the object in the recorder's directory, which LD_PRELOAD names. */
#define PRELOADED "as-libasan.so"

/* No system call may be made any more (seal.h). A fork's child inherits this, as it inherits the kernel's filter. */
static u32 sealed;
static struct debug *loader;
static const struct plan *plan;
static struct process *process;
/* The recorder's directory, with a slash at its end. */
static char directory[PATH_MOST];
static u64 directory_length;
static u64 vdso;
static int (*vdso_clock_gettime)(int, s64 *);
#ifdef VDSO_GETCPU
static int (*vdso_getcpu)(u32 *, u32 *, void *);
#endif

/* Null until the object's code has run; the recorder reads it. */
hidden const struct program_header *fathom_headers;
#define headers fathom_headers
static u64 header_count;

/* See attach.h. */
hidden struct attached fathom_attached __attribute__((used));
/* Set while the object is attached to a running process: the recorder then writes the code changes. */
static u32 deferred;

/* Notes a mapping, for the recorder to unmap. */
static void note_mapping(const void *at, u64 size)
{
	struct attached *all = &fathom_attached;

	if (!all->pid)
		return;
	if (all->mappings == MAPPINGS) {
		all->untold++;
		return;
	}
	all->mapping[all->mappings].at = (u64)at;
	all->mapping[all->mappings++].size = size;
}

/* Finds the loader's list of loaded objects; null in a program without one. */
static struct debug *find_loader(void)
{
	const struct dynamic *d = 0;
	u64 bias = 0, i;

	if (!headers)
		return 0;

	for (i = 0; i < header_count; i++) {
		if (headers[i].type == PT_PHDR)
			bias = (u64)headers - headers[i].vaddr;
	}
	for (i = 0; i < header_count; i++) {
		if (headers[i].type == PT_DYNAMIC)
			d = (const struct dynamic *)(bias + headers[i].vaddr);
	}
	for (; d && d->tag != DT_NULL; d++) {
		if (d->tag == DT_DEBUG)
			loader = (struct debug *)d->value;
	}
	return loader && loader->first ? loader : 0;
}

static int read_auxiliary(void)
{
	u64 all[128];
	long size = read_file("/proc/self/auxv", all, sizeof(all));
	long i;

	for (i = 0; i + 1 < size / 8 && all[i] != AT_NULL; i += 2) {
		switch (all[i]) {
		case AT_PHDR:
			headers = (const void *)all[i + 1];
			break;
		case AT_PHNUM:
			header_count = all[i + 1];
			break;
		case AT_SYSINFO_EHDR:
			vdso = all[i + 1];
			break;
		case AT_PAGESZ:
			/* Sizes and offsets in the arena, and those of code, are multiples of 4096. */
			if (all[i + 1] != 4096)
				return 0;
			break;
		case AT_SECURE:
			if (all[i + 1])
				return 0;
		}
	}
	return 1;
}

/* Returns the address after `line` in a text; null if the text does not contain it. */
static const char *behind_line(const char *text, long size, const char *line, long length)
{
	long at, i;

	for (at = 0; at + length < size; at++) {
		for (i = 0; i < length && text[at + i] == line[i]; i++)
			;
		if (i == length)
			return text + at + length;
	}
	return 0;
}

/* The processor compares returns with a shadow stack (CET): none may be redirected. */
static u32 shadowed;

/* Whether a filter of system calls is in force, which may forbid any later call. */
static int is_filtered(void)
{
	static const char seccomp[] = "\nSeccomp:\t", features[] = "\nx86_Thread_features:\t";
	char text[4096];
	long size = read_file("/proc/self/status", text, sizeof(text));
	const char *at = behind_line(text, size, features, sizeof(features) - 1);

	for (; at && at + 4 < text + size && *at != '\n'; at++)
		shadowed |= at[0] == 's' && at[1] == 'h' && at[2] == 's' && at[3] == 't' && at[4] == 'k';
#ifdef PR_GET_SHADOW_STACK_STATUS
	{
		u64 status = 0;

		if (!call2(SYS_prctl, PR_GET_SHADOW_STACK_STATUS, &status) && (status & 1))
			shadowed = 1;
	}
#endif
	at = behind_line(text, size, seccomp, sizeof(seccomp) - 1);
	return !at || *at != '0';
}

/* Finds the directory that this object was loaded from. */
static int find_directory(void)
{
	const struct link_map *m;
	u64 n;

	for (m = loader->first; m && m->dynamic != _DYNAMIC; m = m->next)
		;
	if (!m || !m->name)
		return 0;
	n = text_length(m->name, PATH_MOST);
	while (n && m->name[n - 1] != '/')
		n--;
	/* Leaves room for the longest name in the directory. */
	if (!n || n + 64 > PATH_MOST)
		return 0;
	memcpy(directory, m->name, n);
	directory_length = n;
	return 1;
}

static char *append_text(char *to, const char *text)
{
	while (*text)
		*to++ = *text++;
	*to = 0;
	return to;
}

static char *append_number(char *to, u64 number)
{
	char digits[20];
	int n = 0;

	do {
		digits[n++] = '0' + number % 10;
		number /= 10;
	} while (number);
	while (n)
		*to++ = digits[--n];
	*to = 0;
	return to;
}

static int same_namespace(const char *path, u64 wanted)
{
	u64 dev, ino;

	return identify(path, &dev, &ino) && ino == wanted;
}

static int map_plan(void)
{
	char path[PATH_MOST];
	long fd;

	memcpy(path, directory, directory_length);
	append_text(path + directory_length, "plan");
	fd = open_file(path, O_RDONLY | O_CLOEXEC, 0);
	/* Without the plan, the recording has ended. */
	if (fd < 0)
		return 0;
	plan = map(0, sizeof(struct plan), PROT_READ, MAP_PRIVATE, fd);
	call1(SYS_close, fd);
	if (plan)
		note_mapping(plan, sizeof(struct plan));
	return plan && plan->magic == PLAN_MAGIC && plan->size == sizeof(struct plan);
}

static int read_plan(void)
{
	if (!map_plan())
		return 0;
	/* A kernel without time namespaces has no time file, and the recorder wrote 0. */
	if (!same_namespace("/proc/self/ns/pid", plan->pid_namespace))
		return 0;
	if (plan->time_namespace && !same_namespace("/proc/self/ns/time", plan->time_namespace))
		return 0;
	process = map(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	if (process)
		note_mapping(process, 4096);
#ifdef FATHOM_EMULATED
	return process != 0;
#endif
	return process && !call3(SYS_madvise, process, 4096, MADV_WIPEONFORK);
}

/* Whether an address is mapped: for others mincore fails. */
static int is_mapped(u64 at)
{
	u8 present[2];

	return !call3(SYS_mincore, at & ~(PAGE - 1), PAGE, present);
}

static int same_text(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

/* Returns the address of a symbol of a loaded object or of the vDSO; null if it has none of that name. */
static const void *find_symbol(const struct dynamic *d, u64 bias, const char *name)
{
	u64 symbols = 0, strings = 0;
	const struct symbol *s;

	for (; d && d->tag != DT_NULL; d++) {
		/* glibc's loader adds the bias in place, others do not. */
		if (d->tag == DT_STRTAB)
			strings = d->value < bias ? bias + d->value : d->value;
		if (d->tag == DT_SYMTAB)
			symbols = d->value < bias ? bias + d->value : d->value;
	}
	/* The strings follow the symbols, so their start is the symbols' end. */
	for (s = (const void *)symbols; s && (u64)(s + 1) <= strings; s++) {
		if (s->section && same_text((const char *)strings + s->name, name))
			return (const void *)(bias + s->value);
	}
	return 0;
}

/*
 * Finds the vDSO's functions: without them, each reading of the clock would cost a system call. FATHOM_EMULATED is for tests under a
 * user-mode emulator, which has no vDSO and does not support every madvise.
 */
static int find_clock(void)
{
	const struct elf_header *header = (const void *)vdso;
	const struct program_header *p;
	const struct dynamic *d = 0;
	u64 bias = vdso;
	int i;

#ifdef FATHOM_EMULATED
	return 1;
#endif
	if (!vdso)
		return 0;
	p = (const void *)(vdso + header->phoff);
	for (i = 0; i < header->phnum; i++) {
		if (p[i].type == PT_LOAD)
			bias = vdso + p[i].offset - p[i].vaddr;
		if (p[i].type == PT_DYNAMIC)
			d = (const void *)(vdso + p[i].offset);
	}
	vdso_clock_gettime = find_symbol(d, bias, VDSO_CLOCK_GETTIME);
#ifdef VDSO_GETCPU
	vdso_getcpu = find_symbol(d, bias, VDSO_GETCPU);
	return vdso_clock_gettime && vdso_getcpu;
#else
	return vdso_clock_gettime != 0;
#endif
}

static inline u64 clock_ns(void)
{
	s64 time[2] = {};

#ifdef FATHOM_EMULATED
	call2(SYS_clock_gettime, CLOCK_BOOTTIME, time);
#else
	vdso_clock_gettime(CLOCK_BOOTTIME, time);
#endif
	return (u64)time[0] * 1000000000UL + (u64)time[1];
}

static struct arena *make_arena(u64 tgid)
{
	u64 limit[2] = {};
	char path[PATH_MOST];
	struct arena *a;
	char *end;
	long fd;

	/* A write beyond the limit would kill the program. */
	if (call4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, limit) || limit[0] < ARENA_SIZE)
		return 0;
	memcpy(path, directory, directory_length);
	end = append_text(path + directory_length, "arenas/");
	end = append_number(end, tgid);
	end = append_text(end, ".");
	/* A process ID may be reused. */
	append_number(end, clock_ns());
	fd = open_file(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return 0;
	if (call2(SYS_ftruncate, fd, ARENA_SIZE)) {
		call1(SYS_close, fd);
		return 0;
	}
	a = map(0, ARENA_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd);
	call1(SYS_close, fd);
	if (!a)
		return 0;
	if (call3(SYS_madvise, a, ARENA_SIZE, MADV_DONTFORK) || call3(SYS_madvise, a, RINGS_AT, MADV_POPULATE_WRITE)) {
		call2(SYS_munmap, a, ARENA_SIZE);
		return 0;
	}
	call3(SYS_madvise, a, ARENA_SIZE, MADV_DONTDUMP);
	note_mapping(a, ARENA_SIZE);
	a->tgid = tgid;
	a->size = ARENA_SIZE;
	__atomic_store_n(&a->magic, ARENA_MAGIC, __ATOMIC_RELEASE);
	return a;
}

/*
 * Admits one thread at a time. A signal handler must not wait for the thread that it interrupted, not even briefly: a timer that fires
 * again meanwhile would leave that thread no time to proceed.
 */
static int take_process(void)
{
	u32 i, own = call0(SYS_gettid), holder;

	for (i = 0; i < 1000000; i++) {
		holder = 0;
		if (__atomic_compare_exchange_n(&process->busy, &holder, own, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return 1;
		if (holder == own)
			return 0;
		relax();
	}
	return 0;
}

static void release_process(void)
{
	__atomic_store_n(&process->busy, 0, __ATOMIC_RELEASE);
}

/* Returns this process's arena, created now if it has none. The caller has taken the process. */
static struct arena *have_arena(void)
{
	u64 tgid;

	if (process->arena || process->refused)
		return process->arena;
	tgid = call0(SYS_getpid);
	process->arena = make_arena(tgid);
	if (!process->arena)
		process->refused = 1;
	else
		__atomic_store_n(&process->generation, tgid, __ATOMIC_RELEASE);
	return process->arena;
}

/*
 * The BPF programs have uprobes on these three functions, in this object only: they learn where a thread's state is; that a library is
 * hooked in this process; that a call could not be recorded.
 */
#define TOLD __attribute__((noinline, used)) hidden
TOLD void fathom_inside_thread(const u64 *state)
{
	asm volatile("" : : "r"(state) : "memory");
}

TOLD void fathom_inside_hooked(u64 library)
{
	asm volatile("nop" : : "r"(library) : "memory");
}

TOLD void fathom_inside_lost(void)
{
	asm volatile("nop; nop" : : : "memory");
}

#endif
