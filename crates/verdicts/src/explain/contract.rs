//! The contract of `fathom explain --json`: what a program may rely on.
//!
//! As in [`analysis::contract`], names and shapes change only together with [`VERSION`]. Times are ns, shares from 0 to 1, intervals
//! `[low, high]` of 0.95. Unknown values are null.

use analysis::caveats::Caveats;
use analysis::contract::{SlowWait, Summary};
use model::{FindingCode, Layer, Reason, Wait};
use serde::Serialize;

/// Version of this contract.
pub const VERSION: u32 = 1;

/// The causes of lost time in a recording's statements.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Explanation {
    /// [`VERSION`].
    pub version: u32,
    /// Sorted by saving, by the lower bound of its interval; findings that only report where time goes come after their cause;
    /// those that cast doubt on the recording itself come first.
    pub findings: Vec<Finding>,
    /// What cannot be claimed from this recording. Where times cannot be relied on, no finding has a saving.
    pub caveats: Caveats,
    /// Finished executions of all operations; without any there is nothing to explain.
    pub executions: u64,
    /// Time of all executions; nested ones count as part of the outer ones.
    pub latency_ns: u64,
    /// Where that time went, whether or not a finding names it.
    pub account: Account,
    /// Where the time of the threads went that is in none of them: between them, and all of it in a program without any.
    pub between: Between,
}

/// A recording's summary with where the time went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AccountedSummary {
    /// Its contract is that of the analysis, with its version.
    #[serde(flatten)]
    pub summary: Summary,
    /// [`Explanation::account`].
    pub account: Account,
    /// [`Explanation::between`].
    pub between: Between,
}

/// A partition of the time in which threads were seen: the operations, what `leaves` have and what is unaccounted add up to the whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Between {
    /// Sum over all threads, each from the first to the last thing that it was seen to do.
    pub whole_ns: u64,
    /// The threads.
    pub threads: u64,
    /// Their time in outermost operations, which [`Explanation::account`] divides.
    pub operations_ns: u64,
    /// The parts outside operations, the largest first.
    pub leaves: Vec<BetweenLeaf>,
    /// Time in neither: in operations that did not end, and where the scheduler's records are missing.
    pub unaccounted_ns: u64,
}

/// What threads did outside their operations.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BetweenLeaf {
    /// Its name, as that of a [`Leaf`].
    pub id: String,
    /// What it was, as it follows "of the time": `runs in the kernel, in pread64`.
    pub what: String,
    /// The layer, of time on a CPU and of sleeps whose reason is not known.
    pub layer: Option<Layer>,
    /// As in the table `thread_times`.
    pub reason: Reason,
    /// The wait, where the kernel shows it.
    pub wait: Option<Wait>,
    /// The system call, of time in the kernel.
    pub call: Option<String>,
    /// The time.
    pub ns: u64,
    /// Its share of [`Between::whole_ns`].
    pub share: f64,
    /// Whether it is listed by itself: it has 2 %, or is the largest, and the time outside operations has 5 %.
    pub listed: bool,
    /// The interval of that share, for this recording.
    pub interval: Option<[f64; 2]>,
    /// What a remedy can save at most.
    pub saves_at_most_ns: u64,
    /// Number of pieces.
    pub times: u64,
    /// Threads that have some of it.
    pub threads: u64,
    /// The process that has most of it.
    pub tgid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// Who ended the waits, the longest first: at most five.
    pub by: Vec<WaitEnder>,
    /// The longest piece.
    pub longest_ns: u64,
    /// The span that it waited for or ran in.
    pub longest_span: Option<u64>,
    /// Stacks during these sleeps, from a sample, the longest first: at most three.
    pub slow_waits: Vec<SlowWait>,
}

/// For whom the device flushed, or the file system committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Whose {
    /// The process has a part in it.
    Own,
    /// Others alone have.
    Others,
}

/// A partition of the time of the outermost executions: what `leaves` have and what is unaccounted add up to the whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Account {
    /// The time that is divided: [`Explanation::latency_ns`].
    pub whole_ns: u64,
    /// The outermost executions: those inside others are part of them.
    pub executions: u64,
    /// The parts, the largest first.
    pub leaves: Vec<Leaf>,
    /// Time in no slice.
    pub unaccounted_ns: u64,
}

