//! One cause, once: findings of several statements that have the same cause and the same remedy are one.
//!
//! A test suite of forty statements that all commit to the same slow disk has one problem, not forty. The merged finding is built anew
//! from all executions, so that its share, interval and saving are of them together.

use super::contract::{Finding, FindingStatement};
use super::{FindingDraft, Statement};
use analysis::rows::Index;
use model::FindingCode;
use std::collections::BTreeMap;

/// Findings whose remedy is about one statement's text or plan: they stay apart.
const APART_CODES: [FindingCode; 7] = [
    FindingCode::S02,
    FindingCode::S03,
    FindingCode::S04,
    FindingCode::S05,
    FindingCode::S06,
    FindingCode::S09,
    FindingCode::D01,
];

/// A finding with what it was built from.
pub(super) struct Single {
    pub statement: Statement,
    pub draft: FindingDraft,
    pub finding: Finding,
}

/// Merges the findings of one cause. `build` builds one from the executions of several statements.
pub(super) fn merge(
    index: &Index,
    singles: Vec<Single>,
    build: impl Fn(&Statement, &FindingDraft) -> Option<Finding>,
) -> Vec<Finding> {
    let mut groups: BTreeMap<(FindingCode, String, Option<String>, usize), Vec<Single>> = BTreeMap::new();
    for single in singles {
        let apart = if APART_CODES.contains(&single.draft.code) { single.statement.shape + 1 } else { 0 };
        let key = (single.draft.code, single.finding.remedy.clone(), single.draft.cause.clone(), apart);
        groups.entry(key).or_default().push(single);
    }
    let mut findings = Vec::new();
    for (_, mut group) in groups {
        // With most of the time first; equal ones as they come.
        group.sort_by_key(|single| std::cmp::Reverse(single.finding.time_ns));
        let statements: Vec<FindingStatement> = group.iter().map(|single| part(&single.finding)).collect();
        let merged = if group.len() > 1 {
            merge_group(index, &group).and_then(|(all, draft)| build(&all, &draft))
        } else {
            None
        };
        match merged {
            Some(finding) => findings.push(Finding { statements, ..finding }),
            // Together they are less than each is of its own statement.
            None => findings.extend(group.into_iter().map(|single| {
                let statements = vec![part(&single.finding)];
                Finding { statements, ..single.finding }
            })),
        }
    }
    findings
}

fn part(finding: &Finding) -> FindingStatement {
    FindingStatement {
        statement: finding.statement.clone().unwrap_or_default(),
        executions: finding.executions,
        of: finding.of,
        time_ns: finding.time_ns,
    }
}

/// Puts the executions of a group in order, with the time of each.
fn merge_group(index: &Index, group: &[Single]) -> Option<(Statement, FindingDraft)> {
    let (first, rest) = group.split_first()?;
    let mut rows: Vec<(u64, u32, u64)> = Vec::new();
    for single in group {
        let times = single.statement.executions.iter().zip(&single.draft.time);
        rows.extend(times.map(|(at, ns)| (index.rows.operations.start_ns(*at as usize), *at, *ns)));
    }
    rows.sort_unstable();
    let sum = |value: fn(&FindingDraft) -> Option<u64>| {
        group.iter().try_fold(0_u64, |sum, single| Some(sum.saturating_add(value(&single.draft)?)))
    };
    let statement = Statement {
        shape: first.statement.shape,
        more: rest.iter().map(|single| single.statement.shape).collect(),
        executions: rows.iter().map(|row| row.1).collect(),
    };
    let draft = FindingDraft {
        executions: group.iter().map(|single| single.draft.executions).sum(),
        pieces: sum(|draft| draft.pieces),
        saving_ns: sum(|draft| draft.saving_ns),
        time: rows.iter().map(|row| row.2).collect(),
        ..first.draft.clone()
    };
    Some((statement, draft))
}
