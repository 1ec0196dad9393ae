//! Results as a section of a Markdown page: a pure function, so that a page can be regenerated from its archives.

use crate::{Cell, Comparison, Results};
use model::text::{LINE_CHARS_MAX, wrap_markdown};
use stats::Estimate;
use std::fmt::Write as _;

/// Formats a section with the question, a table of every cell (absent ones with their reason) and how it was measured.
pub fn markdown(results: &Results) -> String {
    let design = &results.design;
    let comparisons = results.comparisons();
    let (size, unit) = readable_unit(results.unit(), comparisons.iter().find_map(|c| c.median).unwrap_or(0.0));
    let mut page = format!("## {}\n\n{}\n\n", escape(&design.name), escape(&design.question));
    let _ = writeln!(
        page,
        "| | {} ({}), median | pairs | ratio to {} | 95 % interval | |",
        escape(&design.metric),
        escape(unit),
        escape(design.baseline.as_deref().unwrap_or_default())
    );
    page.push_str("|---|---:|---:|---:|---:|---|\n");
    let noise = comparisons.iter().filter_map(|c| Some(c.self_check?.noise)).reduce(f64::max);
    for (cell, c) in design.cells.iter().zip(&comparisons) {
        let name = if cell.about.is_empty() { c.cell.clone() } else { format!("{}: {}", c.cell, cell.about) };
        let ratio = c.ratio.map(|r| r.value).or(c.median_ratio).map_or(String::new(), |r| format!("{r:.3}"));
        let interval = c.ratio.map_or(String::new(), |r| format!("{:.3} to {:.3}", r.low, r.high));
        let median = c.median.map_or(String::new(), |median| format_number(median / size));
        let note = escape(&cell_note(c, cell, noise, Some(&c.cell) == design.baseline.as_ref()));
        let _ = writeln!(page, "| {} | {median} | {} | {ratio} | {interval} | {note} |", escape(&name), c.pairs);
    }
    let _ = write!(
        page,
        "\nMedian of the ratios within {} randomised blocks (seed {}, {} warm-up), each replicate a fresh process; \
         percentile bootstrap over pairs.",
        design.blocks, design.seed, design.warmup
    );
    if let Some(disk) = &design.disk {
        let _ = write!(
            page,
            " Disk: {}, {} MiB, recreated for each {}.",
            escape(&disk.kind),
            disk.size_mib,
            disk.fresh.name()
        );
    }
    if let Some(absent) = results.missing_baseline() {
        let _ = write!(page, " **{} is missing: {}.**", escape(&absent.cell), escape(&shorten_reason(&absent.why)));
    }
    if !results.complete() {
        page.push_str(" **The run was interrupted.**");
    }
    page.push_str("\n\nCommands:\n\n");
    let mut left = Vec::new();
    for (cell, row) in design.cells.iter().zip(&results.cells) {
        if let Some(other) = &row.same_as {
            let _ = writeln!(page, "- {}: as {}", escape(&row.name), escape(other));
            continue;
        }
        let words: Vec<String> = serde_json::from_str(&row.argv).unwrap_or_default();
        let beside = if cell.background.is_empty() {
            String::new()
        } else {
            format!(" (beside it: `{}`)", format_command(&cell.background))
        };
        let line = format!("- {}: `{}`{beside}", escape(&row.name), format_command(&words));
        if line.chars().count() <= LINE_CHARS_MAX {
            page.extend([line.as_str(), "\n"]);
        } else {
            left.push(escape(&row.name));
        }
    }
    if !left.is_empty() {
        let _ = writeln!(
            page,
            "- {}: longer, in the design `{}`",
            left.join(", "),
            format_command(std::slice::from_ref(&design.name))
        );
    }
    wrap_markdown(&page)
}

/// Returns notes on a cell. `noise` is the baseline's difference from itself, as a fraction.
fn cell_note(c: &Comparison, cell: &Cell, noise: Option<f64>, is_baseline: bool) -> String {
    let mut notes = Vec::new();
    if let Some(check) = &c.self_check {
        let check_result = match (c.too_disturbed, check.passed) {
            (true, _) => "A/A disturbed",
            (false, true) => "A/A passed",
            (false, false) => "A/A FAILED",
        };
        notes.push(format!("{check_result}: minimum detectable difference {:.1} %", check.noise * 100.0));
    }
    if let Some(goal) = cell.goal {
        notes.push(match c.ratio {
            _ if c.too_disturbed => format!("target {goal}: not judged"),
            Some(r) if r.low >= goal => format!("target {goal}: met"),
            Some(r) if r.high < goal => format!("target {goal}: missed"),
            Some(_) => format!("target {goal}: inconclusive"),
            None => format!("wanted {goal}"),
        });
    }
    if let (Some(percent), Some(ratio)) = (cell.within_percent, c.ratio.filter(|_| !c.too_disturbed)) {
        notes.push(describe_agreement(percent, &ratio, noise, &cell.because));
    }
    if c.ratio.is_none() && c.pairs > 0 && !is_baseline {
        notes.push("too few pairs for an interval".into());
    }
    if c.disturbed > 0 {
        let which = model::counted(c.disturbed, if is_baseline { "replicate" } else { "pair" });
        notes.push(match (is_baseline, c.too_disturbed) {
            (true, _) => format!("{which} disturbed by others"),
            (false, false) => format!("{which} disturbed, excluded"),
            (false, true) => {
                format!("disturbed: other processes disturbed {which}; measure again on a quiet machine")
            }
        });
    }
    if c.failed > 0 {
        notes.push(format!("{} failed", model::counted(c.failed, "replicate")));
    }
    if let Some(why) = &c.absent {
        notes.push(format!("absent: {}", shorten_reason(why)));
    }
    notes.join("; ")
}

