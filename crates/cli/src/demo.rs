//! `fathom demo`: the whole way once, on the disk that the folder is on.

use crate::{args, export, link, progress, record, report, say};
use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::Demo) -> Result<ExitCode> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    if !args.folder.is_dir() {
        bail!("{} is not a folder", args.folder.display());
    }
    let archive = args.folder.join("demo.fathom");
    let record = recording(args, &archive)?;
    let recorded = record::record(&record, &context)?;
    progress::clear(&context);
    if recorded.status != 0 {
        bail!(
            "the demo's own program ended with status {}; what it did until then is in {}",
            recorded.status,
            archive.display()
        );
    }
    let linked = link::open(&archive, &context)?;
    say::text(&analysis::show::text(&analysis::summarise_archive(&linked)?));
    let (page, trace) = (args.folder.join("demo.html"), args.folder.join("demo.pftrace"));
    report::write(&linked, &archive, &page)?;
    export::perfetto(&linked, &trace)?;
    for made in [&archive, &page, &trace] {
        record::give_to_caller(made)?;
    }
    println!("\nLeft here, and how to open it:");
    println!("  {:<14} every number of it: fathom show {}", "demo.fathom", say::word(&archive));
    println!("  {:<14} the timeline, in any browser: xdg-open {}", "demo.html", say::word(&page));
    println!("  {:<14} drag it into ui.perfetto.dev, or open it with trace_processor", "demo.pftrace");
    Ok(ExitCode::SUCCESS)
}

/// The recording of this program's own workload.
pub fn recording(args: &args::Demo, archive: &Path) -> Result<args::Record> {
    let fathom = std::env::current_exe().context("where this program is")?;
    let words: [OsString; 13] = [
        fathom.into(),
        "workload".into(),
        "demo".into(),
        "--rows".into(),
        args.rows.to_string().into(),
        "--scans".into(),
        args.scans.to_string().into(),
        "--journal-mode".into(),
        args.journal_mode.clone().into(),
        // The numbers are in the recording; lines of JSON would only stand between.
        "--samples".into(),
        "none".into(),
        "--dir".into(),
        args.folder.clone().into(),
    ];
    Ok(args::Record {
        output: archive.to_path_buf(),
        all: false,
        pid: Vec::new(),
        comm: None,
        duration: None,
        max_size: None,
        functions: Vec::new(),
        keep_sql: false,
        as_root: false,
        no_probe_cost: false,
        backend: args::Backend::Ebpf,
        quiet: true,
        command: words.to_vec(),
    })
}
