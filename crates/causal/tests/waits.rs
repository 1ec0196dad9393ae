//! Every kind of operation times every kind of wait, wherever in the operation it happens: what the slices show as CPU time and as
//! waiting equals what the thread did, to the nanosecond.
//!
//! The thread's life is generated, and its records are made as the kernel side makes them: an interval's at its end, a sleep's when the
//! thread runs again. Meanwhile another CPU lets time pass, so that a wait longer than the horizon is reported late.

use causal::text::{Rows, link};
use causal::{Config, Sleeps};
use model::event::{
    BioDone, Header, Mark, OffCpu, OpBegin, OpEnd, SyncBegin, Syscall, Task, Wait as WaitRecord, flags, op_kind,
    task_what,
};
use model::{Call, Event, Reason, Record, Wait};
use proptest::prelude::*;
use std::collections::BTreeSet;

const THREAD_ID: u32 = 10;
const HORIZON_NS: u64 = 1_000;
/// A database's WAL, and another file.
const WAL_INODE: u64 = 12;
const OTHER_INODE: u64 = 50;
const FILE_SYSTEM_DEV: u32 = 254 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Operation {
    Statement,
    Function,
    Mark,
    Inferred,
    Call,
}

const ALL_OPERATIONS: [Operation; 5] =
    [Operation::Statement, Operation::Function, Operation::Mark, Operation::Inferred, Operation::Call];

/// Waits that the kernel's word alone explains.
const DECIDING_WAITS: [Wait; 5] = [Wait::Futex, Wait::Timer, Wait::Poll, Wait::Pipe, Wait::Socket];

/// What a thread does for some time.
#[derive(Debug, Clone, Copy)]
enum Part {
    Runs(u64),
    /// Is asleep, then runnable without a CPU; `None`: what for is not known.
    Sleeps(u64, u64, Option<Wait>),
    /// Was preempted.
    Preempted(u64),
}

#[derive(Debug, Clone)]
enum Step {
    /// Outside any recorded call.
    Part(Part),
    Call(Call, Vec<Part>),
    /// Many short calls, so that slices are made before the operation ends.
    Calls(u16),
}

/// How the recording goes on after the operation.
#[derive(Debug, Clone, Copy)]
enum Continuation {
    Nothing,
    ThreadEnds,
    OthersGoOn,
    ThreadGoesOn,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Times {
    cpu_ns: u64,
    run_queue_ns: u64,
    waited_ns: u64,
}

impl Times {
    fn add(&mut self, reason: Reason, ns: u64) {
        *match reason {
            Reason::Cpu => &mut self.cpu_ns,
            Reason::RunQueue => &mut self.run_queue_ns,
            _ => &mut self.waited_ns,
        } += ns;
    }
}

/// A thread, its records, and where its time went.
struct Life {
    now_ns: u64,
    events: Vec<Event>,
    times: Times,
    in_operation: bool,
}

impl Life {
    fn put(&mut self, record: impl Into<Record>) {
        let record = record.into();
        let header =
            Header { time_ns: self.now_ns, kind: record.kind(), tgid: THREAD_ID, tid: THREAD_ID, ..Header::default() };
        self.events.push(Event { header, record });
    }

    fn part(&mut self, part: Part, in_call: u16) {
        let start_ns = self.now_ns;
        let in_op = if self.in_operation { flags::IN_OP } else { 0 };
        let ctx = flags::TRACKED | in_call | in_op;
        match part {
            Part::Runs(ns) => {
                self.now_ns += ns;
                self.times.cpu_ns += ns;
            }
            Part::Sleeps(asleep_ns, runnable_ns, wait) => {
                self.now_ns += asleep_ns + runnable_ns;
                self.times.waited_ns += asleep_ns;
                self.times.run_queue_ns += runnable_ns;
                let wake_ns = start_ns + asleep_ns;
                self.put(OffCpu { start_ns, wake_ns, waker: 0, state: 1, ctx });
                if let Some(wait) = wait {
                    self.put(WaitRecord { start_ns, what: wait.number(), ctx, ..WaitRecord::default() });
                }
            }
            Part::Preempted(ns) => {
                self.now_ns += ns;
                self.times.run_queue_ns += ns;
                self.put(OffCpu { start_ns, wake_ns: 0, waker: 0, state: 0, ctx });
            }
        }
    }

