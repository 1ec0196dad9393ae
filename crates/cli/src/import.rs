//! `fathom import`: a trace of another tool becomes an archive.

use crate::{args, notices, output, progress};
use anyhow::Result;
use model::counted;
use model::text::ShownPath as _;
use recorder::{Import, ImportResult};
use std::path::{Path, PathBuf};

/// Most kinds of events that are named of those that were not used; the archive names more.
const KINDS_NAMED_MAX: usize = 8;

pub fn run(args: &args::Import) -> Result<()> {
    let context = progress::context(args.quiet);
    let notify =
        |notice| if args.quiet { notices::print_warning(notice) } else { notices::print_recorder_notice(notice) };
    let first = args.files.first().and_then(|file| file.file_stem()).unwrap_or_default();
    let name = || PathBuf::from(first).with_extension("fathom");
    let archive = args.output.clone().unwrap_or_else(name);
    let request = Import {
        files: args.files.clone(),
        output: archive.clone(),
        keep_sql: args.keep_sql,
        machine: args.machine,
        facts: model::Environment::new(),
    };
    let done = recorder::import(&request, &context, &notify);
    progress::clear(&context);
    let done = done?;
    recorder::output::give_to_caller(&archive)?;
    if !args.quiet {
        summarise(&archive, &done);
    }
    Ok(())
}

fn summarise(archive: &Path, done: &ImportResult) {
    eprintln!(
        "{}: {} of a {}, {}",
        archive.shown(),
        counted(done.taken as usize, "event"),
        done.format,
        counted(done.operations as usize, "operation")
    );
    for (what, events) in [("left out", &done.left_out), ("not readable", &done.unread)] {
        let all: u64 = events.iter().map(|(_, n)| n).sum();
        if all > 0 {
            let names = recorder::by_number(events, KINDS_NAMED_MAX);
            eprintln!("{what}: {} ({})", counted(all as usize, "event"), analysis::text::shown(&names));
        }
    }
    if done.damaged > 0 {
        eprintln!("unreadable: {} of the file", counted(done.damaged as usize, "part"));
    }
    if done.lost > 0 {
        let least = if done.at_least { "at least " } else { "" };
        eprintln!("lost when it was recorded: {least}{}", counted(done.lost as usize, "event"));
    }
    if !done.blind.is_empty() {
        let layers: Vec<&str> = done.blind.iter().map(|layer| layer.name()).collect();
        eprintln!("not in the trace: {}", layers.join(", "));
    }
    done.notes.iter().for_each(|note| eprintln!("note: {note}"));
    eprintln!("next: fathom show {0}, or fathom report {0}", output::word(archive));
}
