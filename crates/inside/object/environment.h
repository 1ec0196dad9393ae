/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Hides the object's entry in LD_PRELOAD from the program: the entry is removed from the environment that the program sees, and added
 * again for programs that it executes, by a jump in the C library's execve. So a program that prints its environment prints its own;
 * programs that it starts after the recording are unaffected; and those that could not load the object (another root, 32 bits) do not
 * complain.
 *
 * A program that makes system calls without the libc (Go) passes on an environment without the object: its children use uprobes.
 *
 * The same jump asks the recorder about the program (ask.h), even if the environment was left alone.
 */
#ifndef FATHOM_INSIDE_ENVIRONMENT_H
#define FATHOM_INSIDE_ENVIRONMENT_H

#include "ask.h"
#include "site.h"

#define VARIABLE "LD_PRELOAD="
#define VARIABLE_SIZE (sizeof(VARIABLE) - 1)
/* A larger environment, or a longer list of other objects, is passed on unchanged. */
#define MOST_VARIABLES 4096
#define LONGEST_LIST 4096

/* Whether the program's environment was changed, so that its children's must be too. */
static u32 hidden_variable;

static u64 starts_with(const char *text, const char *with)
{
	u64 n = 0;

	while (with[n]) {
		if (text[n] != with[n])
			return 0;
		n++;
	}
	return n;
}

/* Returns the number in a field of /proc/self/stat, whose second field is a name that may contain anything. */
static u64 stat_field(u32 wanted)
{
	char text[1024];
	long size = read_file("/proc/self/stat", text, sizeof(text) - 1);
	long at = size - 1;
	u64 number = 0;
	u32 field = 2;

	if (size <= 0)
		return 0;
	text[size] = 0;
	while (at > 0 && text[at] != ')')
		at--;
	for (at++; text[at] && field < wanted; at++)
		field += text[at] == ' ';
	while (text[at] >= '0' && text[at] <= '9')
		number = number * 10 + (text[at++] - '0');
	return number;
}

#define STAT_THREADS 20
#define STAT_ENV_START 50
#define STAT_ENV_END 51

/* Returns the rest of a list of objects that starts with this one; null if it does not. */
static const char *behind_own(const char *list)
{
	u64 n = starts_with(list, directory), m = n ? starts_with(list + n, PRELOADED) : 0;

	return m && (!list[n + m] || list[n + m] == ':') ? list + n + m : 0;
}

/* Finds where the kernel put the environment's pointers: searched by the first one, below the strings and above this frame. */
static char **find_variables(u64 first)
{
	u64 *at = (u64 *)(first & ~7UL);
	u64 *end = __builtin_frame_address(0);

	while (--at > end) {
		if (*at == first && !at[-1])
			return (char **)at;
	}
	return 0;
}

static void hide_variable(void)
{
	u64 from = stat_field(STAT_ENV_START), to = stat_field(STAT_ENV_END);
	char **v = from && from < to ? find_variables(from) : 0;

	for (; v && *v; v++) {
		char *text = *v, *others;
		u64 n = starts_with(text, VARIABLE);

		others = n ? (char *)behind_own(text + n) : 0;
		if (!others)
			continue;
		if (*others == ':' && others[1]) {
			/* The list begins with the next one. */
			others = others + 1 - VARIABLE_SIZE;
			memset(text, 0, others - text);
			memcpy(others, VARIABLE, VARIABLE_SIZE);
			*v = others;
		} else {
			memset(text, 0, others - text);
			for (; *v; v++)
				v[0] = v[1];
		}
		hidden_variable = 1;
		return;
	}
}

/* Whether a file is a program that could load the object: a 64-bit program, or a script, whose interpreter may be one. */
static int could_load(const char *path)
{
	u8 start[20] = {};
	u64 about[18];
	long size;

	/* Opening anything else may block or have side effects. */
	if (call4(SYS_newfstatat, AT_FDCWD, path, about, 0) || ((u32)about[STAT_MODE_AT] & S_IFMT) != S_IFREG || !(about[STAT_MODE_AT] & S_IXANY))
		return 0;
	size = read_file(path, start, sizeof(start));
	if (size >= 2 && start[0] == '#' && start[1] == '!')
		return 1;
	return size == sizeof(start) && start[0] == 0x7f && start[1] == 'E' && start[2] == 'L' && start[3] == 'F' &&
	       start[4] == 2 && start[18] == ELF_MACHINE;
}

