//! `fathom reindex`, and opening an archive that may have no tables yet.

use crate::notices;
use anyhow::Result;
use archive::{Archive, Lock};
use model::{Context, counted};
use recorder::link::is_rescuable;
use std::path::Path;

/// Opens an archive, linking it first if it has no tables, as after a recording that was cut short.
pub fn open(dir: &Path, context: &Context) -> Result<Archive> {
    let archive = Archive::open(dir)?;
    let benchmark = archive.meta().kind != "trace";
    let live = benchmark && Lock::is_free(dir).is_err();
    // Of a benchmark that still runs the tables are of when somebody looked at it before.
    if archive.has_tables() && !(benchmark && live) {
        return Ok(archive);
    }
    if benchmark {
        let state = if live { "is still running" } else { "has no tables yet" };
        // Who runs it holds the lock until its end.
        let _lock = if live { None } else { Some(Lock::take(dir)?) };
        eprintln!("fathom: {} {state}; building the tables from its log", dir.display());
        notices::warned(experiment::tables::make(dir)?);
        return Ok(Archive::open(dir)?);
    }
    recorder::link::open(dir, context, &notices::tell).map_err(|error| {
        const REMEDY: &str =
            "tables are written to the archive; copy it to a writable disk with more space, and open the copy";
        let lacks_room = error.lacks_room();
        let error = anyhow::Error::new(error);
        if lacks_room { error.context(REMEDY) } else { error }
    })
}

/// `fathom reindex`.
pub fn run(args: &crate::args::Reindex) -> Result<()> {
    let context = crate::progress::context(false);
    let dir = &args.archive;
    // In a folder that is no archive nothing is made, not even a lock.
    let ours = [archive::log::path(dir), archive::runs::path(dir)].iter().any(|log| log.is_file());
    let _lock = if ours { Some(Lock::take(dir)?) } else { None };
    let remade = match Archive::open(dir) {
        Ok(archive) if archive.meta().kind != "trace" => Some(notices::warned(experiment::tables::make(dir)?)),
        Ok(_) => None,
        Err(error) if is_rescuable(&error) && archive::runs::path(dir).is_file() => {
            eprintln!("fathom: {}", notices::without_remedy(&error));
            eprintln!(
                "fathom: continuing with the log (runs.jsonl) alone: the command line is lost, and the archive's \
                 time is that of its first process"
            );
            Some(notices::warned(experiment::tables::make_without_meta(dir)?))
        }
        Err(_) => None,
    };
    let (events, made) = match remade {
        Some(runs) => (counted(runs.designs.len(), "design"), counted(runs.runs.len(), "process")),
        None => {
            let linked = recorder::link::link(dir, &context, &notices::tell)?;
            (counted(linked.events as usize, "event"), counted(linked.operations as usize, "operation"))
        }
    };
    println!("{}: {events}, {made}", dir.display());
    Ok(())
}
