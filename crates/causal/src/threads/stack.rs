//! The stack of operations of each thread (see `threads`): what it is in now, and what follows for its activity.
//!
//! Types only, independent of records and rows. `threads` pushes and pops frames, `exclusive` makes the slices.

use super::outside::Outside;
use crate::activity::TimeSlice;
use crate::actor::Actor;
use crate::blocked::KernelWait;
use crate::{Config, Sleeps};
use model::Call as CallName;
use model::event::flags;
use model::table::Span;
use std::collections::VecDeque;

/// Maximum number of periods off the CPU kept for a thread that is in no frame: in one call, many waits are short, and long ones few.
const IDLE_OFF_CPU_MAX: usize = 64;

/// The kind of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Statement,
    Function,
    Mark,
    /// A transaction that was inferred: see `inferred`.
    Inferred,
    /// A system call that is an operation: see `alone`.
    Call,
}

/// An operation or mark on a thread's stack.
#[derive(Debug)]
pub(crate) struct Frame {
    pub id: u64,
    pub span: u64,
    /// The operation inside which it began; 0: none.
    pub parent: u64,
    pub kind: Kind,
    /// Nesting as in its begin record, 1 being the outermost; marks and guesses have 0, since they are around whatever begins
    /// on top of them.
    pub depth: u32,
    pub key: u64,
    pub start_ns: u64,
    /// Known beforehand for a mark and for a call that is an operation; for an inferred transaction from its last call on.
    /// `u64::MAX`: not known.
    pub end_ns: u64,
    pub name: String,
    pub nth: u64,
    /// What a system call returned.
    pub result: Option<i64>,
    pub cpu: u16,
    /// A statement or function began inside it.
    pub opened: bool,
    /// A mark or call that is an operation in any case, since rows with it were written.
    pub decided: bool,
    /// Which of its thread's sleeps were recorded.
    pub sleeps: Sleeps,
    pub held: Vec<Span>,
    pub slices: Vec<TimeSlice>,
    /// The first of its slices have been written.
    pub flushed: bool,
    /// The part of those that was the application's, between rows.
    pub flushed_app_ns: u64,
}

impl Frame {
    /// Creates a frame for this operation and span, which begins now, at the bottom, and of which nothing else is known.
    pub(crate) fn new(kind: Kind, id: u64, span: u64, start_ns: u64) -> Self {
        Self {
            id,
            span,
            parent: 0,
            kind,
            depth: 0,
            key: 0,
            start_ns,
            end_ns: u64::MAX,
            name: String::new(),
            nth: 0,
            result: None,
            cpu: 0,
            opened: false,
            decided: true,
            sleeps: Sleeps::All,
            held: Vec::new(),
            slices: Vec::new(),
            flushed: false,
            flushed_app_ns: 0,
        }
    }

    /// Whether current activity is charged to it.
    pub(crate) fn is_operation(&self) -> bool {
        self.kind != Kind::Mark || self.decided || !self.opened
    }

    /// Whether it is a mark (no operation if a statement or function begins in it) or a call (none if it did not wait) not decided
    /// yet.
    pub(crate) fn is_undecided(&self) -> bool {
        matches!(self.kind, Kind::Mark | Kind::Call) && !self.decided && !self.opened
    }

    /// Whether something that its thread begins at `time_ns` may be inside it. For a call, only its times decide.
    pub(crate) fn covers(&self, time_ns: u64) -> bool {
        self.start_ns <= time_ns && (self.kind != Kind::Call || time_ns < self.end_ns)
    }

    /// Whether its begin has a record; not so for marks, which are a single record, and for guesses.
    pub(crate) fn is_probed(&self) -> bool {
        matches!(self.kind, Kind::Statement | Kind::Function)
    }

    /// Whether it was not recorded, only inferred.
    pub(crate) fn is_guess(&self) -> bool {
        self.kind == Kind::Inferred
    }

