/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * The kernel's fields that Fathom reads, and nothing else. Each struct is matched by name with the running kernel's when the object
 * is loaded (CO-RE), so order and gaps here mean nothing. Written by hand instead of dumped from one kernel's BTF: the list is
 * everything that a new kernel can break, and does not depend on the build machine's kernel.
 *
 * A name ending in ___x is a variant: the loader drops the suffix when it matches.
 */
#ifndef FATHOM_KERNEL_H
#define FATHOM_KERNEL_H

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u16 __le16;
typedef __u32 __le32;
typedef __u64 __le64;
typedef __u16 __sum16;
typedef __u32 __wsum;
typedef _Bool bool;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;

/*
 * For rare paths: kept out of the program's main path, so that the main path occupies few lines of the processor's caches. Most
 * runs of a program find these cold.
 */
#define seldom static __attribute__((noinline))

/* The same within a program. */
#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define true 1
#define false 0
#define NULL ((void *)0)

/* From the kernel's user-space ABI, which does not change. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PROG_ARRAY = 3,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	BPF_F_MMAPABLE = 1 << 10,
};
#define S_IFMT 0170000
#define S_IFIFO 0010000
#define S_IFDIR 0040000
#define S_IFREG 0100000
#define S_IFBLK 0060000
#define S_IFSOCK 0140000
/* In a file's f_mode: its open created the inode (linux/fs.h). */
#define FMODE_CREATED 0x100000
#define PF_KTHREAD 0x00200000
#define PF_IO_WORKER 0x00000010
#define CLONE_THREAD 0x00010000
#define PROT_EXEC 4

/* The compiler emits struct pt_regs of the traced machine; bpf_tracing.h uses the kernel's names for it. */
#define __VMLINUX_H__
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip;
	unsigned long cs, flags, sp, ss;
} __attribute__((preserve_access_index));
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp, pc, pstate;
} __attribute__((preserve_access_index));
struct pt_regs {
	union {
		struct user_pt_regs user_regs;
		struct {
			__u64 regs[31];
			__u64 sp, pc, pstate;
		};
	};
	__u64 orig_x0;
	__s32 syscallno;
} __attribute__((preserve_access_index));
#else
#error "Fathom knows the registers of x86-64 and arm64 only"
#endif

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

/* libbpf before v1.2 defines only the first five. */
#ifndef PT_REGS_PARM6
#if defined(__TARGET_ARCH_x86)
#define PT_REGS_PARM6(x) ((x)->r9)
#else
#define PT_REGS_PARM6(x) (((const struct user_pt_regs *)(x))->regs[5])
#endif
#endif

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct list_head {
	struct list_head *next;
};

struct qstr {
	u32 len;
	const unsigned char *name;
};

struct super_block {
	u32 s_dev;
	unsigned long s_magic;
	void *s_fs_info;
};

struct inode {
	u16 i_mode;
	struct super_block *i_sb;
	unsigned long i_ino;
	u32 i_rdev;
	u32 i_nlink;
	struct file_lock_context *i_flctx;
};

struct file_lock_context {
	struct list_head flc_flock;
	struct list_head flc_posix;
};

struct file_lock {
	struct list_head fl_list;
	void *fl_owner;
	unsigned int fl_flags;
	unsigned char fl_type;
	unsigned int fl_pid;
	s64 fl_start;
	s64 fl_end;
};
/* Since 6.9. */
struct file_lock_core {
	struct list_head flc_list;
	void *flc_owner;
	unsigned int flc_flags;
	unsigned char flc_type;
	s32 flc_pid;
};
struct file_lock___core {
	struct file_lock_core c;
};

struct lockref {
	int count;
};

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
	struct inode *d_inode;
	struct lockref d_lockref;
};

struct vfsmount {
	struct dentry *mnt_root;
};

struct mount {
	struct mount *mnt_parent;
	struct dentry *mnt_mountpoint;
	struct vfsmount mnt;
};

struct path {
	struct vfsmount *mnt;
	struct dentry *dentry;
};

struct file {
	struct inode *f_inode;
	unsigned int f_flags;
	unsigned int f_mode;
	struct path f_path;
	s64 f_pos;
};

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};

/* A process with few files keeps them in the struct itself: fdt then points to fdtab, whose fd is fd_array. */
struct files_struct {
	struct fdtable *fdt;
	struct fdtable fdtab;
	struct file *fd_array[64];
};

struct fs_struct {
	struct path root;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct cfs_rq {
	u64 throttled_clock_pelt_time; /* 5.19 and later, with CONFIG_CFS_BANDWIDTH */
};

struct sched_entity {
	struct cfs_rq *cfs_rq; /* with CONFIG_FAIR_GROUP_SCHED */
};

/* With CONFIG_UPROBES. */
struct return_instance {
	unsigned long stack;
	unsigned long orig_ret_vaddr;
	struct return_instance *next;
};
struct uprobe_task {
	struct return_instance *return_instances;
};

struct thread_info {
	u32 status; /* x86 only */
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	s32 pid;
	s32 tgid;
	struct pid *thread_pid;
	void *worker_private;
	struct task_struct *real_parent;
	struct task_struct *group_leader;
	char comm[16];
	struct fs_struct *fs;
	struct files_struct *files;
	struct sched_entity se;
	struct uprobe_task *utask;
};

/* Before "sched: Change task_struct::state". */
struct task_struct___long_state {
	long state;
};

struct linux_binprm {
	struct file *file;
};

struct address_space {
	struct inode *host;
};

struct page {
	unsigned long compound_head;
	struct address_space *mapping;
};

/* Renamed by "mm: Rename page->index to page->__folio_index". */
struct page___new_index {
	unsigned long __folio_index;
};
struct page___old_index {
	unsigned long index;
};

struct folio {
	struct address_space *mapping;
	unsigned long index;
};

/* A folio's first word: a plain long on older kernels, wrapped in a struct on newer ones. */
struct folio___plain {
	unsigned long flags;
};
typedef struct {
	unsigned long f;
} memdesc_flags_t;
struct folio___wrapped {
	memdesc_flags_t flags;
};
/* The number of a large folio's pages, by its older and its newer name. */
struct folio___old_count {
	unsigned int _folio_nr_pages;
};
struct folio___new_count {
	unsigned int _nr_pages;
};

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_len;
	unsigned int bv_offset;
};

