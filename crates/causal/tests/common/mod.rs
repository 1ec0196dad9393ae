//! A stream of events as made by many INSERTs on several threads: the input for the tests of order and memory, and for the
//! example that measures speed.

use model::event::{
    BioDone, BioQueue, CommitBegin, CommitEnd, FlushIssue, Header, OffCpu, OpBegin, OpEnd, RqDone, RqIssue, Statement,
    SyncBegin, Syscall, bio_flags, flags,
};
use model::{BioEnd, Call, Dev, DiskOp, Event, Record};

/// The disk in the stream.
pub const DISK: Dev = Dev(254 << 20);
const OPERATION_CTX: u16 = flags::IN_OP | flags::TRACKED | flags::REGULAR;

/// Generates INSERTs one after the other, their events in time order.
#[derive(Default)]
pub struct Inserts {
    threads: u32,
    time_ns: u64,
    count: u64,
    seq: [u32; 2],
}

impl Inserts {
    /// Creates a generator of INSERTs by this number of threads in turn.
    pub fn new(threads: u32) -> Self {
        Self { threads, time_ns: 1_000_000, ..Self::default() }
    }

    fn put(&mut self, out: &mut Vec<Event>, after_ns: u64, tid: u32, record: impl Into<Record>) {
        self.time_ns += after_ns;
        let record = record.into();
        let cpu = (tid % 2) as u16;
        self.seq[usize::from(cpu)] += 1;
        let seq = self.seq[usize::from(cpu)];
        let kernel = u8::from((50..100).contains(&tid));
        let header = Header {
            time_ns: self.time_ns,
            seq,
            cpu,
            kind: record.kind(),
            flags: kernel,
            tgid: if kernel == 1 { tid } else { tid / 10 * 10 },
            tid,
        };
        out.push(Event { header, record });
    }

    fn call(&self, call: Call, start_ns: u64, pos: i64, bytes: u64) -> Syscall {
        Syscall {
            start_ns,
            ino: 12 + self.count % 3,
            pos,
            bytes,
            result: if call.writes() { bytes as i64 } else { 0 },
            fs_start_ns: start_ns + 10,
            fs_end_ns: start_ns + 100,
            dev: DISK.0,
            txn: if call.writes() { self.count as u32 + 1 } else { 0 },
            handles: 1,
            call: call as u16,
            ctx: OPERATION_CTX,
            fd: 3,
            ..Syscall::default()
        }
    }

    fn bio(&self, bio: u64, ino: u64, index: u64, syscall_ns: u64, ctx: u16, flags: u16) -> BioQueue {
        BioQueue {
            bio,
            sector: index * 8,
            ino,
            index,
            syscall_ns,
            bytes: 4096,
            disk: DISK.0,
            dev: DISK.0,
            pages: 1,
            op: DiskOp::Write as u8,
            end: if ino == u64::from(DISK.0) { BioEnd::BufferHead as u8 } else { BioEnd::Ext4 as u8 },
            flags,
            ctx,
            ..BioQueue::default()
        }
    }

    fn issue(&self, rq: u64, bio: u64, bytes: u32) -> RqIssue {
        RqIssue {
            rq,
            sector: bio * 8,
            alloc_ns: self.time_ns - 5,
            bytes,
            disk: DISK.0,
            op: DiskOp::Write as u8,
            listed: 1,
            total: 1,
            bios: [bio, 0, 0, 0],
            ..RqIssue::default()
        }
    }

    fn done(&self, rq: u64, bytes: u32, op: DiskOp) -> RqDone {
        RqDone { rq, bytes, disk: DISK.0, op: op as u8, last: 1, ..RqDone::default() }
    }

    fn flush(&mut self, out: &mut Vec<Event>, tid: u32, bio: u64, step: u8) {
        let rq = 0x9000;
        let issue = RqIssue { rq, disk: DISK.0, op: DiskOp::Flush as u8, ..RqIssue::default() };
        self.put(out, 20, tid, issue);
        let waiters = FlushIssue { rq, bios: [bio, 0, 0, 0], steps: [step, 0, 0, 0], listed: 1, total: 1 };
        self.put(out, 1, tid, waiters);
        let done = self.done(rq, 0, DiskOp::Flush);
        self.put(out, 30_000, tid, done);
    }

