//! Findings on what SQLite itself counted: full scans, automatic indices, sorts, spills, statements that it prepares again, triggers.
//!
//! The counters prove what was done, not how long it took. So each finding has the time that the execution spent on the kind of work in
//! question (on a CPU in SQLite, in reads, in writes, in temporary files), as an upper bound, or the part of it that the counters give.
//!
//! Where they were not read, none of these is claimed: many reads may as well be a search by an index that selects many rows.
//!
//! **Uncertainty.** An execution that does several such things has all their time in each finding. What a condition selects from a scan
//! is known only where the statement returns it; otherwise it is inferred from how few instructions each step of the scan takes.

use super::facts::{Facts, TimeCategory};
use super::rules::{Case, Remedy, sum_ns};
use super::{FindingDraft, Statement, median};
use analysis::rows::Index;
use analysis::text::count;
use model::table::StatementCounters;
use model::{FindingCode, Layer, ShapeKind, SpanKind, counted};

/// Steps of a scan per returned row from which on most rows are passed over.
const SCAN_STEPS_PER_ROW_MIN: u64 = 16;
/// Instructions per step of a scan up to which most rows are passed over, where it returns none: to compare a column and go on takes three
/// (Column, Ne, Next), with a function four, and what is done with a row two or more.
const REJECTING_OPS_PER_STEP_MAX: f64 = 4.5;
/// Steps below which a scan is about as fast as a search.
const SCAN_STEPS_MIN: u64 = 64;
/// Instructions that take as long as a row of an automatic index, which is compared with others and copied into a page.
const AUTOINDEX_ROW_OPS: u64 = 16;
/// Of these, the ones that are counted as instructions.
const AUTOINDEX_ROW_COUNTED_OPS: u64 = 4;
/// Share of the instructions in automatic indices from which on they are the cause of a scan.
const AUTOINDEX_SHARE_MIN: f64 = 0.25;
/// Programs of triggers and foreign-key actions in an execution from which on they are a cascade.
const CASCADE_RUNS_MIN: u64 = 16;

/// The counters by execution.
pub struct Counted<'a> {
    index: &'a Index<'a>,
    /// Position in the table plus one, by position of the operation; 0: not counted.
    places: Vec<u32>,
    /// The median time of a prepare.
    prepare_ns: Option<u64>,
}

impl<'a> Counted<'a> {
    /// Indexes the counters.
    pub fn new(index: &'a Index<'a>) -> Self {
        let mut places = Vec::new();
        let counters = &index.rows.counters;
        for at in 0..counters.len() {
            let Some(operation) = index.operation(counters.operation(at)) else { continue };
            if places.len() <= operation {
                places.resize(index.rows.operations.len(), 0);
            }
            places[operation] = at as u32 + 1;
        }
        let mut prepares: Vec<u64> = Vec::new();
        if !places.is_empty() {
            let recording_ns = analysis::tracer::in_prepare_ns(index.rows);
            for (_, span) in index.rows.spans.of_layer(Layer::Database).filter(|(_, span)| span.is(SpanKind::Prepare)) {
                let ns = span.end_ns.map_or(0, |end| end.saturating_sub(span.start_ns));
                prepares.push(ns.saturating_sub(recording_ns));
            }
        }
        let prepare_ns = (!prepares.is_empty()).then(|| median(&prepares));
        Self { index, places, prepare_ns }
    }

    fn of(&self, at: u32) -> Option<StatementCounters> {
        let place = self.places.get(at as usize).filter(|place| **place > 0)?;
        Some(self.index.rows.counters.at(*place as usize - 1))
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

/// Returns the findings on a statement.
pub(super) fn find_in_statement(
    index: &Index,
    facts: &Facts,
    counted: &Counted,
    statement: &Statement,
) -> Vec<FindingDraft> {
    let is_sql = index.rows.shapes[statement.shape].is(ShapeKind::Statement);
    if counted.places.is_empty() || !is_sql {
        return Vec::new();
    }
    let case = CountedCase { case: Case { index, facts, statement }, counted };
    let cascade = case.cascade();
    let scan = case.full_scan().filter(|_| cascade.is_none());
    [scan, case.automatic_index(), case.sort_in_file(), case.spill(), case.prepared_again(), cascade]
        .into_iter()
        .flatten()
        .collect()
}

struct CountedCase<'a> {
    case: Case<'a>,
    counted: &'a Counted<'a>,
}

/// What a finding is about, before its numbers.
struct About<'a> {
    code: FindingCode,
    title: &'static str,
    remedy: Remedy,
    names: &'a [TimeCategory],
}

