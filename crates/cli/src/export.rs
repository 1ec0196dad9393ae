//! `fathom export`: a recording for other tools.

use crate::{Usage, args, destination, link, progress, report::path_beside};
use anyhow::{Result, bail};
use archive::ArchiveKind;
use model::text::ShownPath as _;
use std::io::Write;
use std::path::Path;

pub fn run(args: &args::Export) -> Result<()> {
    // Other kinds have neither an event log nor anything with layers: the trace would be empty.
    if (args.perfetto || args.events)
        && let Ok(meta) = archive::Meta::read(&args.archive)
        && meta.kind != ArchiveKind::Trace
    {
        bail!(
            "{} is {}, without events or a trace to export; use --csv or --parquet for its numbers, or `fathom \
             report`",
            args.archive.shown(),
            meta.kind
        );
    }
    if args.events {
        return write_events(&args.archive, args.output.as_deref());
    }
    let context = progress::context(false);
    let archive = link::open(&args.archive, &context)?;
    if args.perfetto {
        let output = args.output.clone().unwrap_or_else(|| path_beside(&args.archive, "pftrace"));
        let Some(written) = write_perfetto(&archive, &output)?.filter(|_| !destination::is_stdout(&output)) else {
            return Ok(());
        };
        let left = match written.flows_left_out {
            0 => String::new(),
            n => format!("; {n} more arrows omitted, where a slice has too many"),
        };
        println!("{} slices, {} arrows{left}", written.slices, written.flows);
        println!("{}: open in ui.perfetto.dev or trace_processor", output.shown());
        return Ok(());
    }
    let output =
        args.output.clone().unwrap_or_else(|| path_beside(&args.archive, if args.parquet { "parquet" } else { "csv" }));
    let output = destination::check_directory(output).map_err(|why| Usage(format!("--output: {why}")))?;
    // After an interruption an incomplete set of tables is removed.
    progress::end_on_signal(&context);
    let tables = if args.parquet {
        archive::export::parquet(&archive, &output, &context)?
    } else {
        archive::export::csv(&archive, &output, &context)?
    };
    println!("{}: {} tables: {}", output.shown(), tables.len(), tables.join(", "));
    Ok(())
}

/// Writes the event log as text, one event per line.
fn write_events(archive: &Path, output: Option<&Path>) -> Result<()> {
    let mut log = archive::LogReader::open(archive)?;
    let lines = |out: &mut dyn Write| {
        std::iter::from_fn(|| log.next_event()).try_for_each(|event| writeln!(out, "{}", event.to_text()))
    };
    destination::write(output.unwrap_or(Path::new("-")), lines).map(drop)
}

/// Writes the .pftrace of an archive; returns nothing if the reader of standard output left.
pub fn write_perfetto(archive: &archive::Archive, output: &Path) -> Result<Option<formats::perfetto::Summary>> {
    let rows = analysis::Rows::load(archive)?;
    let tables = formats::perfetto::Tables {
        operations: &rows.operations.iter().collect::<Vec<_>>(),
        shapes: &rows.shapes,
        spans: &rows.spans.iter().collect::<Vec<_>>(),
        links: &rows.links.iter().collect::<Vec<_>>(),
        causes: &rows.causes.iter().collect::<Vec<_>>(),
        driver_commands: &rows.driver_commands.iter().collect::<Vec<_>>(),
        files: &rows.files,
        processes: &rows.processes,
        disks: &rows.disks,
        losses: &rows.losses,
        slices: &rows.slices.iter().collect::<Vec<_>>(),
        clocks: None,
    };
    destination::write(output, |out| formats::perfetto::export(&tables, out))
}
