/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What the recorder and the object inside a process share: the plan, which the recorder writes before the program runs, and the
 * arena, which each process makes. ../src/layout.rs has the same; a test there compares the numbers and the offsets.
 */
#ifndef FATHOM_INSIDE_LAYOUT_H
#define FATHOM_INSIDE_LAYOUT_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef int s32;
typedef long s64;

#define PLAN_MAGIC 0x316e616c50687446UL
#define ARENA_MAGIC 0x31616e6572416846UL

#define PLAN_LIBRARIES 24
#define PLAN_FUNCTIONS 12
#define PLAN_ORIGINAL 32
#define PLAN_CODE 48
#define PLAN_FIXUPS 4

#define FUNCTION_STEP 1
#define FUNCTION_RESET 2
#define FUNCTION_FINALIZE 3
#define FUNCTION_PREPARE 4
/* Of the C library. */
#define FUNCTION_EXECVE 5
#define FUNCTION_PRCTL 6
#define FUNCTION_SYSCALL 7
/* Named by --op: its executions are operations. */
#define FUNCTION_NAMED 8

/* Rings of a process, one for each thread that runs statements at a time. */
#define RINGS 128
#define RING_WORDS 524288
/* Where in the file the first ring begins. */
#define RINGS_AT 16384
/* What becomes of a ring's memory at a time, so that a full file system is noticed and does not kill. */
#define POPULATE_WORDS 32768

#define LONGEST_TEXT 4095

/*
 * How a function's first instruction is undone: by raising the stack's end by so many of these bytes, or by authenticating the return
 * address that it signed.
 */
#define UNDO_UNIT 1
#define UNDO_UNIT_AARCH64 16
#define UNDO_AUTIASP 255
#define UNDO_AUTIBSP 254

/* Batches of the measurement of what recording costs, and what is done in one (price.h). */
#define PRICE_BATCHES 5
#define PRICE_STEPS 32
#define PRICE_STATEMENTS 16

/* What a process asks the recorder about: a program that it is about to execute, a library that it has loaded. */
#define ASK_EXECUTES 1
#define ASK_LOADED 2
/* The longest path that is asked about; questions of others are not put. */
#define ASK_PATH 1024
/* Answers: nothing for the process to do; the plan has what was asked about, and is to be read anew. */
#define ANSWER_NOTHING 0
#define ANSWER_PLANNED 1

/* Kinds of records; as FATHOM_KIND_* of the BPF programs. */
#define RECORD_PAD 0
#define RECORD_STATEMENT 1
#define RECORD_OP_BEGIN 2
#define RECORD_OP_END 3
/* Where a record's first word holds what: how many words, its kind, the header's flags, the CPU, the thread. */
#define RECORD_KIND_SHIFT 10
#define RECORD_FLAGS_SHIFT 16
#define RECORD_CPU_SHIFT 20
#define RECORD_TID_SHIFT 32
/* In the flags: the thread's statements wait between their rows; as FATHOM_HEADER_BETWEEN_ROWS. */
#define RECORD_BETWEEN_ROWS 2

/* What became of a library in a process. */
#define LIBRARY_UNSEEN 0
#define LIBRARY_HOOKED 1
#define LIBRARY_CHANGED 2 /* its code in memory is not its file's: something else patched it */
#define LIBRARY_NO_ROOM 3 /* no memory near enough for a jump */
#define LIBRARY_FORBIDDEN 4 /* its code may not be changed */
#define LIBRARY_SHADOWED 5 /* the processor compares returns with a shadow stack */
#define LIBRARY_ACROSS 6 /* a jump would lie across two pages, which cannot be written at once */

/* A process that the object was brought into while it ran: jumps and mappings that are kept account of. */
#define ATTACHED_MAGIC 0x3161686374416846UL
#define JUMPS 160
#define MAPPINGS 80
#define JUMP_BYTES 24
/* Bytes of a mapping that holds the code which jumps lead to. No other has as many. */
#define ROOM 8192UL
/* A jump of no library: the loader's, which reports what it loads. */
#define NO_LIBRARY 0xffffffffU
/* What became of it; 0: nothing yet. */
#define ATTACH_DONE 1
#define ATTACH_UNFIT 2 /* what it needs of the kernel or the program is not there */
#define ATTACH_BUSY 3 /* the loader is at work */
#define ATTACH_NO_LIBC 4 /* the C library's functions cannot be hooked, so that a filter of system calls would not be noticed */
#define ATTACH_NO_ARENA 5
#define ATTACH_NO_MEMORY 6
#define ATTACH_FULL 7

/*
 * A displacement within the trampoline that leads out of it: at `at`, counted from `end`, to the function's start plus `target`; or that
 * address itself, in eight bytes.
 */
