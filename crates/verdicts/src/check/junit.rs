//! A check's outcome as JUnit's XML, which CI systems show as tests: one case for each statement of the contract, one for what is outside
//! statements, and one for the whole program.

use super::contract::Contract;
use super::difference::{Difference, Outcome};
use super::sentence;
use super::text::difference_text;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What a case is about.
type Subject<'a> = (bool, Option<&'a str>);

/// Returns the document of a check against the contract in `file`.
pub fn junit(contract: &Contract, outcome: &Outcome, file: &str) -> String {
    let traced = outcome.counted_by == contract.counted_by;
    let statements = contract.statements.iter().filter(|_| traced).map(|s| (false, Some(s.text.as_str())));
    let of = |d: &'_ Difference| (d.total, d.statement.clone());
    let different: BTreeSet<(bool, Option<String>)> = outcome.differences.iter().map(of).collect();
    let rest = [(false, None)].into_iter().chain((traced && contract.total.is_some()).then_some((true, None)));
    let subjects: BTreeSet<Subject> =
        statements.chain(rest).chain(different.iter().map(|(total, text)| (*total, text.as_deref()))).collect();
    let failed = subjects.iter().filter(|(total, text)| different.contains(&(*total, text.map(Into::into)))).count();
    let mut out = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let counts = format!("tests=\"{}\" failures=\"{failed}\" errors=\"0\" skipped=\"0\"", subjects.len());
    let _ = writeln!(out, "<testsuites name=\"fathom check\" {counts}>");
    let _ = writeln!(out, "  <testsuite name=\"{}\" {counts}>", escaped(file));
    for subject in &subjects {
        push_case(&mut out, subject, outcome, file);
    }
    out.push_str("  </testsuite>\n</testsuites>\n");
    out
}

fn push_case(out: &mut String, (total, text): &Subject, outcome: &Outcome, file: &str) {
    let own: Vec<&Difference> =
        outcome.differences.iter().filter(|d| (d.total, d.statement.as_deref()) == (*total, *text)).collect();
    let name = match (total, text) {
        (true, _) => "whole program",
        (false, Some(text)) => text,
        (false, None) => "outside statements",
    };
    let _ = write!(out, "    <testcase classname=\"{}\" name=\"{}\"", escaped(file), escaped(name));
    let Some(first) = own.first() else {
        out.push_str("/>\n");
        return;
    };
    let lines: Vec<String> = own.iter().map(|d| difference_text(d)).collect();
    // The sentence is about the most important difference, which is the first of one case only.
    let is_first = outcome.differences.first().is_some_and(|d| std::ptr::eq(d, *first));
    let message = sentence::sentence(outcome).filter(|_| is_first).unwrap_or_else(|| lines[0].clone());
    if let Some((place, line)) = first.places.first().and_then(|place| Some((place, place.line?))) {
        let _ = write!(out, " file=\"{}\" line=\"{line}\"", escaped(&place.file));
    }
    let _ = write!(
        out,
        ">\n      <failure message=\"{}\" type=\"difference\">{}</failure>\n    </testcase>\n",
        escaped(&message),
        escaped(&lines.join("\n"))
    );
}

/// Text for XML, without the characters that it cannot contain.
fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push_str("&#10;"),
            '\t' => out.push_str("&#9;"),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
