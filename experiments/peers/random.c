// Random reads and nothing else: the cost of a loop around pread that measures no latency and checks no byte. The peer of
// experiments/peers/harness-random.toml.
//
//     random FILE BLOCK READS ITERATIONS
//
// Offsets are multiples of BLOCK, uniform over FILE. Prints the reads per second of each iteration.
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static uint64_t state = 2014;

// SplitMix64 (Steele, Lea and Flood 2014).
static uint64_t number(void) {
    uint64_t x = state += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
    if (argc != 5) {
        fprintf(stderr, "usage: random FILE BLOCK READS ITERATIONS\n");
        return 2;
    }
    uint64_t block = strtoull(argv[2], NULL, 10), reads = strtoull(argv[3], NULL, 10);
    uint64_t iterations = strtoull(argv[4], NULL, 10);
    int file = open(argv[1], O_RDONLY);
    struct stat about;
    char *buffer = block ? aligned_alloc(4096, (block + 4095) / 4096 * 4096) : NULL;
    if (file < 0 || fstat(file, &about) || !buffer || (uint64_t)about.st_size < block) {
        perror(argv[1]);
        return 1;
    }
    uint64_t places = ((uint64_t)about.st_size - block) / block + 1;
    for (uint64_t i = 0; i < iterations; i++) {
        double begin = now();
        for (uint64_t n = 0; n < reads; n++) {
            uint64_t place = (uint64_t)((unsigned __int128)number() * places >> 64) * block;
            if (pread(file, buffer, block, (off_t)place) != (ssize_t)block) {
                perror(argv[1]);
                return 1;
            }
        }
        double end = now();
        printf("{\"metric\":\"transactions\",\"unit\":\"1/s\",\"v\":%.1f}\n", (double)reads / (end - begin));
    }
    return 0;
}
