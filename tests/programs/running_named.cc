// A process to attach to while it calls functions in every way: it knows how often it called each, and checks every result.
//
//   running_named WORKERS SPINNERS
//
// Prints `ready`. On a line `calm N` or `wild N`, each worker calls N rounds of functions, and `done` is printed; `wild` ones are left by
// exceptions, longjmp and cancellation too. Meanwhile the spinners, from `spin` to `halt`, throw, jump, and start and end threads. `hold`
// leaves calls under way: on a thread's stack, on a coroutine's, and on one that was copied away; `free` ends them. At the end it prints
// `whole`, or the number of wrong results.
#include <atomic>
#include <csetjmp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <pthread.h>
#include <semaphore.h>
#include <ucontext.h>
#include <unistd.h>

static std::atomic<long> faults;
#define EXPECT(x) ((x) ? (void)0 : (void)++faults)

extern "C" {
#define NAMED __attribute__((noinline, noclone)) extern

NAMED long plain(long x)
{
	asm volatile("" : "+r"(x));
	return x + 1;
}
NAMED double mixed(double x, long y)
{
	asm volatile("" : "+r"(y));
	return x * 2 + y;
}
NAMED long inner(long x)
{
	asm volatile("" : "+r"(x));
	return 3 * x;
}
NAMED long outer(long x)
{
	long y = inner(x) + inner(x + 1);

	asm volatile("" : "+r"(y));
	return y + plain(x);
}
NAMED long nested(long n) { return n ? nested(n - 1) + 1 : plain(0); }
// Ends with a jump to another, which returns for both.
asm(".globl tail\n"
    ".type tail, @function\n"
    "tail:\n"
    "	.cfi_startproc\n"
    "	push %rbx\n"
    "	lea 1(%rdi), %rbx\n"
    "	mov %rbx, %rdi\n"
    "	pop %rbx\n"
    "	jmp inner\n"
    "	.cfi_endproc\n"
    "	.balign 16\n");
long tail(long x);
NAMED void throws(long by)
{
	asm volatile("" : "+r"(by));
	if (by >= 0)
		throw by;
	asm volatile("");
}
NAMED void passes(long by)
{
	struct guard {
		long *at;
		~guard() { ++*at; }
	};
	long cleaned = 0;

	try {
		guard guard = { &cleaned };
		throws(by);
	} catch (double) {
		++faults;
	} catch (long) {
		EXPECT(cleaned == 1);
		throw;
	}
	++faults;
}
NAMED void leaps(jmp_buf *to)
{
	asm volatile("" : "+r"(to));
	longjmp(*to, 1);
}
NAMED void ends(void *unused)
{
	asm volatile("" : "+r"(unused));
	pthread_exit(unused);
}
NAMED long handled(long x)
{
	asm volatile("" : "+r"(x));
	return x - 1;
}
NAMED long spins(long x)
{
	asm volatile("" : "+r"(x));
	return x ^ 1;
}
NAMED long held(sem_t *until)
{
	while (sem_wait(until))
		;
	return 77;
}
NAMED long holds(sem_t *until)
{
	long result = held(until);

	asm volatile("" : "+r"(result));
	return result + 1;
}
}

static ucontext_t outside, within;
extern "C" {
NAMED long suspended(long x)
{
	swapcontext(&within, &outside);
	asm volatile("" : "+r"(x));
	return x + 5;
}
}

static void on_signal(int) { EXPECT(handled(8) == 7); }

static void calm(long i)
{
	EXPECT(plain(i) == i + 1);
	EXPECT(mixed((double)i, i) == 3.0 * (double)i);
	EXPECT(outer(i) == 3 * i + 3 * (i + 1) + i + 1);
	EXPECT(nested(i % 5) == i % 5 + 1);
	EXPECT(tail(i) == 3 * (i + 1));
}

static void *leaver(void *unused)
{
	ends(unused);
	return unused;
}

