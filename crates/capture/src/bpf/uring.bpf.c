/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * io_uring: a request is a call without a system call. It is submitted by a recorded task, or by the kernel's polling thread for
 * one, executed there or by a worker, and completed anywhere. Followed requests are stored by address (`urings`), with the time of
 * their submission, by which bios and writes refer to them (`identity_of`).
 */

/* include/uapi/linux/io_uring.h, enum io_uring_op. */
#define RING_READV 1
#define RING_WRITEV 2
#define RING_FSYNC 3
#define RING_READ_FIXED 4
#define RING_WRITE_FIXED 5
#define RING_SYNC_FILE_RANGE 8
#define RING_FALLOCATE 17
#define RING_OPENAT 18
#define RING_READ 22
#define RING_WRITE 23
#define RING_OPENAT2 28
#define RING_FTRUNCATE 55
#define RING_READV_FIXED 60
#define RING_WRITEV_FIXED 61

/* REQ_F_FIXED_FILE, which has the same position as the user's IOSQE_FIXED_FILE. */
#define RING_REGISTERED 1
/* Flag bits next to the address in the words of a table of registered files (FFS_MASK, IO_SLOT flags). */
#define RING_WORD_FLAGS 7UL

static __always_inline bool ring_transfers(u8 opcode)
{
	return opcode == RING_READV || opcode == RING_WRITEV || opcode == RING_READ_FIXED ||
	       opcode == RING_WRITE_FIXED || opcode == RING_READ || opcode == RING_WRITE ||
	       opcode == RING_READV_FIXED || opcode == RING_WRITEV_FIXED;
}

static __always_inline bool ring_wanted(u8 opcode)
{
	return ring_transfers(opcode) || opcode == RING_FSYNC || opcode == RING_SYNC_FILE_RANGE ||
	       opcode == RING_FALLOCATE || opcode == RING_FTRUNCATE;
}

/* The file with that index in a ring's table of registered files. */
static __always_inline struct file *registered_file(struct io_ring_ctx *ctx, u32 index)
{
	unsigned long word = 0;

	if (bpf_core_field_exists(((struct io_rsrc_data *)0)->nodes) &&
	    bpf_core_field_exists(((struct io_file_table *)0)->data)) {
		struct io_rsrc_node **nodes = BPF_CORE_READ(ctx, file_table.data.nodes);
		struct io_rsrc_node *node = NULL;

		if (index >= BPF_CORE_READ(ctx, file_table.data.nr))
			return NULL;
		bpf_probe_read_kernel(&node, sizeof(node), nodes + index);
		word = BPF_CORE_READ(node, file_ptr);
	} else if (bpf_core_field_exists(((struct io_file_table___array *)0)->files)) {
		u64 table = (u64)ctx + bpf_core_field_offset(struct io_ring_ctx, file_table);
		struct io_fixed_file *files = BPF_CORE_READ((struct io_file_table___array *)table, files);

		if (index >= BPF_CORE_READ(ctx, nr_user_files))
			return NULL;
		bpf_probe_read_kernel(&word, sizeof(word), files + index);
	}
	return (struct file *)(word & ~RING_WORD_FLAGS);
}

/* The file that a request refers to. The kernel looks it up only when the request is executed. */
static __always_inline struct file *ring_file(struct io_kiocb *req)
{
	u32 fd = BPF_CORE_READ(req, cqe.fd);

	if (!(BPF_CORE_READ(req, flags) & RING_REGISTERED))
		return file_of((void *)bpf_get_current_task_btf(), fd);
	return registered_file(BPF_CORE_READ(req, ctx), fd);
}

/* Names a file that a request opened, for its thread or into the ring's table. Workers have their process's descriptors. */
seldom void name_opened(struct io_kiocb *req, s64 result)
{
	u8 opcode = BPF_CORE_READ(req, opcode);
	struct file *file;
	u32 place = 0;

	if ((opcode != RING_OPENAT && opcode != RING_OPENAT2) || result < 0 || !slot_here())
		return;
	/* 1 more than the index in the table; above all indices if the kernel chooses one, which is then the result. */
	if (bpf_core_field_exists(((struct io_open *)0)->file_slot))
		place = BPF_CORE_READ((struct io_open *)req, file_slot);
	if (!place)
		file = file_of((void *)bpf_get_current_task_btf(), result);
	else
		file = registered_file(BPF_CORE_READ(req, ctx), place == ~0U ? result : place - 1);
	if (!file)
		return;
	emit_file(file, opened_as(file), bpf_ktime_get_boot_ns());
	forget_below(file);
}

