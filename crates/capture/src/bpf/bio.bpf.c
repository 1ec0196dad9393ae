/* SPDX-License-Identifier: Apache-2.0 OR MIT */
/*
 * Bios of all tasks: every command of a disk must be accounted for. A bio carries the pages of some inode, which ties delayed
 * writes to the tasks that dirtied them, and the call its thread was in.
 */

static __always_inline u8 disk_op(u32 opf)
{
	/* enum req_op; its numbers are the same on every kernel that has BTF. */
	switch (opf & 0xff) {
	case 0:
		return FATHOM_OP_READ;
	case 1:
	case 7: /* zone append */
		return FATHOM_OP_WRITE;
	case 2:
		return FATHOM_OP_FLUSH;
	case 3:
	case 5: /* secure erase */
		return FATHOM_OP_DISCARD;
	case 9:
		return FATHOM_OP_WRITE_ZEROES;
	case 34:
	case 35:
		return FATHOM_OP_DRIVER;
	default:
		return FATHOM_OP_OTHER;
	}
}

#define REQ_BIT(name) (1U << bpf_core_enum_value(enum req_flag_bits, name))

static __always_inline u16 op_flags(u32 opf)
{
	u16 flags = 0;

	if (opf & REQ_BIT(__REQ_SYNC))
		flags |= FATHOM_BIO_SYNC;
	if (opf & REQ_BIT(__REQ_META))
		flags |= FATHOM_BIO_META;
	if (opf & REQ_BIT(__REQ_PREFLUSH))
		flags |= FATHOM_BIO_PREFLUSH;
	if (opf & REQ_BIT(__REQ_FUA))
		flags |= FATHOM_BIO_FUA;
	if (opf & REQ_BIT(__REQ_RAHEAD))
		flags |= FATHOM_BIO_READ_AHEAD;
	if (opf & REQ_BIT(__REQ_BACKGROUND))
		flags |= FATHOM_BIO_BACKGROUND;
	return flags;
}

/* The kernel's dev_t of a disk: major << 20 | minor. */
static __always_inline u32 disk_number(struct gendisk *disk)
{
	return disk->major << 20 | disk->first_minor;
}

static __always_inline u32 bio_disk(struct bio *bio)
{
	return disk_number(bio->bi_bdev->bd_disk);
}

/* blk_status_t (block/blk-core.c, blk_errors) as an error number; the rare ones become EIO. */
static __always_inline s32 status_error(u32 status)
{
	/* Older kernels store an error number. */
	if ((s32)status <= 0)
		return status;
	switch (status) {
	case 1:
		return -95; /* EOPNOTSUPP */
	case 2:
		return -110; /* ETIMEDOUT */
	case 3:
		return -28; /* ENOSPC */
	case 7:
		return -61; /* ENODATA: a medium error */
	case 9:
		return -12; /* ENOMEM */
	default:
		return -5; /* EIO */
	}
}

static __always_inline u8 bio_end(void *function)
{
	int i;

#pragma unroll
	for (i = 0; i < END_FUNCTIONS; i++) {
		if ((u64)function == end_functions[i])
			return end_classes[i];
	}
	return FATHOM_END_UNKNOWN;
}

/* What kind of bio it is. The blocks of ext4's fast commits are buffer heads like its other metadata, with an end of their own. */
static __always_inline u8 kind_of(struct bio *bio, u8 op)
{
	u8 end = bio_end(bio->bi_end_io);

	if (end != FATHOM_END_BUFFER_HEAD || op != FATHOM_OP_WRITE || !log_block_end)
		return end;
	if ((u64)BPF_CORE_READ((struct buffer_head *)bio->bi_private, b_end_io) == log_block_end)
		return FATHOM_END_LOG;
	return end;
}

/*
 * Pages of file systems in memory (uapi/linux/magic.h: tmpfs, hugetlbfs, ramfs) are no page cache of a disk: a bio that carries them
 * is direct I/O from shared memory.
 */
static __always_inline bool only_in_memory(unsigned long magic)
{
	return magic == 0x01021994 || magic == 0x958458f6 || magic == 0x858458f6;
}

/* A range of consecutive pages of one inode. */
struct run {
	u64 mapping; /* address; 0: pages of no file */
	u64 index;
	u64 pages;
};

/* A page's first words, which contain all fields that are read, in one read. */
struct page_head {
	u8 bytes[40];
};

static __always_inline void read_page(struct page_head *head, u64 page)
{
	if (bpf_probe_read_kernel(head, sizeof(*head), (void *)page))
		__builtin_memset(head, 0, sizeof(*head));
}

