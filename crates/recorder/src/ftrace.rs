//! A recording by ftrace: the data from the kernel's buffers is stored unchanged, and parsed when the recording has ended.

use crate::import;
use crate::left_running::LeftProcesses;
use crate::libraries::Libraries;
use crate::link;
use crate::new_archive::NewArchive;
use crate::request::{Probes, Request, Target};
use crate::setup;
use crate::stop::StopCondition;
use crate::{Error, ErrorContext, Notice, Notify, RecordResult, Result};
use archive::Archive;
use capture::FinishedRecording;
use capture::ftrace::{Callers, Recording, Session};
use formats::ftrace::decoder::Decoder;
use formats::ftrace::merge::Clock;
use formats::ftrace::run::{self, Summary, TraceBuffer};
use formats::tracedat::Stats;
use model::table::Coverage;
use model::text::ShownPath as _;
use model::{Absence, Context, Layer};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the buffers are emptied.
const DRAIN_INTERVAL: Duration = Duration::from_millis(20);
/// How often to check whether the processes have loaded another SQLite: ftrace has no event for a mapping. Checking a process takes some
/// 0.1 ms.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);

/// The directory in an archive that holds the raw data from the buffers until it is parsed.
struct Spool(PathBuf);

impl Spool {
    fn create(archive: &Path) -> Result<Self> {
        let path = archive.join("ftrace.raw");
        std::fs::create_dir(&path).doing(|| format!("making {}", path.shown()))?;
        Ok(Self(path))
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        // The data is in the log by now, or the recording failed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Records through tracefs. `why`: the reason for not using eBPF.
///
/// # Errors
/// tracefs refuses, the command cannot be started, or the archive cannot be written.
pub fn record(request: &Request, why: &str, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    if !request.functions.is_empty() {
        let function = request.functions[0].1.clone();
        return Err(Error::Function { function, why: "functions are recorded by the eBPF backend only".into() });
    }
    if let Target::Comm(name) = &request.target {
        return Err(Error::NotByFtrace(format!("--comm {name}")));
    }
    if request.probes == Probes::Inside {
        return Err(Error::NotInside { why: "the ftrace backend has uprobes only".into() });
    }
    let output = &request.output;
    Archive::check_create(output, true)?;
    capture::ftrace::writable_tracefs()?;
    let (mut libraries, found) = Libraries::find(request)?;
    let (marks, mut child) = setup::hold_command(request, None)?;
    let mut archive = NewArchive::create(request, context, notify)?;
    archive.collector.metadata.by_place = true;
    let spool = Spool::create(output)?;
    let callers = match &request.target {
        Target::All => Callers::All,
        _ if request.also_all => Callers::All,
        _ => Callers::Processes(request.pids().to_vec()),
    };
    let mut session = Session::start(&callers, &found, &spool.0).inspect_err(|_| archive.discard())?;
    session.own_files().iter().for_each(|file| archive.collector.add_own_file(file));
    archive.log.begins_at(capture::boot_ns());
    archive.collector.count_before();
    if let Some(child) = &mut child {
        if callers != Callers::All {
            session.track(child.pid())?;
        }
        child.release().inspect_err(|_| archive.discard())?;
    }
    let mut stop = StopCondition::for_request(request, context, notify);
    let (mut taken, mut looked) = (0, Instant::now());
    let roots: Vec<u32> = child.iter().map(|child| child.pid()).chain(request.pids().iter().copied()).collect();
    while stop.keep_running(child.as_mut())? && session.full_reason().is_none() {
        taken += session.drain()?;
        if looked.elapsed() >= CHECK_INTERVAL {
            libraries.look(if callers == Callers::All { None } else { Some(&roots) });
            looked = Instant::now();
        }
        context.progress(&format!("recording: {} KiB (Ctrl-C ends it)", taken >> 10), 0, 0);
        std::thread::sleep(DRAIN_INTERVAL);
    }
    let left = child.as_mut().filter(|_| callers != Callers::All && session.full_reason().is_none());
    let left = left.map_or_else(Vec::new, |child| LeftProcesses::candidates(child, || session.tracked()));
    archive.collector.count_after();
    archive.log.ends_at(capture::boot_ns());
    let mut recording = session.finish()?;
    if let Some(left) = LeftProcesses::from_candidates(&left) {
        archive.collector.add_left_running(&left);
        notify(Notice::LeftRunning(left));
    }
    // All data is in memory now, and the log may need the room.
    drop(spool);
    if let Some(why) = &recording.full {
        archive.log.had_no_room(why.clone());
    }
    if let Some(child) = &mut child
        && recording.full.is_some()
    {
        // A full disk ends the recording, not the command.
        while stop.keep_running(Some(child))? {
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }
    context.progress("reading what was recorded", 0, 0);
    let marked = marks.read().doing(|| "reading the command's marks".into())?;
    let marking: BTreeSet<u32> = marked.events.iter().map(|mark| mark.header.tid).collect();
    recording.context.marking.extend(marking);
    let summary = write_events(&recording, &archive.collector.metadata.partitions, &mut |bytes| archive.log.put(bytes));
    let executed = executed_programs(&summary);
    libraries.missed(&executed);
    let mut finished = finish_recording(&recording, &summary, archive.log.records);
    finished.coverage.extend(executed.iter().find(|(path, _)| is_32_bit(path)).map(|(path, _)| {
        let how = format!("{} is a 32-bit program, whose system calls have other numbers", path.to_string_lossy());
        Coverage::absent(Layer::Syscall, "compat_calls", Absence::Failed, how)
    }));
    archive.recorded_by("ftrace", why);
    archive.complete(&finished, &marked.events, &libraries, notify)?;
    context.clear_progress();
    let operations =
        if request.link { link::link_if_room(output, archive.log.full.is_some(), context, notify)? } else { None };
    Ok(RecordResult::from_log(request, &stop, &archive.log, "ftrace", finished.lost, operations))
}

/// Returns the programs that were executed, and their current inodes: the kernel's event contains only the name.
fn executed_programs(summary: &Summary) -> Vec<(PathBuf, u64)> {
    let named = summary.executed.iter().map(PathBuf::from);
    named.filter_map(|path| std::fs::metadata(&path).ok().map(|about| (path, about.ino()))).collect()
}

/// Whether a file is a 32-bit program, by its ELF class.
fn is_32_bit(path: &Path) -> bool {
    let mut start = [0; 5];
    let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
    read.is_ok() && start == *b"\x7fELF\x01"
}

/// Converts pages to records of the log.
fn write_events(recording: &Recording, partitions: &[(u32, u32)], put: &mut dyn FnMut(&[u8])) -> Summary {
    let mut parts = Vec::new();
    let mut stats: Vec<Stats> = Vec::new();
    for raw in &recording.raw {
        let cpus = raw.cpus.iter().map(|(cpu, pages)| (*cpu, Cow::Borrowed(pages.as_slice()))).collect();
        stats.extend(raw.stats.iter().cloned());
        let decoder = Decoder::new(raw.layout, &recording.formats);
        parts.push(TraceBuffer { decoder, layout: raw.layout, clock: Clock::NS, cpus, cut: 0 });
    }
    let mut context = recording.context.clone();
    // The last one counts; of the disks of one file system, that is to be the first.
    context.partitions = partitions.iter().rev().copied().collect();
    let mut bytes = Vec::new();
    run::translate_buffers(&parts, &context, &stats, &mut |event| {
        bytes.clear();
        event.encode(&mut bytes);
        put(&bytes);
    })
}

fn finish_recording(recording: &Recording, summary: &Summary, records: u64) -> FinishedRecording {
    let mut coverage = import::coverage(summary);
    coverage.retain(|row| row.layer != Layer::Database && row.probe != import::MARKS_PROBE);
    coverage.extend(recording.functions.iter().map(|(layer, probe, outcome)| match outcome {
        Ok(()) => Coverage::attached(*layer, probe, "ftrace uprobe"),
        Err(why) => Coverage::absent(*layer, probe, Absence::Failed, why.to_string()),
    }));
    coverage.push(capture::stacks::coverage_absent("the ftrace backend takes no stacks"));
    FinishedRecording {
        coverage,
        records,
        lost: summary.lost.values().sum(),
        window_ns: recording.window_ns,
        cpu_ns: recording.cpu_ns,
        counted_ns: 0,
        costs: Vec::new(),
        stacks: None,
        // The sleeps of threads that mark intervals are taken from the whole trace afterwards.
        marks_from_ns: Some(0),
    }
}
