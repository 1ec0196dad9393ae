//! `fathom show`: the summary of an archive, for people or for programs.

use crate::{args, bench, link, progress};
use anyhow::Result;

pub fn run(args: &args::Show) -> Result<()> {
    let archive = link::open(&args.archive, &progress::context(args.json))?;
    if matches!(archive.meta().kind.as_str(), "bench" | "net") {
        let (archive, json) = (args.archive.clone(), args.json);
        let args = args::BenchShow { archive, json, csv: None, markdown: None, penalty: args::Penalty::Fixed };
        return bench::show(&args).map(drop);
    }
    let summary = analysis::summarise_archive(&archive)?;
    if args.json {
        println!("{}", serde_json::to_string_pretty(&summary)?);
    } else {
        print!("{}", analysis::show::text(&summary));
    }
    Ok(())
}
