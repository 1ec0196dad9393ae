// The same calls on a file, made in three ways: as a 64-bit program (cc -m64), as a 32-bit one (cc -m32), and by int 0x80 from a 64-bit
// program (cc -m64 -DINT80). Without a C library, so that no other compiler is needed: cc -nostdlib -static -no-pie -fno-pic.
#if defined(__x86_64__) && !defined(INT80)
#define NR(i386, x86_64) x86_64
#define AT(position) (long)(position)
typedef unsigned long word;
#else
#define NR(i386, x86_64) i386
// Two arguments, the lower half first.
#define AT(position) (long)(unsigned)(position), (long)((position) >> 32)
typedef unsigned word;
#endif

long call(long number, ...);
#if defined(__i386__)
__asm__(".globl call\n.type call, @function\ncall: push %ebx\n push %esi\n push %edi\n push %ebp\n"
	" mov 20(%esp), %eax\n mov 24(%esp), %ebx\n mov 28(%esp), %ecx\n mov 32(%esp), %edx\n"
	" mov 36(%esp), %esi\n mov 40(%esp), %edi\n mov 44(%esp), %ebp\n int $0x80\n"
	" pop %ebp\n pop %edi\n pop %esi\n pop %ebx\n ret\n");
#elif defined(INT80)
__asm__(".globl call\n.type call, @function\ncall: mov 8(%rsp), %r10\n push %rbx\n push %rbp\n"
	" mov %rdi, %rax\n mov %rsi, %rbx\n mov %rcx, %r11\n mov %rdx, %rcx\n mov %r11, %rdx\n"
	" mov %r8, %rsi\n mov %r9, %rdi\n mov %r10, %rbp\n int $0x80\n pop %rbp\n pop %rbx\n ret\n");
#else
__asm__(".globl call\n.type call, @function\ncall: mov %rdi, %rax\n mov %rsi, %rdi\n mov %rdx, %rsi\n"
	" mov %rcx, %rdx\n mov %r8, %r10\n mov %r9, %r8\n mov 8(%rsp), %r9\n syscall\n ret\n");
#endif

static char data[8192];
static struct {
	word base, length;
} vector[2];
static int failed;

static long made(long result)
{
	failed |= result < 0;
	return result;
}
// Seven arguments always: what is not used is zero.
#define DO(...) made(call(__VA_ARGS__, 0L, 0L, 0L, 0L, 0L, 0L))

__attribute__((force_align_arg_pointer)) void _start(void)
{
	const unsigned long long far = 1ULL << 32;
	long file = DO(NR(5, 2), (long)"f", 0x8242L, 0600L);

	vector[0].base = (word)(long)data;
	vector[0].length = 100;
	vector[1].base = (word)(long)(data + 100);
	vector[1].length = 28;
	for (int i = 0; i < 20; i++) {
		DO(NR(181, 18), file, (long)data, 4096L, AT(far + i * 4096));
		DO(NR(148, 75), file);
	}
	DO(NR(180, 17), file, (long)data, 512L, AT(far));
	DO(NR(4, 1), file, (long)data, 10L);
	DO(NR(146, 20), file, (long)vector, 2L);
	DO(NR(3, 0), file, (long)data, 16L);
	DO(NR(145, 19), file, (long)vector, 2L);
	DO(NR(334, 296), file, (long)vector, 2L, AT(5 * far));
	DO(NR(333, 295), file, (long)vector, 2L, AT(5 * far));
	DO(NR(194, 77), file, AT(6 * far));
	DO(NR(324, 285), file, 0L, AT(6 * far), AT(8192ULL));
	DO(NR(314, 277), file, AT(far), AT(8192ULL), 7L);
	DO(NR(118, 74), file);
	DO(NR(38, 82), (long)"f", (long)"g");
	file = DO(NR(295, 257), -100L, (long)"g", 0x8000L);
	DO(NR(10, 87), (long)"g");
	DO(NR(4, 1), 1L, failed ? (long)"failed\n" : (long)"made  \n", 7L);
	call((long)NR(1, 60), 0L, 0L, 0L, 0L, 0L, 0L);
}
