//! What the recorder and the linker have to say, in words.

use anyhow::Result;
use archive::Runs;
use model::counted;
use recorder::Notice;
use std::path::Path;

/// What `--quiet` leaves out; everything else is a warning.
pub fn is_remark(notice: &Notice) -> bool {
    matches!(notice, Notice::MayThrow { .. } | Notice::AttachedOnly { .. } | Notice::KeptOld(_))
}

/// The log of a benchmark; what is missing of it is said.
pub fn warned((runs, warnings): (Runs, Vec<String>)) -> Runs {
    warnings.iter().for_each(|warning| eprintln!("fathom: {warning}"));
    runs
}

/// Says what a benchmark's table maker has to say.
pub fn print_run_notice(notice: experiment::tables::Notice) {
    use experiment::tables::Notice as Runs;
    match notice {
        Runs::Building { archive, live } => {
            let state = if live { "is still running" } else { "has no tables yet" };
            eprintln!("fathom: {} {state}; building the tables from its log", archive.display());
        }
        Runs::MetaUnreadable(error) => {
            eprintln!("fathom: {}", without_remedy(&error));
            eprintln!(
                "fathom: continuing with the log (runs.jsonl) alone: the command line is lost, and the archive's \
                 time is that of its first process"
            );
        }
        Runs::Missing(what) => eprintln!("fathom: {what}"),
    }
}

/// Says what a benchmark's runner has to say.
pub fn remark(notice: runner::Notice) {
    eprintln!("fathom: {notice}");
}

/// Warnings only.
pub fn warn(notice: Notice) {
    if !is_remark(&notice) {
        print(notice);
    }
}

/// Says what the recorder has to say.
pub fn print(notice: Notice) {
    match notice {
        Notice::MayThrow { path, function } => eprintln!(
            "fathom: {} may throw exceptions or panic: one that unwinds through {function} aborts the program while \
             it is recorded, since the kernel's return probe hides the return address from unwinders",
            path.display()
        ),
        Notice::ProbesRefused { count, probe, how } => eprintln!(
            "fathom: the kernel refused {count} probes, such as {probe} ({how}); `fathom show` lists them under Probes"
        ),
        Notice::AttachedOnly { probes } => {
            eprintln!("fathom: {} attached; nothing is recorded", counted(probes, "probe"));
        }
        Notice::ByFtrace { why } => {
            eprintln!("fathom: recording through ftrace, as eBPF does not work here: {why}");
        }
        Notice::KeptOld(kept) => {
            let gone = if kept.replaced { "; the one renamed before was deleted" } else { "" };
            eprintln!("fathom: the existing archive was renamed to {}{gone}", kept.path.display());
        }
        // What looks like a recording that saw nothing.
        Notice::KernelThread { pid, name } => eprintln!(
            "fathom: process {pid}{} is a kernel thread: it makes no system calls and runs no statements, and mostly \
             writes on behalf of other processes. Record those, or --all",
            name.map(|name| format!(" ({name})")).unwrap_or_default()
        ),
        Notice::CommandGoesOn => eprintln!("fathom: the recording ended; the command continues"),
        Notice::LogFull { why } => eprintln!("fathom: the recording ended early: {why}"),
        Notice::NoSuchProcess { name } => eprintln!(
            "fathom: no process named {name} ran; the trace holds only other processes' I/O. A name is what `ps -o comm` shows, at most \
             15 bytes"
        ),
        Notice::NotLinked { archive, error } => {
            eprintln!("fathom: {}", crate::sentence(&error.into()));
            eprintln!(
                "fathom: not enough space to build the tables; the events are kept: copy {} to a disk with more space and run `fathom reindex` on it",
                archive.display()
            );
        }
        Notice::MetaUnreadable(error) => {
            eprintln!("fathom: {}", without_remedy(&error));
            eprintln!("fathom: {EVENTS_ALONE}");
        }
        Notice::MetadataDamaged { archive, error } => {
            eprintln!("fathom: {}: {error}", archive.display());
            eprintln!("fathom: {EVENTS_ALONE}");
        }
        Notice::Linking { archive } => eprintln!("fathom: {} has no tables yet; linking its events", archive.display()),
    }
}

/// Moves an archive of that name out of the way, and says so unless `quiet`.
pub fn keep_old(output: &Path, quiet: bool) -> Result<()> {
    if let Some(kept) = recorder::output::keep_old(output)?.filter(|_| !quiet) {
        print(Notice::KeptOld(kept));
    }
    Ok(())
}

const EVENTS_ALONE: &str = "continuing with the events alone; disks, facts and coverage are lost";

/// What is the matter with `meta.json`, without the advice to do what is being done.
fn without_remedy(error: &archive::Error) -> String {
    match error {
        archive::Error::Damaged { path, why, .. } => format!("{} is damaged: {why}", path.display()),
        archive::Error::NotAnArchive { path, .. } => format!("{} has no valid meta.json", path.display()),
        other => other.to_string(),
    }
}
