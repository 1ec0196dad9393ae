//! Waits of operations other than for the disk: locks with their holders, other programs, memory, quotas. The kernel reports the
//! reason of each sleep; here the sleeps of a statement are summed up by reason and by the process that ended them.

use crate::contract::WaitSummary;
use crate::rows::Index;
use crate::text::{duration, shown};
use model::Wait;
use model::table::Slice;
use std::collections::HashMap;

/// Maximum number of waits listed for a statement; the rest of each kind is merged into one.
const WAITS_MAX: usize = 64;

/// Key by which waits are distinguished: reason, file, and the process that ended it with the shape of its operation.
type Key = (Wait, Option<u64>, Option<u32>, Option<usize>);

/// The waits of one statement.
#[derive(Debug, Default)]
pub struct Waits(HashMap<Key, (u64, u64)>);

impl Waits {
    /// Adds a slice, if it is such a wait.
    pub fn add(&mut self, index: &Index, slice: &Slice) {
        let Some(wait) = slice.wait else { return };
        let by = slice.by_operation.and_then(|id| index.operation(id)).and_then(|at| index.shape(at));
        let mut key = (wait, slice.wait_file, slice.by_tgid, by);
        if self.0.len() >= WAITS_MAX && !self.0.contains_key(&key) {
            key = (wait, None, None, None);
        }
        let sums = self.0.entry(key).or_default();
        *sums = (sums.0 + 1, sums.1.saturating_add(slice.end_ns.saturating_sub(slice.start_ns)));
    }

    /// Returns the waits, the longest first.
    pub fn finish(self, index: &Index) -> Vec<WaitSummary> {
        let rows = index.rows;
        let row = |((wait, file, tgid, shape), (times, ns)): (Key, (u64, u64))| WaitSummary {
            wait,
            file: file.and_then(|id| index.file(id)).and_then(|at| rows.files[at].path.clone()),
            by_tgid: tgid,
            by_process: tgid.and_then(|tgid| index.process_name(tgid)).map(str::to_string),
            by_statement: shape.map(|shape| rows.shapes[shape].text.clone()),
            times,
            ns,
        };
        let mut all: Vec<WaitSummary> = self.0.into_iter().map(row).collect();
        all.sort_by(|a, b| {
            let rest = |w: &WaitSummary| (w.wait, w.by_tgid, w.file.clone(), w.by_statement.clone());
            b.ns.cmp(&a.ns).then_with(|| rest(a).cmp(&rest(b)))
        });
        all
    }
}

/// Describes what ended a wait: `by writer (1234), UPDATE t SET …`; `None`: not known.
pub fn ended_by(wait: Wait, tgid: Option<u32>, process: Option<&str>, statement: Option<&str>) -> Option<String> {
    let tgid = tgid?;
    let holds = matches!(wait, Wait::Fcntl | Wait::Flock);
    let did = if holds { "held by" } else { "ended by" };
    let process = process.filter(|name| !name.is_empty()).map_or_else(String::new, |name| format!("{} ", shown(name)));
    let doing = statement.map_or_else(String::new, |text| format!(", {}", truncate(&shown(text))));
    Some(format!("{did} {process}(PID {tgid}){doing}"))
}

/// Maximum number of characters quoted from a statement.
const QUOTED_CHARS_MAX: usize = 60;

fn truncate(text: &str) -> String {
    if text.chars().count() <= QUOTED_CHARS_MAX {
        return text.to_string();
    }
    text.chars().take(QUOTED_CHARS_MAX).chain(['…']).collect()
}

/// Formats one wait as a line: `fcntl lock on x.db-shm, held by writer (PID 12), UPDATE t SET …: 3.1 ms in 4 waits`.
pub fn line(waited: &WaitSummary) -> String {
    let file = waited.file.as_deref().map(|path| path.rsplit('/').next().unwrap_or(path));
    let on = file.map_or_else(String::new, |name| format!(" on {}", shown(name)));
    let by = ended_by(waited.wait, waited.by_tgid, waited.by_process.as_deref(), waited.by_statement.as_deref());
    let by = by.map_or_else(String::new, |by| format!(", {by}"));
    let times = if waited.times == 1 { "1 wait".to_string() } else { format!("{} waits", waited.times) };
    format!("{}{on}{by}: {} in {times}", waited.wait, duration(waited.ns as f64))
}