/*
 * Copies memory at an address from the program, which may be unmapped: then the kernel refuses, and it is left to the kernel what execve
 * returns. Returns whether all of it was copied.
 */
static int copy_named(void *to, const void *from, u64 size)
{
	const void *local[2] = { to, (void *)size }, *remote[2] = { from, (void *)size };

	return call6(SYS_process_vm_readv, call0(SYS_getpid), (long)local, 1, (long)remote, 1, 0) == (long)size;
}

/* Returns the length of such a string, at most `most`; also `most` if part of it is unmapped. */
static u64 named_length(const char *text, u64 most)
{
	char part[64];
	u64 n, i, size;

	for (n = 0; n < most; n += size) {
		/* At most to the end of a page, as the next may be unmapped. */
		size = PAGE - ((u64)(text + n) & (PAGE - 1));
		size = size < sizeof(part) ? size : sizeof(part);
		if (!copy_named(part, text + n, size))
			return most;
		for (i = 0; i < size; i++) {
			if (!part[i])
				return n + i < most ? n + i : most;
		}
	}
	return most;
}

/* Asks about a program that is about to be executed; returns the connection, or a negative number. */
static long announce(const char *path)
{
	u64 about[18], length = named_length(path, ASK_PATH);
	char copy[ASK_PATH];
	u8 answer;

	if (length == ASK_PATH || !copy_named(copy, path, length) || call4(SYS_newfstatat, AT_FDCWD, path, about, 0))
		return -1;
	return ask(ASK_EXECUTES, copy, length, about[0], about[1], &answer);
}

/* Executes a program with its adjusted environment. */
static s32 pass_on(const char *path, char **words, char **variables, const struct site *site)
{
	s32 (*real)(const char *, char **, char **) = (s32(*)(const char *, char **, char **))site->real;
	u64 count = 0, place = ~0UL, others = 0, i;
	char start[VARIABLE_SIZE + 1] = {};
	char **all, *text, *variable;

	if (!hidden_variable || !variables)
		return real(path, words, variables);
	for (; count < MOST_VARIABLES; count++) {
		if (!copy_named(&variable, variables + count, sizeof(variable)))
			return real(path, words, variables);
		if (!variable)
			break;
		/* Shorter ones are other variables. */
		if (place == ~0UL && named_length(variable, VARIABLE_SIZE) == VARIABLE_SIZE &&
		    copy_named(start, variable, VARIABLE_SIZE) && starts_with(start, VARIABLE))
			place = count;
	}
	if (place != ~0UL)
		others = named_length(variables[place] + VARIABLE_SIZE, LONGEST_LIST);
	if (count == MOST_VARIABLES || others == LONGEST_LIST || !is_recording())
		return real(path, words, variables);
	if (place != ~0UL && behind_own(variables[place] + VARIABLE_SIZE))
		return real(path, words, variables);
	all = __builtin_alloca((count + 2) * sizeof(*all));
	for (i = 0; i < count; i++)
		all[i] = variables[i];
	text = __builtin_alloca(VARIABLE_SIZE + directory_length + sizeof(PRELOADED) + 1 + others);
	if (place == ~0UL)
		place = count++;
	all[place] = text;
	all[count] = 0;
	text = append_text(append_text(append_text(text, VARIABLE), directory), PRELOADED);
	if (others)
		append_text(append_text(text, ":"), variables[place] + VARIABLE_SIZE);
	return real(path, words, all);
}

typedef s32 (*execve_hook)(const char *, char **, char **, const struct site *);

/* May run in a child of vfork, on its parent's memory: keeps state only on the stack. */
__attribute__((used)) hidden s32 fathom_hook_execve(const char *path, char **words, char **variables, const struct site *site)
{
	s32 (*real)(const char *, char **, char **) = (s32(*)(const char *, char **, char **))site->real;
	long connection;
	s32 result;

	/* Programs that an attached process executes use uprobes; and nothing returns here. */
	if (fathom_attached.pid)
		__attribute__((musttail)) return ((execve_hook)site->real)(path, words, variables, site);
	if (sealed || !path || !could_load(path))
		return real(path, words, variables);
	connection = announce(path);
	result = pass_on(path, words, variables, site);
	/* The program was not executed. */
	if (connection >= 0)
		call1(SYS_close, connection);
	return result;
}

#endif