impl CountedCase<'_> {
    fn value(&self, at: u32, of: impl Fn(&StatementCounters) -> Option<u64>) -> u64 {
        self.counted.of(at).and_then(|counters| of(&counters)).unwrap_or(0)
    }

    fn ns(&self, at: u32, of: &[TimeCategory]) -> u64 {
        of.iter().fold(0, |sum, of| sum.saturating_add(self.case.facts.ns(at, *of)))
    }

    /// Builds a finding on the executions that have it, if they are typical: `part` is the part of their time in the categories.
    fn finding(
        &self,
        about: &About,
        has: impl Fn(u32) -> bool,
        part: impl Fn(u32) -> f64,
        claim: impl FnOnce(&dyn Fn(&dyn Fn(&StatementCounters) -> Option<u64>) -> f64, &str) -> String,
    ) -> Option<FindingDraft> {
        let case = &self.case;
        let having = case.count_having(&has);
        if having == 0 || !case.is_typical(having, &has) {
            return None;
        }
        let time = case.each(|at| {
            let part = if has(at) { part(at).clamp(0.0, 1.0) } else { 0.0 };
            (self.ns(at, about.names) as f64 * part) as u64
        });
        let mean = |of: &dyn Fn(&StatementCounters) -> Option<u64>| {
            let all = case.statement.executions.iter().filter(|at| has(**at));
            all.map(|at| self.value(*at, of) as f64).sum::<f64>() / having as f64
        };
        let executions = format!("{having} of {}", counted(case.count(), "execution"));
        Some(FindingDraft {
            code: about.code,
            title: about.title,
            claim: claim(&mean, &executions),
            executions: having as u64,
            pieces: None,
            saving_ns: Some(sum_ns(&time)),
            names: about.names.to_vec(),
            cause: None,
            outside_latency: None,
            time,
            remedy: about.remedy,
            evidence: case.facts.evidence(case.statement.shape, about.names),
            slow_waits: Vec::new(),
        })
    }

    /// Whether an execution stepped through a table for rows of which it passed over most.
    fn scans(&self, at: u32) -> bool {
        let Some(counters) = self.counted.of(at) else { return false };
        let steps = counters.fullscan_steps.unwrap_or(0);
        let rows = self.case.index.rows.operations.rows(at as usize);
        // A search takes a few steps for each row that it finds.
        if steps < SCAN_STEPS_MIN || steps < SCAN_STEPS_PER_ROW_MIN.saturating_mul(rows.saturating_add(1)) {
            return false;
        }
        // Of what an aggregate or a change selects, no row is returned.
        rows > 1 || counters.vm_steps.is_some_and(|ops| ops as f64 <= REJECTING_OPS_PER_STEP_MAX * steps as f64)
    }

    fn full_scan(&self) -> Option<FindingDraft> {
        let operations = &self.case.index.rows.operations;
        if !selects_by_contents(&self.case.index.rows.shapes[self.case.statement.shape].text) {
            return None;
        }
        let about = About {
            code: FindingCode::S04,
            title: "full scan where an index would serve",
            remedy: Remedy::new(
                "CREATE INDEX on the columns that the WHERE clause compares; where other tables refer to this one, on the columns by which they do; EXPLAIN QUERY PLAN says whether it is used",
            ),
            names: &[TimeCategory::DatabaseCpu, TimeCategory::DatabaseRead],
        };
        let has = |at: u32| self.scans(at) && self.autoindex_share(at) < AUTOINDEX_SHARE_MIN;
        let part = |at: u32| {
            let steps = self.value(at, |c| c.fullscan_steps).max(1);
            1.0 - (operations.rows(at as usize) as f64 + 1.0) / steps as f64
        };
        let rows = |at: &u32| operations.rows(*at as usize) as f64;
        self.finding(&about, has, part, |mean, executions| {
            let having: Vec<u32> = self.case.statement.executions.iter().copied().filter(|at| has(*at)).collect();
            let returned = having.iter().map(rows).sum::<f64>() / having.len().max(1) as f64;
            format!(
                "{executions} stepped through {} rows of a table or index to return {}, in the mean",
                count(mean(&|c| c.fullscan_steps)),
                count(returned)
            )
        })
    }

    /// Returns the part of an execution's instructions, by the time that they take, that builds automatic indices.
    fn autoindex_share(&self, at: u32) -> f64 {
        let Some(counters) = self.counted.of(at) else { return 0.0 };
        let (Some(rows), Some(ops)) = (counters.autoindex_rows, counters.vm_steps) else { return 0.0 };
        let building = rows.saturating_mul(AUTOINDEX_ROW_OPS);
        let others = ops.saturating_sub(rows.saturating_mul(AUTOINDEX_ROW_COUNTED_OPS));
        building as f64 / (building.saturating_add(others)).max(1) as f64
    }

    fn automatic_index(&self) -> Option<FindingDraft> {
        let about = About {
            code: FindingCode::S05,
            title: "index built for each execution",
            remedy: Remedy::new(
                "CREATE INDEX on the columns by which the tables are joined; EXPLAIN QUERY PLAN names them (AUTOMATIC INDEX)",
            ),
            names: &[TimeCategory::DatabaseCpu],
        };
        let has = |at: u32| self.value(at, |c| c.autoindex_rows) > 0;
        self.finding(
            &about,
            has,
            |at| self.autoindex_share(at),
            |mean, executions| {
                format!(
                    "{executions} built an index of {} rows for itself and dropped it, in the mean",
                    count(mean(&|c| c.autoindex_rows))
                )
            },
        )
    }

    fn sort_in_file(&self) -> Option<FindingDraft> {
        let about = About {
            code: FindingCode::S06,
            title: "sort in a temporary file",
            remedy: Remedy::new(
                "an index in the order that is wanted; fewer columns in the result; more memory for the sort: a larger PRAGMA cache_size, or PRAGMA temp_store = MEMORY",
            ),
            names: &[TimeCategory::Temporary],
        };
        let has = |at: u32| self.value(at, |c| c.sorts) > 0 && self.case.facts.ns(at, TimeCategory::Temporary) > 0;
        self.finding(
            &about,
            has,
            |_| 1.0,
            |mean, executions| {
                format!(
                    "{executions} sorted more than fits into memory ({} in the mean), through a temporary file",
                    counted(mean(&|c| c.sorts).round() as usize, "sort")
                )
            },
        )
    }

    fn spill(&self) -> Option<FindingDraft> {
        let about = About {
            code: FindingCode::S07,
            title: "page cache too small for the transaction",
            remedy: Remedy::new(
                "a larger PRAGMA cache_size (negative: in KiB) for the connection that writes; or smaller transactions",
            ),
            // What is written early would have to be written anyway.
            names: &[TimeCategory::Sync],
        };
        let has = |at: u32| self.value(at, |c| c.cache_spills) > 0;
        let part = |at: u32| {
            // An execution that also commits has to sync for that.
            let commits = self.value(at, |c| c.cache_writes) > self.value(at, |c| c.cache_spills);
            let longest = self.case.facts.syncs.get(&at).map_or(0, |(_, longest)| *longest);
            if commits { 1.0 - longest as f64 / self.ns(at, about.names).max(1) as f64 } else { 1.0 }
        };
        self.finding(&about, has, part, |mean, executions| {
            format!(
                "{executions} wrote pages before the transaction was to be committed, since the cache was full, and synced the journal for them first: {} spills and {} written pages each, in the mean",
                count(mean(&|c| c.cache_spills)),
                count(mean(&|c| c.cache_writes))
            )
        })
    }

    fn prepared_again(&self) -> Option<FindingDraft> {
        let prepare_ns = self.counted.prepare_ns?;
        let about = About {
            code: FindingCode::S08,
            title: "statement prepared again by SQLite itself",
            remedy: Remedy::new(
                "do not change the schema while statements are kept: no CREATE, DROP, ATTACH, ANALYZE or temporary tables between their executions",
            ),
            names: &[TimeCategory::DatabaseCpu],
        };
        let has = |at: u32| self.value(at, |c| c.reprepares) > 0;
        let part = |at: u32| {
            let again = self.value(at, |c| c.reprepares).saturating_mul(prepare_ns);
            again as f64 / self.ns(at, about.names).max(1) as f64
        };
        self.finding(&about, has, part, |_, executions| {
            format!("{executions} found the schema changed, and prepared the statement again before it ran")
        })
    }

    fn cascade(&self) -> Option<FindingDraft> {
        let about = About {
            code: FindingCode::S09,
            title: "trigger or foreign-key action for each row",
            remedy: Remedy::new(
                "an index on the columns of a foreign key in the table that has it; one statement for all rows in place of a trigger for each",
            ),
            names: &[TimeCategory::DatabaseCpu, TimeCategory::DatabaseRead],
        };
        // A statement that is prepared again begins twice.
        let runs =
            |at: u32| self.value(at, |c| c.runs).saturating_sub(self.value(at, |c| c.reprepares).saturating_add(1));
        let has = |at: u32| {
            let scans = self.value(at, |c| c.fullscan_steps) >= SCAN_STEPS_MIN;
            runs(at) >= CASCADE_RUNS_MIN || runs(at) > 0 && scans
        };
        self.finding(
            &about,
            has,
            |_| 1.0,
            |mean, executions| {
                let each = count((mean(&|c| c.runs) - 1.0).max(0.0));
                let steps = mean(&|c| c.fullscan_steps);
                let scanned = if steps >= SCAN_STEPS_MIN as f64 {
                    format!(", and stepped through {} rows of a table without an index for it", count(steps))
                } else {
                    String::new()
                };
                format!(
                    "{executions} ran {each} programs of triggers or foreign-key actions each{scanned}, in the mean"
                )
            },
        )
    }
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
