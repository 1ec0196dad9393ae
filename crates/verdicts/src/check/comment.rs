//! A check's outcome as a comment on a change, in Markdown.
//!
//! Its first line, which is not shown, names the contract: by it the comment is found again and updated. Text from the program (statements,
//! names of files and functions) is in code spans, where a host interprets nothing.

use super::difference::{Difference, Outcome};
use super::sentence;
use super::text::change;
use model::counted;
use std::fmt::Write as _;

/// Maximum number of differences in the table.
const ROWS_MAX: usize = 12;
/// Maximum number of functions of the path.
const FUNCTIONS_MAX: usize = 6;

/// Maximum number of characters of a code span: hosts refuse long comments.
const SPAN_CHARS_MAX: usize = 300;

/// Stands for the address of the page, which is known once it is uploaded.
pub const PAGE_ADDRESS: &str = "FATHOM_PAGE_URL";

/// The line by which the comment of a contract is recognized.
pub fn marker(file: &str) -> String {
    let name: String = file.chars().filter(|c| c.is_ascii_alphanumeric() || "._/-".contains(*c)).collect();
    format!("<!-- fathom-check: {} -->", name.replace("--", "-"))
}

/// Returns the comment; with `page`, with a link to [`PAGE_ADDRESS`].
pub fn comment(outcome: &Outcome, file: &str, page: bool) -> String {
    let mut out = marker(file) + "\n";
    let runs = counted(outcome.runs as usize, "run");
    match outcome.differences.first() {
        None => {
            let _ = writeln!(
                out,
                "### I/O contract: as recorded\n\n{} holds: no call, sync or byte more or less.",
                code(file)
            );
        }
        Some(first) => push_differences(&mut out, outcome, first),
    }
    if page {
        let _ = writeln!(out, "\n[The recording as a page]({PAGE_ADDRESS})");
    }
    let _ = writeln!(out, "\n<sub>Counted by {} in {runs}; times play no part.", code(&outcome.counted_by));
    if !outcome.passed {
        let _ = writeln!(out, "If it is intended: `fathom check record`, and commit {}.", code(file));
    }
    out.push_str("</sub>\n");
    out
}

fn push_differences(out: &mut String, outcome: &Outcome, first: &Difference) {
    let what = sentence::change(outcome).unwrap_or_default();
    let because = outcome.because.as_ref().map_or(String::new(), |why| format!(", because {}", code(why)));
    let place =
        first.places.first().map_or(String::new(), |place| format!(", at {}", code(&sentence::shown_place(place))));
    let _ = writeln!(out, "### I/O contract: a difference\n");
    let _ = writeln!(out, "**This change {}{place}{because}.**\n", code(&what));
    if let Some(path) = path(outcome, first) {
        let _ = writeln!(out, "Path: {path}\n");
    }
    let _ = writeln!(out, "| of | count | contract | now | at |\n|---|---|--:|--:|---|");
    for d in outcome.differences.iter().take(ROWS_MAX) {
        let expected = match d.expected {
            [least, most] if least == most => least.to_string(),
            [least, most] => format!("{least} to {most}"),
        };
        let at = d.places.first().map_or(String::new(), |place| code(&sentence::shown_place(place)));
        let _ =
            writeln!(out, "| {} | {} | {expected} | {} | {at} |", code(&sentence::whose(d)), code(&d.what), d.found);
    }
    if outcome.differences.len() > ROWS_MAX {
        let _ = writeln!(out, "\n{} more.", outcome.differences.len() - ROWS_MAX);
    }
}

/// From the outermost function known to the device.
fn path(outcome: &Outcome, first: &Difference) -> Option<String> {
    let place = first.places.first()?;
    let mut steps: Vec<String> = place.stack.iter().take(FUNCTIONS_MAX).rev().map(|frame| code(frame)).collect();
    if let Some(text) = &first.statement {
        steps.push(code(text));
    }
    steps.push(code(&change(first)));
    let device = |d: &&Difference| d.device && d.statement == first.statement;
    steps.extend(outcome.differences.iter().filter(device).map(|d| format!("device: {}", code(&change(d)))));
    Some(steps.join(" → "))
}

/// A code span, which nothing within it can end; on one line, and without the table's separator.
fn code(text: &str) -> String {
    let one_line: String = text.chars().take(SPAN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("`{}`", one_line.replace('`', "'").replace('|', "¦"))
}
