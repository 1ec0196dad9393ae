// Functions that keep a value in the red zone, and places in them at which a probe would change what they compute.
// Prints how many of 1,000 calls of each returned something else.
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define VALUE 0x1122334455667788

// A static probe's place (USDT): a NOP of five bytes within a function that calls no other.
__asm__(".text\n.balign 16\n.type leaf, @function\nleaf:\n"
	" movabs $0x1122334455667788, %rax\n mov %rax, -8(%rsp)\n xor %eax, %eax\n"
	".globl site\nsite: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
	" mov -8(%rsp), %rax\n ret\n.size leaf, . - leaf\n"
	// The same place, declared to be a function.
	".balign 16\n.type other, @function\nother:\n"
	" movabs $0x1122334455667788, %rax\n mov %rax, -8(%rsp)\n xor %eax, %eax\n"
	".globl inner\n.type inner, @function\ninner: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
	" mov -8(%rsp), %rax\n ret\n.size inner, . - inner\n.size other, . - other\n"
	// At the stack pointer is a saved register, which a return probe would overwrite.
	".balign 16\n.type saves, @function\nsaves:\n push %rbx\n movabs $0x1122334455667788, %rbx\n push %rbx\n"
	".globl saved\nsaved: nop\n pop %rax\n pop %rbx\n ret\n.size saves, . - saves\n"
	// Begins with such a NOP, and uses the red zone after it.
	".balign 16\n.globl begins\n.type begins, @function\nbegins: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00\n"
	" movabs $0x1122334455667788, %rax\n mov %rax, -8(%rsp)\n xor %eax, %eax\n mov -8(%rsp), %rax\n ret\n"
	".size begins, . - begins\n");

uint64_t leaf(void), other(void), saves(void), begins(void);

static int seven(void)
{
	return 7;
}
static int (*choose(void))(void)
{
	return seven;
}
int chosen(void) __attribute__((ifunc("choose")));

static jmp_buf back;

int main(int count, char **words)
{
	uint64_t (*all[])(void) = { leaf, other, saves, begins };
	const char *names[] = { "leaf", "other", "saves", "begins" };
	volatile int jumps = 0;

	if (count > 1 && !strcmp(words[1], "jump") && (setjmp(back), jumps++ < 3))
		longjmp(back, 1);
	for (int i = 0; i < 4; i++) {
		int wrong = 0;
		for (int n = 0; n < 1000; n++)
			wrong += all[i]() != VALUE;
		printf("%s %d\n", names[i], wrong);
	}
	printf("arguments %d, chosen %d\n", count - 1, chosen());
}
