//! Converts what the kernel side leaves in the rings (`bpf/ring.h`, `bpf/packed.h`) to the records used everywhere else.
//!
//! Most of a record's cost to its program is the memory to which it is written, which is no longer in any cache; so it is as
//! short as possible, and unpacking is done here, off the program's path.
//!
//! Everything is 8-byte words, in the byte order that both sides share (x86-64 and arm64).

use model::Record;
use model::event::{BioQueue, FlushIssue, OffCpu, RqBios, RqDone, RqIssue, Syscall, Wait};
use model::record::RecordInfo;

/// Bits of a record's first word that hold its number of words.
const LENGTH_BITS: u32 = 10;
/// Maximum number of words of a record.
pub const RECORD_WORDS_MAX: u64 = (1 << LENGTH_BITS) - 1;
/// Number of words before a body.
const HEAD_WORDS: usize = 2;
/// Number of words of a full record's header.
const HEADER_WORDS: usize = 3;
/// Bits of the context, below the time.
const CONTEXT_BITS: u32 = 9;
/// The bits of the first word that distinguish it from other records.
pub const CHECK_MASK: u64 = 0xffff << 48;
/// Size of a chunk in bytes, as in `ring.h`: the check is the number of the record's chunk.
pub const CHUNK: u64 = 1 << 20;

/// Kinds of `packed.h`.
const KIND_SYSCALL: usize = 41;
const KIND_OFF_CPU: usize = 42;
const KIND_BIO_QUEUE: usize = 43;
const KIND_RQ_ISSUE: usize = 44;
const KIND_FLUSH_ISSUE: usize = 45;
const KIND_RQ_DONE: usize = 46;

/// Words of a packed request before its bios; how many of these its full record lists, and how many the next one.
const RQ_HEAD_WORDS: usize = 4;
const RQ_BIOS_LISTED: usize = 4;
const RQ_BIOS_REST: usize = 8;

/// Words of a sleep before its reason.
const OFF_CPU_WORDS: usize = 3;

/// Number of kinds that fit in a word.
const KIND_COUNT: usize = 64;

/// The layouts of the bodies in `events.h`, by kind: words of the fixed part (0: no such kind), and whether a text follows.
static BODY_LAYOUTS: [(usize, bool); KIND_COUNT] = body_layouts();

const fn body_layouts() -> [(usize, bool); KIND_COUNT] {
    let mut all = [(0, false); KIND_COUNT];
    let mut i = 0;
    while i < Record::KINDS.len() {
        let kind = &Record::KINDS[i];
        all[kind.kind as usize] = (fixed_words(kind), kind.tail);
        i += 1;
    }
    all
}

const fn fixed_words(kind: &RecordInfo) -> usize {
    let (mut bytes, mut i) = (0, 0);
    while i < kind.fields.len() {
        bytes += kind.fields[i].size;
        i += 1;
    }
    bytes / 8
}

/// A record as it is in a ring.
#[derive(Debug, Clone, Copy)]
pub struct PackedRecord<'a>(&'a [u64]);

impl<'a> PackedRecord<'a> {
    /// Returns the number of words of the record that begins with this word at a place; `None` if none begins there, or it
    /// is incomplete.
    pub fn length(word: u64, place: u64, salt: u64) -> Option<usize> {
        let check = (place / CHUNK) << 48 ^ salt;
        let length = (word & ((1 << LENGTH_BITS) - 1)) as usize;
        ((word ^ check) & CHECK_MASK == 0 && length >= HEAD_WORDS).then_some(length)
    }

    pub fn new(words: &'a [u64]) -> Self {
        assert!(words.len() >= HEAD_WORDS && words.len() as u64 <= RECORD_WORDS_MAX);
        Self(words)
    }

