/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * What drivers send to their devices: commands of the device's protocol, each for a request of the block layer.
 *
 * A driver of blk-mq keeps its part of a request right after it (blk_mq_rq_to_pdu), so the request's address follows from the
 * command's, without reading a field. Commands that are not for a request of a disk (an ioctl's INQUIRY, say) have a request too.
 */

static __always_inline u64 rq_of_payload(u64 payload)
{
	return payload - bpf_core_type_size(struct request);
}

static __always_inline u32 disk_of_rq(u64 rq)
{
	struct gendisk *disk = BPF_CORE_READ((struct request *)rq, q, disk);

	return disk ? BPF_CORE_READ(disk, major) << 20 | BPF_CORE_READ(disk, first_minor) : 0;
}

static __always_inline u32 disk_of_payload(u64 payload)
{
	return disk_of_rq(rq_of_payload(payload));
}

/* SAM_STAT_CHECK_CONDITION: the device reports details in the sense data. */
#define SCSI_CHECK_CONDITION 2
/* Number of bytes of the sense data that matter, in either of its two forms (SPC-4, 4.5). */
#define SENSE_READ 16

SEC("raw_tp/scsi_dispatch_cmd_start")
int PROBE(scsi_begin, struct scsi_cmnd *cmd)
{
	struct fathom_driver_begin *r;
	u64 block[2] = {};
	u64 at;

	if (!bpf_core_type_exists(struct scsi_cmnd))
		return 0;
	/* An array in the command, a pointer before "scsi: core: Remove the cmd field from struct scsi_request" (5.18). */
	if (bpf_core_field_exists(struct scsi_cmnd___pointer, cmnd))
		at = (u64)BPF_CORE_READ((struct scsi_cmnd___pointer *)cmd, cmnd);
	else
		at = (u64)cmd + bpf_core_field_offset(struct scsi_cmnd, cmnd);
	bpf_probe_read_kernel(block, sizeof(block), (void *)at);
	r = RESERVE(driver_begin, DRIVER_BEGIN, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->command = (u64)cmd;
	r->rq = rq_of_payload((u64)cmd);
	((u64 *)r->raw)[0] = block[0];
	((u64 *)r->raw)[1] = block[1];
	r->bytes = BPF_CORE_READ(cmd, sdb.length);
	r->disk = disk_of_payload((u64)cmd);
	r->protocol = FATHOM_PROTOCOL_SCSI;
	r->code = BPF_CORE_READ(cmd, cmd_len);
	r->queue = 0;
	r->pad = 0;
	submit(r);
	return 0;
}

static __always_inline int scsi_end(struct scsi_cmnd *cmd, u16 what)
{
	struct fathom_driver_end *r;
	u8 sense[SENSE_READ] = {};
	u32 result, reported = 0;

	if (!bpf_core_type_exists(struct scsi_cmnd))
		return 0;
	result = BPF_CORE_READ(cmd, result);
	if (what == FATHOM_DRIVER_ENDED && (result & 0xff) == SCSI_CHECK_CONDITION) {
		bpf_probe_read_kernel(sense, sizeof(sense), BPF_CORE_READ(cmd, sense_buffer));
		/* Key, code and qualifier: of the descriptor form, else of the fixed form. */
		if ((sense[0] & 0x7f) >= 0x72)
			reported = (sense[1] & 0xf) | sense[2] << 8 | sense[3] << 16;
		else
			reported = (sense[2] & 0xf) | sense[12] << 8 | sense[13] << 16;
	}
	r = RESERVE(driver_end, DRIVER_END, bpf_ktime_get_boot_ns(), no_task());
	if (!r)
		return 0;
	r->command = (u64)cmd;
	r->result = result;
	r->what = what;
	r->protocol = FATHOM_PROTOCOL_SCSI;
	*(u32 *)r->sense = reported;
	r->answer = 0;
	submit(r);
	return 0;
}

SEC("raw_tp/scsi_dispatch_cmd_done")
int PROBE(scsi_done, struct scsi_cmnd *cmd)
{
	return scsi_end(cmd, FATHOM_DRIVER_ENDED);
}

SEC("raw_tp/scsi_dispatch_cmd_timeout")
int PROBE(scsi_timeout, struct scsi_cmnd *cmd)
{
	return scsi_end(cmd, FATHOM_DRIVER_TIMED_OUT);
}

SEC("raw_tp/scsi_dispatch_cmd_error")
int PROBE(scsi_refused, struct scsi_cmnd *cmd)
{
	return scsi_end(cmd, FATHOM_DRIVER_REFUSED);
}

/* The host's failed commands could not be aborted: its thread recovers it, up to a reset. */
SEC("raw_tp/scsi_eh_wakeup")
int PROBE(scsi_handler, struct Scsi_Host *host)
{
	struct fathom_driver_begin *r;

	if (!bpf_core_type_exists(struct Scsi_Host))
		return 0;
	r = RESERVE(driver_begin, DRIVER_BEGIN, bpf_ktime_get_boot_ns(), no_task());
	if (!r)
		return 0;
	r->command = (u64)host;
	r->rq = 0;
	((u64 *)r->raw)[0] = BPF_CORE_READ(host, host_no);
	((u64 *)r->raw)[1] = 0;
	r->bytes = 0;
	r->disk = 0;
	r->protocol = FATHOM_PROTOCOL_SCSI;
	r->code = FATHOM_SCSI_ERROR_HANDLER;
	r->queue = 0;
	r->pad = 0;
	submit(r);
	return 0;
}

/* Offsets of the operation code and dword 10 in an NVMe command (include/linux/nvme.h, struct nvme_rw_command). */
#define NVME_CODE 0
#define NVME_DWORD_10 40

/* Fires before block_rq_issue: the command is built first. */
SEC("raw_tp/nvme_setup_cmd")
int PROBE(nvme_begin, struct request *rq, u64 cmd)
{
	struct fathom_driver_begin *r;
	u64 dwords[2] = {};
	u8 code = 0;

	bpf_probe_read_kernel(&code, sizeof(code), (void *)(cmd + NVME_CODE));
	bpf_probe_read_kernel(dwords, sizeof(dwords), (void *)(cmd + NVME_DWORD_10));
	r = RESERVE(driver_begin, DRIVER_BEGIN, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->command = (u64)rq;
	r->rq = (u64)rq;
	((u64 *)r->raw)[0] = dwords[0];
	((u64 *)r->raw)[1] = dwords[1];
	r->bytes = BPF_CORE_READ(rq, __data_len);
	r->disk = disk_of_rq((u64)rq);
	r->protocol = FATHOM_PROTOCOL_NVME;
	r->code = code;
	/* As in nvme_req_qid: the admin queue belongs to no namespace. */
	r->queue = BPF_CORE_READ(rq, q, queuedata) ? BPF_CORE_READ(rq, mq_hctx, queue_num) + 1 : 0;
	r->pad = 0;
	submit(r);
	return 0;
}

SEC("raw_tp/nvme_complete_rq")
int PROBE(nvme_end, struct request *rq)
{
	struct fathom_driver_end *r;
	u32 status;

	if (!bpf_core_type_exists(struct nvme_request))
		return 0;
	status = BPF_CORE_READ((struct nvme_request *)((u64)rq + bpf_core_type_size(struct request)), status);
	r = RESERVE(driver_end, DRIVER_END, bpf_ktime_get_boot_ns(), no_task());
	if (!r)
		return 0;
	r->command = (u64)rq;
	r->result = status;
	r->what = FATHOM_DRIVER_ENDED;
	r->protocol = FATHOM_PROTOCOL_NVME;
	*(u32 *)r->sense = 0;
	r->answer = 0;
	submit(r);
	return 0;
}

/* MMC_DATA_WRITE (include/linux/mmc/core.h). */
#define MMC_WRITES (1 << 8)

/*
 * The block driver's own mmc_request is at the start of its part of the request (struct mmc_queue_req, mmc_blk_request; since "mmc:
 * block: Add blk-mq support", 4.16). Any other is on a stack of the core, and its address does not follow a request.
 */
SEC("raw_tp/mmc_request_start")
int PROBE(mmc_begin, u64 host, struct mmc_request *mrq)
{
	struct fathom_driver_begin *r;
	struct mmc_command *cmd;
	struct mmc_data *data;
	u32 blocks = 0, size = 0, what = 0;

	if (!bpf_core_type_exists(struct mmc_request))
		return 0;
	cmd = BPF_CORE_READ(mrq, cmd);
	data = BPF_CORE_READ(mrq, data);
	if (data) {
		blocks = BPF_CORE_READ(data, blocks);
		size = BPF_CORE_READ(data, blksz);
		what = FATHOM_MMC_DATA;
		if (BPF_CORE_READ(data, flags) & MMC_WRITES)
			what |= FATHOM_MMC_WRITES;
	}
	/* A task of a command queue engine: the engine creates the commands. */
	if (!cmd)
		what |= FATHOM_MMC_TASK;
	r = RESERVE(driver_begin, DRIVER_BEGIN, bpf_ktime_get_boot_ns(), whoami());
	if (!r)
		return 0;
	r->command = (u64)mrq;
	r->rq = rq_of_payload((u64)mrq);
	((u32 *)r->raw)[0] = cmd ? BPF_CORE_READ(cmd, arg) : 0;
	((u32 *)r->raw)[1] = data ? BPF_CORE_READ(data, blk_addr) : 0;
	((u32 *)r->raw)[2] = blocks;
	((u32 *)r->raw)[3] = what;
	r->bytes = blocks * size;
	r->disk = 0;
	r->protocol = FATHOM_PROTOCOL_MMC;
	r->code = cmd ? BPF_CORE_READ(cmd, opcode) : BPF_CORE_READ(mrq, tag);
	r->queue = 0;
	r->pad = 0;
	submit(r);
	return 0;
}

SEC("raw_tp/mmc_request_done")
int PROBE(mmc_end, u64 host, struct mmc_request *mrq)
{
	struct fathom_driver_end *r;
	struct mmc_command *cmd;
	struct mmc_data *data;
	u32 part = FATHOM_MMC_PART_COUNT, answer = 0;
	int error;

	if (!bpf_core_type_exists(struct mmc_request))
		return 0;
	/* In the order in which they are sent; the first failure is reported. */
	cmd = BPF_CORE_READ(mrq, sbc);
	error = cmd ? BPF_CORE_READ(cmd, error) : 0;
	if (!error) {
		part = FATHOM_MMC_PART_COMMAND;
		cmd = BPF_CORE_READ(mrq, cmd);
		error = cmd ? BPF_CORE_READ(cmd, error) : 0;
	}
	if (!error) {
		part = FATHOM_MMC_PART_DATA;
		data = BPF_CORE_READ(mrq, data);
		error = data ? BPF_CORE_READ(data, error) : 0;
	}
	if (!error) {
		part = FATHOM_MMC_PART_STOP;
		cmd = BPF_CORE_READ(mrq, stop);
		error = cmd ? BPF_CORE_READ(cmd, error) : 0;
	}
	/* The first of the response's four words: in CMD12's, data beyond the card's end was not requested. */
	cmd = BPF_CORE_READ(mrq, cmd);
	if (cmd)
		answer = BPF_CORE_READ(cmd, resp[0]);
	cmd = BPF_CORE_READ(mrq, stop);
	if (cmd)
		answer |= BPF_CORE_READ(cmd, resp[0]) & ~FATHOM_MMC_OUT_OF_RANGE;
	r = RESERVE(driver_end, DRIVER_END, bpf_ktime_get_boot_ns(), no_task());
	if (!r)
		return 0;
	r->command = (u64)mrq;
	r->result = error;
	r->what = FATHOM_DRIVER_ENDED;
	r->protocol = FATHOM_PROTOCOL_MMC;
	*(u32 *)r->sense = error ? part : 0;
	r->answer = answer;
	submit(r);
	return 0;
}
