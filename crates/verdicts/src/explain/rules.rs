//! The findings, one function each. docs/guide/explain.md describes for each its meaning, its detection and the remedy.

use super::contract::Finding;
use super::facts::{Culprit, Facts, TimeCategory};
use super::{FindingDraft, Statement, latency, median};
use crate::diff::lost_records;
use analysis::blind;
use analysis::completeness::lost_at_unknown_time;
use analysis::rows::{Index, Rows};
use analysis::text::{bytes, count, duration};
use analysis::tracer;
use model::{Absence, FindingCode, Layer, ShapeKind, Wait, counted};
use sqlite::{FileClass, classify_path};
use std::collections::HashSet;

/// The share of executions from which on a behaviour of a statement is typical.
pub(super) const TYPICAL_SHARE_MIN: f64 = 0.5;
/// Executions from which on flushes are repeated: a program that commits once has to flush once.
const REPEATED_EXECUTIONS_MIN: usize = 3;
/// The share of all time from which on even a single execution's is named.
const ONE_OFF_SHARE_MIN: f64 = 0.2;
/// Consecutive statements, each its own transaction, from which on they are a loop.
const LOOP_EXECUTIONS_MIN: usize = 10;
/// Executions from which on a few slow ones are a tail.
const TAIL_EXECUTIONS_MIN: usize = 20;
/// An execution is in the tail if it takes this many times the median.
const TAIL_RATIO: u64 = 2;
/// With this many times the median's device commands an execution is slow because of its work, not because of the device.
const SAME_WORK_RATIO_MAX: f64 = 1.5;
/// Bytes written to the device per byte written to files from which on the amplification is reported.
const AMPLIFICATION_MIN: f64 = 4.0;
/// The file system's own share of the device's writes from which on it is reported.
const OWN_WRITES_SHARE_MIN: f64 = 0.2;

/// The quota's share of the time waiting for a CPU from which on it is reported, and from which on it is the cause.
const QUOTA_REPORTED_SHARE_MIN: f64 = 0.1;
const QUOTA_CAUSE_SHARE_MIN: f64 = 0.5;

/// Device records that may be lost without a finding, as a fraction of its commands.
const HARMLESS_LOSS_SHARE: f64 = 0.01;

/// Returns all findings of a statement.
pub(super) fn find_in_statement(index: &Index, facts: &Facts, statement: &Statement) -> Vec<FindingDraft> {
    let case = Case { index, facts, statement };
    let found = [
        case.journal_of_journal(),
        case.journal_file_per_transaction(),
        case.fdatasync_with_full_commit(),
        case.several_flushes_per_commit(),
        case.flush_behind_others(),
        case.dominant_flush(),
        case.foreign_pages(),
        case.queue_longer_than_device(),
        case.device_tail(),
        case.autocommit_loop(),
        case.checkpoint_stall(),
        case.prepare_per_execution(),
        case.write_amplification(),
        case.scheduling_delay(),
        case.forced_checkpoint(),
        case.lock_wait(),
        case.dirty_throttling(),
    ];
    found.into_iter().flatten().collect()
}

/// Drawback of a WAL for transactions with several databases (sqlite.org: Write-Ahead Logging, disadvantages).
const WAL_ATOMICITY_NOTE: &str =
    "; with a WAL, a transaction over several attached databases is atomic in each, but no longer across them";

/// What to do about a finding.
#[derive(Debug, Clone, Copy)]
pub(super) struct Remedy {
    words: &'static str,
    /// Where it is, among others, a WAL: what is left of it if the statement writes to one already.
    in_wal: Option<&'static str>,
}

impl Remedy {
    pub(super) const fn new(words: &'static str) -> Self {
        Self { words, in_wal: None }
    }

    /// A WAL among others, and what helps where there is one: a remedy in effect is none.
    const fn wal(words: &'static str, in_wal: &'static str) -> Self {
        Self { words, in_wal: Some(in_wal) }
    }

    /// Returns it in words, with what it costs transactions over several databases, if there are any.
    pub(super) fn describe(self, spans_databases: bool, has_wal: bool) -> String {
        match self.in_wal {
            Some(left) if has_wal => left.into(),
            Some(_) if spans_databases => format!("{}{WAL_ATOMICITY_NOTE}", self.words),
            _ => self.words.into(),
        }
    }
}

/// Whether a transaction wrote several databases at once: SQLite creates a master journal then, unless they have WALs.
pub fn spans_databases(rows: &Rows) -> bool {
    let mut paths = rows.files.iter().filter_map(|file| file.path.as_deref());
    paths.any(|path| classify_path(path) == FileClass::MasterJournal)
}