    /// Whether a call belongs to it. An inferred frame has only calls known to belong to it (`guess`).
    pub(crate) fn may_be(&self, guess: Option<u64>) -> bool {
        !self.is_guess() || guess == Some(self.id)
    }

    /// Whether it was running, or a mark, when something at this nesting began; if not, the two are siblings.
    pub(crate) fn is_around(&self, depth: u32) -> bool {
        self.depth < depth
    }

    /// Whether `later`, which began on the same thread after it, began between its rows.
    pub(crate) fn waits_for(&self, later: &Frame) -> bool {
        self.kind == Kind::Statement && later.kind != Kind::Mark && !self.is_around(later.depth)
    }

    /// Whether a thread in this context is inside it, and not merely between its rows.
    pub(crate) fn runs(&self, ctx: u16) -> bool {
        self.kind != Kind::Statement || ctx & flags::BETWEEN_ROWS == 0
    }
}

/// The system call a thread is in, or was in last.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub start_ns: u64,
    /// `u64::MAX`: not known yet.
    pub end_ns: u64,
    pub span: u64,
    pub fs_span: u64,
    pub actor: Actor,
    pub call: Option<CallName>,
    pub dev: u32,
    pub ino: u64,
    pub cpu: u16,
    pub ctx: u16,
    /// Its record has arrived; if not, it is known only because other records named it.
    pub seen: bool,
    /// Its ranges come from `fs_write`, which is more precise than its record.
    pub wrote: bool,
}

impl Call {
    /// Returns the inferred transaction that it belongs to; 0: none.
    pub(crate) fn transaction(&self) -> u64 {
        if self.actor.guess { self.actor.operation } else { 0 }
    }

    /// Returns the span that the call's effects are linked to.
    pub(crate) fn deepest(&self) -> u64 {
        if self.fs_span != 0 { self.fs_span } else { self.span }
    }
}

/// A system call of a thread that has an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallSegment {
    pub start_ns: u64,
    pub end_ns: u64,
    pub fs_start_ns: u64,
    pub fs_end_ns: u64,
    pub span: u64,
    pub fs_span: u64,
    pub call: Option<CallName>,
    pub dev: u32,
    pub ino: u64,
    pub ctx: u16,
    /// The inferred transaction that it belongs to; 0: none.
    pub transaction: u64,
}

/// A lock that the thread was denied, or waits for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RefusedLock {
    pub at_ns: u64,
    pub blocked: KernelWait,
}

/// A period off the CPU.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffCpuPeriod {
    pub start_ns: u64,
    pub end_ns: u64,
    /// When it was woken; `start_ns` if it was only preempted.
    pub wake_ns: u64,
    pub in_call: bool,
    /// The application slept, between the rows of a statement.
    pub between_rows: bool,
    pub blocked: Option<KernelWait>,
    /// Maximum time for which its cgroups had no CPU quota left.
    pub throttled_ns: u64,
}

/// A thread that is recorded.
#[derive(Debug, Default)]
pub(crate) struct Thread {
    pub tgid: u32,
    pub tid: u32,
    pub frames: Vec<Frame>,
    pub call: Option<Call>,
    pub before: Option<Call>,
    /// Time up to which slices were made; what follows is kept below.
    pub cursor_ns: u64,
    /// When it was last seen to run: it may have been asleep since, which is recorded when it runs again.
    pub ran_ns: u64,
    pub calls: VecDeque<CallSegment>,
    pub off_cpu: VecDeque<OffCpuPeriod>,
    /// The lock that it last requested and did not get.
    pub refused: Option<RefusedLock>,
    /// When it began, if that was seen.
    pub born_ns: Option<u64>,
    /// Its time outside operations.
    pub outside: Outside,
}

impl Thread {
    /// Returns the frame that work done now in this context, outside any call, belongs to: never a guess, which has only
    /// calls.
    pub(crate) fn operation(&self, ctx: u16) -> Option<&Frame> {
        self.operation_at(u64::MAX, ctx, None)
    }

