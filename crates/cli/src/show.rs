//! `fathom show`: the summary of an archive, for people or for programs.

use crate::{args, bench, link, output, progress};
use analysis::bench::net::page_of;
use analysis::bench::results::Bench;
use analysis::bench::run_score::DirectionLimits;
use analysis::explain;
use analysis::text::shown;
use anyhow::Result;
use archive::{Archive, ArchiveKind};
use model::text::rate;
use std::fmt::Write as _;

pub fn run(args: &args::Show) -> Result<()> {
    let archive = link::open(&args.archive, &progress::context(args.json))?;
    match archive.meta().kind {
        ArchiveKind::Trace => recording(&archive, args.json),
        ArchiveKind::Net => net(&Bench::load(&archive, &args.archive.display().to_string())?, args.json),
        ArchiveKind::Bench => {
            let (archive, json) = (args.archive.clone(), args.json);
            let args = args::BenchShow { archive, json, csv: None, markdown: None, penalty: args::Penalty::Fixed };
            bench::show(&args).map(drop)
        }
    }
}

fn recording(archive: &Archive, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(&analysis::summarise_archive(archive)?)?);
    } else {
        let (summary, explanation) = explain::summarise_and_explain(archive)?;
        print!("{}{}", explain::text::summary(&explanation), analysis::show::text(&summary));
    }
    Ok(())
}

/// A network run: what came through, and what held it back. Parts of it another machine told; none may look like a line of its own.
/// Time is on the page (`fathom report`).
fn net(run: &Bench, json: bool) -> Result<()> {
    let page = page_of(std::slice::from_ref(run), &[])?;
    if json {
        let mut value = serde_json::to_value(&page.shown)?;
        value["limited_by"] = serde_json::to_value(&page.held)?;
        output::text(&(serde_json::to_string_pretty(&value)? + "\n"));
        return Ok(());
    }
    let mut text = String::new();
    for bar in page.figures.iter().flat_map(|figure| &figure.bars) {
        let formatted = |v: f64| if bar.unit == "bit/s" { rate(v) } else { format!("{v:.1} {}", bar.unit) };
        let value = bar.estimate.map_or_else(|| "no result".into(), formatted);
        let interval =
            bar.ci95.map_or_else(String::new, |[low, high]| format!("  ({} to {})", formatted(low), formatted(high)));
        let _ = writeln!(text, "{}\n  {value}{interval}", shown(&bar.label));
        // What limited it follows with its evidence.
        for note in bar.notes.iter().filter(|note| !note.starts_with("limited by")) {
            let _ = writeln!(text, "  {}", shown(note));
        }
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
    output::text(&text);
    Ok(())
}
