//! `fathom diff`: compares recordings.

use crate::{Usage, args, destination, link, output, progress};
use analysis::text::shown;
use anyhow::{Result, bail};
use archive::Archive;
use model::text::ShownPath as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use verdicts::diff;

pub fn open_recording(path: &Path, of_bench: &'static str, json: bool) -> Result<Archive> {
    Ok(scores::measure::archives::open_recording(path, of_bench, &|path| {
        Ok(link::open(path, &progress::context(json))?)
    })?)
}

/// Returns the recordings that the page shows: with several per side the middle ones, which the table shows, too.
fn shown_on_page<'a>(args: &'a args::Diff, diff: &diff::contract::Diff) -> Result<[&'a PathBuf; 2]> {
    let all: Vec<&PathBuf> = args.recordings.iter().chain(&args.with).collect();
    let middle = diff.recordings.as_ref().map_or([0, 1], |r| [r.middle_a, args.recordings.len() + r.middle_b]);
    match middle.map(|at| all.get(at).copied()) {
        [Some(a), Some(b)] => Ok([a, b]),
        _ => bail!("the recordings that the page would show are not known"),
    }
}

pub fn run(args: &args::Diff) -> Result<ExitCode> {
    let open = |path: &PathBuf| open_recording(path, "`fathom bench compare` compares benchmarks", args.json);
    destination::check_one_on_stdout(args.json, args.output.as_deref())?;
    let diff = match (args.recordings.as_slice(), args.with.as_slice()) {
        ([a, b], []) | ([a], [b]) => diff::diff_archives(&open(a)?, &open(b)?)?,
        (all, []) => {
            let given = match all {
                [_] => "one recording is nothing to compare.",
                _ => "which of these recordings belong together?",
            };
            return Err(Usage(format!(
                "{given} Give A.fathom B.fathom, or A1.fathom A2.fathom … --with B1.fathom B2.fathom …"
            ))
            .into());
        }
        (a, b) => diff::diff_many(a, b, open)?,
    };
    let page_only = args.output.as_deref().is_some_and(destination::is_stdout);
    if !page_only {
        output::print_result(args.json, &diff, || diff::text::text(&diff))?;
    }
    if let Some(page) = &args.output {
        let [a, b] = shown_on_page(args, &diff)?;
        let of = |path: &PathBuf| Ok::<_, anyhow::Error>((open(path)?, path.to_string_lossy().into_owned()));
        destination::write_text(page, &report::archives::comparison_page(&[of(a)?, of(b)?], &diff)?)?;
        if !args.json && !page_only {
            println!("{}: open it in a browser (self-contained)", page.shown());
        }
    }
    let Some(percent) = args.fail_on else { return Ok(ExitCode::SUCCESS) };
    let slower = diff.slower(percent);
    for statement in &slower {
        eprintln!("fathom: slower: {}", shown(statement));
    }
    // A build without a comparison must not pass for one that is no slower.
    let compared = !diff.withheld && diff.latency_ns.ratio_interval.is_some();
    if !compared {
        eprintln!("fathom: --fail-on: no verdict: {}", shown(&diff.why));
    } else if slower.is_empty() {
        eprintln!("fathom: --fail-on: no statement is slower");
    }
    Ok(if slower.is_empty() && compared { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
