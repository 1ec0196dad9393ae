//! Determines what is missing, from the losses in the log, from the log's length, and from the disks' own counters.

use crate::Metadata;
use archive::Damage;
use causal::accounts::Accounts;
use model::event::{ANY_CPU, Header, Loss};
use model::table::{CheckRow, LossRow, Span};
use model::{Event, Layer, LossSource};
use std::collections::BTreeMap;

/// Losses known so far.
#[derive(Debug, Default)]
pub struct Losses {
    /// Highest id of a loss.
    last_id: u64,
    /// Total number of records lost.
    events: u64,
    /// Whether more may be lost than is known.
    at_least: bool,
}

impl Losses {
    /// Counts a loss that the linker found.
    pub fn learn(&mut self, row: &LossRow) {
        self.last_id = self.last_id.max(row.id);
        self.events = self.events.saturating_add(row.events.unwrap_or(0));
        self.at_least |= row.events.is_none() || row.at_least;
    }

    /// Creates the row of a further loss.
    pub fn row(&mut self, source: LossSource, window_ns: (u64, u64), events: u64, program: Option<&str>) -> LossRow {
        let row = LossRow {
            id: self.last_id + 1,
            source,
            cpu: None,
            start_ns: window_ns.0,
            end_ns: window_ns.1,
            events: Some(events),
            at_least: false,
            program: program.map(Into::into),
        };
        self.learn(&row);
        row
    }
}

/// Commands that completed although no issue was seen.
#[derive(Debug)]
pub struct UnissuedCommands {
    disks: BTreeMap<u32, OfDisk>,
}

#[derive(Debug)]
struct OfDisk {
    /// When commands in flight were counted, and their number: their issue may precede the recording.
    since_ns: u64,
    under_way: u64,
    completed: u64,
}

impl UnissuedCommands {
    /// Starts with none, on the disks whose commands in flight were counted.
    pub fn new(under_way: &[(u32, u64, u64)]) -> Self {
        let of = |&(disk, since_ns, under_way): &(u32, u64, u64)| (disk, OfDisk { since_ns, under_way, completed: 0 });
        Self { disks: under_way.iter().map(of).collect() }
    }

    /// Counts the command if it has no issue. A command whose issue was seen has a number of bios.
    pub fn span(&mut self, row: &Span) {
        if let (Layer::Driver, None, Some(disk)) = (row.layer, row.number, row.disk)
            && let Some(of) = self.disks.get_mut(&disk)
        {
            of.completed += u64::from(row.start_ns > of.since_ns);
        }
    }

    /// Returns the number of those that were not in flight when the recording began.
    fn unexplained(&self) -> u64 {
        self.disks.values().map(|of| of.completed.saturating_sub(of.under_way)).sum()
    }
}

/// The fact that says how many disks' own statistics were compared. Without it, or if it is 0, that nothing differs means nothing.
pub const DISKS_COMPARED_FACT: &str = "trace.disks_compared";

/// Number of disks whose own statistics are compared, including those without activity, which have no row.
pub fn disks_compared(metadata: &Metadata, accounts: &Accounts) -> usize {
    if metadata.is_attached("rq_done") { accounts.compared_disks() } else { 0 }
}

/// Compares the kernel's own counts with what was recorded. What is missing and is not explained by a known loss becomes a
/// new loss.
pub fn check(
    metadata: &Metadata,
    accounts: &Accounts,
    losses: &mut Losses,
    unissued: &UnissuedCommands,
) -> (Vec<CheckRow>, Vec<LossRow>) {
    let (mut checks, mut found) = (Vec::new(), Vec::new());
    if !metadata.is_attached("rq_done") {
        return (checks, found);
    }
    // A damaged log may lack any number of records.
    let known = if losses.at_least { u64::MAX } else { losses.events };
    let mut missing: u64 = 0;
    for audit in accounts.audit() {
        checks.extend(audit.rows);
        let unexplained = audit.missing.saturating_sub(known.saturating_sub(missing));
        missing = missing.saturating_add(audit.missing);
        if unexplained > 0 {
            found.push(losses.row(LossSource::NotRun, audit.window_ns, unexplained, Some("rq_done")));
        }
    }
    let events = unissued.unexplained();
    if known == 0 && events > 0 && metadata.is_attached("rq_issue") {
        found.push(losses.row(LossSource::NotRun, metadata.window_ns(), events, Some("rq_issue")));
    }
    (checks, found)
}

/// Detects events cut off the end of a log exactly at a chunk boundary, so that the log itself shows no damage: it holds
/// `events` events, including those that report damage.
pub fn cut_off(metadata: &Metadata, events: u64, last_ns: u64, damage: &Damage) -> Option<Event> {
    let whole = events.saturating_sub(damage.tellings);
    let missing =
        metadata.stored?.checked_sub(whole.saturating_add(damage.events)).filter(|n| *n > 0 && !damage.at_least)?;
    let (first_ns, end_ns) = metadata.window_ns();
    let start_ns = if last_ns > 0 { last_ns } else { first_ns };
    let loss = Loss { start_ns, events: missing, source: LossSource::Damage.number(), ..Loss::default() };
    let header = Header { time_ns: end_ns.max(start_ns), cpu: ANY_CPU, kind: Loss::INFO.kind, ..Header::default() };
    Some(Event { header, record: loss.into() })
}