pub(super) struct Case<'a> {
    pub index: &'a Index<'a>,
    pub facts: &'a Facts,
    pub statement: &'a Statement,
}

impl Case<'_> {
    /// Returns a remedy for SQLite if the operations are its statements or transactions, otherwise another one.
    fn remedy(&self, of_sqlite: Remedy, otherwise: Remedy) -> Remedy {
        let shape = &self.index.rows.shapes[self.statement.shape];
        let is_sql = shape.is(ShapeKind::Statement) || shape.is(ShapeKind::Transaction);
        if is_sql { of_sqlite } else { otherwise }
    }

    pub(super) fn each(&self, value: impl Fn(u32) -> u64) -> Vec<u64> {
        self.statement.executions.iter().map(|&at| value(at)).collect()
    }

    fn time(&self, of: TimeCategory) -> Vec<u64> {
        self.each(|at| self.facts.ns(at, of))
    }

    fn sum(&self, of: TimeCategory) -> u64 {
        sum_ns(&self.time(of))
    }

    pub(super) fn count(&self) -> usize {
        self.statement.executions.len()
    }

    pub(super) fn count_having(&self, has: impl Fn(u32) -> bool) -> usize {
        self.statement.executions.iter().filter(|&&at| has(at)).count()
    }

    /// Checkpoints are reported as S02: their syncs are no second flush of a commit, and a WAL does not avoid them.
    fn is_commit(&self, at: u32) -> bool {
        !self.facts.checkpoints.contains(&at)
    }

    /// Returns the time of a category without that of checkpoints.
    fn time_of_commits(&self, of: TimeCategory) -> Vec<u64> {
        self.each(|at| if self.is_commit(at) { self.facts.ns(at, of) } else { 0 })
    }

    /// Whether most executions have it, or those that do have most of the time.
    pub(super) fn is_typical(&self, having: usize, has: impl Fn(u32) -> bool) -> bool {
        let latency = |at: u32| latency(self.index.rows, at as usize);
        let theirs = || sum_ns(&self.each(|at| if has(at) { latency(at) } else { 0 }));
        having as f64 >= TYPICAL_SHARE_MIN * self.count() as f64
            || having > 0 && theirs() as f64 >= TYPICAL_SHARE_MIN * self.latency() as f64
    }

    /// Whether what few executions have is worth a word: it is repeated, or a large part of all the time.
    fn matters(&self, having: usize, time: u64) -> bool {
        having >= REPEATED_EXECUTIONS_MIN || time as f64 >= ONE_OFF_SHARE_MIN * self.facts.whole_ns as f64
    }

    pub(super) fn pieces(&self, of: TimeCategory) -> u64 {
        self.statement.executions.iter().map(|&at| u64::from(self.facts.pieces(at, of))).sum()
    }

    fn mean(&self, value: impl Fn(u32) -> f64) -> f64 {
        self.statement.executions.iter().map(|&at| value(at)).sum::<f64>() / self.count().max(1) as f64
    }

    pub(super) fn evidence(&self, of: TimeCategory) -> Vec<u64> {
        self.facts.evidence(self.statement.shape, &[of])
    }

    pub(super) fn latency(&self) -> u64 {
        sum_ns(&self.each(|at| latency(self.index.rows, at as usize)))
    }

    fn bytes(&self, which: usize) -> f64 {
        self.mean(|at| self.facts.bytes.get(&at).map_or(0.0, |bytes| bytes[which]))
    }

    /// Builds a finding about a category of time, all of which its remedy could save.
    fn time_finding(
        &self,
        code: FindingCode,
        title: &'static str,
        of: TimeCategory,
        claim: String,
        remedy: Remedy,
    ) -> FindingDraft {
        let time = if matches!(of, TimeCategory::Flush | TimeCategory::DataCommit) {
            self.time_of_commits(of)
        } else {
            self.time(of)
        };
        FindingDraft {
            code,
            title,
            claim,
            executions: time.iter().filter(|ns| **ns > 0).count() as u64,
            pieces: Some(self.pieces(of)),
            saving_ns: Some(sum_ns(&time)),
            names: vec![of],
            cause: self.facts.culprit(self.statement.shape, of).map(ToString::to_string),
            outside_latency: None,
            time,
            remedy,
            evidence: self.evidence(of),
            slow_waits: self.facts.asleep.get(&(self.statement.shape, of)).cloned().unwrap_or_default(),
        }
    }

    /// The file system's journal and metadata, in addition to a journal of the database.
    fn journal_of_journal(&self) -> Option<FindingDraft> {
        let [journal, device, own] = [1, 2, 3].map(|which| self.bytes(which));
        if journal <= 0.0 || own < OWN_WRITES_SHARE_MIN * device {
            return None;
        }
        let claim = format!(
            "in addition to {} of the database's journal, {} of the {} that the device writes are the file system's own journal and metadata",
            bytes(journal),
            bytes(own),
            bytes(device)
        );
        Some(self.time_finding(
            FindingCode::J01,
            "journal of a journal",
            TimeCategory::Metadata,
            claim,
            Remedy::wal("let the journal's file keep its size and its place: PRAGMA journal_mode = WAL, PERSIST or TRUNCATE; fewer, larger transactions", "fewer, larger transactions; let the WAL keep its size (no wal_checkpoint(TRUNCATE), no journal_size_limit)"),
        ))
    }

    fn journal_file_per_transaction(&self) -> Option<FindingDraft> {
        // A transaction of several statements opens it in the first that writes, and deletes it in its COMMIT.
        let deleted = |at: u32| self.facts.journals.get(&at).is_some_and(|(_, removed)| *removed > 0);
        let having = self.count_having(deleted);
        self.is_typical(having, deleted).then(|| {
            let directory = self.count_having(|at| self.facts.directories.contains(&at));
            let synced = if directory > 0 { ", and its directory synced" } else { "" };
            let executions = counted(self.count(), "execution");
            let claim = format!("the rollback journal is created and deleted{synced}: in {having} of {executions}");
            let remedy = Remedy::wal("PRAGMA journal_mode = WAL; TRUNCATE and PERSIST keep the file, but sync it once more with synchronous = FULL, which may take as long (`fathom fix` measures them)", "keep other databases of this connection in WAL mode as well");
            let title = "journal file created and deleted per transaction";
            let found = self.time_finding(FindingCode::J02, title, TimeCategory::JournalFile, claim, remedy);
            // A new file has to be committed when it is synced; a persistent one is overwritten.
            let sum = |at| self.facts.ns(at, TimeCategory::JournalFile).saturating_add(self.facts.ns(at, TimeCategory::NewFile));
            let time = self.each(sum);
            let executions = time.iter().filter(|ns| **ns > 0).count() as u64;
            let names = vec![TimeCategory::JournalFile, TimeCategory::Metadata, TimeCategory::Flush];
            FindingDraft { saving_ns: Some(sum_ns(&time)), time, executions, names, ..found }
        })
    }

    fn fdatasync_with_full_commit(&self) -> Option<FindingDraft> {
        let waited = |at: u32| self.is_commit(at) && self.facts.ns(at, TimeCategory::DataCommit) > 0;
        let having = self.count_having(waited);
        let time = sum_ns(&self.time_of_commits(TimeCategory::DataCommit));
        (self.matters(having, time) && self.is_typical(having, waited)).then(|| {
            let claim = format!(
                "in {having} of {} an fdatasync waited for a commit of the file system's journal, as an fsync does: the file's size or blocks had changed",
                counted(self.count(), "execution")
            );
            let remedy = self.remedy(
                Remedy::wal("let files keep their size: PRAGMA journal_mode = WAL (a WAL that has its size is overwritten) or PERSIST; preallocate the database (SQLITE_FCNTL_CHUNK_SIZE)", "let the WAL keep its size, so that it is overwritten: no wal_checkpoint(TRUNCATE), no journal_size_limit, a connection that stays open"),
                Remedy::new("overwrite files that have their size and blocks already (a log that is written full of zeros in advance, or reused), instead of appending"),
            );
            self.time_finding(FindingCode::J03, "fdatasync turned into a full commit", TimeCategory::DataCommit, claim, remedy)
        })
    }

    /// All time in syncs except each execution's longest.
    fn several_flushes_per_commit(&self) -> Option<FindingDraft> {
        let flushes = |at: u32| self.facts.flushes.get(&at).copied().unwrap_or(0);
        let several = |at: u32| self.is_commit(at) && flushes(at) >= 2;
        let having = self.count_having(several);
        self.is_typical(having, several).then(|| {
            let further = |at: u32| {
                let longest = self.facts.syncs.get(&at).map_or(0, |(_, longest)| *longest);
                if several(at) { self.facts.ns(at, TimeCategory::Sync).saturating_sub(longest) } else { 0 }
            };
            let time = self.each(further);
            FindingDraft {
                code: FindingCode::F01,
                title: "two or more flushes a commit",
                claim: format!(
                    "{} flushes and {} syncs an execution, where one would suffice; counted: all but the longest",
                    count(self.mean(|at| flushes(at).into())),
                    count(self.mean(|at| self.facts.syncs.get(&at).map_or(0.0, |(n, _)| (*n).into())))
                ),
                executions: having as u64,
                pieces: None,
                saving_ns: Some(sum_ns(&time)),
                names: vec![TimeCategory::Sync],
                cause: None,
                time,
                outside_latency: None,
                remedy: self
                    .remedy(
                        Remedy::wal("PRAGMA journal_mode = WAL (one sync a commit, none with synchronous = NORMAL); fewer, larger transactions", "PRAGMA synchronous = NORMAL (no sync a commit); fewer, larger transactions"),
                        Remedy::new("one file to sync for each commit, or syncs that several commits share; overwrite files that have their size and blocks, so that the file system's journal need not commit as well"),
                    ),
                evidence: self.evidence(TimeCategory::Sync),
                slow_waits: Vec::new(),
            }
        })
    }

    fn flush_behind_others(&self) -> Option<FindingDraft> {
        let culprit = self.facts.culprit(self.statement.shape, TimeCategory::OthersFlush)?;
        let having = self.count_having(|at| self.facts.ns(at, TimeCategory::OthersFlush) > 0);
        let claim = format!(
            "{having} of {} waited for a flush or a commit that was for others, {} in all; most of it for {culprit}",
            counted(self.count(), "execution"),
            duration(self.sum(TimeCategory::OthersFlush) as f64)
        );
        let remedy = Remedy::new("let the other program sync less often, or use another disk");
        Some(self.time_finding(
            FindingCode::F02,
            "flush behind someone else's flush",
            TimeCategory::OthersFlush,
            claim,
            remedy,
        ))
    }

    fn dominant_flush(&self) -> Option<FindingDraft> {
        let [flush, sync, others] = [TimeCategory::Flush, TimeCategory::Sync, TimeCategory::OthersFlush]
            .map(|of| sum_ns(&self.time_of_commits(of)));
        let sync = sync.saturating_sub(others);
        // A few that flushed among several, such as the first commit to a new WAL, are no pattern.
        let flushed = |at: u32| self.is_commit(at) && self.facts.ns(at, TimeCategory::Flush) > 0;
        let having = self.count_having(flushed);
        (self.matters(having, flush) && self.is_typical(having, flushed) && sync > 0 && flush as f64 >= 0.5 * sync as f64)
            .then(|| {
                let claim = format!(
                    "of {} in fsync and fdatasync, {} were spent asleep until the device had flushed its cache",
                    duration(sync as f64),
                    duration(flush as f64)
                );
                let remedy = self.remedy(
                    Remedy::wal("fewer syncs (WAL, larger transactions), or a device with power-loss protection or cheaper flushes", "fewer syncs (synchronous = NORMAL, larger transactions), or a device with power-loss protection or cheaper flushes"),
                    Remedy::new("fewer syncs (several changes to each), or a device with power-loss protection or cheaper flushes"),
                );
                let found = self.time_finding(FindingCode::F03, "flush dominates", TimeCategory::Flush, claim, remedy);
                // A sync that is not made also saves what it took besides the flush.
                FindingDraft { saving_ns: Some(sync), names: vec![TimeCategory::Sync], ..found }
            })
    }

    fn foreign_pages(&self) -> Option<FindingDraft> {
        let culprit = self.facts.culprit(self.statement.shape, TimeCategory::ForeignData)?;
        let claim = format!(
            "{} asleep for pages that other processes wrote, or for their part of a commit; most of it for {culprit}",
            duration(self.sum(TimeCategory::ForeignData) as f64)
        );
        let remedy = Remedy::new(
            "put the other program's files on another file system, or let it write with less in the page cache",
        );
        Some(self.time_finding(FindingCode::W01, "foreign pages in my fsync", TimeCategory::ForeignData, claim, remedy))
    }

    fn queue_longer_than_device(&self) -> Option<FindingDraft> {
        let (queue, device) = (
            self.sum(TimeCategory::Queue),
            self.sum(TimeCategory::Device).saturating_add(self.sum(TimeCategory::Flush)),
        );
        (queue > device).then(|| {
            let claim = format!(
                "{} asleep until requests were issued, {} until the device had done them",
                duration(queue as f64),
                duration(device as f64)
            );
            let remedy = Remedy::new("look at what else uses the disk (`fathom show`, device commands), its I/O scheduler and queue depth, and the limits of the program's cgroup (io.max)");
            self.time_finding(FindingCode::Q01, "queue longer than device", TimeCategory::Queue, claim, remedy)
        })
    }

    /// The extra device time of slow executions relative to the median one, for as many commands.
    fn device_tail(&self) -> Option<FindingDraft> {
        if self.count() < TAIL_EXECUTIONS_MIN {
            return None;
        }
        let latencies = self.each(|at| latency(self.index.rows, at as usize));
        let device = self
            .each(|at| self.facts.ns(at, TimeCategory::Device).saturating_add(self.facts.ns(at, TimeCategory::Flush)));
        let commands: Vec<f64> =
            self.statement.executions.iter().map(|at| self.facts.commands.get(at).copied().unwrap_or(0.0)).collect();
        let (usual, usual_device) = (median(&latencies), median(&device));
        let mut sorted = commands.clone();
        sorted.sort_unstable_by(f64::total_cmp);
        let usual_commands = sorted[sorted.len() / 2];
        let (mut time, mut beyond, mut slow) = (vec![0; latencies.len()], 0_u64, 0_u64);
        for at in 0..latencies.len() {
            if latencies[at] <= TAIL_RATIO.saturating_mul(usual) || commands[at] > SAME_WORK_RATIO_MAX * usual_commands
            {
                continue;
            }
            let excess = latencies[at] - usual;
            let of_device = device[at].saturating_sub(usual_device).min(excess);
            // One that is slow for another reason says nothing about those that waited for the device.
            if (of_device as f64) < TYPICAL_SHARE_MIN * excess as f64 {
                continue;
            }
            time[at] = of_device;
            beyond = beyond.saturating_add(excess);
            slow += 1;
        }
        let of_device = sum_ns(&time);
        (slow > 0).then(|| FindingDraft {
            code: FindingCode::D01,
            title: "device tail",
            claim: format!(
                "{slow} of {} took over {TAIL_RATIO} times the median ({}) for no more commands, mostly waiting for the device: {} longer in all, {} of it the device",
                counted(self.count(), "execution"),
                duration(usual as f64),
                duration(beyond as f64),
                duration(of_device as f64)
            ),
            executions: slow,
            pieces: Some(slow),
            saving_ns: Some(of_device),
            names: vec![TimeCategory::Device, TimeCategory::Flush],
            cause: None,
            time,
            outside_latency: None,
            remedy: Remedy::new("a device of steadier latency; leave it free space and discard what is deleted (fstrim), so that it collects garbage less"),
            evidence: self.facts.evidence(self.statement.shape, &[TimeCategory::Device, TimeCategory::Flush]),
            slow_waits: Vec::new(),
        })
    }

    /// Consecutive statements of one shape on a thread, each of which syncs.
    fn autocommit_loop(&self) -> Option<FindingDraft> {
        let rows = self.index.rows;
        if !rows.shapes[self.statement.shape].is(ShapeKind::Statement)
            || ends_transaction(&rows.shapes[self.statement.shape].text)
        {
            return None;
        }
        let runs = self.runs();
        let longest = runs.iter().map(Vec::len).max().filter(|longest| *longest >= LOOP_EXECUTIONS_MIN)?;
        let looped: Vec<&Vec<u32>> = runs.iter().filter(|run| run.len() >= LOOP_EXECUTIONS_MIN).collect();
        let inside: HashSet<u32> = looped.iter().flat_map(|run| run.iter().copied()).collect();
        let time = self.each(|at| if inside.contains(&at) { self.facts.ns(at, TimeCategory::Sync) } else { 0 });
        // One of each run has to be synced anyway.
        let kept: u64 = looped
            .iter()
            .map(|run| {
                sum_ns(&run.iter().map(|&at| self.facts.ns(at, TimeCategory::Sync)).collect::<Vec<_>>())
                    / run.len() as u64
            })
            .sum();
        Some(FindingDraft {
            code: FindingCode::S01,
            title: "autocommit loop",
            claim: format!("up to {longest} in a row on one thread, each a transaction of its own with its own syncs"),
            executions: inside.len() as u64,
            pieces: None,
            saving_ns: Some(sum_ns(&time).saturating_sub(kept)),
            names: vec![TimeCategory::Sync],
            cause: None,
            time,
            outside_latency: None,
            remedy: Remedy::new("BEGIN before and COMMIT after them, if they need not be durable one by one"),
            evidence: self.evidence(TimeCategory::Sync),
            slow_waits: Vec::new(),
        })
    }

    /// Returns the executions of this statement that are consecutive on their thread and that sync.
    fn runs(&self) -> Vec<Vec<u32>> {
        let rows = self.index.rows;
        let statement =
            |at: usize| self.index.shape(at).is_some_and(|shape| rows.shapes[shape].is(ShapeKind::Statement));
        let inner = |at: usize| self.index.chain(at).skip(1).any(statement);
        let mut order: Vec<usize> = (0..rows.operations.len()).filter(|&at| statement(at) && !inner(at)).collect();
        order.sort_by_key(|&at| (rows.operations.tgid(at), rows.operations.tid(at), rows.operations.start_ns(at)));
        let mut runs: Vec<Vec<u32>> = Vec::new();
        let mut thread = None;
        for at in order {
            let operation = &rows.operations.at(at);
            let own = (operation.tgid, operation.tid);
            let counts = self.index.shape(at) == Some(self.statement.shape)
                && operation.end_ns.is_some()
                && self.facts.ns(at as u32, TimeCategory::Sync) > 0;
            match (counts, thread == Some(own)) {
                (true, true) => match runs.last_mut() {
                    Some(run) => run.push(at as u32),
                    None => runs.push(vec![at as u32]),
                },
                (true, false) => runs.push(vec![at as u32]),
                (false, _) => {}
            }
            thread = counts.then_some(own);
        }
        runs
    }

    fn checkpoint_stall(&self) -> Option<FindingDraft> {
        let having = self.count_having(|at| self.facts.checkpoints.contains(&at));
        if having == 0 {
            return None;
        }
        let others = self.statement.executions.iter().filter(|at| !self.facts.checkpoints.contains(at));
        let others: Vec<u64> = others.map(|&at| latency(self.index.rows, at as usize)).collect();
        let beside = if others.is_empty() {
            String::new()
        } else {
            format!("; the others' median is {}", duration(median(&others) as f64))
        };
        let most = self.each(|at| self.facts.ns(at, TimeCategory::Checkpoint)).into_iter().max().unwrap_or(0);
        let claim = format!(
            "{having} of {} wrote the WAL back into the database, for up to {}{beside}",
            counted(self.count(), "execution"),
            duration(most as f64)
        );
        let remedy = Remedy::new(
            "checkpoint in another thread or when idle: PRAGMA wal_autocheckpoint = 0 and PRAGMA wal_checkpoint(PASSIVE) there",
        );
        Some(self.time_finding(FindingCode::S02, "WAL checkpoint stall", TimeCategory::Checkpoint, claim, remedy))
    }

    fn prepare_per_execution(&self) -> Option<FindingDraft> {
        let time = self.time(TimeCategory::Prepare);
        let having = time.iter().filter(|ns| **ns > 0).count();
        if having < LOOP_EXECUTIONS_MIN || (having as f64) < 0.9 * self.count() as f64 {
            return None;
        }
        let each = sum_ns(&time) as f64 / having as f64;
        let recording = tracer::in_prepare_ns(self.index.rows);
        // The rest of two durations of which most is a probe is that probe's variance.
        let known = each >= recording as f64;
        let takes = match (known, recording) {
            (true, 0) => format!("takes {} each", duration(each)),
            (true, ns) => {
                format!("takes {} each (without the {} that recording it takes)", duration(each), duration(ns as f64))
            }
            (false, ns) => format!(
                "takes less than the {} of its uprobe: how much is unknown (--probes inside measures it)",
                duration(ns as f64)
            ),
        };
        Some(FindingDraft {
            code: FindingCode::S03,
            title: "statement prepared for every execution",
            claim: format!(
                "{having} of {} come right after a prepare on their thread, which {takes}, in addition to their own time",
                counted(self.count(), "execution"),
            ),
            executions: having as u64,
            pieces: None,
            saving_ns: known.then(|| sum_ns(&time)),
            names: Vec::new(),
            cause: None,
            outside_latency: Some(time.clone()),
            time,
            remedy: Remedy::new(
                "keep the prepared statement and bind new values (sqlite3_reset); in Python, a larger cached_statements",
            ),
            evidence: self.evidence(TimeCategory::Prepare),
            slow_waits: Vec::new(),
        })
    }

    fn write_amplification(&self) -> Option<FindingDraft> {
        let [written, _, device, _] = [0, 1, 2, 3].map(|which| self.bytes(which));
        let factor = device / written;
        (factor.is_finite() && factor >= AMPLIFICATION_MIN).then(|| {
            let claim = format!(
                "the device writes {} for {} that it writes to files: x {factor:.1}",
                bytes(device),
                bytes(written)
            );
            let remedy = self.remedy(
                Remedy::wal(
                    "fewer, larger transactions; WAL; a page size that fits the rows",
                    "fewer, larger transactions; a page size that fits the rows",
                ),
                Remedy::new("fewer, larger writes before each sync; blocks as large as what is written"),
            );
            let found = self.time_finding(FindingCode::R01, "write amplification", TimeCategory::Device, claim, remedy);
            // What is written once has to be written anyway.
            FindingDraft { saving_ns: found.saving_ns.map(|ns| (ns as f64 * (1.0 - 1.0 / factor)) as u64), ..found }
        })
    }

    fn scheduling_delay(&self) -> Option<FindingDraft> {
        let (waited, quota) = (self.sum(TimeCategory::RunQueue), self.sum(TimeCategory::Quota));
        (waited as f64 >= 0.1 * self.latency() as f64).then(|| {
            let mut claim = format!(
                "{} runnable without a CPU, {} an execution",
                duration(waited as f64),
                duration(waited as f64 / self.count() as f64)
            );
            let throttled = quota as f64 >= QUOTA_CAUSE_SHARE_MIN * waited as f64;
            if quota as f64 >= QUOTA_REPORTED_SHARE_MIN * waited as f64 {
                let part = format!("; for {} of it the CPU time of its cgroup was used up", duration(quota as f64));
                claim.push_str(&part);
            }
            // Other running programs are not recorded; only their existence is known.
            if let Some((load, cpus)) = self.load() {
                claim.push_str(&format!("; the load average was {load} on {cpus} CPUs as the recording began"));
            }
            let remedy = if throttled {
                Remedy::new("a larger CPU quota (cpu.max; of a container: its CPU limit), or less work between its periods")
            } else {
                Remedy::new("fewer busy threads or more CPUs; a higher priority for this program; fewer sleeps (syncs), after each of which it waits anew")
            };
            self.time_finding(FindingCode::G01, "scheduling delay", TimeCategory::RunQueue, claim, remedy)
        })
    }

    /// Returns the load average and the number of CPUs, if others kept the machine busy.
    fn load(&self) -> Option<(&str, &str)> {
        let facts = &self.index.rows.facts;
        let fact = |name: &str| facts.iter().find(|f| f.name == name).and_then(|f| f.value.as_deref());
        let (load, cpus) = (fact("load.one_minute")?, fact("cpu.online")?);
        (load.parse::<f64>().ok()? > cpus.parse::<f64>().ok()?).then_some((load, cpus))
    }

    fn forced_checkpoint(&self) -> Option<FindingDraft> {
        let reason = self.facts.culprit(self.statement.shape, TimeCategory::ForcedCheckpoint)?;
        let having = self.count_having(|at| self.facts.ns(at, TimeCategory::ForcedCheckpoint) > 0);
        let claim = format!(
            "in {having} of {} an fsync made f2fs write a checkpoint of the whole file system, {} in those fsyncs; mostly for: {reason}",
            counted(self.count(), "execution"),
            duration(self.sum(TimeCategory::ForcedCheckpoint) as f64)
        );
        let remedy = if let Culprit::Checkpoint { is_of_directories: true, .. } = reason {
            self.remedy(
                Remedy::wal("do not create, link or sync directories in each transaction: PRAGMA journal_mode = WAL, or TRUNCATE or PERSIST, which keep the file", "do not create, link or sync directories in each transaction; keep a connection open, so that the WAL stays"),
                Remedy::new("do not create, link or sync directories each time: write into files that stay"),
            )
        } else {
            self.remedy(
                Remedy::wal("a journal that stays (WAL, TRUNCATE, PERSIST); free space, so that f2fs can roll forward; look at its mount options (fastboot, active_logs)", "free space, so that f2fs can roll forward; look at its mount options (fastboot, active_logs)"),
                Remedy::new("files that stay; free space, so that f2fs can roll forward; look at its mount options (fastboot, active_logs)"),
            )
        };
        Some(self.time_finding(
            FindingCode::C01,
            "f2fs checkpoint forced",
            TimeCategory::ForcedCheckpoint,
            claim,
            remedy,
        ))
    }

    fn lock_wait(&self) -> Option<FindingDraft> {
        let culprit = self.facts.culprit(self.statement.shape, TimeCategory::Lock)?;
        let having = self.count_having(|at| self.facts.ns(at, TimeCategory::Lock) > 0);
        let claim = format!(
            "{having} of {} waited for a lock, {} in all; most of it: {culprit}",
            counted(self.count(), "execution"),
            duration(self.sum(TimeCategory::Lock) as f64)
        );
        let remedy = match culprit {
            Culprit::Lock { wait: Wait::Fcntl | Wait::Flock, .. } => {
                self.remedy(
                    Remedy::wal("shorter transactions in the holder; WAL, so that readers and a writer do not wait for each other; one writer, to which the others hand their work", "shorter transactions in the holder; BEGIN IMMEDIATE; one writer, to which the others hand their work"),
                    Remedy::new("hold the lock for less time; one writer, to which the others hand their work"),
                )
            }
            Culprit::Lock { wait: Wait::KernelLock, .. } => {
                Remedy::new("do not write one file from several threads; a file each, or one thread that writes")
            }
            _ => Remedy::new("hold the lock for less time: do not wait for the disk while holding it"),
        };
        Some(self.time_finding(FindingCode::L01, "lock wait", TimeCategory::Lock, claim, remedy))
    }

    fn dirty_throttling(&self) -> Option<FindingDraft> {
        let having = self.count_having(|at| self.facts.ns(at, TimeCategory::Dirty) > 0);
        (having > 0).then(|| {
            let claim = format!(
                "{having} of {} slept in balance_dirty_pages, {} in all: more of the page cache was dirty than the kernel allows",
                counted(self.count(), "execution"),
                duration(self.sum(TimeCategory::Dirty) as f64)
            );
            let remedy = Remedy::new("write back earlier and steadily (sync_file_range, smaller bursts); look who dirties most; a larger vm.dirty_bytes, or memory limit of the cgroup");
            self.time_finding(FindingCode::M01, "dirty throttling", TimeCategory::Dirty, claim, remedy)
        })
    }
}

