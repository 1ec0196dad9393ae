/*
 * Nested functions, each of which itself writes and syncs once. Built as a library and a program that calls it.
 *
 *   nested FILE plain|threads|jumps|recursion|lands|deep N
 */
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void outer(int fd, int jump);
void inner(int fd, int jump);
void again(int fd, int depth);
void last(int fd);
void leaps(int fd);
void lands(int fd);
void level0(int fd);

#ifdef LIBRARY
extern jmp_buf *back;

/* Grows the file, so that each sync has a commit of its own. */
static void write_and_sync(int fd)
{
	static const char block[4096] = "x";

	if (write(fd, block, sizeof(block)) != sizeof(block) || fsync(fd))
		abort();
}

void inner(int fd, int jump)
{
	write_and_sync(fd);
	if (jump)
		longjmp(*back, 1);
}

void outer(int fd, int jump)
{
	write_and_sync(fd);
	inner(fd, jump);
	__asm__ volatile("" ::: "memory");
}

void again(int fd, int depth)
{
	write_and_sync(fd);
	if (depth > 1)
		again(fd, depth - 1);
	__asm__ volatile("" ::: "memory");
}

void last(int fd)
{
	write_and_sync(fd);
	/* A tail call. */
	inner(fd, 0);
}

static jmp_buf landing;

void leaps(int fd)
{
	write_and_sync(fd);
	longjmp(landing, 1);
}

/* Its later calls return to the same function as the call of `leaps` would have, with their return addresses in the same stack slot. */
void lands(int fd)
{
	volatile int i;

	if (!setjmp(landing))
		leaps(fd);
	for (i = 0; i < 3; i++)
		write_and_sync(fd);
}

#define LEVEL(name, next) \
	void name(int fd) \
	{ \
		write_and_sync(fd); \
		next; \
		__asm__ volatile("" ::: "memory"); \
	}
LEVEL(level9, )
LEVEL(level8, level9(fd))
LEVEL(level7, level8(fd))
LEVEL(level6, level7(fd))
LEVEL(level5, level6(fd))
LEVEL(level4, level5(fd))
LEVEL(level3, level4(fd))
LEVEL(level2, level3(fd))
LEVEL(level1, level2(fd))
LEVEL(level0, level1(fd))
#else
jmp_buf *back;
static const char *file;
static int times;

static int open_file(const char *suffix)
{
	char name[4096];
	int fd;

	snprintf(name, sizeof(name), "%s%s", file, suffix);
	fd = open(name, O_CREAT | O_WRONLY | O_APPEND, 0600);
	if (fd < 0) {
		perror(name);
		exit(1);
	}
	return fd;
}

static void *load(void *suffix)
{
	int fd = open_file(suffix);

	for (int i = 0; i < times; i++) {
		outer(fd, 0);
		inner(fd, 0);
		last(fd);
	}
	return NULL;
}

static void jumps(int fd)
{
	jmp_buf here;

	back = &here;
	for (volatile int i = 0; i < times; i++) {
		if (!setjmp(here))
			outer(fd, 1);
		/* Belongs to none of the functions. */
		if (write(fd, "y", 1) != 1 || fsync(fd))
			abort();
		again(fd, 1);
	}
}

int main(int argc, char **argv)
{
	pthread_t other;
	int fd;

	if (argc != 4)
		return 2;
	file = argv[1];
	times = atoi(argv[3]);
	if (!strcmp(argv[2], "threads")) {
		pthread_create(&other, NULL, load, ".other");
		load("");
		pthread_join(other, NULL);
		return 0;
	}
	if (!strcmp(argv[2], "plain")) {
		load("");
		return 0;
	}
	fd = open_file("");
	if (!strcmp(argv[2], "jumps"))
		jumps(fd);
	for (int i = 0; i < times && !strcmp(argv[2], "recursion"); i++)
		again(fd, 300);
	for (int i = 0; i < times && !strcmp(argv[2], "lands"); i++)
		lands(fd);
	for (int i = 0; i < times && !strcmp(argv[2], "deep"); i++)
		level0(fd);
	return 0;
}
#endif