#define PAGE_FIELD(head, type, page, field) FIELD_WITHIN(head, sizeof(struct page_head), type, page, field)

/* The pages of one segment, which are adjacent in memory and thus in one folio's order. */
static __always_inline struct run segment_run(struct bio_vec *vec, struct page_head *head, u32 skip, u32 bytes)
{
	u64 page = (u64)vec->bv_page;
	u64 first = page;
	u32 offset = vec->bv_offset + skip;
	unsigned long compound;
	struct run run;

	read_page(head, page);
	compound = PAGE_FIELD(head, struct page, page, compound_head);
	/* A tail page points to its head, plus one. */
	if (compound & 1) {
		first = compound - 1;
		read_page(head, first);
	}
	run.mapping = (u64)PAGE_FIELD(head, struct folio, first, mapping);
	/* The low bits mark memory that belongs to no file (anonymous pages of direct I/O). */
	if (run.mapping & 3)
		run.mapping = 0;
	run.index = PAGE_FIELD(head, struct folio, first, index) + (offset >> PAGE_SHIFT);
	if (page != first)
		run.index += (page - first) / bpf_core_type_size(struct page);
	run.pages = ((offset & ((1 << PAGE_SHIFT) - 1)) + bytes + (1 << PAGE_SHIFT) - 1) >> PAGE_SHIFT;
	return run;
}

/* Joins a segment's pages to the run before them, if they continue it. */
static __always_inline bool continues(struct run *run, struct run *next)
{
	if (next->mapping != run->mapping)
		return false;
	/* Blocks smaller than a page: the same page again. */
	if (next->index + 1 == run->index + run->pages) {
		run->pages += next->pages - 1;
		return true;
	}
	if (next->index != run->index + run->pages)
		return false;
	run->pages += next->pages;
	return true;
}

/*
 * The state of a walk is kept in a map, which the verifier does not track: it checks the loop's body once. One per CPU is enough:
 * preemption is off in a tracepoint, and an interrupt that queues a bio would be skipped as a re-entry.
 */
struct walk {
	u64 vecs;
	u64 bio;
	u64 now;
	struct run run;
	struct run first;
	struct who who;
	/* Scratch of one segment; on the stack it would exceed what Linux 6.1 allows a program and its callback together. */
	struct bio_vec vec;
	struct page_head head;
	u32 index;
	u32 left; /* bytes */
	u32 skip; /* bytes of the next segment that are done */
	u32 runs; /* number of complete runs */
	u32 stranger; /* the process whose name was last recorded on this CPU */
	struct file_id id; /* of the run that is emitted */
	struct head inode; /* scratch, like `head` */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct walk);
} walks SEC(".maps");

/* Identifies the file of a run; in the walk's state, to save stack space. */
static __always_inline void mapping_file(struct walk *w, u64 mapping)
{
	struct inode *inode;
	struct super_block *sb;

	w->id.ino = 0;
	w->id.dev = 0;
	w->id.mode = 0;
	if (!mapping)
		return;
	inode = BPF_CORE_READ((struct address_space *)mapping, host);
	read_head(&w->inode, inode);
	w->id.mode = HEAD_FIELD(&w->inode, struct inode, inode, i_mode);
	w->id.ino = HEAD_FIELD(&w->inode, struct inode, inode, i_ino);
	if ((w->id.mode & S_IFMT) == S_IFBLK) {
		w->id.dev = HEAD_FIELD(&w->inode, struct inode, inode, i_rdev);
		return;
	}
	sb = HEAD_FIELD(&w->inode, struct inode, inode, i_sb);
	w->id.dev = BPF_CORE_READ(sb, s_dev);
	if (unlikely(only_in_memory(BPF_CORE_READ(sb, s_magic)))) {
		w->id.ino = 0;
		w->id.dev = 0;
	}
}

/* The first run becomes part of bio_queue itself, so it is kept; every other one is a separate record. */
static __always_inline void end_run(struct walk *w)
{
	struct fathom_bio_pages *r;

	if (!w->runs++) {
		w->first = w->run;
		return;
	}
	if (!w->run.mapping)
		return;
	mapping_file(w, w->run.mapping);
	if (!w->id.ino)
		return;
	r = RESERVE(bio_pages, BIO_PAGES, w->now, w->who);
	if (!r)
		return;
	r->bio = w->bio;
	r->ino = w->id.ino;
	r->index = w->run.index;
	r->dev = w->id.dev;
	r->pages = w->run.pages;
	submit(r);
}

