//! S10, a connection opened for every execution.

use super::facts::{Facts, TimeCategory};
use super::rules::{Case, Remedy, sum_ns};
use super::{FindingDraft, Statement};
use analysis::rows::Index;
use analysis::text::duration;
use model::{FindingCode, counted};

/// Connections from which on they are repeated: a program has to open its database once.
const REPEATED_CONNECTIONS_MIN: usize = 3;

/// Returns the finding, if it applies to the statement.
pub(super) fn per_execution(index: &Index, facts: &Facts, statement: &Statement) -> Option<FindingDraft> {
    let case = Case { index, facts, statement };
    let time = case.each(|at| facts.ns(at, TimeCategory::Connect));
    let having = time.iter().filter(|ns| **ns > 0).count();
    if having < REPEATED_CONNECTIONS_MIN || !case.is_typical(having, |at| facts.ns(at, TimeCategory::Connect) > 0) {
        return None;
    }
    let claim = format!(
        "{having} of {} come right after a database was opened on their thread; to open and close it takes {} each, in addition to their own time",
        counted(case.count(), "execution"),
        duration(sum_ns(&time) as f64 / having as f64)
    );
    Some(FindingDraft {
        code: FindingCode::S10,
        title: "connection opened for every execution",
        claim,
        executions: having as u64,
        pieces: None,
        saving_ns: Some(sum_ns(&time)),
        names: Vec::new(),
        cause: None,
        outside_latency: Some(time.clone()),
        time,
        remedy: Remedy::new(
            "keep a connection open and use it again (a pool); each new one reads the schema, and the last to close a WAL writes it back",
        ),
        evidence: case.evidence(TimeCategory::Connect),
        slow_waits: Vec::new(),
    })
}