    #[cfg(test)]
    pub fn all(&self) -> &'a [u64] {
        self.0
    }

    pub fn words(&self) -> usize {
        self.0.len()
    }

    fn bits(&self, from: u32, count: u32) -> u64 {
        self.0[0] >> from & ((1 << count) - 1)
    }

    /// Returns the low bits of its time, all except the upper [`CONTEXT_BITS`].
    fn low_time(&self) -> u64 {
        self.0[1] >> CONTEXT_BITS
    }

    /// Returns when it was made, on a clock that read `began_ns` less than a year before.
    pub fn time_ns(&self, began_ns: u64) -> u64 {
        let mask = u64::MAX >> CONTEXT_BITS;
        began_ns.wrapping_add(self.low_time().wrapping_sub(began_ns) & mask)
    }

    fn context(&self) -> u64 {
        self.0[1] & ((1 << CONTEXT_BITS) - 1)
    }

    fn kind(&self) -> usize {
        self.bits(10, 6) as usize
    }

    /// Returns its body, and its last word, if it has one.
    fn parts(&self) -> (&'a [u64], Option<u64>) {
        match self.0[HEAD_WORDS..].split_last() {
            Some((last, body)) if self.bits(20, 1) == 1 => (body, Some(*last)),
            _ => (&self.0[HEAD_WORDS..], None),
        }
    }

    /// Returns its CPU, if the ring alone does not determine it.
    pub fn cpu(&self) -> Option<u32> {
        self.parts().1.map(|last| (last >> 32) as u32 & 0xffff)
    }

    /// Writes the header of a full record, replacing the contents of `out`.
    fn header(&self, kind: u64, time_ns: u64, cpu: u32, seq: u32, out: &mut Vec<u64>) {
        let (flags, tid) = (self.bits(16, 4), self.bits(26, 22));
        let tgid = self.parts().1.map_or(tid, |last| u64::from(last as u32));
        out.clear();
        out.extend([time_ns, u64::from(seq) | u64::from(cpu) << 32 | kind << 48 | flags << 56, tgid | tid << 32]);
    }

    /// Whether it contains more than its full record has room for: a request's further bios, or the reason of a sleep.
    pub fn has_rest(&self) -> bool {
        match self.kind() {
            KIND_RQ_ISSUE => self.parts().0.len() > RQ_HEAD_WORDS + RQ_BIOS_LISTED,
            KIND_OFF_CPU => self.parts().0.len() > OFF_CPU_WORDS,
            _ => false,
        }
    }

    /// Writes the record of these, like [`PackedRecord::unpack`].
    pub fn unpack_rest(&self, time_ns: u64, cpu: u32, seq: u32, out: &mut Vec<u64>) {
        let (body, _) = self.parts();
        if self.kind() == KIND_OFF_CPU {
            self.header(Wait::INFO.kind.into(), time_ns, cpu, seq, out);
            out.extend(unpack_wait(zero_extended(body), self.context()));
            return;
        }
        let words: [u64; RQ_HEAD_WORDS + RQ_BIOS_LISTED + RQ_BIOS_REST] = zero_extended(body);
        self.header(RqBios::INFO.kind.into(), time_ns, cpu, seq, out);
        let listed = body.len().saturating_sub(RQ_HEAD_WORDS + RQ_BIOS_LISTED).min(RQ_BIOS_REST) as u64;
        out.extend([split_address(words[0]).0, listed]);
        out.extend(words[RQ_HEAD_WORDS + RQ_BIOS_LISTED..].iter().map(|word| split_address(*word).0));
    }

    /// Writes the full record, replacing the contents of `out`; `false` if its kind is unknown.
    pub fn unpack(&self, time_ns: u64, cpu: u32, seq: u32, out: &mut Vec<u64>) -> bool {
        let (body, kind) = (self.parts().0, self.kind());
        match kind {
            KIND_SYSCALL => {
                self.header(Syscall::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_syscall(zero_extended(body), time_ns, self.context()));
            }
            KIND_OFF_CPU => {
                self.header(OffCpu::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_off_cpu(zero_extended(body), self.context()));
            }
            KIND_BIO_QUEUE => {
                self.header(BioQueue::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_bio_queue(zero_extended(body), self.context()));
            }
            KIND_RQ_ISSUE => {
                self.header(RqIssue::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_rq_issue(zero_extended(body), body.len()));
            }
            KIND_FLUSH_ISSUE => {
                self.header(FlushIssue::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_flush_issue(zero_extended(body), body.len()));
            }
            KIND_RQ_DONE => {
                self.header(RqDone::INFO.kind.into(), time_ns, cpu, seq, out);
                out.extend(unpack_rq_done(zero_extended(body)));
            }
            _ => {
                let (fixed, text) = BODY_LAYOUTS[kind];
                if fixed == 0 {
                    return false;
                }
                self.header(kind as u64, time_ns, cpu, seq, out);
                append_body(body, fixed, text, out);
            }
        }
        true
    }
}

