//! A network run for people: its throughput, and what limited it. Some of its texts come from another machine; none of them may
//! imitate a line of the output.

use super::page::Page;
use super::results::Bench;
use super::run_score::DirectionLimits;
use model::text::{rate, shown};
use std::fmt::Write as _;

pub fn text(run: &Bench, page: &Page) -> String {
    let mut text = String::new();
    for bar in page.figures.iter().flat_map(|figure| &figure.bars) {
        let formatted = |v: f64| if bar.unit == "bit/s" { rate(v) } else { format!("{v:.1} {}", bar.unit) };
        let value = bar.estimate.map_or_else(|| "no result".into(), formatted);
        let interval =
            bar.ci95.map_or_else(String::new, |[low, high]| format!("  ({} to {})", formatted(low), formatted(high)));
        let _ = writeln!(text, "{}\n  {value}{interval}", shown(&bar.label));
        for note in &bar.notes {
            let _ = writeln!(text, "  {}", shown(note));
        }
    }
    if !run.is_complete() {
        text += "  interrupted: less was measured than was requested\n";
    }
    for mark in run.tables.marks.iter().filter(|m| m.name.starts_with("end.")) {
        let _ = writeln!(text, "  {}: {}", shown(&mark.name), shown(&mark.text));
    }
    for DirectionLimits { direction, limits, .. } in &page.held {
        let _ = writeln!(text, "\n{} was limited by", shown(direction));
        for limit in limits {
            let (cause, evidence) = (shown(&limit.cause), shown(&limit.evidence));
            let _ = writeln!(text, "  {cause:17} {:4.0} %  {evidence}", 100.0 * limit.share);
            if let Some(remedy) = &limit.remedy {
                let _ = writeln!(text, "  {:17}         {}", "", shown(remedy));
            }
        }
    }
    text
}