    /// Returns the frame that work begun at `time_ns` belongs to; `guess` is an inferred one known to contain it.
    pub(crate) fn operation_at(&self, time_ns: u64, ctx: u16, guess: Option<u64>) -> Option<&Frame> {
        let within = |f: &&Frame| f.is_operation() && f.runs(ctx) && f.covers(time_ns) && f.may_be(guess);
        self.frames.iter().rev().find(within)
    }

    /// Prepares for its first frame, which begins at `start_ns`: a sleep in a call that is longer than the horizon is reported before the
    /// call that it is in.
    pub(crate) fn begins(&mut self, start_ns: u64, cursor_ns: u64) {
        // What was outside is not repeated.
        self.cursor_ns = cursor_ns.max(self.outside.until_ns());
        self.calls.retain(|c| c.end_ns > start_ns);
        self.off_cpu.retain(|a| a.end_ns > start_ns);
    }

    /// From the first record on that shows that its process is recorded, its time outside operations is summed up.
    pub(crate) fn sum_outside(&mut self, at_ns: u64, config: &Config) {
        if !self.outside.is_on() {
            self.outside.begin(config);
            if self.frames.is_empty() {
                self.cursor_ns = self.born_ns.map_or(at_ns, |born_ns| born_ns.min(at_ns));
            }
        }
    }

    /// Whether something that it did has no slices yet.
    pub(crate) fn is_pending(&self) -> bool {
        !self.calls.is_empty() || !self.off_cpu.is_empty() || self.call.is_some_and(|c| !c.seen)
    }

    /// Records that it was running.
    pub(crate) fn ran(&mut self, time_ns: u64) {
        self.ran_ns = self.ran_ns.max(time_ns);
    }

    /// Records a call.
    pub(crate) fn on_call(&mut self, call: CallSegment) {
        let is_needed = !self.frames.is_empty() || self.outside.is_on();
        if !is_needed || call.end_ns <= call.start_ns {
            return;
        }
        let at = self.calls.partition_point(|c| c.start_ns <= call.start_ns);
        self.calls.insert(at, call);
    }

    /// Records a period off the CPU.
    pub(crate) fn on_off_cpu(&mut self, start_ns: u64, wake_ns: u64, end_ns: u64, state: u16, ctx: u16) {
        if end_ns <= start_ns {
            return;
        }
        if self.frames.is_empty() && !self.outside.is_on() && self.off_cpu.len() >= IDLE_OFF_CPU_MAX {
            self.off_cpu.pop_front();
        }
        let wake_ns = match (state, wake_ns) {
            (0, _) => start_ns,
            // That it slept is certain, that it waited for a CPU is not.
            (_, 0) => end_ns,
            (_, seen) => seen.clamp(start_ns, end_ns),
        };
        let at = self.off_cpu.partition_point(|a| a.start_ns <= start_ns);
        self.off_cpu.insert(
            at,
            OffCpuPeriod {
                start_ns,
                end_ns,
                wake_ns,
                in_call: ctx & flags::IN_SYSCALL != 0,
                between_rows: ctx & flags::BETWEEN_ROWS != 0,
                blocked: None,
                throttled_ns: 0,
            },
        );
    }

    /// Whether it made calls on files in between, as far back as calls are kept.
    pub(crate) fn called_between(&self, from_ns: u64, to_ns: u64) -> bool {
        self.calls.iter().any(|c| c.start_ns > from_ns && c.start_ns < to_ns)
    }

    /// Returns the topmost operation that was recorded, not inferred.
    pub(crate) fn recorded_operation(&self) -> Option<&Frame> {
        self.operation_at(u64::MAX, 0, None)
    }
}

/// What surrounds something: the operation, if any, and the nearest span (which may be a mark's).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Surroundings {
    pub operation: Option<u64>,
    pub span: u64,
    pub start_ns: u64,
    /// The operation is an inferred one.
    pub guess: bool,
}

impl Surroundings {
    /// Returns the operation, and whether it is a guess.
    pub(crate) fn charged(&self) -> Option<(u64, bool)> {
        Some((self.operation?, self.guess))
    }
}