/// Appends a body unchanged, restoring omitted words of zeroes. After a text there may be leftovers of an earlier lap.
fn append_body(body: &[u64], fixed: usize, text: bool, out: &mut Vec<u64>) {
    let there = body.len().min(fixed);
    out.extend(&body[..there]);
    out.resize(HEADER_WORDS + fixed, 0);
    if !text {
        return;
    }
    // A text's length is the last field of the fixed part.
    let bytes = (out[HEADER_WORDS + fixed - 1] >> 48) as usize;
    let words = &body[there..];
    let words = &words[..words.len().min(bytes.div_ceil(8))];
    out.extend(words);
    if let (Some(word), rest @ 1..) = (out.last_mut().filter(|_| !words.is_empty()), bytes % 8)
        && words.len() == bytes.div_ceil(8)
    {
        *word &= (1 << (8 * rest)) - 1;
    }
}

/// Returns a body with the omitted words of zeroes.
fn zero_extended<const N: usize>(body: &[u64]) -> [u64; N] {
    let mut all = [0; N];
    let there = body.len().min(N);
    all[..there].copy_from_slice(&body[..there]);
    all
}

/// Returns the two halves of a word.
fn halves(word: u64) -> (u64, u64) {
    (word & 0xffff_ffff, word >> 32)
}

/// Returns a word without its last byte, and that byte.
fn split_address(word: u64) -> (u64, u64) {
    let low = word << 8 >> 8;
    (if low == 0 { 0 } else { low | 0xff << 56 }, word >> 56)
}

fn split_sector(word: u64) -> (u64, u64) {
    (((word << 8).cast_signed() >> 8).cast_unsigned(), word >> 56)
}

fn sign_extend(word: u64, bits: u32) -> u64 {
    ((word << (64 - bits)).cast_signed() >> (64 - bits)).cast_unsigned()
}

fn unpack_syscall([times, ino, about, done, pos, joined]: [u64; 6], end_ns: u64, ctx: u64) -> [u64; 10] {
    let (took, inside) = halves(times);
    let start_ns = end_ns.wrapping_sub(took);
    let (dev, what) = halves(about);
    let (fd, call, fs_writes) = (sign_extend(what & 0xffff, 16) & 0xffff_ffff, what >> 16 & 0xff, what >> 24);
    let (result, more) = halves(done);
    let (txn, counts) = halves(joined);
    let (handles, cache_added) = (counts & 0xffff, counts >> 16);
    [
        start_ns,
        ino,
        pos.wrapping_sub(1),
        (result + more) & 0xffff_ffff,
        sign_extend(result, 32),
        if inside == 0 { 0 } else { start_ns.wrapping_add(inside - 1) },
        if inside == 0 { 0 } else { end_ns },
        dev | txn << 32,
        handles | cache_added << 16 | call << 32 | ctx << 48,
        fd | fs_writes << 32,
    ]
}

fn unpack_wait([left, _, waker, about, throttled_ns]: [u64; 5], ctx: u64) -> [u64; 4] {
    let (tgid, what) = halves(about);
    [left >> 2, throttled_ns, (waker & 0xffff_ffff) | tgid << 32, (what & 0xffff) | ctx << 16]
}

