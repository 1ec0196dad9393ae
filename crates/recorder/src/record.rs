//! A recording: holds the command, attaches the probes, stores what comes, and links it.

use crate::drain::{Consumer, DRAIN_INTERVAL, drain, drain_until};
use crate::event_log::EventLog;
use crate::left_running::LeftProcesses;
use crate::libraries::Libraries;
use crate::link;
use crate::new_archive::NewArchive;
use crate::request::Request;
use crate::setup::{self, Setup};
use crate::stop::StopCondition;
use crate::{Error, ErrorContext, Notice, Notify, Result};
use archive::Archive;
use capture::{Activity, Session};
use model::Context;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, Default)]
pub struct RecordResult {
    /// Status of the command, 0 if there was none.
    pub status: i32,
    pub records: u64,
    pub lost: u64,
    /// Number of operations found; `None` if there was no room for the tables.
    pub operations: Option<u64>,
    /// What recorded it, as people write it; `None` if nothing did.
    pub backend: Option<&'static str>,
    /// Whether the disk had no room for all of it. Reaching a requested limit (`max_size`) does not count.
    pub no_room: bool,
}

impl RecordResult {
    /// Returns the result of a command's recording.
    pub(crate) fn from_log(
        request: &Request,
        stop: &StopCondition<'_>,
        log: &EventLog,
        backend: &'static str,
        lost: u64,
        operations: Option<u64>,
    ) -> Self {
        let no_room = log.disk_full || request.link && operations.is_none();
        Self { status: stop.status, records: log.records, lost, operations, backend: Some(backend), no_room }
    }
}

/// Starts the command just as for a recording and records nothing: the other arm of a comparison.
///
/// # Errors
/// There is no command, or it cannot be started.
pub fn run_untraced(request: &Request, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    let (_marks, child) = setup::hold_command(request, None)?;
    let mut child = child.ok_or(Error::NoCommand)?;
    child.release()?;
    let mut stop = StopCondition::for_request(request, context, notify);
    while stop.keep_running(Some(&mut child))? {
        std::thread::sleep(DRAIN_INTERVAL);
    }
    Ok(RecordResult { status: stop.status, ..RecordResult::default() })
}

/// Attaches the probes as for a recording, with programs that return at once: the remaining cost is that of calling them.
///
/// # Errors
/// As [`record`], except for those of the archive.
pub fn run_attached(request: &Request, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    let Setup { mut child, mut session, marks: _marks, libraries: _ } = Setup::new(request, true, notify)?;
    setup::report_refusals(session.coverage(), notify);
    notify(Notice::AttachedOnly { probes: session.coverage().iter().filter(|row| row.attached).count() });
    if let Some(child) = &mut child {
        session.track_child(child.pid())?;
        child.release()?;
    }
    let mut stop = StopCondition::for_request(request, context, notify);
    while stop.keep_running(child.as_mut())? {
        if session.wait(DRAIN_INTERVAL) {
            session.drain(&mut |_| ());
        }
    }
    session.finish(&mut |_| ());
    Ok(RecordResult { status: stop.status, ..RecordResult::default() })
}

/// Records, and links what was recorded.
///
/// # Errors
/// Nothing can be recorded, the command cannot be started, or the archive cannot be written.
pub fn record(request: &Request, context: &Context, notify: Notify<'_>) -> Result<RecordResult> {
    record_since(EBPF_REASON, request, context, notify)
}

/// Why eBPF is used if nothing else was requested.
const EBPF_REASON: &str = "the kernel permits it";

/// Records by eBPF, which was chosen for this reason.
pub(crate) fn record_since(
    why: &str,
    request: &Request,
    context: &Context,
    notify: Notify<'_>,
) -> Result<RecordResult> {
    let output = &request.output;
    // Checked again when it is created; checked now because probes take a second to attach and to detach.
    Archive::check_create(output, true)?;
    let Setup { marks, mut child, mut session, mut libraries } = Setup::new(request, false, notify)?;
    let mut archive = NewArchive::create(request, context, notify)?;
    archive.log.begins_at(capture::boot_ns());
    archive.collector.count_before();
    for &pid in request.pids().iter().filter(|pid| capture::is_kernel_thread(**pid)) {
        notify(Notice::KernelThread { pid, name: capture::comm_of(pid) });
    }
    if let Some(child) = &mut child {
        session.track_child(child.pid())?;
        setup::release_command(child, &mut session, &mut libraries).inspect_err(|_| archive.discard())?;
    }
    let mut stop = StopCondition::for_request(request, context, notify);
    let mut log = ToLog { log: &mut archive.log, flushed: Instant::now(), context };
    drain_until(&mut stop, &mut session, &mut libraries, &mut log, child.as_mut())?;
    if let Some(inside) = session.inside() {
        inside.stop_answering();
    }

    let left = child.as_mut().filter(|_| !request.also_all && !archive.log.ended());
    let left = left.map_or_else(Vec::new, |child| LeftProcesses::candidates(child, || session.tracked()));
    archive.collector.count_after();
    // The last mappings are still in the rings.
    let mut log = ToLog { log: &mut archive.log, flushed: Instant::now(), context };
    let mapped = drain(&mut session, &mut libraries, &mut log);
    mapped.values().for_each(|code| libraries.missed(code));
    libraries.inside.check_processes(&mut session, true);
    libraries.settle();
    session.cover(libraries.inside.coverage());
    // Detaching so many probes takes a while, during which some see what others no longer see.
    archive.log.ends_at(capture::boot_ns());
    let mut finished = session.finish(&mut |record| archive.log.put(record));
    // What was lost before and after the window would not have been stored.
    finished.lost = finished.lost.saturating_sub(archive.log.lost_outside);
    if libraries.inside.is_mixed() {
        // The same statements cost more when they are probed by traps, and how many were is not known.
        finished.costs.retain(|(activity, _)| !matches!(activity, Activity::Step | Activity::Statement));
    }
    context.clear_progress();
    if let Some(left) = LeftProcesses::from_candidates(&left) {
        archive.collector.add_left_running(&left);
        notify(Notice::LeftRunning(left));
    }
    setup::report_refusals(&finished.coverage, notify);
    if let Some(child) = &mut child
        && archive.log.ended()
    {
        // A full log ends the recording, not the command.
        while stop.keep_running(Some(child))? {
            std::thread::sleep(DRAIN_INTERVAL);
        }
    }
    let marked = marks.read().doing(|| "reading the command's marks".into())?;
    archive.recorded_by("ebpf", why);
    archive.complete(&finished, &marked.events, &libraries, notify)?;
    let operations =
        if request.link { link::link_if_room(output, archive.log.full.is_some(), context, notify)? } else { None };
    Ok(RecordResult::from_log(request, &stop, &archive.log, "eBPF", finished.lost, operations))
}

/// Stores the records in an archive's log.
struct ToLog<'a, 'b> {
    log: &'a mut EventLog,
    flushed: Instant,
    context: &'b Context,
}

impl Consumer for ToLog<'_, '_> {
    fn put(&mut self, record: &[u8]) {
        self.log.put(record);
    }

    fn has_ended(&self) -> bool {
        self.log.ended()
    }

    fn drained(&mut self, _: u64, _: &Session, _: &Libraries) -> Result<()> {
        if self.flushed.elapsed() > Duration::from_secs(1) {
            self.log.flush();
            self.flushed = Instant::now();
            self.context.progress(&format!("recording: {} events (Ctrl-C to stop)", self.log.records), 0, 0);
        }
        Ok(())
    }
}
