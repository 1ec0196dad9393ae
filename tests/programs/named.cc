// Functions of every kind, called, left and returned to in every way that a program can. The output is always the same; the number of
// executions and of exits without a return is known for each function.
#include <complex>
#include <csetjmp>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

extern "C" {
struct large {
	long of[40];
};
#define NAMED __attribute__((noinline, noclone)) extern

NAMED long many(int a, long b, char c, short d, int e, long f, int g, long h, double i, double j, double k, double l, double m, double n,
		double o, double p, double q, large r, int s)
{
	return a + b + c + d + e + f + g + h + (long)(i + j + k + l + m + n + o + p + q) + r.of[0] + r.of[39] + s;
}
NAMED large makes(long seed)
{
	large all;

	for (int i = 0; i < 40; i++)
		all.of[i] = seed * i;
	return all;
}
NAMED double variadic(int count, ...)
{
	double sum = 0;
	va_list all;

	va_start(all, count);
	for (int i = 0; i < count; i++)
		sum += i % 2 ? va_arg(all, double) : va_arg(all, int);
	va_end(all);
	return sum;
}
NAMED long double extended(long double x) { return x * 3 + 0.25L; }
NAMED __int128 wide(long x) { return ((__int128)x << 64) + x; }
NAMED std::complex<double> both(double x) { return { x, -x }; }
NAMED void throws(int depth)
{
	if (!depth)
		throw 7;
	throws(depth - 1);
	asm volatile("");
}
NAMED void passes(int depth)
{
	struct guard {
		~guard() { asm volatile(""); }
	} guard;

	throws(depth);
	asm volatile("");
}
NAMED long even(long n);
NAMED long odd(long n) { return n ? even(n - 1) : 0; }
NAMED long even(long n) { return n ? odd(n - 1) : 1; }
static jmp_buf back;
NAMED void jumps() { longjmp(back, 1); }
NAMED long handles(long x)
{
	asm volatile("" : "+r"(x));
	return x + 1;
}
NAMED pid_t forks() { return fork(); }
NAMED void leaves(int by)
{
	if (by)
		pthread_exit(nullptr);
	pthread_cancel(pthread_self());
	pthread_testcancel();
}
static ucontext_t here, there;
NAMED long switches(long x)
{
	swapcontext(&there, &here);
	return x * 2;
}
NAMED int closes(int fd) { return close(fd); }
}

static volatile sig_atomic_t handled;
static void on_signal(int) { handled = handles(handled); }
static long coroutine_result;
static void coroutine() { coroutine_result = switches(21); }
static void *thread(void *by)
{
	leaves(by != nullptr);
	return nullptr;
}

int main()
{
	double sum = 0;
	long total = 0;
	int caught = 0, jumped = 0, status;

	for (int i = 0; i < 1000; i++) {
		large l = makes(i);

		total += many(i, 2, 3, 4, 5, 6, 7, 8, .5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5, l, 9);
		sum += variadic(5, 1, 2.5, 3, 4.5, i);
		sum += (double)extended(i) + both(i).real() - both(i).imag();
		total += (long)(wide(i) >> 64) + even(i % 50);
	}
	printf("%ld %.3f\n", total, sum);
	// More calls than there are stubs, in case each used one up.
	for (int i = 0; i < 5000; i++) {
		try {
			passes(i % 3);
		} catch (int seven) {
			caught += seven;
		}
	}
	printf("caught %d\n", caught);
	for (volatile int i = 0; i < 3000; i++) {
		if (setjmp(back))
			jumped++;
		else
			jumps();
	}
	printf("jumped %d\n", jumped);

	struct itimerval every = { { 0, 200 }, { 0, 200 } }, never = {};
	signal(SIGALRM, on_signal);
	setitimer(ITIMER_REAL, &every, nullptr);
	for (long i = 0; handled < 20; i++)
		total += makes(i).of[1];
	setitimer(ITIMER_REAL, &never, nullptr);
	signal(SIGALRM, SIG_DFL);

	for (int i = 0; i < 20; i++) {
		pid_t child = forks();

		if (!child)
			_exit((int)handles(i));
		waitpid(child, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != i + 1)
			printf("forked: %x\n", status);
		child = vfork();
		if (!child) {
			closes(-1);
			_exit(i);
		}
		waitpid(child, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != i)
			printf("vforked: %x\n", status);
		char *const words[] = { (char *)"true", nullptr };
		posix_spawn_file_actions_t actions;
		posix_spawn_file_actions_init(&actions);
		posix_spawn_file_actions_addopen(&actions, 9, "/dev/null", O_RDONLY, 0);
		posix_spawn_file_actions_addclose(&actions, 9);
		if (posix_spawnp(&child, "true", &actions, nullptr, words, environ))
			printf("not spawned\n");
		posix_spawn_file_actions_destroy(&actions);
		waitpid(child, &status, 0);
		if (status)
			printf("spawned: %x\n", status);
	}
	for (long i = 0; i < 100; i++) {
		pthread_t one;

		pthread_create(&one, nullptr, thread, (void *)(i % 2));
		pthread_join(one, nullptr);
	}
	static char stack[1 << 16];
	for (int i = 0; i < 50; i++) {
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = sizeof(stack);
		there.uc_link = &here;
		makecontext(&there, coroutine, 0);
		swapcontext(&here, &there);
		total += makes(i).of[1];
		swapcontext(&here, &there);
		if (coroutine_result != 42)
			printf("switched: %ld\n", coroutine_result);
	}
	for (int i = 0; i < 30; i++)
		closes(-1);
	printf("done\n");
	fflush(stdout);
	return 5;
}
