/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * io_uring: a request is a call without a system call of its own. Submitted by a recorded task; completed anywhere, so
 * that those followed are remembered by address (the one map keyed by a request, as io_uring's completions name no task).
 */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, u64);
	__type(value, u32);
} urings SEC(".maps");

static __always_inline int uring_submitted(struct io_kiocb *req)
{
	struct slot *slot = slot_of((u32)bpf_get_current_pid_tgid());
	struct fathom_uring *r;
	struct file_id id = {};
	struct file *file;
	u64 key = (u64)req;
	u16 type;

	if (!slot)
		return 0;
	file = BPF_CORE_READ(req, file);
	if (!file)
		return 0;
	id = identify(BPF_CORE_READ(file, f_inode));
	type = id.mode & S_IFMT;
	if (type != S_IFREG && type != S_IFBLK)
		return 0;
	bpf_map_update_elem(&urings, &key, &slot->tgid, BPF_ANY);
	r = RESERVE(uring, URING, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->req = key;
	r->ino = id.ino;
	/* A read's or write's own data lies where the request begins (io_kiocb_to_cmd). */
	r->pos = BPF_CORE_READ((struct io_rw *)req, kiocb.ki_pos);
	r->bytes = BPF_CORE_READ((struct io_rw *)req, len);
	r->result = 0;
	r->dev = id.dev;
	r->opcode = BPF_CORE_READ(req, opcode);
	r->phase = 0;
	submit(r);
	return 0;
}

static __always_inline int uring_completed(u64 req, s64 result)
{
	struct fathom_uring *r;

	if (bpf_map_delete_elem(&urings, &req))
		return 0;
	r = RESERVE(uring, URING, bpf_ktime_get_boot_ns(), nobody());
	if (!r)
		return 0;
	__builtin_memset((void *)r + sizeof(r->h), 0, sizeof(*r) - sizeof(r->h));
	r->req = req;
	r->result = result;
	r->phase = 1;
	submit(r);
	return 0;
}

SEC("raw_tp/io_uring_submit_req")
int BPF_PROG(uring_submit, struct io_kiocb *req)
{
	return uring_submitted(req);
}

/* Its older name (v6.1). */
SEC("raw_tp/io_uring_submit_sqe")
int BPF_PROG(uring_submit_old, struct io_kiocb *req)
{
	return uring_submitted(req);
}

/* The result was an argument once and is in the completion entry now. The wrong one of the two is refused at load. */
SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete, void *ring_ctx, void *req, struct io_uring_cqe *cqe)
{
	return uring_completed((u64)req, cqe->res);
}

SEC("tp_btf/io_uring_complete")
int BPF_PROG(uring_complete_old, void *ring_ctx, void *req, u64 user_data, int result)
{
	return uring_completed((u64)req, result);
}
