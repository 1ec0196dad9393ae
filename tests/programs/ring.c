/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Writes records through io_uring, each followed by an fsync, with plain system calls: what the tests of io_uring record.
 * ring FILE COUNT MODE...: MODE is any of `polled` (SQPOLL), `async` (a worker executes every request), `direct` (O_DIRECT),
 * `registered` (a registered file), `opened` (opened through the ring), `vector`, `own` (writes at the file's own position), `read` (reads
 * each record back, cold).
 * `insert` is the operation.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SIZE 4096

static struct {
	int fd;
	unsigned flags;
	_Atomic unsigned *sq_tail, *sq_flags, *cq_head, *cq_tail;
	unsigned sq_mask, cq_mask, *sq_array;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring;
static int file = -1, polled, worker, direct, registered, opened, vector, own, reading;
static char *data;
static struct iovec vec;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void setup(void)
{
	struct io_uring_params p = { .flags = polled ? IORING_SETUP_SQPOLL : 0, .sq_thread_idle = 2000 };
	char *sq, *cq;

	ring.fd = syscall(SYS_io_uring_setup, 8, &p);
	if (ring.fd < 0)
		die("io_uring_setup");
	sq = mmap(NULL, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	cq = mmap(NULL, p.cq_off.cqes + p.cq_entries * sizeof(*ring.cqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd,
		  IORING_OFF_CQ_RING);
	ring.sqes = mmap(NULL, p.sq_entries * sizeof(*ring.sqes), PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.sqes == MAP_FAILED)
		die("mmap");
	ring.sq_tail = (void *)(sq + p.sq_off.tail);
	ring.sq_flags = (void *)(sq + p.sq_off.flags);
	ring.sq_mask = *(unsigned *)(sq + p.sq_off.ring_mask);
	ring.sq_array = (void *)(sq + p.sq_off.array);
	ring.cq_head = (void *)(cq + p.cq_off.head);
	ring.cq_tail = (void *)(cq + p.cq_off.tail);
	ring.cq_mask = *(unsigned *)(cq + p.cq_off.ring_mask);
	ring.cqes = (void *)(cq + p.cq_off.cqes);
	if (registered && syscall(SYS_io_uring_register, ring.fd, IORING_REGISTER_FILES, &file, 1))
		die("io_uring_register");
}

static int submit(struct io_uring_sqe *own)
{
	unsigned tail = *ring.sq_tail, head = *ring.cq_head;
	struct io_uring_sqe *sqe = &ring.sqes[tail & ring.sq_mask];
	int result;

	*sqe = *own;
	if (worker)
		sqe->flags |= IOSQE_ASYNC;
	ring.sq_array[tail & ring.sq_mask] = tail & ring.sq_mask;
	atomic_store(ring.sq_tail, tail + 1);
	for (;;) {
		unsigned flags = IORING_ENTER_GETEVENTS;

		if (polled && atomic_load(ring.sq_flags) & IORING_SQ_NEED_WAKEUP)
			flags |= IORING_ENTER_SQ_WAKEUP;
		if (syscall(SYS_io_uring_enter, ring.fd, atomic_load(ring.cq_tail) == head && !polled, 1, flags, NULL, 0) < 0 &&
		    errno != EINTR)
			die("io_uring_enter");
		if (atomic_load(ring.cq_tail) != head)
			break;
	}
	result = ring.cqes[head & ring.cq_mask].res;
	atomic_store(ring.cq_head, head + 1);
	return result;
}

static int run(int opcode, void *at, unsigned len, long long pos)
{
	struct io_uring_sqe sqe = { .opcode = opcode, .fd = registered ? 0 : file, .addr = (unsigned long)at, .len = len, .off = pos };

	if (registered)
		sqe.flags = IOSQE_FIXED_FILE;
	return submit(&sqe);
}

/* Into the ring's table, if files are registered. */
static void open_by_ring(const char *path, int flags)
{
	struct io_uring_sqe sqe = { .opcode = IORING_OP_OPENAT, .fd = AT_FDCWD, .addr = (unsigned long)path, .len = 0644 };

	sqe.open_flags = flags;
	sqe.file_index = registered;
	file = submit(&sqe);
	if (file < 0)
		exit(6);
}

__attribute__((noinline)) int insert(int i)
{
	long long pos = own ? -1 : (long long)i * SIZE;
	int written;

	memset(data, 'a' + i % 26, SIZE);
	written = vector ? run(IORING_OP_WRITEV, &vec, 1, pos) : run(IORING_OP_WRITE, data, SIZE, pos);
	if (written != SIZE)
		exit(3);
	if (run(IORING_OP_FSYNC, NULL, 0, 0))
		exit(4);
	return written;
}

__attribute__((noinline)) int lookup(int i)
{
	int done = run(IORING_OP_READ, data, SIZE, (long long)i * SIZE);

	if (done != SIZE || data[0] != 'a' + i % 26)
		exit(5);
	return done;
}

int main(int argc, char **argv)
{
	int i, count, flags;

	if (argc < 3)
		return 2;
	for (i = 3; i < argc; i++) {
		polled |= !strcmp(argv[i], "polled");
		worker |= !strcmp(argv[i], "async");
		direct |= !strcmp(argv[i], "direct");
		registered |= !strcmp(argv[i], "registered");
		opened |= !strcmp(argv[i], "opened");
		vector |= !strcmp(argv[i], "vector");
		own |= !strcmp(argv[i], "own");
		reading |= !strcmp(argv[i], "read");
	}
	count = atoi(argv[2]);
	flags = O_CREAT | O_RDWR | (direct ? O_DIRECT : 0);
	if (!opened)
		file = open(argv[1], flags, 0644);
	if ((file < 0 && !opened) || posix_memalign((void **)&data, SIZE, SIZE))
		die(argv[1]);
	vec.iov_base = data;
	vec.iov_len = SIZE;
	setup();
	if (opened)
		open_by_ring(argv[1], flags);
	for (i = 0; i < count; i++)
		insert(i);
	if (reading && posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED))
		die("posix_fadvise");
	if (reading && posix_fadvise(file, 0, 0, POSIX_FADV_RANDOM))
		die("posix_fadvise");
	for (i = 0; reading && i < count; i++)
		lookup(i);
	return 0;
}