/// Whether a statement's syncs are those of a transaction of several statements.
fn ends_transaction(text: &str) -> bool {
    let first = text.split_whitespace().next().unwrap_or("").trim_end_matches(';');
    ["COMMIT", "END", "RELEASE", "ROLLBACK", "PRAGMA", "VACUUM"].iter().any(|word| first.eq_ignore_ascii_case(word))
}

pub(super) fn sum_ns(ns: &[u64]) -> u64 {
    ns.iter().fold(0, |sum, ns| sum.saturating_add(*ns))
}

/// Reports what makes the recording itself doubtful.
pub(super) fn find_in_recording(index: &Index) -> Option<Finding> {
    let rows = index.rows;
    let mut reasons = Vec::new();
    let losses: Vec<_> = rows.losses.iter().map(|loss| lost_records(rows, loss)).collect();
    let events = |hides: bool| {
        losses.iter().filter(|l| l.hides_executions == hides).filter_map(|l| l.events).fold(0_u64, u64::saturating_add)
    };
    let (hiding, below) = (events(true).saturating_add(lost_at_unknown_time(rows)), events(false));
    if hiding > 0 {
        reasons.push(format!("{hiding} records were lost that may have been statements or calls"));
    }
    if losses.iter().any(|lost| lost.events.is_none()) {
        reasons.push("an unknown number of records was lost".into());
    }
    // A few commands without an end do not affect the figures.
    let commands = rows.spans.of_layer(Layer::Driver).count();
    if below as f64 > HARMLESS_LOSS_SHARE * commands as f64 {
        reasons.push(format!(
            "{} of what the device did: its commands are incomplete",
            plural(below, "record was lost", "records were lost")
        ));
    }
    let lost_some = !reasons.is_empty();
    if !rows.trace.complete {
        reasons.push("the recording was interrupted".into());
    }
    // A program without SQLite lacks nothing; one with inferred transactions does.
    let inferred = rows.shapes.iter().any(|shape| shape.is(ShapeKind::Transaction));
    let coverage: Vec<_> =
        rows.coverage.iter().filter(|c| inferred || c.absence != Some(Absence::NoSqlite)).cloned().collect();
    reasons.extend(blind::blind_spots(&coverage).into_iter().map(|blind| blind.means.trim_end_matches('.').to_owned()));
    let claim = reasons.join("; ");
    // Each problem has its own remedy: less load does not provide symbols.
    let absent = |absence| coverage.iter().any(|c| !c.attached && c.absence == Some(absence));
    let remedies = [
        (lost_some, "record again with less load"),
        (!rows.trace.complete, "record a whole run"),
        (
            absent(Absence::NoSqlite),
            "give the program a SQLite with symbols (a debug package, or one that is not stripped), or name a function by --op",
        ),
        (absent(Absence::Late), "name the program with SQLite on the command line"),
    ];
    let mut remedies: Vec<&str> = remedies.into_iter().filter(|(of, _)| *of).map(|(_, remedy)| remedy).collect();
    remedies.push("`fathom show` lists losses and coverage");
    (!claim.is_empty()).then(|| Finding {
        code: FindingCode::T01,
        title: "the trace is unreliable here".into(),
        statement: None,
        claim,
        executions: 0,
        of: 0,
        time_ns: None,
        share: None,
        interval: None,
        share_of_all: None,
        leaves: Vec::new(),
        statements: Vec::new(),
        saving_ns: None,
        saving_interval_ns: None,
        remedy: remedies.join("; "),
        evidence: Vec::new(),
        slow_waits: Vec::new(),
    })
}

fn plural(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
