/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The six most frequent records of an INSERT, in fewer bytes than in events.h. ../unpack.rs restores those, word by word; a change
 * here needs one there.
 *
 * A kernel address and a sector leave a word's last byte free (a disk has at most 2^63 bytes, and all addresses have the same value
 * there), so small fields are stored in it.
 */
#ifndef FATHOM_PACKED_H
#define FATHOM_PACKED_H

/* Kinds of records; those of events.h are lower. */
enum packed {
	PACKED_SYSCALL = 41,
	PACKED_OFF_CPU,
	PACKED_BIO_QUEUE,
	PACKED_RQ_ISSUE,
	PACKED_FLUSH_ISSUE,
	PACKED_RQ_DONE,
};

/*
 * PACKED_SYSCALL, with its context. Calls that do not fit are emitted as FATHOM_KIND_SYSCALL.
 *   0: ns that it took; ns from its begin to the file system's, plus one (0: not seen)
 *   1: inode
 *   2: file system; descriptor (16 bits); call (8); fs_writes (8)
 *   3: result (signed); bytes requested less the result (modulo 2^32)
 *   4: position, plus one
 *   5: transaction; handles (16 bits); cache_added (16)
 *
 * PACKED_OFF_CPU, with its context.
 *   0: when it left, times four, plus its state
 *   1: when it was woken
 *   2: thread that woke it
 *   3: that thread's process; what it slept for
 *   4: how long its CPU queue was without its cgroups' time, at most
 *
 * PACKED_BIO_QUEUE, with its context.
 *   0: bio; flags in the last byte
 *   1: sector; operation (3 bits) and end (3) in the last byte
 *   2: bytes; disk
 *   3: first page's index, times 4096, plus the low bits of the count of pages (0: no file)
 *   4: file system, exclusive or the disk; the high bits of the count
 *   5: inode, exclusive or the file system (the same for a block device's own pages)
 *   6: the call's begin
 *
 * PACKED_RQ_ISSUE
 *   0: request; flags in the last byte
 *   1: sector; operation in the last byte
 *   2: bytes; disk
 *   3: when it was created
 *   4 to 15: the bios; in the last bytes of the first two the number of further ones, low byte first
 *
 * PACKED_FLUSH_ISSUE
 *   0: request; number of waiters in the last byte
 *   1 to 4: the bios; what is waited for in the last byte
 *
 * PACKED_RQ_DONE
 *   0: request; flags in the last byte
 *   1: sector; operation (7 bits) and whether it was the last part in the last byte
 *   2: bytes; disk
 *   3: error (signed)
 */

static __always_inline u64 two_words(u32 low, u32 high)
{
	return (u64)high << 32 | low;
}

/* A word whose last byte holds something else. In two stores, since the verifier does not allow shifting an address. */
static __always_inline void put_with_byte(u64 *at, u64 value, u8 byte)
{
	*(volatile u64 *)at = value;
	((volatile u8 *)at)[7] = byte;
}

#endif
