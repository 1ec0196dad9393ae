//! `fathom demo`: one complete pass, on the disk that holds the directory. Where the kernel cannot be traced (a container, an
//! ordinary user, no BTF), the same is shown on a recording that comes with the program, and whatever needs no tracing is
//! measured.

use crate::{args, export, link, notices, output, own_load, progress, report};
use anyhow::{Context as _, Result, bail};
use model::Context;
use model::text::ShownPath as _;
use recorder::sample;
use scores::measure::once::Load;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::Demo) -> Result<ExitCode> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    if !args.directory.is_dir() {
        bail!("{} is not a directory", args.directory.shown());
    }
    let archive = args.directory.join("demo.fathom");
    let load = Load {
        rows: args.rows,
        scans: args.scans,
        journal_mode: &args.journal_mode,
        directory: args.directory.to_str().context("the directory's name is not UTF-8")?,
    };
    let recorded =
        match recorder::record(&own_load::recording_request(&load, &archive)?, &context, &notices::print_warning) {
            Ok(recorded) => recorded,
            Err(recorder::Error::Capture(refusal)) if refusal.is_refusal() => {
                return show_untraced(args, &load, &refusal, &context);
            }
            Err(error) => return Err(error.into()),
        };
    progress::clear(&context);
    if context.cancelled() {
        // A page of an incomplete load would replace that of a complete one.
        eprintln!("fathom: interrupted; the recording so far is in {}", archive.shown());
        return Ok(ExitCode::from(crate::output::INTERRUPTED_STATUS));
    }
    if recorded.status != 0 {
        bail!(
            "the demo's workload ended with status {}; the recording so far is in {}",
            recorded.status,
            archive.shown()
        );
    }
    show_archive(&archive, &context)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints an archive's summary, and leaves its page and its Perfetto trace next to it.
fn show_archive(archive: &Path, context: &Context) -> Result<()> {
    let linked = link::open(archive, context)?;
    output::print_text(&analysis::show::text(&analysis::summarise_archive(&linked)?));
    let (page, trace) = (archive.with_extension("html"), archive.with_extension("pftrace"));
    report::write_page(&linked, archive, &page)?;
    export::write_perfetto(&linked, &trace)?;
    for made in [archive, &page, &trace] {
        recorder::output::give_to_caller(made)?;
    }
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    println!("\nFiles, and how to open them:");
    println!("  {:<14} all numbers: fathom show {}", name(archive), output::word(archive));
    println!("  {:<14} the timeline, in any browser: xdg-open {}", name(&page), output::word(&page));
    println!("  {:<14} open in ui.perfetto.dev or trace_processor", name(&trace));
    Ok(())
}

/// What can be shown and measured where nothing can be traced.
fn show_untraced(args: &args::Demo, load: &Load<'_>, refusal: &capture::Error, context: &Context) -> Result<ExitCode> {
    progress::clear(context);
    println!("Cannot record here: {refusal}\n");
    println!(
        "Showing a sample recording from another machine instead, then a measurement of this one without tracing.\n"
    );
    let archive = args.directory.join("sample.fathom");
    sample::unpack(&archive)?;
    recorder::link::link(&archive, context, &notices::print_recorder_notice)?;
    println!("==== Sample recording: {} ====\n", sample::MACHINE_TEXT);
    show_archive(&archive, context)?;
    println!("\n==== This machine, untraced: the same workload on the disk of {} ====\n", args.directory.shown());
    measure(load, context)?;
    println!("\nTo see where the time goes, run this as root on a physical or virtual machine.");
    Ok(ExitCode::SUCCESS)
}

/// Runs the workload without tracing, and prints its latencies.
fn measure(load: &Load<'_>, context: &Context) -> Result<()> {
    let measured = scores::measure::once::run(&load.words("each"), context)?;
    progress::clear(context);
    output::print_text(&measured.text());
    println!("  checked: {}", measured.checked().context("the workload did not report that its result was checked")?);
    println!("  one process, no interval; for scores with intervals: fathom bench run --quick");
    Ok(())
}
