/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Sends one TCP flow at full speed and samples the sender's TCP: what the tests of congestion controls record.
 * bulk receive PORT: accepts connections one after the other until killed.
 * bulk send ADDRESS PORT CC SECONDS: prints every 10 ms a line `ms cwnd ssthresh srtt_us state retransmits delivered`, where ms is the
 * time of the sample, and state that of the kernel's recovery (0 open, 1 disorder, 2 reduced, 3 recovery, 4 loss). A sample that is
 * overdue is skipped, so that a gap between two lines is a time in which this program did not run.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define EVERY_MS 10

static char block[1 << 16];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void sample(int fd, long ms)
{
	struct tcp_info i = { 0 };
	socklen_t length = sizeof(i);

	check(!getsockopt(fd, IPPROTO_TCP, TCP_INFO, &i, &length), "TCP_INFO");
	printf("%ld %u %u %u %u %u %u\n", ms, i.tcpi_snd_cwnd, i.tcpi_snd_ssthresh, i.tcpi_rtt, i.tcpi_ca_state,
	       i.tcpi_total_retrans, i.tcpi_delivered);
}

static void receive(struct sockaddr_in *at)
{
	int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);

	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	check(!bind(listener, (struct sockaddr *)at, sizeof(*at)) && !listen(listener, 4), "listen");
	for (;;) {
		int fd = accept(listener, NULL, NULL);

		check(fd >= 0, "accept");
		while (recv(fd, block, sizeof(block), 0) > 0)
			;
		close(fd);
	}
}

static void send_for(struct sockaddr_in *to, const char *cc, int seconds)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	long start, next;

	check(!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, cc, strlen(cc)), cc);
	check(!connect(fd, (struct sockaddr *)to, sizeof(*to)) || errno == EINPROGRESS, "connect");
	start = next = now_ms();
	while (next - start < seconds * 1000L) {
		struct pollfd poll_for = { .fd = fd, .events = POLLOUT };
		long now = now_ms();

		if (now >= next) {
			sample(fd, now - start);
			while (next <= now)
				next += EVERY_MS;
			continue;
		}
		if (poll(&poll_for, 1, next - now) > 0 && send(fd, block, sizeof(block), MSG_NOSIGNAL) < 0)
			check(errno == EAGAIN || errno == EINPROGRESS || errno == ENOTCONN, "send");
	}
	close(fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = { .sin_family = AF_INET };

	if (argc == 3 && !strcmp(argv[1], "receive")) {
		at.sin_port = htons(atoi(argv[2]));
		receive(&at);
	} else if (argc == 6 && !strcmp(argv[1], "send")) {
		check(inet_pton(AF_INET, argv[2], &at.sin_addr) == 1, "address");
		at.sin_port = htons(atoi(argv[3]));
		send_for(&at, argv[4], atoi(argv[5]));
	} else {
		return 2;
	}
	return 0;
}