/// Describes whether a ratio is within `percent` of 1, and if that is not shown, why.
fn describe_agreement(percent: f64, ratio: &Estimate, noise: Option<f64>, because: &str) -> String {
    let (least, most) = (1.0 - percent / 100.0, 1.0 + percent / 100.0);
    if least <= ratio.low && ratio.high <= most {
        return format!("within {percent} %");
    }
    // A machine with larger noise cannot show a deviation of that size.
    let nothing = 1.0 + noise.unwrap_or(0.0).max(percent / 100.0);
    if ratio.high < least.min(1.0 / nothing) || nothing < ratio.low {
        return match because {
            "" => format!("further off than {percent} %, for an unknown reason"),
            because => format!("further off than {percent} %: {because}"),
        };
    }
    match noise.filter(|noise| *noise * 100.0 > percent) {
        Some(noise) => {
            format!("inconclusive for {percent} %: the baseline differs from itself by up to {:.1} %", noise * 100.0)
        }
        None => format!("inconclusive for {percent} %: too few pairs"),
    }
}

/// Shortens a reason for a table; the full text is in the archive.
fn shorten_reason(why: &str) -> String {
    const REASON_CHARACTERS_MAX: usize = 160;
    match why.char_indices().nth(REASON_CHARACTERS_MAX) {
        Some((cut, _)) => format!("{}…", &why[..cut]),
        None => why.into(),
    }
}

/// Returns the divisor for readable numbers of a unit, and the resulting unit: times in ns, of which `of` is one, are converted
/// to the usual unit for such times.
fn readable_unit(unit: &str, of: f64) -> (f64, &str) {
    match (unit, of.abs()) {
        ("ns", 0.9995e9..) => (1e9, "s"),
        ("ns", 0.9995e6..) => (1e6, "ms"),
        ("ns", 0.9995e3..) => (1e3, "us"),
        _ => (1.0, unit),
    }
}

/// Four significant digits, enough for a median of this kind.
fn format_number(x: f64) -> String {
    let digits = if x == 0.0 { 0 } else { (3 - x.abs().log10().floor() as i32).max(0) };
    format!("{x:.*}", digits as usize)
}

