//! What happens, as text.

use crate::notices;
use model::counted;
use model::text::{ShownPath as _, file_date};
use recorder::watch::account::{Culprit, Spent};
use recorder::watch::matrix::Matrix;
use recorder::watch::{Happening, Incident, LimitChange, Slow, SlowOperation, WatchResult};

/// Formats a line for stdout, if what happened makes one; notices go to stderr.
pub fn text_line(slow: Slow, happening: &Happening) -> Option<String> {
    Some(match happening {
        Happening::Begun => {
            eprintln!("fathom: watching for operations of {} and more (Ctrl-C to stop)", slow);
            return None;
        }
        Happening::Incident(incident, _) => incident_text(incident),
        Happening::Failed(error) => {
            notices::print_notice(&format!("an incident was not kept: {}", model::text::error_chain(error)));
            return None;
        }
        Happening::NotKept(count) => format!("{} more like it, not kept", counted_slow(*count)),
        Happening::Limit(change, limit_ns) => {
            let now = limit_ns.map_or_else(|| "not known yet".into(), ms);
            match change {
                LimitChange::Raised(_) => format!("too many slow operations: the limit is now {now}"),
                LimitChange::Lowered(_) => format!("fewer slow operations: the limit is now {now}"),
            }
        }
    })
}

fn counted_slow(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "slow operation")
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn incident_text(incident: &Incident) -> String {
    let at = file_date(incident.end_unix_ns / 1_000_000_000);
    let what = match incident.operations.split_first() {
        None => format!("requested: {}", ms(incident.window_ns.1 - incident.window_ns.0)),
        Some((worst, others)) => {
            let more = if others.is_empty() { String::new() } else { format!("; {} more", others.len()) };
            format!("{}{more}", operation_text(worst))
        }
    };
    format!("{at} {what}  {}", incident.archive.shown())
}

fn operation_text(operation: &SlowOperation) -> String {
    let name = analysis::text::shown(operation.shape.as_deref().unwrap_or("a call"));
    let process = operation.process.as_deref().map(analysis::text::shown).unwrap_or_default();
    let largest = operation.account.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let cause = largest.map_or_else(
        || "cause unknown".into(),
        |((spent, culprit), ns)| format!("{} {}", ms(*ns as u64), cause_text(operation, spent, *culprit)),
    );
    let (tgid, duration) = (operation.tgid, ms(operation.end_ns - operation.start_ns));
    format!("{name} of {process} ({tgid}): {duration}, of which {cause}")
}

fn cause_text(operation: &SlowOperation, spent: &Spent, culprit: Culprit) -> String {
    let of_disk = spent.disk().map_or_else(String::new, |disk| match operation.disks.get(&disk) {
        Some(name) => format!(" of {}", analysis::text::shown(name)),
        None => format!(" of {}:{}", disk >> 20, disk & 0xf_ffff),
    });
    let whom = match culprit {
        Culprit::Own => String::new(),
        Culprit::Process(tgid) => match operation.culprits.get(&tgid) {
            Some(name) => format!(" for {} ({tgid})", analysis::text::shown(name)),
            None => format!(" for process {tgid}"),
        },
        Culprit::Unknown => " for unknown".into(),
    };
    format!("{}{of_disk}{whom}", spent.name())
}

pub fn text_summary(done: &WatchResult) -> String {
    let counts = done.counts;
    let share = |ns: u64| 100.0 * ns as f64 / (done.duration_ns as f64).max(1.0);
    let probes = done.probes_ns.map_or_else(|| "not measured".into(), |ns| format!("{:.2} %", share(ns)));
    format!(
        "fathom: {} seen: {} kept in {}, {} below the limit, {} not kept\nfathom: {} recorded, {} lost; CPU of a core: itself {:.2} %, \
         its probes {probes}; buffer at most {:.1} MiB",
        counted(counts.seen as usize, "operation"),
        counts.kept,
        counted(done.incidents as usize, "incident"),
        counts.below,
        counts.shed(),
        counted(done.records as usize, "event"),
        done.lost,
        share(done.cpu_ns),
        done.held_bytes as f64 / f64::from(1 << 20)
    )
}

/// Number of rows that are printed; the JSON has all.
const PRINTED_ROWS_MAX: usize = 20;

pub fn text_matrix(matrix: &Matrix) -> String {
    let rows = matrix.rows();
    let share = |ns: f64| 100.0 * ns / (matrix.total_ns as f64).max(1.0);
    let mut text = format!("{:<16} {:<16} {:<28} {:>12} {:>7}\n", "victim", "delayed by", "in", "ms", "share");
    for (delay, ns) in rows.iter().take(PRINTED_ROWS_MAX) {
        let place =
            if delay.disk.is_empty() { delay.spent.into() } else { format!("{} of {}", delay.spent, delay.disk) };
        let [victim, culprit, place] = [&delay.victim, &delay.culprit, &place].map(|name| analysis::text::shown(name));
        text += &format!("{victim:<16} {culprit:<16} {place:<28} {:>12.1} {:>5.1} %\n", ns / 1e6, share(*ns));
    }
    let others: f64 = rows.iter().skip(PRINTED_ROWS_MAX).map(|(_, ns)| ns).sum();
    if others > 0.0 {
        let count = counted(rows.len() - PRINTED_ROWS_MAX, "other row");
        text += &format!("{count:<62} {:>12.1} {:>5.1} %\n", others / 1e6, share(others));
    }
    let total = counted(usize::try_from(matrix.operations).unwrap_or(usize::MAX), "slow operation");
    text + &format!("{total:<62} {:>12.1}\n", matrix.total_ns as f64 / 1e6)
}