    /// Adds another INSERT: some 40 events.
    pub fn next(&mut self, out: &mut Vec<Event>) {
        let tid = 100 + (self.count % u64::from(self.threads)) as u32 * 10;
        let stmt = 0x7000 + u64::from(tid);
        let (n, page, jbd) = (self.count, self.count % 1000, 51);
        if n < u64::from(self.threads) {
            self.put(
                out,
                10,
                tid,
                Statement { stmt, text: "INSERT INTO t VALUES (?,?)".into(), ..Statement::default() },
            );
        }
        let begin_ns = self.time_ns + 1000;
        self.put(out, 1000, tid, OpBegin { key: stmt, kind: 0, depth: 1 });
        for i in 0..6 {
            let call = self.call(Call::Pwrite64, self.time_ns + 50, (page * 4096 + i * 600) as i64, 600);
            self.put(out, 200, tid, call);
        }
        let sync_ns = self.time_ns + 100;
        let ino = 12 + n % 3;
        let sync = SyncBegin { ino, dev: DISK.0, call: Call::Fsync as u16, ctx: OPERATION_CTX };
        self.put(out, 100, tid, sync);
        let ctx = OPERATION_CTX | flags::IN_SYSCALL;
        let (data, journal, commit) = (0x100 + n % 7, 0x200 + n % 5, 0x300 + n % 3);
        let bio = self.bio(data, ino, page, sync_ns, ctx, bio_flags::SYNC);
        self.put(out, 300, tid, bio);
        let issue = self.issue(0x8000 + n % 11, data, 4096);
        self.put(out, 100, tid, issue);
        let away_ns = self.time_ns + 50;
        let done = self.done(0x8000 + n % 11, 4096, DiskOp::Write);
        self.put(out, 20_000, jbd, done);
        let away = |start_ns, wake_ns| OffCpu { start_ns, wake_ns, waker: 0, state: 2, ctx };
        let event = away(away_ns, self.time_ns + 100);
        self.put(out, 500, tid, event);
        let away_ns = self.time_ns + 50;
        let txn = n as u32 + 1;
        self.put(out, 3000, jbd, CommitBegin { dev: DISK.0, txn });
        let home = u64::from(DISK.0);
        let bio = self.bio(journal, home, 50_000 + n % 400, 0, flags::KERNEL_THREAD, bio_flags::META);
        self.put(out, 200, jbd, bio);
        let issue = self.issue(0x8100, journal, 4096);
        self.put(out, 100, jbd, issue);
        let done = self.done(0x8100, 4096, DiskOp::Write);
        self.put(out, 20_000, jbd, done);
        let flags = bio_flags::PREFLUSH | bio_flags::FUA | bio_flags::SYNC;
        let bio = self.bio(commit, home, 60_000 + n % 400, 0, flags::KERNEL_THREAD, flags);
        self.put(out, 200, jbd, bio);
        self.flush(out, jbd, commit, 1);
        let issue = self.issue(0x8200, commit, 4096);
        self.put(out, 100, jbd, issue);
        let done = RqDone { flags: bio_flags::FLUSH_SEQUENCE, ..self.done(0x8200, 4096, DiskOp::Write) };
        self.put(out, 20_000, jbd, done);
        self.flush(out, jbd, commit, 4);
        let done = self.done(0x8200, 0, DiskOp::Write);
        self.put(out, 10, jbd, done);
        self.put(out, 100, jbd, CommitEnd { dev: DISK.0, txn });
        let event = away(away_ns, self.time_ns + 200);
        self.put(out, 2000, tid, event);
        // A concurrent bare flush, as sent by a second fsync with nothing to commit.
        let (op, bytes, pages) = (DiskOp::Flush as u8, 0, 0);
        let bio = BioQueue { op, bytes, pages, ..self.bio(0x400, 0, 0, sync_ns, ctx, bio_flags::PREFLUSH) };
        self.put(out, 100, tid, bio);
        self.flush(out, tid, 0x400, 7);
        self.put(out, 10, jbd, BioDone { bio: 0x400, disk: DISK.0, error: 0 });
        let call = self.call(Call::Fsync, sync_ns, -1, 0);
        self.put(out, 500, tid, call);
        let inside_ns = self.time_ns + 400 - begin_ns;
        let end = OpEnd { key: stmt, start_ns: begin_ns, rows: 0, steps: 1, inside_ns, result: 101, kind: 0 };
        self.put(out, 400, tid, end);
        self.count += 1;
    }
}