static __always_inline int uring_submitted(struct io_kiocb *req)
{
	struct slot *slot = slot_here();
	struct who who = whoami_between(slot);
	struct ring_request own = {};
	struct fathom_uring *r;
	struct file_id id = {};
	struct file *file;
	u64 key = (u64)req;
	u8 opcode;
	u16 type;

	if (!slot)
		return 0;
	slot->ring_ns = 0;
	opcode = BPF_CORE_READ(req, opcode);
	if (!ring_wanted(opcode))
		return 0;
	file = ring_file(req);
	if (file) {
		id = identify(BPF_CORE_READ(file, f_inode));
		type = id.mode & S_IFMT;
		if (type != S_IFREG && type != S_IFBLK)
			return 0;
		if (BPF_CORE_READ(file, f_flags) & open_direct)
			who.flags |= FATHOM_HEADER_DIRECT;
	}
	own.start_ns = bpf_ktime_get_boot_ns();
	own.tgid = who.tgid;
	own.tid = who.tid;
	bpf_map_update_elem(&urings, &key, &own, BPF_ANY);
	slot->ring_req = key;
	slot->ring_ns = own.start_ns;
	slot->ring_open++;
	if (slot->ring_enter_ns && !slot->call)
		enter_ring(slot);
	if (!slot->ring_enter_ns)
		who.flags |= FATHOM_HEADER_POLLING;
	r = RESERVE(uring, URING, own.start_ns, who);
	if (!r)
		return 0;
	r->req = key;
	r->ino = id.ino;
	r->pos = -1;
	r->bytes = 0;
	/* An operation's own data is at the start of the request (io_kiocb_to_cmd). */
	if (ring_transfers(opcode)) {
		r->pos = BPF_CORE_READ((struct io_rw *)req, kiocb.ki_pos);
		r->bytes = BPF_CORE_READ((struct io_rw *)req, len);
	} else {
		r->bytes = (u32)BPF_CORE_READ((struct io_sync *)req, flags);
	}
	r->result = 0;
	r->dev = id.dev;
	r->opcode = opcode;
	r->phase = 0;
	submit(r);
	return 0;
}

static __always_inline int uring_completed(u64 address, s64 result)
{
	struct ring_request *known = bpf_map_lookup_elem(&urings, &address);
	struct io_kiocb *req = (struct io_kiocb *)address;
	struct who who = no_task();
	struct fathom_uring *r;
	struct file_id id = {};
	struct slot *slot;
	struct file *file;
	u64 start_ns;
	u32 tid;

	if (!known) {
		name_opened(req, result);
		return 0;
	}
	tid = known->tid;
	start_ns = known->start_ns;
	bpf_map_delete_elem(&urings, &address);
	slot = slot_of(tid);
	if (slot) {
		if (slot->ring_open)
			__sync_fetch_and_add(&slot->ring_open, -1);
		if (slot->ring_ns == start_ns)
			slot->ring_ns = 0;
	}
	/* By now the file is known in any case. */
	file = BPF_CORE_READ(req, file);
	if (file) {
		id = identify(BPF_CORE_READ(file, f_inode));
		if (BPF_CORE_READ(file, f_flags) & open_direct)
			who.flags |= FATHOM_HEADER_DIRECT;
	}
	r = RESERVE(uring, URING, bpf_ktime_get_boot_ns(), who);
	if (!r)
		return 0;
	r->req = address;
	r->ino = id.ino;
	r->dev = id.dev;
	r->opcode = BPF_CORE_READ(req, opcode);
	r->pos = -1;
	r->bytes = 0;
	if (ring_transfers(r->opcode)) {
		/* Advanced by the bytes transferred. */
		r->pos = BPF_CORE_READ((struct io_rw *)req, kiocb.ki_pos);
		if (result > 0)
			r->pos -= result;
	}
	r->result = result;
	r->phase = 1;
	submit(r);
	return 0;
}

SEC("raw_tp/io_uring_submit_req")
int PROBE(uring_submit, struct io_kiocb *req)
{
	return uring_submitted(req);
}

/* Its older name (v6.1). */
SEC("raw_tp/io_uring_submit_sqe")
int PROBE(uring_submit_old, struct io_kiocb *req)
{
	return uring_submitted(req);
}

/* The result was formerly an argument, and is in the completion entry now. The wrong one of the two is refused at load. */
SEC("tp_btf/io_uring_complete")
int PROBE(uring_complete, void *ring_ctx, void *req, struct io_uring_cqe *cqe)
{
	return uring_completed((u64)req, cqe->res);
}

SEC("tp_btf/io_uring_complete")
int PROBE(uring_complete_old, void *ring_ctx, void *req, u64 user_data, int result)
{
	return uring_completed((u64)req, result);
}
