//! `fathom export`: a recording for other tools.

use crate::{args, link, output, progress, report::beside};
use anyhow::{Context as _, Result, bail};
use archive::{ArchiveKind, atomic_file};
use std::io::{BufWriter, Write};
use std::path::Path;

/// The name that stands for standard output.
const STDOUT: &str = "-";

pub fn run(args: &args::Export) -> Result<()> {
    // Neither has an event log, nor anything with layers: what would be written is an empty trace.
    if (args.perfetto || args.events)
        && let Ok(meta) = archive::Meta::read(&args.archive)
        && meta.kind != ArchiveKind::Trace
    {
        bail!(
            "{} is {}, without events or a trace to export; use --csv or --parquet for its numbers, or `fathom \
             report`",
            args.archive.display(),
            meta.kind
        );
    }
    if args.events {
        return events(&args.archive, args.output.as_deref());
    }
    let context = progress::context(false);
    let archive = link::open(&args.archive, &context)?;
    if args.perfetto {
        let output = args.output.clone().unwrap_or_else(|| beside(&args.archive, "pftrace"));
        let written = perfetto(&archive, &output);
        if output == Path::new(STDOUT) {
            let gone = |error: &anyhow::Error| error.root_cause().downcast_ref().is_some_and(output::has_gone);
            return written.map(drop).or_else(|error| if gone(&error) { Ok(()) } else { Err(error) });
        }
        let written = written?;
        let left = match written.flows_left_out {
            0 => String::new(),
            n => format!("; {n} more arrows omitted, where a slice has too many"),
        };
        println!("{} slices, {} arrows{left}", written.slices, written.flows);
        println!("{}: open in ui.perfetto.dev or trace_processor", output.display());
        return Ok(());
    }
    let output =
        args.output.clone().unwrap_or_else(|| beside(&args.archive, if args.parquet { "parquet" } else { "csv" }));
    // Some of the tables are not all of them: they are removed.
    progress::end_on_signal(&context);
    let tables = match args.parquet {
        true => archive::export::parquet(&archive, &output, &context)?,
        false => archive::export::csv(&archive, &output, &context)?,
    };
    println!("{}: {} tables: {}", output.display(), tables.len(), tables.join(", "));
    Ok(())
}

/// The event log as text, a line an event.
fn events(archive: &Path, output: Option<&Path>) -> Result<()> {
    let mut log = archive::LogReader::open(archive)?;
    let mut lines = |out: &mut dyn Write| {
        std::iter::from_fn(|| log.next_event()).try_for_each(|event| writeln!(out, "{}", event.to_text()))
    };
    if let Some(path) = output.filter(|path| *path != Path::new(STDOUT)) {
        return Ok(atomic_file::write(path, |out| lines(out))?);
    }
    let mut out = BufWriter::new(std::io::stdout());
    match lines(&mut out).and_then(|()| out.flush()) {
        Err(error) if output::has_gone(&error) => Ok(()),
        other => Ok(other?),
    }
}

/// Writes the .pftrace of an archive.
pub fn perfetto(archive: &archive::Archive, output: &Path) -> Result<formats::perfetto::Summary> {
    let rows = analysis::Rows::load(archive)?;
    let tables = formats::perfetto::Tables {
        operations: &rows.operations,
        shapes: &rows.shapes,
        spans: &rows.spans,
        links: &rows.links,
        causes: &rows.causes,
        driver_commands: &rows.driver_commands,
        files: &rows.files,
        processes: &rows.processes,
        disks: &rows.disks,
        losses: &rows.losses,
        slices: &rows.slices,
        clocks: None,
    };
    if output != Path::new(STDOUT) {
        return Ok(atomic_file::write(output, |out| formats::perfetto::export(&tables, out))?);
    }
    let mut out = BufWriter::new(std::io::stdout());
    formats::perfetto::export(&tables, &mut out)
        .and_then(|written| out.flush().map(|()| written))
        .with_context(|| format!("writing {}", output.display()))
}