static void wild(long i)
{
	jmp_buf back;
	pthread_t thread;
	volatile long caught = -1, jumped = 0;

	try {
		passes(i);
	} catch (long by) {
		caught = by;
	}
	EXPECT(caught == i);
	if (setjmp(back))
		jumped = 1;
	else
		leaps(&back);
	EXPECT(jumped == 1);
	if (i % 50 == 0 && !pthread_create(&thread, nullptr, leaver, nullptr))
		pthread_join(thread, nullptr);
	if (i % 10 == 0)
		raise(SIGUSR1);
}

static pthread_barrier_t start, end;
static long rounds;
static bool is_wild;
static std::atomic<bool> spinning;

static void *work(void *unused)
{
	for (;;) {
		pthread_barrier_wait(&start);
		for (long i = 0; i < rounds; i++) {
			calm(i);
			if (is_wild)
				wild(i);
		}
		pthread_barrier_wait(&end);
	}
	return unused;
}

static void *once(void *x)
{
	EXPECT(spins((long)x) == ((long)x ^ 1));
	return x;
}

static void *spin(void *unused)
{
	for (long i = 0;; i++) {
		jmp_buf back;
		pthread_t thread;

		if (!spinning) {
			usleep(1000);
			continue;
		}
		EXPECT(spins(i) == (i ^ 1));
		volatile long caught = -1;
		try {
			throws(i);
		} catch (long by) {
			caught = by;
		}
		EXPECT(caught == i);
		if (!setjmp(back))
			leaps(&back);
		if (i % 8 == 0 && !pthread_create(&thread, nullptr, once, (void *)i))
			pthread_join(thread, nullptr);
	}
	return unused;
}

static sem_t until;
static pthread_t holder;
static void *hold(void *unused)
{
	EXPECT(holds(&until) == 78);
	return unused;
}
static long coroutine_result;
static void coroutine() { coroutine_result = suspended(37); }

// The coroutine's stack is copied to the heap and cleared, as greenlets do it.
static char stack[1 << 16], *copy;
static void begin_coroutine()
{
	getcontext(&within);
	within.uc_stack.ss_sp = stack;
	within.uc_stack.ss_size = sizeof(stack);
	within.uc_link = &outside;
	makecontext(&within, coroutine, 0);
	swapcontext(&outside, &within);
	copy = (char *)malloc(sizeof(stack));
	memcpy(copy, stack, sizeof(stack));
	memset(stack, 0, sizeof(stack));
}
static void end_coroutine()
{
	memcpy(stack, copy, sizeof(stack));
	free(copy);
	coroutine_result = 0;
	swapcontext(&outside, &within);
	EXPECT(coroutine_result == 42);
}

int main(int count, char **words)
{
	int workers = count > 1 ? atoi(words[1]) : 1, spinners = count > 2 ? atoi(words[2]) : 0;
	char line[64];
	pthread_t thread;

	signal(SIGUSR1, on_signal);
	sem_init(&until, 0, 0);
	pthread_barrier_init(&start, nullptr, workers + 1);
	pthread_barrier_init(&end, nullptr, workers + 1);
	for (int i = 0; i < workers; i++)
		pthread_create(&thread, nullptr, work, nullptr);
	for (int i = 0; i < spinners; i++)
		pthread_create(&thread, nullptr, spin, nullptr);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "calm %ld", &rounds) == 1 || sscanf(line, "wild %ld", &rounds) == 1) {
			is_wild = line[0] == 'w';
			pthread_barrier_wait(&start);
			pthread_barrier_wait(&end);
		} else if (!strcmp(line, "spin\n") || !strcmp(line, "halt\n")) {
			spinning = line[0] == 's';
		} else if (!strcmp(line, "hold\n")) {
			pthread_create(&holder, nullptr, hold, nullptr);
			begin_coroutine();
			usleep(50000);
		} else if (!strcmp(line, "free\n")) {
			sem_post(&until);
			pthread_join(holder, nullptr);
			end_coroutine();
		}
		puts("done");
		fflush(stdout);
	}
	if (faults)
		printf("%ld faults\n", (long)faults);
	else
		puts("whole");
	fflush(stdout);
	_exit(0);
}
