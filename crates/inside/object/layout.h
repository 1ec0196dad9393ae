/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Shared by the recorder and the object inside a process: the plan, which the recorder writes before the program runs, and the
 * arena, which each process creates. ../src/layout.rs mirrors it; a test there compares the numbers and the offsets.
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

#define PLAN_LIBRARIES 26
#define PLAN_FUNCTIONS 12
#define PLAN_ORIGINAL 32
#define PLAN_CODE 48
#define PLAN_FIXUPS 4

#define FUNCTION_STEP 1
#define FUNCTION_RESET 2
#define FUNCTION_FINALIZE 3
#define FUNCTION_PREPARE 4
/* Functions of the C library. */
#define FUNCTION_EXECVE 5
#define FUNCTION_PRCTL 6
#define FUNCTION_SYSCALL 7
/* Named by --op: its executions are operations. */
#define FUNCTION_NAMED 8
/* The unwinder's _Unwind_Find_FDE, which finds the description of code. */
#define FUNCTION_FIND_FDE 9

/* Number of rings of a process, one for each thread that runs statements at the same time. */
#define RINGS 128
#define RING_WORDS 524288
/* File offset of the first ring. */
#define RINGS_AT 16384
/* A ring's memory is populated in units of this, so that a full file system is noticed and does not kill the program. */
#define POPULATE_WORDS 32768

#define LONGEST_TEXT 4095

/*
 * How a function's first instruction is undone: by raising the stack pointer by a multiple of these bytes, or by authenticating the
 * return address that it signed.
 */
#define UNDO_UNIT 1
#define UNDO_UNIT_AARCH64 16
#define UNDO_AUTIASP 255
#define UNDO_AUTIBSP 254

/* Number of batches in the measurement of the cost of recording, and the work per batch (price.h). */
#define PRICE_BATCHES 5
#define PRICE_STEPS 256
#define PRICE_STATEMENTS 16

/* Request types of a process: a program that it is about to execute, a library that it has loaded. */
#define ASK_EXECUTES 1
#define ASK_LOADED 2
/* The longest path in a request; no request is sent for longer ones. */
#define ASK_PATH 1024
/* Responses: nothing to do; the plan now has the file, and must be reread. */
#define ANSWER_NOTHING 0
#define ANSWER_PLANNED 1

/* Record types, as FATHOM_KIND_* of the BPF programs. */
#define RECORD_PAD 0
#define RECORD_STATEMENT 1
#define RECORD_OP_BEGIN 2
#define RECORD_OP_END 3
/* Bit positions in a record's first word: the number of words, the type, the header's flags, the CPU, the thread. */
#define RECORD_KIND_SHIFT 10
#define RECORD_FLAGS_SHIFT 16
#define RECORD_CPU_SHIFT 20
#define RECORD_TID_SHIFT 32
/* Flag: the thread's statements wait between their rows, as FATHOM_HEADER_BETWEEN_ROWS. */
#define RECORD_BETWEEN_ROWS 2

/* The words of an end record, without and with SQLite's counters, and which bit of the first of these says which are known. */
#define OP_END_WORDS 8
#define COUNTED_END_WORDS 14
#define COUNTS 10
#define CACHE_COUNTS 4

/* The state of a library in a process. */
#define LIBRARY_UNSEEN 0
#define LIBRARY_HOOKED 1
#define LIBRARY_CHANGED 2 /* its code in memory differs from its file's: something else patched it */
#define LIBRARY_NO_ROOM 3 /* no memory near enough for a jump */
#define LIBRARY_FORBIDDEN 4 /* its code may not be changed */
#define LIBRARY_SHADOWED 5 /* the processor compares returns with a shadow stack */
#define LIBRARY_ACROSS 6 /* a jump would cross a page boundary and could not be written at once */

/* A process that was attached to while running: the jumps and mappings that are tracked. */
#define ATTACHED_MAGIC 0x3161686374416846UL
#define JUMPS 160
#define MAPPINGS 80
#define JUMP_BYTES 24
/* Size in bytes of a mapping that holds the code which jumps lead to. No other mapping has this size. */
#define ROOM 8192UL
/* A jump that belongs to no library: the one in the loader's function that reports what is loaded. */
#define NO_LIBRARY 0xffffffffU
/* The outcome of the attach; 0: none yet. */
#define ATTACH_DONE 1
#define ATTACH_UNFIT 2 /* a requirement on the kernel or the program is not met */
#define ATTACH_BUSY 3 /* the loader is at work */
#define ATTACH_NO_LIBC 4 /* the C library's functions cannot be hooked, so that a filter of system calls would not be noticed */
#define ATTACH_NO_ARENA 5
#define ATTACH_NO_MEMORY 6
#define ATTACH_FULL 7

/* Maximum number of call sites of all named functions, each with a stub of this size. Calls from further ones are only counted. */
#define STUBS 2048
#define STUB_SIZE 8