fn unpack_off_cpu([left, wake_ns, waker]: [u64; 3], ctx: u64) -> [u64; 3] {
    [left >> 2, wake_ns, (waker & 0xffff_ffff) | (left & 3) << 32 | ctx << 48]
}

fn unpack_bio_queue([bio, sector_op, bytes_disk, index, place, ino, call_ns]: [u64; 7], ctx: u64) -> [u64; 8] {
    let (bio, flags) = split_address(bio);
    let (first, op_end) = split_sector(sector_op);
    let disk = bytes_disk >> 32;
    let (dev, high_pages) = halves(place);
    let pages = (index & 0xfff | high_pages << 12) & 0xffff_ffff;
    let dev = if pages == 0 { 0 } else { dev ^ disk };
    let ino = if pages == 0 { 0 } else { ino ^ dev };
    let (op, end) = (op_end & 7, op_end >> 3 & 0x1f);
    [bio, first, ino, index >> 12, call_ns, bytes_disk, dev | pages << 32, op | end << 8 | flags << 16 | ctx << 32]
}

fn unpack_rq_issue([rq, sector_op, bytes_disk, made_ns, a, b, c, d]: [u64; 8], words: usize) -> [u64; 9] {
    let (rq, flags) = split_address(rq);
    let (first, op) = split_sector(sector_op);
    let [(a, low), (b, high), (c, _), (d, _)] = [a, b, c, d].map(split_address);
    let (bios, longest) = (words.saturating_sub(RQ_HEAD_WORDS), RQ_BIOS_LISTED + RQ_BIOS_REST);
    let listed = bios.min(RQ_BIOS_LISTED) as u64;
    let total = bios.min(longest) as u64 + (low | high << 8);
    [rq, first, made_ns, bytes_disk, op | listed << 8 | flags << 16 | total << 32, a, b, c, d]
}

fn unpack_flush_issue([rq, waiters @ ..]: [u64; 5], words: usize) -> [u64; 6] {
    let (rq, total) = split_address(rq);
    let [(a, s), (b, t), (c, u), (d, v)] = waiters.map(split_address);
    let listed = (words.clamp(1, 5) - 1) as u64;
    [rq, a, b, c, d, s | t << 8 | u << 16 | v << 24 | listed << 32 | total << 48]
}