struct bvec_iter {
	u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
};

struct block_device_operations {
	void *submit_bio;
};

struct gendisk {
	int major;
	int first_minor;
	const struct block_device_operations *fops;
};

struct block_device {
	struct gendisk *bd_disk;
	u32 bd_dev;
};

struct bio {
	struct bio *bi_next;
	struct block_device *bi_bdev;
	u32 bi_opf;
	u8 bi_status;
	struct bvec_iter bi_iter;
	void *bi_end_io;
	void *bi_private;
	u16 bi_vcnt;
	struct bio_vec *bi_io_vec;
};

struct buffer_head {
	void *b_end_io;
};

struct request_queue {
	struct gendisk *disk;
	void *queuedata;
};

struct blk_flush_queue {
	unsigned int flush_pending_idx : 1;
	unsigned int flush_running_idx : 1;
	struct list_head flush_queue[2];
	struct request *flush_rq;
};

struct blk_mq_hw_ctx {
	struct blk_flush_queue *fq;
	unsigned int queue_num;
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	u32 cmd_flags;
	u32 rq_flags;
	unsigned int __data_len;
	u64 __sector;
	struct bio *bio;
	struct bio *biotail;
	struct list_head queuelist;
	u64 start_time_ns;
	struct {
		unsigned int seq;
	} flush;
};
/* The waiters of a flush were on a separate list until "blk-flush: reuse rq queuelist in flush state machine". */
struct request___own_list {
	struct {
		struct list_head list;
	} flush;
};

/* These two are in a module's BTF if jbd2 is a module. */
struct journal_s {
	struct block_device *j_fs_dev;
};
struct transaction_s {
	u32 t_tid;
};

/* These are in the device mapper's and its crypt target's BTF. */
struct dm_io {
	struct bio *orig_bio;
};
struct dm_target_io {
	struct dm_io *io;
	struct bio clone;
};
struct dm_crypt_io {
	struct bio *base_bio;
};

/* These are in the BTF of the SCSI core if it is a module. */
struct scsi_data_buffer {
	unsigned int length;
};
struct Scsi_Host {
	unsigned int host_no;
};

struct scsi_cmnd {
	unsigned short cmd_len;
	unsigned char cmnd[32];
	struct scsi_data_buffer sdb;
	unsigned char *sense_buffer;
	int result;
};
struct scsi_cmnd___pointer {
	unsigned char *cmnd;
};

/* This is in the BTF of NVMe's core. */
struct nvme_request {
	u16 status;
};

/* These are in the BTF of MMC's core if it is a module. */
struct mmc_command {
	u32 opcode;
	u32 arg;
	u32 resp[4];
	int error;
};
struct mmc_data {
	unsigned int blksz;
	unsigned int blocks;
	unsigned int blk_addr;
	int error;
	unsigned int flags;
};
struct mmc_request {
	struct mmc_command *sbc;
	struct mmc_command *cmd;
	struct mmc_data *data;
	struct mmc_command *stop;
	int tag;
};

struct kiocb {
	struct file *ki_filp;
	s64 ki_pos;
};
struct iov_iter {
	unsigned long count;
};
struct io_rw {
	struct kiocb kiocb;
	u32 len;
};
struct io_sync {
	struct file *file;
	s64 len;
	s64 off;
	int flags;
};
struct io_open {
	struct file *file;
	u32 file_slot;
};
struct io_cqe {
	int fd;
};
struct io_wq_work {
	u32 flags;
};
struct io_worker {
	struct io_wq_work *cur_work;
};
/* Registered files: an array of words each, or of pointers to nodes. The low bits are flags. */
struct io_fixed_file {
	unsigned long file_ptr;
};
struct io_rsrc_node {
	unsigned long file_ptr;
};
struct io_rsrc_data {
	unsigned int nr;
	struct io_rsrc_node **nodes;
};
struct io_file_table {
	struct io_rsrc_data data;
};
struct io_file_table___array {
	struct io_fixed_file *files;
};
struct io_ring_ctx {
	struct io_file_table file_table;
	unsigned int nr_user_files;
};
struct io_kiocb {
	struct file *file;
	u8 opcode;
	unsigned int flags;
	struct io_cqe cqe;
	struct io_ring_ctx *ctx;
	struct io_wq_work work;
};
struct io_uring_cqe {
	s32 res;
};

#pragma clang attribute pop

enum req_flag_bits {
	__REQ_SYNC = 11,
	__REQ_META = 12,
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
	__REQ_RAHEAD = 19,
	__REQ_BACKGROUND = 20,
};
/* An enumeration since "block: Use enum to define RQF_x bit indexes"; numbers before (see rq_flags). */
enum rqf_flags {
	__RQF_FLUSH_SEQ = 1,
	__RQF_IO_STAT = 8,
};
enum pageflags {
	PG_head = 6,
};

#endif