/// A part of the time: what the thread did or waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Leaf {
    /// Its name, for `fathom whatif --without`: `timer`, `flush:others`, `cpu:Syscall:pread64`.
    pub id: String,
    /// All that in words, as it follows "of the time": `waits for a futex, ended by worker (PID 7)`.
    pub what: String,
    /// The layer, of time on a CPU and of sleeps whose reason is not known; null for others, whose reason says it.
    pub layer: Option<Layer>,
    /// As in the table `slices`.
    pub reason: Reason,
    /// The wait, where the kernel shows it.
    pub wait: Option<Wait>,
    /// The system call or the file system's work, of time in the kernel.
    pub call: Option<String>,
    /// For whom the flush or the commit was, or the requests in front of its own; null for other waits.
    pub whose: Option<Whose>,
    /// The time.
    pub ns: u64,
    /// Its share of the whole.
    pub share: f64,
    /// What a remedy can save at most.
    pub saves_at_most_ns: u64,
    /// Codes of the findings that name it, or a part of it.
    pub findings: Vec<FindingCode>,
    /// Whether it is listed by itself, and not with the rest: it has a tenth, or is one of the three largest and has 2 %.
    pub listed: bool,
    /// The interval of that share, for this recording.
    pub interval: Option<[f64; 2]>,
    /// Executions that have some of it, of [`Account::executions`].
    pub executions: u64,
    /// The statement, mark, function or call that has most of it.
    pub statement: Option<String>,
    /// How much that has.
    pub statement_ns: u64,
    /// Who ended the waits, the longest first: at most five.
    pub by: Vec<WaitEnder>,
    /// The longest piece.
    pub longest_ns: u64,
    /// Its span.
    pub longest_span: Option<u64>,
    /// Stacks during these sleeps, from a sample, the longest first: at most three.
    pub slow_waits: Vec<SlowWait>,
}

/// Who held the lock, or ended the wait.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WaitEnder {
    /// Path of the locked file.
    pub file: Option<String>,
    /// The process.
    pub tgid: Option<u32>,
    /// Its name.
    pub process: Option<String>,
    /// The statement, function or call that it was in.
    pub statement: Option<String>,
    /// Number of pieces.
    pub times: u64,
    /// Their time.
    pub ns: u64,
    /// The longest time from the start of the operation that it was in to the end of a wait; null if it was in none.
    pub since_ns: Option<u64>,
}

/// A statement's part of a finding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FindingStatement {
    /// Its text.
    pub statement: String,
    /// Its executions with the finding.
    pub executions: u64,
    /// All its executions.
    pub of: u64,
    /// The time concerned; null if unknown.
    pub time_ns: Option<u64>,
}

/// A conclusion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Finding {
    /// Code of the finding: `F01`.
    pub code: FindingCode,
    /// Title in words.
    pub title: String,
    /// The statement concerned; absent if the finding is about the whole recording.
    pub statement: Option<String>,
    /// All statements with the same cause and the same remedy, the one with most of its time first; `statement` is the first.
    pub statements: Vec<FindingStatement>,
    /// The finding, with its numbers; those of the first statement, if there are several.
    pub claim: String,
    /// Executions of the statement with the finding.
    pub executions: u64,
    /// Executions of the statement.
    pub of: u64,
    /// The time concerned, over all executions.
    pub time_ns: Option<u64>,
    /// Its share of the statement's time.
    pub share: Option<f64>,
    /// The interval of that share, for this recording.
    pub interval: Option<[f64; 2]>,
    /// Its share of the time of all statements.
    pub share_of_all: Option<f64>,
    /// The parts of the account that it names: positions in [`Account::leaves`], those with most of its time first.
    pub leaves: Vec<usize>,
    /// Upper bound of what the remedy can save, never more than those parts hold; absent if unknown.
    pub saving_ns: Option<u64>,
    /// The interval of that saving, for this recording.
    pub saving_interval_ns: Option<[u64; 2]>,
    /// The remedy.
    pub remedy: String,
    /// Spans as evidence (`spans.id`), the longest first.
    pub evidence: Vec<u64>,
    /// Stacks of the threads during these sleeps, from a sample of sleeps (facts `stacks.*`): times are the part that the finding
    /// concerns.
    pub slow_waits: Vec<SlowWait>,
}
