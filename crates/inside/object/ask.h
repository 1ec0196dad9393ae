/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Asks the recorder about a file before its code runs: a program that this process is about to execute, or a library that it has just
 * loaded. The initial plan only covers what could be known before the command ran. The recorder examines the file, places uprobes
 * on it, adds its functions to the plan, and responds; for a statically linked program it becomes the tracer, up to the first
 * instruction (crate `capture`, inside/asks.rs).
 *
 * If no response arrives within five seconds, or there is no listener any more, the process continues and sends no more requests.
 */
#ifndef FATHOM_INSIDE_ASK_H
#define FATHOM_INSIDE_ASK_H

#include "process.h"

#define ASK_SECONDS 5
/* Signal handlers may interrupt a blocking call. */
#define ASK_TRIES 100

static u32 unanswered;

static int is_recording(void)
{
	char path[PATH_MOST];
	u64 dev, ino;

	memcpy(path, directory, directory_length);
	append_text(path + directory_length, "plan");
	return identify(path, &dev, &ino);
}

/* Returns a connection to the recorder, which the caller closes; negative: there is none. */
static long reach_recorder(void)
{
	static const s64 limit[2] = { ASK_SECONDS, 0 };
	struct {
		u16 family;
		char path[108];
	} address = { AF_UNIX, { 0 } };
	long fd;

	if (directory_length + sizeof("ask") > sizeof(address.path))
		return -1;
	memcpy(address.path, directory, directory_length);
	append_text(address.path + directory_length, "ask");
	fd = call3(SYS_socket, AF_UNIX, SOCK_STREAM | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	call6(SYS_setsockopt, fd, SOL_SOCKET, SO_SNDTIMEO, (long)limit, sizeof(limit), 0);
	call6(SYS_setsockopt, fd, SOL_SOCKET, SO_RCVTIMEO, (long)limit, sizeof(limit), 0);
	if (!call3(SYS_connect, fd, &address, sizeof(address)))
		return fd;
	call1(SYS_close, fd);
	return -1;
}

/*
 * Sends a request and stores the response; returns the connection, which the caller closes when the action in question is done;
 * negative: there is no response.
 */
static long ask(u32 what, const char *path, u64 length, u64 dev, u64 ino, u8 *answer)
{
	struct question q;
	u32 i;
	long fd, n;

	if (sealed || unanswered || length >= ASK_PATH)
		return -1;
	fd = reach_recorder();
	if (fd < 0)
		return fd;
	q.dev = dev;
	q.ino = ino;
	q.thread = call0(SYS_gettid);
	q.what = what;
	memcpy(q.path, path, length);
	memset(q.path + length, 0, ASK_PATH - length);
	n = call6(SYS_sendto, fd, (long)&q, sizeof(q), MSG_NOSIGNAL, 0, 0);
	for (i = 0; n > 0 && i < ASK_TRIES; i++) {
		n = call6(SYS_recvfrom, fd, (long)answer, 1, 0, 0, 0);
		if (n == 1)
			return fd;
		if (n != -EINTR)
			break;
		n = 1;
	}
	/* Do not ask a peer again that exited during the request. */
	unanswered = n < 0;
	call1(SYS_close, fd);
	return -1;
}

#endif