    fn call(&mut self, call: Call, ino: u64, parts: &[Part]) {
        let start_ns = self.now_ns;
        let in_op = if self.in_operation { flags::IN_OP } else { 0 };
        let ctx = flags::TRACKED | flags::REGULAR | in_op;
        if call.syncs() {
            self.put(SyncBegin { ino, dev: FILE_SYSTEM_DEV, call: call as u16, ctx });
        }
        parts.iter().for_each(|part| self.part(*part, flags::IN_SYSCALL));
        let moves = call.reads() || call.writes();
        let bytes = if moves { 4096 } else { 0 };
        self.put(Syscall {
            start_ns,
            ino,
            pos: if moves { 4096 } else { -1 },
            bytes,
            result: bytes as i64,
            dev: FILE_SYSTEM_DEV,
            call: call as u16,
            ctx,
            fd: 3,
            ..Syscall::default()
        });
        // The next call begins after this one ended.
        self.now_ns += 1;
        self.times.cpu_ns += 1;
    }

    fn step(&mut self, step: &Step, ino: u64) {
        match step {
            Step::Part(part) => self.part(*part, 0),
            Step::Call(call, parts) => self.call(*call, ino, parts),
            Step::Calls(n) => (0..*n).for_each(|_| self.call(Call::Pread64, ino, &[Part::Runs(3)])),
        }
    }
}

/// Makes the records of a thread that performs one operation; returns them, the marks first, with the operation's true times.
fn run_operation(operation: Operation, steps: &[Step], then: Continuation) -> (Vec<Event>, Times) {
    let mut life = Life { now_ns: 10_000, events: Vec::new(), times: Times::default(), in_operation: false };
    let mut marks = Vec::new();
    let path = |ino, text: &str| {
        Event::parse(&format!("@5 10/10 file dev={FILE_SYSTEM_DEV} ino={ino} text=\"{text}\"")).unwrap()
    };
    let names = [path(WAL_INODE, "/d/a.db-wal"), path(OTHER_INODE, "/d/log")];
    life.part(Part::Runs(500), 0);
    life.times = Times::default();
    let start_ns = life.now_ns;
    match operation {
        Operation::Statement | Operation::Function => {
            let kind = if operation == Operation::Statement { op_kind::STATEMENT } else { op_kind::FUNCTION };
            life.put(OpBegin { key: 0, kind, depth: 1 });
            life.in_operation = true;
            steps.iter().for_each(|step| life.step(step, OTHER_INODE));
            let inside_ns = life.now_ns - start_ns;
            life.put(OpEnd { key: 0, start_ns, rows: 0, steps: 1, inside_ns, result: 101, kind });
            life.in_operation = false;
        }
        Operation::Mark => {
            steps.iter().for_each(|step| life.step(step, OTHER_INODE));
            let header = Header { time_ns: life.now_ns, tgid: THREAD_ID, tid: THREAD_ID, ..Header::default() };
            marks.push(Event { header, record: Mark { start_ns, text: "m".into(), ..Mark::default() }.into() });
        }
        // Its first call is a write, its last one a sync, with waits of their own.
        Operation::Inferred => {
            let parts = |step: Option<&Step>| match step {
                Some(Step::Call(_, parts)) => parts.clone(),
                Some(Step::Part(part)) => vec![Part::Runs(7), *part, Part::Runs(5)],
                _ => vec![Part::Runs(9)],
            };
            let between = steps.get(1..steps.len().saturating_sub(1)).unwrap_or_default();
            life.call(Call::Pwrite64, WAL_INODE, &parts(steps.first()));
            between
                .iter()
                .filter(|s| !matches!(s, Step::Call(call, _) if call.syncs()))
                .for_each(|s| life.step(s, WAL_INODE));
            life.call(Call::Fdatasync, WAL_INODE, &parts(steps.last()));
            life.times.cpu_ns -= 1;
        }
        Operation::Call => {
            let parts = steps.iter().flat_map(|step| match step {
                Step::Part(part) => vec![*part],
                Step::Call(_, parts) => parts.clone(),
                Step::Calls(n) => vec![Part::Runs(u64::from(*n))],
            });
            life.call(Call::Fsync, OTHER_INODE, &parts.collect::<Vec<_>>());
            life.times.cpu_ns -= 1;
        }
    }
    let times = std::mem::take(&mut life.times);
    let end_ns = life.now_ns;
    match then {
        Continuation::Nothing | Continuation::OthersGoOn => {}
        Continuation::ThreadEnds => {
            life.now_ns += 3;
            life.put(Task { what: task_what::ENDED, ..Task::default() });
        }
        Continuation::ThreadGoesOn => {
            life.part(Part::Runs(40), 0);
            life.call(Call::Pread64, OTHER_INODE, &[Part::Runs(5)]);
        }
    }
    let until_ns =
        if matches!(then, Continuation::OthersGoOn) { end_ns + 10 * HORIZON_NS } else { end_ns.saturating_sub(1) };
    marks.extend(in_order(names, life.events, until_ns));
    (marks, times)
}

/// Puts the records of the thread in order, with those of another CPU, where time passes.
fn in_order(names: impl IntoIterator<Item = Event>, events: Vec<Event>, until_ns: u64) -> Vec<Event> {
    let passes = (0..until_ns).step_by(150).map(|time_ns| {
        let record: Record = BioDone { bio: 1, disk: FILE_SYSTEM_DEV, error: 0 }.into();
        Event { header: Header { time_ns, cpu: 1, kind: record.kind(), ..Header::default() }, record }
    });
    let mut all: Vec<Event> = names.into_iter().chain(events).chain(passes).collect();
    all.sort_by_key(|event| event.header.time_ns);
    all
}

/// A part of a thread's life: the operation that it is in, whether a mark is around that, and what it does.
type Stage = (Option<Operation>, bool, Vec<Step>);

/// Makes the records of a whole life; returns them and its times, with its begin and end.
fn run_life(stages: &[Stage]) -> (Vec<Event>, Times, (u64, u64)) {
    let mut life = Life { now_ns: 10_000, events: Vec::new(), times: Times::default(), in_operation: false };
    let mut marks = Vec::new();
    life.put(Task { what: task_what::FORKED, ..Task::default() });
    // Its first record that says that it is recorded.
    life.part(Part::Runs(50), 0);
    life.call(Call::Pread64, OTHER_INODE, &[Part::Runs(5)]);
    for (operation, is_marked, steps) in stages {
        let marked_ns = life.now_ns;
        let is_run = |of| *operation == Some(of);
        let kind = if is_run(Operation::Statement) { op_kind::STATEMENT } else { op_kind::FUNCTION };
        let is_probed = is_run(Operation::Statement) || is_run(Operation::Function);
        if *is_marked {
            life.part(Part::Runs(20), 0);
        }
        let start_ns = life.now_ns;
        if is_probed {
            life.put(OpBegin { key: 0, kind, depth: 1 });
            life.in_operation = true;
        }
        steps.iter().for_each(|step| life.step(step, OTHER_INODE));
        life.part(Part::Runs(1), 0);
        if is_probed {
            let inside_ns = life.now_ns - start_ns;
            life.put(OpEnd { key: 0, start_ns, rows: 0, steps: 1, inside_ns, result: 101, kind });
            life.in_operation = false;
        }
        life.part(Part::Runs(3), 0);
        if *is_marked {
            let header = Header { time_ns: life.now_ns, tgid: THREAD_ID, tid: THREAD_ID, ..Header::default() };
            let record = Mark { start_ns: marked_ns, text: "m".into(), ..Mark::default() };
            marks.push(Event { header, record: record.into() });
            life.part(Part::Runs(2), 0);
        }
    }
    life.put(Task { what: task_what::ENDED, ..Task::default() });
    let ends = (10_000, life.now_ns);
    marks.extend(in_order([], life.events, ends.1 + 10 * HORIZON_NS));
    (marks, life.times, ends)
}

fn stage() -> impl Strategy<Value = Stage> {
    let operation = prop::option::of(prop::sample::select(&[Operation::Statement, Operation::Function][..]));
    (operation, prop::bool::weighted(0.3), prop::collection::vec(step(), 0..4))
}

fn config(operation: Operation) -> Config {
    let functions = if operation == Operation::Function { vec!["work".into()] } else { Vec::new() };
    let tells = operation == Operation::Statement;
    let with_statements = Some(if tells { BTreeSet::from([THREAD_ID]) } else { BTreeSet::new() });
    Config { horizon_ns: HORIZON_NS, functions, with_statements, ..Config::default() }
}

fn shown_times(rows: &Rows) -> Times {
    let mut times = Times::default();
    rows.slices.iter().for_each(|slice| times.add(slice.reason, slice.end_ns - slice.start_ns));
    times
}

fn check_times(operation: Operation, steps: &[Step], then: Continuation) -> Result<(), TestCaseError> {
    let (events, times) = run_operation(operation, steps, then);
    let rows = link(config(operation), events);
    prop_assert_eq!(rows.operations.len(), 1, "{:?}", rows.operations);
    prop_assert_eq!(shown_times(&rows), times, "{}", rows.to_text());
    Ok(())
}

fn part() -> impl Strategy<Value = Part> {
    let wait = prop::option::of(prop::sample::select(Wait::ALL));
    prop_oneof![
        3 => (1u64..200).prop_map(Part::Runs),
        3 => (1u64..10 * HORIZON_NS, 0u64..100, wait).prop_map(|(asleep, runnable, wait)| Part::Sleeps(asleep, runnable, wait)),
        1 => (1u64..300).prop_map(Part::Preempted),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let call = prop::sample::select(&[Call::Pread64, Call::Pwrite64, Call::Fdatasync, Call::Ftruncate][..]);
    prop_oneof![
        4 => part().prop_map(Step::Part),
        4 => (call, prop::collection::vec(part(), 1..4)).prop_map(|(call, parts)| Step::Call(call, parts)),
        1 => (1u16..600).prop_map(Step::Calls),
    ]
}

const ALL_CONTINUATIONS: [Continuation; 4] =
    [Continuation::Nothing, Continuation::ThreadEnds, Continuation::OthersGoOn, Continuation::ThreadGoesOn];

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn slices_are_what_thread_did(
        operation in prop::sample::select(&ALL_OPERATIONS[..]),
        steps in prop::collection::vec(step(), 1..7),
        then in prop::sample::select(&ALL_CONTINUATIONS[..]),
    ) {
        check_times(operation, &steps, then)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whether its calls are operations by themselves, marks are or are not, and however long a wait is.
    #[test]
    fn slices_and_times_outside_are_the_whole_life(
        stages in prop::collection::vec(stage(), 1..6),
        has_statements in any::<bool>(),
    ) {
        let (events, times, (start_ns, end_ns)) = run_life(&stages);
        let with_statements = Some(has_statements.then_some(THREAD_ID).into_iter().collect());
        let rows = link(Config { horizon_ns: HORIZON_NS, with_statements, ..Config::default() }, events);
        let mut shown = shown_times(&rows);
        for sums in &rows.thread_times {
            prop_assert!(sums.longest_ns <= sums.ns && sums.times > 0 && sums.ns <= sums.end_ns - sums.start_ns);
            shown.add(sums.reason, sums.ns);
        }
        prop_assert_eq!(&shown, &times, "{}", rows.to_text());
        prop_assert_eq!(shown.cpu_ns + shown.run_queue_ns + shown.waited_ns, end_ns - start_ns);
        // What a sleep outside any call is for, if the kernel tells, is not lost however long it is.
        let idle = stages.iter().filter(|(operation, is_marked, _)| operation.is_none() && !is_marked);
        let idle = idle.flat_map(|(.., steps)| steps).filter_map(|step| match step {
            Step::Part(Part::Sleeps(ns, _, Some(wait))) => Some((*wait, *ns)),
            _ => None,
        });
        let idle: u64 = idle.filter(|(wait, _)| DECIDING_WAITS.contains(wait)).map(|(_, ns)| ns).sum();
        let outside = rows.thread_times.iter().filter(|t| t.call.is_none());
        let named: u64 = outside.filter(|t| t.wait.is_some_and(|w| DECIDING_WAITS.contains(&w))).map(|t| t.ns).sum();
        prop_assert_eq!(named, idle, "{:?}", rows.thread_times);
    }
}

/// Each pair once, at the begin, in the middle and at the end, in a call and outside.
#[test]
fn every_wait_in_every_operation_is_waiting() {
    let runs = Step::Part(Part::Runs(100));
    for operation in ALL_OPERATIONS {
        for wait in Wait::ALL.iter().copied().map(Some).chain([None]) {
            for place in 0..3 {
                for long_ns in [50, 20 * HORIZON_NS] {
                    let sleep = Part::Sleeps(long_ns, 4, wait);
                    for slept in
                        [Step::Part(sleep), Step::Call(Call::Fdatasync, vec![Part::Runs(2), sleep, Part::Runs(3)])]
                    {
                        let mut steps = vec![runs.clone(); 3];
                        steps[place] = slept;
                        for then in ALL_CONTINUATIONS {
                            check_times(operation, &steps, then)
                                .unwrap_or_else(|why| panic!("{operation:?}, {wait:?} at {place}, {then:?}: {why}"));
                        }
                    }
                }
            }
        }
    }
}

/// Without the scheduler's records nothing is known to have been on the CPU.
#[test]
fn unrecorded_sleeps_are_not_cpu_time() {
    let steps =
        [Step::Part(Part::Runs(100)), Step::Call(Call::Pwrite64, vec![Part::Runs(9)]), Step::Part(Part::Runs(50))];
    for operation in ALL_OPERATIONS {
        let (events, times) = run_operation(operation, &steps, Continuation::OthersGoOn);
        let rows = |sleeps| link(Config { sleeps, ..config(operation) }, events.clone());
        let all_ns = times.cpu_ns;
        assert_eq!(
            shown_times(&rows(Sleeps::Unrecorded)),
            Times { waited_ns: all_ns, ..Times::default() },
            "{operation:?}"
        );
        let unknown_ns = match operation {
            Operation::Mark => 151,
            Operation::Inferred => 2,
            _ => 0,
        };
        let older = Times { cpu_ns: all_ns - unknown_ns, waited_ns: unknown_ns, ..Times::default() };
        assert_eq!(shown_times(&rows(Sleeps::InOperations)), older, "{operation:?}");
    }
}

/// A program may map the memory for its marks late, or never: what it did before is not known.
#[test]
fn sleeps_before_marks_are_mapped_are_not_cpu_time() {
    let steps = [Step::Part(Part::Runs(100)), Step::Call(Call::Pwrite64, vec![Part::Runs(9)])];
    let (events, times) = run_operation(Operation::Mark, &steps, Continuation::OthersGoOn);
    let rows = |marks_from_ns| link(Config { marks_from_ns, ..config(Operation::Mark) }, events.clone());
    assert_eq!(shown_times(&rows(Some(10_000))), times, "mapped before it began");
    for late in [Some(10_501), None] {
        let unknown_ns = 101;
        let known = Times { cpu_ns: times.cpu_ns - unknown_ns, waited_ns: unknown_ns, ..Times::default() };
        assert_eq!(shown_times(&rows(late)), known, "{late:?}");
    }
}