/// Escapes text of a foreign program, which must not become table bars, markup or lines.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '|' | '`' | '<' | '*' | '_' | '[' | '\\' => escaped.extend(['\\', c]),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Formats words as one shell command for a code span.
fn format_command(words: &[String]) -> String {
    let plain = |w: &str| !w.is_empty() && w.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:=,{}@%+".contains(&b));
    let quote = |w: &String| if plain(w) { w.clone() } else { format!("'{}'", w.replace('\'', r"'\''")) };
    let line = words.iter().map(quote).collect::<Vec<_>>().join(" ");
    line.chars().map(|c| if c == '`' || c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::Design;
    use model::table::{DesignCell, Replicate, Sample};

    /// A baseline, its control, a tool of 0.8 times its values, and a peer that is not there.
    pub fn results() -> Results {
        let design = Design::parse(
            "t",
            r#"
            name = "insert"
            question = "What does it cost?"
            metric = "insert.rate"
            better = "higher"
            baseline = "none"
            blocks = 8
            seed = 5
            cell = [
                { name = "none", argv = ["w"] },
                { name = "none again", same_as = "none" },
                { name = "tool", about = "a|b", argv = ["t", "a b"], goal = 0.9 },
                { name = "peer", argv = ["p"] },
            ]
            "#,
        )
        .unwrap();
        let mut results = Results::new(&design);
        for (at, cell) in design.cells.iter().enumerate() {
            let argv = serde_json::json!(cell.argv).to_string();
            results.cells.push(DesignCell {
                id: at as u64,
                design: 0,
                name: cell.name.clone(),
                factors: "{}".into(),
                argv,
                metric: None,
                same_as: cell.same_as.clone(),
                absent: None,
            });
        }
        for block in 0..9_u64 {
            for (cell, factor) in [(0, 1.0), (1, if block % 2 == 0 { 1.01 } else { 0.99 }), (2, 0.8)] {
                let id = results.replicates.len() as u64;
                let failure = (block == 3 && cell == 2).then(|| "no".to_string());
                results.replicates.push(Replicate {
                    id,
                    cell,
                    block,
                    place: cell,
                    start_ns: 0,
                    end_ns: 1,
                    exit: Some(0),
                    verified: Some(true),
                    warmup: block == 0,
                    failure,
                    start_unix_ns: None,
                    verified_by: None,
                    why: None,
                    gates: None,
                });
                // The warm-up block is far off: it must not count.
                let value = factor * 100.0 * if block == 0 { 9.0 } else { block as f64 };
                results.samples.push(Sample {
                    replicate: Some(id),
                    metric: "insert.rate".into(),
                    unit: "1/s".into(),
                    labels: String::new(),
                    time_ns: None,
                    value,
                });
            }
        }
        results.absent.push(crate::AbsentCell { cell: "peer".into(), why: "p is not installed".into() });
        results.stopped = Some(crate::StopReason::Blocks);
        results
    }

    #[test]
    fn pairs_are_within_blocks_without_failures_and_warm_up() {
        let comparisons = results().comparisons();
        let tool = &comparisons[2];
        let ratio = tool.ratio.unwrap();
        assert!((ratio.value - 0.8).abs() < 1e-12 && (ratio.high - ratio.low).abs() < 1e-12);
        assert_eq!((ratio.n, tool.replicates, tool.failed), (7, 7, 1));
        assert_eq!(comparisons[0].median, Some(450.0));
        assert!(comparisons[0].ratio.is_none() && comparisons[1].self_check.unwrap().passed);
        assert!(comparisons[3].ratio.is_none() && comparisons[3].absent.is_some());
    }

    #[test]
    fn page_shows_every_cell_and_method() {
        let page = markdown(&results());
        let row = |name: &str| page.lines().find(|l| l.starts_with(&format!("| {name}"))).unwrap().to_string();
        assert_eq!(
            row("tool"),
            "| tool: a\\|b | 400.0 | 7 | 0.800 | 0.800 to 0.800 | target 0.9: missed; 1 replicate failed |"
        );
        assert!(row("none again").contains("A/A passed"));
        assert_eq!(row("peer"), "| peer |  | 0 |  |  | absent: p is not installed |");
        assert!(page.contains("seed 5") && page.contains("`t 'a b'`") && !page.contains("stopped"));
        assert!(page.contains("- none again: as none\n"), "{page}");
    }

    /// An interrupted run without a baseline, disturbed throughout: all that is emphasised.
    #[test]
    fn emphasis_is_closed_and_never_escaped() {
        let mut results = results();
        results.stopped = None;
        let gates = serde_json::json!({ crate::disturbed::UNDISTURBED_MARK: { "state": "failed" } }).to_string();
        results.replicates.iter_mut().for_each(|r| r.gates = Some(gates.clone()));
        results.absent.push(crate::AbsentCell { cell: "none".into(), why: "w is not installed".into() });
        let page = markdown(&results);
        assert!(page.contains("**The run was interrupted.**") && page.contains("; disturbed: "), "{page}");
        assert!(!page.contains("\\*") && !page.contains("***"), "{page}");
        assert_eq!(page.matches("**").count() % 2, 0, "{page}");
    }

    #[test]
    fn long_command_is_replaced_by_a_reference_to_the_design() {
        let mut results = results();
        results.cells[0].argv = serde_json::json!(["w", "x".repeat(LINE_CHARS_MAX)]).to_string();
        results.design.question = "why ".repeat(LINE_CHARS_MAX);
        let page = markdown(&results);
        assert!(page.contains("- none: longer, in the design `insert`\n"), "{page}");
        assert!(page.lines().all(|line| line.starts_with('|') || line.chars().count() <= LINE_CHARS_MAX), "{page}");
    }

    #[test]
    fn expected_agreement_is_checked_with_reason() {
        let of = |low: f64, high: f64, noise, because| {
            let ratio = Estimate { value: (low + high) / 2.0, low, high, level: 0.95, n: 20, method: "" };
            describe_agreement(3.0, &ratio, noise, because)
        };
        assert_eq!(of(0.98, 1.02, Some(0.5), "x"), "within 3 %");
        assert_eq!(
            of(1.04, 1.2, Some(0.01), "two calls in place of four"),
            "further off than 3 %: two calls in place of four"
        );
        assert!(of(0.8, 0.9, None, "").contains("unknown reason"));
        assert_eq!(of(0.5, 0.6, Some(0.5), "two calls"), "further off than 3 %: two calls");
        assert_eq!(
            of(0.9, 1.02, Some(0.123), "x"),
            "inconclusive for 3 %: the baseline differs from itself by up to 12.3 %"
        );
        assert!(
            of(1.04, 1.2, Some(0.5), "x").contains("by up to 50.0 %"),
            "no more than a machine of this noise makes of nothing"
        );
        assert_eq!(of(0.9, 1.02, Some(0.02), "x"), "inconclusive for 3 %: too few pairs");
    }

    #[test]
    fn numbers_have_four_digits() {
        let shown = [57.1234, 0.012_345_6, 120_608.4, 0.0].map(format_number);
        assert_eq!(shown, ["57.12", "0.01235", "120608", "0"]);
    }
}