/*
 * A displacement within the trampoline that leads out of it: at `at`, relative to `end`, to the function's start plus `target`; or that
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
	u64 address; /* virtual address in the file */
	u8 kind;
	u8 stmt_arg; /* for a prepare: which arguments are ppStmt, the SQL and its length */
	u8 sql_arg;
	u8 length_arg;
	u8 utf16;
	u8 first; /* length of its first instruction, which stays in place */
	u8 moved; /* bytes up to the address that the trampoline returns to */
	u8 undo; /* how to undo the first instruction; see UNDO_UNIT */
	u8 code_size;
	u8 fixups;
	u16 key; /* for a named function: its index in the list */
	u8 shared; /* for a named function: a child of vfork may call it, on its parent's memory */
	u8 pad[3];
	u8 original[PLAN_ORIGINAL]; /* `moved` bytes of the function */
	u8 code[PLAN_CODE]; /* the trampoline, which is equivalent to `original` */
	struct plan_fixup fixup[PLAN_FIXUPS];
};

struct plan_library {
	u64 dev; /* as stat returns it */
	u64 ino;
	u32 functions;
	u16 text_at; /* offset of the pointer to its text in a statement, plus one */
	u16 running_at; /* offset of its running flag in a statement, plus one */
	u8 running;
	u8 counted; /* number of a statement's counters that this version has; 0: they are not read */
	u8 pad[6];
	/* Virtual addresses in the file of functions that read counters (counters.h); 0: not found. */
	u64 stmt_status;
	u64 db_handle;
	u64 db_status;
	u64 db_mutex;
	u64 mutex_try;
	u64 mutex_leave;
	struct plan_function function[PLAN_FUNCTIONS];
};

struct plan {
	u64 magic;
	u64 size;
	u64 pid_namespace; /* inodes of the recorder's namespaces: IDs and clocks of others would mislead */
	u64 time_namespace;
	u64 libraries;
	struct plan_library library[PLAN_LIBRARIES];
};

/* A request to the recorder. */
struct question {
	u64 dev; /* of the file, as stat returns it */
	u64 ino;
	u32 thread;
	u32 what;
	u8 path[ASK_PATH]; /* as the process names it; zero-terminated */
};

struct ring_control {
	u64 head; /* total words written */
	u64 tail; /* total words read; written by the recorder */
	u64 dropped;
	u64 state; /* of the thread: functions open << 48, statements open << 32, steps under way; the BPF programs read it */
	u64 function; /* stack slot of the innermost open function's return address */
	u64 stubs; /* address of the stubs that replace return addresses there */
	u64 operations; /* address of the thread's open executions */
	u32 owner; /* thread ID; 0: never used */
	u32 populated; /* words backed by memory */
};

struct arena {
	u64 magic;
	u64 size;
	u64 closed; /* set by the recorder: stop recording */
	u64 no_ring; /* calls of threads that found no ring */
	u32 tgid;
	u32 follows; /* whether libraries that are loaded later are noticed */
	u32 library[PLAN_LIBRARIES];
	u32 step_ns[PRICE_BATCHES]; /* cost of recording the steps of a batch; 0: not measured */
	u32 statement_ns[PRICE_BATCHES]; /* and of recording whole statements of one step */
	u8 pad[3912];
	struct ring_control ring[RINGS];
};

/* Changed code: at a function's start, its `first` original bytes, followed by the jump. */
struct jump {
	u64 at;
	u32 library; /* its index in the plan, or NO_LIBRARY */
	u8 first;
	u8 bytes; /* number of bytes in total; 0: unused entry */
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
	u64 pid; /* the process; 0: the object was loaded by the loader */
	u64 thread_at; /* offset from the thread pointer to the C library's copy of the thread ID */
	u64 outcome; /* written last */
	u64 arena;
	u64 preparing; /* calls in progress that the arena does not count */
	u64 untold; /* mappings there was no room to note: they stay mapped */
	u32 jumps;
	u32 mappings;
	struct mapping mapping[MAPPINGS];
	struct jump jump[JUMPS];
};

#define ARENA_SIZE (RINGS_AT + RINGS * RING_WORDS * 8UL)

_Static_assert(sizeof(struct plan_fixup) == 8, "layout");
_Static_assert(sizeof(struct plan_function) == 136, "layout");
_Static_assert(sizeof(struct plan_library) == 80 + 12 * 136, "layout");
_Static_assert(sizeof(struct plan) == 40 + 26 * 1712, "layout");
_Static_assert(sizeof(struct question) == 24 + ASK_PATH, "layout");
_Static_assert(sizeof(struct ring_control) == 64, "layout");
_Static_assert(sizeof(struct jump) == 64, "layout");
_Static_assert(sizeof(struct arena) == 4096 + 128 * 64 && sizeof(struct arena) <= RINGS_AT, "layout");

#endif
