//! Which records end an operation: an execution of a statement or function, or, in processes without statements, a call that waits for
//! the disk.
//!
//! *Uncertainty*: the linker, which sees a whole recording, does not count reads that found their data without sleeping, nor calls before
//! a process's first statement. Such calls are counted here, and are fast.

use crate::observed::syscall_offset;
use model::event::{Header, OpBegin, OpEnd, Record, Syscall, Task, flags, op_kind, task_what};
use model::{Call, Event};
use std::collections::HashSet;

const OP_BEGIN_KIND: u8 = OpBegin::INFO.kind;
const OP_END_KIND: u8 = OpEnd::INFO.kind;
const SYSCALL_KIND: u8 = Syscall::INFO.kind;
const TASK_KIND: u8 = Task::INFO.kind;

const START_OFFSET: usize = syscall_offset("start_ns");
const CACHE_ADDED_OFFSET: usize = syscall_offset("cache_added");
const CALL_OFFSET: usize = syscall_offset("call");
const CTX_OFFSET: usize = syscall_offset("ctx");

/// Of an execution that was displaced, or left other than by returning, the kind is not one of these.
const ENDED_KINDS: [u32; 2] = [op_kind::STATEMENT, op_kind::FUNCTION];

/// Maximum number of processes known to run statements; of more, calls are counted in addition to the statements around them.
const PROCESSES_MAX: usize = 1 << 16;

/// An operation that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedOperation {
    pub tgid: u32,
    pub tid: u32,
    pub start_ns: u64,
    pub end_ns: u64,
}

impl EndedOperation {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

#[derive(Debug)]
pub struct Detector {
    /// Functions are operations, and calls are not.
    has_functions: bool,
    with_statements: HashSet<u32>,
}

impl Detector {
    pub fn new(has_functions: bool) -> Self {
        Self { has_functions, with_statements: HashSet::new() }
    }

    /// Returns the operation that ends with this record, if one does.
    pub fn observe(&mut self, header: &Header, record: &[u8]) -> Option<EndedOperation> {
        match header.kind {
            SYSCALL_KIND => self.call(header, record),
            OP_END_KIND => Self::execution(header, record),
            OP_BEGIN_KIND if !self.has_functions && self.with_statements.len() < PROCESSES_MAX => {
                self.with_statements.insert(header.tgid);
                None
            }
            TASK_KIND if header.tid == header.tgid && self.with_statements.contains(&header.tgid) => {
                if let Some(Record::Task(task)) = Event::decode(record).map(|event| event.record)
                    && [task_what::ENDED, task_what::EXECUTED].contains(&task.what)
                {
                    self.with_statements.remove(&header.tgid);
                }
                None
            }
            _ => None,
        }
    }

    fn execution(header: &Header, record: &[u8]) -> Option<EndedOperation> {
        let Record::OpEnd(end) = Event::decode(record)?.record else { return None };
        ENDED_KINDS.contains(&end.kind).then(|| ended(header, end.start_ns))
    }

    /// Not decoded: there may be hundreds of thousands per second.
    fn call(&self, header: &Header, record: &[u8]) -> Option<EndedOperation> {
        let half = |at: usize| record.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes));
        let (ctx, call, added) = (half(CTX_OFFSET)?, half(CALL_OFFSET)?, half(CACHE_ADDED_OFFSET)?);
        if ctx & (flags::TRACKED | flags::TRACER | flags::IN_OP) != flags::TRACKED || self.has_functions {
            return None;
        }
        let call = Call::from_number(call)?;
        let waits = call.syncs()
            || call.writes() && ctx & (flags::SYNC_FILE | flags::DIRECT) != 0
            || call.reads() && (added > 0 || ctx & flags::DIRECT != 0);
        if !waits || self.with_statements.contains(&header.tgid) {
            return None;
        }
        let start_ns = u64::from_le_bytes(*record.get(START_OFFSET..)?.first_chunk()?);
        Some(ended(header, start_ns))
    }
}

fn ended(header: &Header, start_ns: u64) -> EndedOperation {
    EndedOperation { tgid: header.tgid, tid: header.tid, start_ns, end_ns: header.time_ns }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(detector: &mut Detector, line: &str) -> Option<(u64, u64)> {
        let event = Event::parse(line).unwrap();
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        detector.observe(&event.header, &bytes).map(|ended| (ended.start_ns, ended.duration_ns()))
    }

    fn call(at: u64, tgid: u32, call: Call, ctx: u16, added: u16) -> String {
        let (start, call) = (at - 5, call as u16);
        format!("@{at} {tgid} syscall start_ns={start} call={call} ctx={ctx} cache_added={added}")
    }

    #[test]
    fn calls_that_wait_for_the_disk_are_operations() {
        let mut detector = Detector::new(false);
        let tracked = flags::TRACKED;
        for (name, ctx, added, counts) in [
            (Call::Fsync, tracked, 0, true),
            (Call::Fsync, 0, 0, false),
            (Call::Fsync, tracked | flags::TRACER, 0, false),
            (Call::Fsync, tracked | flags::IN_OP, 0, false),
            (Call::Write, tracked, 0, false),
            (Call::Pwrite64, tracked | flags::SYNC_FILE, 0, true),
            (Call::Pread64, tracked, 0, false),
            (Call::Pread64, tracked, 2, true),
        ] {
            let seen = observe(&mut detector, &call(20, 7, name, ctx, added));
            assert_eq!(seen, counts.then_some((15, 5)), "{name:?} {ctx} {added}");
        }
    }

    #[test]
    fn process_with_statements_has_no_calls_until_it_ends() {
        let mut detector = Detector::new(false);
        assert_eq!(observe(&mut detector, "@1 7 op_begin key=1"), None);
        assert_eq!(observe(&mut detector, &call(20, 7, Call::Fsync, flags::TRACKED, 0)), None);
        assert_eq!(observe(&mut detector, "@30 7 op_end key=1 start_ns=1"), Some((1, 29)));
        assert_eq!(observe(&mut detector, "@30 7 op_end key=1 start_ns=1 kind=3"), None, "it goes on");
        assert!(observe(&mut detector, &call(40, 8, Call::Fsync, flags::TRACKED, 0)).is_some());
        assert_eq!(observe(&mut detector, "@50 7 task what=2"), None);
        assert!(observe(&mut detector, &call(60, 7, Call::Fsync, flags::TRACKED, 0)).is_some());
    }

    #[test]
    fn with_functions_calls_are_no_operations() {
        let mut detector = Detector::new(true);
        assert_eq!(observe(&mut detector, &call(20, 7, Call::Fsync, flags::TRACKED, 0)), None);
        assert_eq!(observe(&mut detector, "@30 7 op_end key=0 kind=1 start_ns=1"), Some((1, 29)));
    }
}
