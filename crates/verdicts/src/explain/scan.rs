//! S04, full scan where an index would help: a statement that compares a column reads much of the database for each row it returns.
//!
//! **Uncertainty.** Pages in SQLite's own cache need no system call, so a scan of a table that fits into it is not detected. And
//! no record contains the query plan: a statement may read as much for another reason, such as very long rows, and the rule
//! therefore requires many separate reads per row.

use super::rules::Remedy;
use super::{FindingDraft, Statement, latency};
use crate::diff::phase::{FileRole, Phase, Phases};
use analysis::rows::{Index, call_of_span};
use analysis::text::{bytes, count, duration};
use model::{FindingCode, Layer, ShapeKind, counted};
use sqlite::FileClass;
use std::collections::HashMap;

/// Reads per returned row from which on a statement scans: a search by an index needs one for each level of the tree, which are
/// no more than five, and as many for the table itself.
const SCAN_READS_PER_ROW_MIN: f64 = 16.0;
/// Reads of a search by an index.
const INDEX_SEARCH_READS: f64 = 6.0;
/// Smaller reads are of the file's header.
const PAGE_BYTES_MIN: u64 = 512;
/// Maximum number of spans shown.
const EVIDENCE_SPANS_MAX: usize = 5;

/// Database reads of executions, by position.
#[derive(Debug, Default)]
pub struct Scans {
    reads: HashMap<u32, (u64, u64)>,
    /// Time in all other calls.
    others_ns: HashMap<u32, u64>,
    longest: HashMap<u32, (u64, u64)>,
}

impl Scans {
    /// Indexes the calls.
    pub fn new(index: &Index, phases: &Phases) -> Self {
        let mut scans = Self::default();
        for (at, span) in index.rows.spans.of_layer(Layer::Syscall) {
            let Some(operation) = index.operation_of(&span).map(|at| at as u32) else { continue };
            let ns = span.end_ns.map_or(0, |end| end.saturating_sub(span.start_ns));
            let database = matches!(phases.of_call(at), Phase::In(_, FileRole::Of(FileClass::Database)));
            if !(database && call_of_span(&span).is_some_and(|call| call.reads())) {
                let others = scans.others_ns.entry(operation).or_default();
                *others = others.saturating_add(ns);
            } else if span.bytes >= PAGE_BYTES_MIN {
                let (reads, sum) = scans.reads.entry(operation).or_default();
                (*reads, *sum) = (*reads + 1, sum.saturating_add(span.bytes));
                let longest = scans.longest.entry(operation).or_insert((ns, span.id));
                *longest = (*longest).max((ns, span.id));
            }
        }
        scans
    }
}

/// Whether a statement selects rows by their contents.
fn selects_by_contents(text: &str) -> bool {
    // Each piece is a word and the character after it: names may contain keywords.
    let ends_word = |c: char| !(c.is_alphanumeric() || matches!(c, '_' | '$'));
    let is = |piece: &str, keyword: &str| piece.trim_end_matches(ends_word).eq_ignore_ascii_case(keyword);
    let mut pieces = text.split_inclusive(ends_word).skip_while(|piece| piece.chars().all(ends_word));
    if !pieces.next().is_some_and(|first| ["SELECT", "UPDATE", "DELETE"].iter().any(|verb| is(first, verb))) {
        return false;
    }
    let mut condition = pieces.skip_while(|piece| !is(piece, "WHERE"));
    condition.any(|piece| piece.ends_with(['=', '<', '>']) || is(piece, "IN"))
}

/// Returns the finding, if it applies to the statement.
pub(super) fn full_scan(index: &Index, scans: &Scans, statement: &Statement) -> Option<FindingDraft> {
    let rows = index.rows;
    let shape = &rows.shapes[statement.shape];
    if !shape.is(ShapeKind::Statement) || !selects_by_contents(&shape.text) {
        return None;
    }
    let of = |at: &u32| scans.reads.get(at).copied().unwrap_or((0, 0));
    let scanned =
        |at: &u32| of(at).0 as f64 >= SCAN_READS_PER_ROW_MIN * (rows.operations.rows(*at as usize) as f64 + 1.0);
    let having: Vec<u32> = statement.executions.iter().copied().filter(|at| scanned(at)).collect();
    if (having.len() as f64) < super::rules::TYPICAL_SHARE_MIN * statement.executions.len() as f64 || having.is_empty()
    {
        return None;
    }
    let own = |at: u32| {
        let others = scans.others_ns.get(&at).copied().unwrap_or(0);
        latency(rows, at as usize).saturating_sub(others)
    };
    let time: Vec<u64> = statement.executions.iter().map(|at| if scanned(at) { own(*at) } else { 0 }).collect();
    let saved = having.iter().map(|at| own(*at) as f64 * (1.0 - INDEX_SEARCH_READS / of(at).0 as f64)).sum::<f64>();
    let mean = |value: &dyn Fn(&u32) -> f64| having.iter().map(value).sum::<f64>() / having.len() as f64;
    let mut longest: Vec<(u64, u64)> = having.iter().filter_map(|at| scans.longest.get(at)).copied().collect();
    longest.sort_unstable_by(|p, q| q.cmp(p));
    let sum = time.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    Some(FindingDraft {
        code: FindingCode::S04,
        title: "full scan where an index would serve",
        claim: format!(
            "{} of {} read {} pages of the database ({}) for {} rows, in the mean; {} each",
            having.len(),
            counted(statement.executions.len(), "execution"),
            count(mean(&|at| of(at).0 as f64)),
            bytes(mean(&|at| of(at).1 as f64)),
            count(mean(&|at| rows.operations.rows(*at as usize) as f64)),
            duration(sum as f64 / having.len() as f64)
        ),
        executions: having.len() as u64,
        pieces: None,
        saving_ns: Some(saved as u64),
        names: Vec::new(),
        cause: None,
        time,
        outside_latency: None,
        remedy: Remedy::new(
            "CREATE INDEX on the columns that the WHERE clause compares; EXPLAIN QUERY PLAN says whether it is used",
        ),
        evidence: longest.into_iter().map(|(_, span)| span).take(EVIDENCE_SPANS_MAX).collect(),
        slow_waits: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keywords_in_names_are_none() {
        for text in [
            "SELECT a FROM t WHERE b=?",
            "select a from t where(b)in(?)",
            "DELETE FROM t\nWHERE\tb > ?",
            "UPDATE t SET a = ? WHERE b IN (?)",
            "SELECT a FROM nowhere WHERE b < ?",
        ] {
            assert!(selects_by_contents(text), "{text}");
        }
        for text in [
            "SELECT a FROM nowhere JOIN u ON a = b",
            "SELECT somewhere IN (?) FROM t",
            "SELECT a FROM t WHERE b IS NULL ORDER BY INDEX_OF",
            "SELECT a FROM t WHERE b ISNULL LIMIT inner",
            "SELECTION WHERE a = ?",
            "INSERT INTO t SELECT a FROM u WHERE b = ?",
            "",
        ] {
            assert!(!selects_by_contents(text), "{text}");
        }
    }
}
