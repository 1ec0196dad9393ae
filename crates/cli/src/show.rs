//! `fathom show`: the summary of an archive, for people or for programs.

use crate::{args, bench, link, output, progress};
use anyhow::Result;
use archive::{Archive, ArchiveKind};
use scores::Penalty;
use scores::net::page_of;
use scores::net_text;
use scores::results::Bench;
use verdicts::explain;

pub fn run(args: &args::Show) -> Result<()> {
    let archive = link::open(&args.archive, &progress::context(args.json))?;
    match archive.meta().kind {
        ArchiveKind::Trace => show_recording(&archive, args.json),
        ArchiveKind::Net => show_net(&Bench::load(&archive, &args.archive.to_string_lossy())?, args.json),
        ArchiveKind::Bench => {
            let (archive, json) = (args.archive.clone(), args.json);
            let files = args::ResultFiles::default();
            let args = args::BenchShow { archive, json, files, penalty: Penalty::Fixed };
            bench::inspect::show(&args).map(drop)
        }
    }
}

fn show_recording(archive: &Archive, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(&explain::summarise_with_account(archive)?)?);
    } else {
        let (summary, explanation) = explain::summarise_and_explain(archive)?;
        print!("{}{}", explain::text::summary(&explanation), analysis::show::text(&summary));
    }
    Ok(())
}

/// A network run: throughput, and what limited it. Texts of the other machine cannot pass for lines of this output.
/// Time is on the page (`fathom report`).
fn show_net(run: &Bench, json: bool) -> Result<()> {
    let page = page_of(std::slice::from_ref(run), &[])?;
    if json {
        let mut value = serde_json::to_value(&page.shown)?;
        value["limited_by"] = serde_json::to_value(&page.held)?;
        output::print_text(&(serde_json::to_string_pretty(&value)? + "\n"));
        return Ok(());
    }
    output::print_text(&net_text::text(run, &page));
    Ok(())
}
