//! Whether a recording is complete.
//!
//! That no loss was noticed does not mean that there was none: a kernel may skip a probe without counting a miss. So each
//! disk's own statistics are compared with what was recorded of it (rules:
//! [`causal::accounts`](../../causal/src/accounts.rs)), and a recording is called complete only if they agree, nothing was
//! lost and the recording ended normally. A trace of another tool has no such statistics: nothing is compared, and it is never called
//! complete.

use crate::check_state::CheckState::{self, Checked, Failed, NotChecked};
use crate::contract::{CheckedCount, Completeness, DiskCheck};
use crate::rows::{Index, Rows};
use model::table::CheckRow;
use model::{Layer, LossSource};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the number of records that the recorder counted as lost, without a loss row: their time is unknown.
pub fn lost_at_unknown_time(rows: &Rows) -> u64 {
    let fact = rows.facts.iter().find(|f| f.name == "tracer.records_lost");
    let counted: u64 = fact.and_then(|f| f.value.as_ref()?.parse().ok()).unwrap_or(0);
    let counts = |source| matches!(source, LossSource::Ring | LossSource::TableFull | LossSource::Recursion);
    let reported = rows.losses.iter().filter(|l| counts(l.source)).filter_map(|l| l.events);
    counted.saturating_sub(reported.fold(0, u64::saturating_add))
}

/// Whether any disk's own statistics were compared: disks without activity have no row.
fn was_compared(rows: &Rows) -> bool {
    let fact = rows.facts.iter().find(|f| f.name == "trace.disks_compared");
    fact.and_then(|f| f.value.as_ref()?.parse::<u64>().ok()).is_some_and(|disks| disks > 0)
}

/// Determines the completeness of a trace.
pub fn completeness(index: &Index) -> Completeness {
    let rows = index.rows;
    let mut by_disk: BTreeMap<u32, Vec<&CheckRow>> = BTreeMap::new();
    for row in &rows.checks {
        by_disk.entry(row.disk).or_default().push(row);
    }
    let disks: BTreeMap<String, DiskCheck> =
        by_disk.into_iter().map(|(dev, rows)| (index.disk_name(dev), check_disk(&rows))).collect();
    let all = |state: CheckState| disks.iter().filter(|(_, d)| d.state == state).collect::<Vec<_>>();
    let reported = |list: Vec<(&String, &DiskCheck)>| {
        let each = |(name, check): &(&String, &DiskCheck)| format!("{name}: {}", check.why.as_deref().unwrap_or(""));
        list.iter().map(each).collect::<Vec<_>>().join("; ")
    };
    let spans = &rows.spans;
    let drivers = (0..spans.len()).filter(|&at| spans.layer(at) == Layer::Driver);
    let used: BTreeSet<u32> = drivers.filter_map(|at| spans.disk(at)).collect();
    let used: BTreeSet<String> = used.into_iter().map(|disk| index.disk_name(disk)).collect();
    let uncounted: Vec<&str> = used.iter().filter(|name| !disks.contains_key(*name)).map(String::as_str).collect();
    let (failed, unchecked) = (all(Failed), all(NotChecked));
    let (state, why) = if !rows.trace.complete {
        (NotChecked, Some("the recording was cut short".into()))
    } else if !failed.is_empty() {
        (Failed, Some(reported(failed)))
    } else if !rows.losses.is_empty() {
        (Failed, Some("records were lost".into()))
    } else if lost_at_unknown_time(rows) > 0 {
        (Failed, Some("records were lost at an unknown time".into()))
    } else if disks.is_empty() && !(used.is_empty() && was_compared(rows)) {
        (NotChecked, Some("nothing was compared, since the archive has no disk statistics".into()))
    } else if !unchecked.is_empty() {
        (NotChecked, Some(reported(unchecked)))
    } else if !uncounted.is_empty() {
        (NotChecked, Some(format!("the statistics of {} were not read", uncounted.join(", "))))
    } else {
        (Checked, None)
    };
    Completeness { state, why, disks }
}

