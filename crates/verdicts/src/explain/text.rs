//! Findings as text for people: the output of `fathom explain`, and the line of `fathom show`. It fits 100 columns.

use super::contract::{Explanation, Finding};
use super::leaf;
use analysis::lines::{capitalise, line, wrapped};
use analysis::stacks;
use analysis::text::{duration, shown};
use model::{FindingCode, counted};

/// Maximum number of codes in the line of `fathom show`.
const CODES_SHOWN_MAX: usize = 3;
/// Maximum number of further statements named for a finding.
const STATEMENTS_SHOWN_MAX: usize = 3;
/// Maximum number of stacks printed for a finding.
const STACKS_SHOWN_MAX: usize = 2;

/// Text for a recording without an execution; the page has the same.
const NOTHING_TO_EXPLAIN: &str = "\
No operation ended in this recording (no SQL statement, marked span, --op function, or call that waits for the device), so there is \
nothing to explain. `fathom show` tells what was recorded, and which probes are missing; `fathom record --op BINARY:FUNCTION` makes \
the calls of a function operations, and --list-ops names those of databases.";

/// Formats all findings.
pub fn text(explanation: &Explanation) -> String {
    let mut out = String::new();
    if let Some(caveat) = explanation.caveats.against_times() {
        wrapped(&mut out, "", &format!("{}; so no saving is given.", capitalise(&caveat.because)));
        out.push('\n');
    }
    if let Some(caveat) = explanation.caveats.against_charges() {
        wrapped(&mut out, "", &format!("{}: what it lists may have caused more.", capitalise(&caveat.because)));
        out.push('\n');
    }
    leaf::text(&mut out, &explanation.account);
    leaf::between_text(&mut out, &explanation.between);
    for finding in &explanation.findings {
        push_head(&mut out, finding);
        wrapped(&mut out, "  ", &capitalise(&shown(&finding.claim)));
        if let (Some(share), Some(time)) = (finding.share, finding.time_ns) {
            let range = finding
                .interval
                .map_or(String::new(), |[low, high]| format!(" ({:.0} to {:.0} %)", 100.0 * low, 100.0 * high));
            let executions = format!("in {} of {}", finding.executions, counted(finding.of as usize, "execution"));
            wrapped(
                &mut out,
                "  ",
                &format!(
                    "time: {}, {:.0} % of the operation's{range}; {executions}",
                    duration(time as f64),
                    100.0 * share
                ),
            );
        }
        if let Some(saving) = finding.saving_ns {
            let range = finding.saving_interval_ns.map_or(String::new(), |[low, high]| {
                format!(" ({} to {})", duration(low as f64), duration(high as f64))
            });
            wrapped(&mut out, "  ", &format!("saving: at most {}{range}", duration(saving as f64)));
        }
        wrapped(&mut out, "  ", &format!("remedy: {}", finding.remedy));
        if !finding.evidence.is_empty() {
            let spans: Vec<String> = finding.evidence.iter().map(u64::to_string).collect();
            wrapped(&mut out, "  ", &format!("spans: {}", spans.join(", ")));
        }
        for wait in finding.slow_waits.iter().take(STACKS_SHOWN_MAX) {
            wrapped(&mut out, "  ", &format!("where: {}", stacks::line(wait)));
        }
        out.push('\n');
    }
    if explanation.executions == 0 {
        wrapped(&mut out, "", NOTHING_TO_EXPLAIN);
    } else if explanation.findings.is_empty() {
        wrapped(&mut out, "", &leaf::without_finding(&explanation.account));
    } else {
        wrapped(
            &mut out,
            "",
            "Findings overlap: their times are not to be added. Each code is described in docs/guide/explain.md.",
        );
    }
    out
}

fn push_head(out: &mut String, finding: &Finding) {
    let statement = finding.statement.as_ref().map_or(String::new(), |text| format!(": {}", shown(text)));
    line(out, &format!("{}  {}{statement}", finding.code, finding.title));
    if let [_, others @ ..] = finding.statements.as_slice()
        && !others.is_empty()
    {
        let named: Vec<String> = others.iter().take(STATEMENTS_SHOWN_MAX).map(|one| shown(&one.statement)).collect();
        let more = if others.len() > STATEMENTS_SHOWN_MAX { "; …" } else { "" };
        wrapped(
            out,
            "  ",
            &format!("the same in {}: {}{more}", counted(others.len(), "further statement"), named.join("; ")),
        );
    }
}

/// Formats the lines of `fathom show`: the largest part of the time, and the findings, if there are any.
pub fn summary(explanation: &Explanation) -> String {
    let mut out = leaf::largest_line(&explanation.account, &explanation.caveats);
    out.push_str(&leaf::between_line(&explanation.between));
    if explanation.findings.is_empty() {
        return out;
    }
    let named = |finding: &Finding| match finding.share_of_all {
        Some(share) => format!("{} {} ({:.0} %)", finding.code, finding.title, 100.0 * share),
        None => format!("{} {}", finding.code, finding.title),
    };
    // For each code, the finding with most time.
    let mut codes: Vec<FindingCode> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    for finding in &explanation.findings {
        if !codes.contains(&finding.code) {
            codes.push(finding.code);
            names.push(named(finding));
        }
    }
    let more = names.len().saturating_sub(CODES_SHOWN_MAX);
    names.truncate(CODES_SHOWN_MAX);
    let more = if more > 0 { format!(", {more} more") } else { String::new() };
    wrapped(&mut out, "", &format!("Findings: {}{more} (`fathom explain`)", names.join(", ")));
    out
}