struct plan_fixup {
	u8 at;
	u8 end;
	u8 absolute;
	u8 pad;
	s32 target;
};

struct plan_function {
	u64 address; /* within the file's own addresses */
	u8 kind;
	u8 stmt_arg; /* of a prepare: which arguments are ppStmt, the SQL and its length */
	u8 sql_arg;
	u8 length_arg;
	u8 utf16;
	u8 first; /* bytes of its first instruction, which stays in place */
	u8 moved; /* bytes up to where the trampoline returns to */
	u8 undo; /* of the first instruction; see UNDO_UNIT */
	u8 code_size;
	u8 fixups;
	u16 key; /* of a named one: its place in the list */
	u8 shared; /* of a named one: a child of vfork may call it, on its parent's memory */
	u8 pad[3];
	u8 original[PLAN_ORIGINAL]; /* `moved` bytes of the function */
	u8 code[PLAN_CODE]; /* the trampoline, which does what these do */
	struct plan_fixup fixup[PLAN_FIXUPS];
};

struct plan_library {
	u64 dev; /* as stat returns it */
	u64 ino;
	u32 functions;
	u16 text_at; /* where a statement keeps the pointer to its text, plus one */
	u16 running_at; /* where it has whether it runs, plus one */
	u8 running;
	u8 pad[7];
	struct plan_function function[PLAN_FUNCTIONS];
};

struct plan {
	u64 magic;
	u64 size;
	u64 pid_namespace; /* inodes of the recorder's: numbers and clocks of others would mislead */
	u64 time_namespace;
	u64 libraries;
	struct plan_library library[PLAN_LIBRARIES];
};

/* Sent to the recorder. */
struct question {
	u64 dev; /* of the file, as stat returns it */
	u64 ino;
	u32 thread;
	u32 what;
	u8 path[ASK_PATH]; /* as the process names it; a zero at its end */
};

struct ring_control {
	u64 head; /* words ever written */
	u64 tail; /* words ever read; the recorder's */
	u64 dropped;
	u64 state; /* of the thread: functions open << 48, statements open << 32, steps under way; the BPF programs read it */
	u64 function; /* where on the stack the innermost open function's return address stands */
	u64 stubs; /* where those begin that stand there in its place */
	u64 operations; /* where the thread keeps what it has open */
	u32 owner; /* thread; 0: never used */
	u32 populated; /* words that have memory */
};

struct arena {
	u64 magic;
	u64 size;
	u64 closed; /* the recorder's: nothing is to be recorded any more */
	u64 no_ring; /* calls of threads that found no ring */
	u32 tgid;
	u32 follows; /* whether libraries that are loaded later are noticed */
	u32 library[PLAN_LIBRARIES];
	u32 step_ns[PRICE_BATCHES]; /* what recording took of the steps of a batch; 0: not measured */
	u32 statement_ns[PRICE_BATCHES]; /* and of whole statements of one step */
	u8 pad[3920];
	struct ring_control ring[RINGS];
};

/* Code that was changed: at a function's begin, `first` bytes of it as they were, behind them the jump. */
struct jump {
	u64 at;
	u32 library; /* its place in the plan, or NO_LIBRARY */
	u8 first;
	u8 bytes; /* all of them; 0: it is not used */
	u16 pad;
	u8 now[JUMP_BYTES];
	u8 original[JUMP_BYTES];
};

struct mapping {
	u64 at;
	u64 size;
};

/* In the object's memory, for the recorder, which reads and writes it while the process is stopped. */
struct attached {
	u64 magic;
	u64 pid; /* the process; 0: the loader brought the object in */
	u64 thread_at; /* from the thread pointer to where the C library keeps the thread's number */
	u64 outcome; /* written last */
	u64 arena;
	u64 preparing; /* calls under way that the arena does not tell of */
	u64 untold; /* mappings there was no room for: what is mapped then stays */
	u32 jumps;
	u32 mappings;
	struct mapping mapping[MAPPINGS];
	struct jump jump[JUMPS];
};

#define ARENA_SIZE (RINGS_AT + RINGS * RING_WORDS * 8UL)

_Static_assert(sizeof(struct plan_fixup) == 8, "layout");
_Static_assert(sizeof(struct plan_function) == 136, "layout");
_Static_assert(sizeof(struct plan_library) == 32 + 12 * 136, "layout");
_Static_assert(sizeof(struct plan) == 40 + 24 * 1664, "layout");
_Static_assert(sizeof(struct question) == 24 + ASK_PATH, "layout");
_Static_assert(sizeof(struct ring_control) == 64, "layout");
_Static_assert(sizeof(struct jump) == 64, "layout");
_Static_assert(sizeof(struct arena) == 4096 + 128 * 64 && sizeof(struct arena) <= RINGS_AT, "layout");

#endif