fn check_disk(rows: &[&CheckRow]) -> DiskCheck {
    let count = |row: &&CheckRow| {
        let count = CheckedCount { kernel: row.kernel, recorded: row.recorded, unsure: row.unsure };
        (row.what.to_string(), count)
    };
    let counts = rows.iter().map(count).collect();
    let differs = |row: &&CheckRow| {
        let kernel = row.kernel?;
        // Recorded, and certainly between the two readings.
        let least = row.recorded.saturating_sub(row.unsure);
        if (least..=row.recorded).contains(&kernel) {
            return None;
        }
        Some(format!("{} {} in the kernel's statistics, {} recorded", kernel, row.what, row.recorded))
    };
    let differing: Vec<String> = rows.iter().filter_map(differs).collect();
    let (state, why) = if !differing.is_empty() {
        (Failed, Some(differing.join(", ")))
    } else if let Some(why) = rows.iter().find_map(|row| row.unknown.clone()) {
        (NotChecked, Some(why))
    } else {
        (Checked, None)
    };
    DiskCheck { state, why, counts }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace;
    use model::Dev;

    fn row(what: &'static str, kernel: Option<u64>, recorded: u64, unsure: u64) -> CheckRow {
        let unknown = kernel.is_none().then(|| "not read".to_string());
        CheckRow { disk: Dev::new(7, 0).0, what: what.into(), kernel, recorded, unsure, unknown }
    }

    /// The small trace without its loss, and with counts of both its disks.
    fn state(change: impl Fn(&mut crate::rows::Rows)) -> (CheckState, String) {
        let mut rows = small_trace::rows();
        rows.losses.clear();
        rows.links.edit().iter_mut().for_each(|link| link.weakened_by = None);
        rows.checks = vec![row("writes", Some(3), 3, 0), row("flushes", Some(1), 1, 0)];
        rows.checks.push(CheckRow { disk: Dev::new(254, 0).0, ..row("writes", Some(1), 1, 0) });
        change(&mut rows);
        let all = completeness(&Index::new(&rows));
        (all.state, all.why.unwrap_or_default())
    }

    #[test]
    fn only_checked_recordings_are_complete() {
        assert_eq!(state(|_| ()), (Checked, String::new()));
        assert_eq!(state(|rows| rows.trace.complete = false).0, NotChecked);
        assert_eq!(state(|rows| rows.losses = small_trace::rows().losses).0, Failed);
        assert_eq!(state(|rows| rows.checks.clear()).0, NotChecked, "an archive of before");
        // Without any command: an idle disk equals its statistics, a trace without statistics equals nothing.
        let idle = |compared: Option<u64>| {
            state(|rows| {
                rows.checks.clear();
                rows.spans.edit().retain(|span| span.layer != Layer::Driver);
                rows.facts.extend(compared.map(|disks| small_trace::fact("trace.disks_compared", disks)));
            })
        };
        assert_eq!(idle(Some(2)).0, Checked);
        for none in [None, Some(0)] {
            let (state, why) = idle(none);
            assert_eq!((state, why.contains("nothing was compared")), (NotChecked, true), "{why}");
        }
        let (one, why) = state(|rows| rows.checks.truncate(2));
        assert_eq!((one, why.as_str()), (NotChecked, "the statistics of vda were not read"));
        assert_eq!(state(|rows| rows.checks[0] = row("writes", None, 3, 0)).0, NotChecked);
    }

    /// Losses counted by the recorder against losses in the log.
    #[test]
    fn records_lost_at_an_unknown_time_are_counted() {
        let lost = |n: u64| move |rows: &mut Rows| rows.facts.push(small_trace::fact("tracer.records_lost", n));
        assert_eq!(state(lost(0)).0, Checked);
        assert_eq!(state(lost(940)), (Failed, "records were lost at an unknown time".into()));
        let mut rows = small_trace::rows();
        rows.losses[0].source = LossSource::Ring;
        let reported = rows.losses.iter().filter_map(|l| l.events).sum::<u64>();
        rows.facts.push(small_trace::fact("tracer.records_lost", reported));
        assert_eq!(lost_at_unknown_time(&rows), 0);
        rows.losses[0].source = LossSource::ArchiveFull;
        assert_eq!(lost_at_unknown_time(&rows), reported, "the archive's own are in another count");
    }

    #[test]
    fn differing_counts_are_reported() {
        let (failed, why) = state(|rows| rows.checks[0] = row("writes", Some(5), 3, 0));
        assert_eq!((failed, why.as_str()), (Failed, "loop0: 5 writes in the kernel's statistics, 3 recorded"));
        assert_eq!(
            state(|rows| rows.checks[0] = row("writes", Some(2), 3, 0)).0,
            Failed,
            "more than the kernel counted"
        );
        assert_eq!(state(|rows| rows.checks[0] = row("writes", Some(2), 3, 1)).0, Checked);
        assert_eq!(state(|rows| rows.checks[0] = row("writes", Some(4), 3, 1)).0, Failed);
    }
}