fn unpack_rq_done([rq, sector_op, bytes_disk, error]: [u64; 4]) -> [u64; 4] {
    let (rq, flags) = split_address(rq);
    let (first, op_last) = split_sector(sector_op);
    [rq, first, bytes_disk, (error & 0xffff_ffff) | (op_last & 0x7f) << 32 | (op_last >> 7) << 40 | flags << 48]
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Event;
    use model::event::{self, CommitBegin, File, Header, RqBios};
    use proptest::prelude::*;

    /// Returns a ring's record with these words and a first word as written by the kernel side.
    fn raw(kind: u64, ctx: u64, body: &[u64]) -> Vec<u64> {
        let words = (HEAD_WORDS + body.len()) as u64;
        [&[kind << 10 | words | 7 << 26, 1_000_000 << 9 | ctx], body].concat()
    }

    fn unpack_whole(words: &[u64]) -> Event {
        let (raw, mut out) = (PackedRecord::new(words), Vec::new());
        assert!(raw.unpack(raw.time_ns(0), 3, 9, &mut out));
        let bytes: Vec<u8> = out.iter().flat_map(|word| word.to_le_bytes()).collect();
        let event = Event::decode(&bytes).expect("a record of model::event");
        let header = event.header;
        assert_eq!((header.time_ns, header.seq, header.cpu, header.tid), (1_000_000, 9, 3, 7));
        event
    }

    fn unpack_rest_of(words: &[u64]) -> Option<Event> {
        let (raw, mut out) = (PackedRecord::new(words), Vec::new());
        raw.unpack_rest(raw.time_ns(0), 3, 9, &mut out);
        let bytes: Vec<u8> = out.iter().flat_map(|word| word.to_le_bytes()).collect();
        raw.has_rest().then(|| Event::decode(&bytes).expect("a record of model::event"))
    }

    /// Returns an address or sector with a value in its last byte.
    fn with_byte(value: u64, byte: u64) -> u64 {
        value << 8 >> 8 | byte << 56
    }

    const BIO_ADDRESS: u64 = 0xffff_8881_0020_4000;
    /// On a kernel with five levels of page tables, bit 55 differs from the ones above it.
    const RQ_ADDRESS: u64 = 0xff11_0001_0020_4000;

    #[test]
    fn packed_syscall_omits_absent_fields() {
        // A write of 24 bytes out of 4096 at 8192, with every optional field.
        let body = [
            100 | 41 << 32,
            12,
            0x70_0001 | 5 << 32 | 6 << 48 | 2 << 56,
            24 | 4072 << 32,
            8193,
            77 | 3 << 32 | 4 << 48,
        ];
        let call = Syscall {
            start_ns: 999_900,
            ino: 12,
            pos: 8192,
            bytes: 4096,
            result: 24,
            fs_start_ns: 999_940,
            fs_end_ns: 1_000_000,
            dev: 0x70_0001,
            txn: 77,
            handles: 3,
            cache_added: 4,
            call: 6,
            ctx: 0x10b,
            fd: 5,
            fs_writes: 2,
        };
        assert_eq!(unpack_whole(&raw(41, 0x10b, &body)).record, call.into());
        // A failing fsync without a file: no position, no bytes.
        let failed = u64::from((-5i32).cast_unsigned());
        let body = [100, 0, 0xffff << 32 | 10 << 48, failed | u64::from(5u32) << 32];
        let call = Syscall { start_ns: 999_900, pos: -1, result: -5, call: 10, fd: -1, ..Syscall::default() };
        assert_eq!(unpack_whole(&raw(41, 0, &body)).record, call.clone().into());
        assert_eq!(unpack_whole(&raw(41, 0, &body[..3])).record, Syscall { result: 0, ..call }.into());
    }

    #[test]
    fn bios_with_and_without_file_are_unpacked() {
        let (disk, dev, ino) = (0x70_0000, 0x70_0001, 13u64);
        let index = (1 << 40) << 12 | 0x123;
        let body = [
            with_byte(BIO_ADDRESS, 5),
            with_byte(640, 1 | 31 << 3),
            8192 | disk << 32,
            index,
            (dev ^ disk) | 1 << 32,
            ino ^ dev,
            55,
        ];
        let bio = BioQueue {
            bio: BIO_ADDRESS,
            sector: 640,
            ino,
            index: 1 << 40,
            syscall_ns: 55,
            bytes: 8192,
            disk: disk as u32,
            dev: dev as u32,
            pages: 0x1123,
            op: 1,
            end: 31,
            flags: 5,
            ctx: 0x1ff,
            pad: 0,
        };
        assert_eq!(unpack_whole(&raw(43, 0x1ff, &body)).record, bio.clone().into());
        // A disk's own page, on a disk without partitions.
        let own = BioQueue { ino: disk, dev: disk as u32, pages: 1, index: 8, syscall_ns: 0, ..bio.clone() };
        let words = [body[0], body[1], body[2], 8 << 12 | 1];
        assert_eq!(unpack_whole(&raw(43, 0x1ff, &words)).record, own.into());
        // A bare flush within a call.
        let flush = BioQueue { ino: 0, dev: 0, pages: 0, index: 0, ..bio };
        assert_eq!(unpack_whole(&raw(43, 0x1ff, &[body[0], body[1], body[2], 0, 0, 0, 55])).record, flush.into());
    }

    #[test]
    fn requests_list_bios_and_flush_has_no_sector() {
        let head = [with_byte(RQ_ADDRESS, 0x81), with_byte(640, 1), 1024 | 7 << 32, 44];
        let issue = RqIssue {
            rq: RQ_ADDRESS,
            sector: 640,
            alloc_ns: 44,
            bytes: 1024,
            disk: 7,
            op: 1,
            listed: 4,
            flags: 0x81,
            total: 4 + 0x104,
            bios: [BIO_ADDRESS, BIO_ADDRESS + 64, BIO_ADDRESS + 128, BIO_ADDRESS + 192],
        };
        let bios = [
            with_byte(BIO_ADDRESS, 4),
            with_byte(BIO_ADDRESS + 64, 1),
            with_byte(BIO_ADDRESS + 128, 0),
            with_byte(BIO_ADDRESS + 192, 0),
        ];
        assert_eq!(unpack_whole(&raw(44, 0, &[&head[..], &bios].concat())).record, issue.clone().into());
        // Two of six do not fit into the record itself.
        let more: Vec<u64> = head.iter().chain(&bios).copied().chain([BIO_ADDRESS + 256, BIO_ADDRESS + 320]).collect();
        let six = RqIssue { total: 6 + 0x104, ..issue.clone() };
        assert_eq!(unpack_whole(&raw(44, 0, &more)).record, six.into());
        let rest = RqBios { rq: RQ_ADDRESS, listed: 2, bios: [BIO_ADDRESS + 256, BIO_ADDRESS + 320, 0, 0, 0, 0, 0, 0] };
        assert_eq!(unpack_rest_of(&raw(44, 0, &more)).map(|event| event.record), Some(rest.into()));
        assert_eq!(unpack_rest_of(&raw(44, 0, &more[..8])), None);
        let none = RqIssue { sector: u64::MAX, listed: 0, total: 0, bios: [0; 4], ..issue };
        let words = [head[0], with_byte(u64::MAX, 1), head[2], head[3]];
        assert_eq!(unpack_whole(&raw(44, 0, &words)).record, none.into());

        let flush =
            FlushIssue { rq: RQ_ADDRESS, bios: [BIO_ADDRESS, 0, 0, 0], steps: [1, 7, 0, 0], listed: 2, total: 66 };
        let words = [with_byte(RQ_ADDRESS, 66), with_byte(BIO_ADDRESS, 1), with_byte(0, 7)];
        assert_eq!(unpack_whole(&raw(45, 0, &words)).record, flush.into());

        let done = RqDone { rq: RQ_ADDRESS, sector: 640, bytes: 1024, disk: 7, error: -5, op: 1, last: 1, flags: 0x81 };
        let words = [head[0], with_byte(640, 1 | 0x80), head[2], u64::from((-5i32).cast_unsigned())];
        assert_eq!(unpack_whole(&raw(46, 0, &words)).record, done.clone().into());
        assert_eq!(unpack_whole(&raw(46, 0, &words[..3])).record, RqDone { error: 0, ..done }.into());
    }

    #[test]
    fn sleep_and_preemption_are_unpacked() {
        let asleep = OffCpu { start_ns: 500, wake_ns: 700, waker: 9, state: 2, ctx: 0x103 };
        assert_eq!(unpack_whole(&raw(42, 0x103, &[500 << 2 | 2, 700, 9])).record, asleep.clone().into());
        let words = raw(42, 0x103, &[500 << 2 | 2, 700, 9, 8 | 2 << 32, 77]);
        assert_eq!(unpack_whole(&words).record, asleep.clone().into());
        let wait = Wait { start_ns: 500, throttled_ns: 77, waker: 9, waker_tgid: 8, what: 2, ctx: 0x103, pad: 0 };
        assert_eq!(unpack_rest_of(&words).map(|event| event.record), Some(wait.into()));
        assert_eq!(unpack_rest_of(&raw(42, 0x103, &[500 << 2 | 2, 700, 9])), None);
        let preempted = OffCpu { wake_ns: 0, waker: 0, state: 0, ..asleep };
        assert_eq!(unpack_whole(&raw(42, 0x103, &[500 << 2])).record, preempted.into());
    }

    #[test]
    fn plain_records_are_copied_and_text_keeps_length() {
        let bios = RqBios { rq: RQ_ADDRESS, listed: 2, bios: [BIO_ADDRESS, BIO_ADDRESS + 64, 0, 0, 0, 0, 0, 0] };
        assert_eq!(
            unpack_whole(&raw(RqBios::INFO.kind.into(), 0, &[RQ_ADDRESS, 2, BIO_ADDRESS, BIO_ADDRESS + 64])).record,
            bios.into()
        );
        // Three bytes of text; the rest of the word belongs to another record.
        let text = u64::from_le_bytes(*b"/dbstale");
        let words = raw(File::INFO.kind.into(), 0, &[12, 0x70_0001 | 1 << 32 | 3 << 48, text]);
        let file = File { ino: 12, dev: 0x70_0001, what: 1, len: 3, text: "/db".into() };
        assert_eq!(unpack_whole(&words).record, file.into());
        let mut out = Vec::new();
        PackedRecord::new(&words).unpack(0, 0, 0, &mut out);
        assert_eq!(out.last().unwrap().to_le_bytes(), *b"/db\0\0\0\0\0");
    }

    #[test]
    fn other_tgid_and_shared_ring_are_unpacked() {
        let mut words = raw(CommitBegin::INFO.kind.into(), 0, &[0x70_0001 | 5 << 32, 33 << 32 | 8]);
        words[0] |= 1 << 20 | 0b1011 << 16;
        let event = unpack_whole(&words);
        assert_eq!(event.record, CommitBegin { dev: 0x70_0001, txn: 5 }.into());
        assert_eq!((event.header.tgid, event.header.flags, PackedRecord::new(&words).cpu()), (8, 0b1011, Some(33)));
        words[0] &= !(1 << 20);
        assert_eq!((unpack_whole(&words).header.tgid, PackedRecord::new(&words).cpu()), (7, None));
    }

    #[test]
    fn truncated_time_is_extended_by_start_of_recording() {
        for began in [0, 5, (1 << 55) - 1, 1 << 55, (1 << 60) + 12345] {
            for later in [0, 1, 1 << 40, (1 << 55) - 1] {
                let words = [2, (began + later) << 9];
                assert_eq!(PackedRecord::new(&words).time_ns(began), began + later);
            }
        }
    }

    /// Assumptions of the packed layout.
    #[test]
    fn packed_fields_are_wide_enough() {
        let bio = [event::bio_flags::COUNTED, event::bio_flags::FLUSH_SEQUENCE, event::bio_flags::BACKGROUND];
        assert!(bio.iter().all(|flag| *flag < 1 << 8));
        const { assert!(event::flags::BETWEEN_ROWS < 1 << CONTEXT_BITS) };
        const { assert!(event::header_flags::POLLING < 1 << 4) };
        assert!(model::DiskOp::ALL.iter().all(|op| (*op as u64) < 8));
        assert!(model::BioEnd::ALL.iter().all(|end| (*end as u64) < 32));
        assert!(model::Call::ALL.iter().all(|call| (*call as u64) < 256));
        for kind in Record::KINDS {
            assert!(usize::from(kind.kind) < KIND_SYSCALL && fixed_words(kind) * 8 == kind.size(), "{}", kind.name);
        }
        assert_eq!(Header::SIZE, HEADER_WORDS * 8);
    }

    proptest! {
        /// Arbitrary memory causes no panic, and unpacked events can be decoded.
        #[test]
        fn arbitrary_words_do_not_panic(words in prop::collection::vec(any::<u64>(), 2..40), kind in 0u64..64) {
            let mut words = words;
            words[0] = words[0] & !(0x3f << 10) | kind << 10;
            let (raw, mut out) = (PackedRecord::new(&words), Vec::new());
            if raw.unpack(1, 0, 0, &mut out) {
                let bytes: Vec<u8> = out.iter().flat_map(|word| word.to_le_bytes()).collect();
                let text = BODY_LAYOUTS[kind as usize].1;
                prop_assert!(text || Event::decode(&bytes).is_some());
            }
            raw.cpu();
            raw.unpack_rest(1, 0, 0, &mut out);
        }
    }
}