/* Handles one segment; returns whether it was the last. */
static long walk_segment(u32 i, struct walk **context)
{
	struct walk *w = *context;
	struct run next;
	u32 bytes;

	if (bpf_probe_read_kernel(&w->vec, sizeof(w->vec), (struct bio_vec *)w->vecs + w->index + i))
		return 1;
	bytes = w->vec.bv_len - w->skip;
	if (bytes > w->left)
		bytes = w->left;
	next = segment_run(&w->vec, &w->head, w->skip, bytes);
	w->skip = 0;
	w->left -= bytes;
	if (!w->run.pages) {
		w->run = next;
	} else if (!continues(&w->run, &next)) {
		end_run(w);
		w->run = next;
	}
	return !w->left;
}

/* A page's index in its file. On kernels where a page no longer has this word, it would be read as the folio that it begins. */
static __always_inline u64 page_index(struct page *page)
{
	if (bpf_core_field_exists(((struct page___new_index *)0)->__folio_index))
		return ((struct page___new_index *)page)->__folio_index;
	if (bpf_core_field_exists(((struct page___old_index *)0)->index))
		return ((struct page___old_index *)page)->index;
	return BPF_CORE_READ((struct folio *)page, index);
}

/*
 * By far the commonest bio: one segment within one page that is not a tail page. The verifier then knows every type on the way, and
 * all fields are plain loads. Returns whether it was one.
 */
static __always_inline bool walk_one_page(struct bio *bio, u32 bytes, struct walk *w, struct file_id *id)
{
	struct bio_vec *vec = bio->bi_io_vec;
	struct page *page = vec->bv_page;
	struct address_space *mapping;
	volatile u64 *number;
	struct inode *inode;

	if (bio->bi_iter.bi_idx || bio->bi_iter.bi_bvec_done || vec->bv_len < bytes ||
	    vec->bv_offset + bytes > 1 << PAGE_SHIFT)
		return false;
	/*
	 * Through memory, since the verifier does not allow reading the bits of a pointer whose type it knows, and takes this word
	 * for the list pointer that shares its place.
	 */
	number = &w->first.mapping;
	*number = page->compound_head;
	if (*number & 1)
		return false;
	mapping = page->mapping;
	*number = (u64)mapping;
	if (*number & 3)
		*number = 0;
	w->first.index = page_index(page);
	w->first.pages = 1;
	if (!w->first.mapping)
		return true;
	inode = mapping->host;
	if (unlikely(only_in_memory(inode->i_sb->s_magic)))
		return true;
	id->mode = inode->i_mode;
	id->ino = inode->i_ino;
	id->dev = (id->mode & S_IFMT) == S_IFBLK ? inode->i_rdev : inode->i_sb->s_dev;
	return true;
}

/* BIO_MAX_VECS */
#define SEGMENTS 256

/* Any other bio: walks its runs of pages, and keeps the first of them. */
seldom void walk_pages(struct walk *w, struct file_id *id)
{
	/* Most have one segment; only the others need the loop. */
	if (!walk_segment(0, &w)) {
		w->index++;
		bpf_loop(SEGMENTS - 1, walk_segment, &w, 0);
	}
	if (!w->runs)
		w->first = w->run;
	mapping_file(w, w->first.mapping);
	*id = w->id;
}

/* Whether its thread is in a call on a file that bypasses the page cache. */
static __always_inline u16 directly(struct slot *slot)
{
	return slot && slot->call ? slot->file_flags & FATHOM_DIRECT : 0;
}

