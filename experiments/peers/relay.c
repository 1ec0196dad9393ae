// A bare relay of large writes or reads: the least that a coordinator with one node, or a stripe of several, can cost on one machine. The
// floor of experiments/peers/pool-relay.toml.
//
//     relay DIRECTORY WORKERS read|write SECONDS
//
// A client requests 1 MiB at a time, with 8 requests in flight, over a Unix socket (28 bytes of request and the data; 16 bytes of
// response and the data), as an NBD client does. The relay receives into shared memory, tells each worker over a TCP connection where its
// part is (50 bytes, as the pool's frames take), and responds when all have done theirs (30 bytes); a worker is a process that calls
// pwrite or pread on its own file in DIRECTORY. No checksum, no protocol, no order, no recovery. Parts of a request are MiB / WORKERS.
// Without workers the relay does that itself: the cost of one process, such as nbdkit.
// Prints the rate, and the processor time that relay and workers took per GiB.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 1 << 20, DEPTH = 8, FILE_BYTES = 128 << 20, ASKED = 28, ANSWERED = 16, TOLD = 50, DONE = 30, MOST = 16 };

static void need(int good, const char *what) {
    if (!good) {
        perror(what);
        exit(1);
    }
}

static int whole(int out, int fd, char *bytes, size_t length) {
    for (size_t at = 0; at < length;) {
        ssize_t n = out ? send(fd, bytes + at, length - at, MSG_NOSIGNAL) : recv(fd, bytes + at, length - at, 0);
        if (n <= 0) return 0;
        at += (size_t)n;
    }
    return 1;
}

// Forks a child process, which ends with this one.
static pid_t start(void) {
    pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    return child;
}