SEC("tp_btf/block_bio_queue")
int PROBE(bio_queue, struct bio *bio)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct who who = who_is(task);
	struct slot *slot = look_inside(slot_of_thread(task));
	u64 now = bpf_ktime_get_boot_ns();
	u64 pages, place, ino, call_ns;
	/* Whether there is something to emit in this word or a later one. */
	u64 from_3, from_4, from_5, *r;
	struct walk *w;
	struct file_id id = {};
	u32 opf = bio->bi_opf;
	u8 op = disk_op(opf);
	u32 bytes = bio->bi_iter.bi_size;
	u32 words = 3;
	u32 zero = 0;
	u32 disk;

	w = bpf_map_lookup_elem(&walks, &zero);
	if (!w)
		return 0;
	/* Mostly the journal thread again: then the table need not be queried. */
	if (!slot && w->stranger != who.tgid) {
		w->stranger = who.tgid;
		name_stranger(who.tgid, now);
	}
	w->vecs = (u64)bio->bi_io_vec;
	w->run.mapping = 0;
	w->run.pages = 0;
	w->runs = 0;
	if (!w->vecs || !bytes || (op != FATHOM_OP_READ && op != FATHOM_OP_WRITE)) {
		w->first = w->run;
	} else if (!walk_one_page(bio, bytes, w, &id)) {
		w->bio = (u64)bio;
		w->now = now;
		w->who = who;
		w->index = bio->bi_iter.bi_idx;
		w->skip = bio->bi_iter.bi_bvec_done;
		w->left = bytes;
		walk_pages(w, &id);
	}
	disk = bio_disk(bio);
	call_ns = identity_of(slot);
	if (!id.ino)
		w->first.pages = 0;
	pages = w->first.pages;
	place = pages ? two_words(id.dev ^ disk, pages >> 12) : 0;
	ino = pages ? id.ino ^ id.dev : 0;
	from_5 = ino | call_ns;
	from_4 = place | from_5;
	from_3 = pages | from_4;
	if (call_ns)
		words = 7;
	else if (from_5)
		words = 6;
	else if (from_4)
		words = 5;
	else if (from_3)
		words = 4;
	r = ring_reserve(PACKED_BIO_QUEUE, words, now, who, context(slot, who) | directly(slot));
	if (r) {
		r[2] = two_words(bytes, disk);
		if (from_3) {
			r[3] = pages ? w->first.index << 12 | (pages & 0xfff) : 0;
			if (from_4) {
				r[4] = place;
				if (from_5) {
					r[5] = ino;
					if (call_ns)
						r[6] = call_ns;
				}
			}
		}
		put_with_byte(&r[0], (u64)bio, op_flags(opf));
		put_with_byte(&r[1], bio->bi_iter.bi_sector, kind_of(bio, op) << 3 | op);
		submit(r);
	}
	if (w->runs)
		end_run(w);
	return 0;
}

/* The new bio is the first part; the old one, to which it points back, keeps the rest (bio_chain). */
SEC("tp_btf/block_split")
int PROBE(bio_split, struct bio *bio, unsigned int sector)
{
	struct fathom_bio_split *r = RESERVE(bio_split, BIO_SPLIT, bpf_ktime_get_boot_ns(), whoami());

	if (!r)
		return 0;
	r->bio = (u64)bio;
	r->parent = (u64)bio->bi_private;
	r->sector = sector;
	r->bytes = bio->bi_iter.bi_size;
	r->disk = bio_disk(bio);
	submit(r);
	return 0;
}

/*
 * The bio that a clone was made from. The device mapper's clone is part of its record of the work (clone_to_tio), which points to
 * the original; the crypt target sends new bios, made from such a clone. 0: unknown.
 */
static __always_inline u64 mapped_from(struct bio *bio)
{
	u64 clone = (u64)bio;
	u8 end = bio_end(bio->bi_end_io);

	if (!bpf_core_type_exists(struct dm_target_io))
		return 0;
	if (end == FATHOM_END_CRYPT && bpf_core_type_exists(struct dm_crypt_io))
		clone = (u64)BPF_CORE_READ((struct dm_crypt_io *)bio->bi_private, base_bio);
	else if (end != FATHOM_END_CLONE)
		return 0;
	return (u64)BPF_CORE_READ((struct dm_target_io *)(clone - bpf_core_field_offset(struct dm_target_io, clone)), io,
				  orig_bio);
}

SEC("tp_btf/block_bio_remap")
int PROBE(bio_remap, struct bio *bio, u32 from_disk, u64 from_sector)
{
	struct fathom_bio_remap *r = RESERVE(bio_remap, BIO_REMAP, bpf_ktime_get_boot_ns(), whoami());

	if (!r)
		return 0;
	r->bio = (u64)bio;
	r->parent = mapped_from(bio);
	r->sector = bio->bi_iter.bi_sector;
	r->from_sector = from_sector;
	r->disk = bio_disk(bio);
	r->from_disk = from_disk;
	submit(r);
	return 0;
}

/*
 * A bare flush: the driver may never receive it, but a task waits for it. And a bio of a disk that makes no requests, such as the
 * device mapper's. Other bios end with their requests.
 */
SEC("tp_btf/block_bio_complete")
int PROBE(bio_done, struct request_queue *q, struct bio *bio)
{
	struct fathom_bio_done *r;

	if ((bio->bi_vcnt || !(bio->bi_opf & REQ_BIT(__REQ_PREFLUSH))) && !bio->bi_bdev->bd_disk->fops->submit_bio)
		return 0;
	r = RESERVE(bio_done, BIO_DONE, bpf_ktime_get_boot_ns(), no_task());
	if (!r)
		return 0;
	r->bio = (u64)bio;
	r->disk = bio_disk(bio);
	r->error = status_error(bio->bi_status);
	submit(r);
	return 0;
}