static void tcp(int *near, int *far) {
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof at;
    int one = 1, listener = socket(AF_INET, SOCK_STREAM, 0);
    need(bind(listener, (void *)&at, length) == 0 && listen(listener, 1) == 0, "listen");
    getsockname(listener, (void *)&at, &length);
    *near = socket(AF_INET, SOCK_STREAM, 0);
    need(connect(*near, (void *)&at, length) == 0, "connect");
    *far = accept(listener, NULL, NULL);
    need(*far >= 0, "accept");
    setsockopt(*near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(*far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    close(listener);
}

static int file_of(const char *directory, int nth, char *memory) {
    char path[4096];
    snprintf(path, sizeof path, "%s/part%d", directory, nth);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    need(file >= 0 && ftruncate(file, FILE_BYTES) == 0, path);
    for (off_t at = 0; at < FILE_BYTES; at += SIZE) need(pwrite(file, memory, SIZE, at) == SIZE, "pwrite");
    return file;
}

static void use(int file, int writes, char *bytes, int part, long at) {
    ssize_t n = writes ? pwrite(file, bytes, (size_t)part, at) : pread(file, bytes, (size_t)part, at);
    need(n == part, "file");
}

static void worker(const char *directory, int nth, int fd, char *memory, int part, int writes) {
    char message[TOLD];
    int file = file_of(directory, nth, memory);
    whole(1, fd, message, 1);
    while (whole(0, fd, message, TOLD)) {
        long slot, at;
        memcpy(&slot, message, sizeof slot);
        memcpy(&at, message + sizeof slot, sizeof at);
        use(file, writes, memory + slot * SIZE + (long)nth * part, part, at);
        if (!whole(1, fd, message, DONE)) break;
    }
    exit(0);
}

static void relay(int client, int *workers, int count, char *memory, int part, int writes) {
    static char head[TOLD];
    int left[DEPTH] = {0}, used[DEPTH] = {0};
    long place = 0;
    struct pollfd all[MOST + 1] = {{.fd = client, .events = POLLIN}};
    for (int nth = 0; nth < count; nth++) all[nth + 1] = (struct pollfd){.fd = workers[nth], .events = POLLIN};
    while (poll(all, (nfds_t)count + 1, -1) > 0) {
        for (int nth = 0; nth < count; nth++) {
            if (!all[nth + 1].revents) continue;
            if (!whole(0, workers[nth], head, DONE)) exit(0);
            long slot;
            memcpy(&slot, head, sizeof slot);
            if (--left[slot]) continue;
            used[slot] = 0;
            if (!whole(1, client, head, ANSWERED)) exit(0);
            if (!writes && !whole(1, client, memory + slot * SIZE, SIZE)) exit(0);
        }
        if (!all[0].revents) continue;
        if (!whole(0, client, head, ASKED)) exit(0);
        long slot = 0;
        while (used[slot]) slot++;
        used[slot] = 1, left[slot] = count;
        if (writes && !whole(0, client, memory + slot * SIZE, SIZE)) exit(0);
        memcpy(head, &slot, sizeof slot);
        memcpy(head + sizeof slot, &place, sizeof place);
        place = (place + part) % (FILE_BYTES - SIZE);
        for (int nth = 0; nth < count; nth++)
            if (!whole(1, workers[nth], head, TOLD)) exit(0);
    }
}

static void alone(const char *directory, int client, char *memory, int writes) {
    static char head[ASKED];
    int file = file_of(directory, 0, memory);
    long place = 0;
    for (whole(1, client, head, 1); whole(0, client, head, ASKED); place = (place + SIZE) % (FILE_BYTES - SIZE)) {
        if (writes && !whole(0, client, memory, SIZE)) break;
        use(file, writes, memory, SIZE, place);
        if (!whole(1, client, head, ANSWERED) || (!writes && !whole(1, client, memory, SIZE))) break;
    }
    exit(0);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    int count = argc == 5 ? atoi(argv[2]) : -1, writes = argc == 5 && strcmp(argv[3], "write") == 0;
    if (count < 0 || count > MOST || (count && SIZE % count)) {
        fprintf(stderr, "relay DIRECTORY WORKERS read|write SECONDS\n");
        return 2;
    }
    char *memory = mmap(NULL, DEPTH * SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    need(memory != MAP_FAILED, "mmap");
    memset(memory, 7, DEPTH * SIZE);
    int near[MOST], far[MOST], way[2], bytes = SIZE;
    pid_t servers[MOST + 1];
    need(socketpair(AF_UNIX, SOCK_STREAM, 0, way) == 0, "socketpair");
    setsockopt(way[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    setsockopt(way[1], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    for (int nth = 0; nth < count; nth++) {
        tcp(&near[nth], &far[nth]);
        if ((servers[nth] = start()) == 0) worker(argv[1], nth, far[nth], memory, SIZE / count, writes);
        close(far[nth]);
    }
    char ready;
    for (int nth = 0; nth < count; nth++) need(whole(0, near[nth], &ready, 1), "worker");
    if ((servers[count] = start()) == 0 && !count) alone(argv[1], way[1], memory, writes);
    if (!count) need(whole(0, way[0], &ready, 1), "relay");
    if (servers[count] == 0) relay(way[1], near, count, memory, SIZE / count, writes);
    for (int nth = 0; nth < count; nth++) close(near[nth]);
    static char data[ASKED + SIZE], head[ASKED];
    // The time to create the files is not counted.
    double before = 0, begun = now(), until = begun + atof(argv[4]);
    for (int nth = 0; nth <= count; nth++) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid(servers[nth], &clock) == 0 && clock_gettime(clock, &t) == 0)
            before += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    long asked = 0, answered = 0;
    while (now() < until || answered < asked) {
        while (now() < until && asked - answered < DEPTH) {
            need(whole(1, way[0], data, writes ? ASKED + SIZE : ASKED), "relay");
            asked++;
        }
        need(whole(0, way[0], head, ANSWERED) && (writes || whole(0, way[0], data, SIZE)), "relay");
        answered++;
    }
    double took = now() - begun, after = 0;
    for (int nth = 0; nth <= count; nth++) {
        clockid_t clock;
        struct timespec t;
        if (clock_getcpuclockid(servers[nth], &clock) == 0 && clock_gettime(clock, &t) == 0)
            after += (double)t.tv_sec + (double)t.tv_nsec / 1e9;
    }
    for (int nth = 0; nth <= count; nth++) kill(servers[nth], SIGKILL);
    while (wait(NULL) > 0) {}
    double gib = (double)answered * SIZE / (1 << 30);
    printf("{\"metric\":\"rate\",\"unit\":\"byte/s\",\"v\":%.0f}\n", (double)answered * SIZE / took);
    printf("{\"metric\":\"servers.cpu\",\"unit\":\"s/GiB\",\"v\":%.4f}\n", (after - before) / gib);
    return 0;
}
