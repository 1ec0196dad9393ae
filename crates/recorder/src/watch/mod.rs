//! A recording that never ends and keeps only what was slow.
//!
//! Records are taken as for any recording, into a ring in memory. When an operation ends that took too long, what the ring holds is linked,
//! and the operation is stored with everything that caused its time, as an archive of its own. The judgement of each record is pure and
//! takes no more than a few comparisons; linking happens only for incidents, in another thread, one at a time.
//!
//! | file | purpose |
//! |---|---|
//! | `ring` | the newest records, in a bounded amount of memory |
//! | `names` | files, processes and statements that were named before |
//! | `detector` | which records end an operation |
//! | `limit` | from which duration on an operation is slow |
//! | `gate` | which slow operations become incidents; counts all of them |
//! | `closure` | what belongs to a slow operation |
//! | [`account`] | what it spent its time on, and for whom |
//! | [`matrix`] | who delays whom, over all incidents |
//! | `incident` | writes an archive |
//! | `rotation` | which archives stay |

pub mod account;
mod closure;
mod detector;
mod gate;
mod incident;
mod limit;
pub mod matrix;
mod names;
mod ring;
mod rotation;

pub use gate::{Counts, LimitChange};
pub use incident::{Incident, SlowOperation};
pub use limit::Slow;
pub use rotation::Keep;

use crate::collect::Collector;
use crate::drain::{Consumer, drain_until};
use crate::libraries::Libraries;
use crate::presets::readable;
use crate::request::{Request, Target};
use crate::setup::{self, Setup};
use crate::stop::StopCondition;
use crate::{Error, ErrorContext, Notify, Result};
use archive::{ArchiveKind, Meta};
use capture::Session;
use detector::Detector;
use device::Local;
use gate::{Gate, Trigger};
use incident::{Job, Template};
use model::event::{Header, Loss};
use model::text::ShownPath as _;
use model::{Context, Event, Record};
use names::Names;
use ring::RecordRing;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

/// The parts of the buffer, in eighths: the ring and the names are there twice while an incident is written.
const RING_EIGHTHS: u64 = 3;
const NAMES_EIGHTHS: u64 = 1;

const LOSS_KIND: u8 = Loss::INFO.kind;

/// What to keep, in addition to what to record.
#[derive(Debug, Clone)]
pub struct Rules {
    pub slow: Slow,
    /// Memory for records, bytes.
    pub buffer: u64,
    pub keep: Keep,
    /// Least time between two incidents.
    pub interval: std::time::Duration,
    /// Set when what the buffer holds is to be kept now.
    pub keep_now: Arc<AtomicBool>,
}

/// What happened. Passed on as soon as it is known.
#[derive(Debug)]
pub enum Happening {
    /// The probes are attached.
    Begun,
    /// An incident was written; the counts include it.
    Incident(Incident, Counts),
    /// An incident could not be written.
    Failed(Error),
    /// So many slow operations were not kept since the last incident.
    NotKept(u64),
    Limit(LimitChange, Option<u64>),
}

/// The result of a recording.
#[derive(Debug, Clone, Copy, Default)]
pub struct WatchResult {
    /// Status of the command, 0 if there was none.
    pub status: i32,
    pub counts: Counts,
    pub incidents: u64,
    pub records: u64,
    pub lost: u64,
    /// How long it recorded, ns.
    pub duration_ns: u64,
    /// CPU time of this process meanwhile, ns.
    pub cpu_ns: u64,
    /// Estimated CPU time of the probes, in the recorded programs, ns; `None`: not measured.
    pub probes_ns: Option<u64>,
    /// Highest number of bytes that ring and names held.
    pub held_bytes: u64,
}

/// Watches until Ctrl-C, or as long as the request says. `request.output` is the directory for incidents.
///
/// # Errors
/// Nothing can be recorded, the command cannot be started, or the directory cannot be used.
pub fn watch(
    request: &Request,
    rules: &Rules,
    context: &Context,
    notify: Notify<'_>,
    happened: &mut dyn FnMut(Happening),
) -> Result<WatchResult> {
    let directory = &request.output;
    std::fs::create_dir_all(directory).doing(|| format!("creating {}", directory.shown()))?;
    incident::remove_leftovers(directory);
    let Setup { marks: _marks, mut child, mut session, mut libraries } = Setup::new(request, false, notify)?;
    setup::report_refusals(session.coverage(), notify);
    let template = template(request, rules, context);
    // The probes are attached: nothing before this is in the buffer.
    let began_ns = capture::boot_ns();
    if let Some(child) = &mut child {
        session.track_child(child.pid())?;
        setup::release_command(child, &mut session, &mut libraries)?;
    }
    let mut stop = StopCondition::for_request(request, context, notify);
    let mut watcher = Watcher::new(rules, !request.functions.is_empty(), (template, began_ns), happened);
    (watcher.happened)(Happening::Begun);
    drain_until(&mut stop, &mut session, &mut libraries, &mut watcher, child.as_mut())?;
    if let Some(inside) = session.inside() {
        inside.stop_answering();
    }
    let coverage = session.coverage().to_vec();
    let finished = session.finish(&mut |record| watcher.put(record));
    watcher.end(&coverage, &libraries)?;
    let counted = finished.counted_ns as f64;
    let duration_ns = finished.window_ns.1 - finished.window_ns.0;
    let runs_ns = finished.coverage.iter().filter_map(|row| Some(row.hits? as f64 * row.price_ns?)).sum::<f64>();
    Ok(WatchResult {
        status: stop.status,
        counts: watcher.gate.counts(),
        incidents: watcher.incidents,
        records: finished.records,
        lost: finished.lost,
        duration_ns,
        cpu_ns: finished.cpu_ns,
        probes_ns: (counted > 0.0).then(|| (runs_ns * duration_ns as f64 / counted) as u64),
        held_bytes: watcher.held_bytes,
    })
}

fn template(request: &Request, rules: &Rules, context: &Context) -> Template {
    let mut collector = Collector::new(&request.output, context);
    context.clear_progress();
    if request.command().is_empty() {
        collector.add_request(&request.title());
    }
    collector.metadata.idle_sleeps = request.target != Target::All;
    collector.metadata.functions = request.functions.iter().map(|(_, name)| readable(name)).collect();
    let boot = device::boot_id(&Local);
    Template {
        metadata: collector.metadata,
        meta: Meta { boot, ..Meta::new(ArchiveKind::Trace, 0, request.stored_command()) },
        keep_sql: request.keep_sql,
        directory: request.output.clone(),
        keep: rules.keep,
    }
}

/// The thread that writes incidents.
struct Writer {
    /// Its number, for its priority; 0 until it is running.
    number: Arc<AtomicI32>,
    jobs: SyncSender<Job>,
    written: Receiver<(Trigger, u64, Result<Incident>)>,
    thread: JoinHandle<()>,
}

impl Writer {
    fn start(mut template: Template) -> Self {
        let (jobs, take) = sync_channel::<Job>(1);
        let (give, written) = sync_channel(1);
        let number = Arc::new(AtomicI32::new(0));
        let own_number = number.clone();
        let thread = std::thread::spawn(move || {
            // SAFETY: a call without arguments that cannot fail.
            own_number.store(unsafe { libc::gettid() }, Ordering::Relaxed);
            // An incident is not urgent: the CPU is for others, as far as they want it.
            set_niceness(0, 19);
            while let Ok(mut job) = take.recv() {
                let result = failing_on_panic(|| incident::write(&mut template, &job));
                let trigger = std::mem::replace(&mut job.trigger, Trigger::Request(0));
                let from_ns = job.complete_from_ns;
                // The ring gets its memory back before another incident can begin.
                drop(job);
                if give.send((trigger, from_ns, result)).is_err() {
                    return;
                }
            }
        });
        Self { number, jobs, written, thread }
    }
}

/// Makes a failure of a panic: what one incident's records lead to must not end a recorder that has run for days.
fn failing_on_panic<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(std::io::Error::other(text.unwrap_or("a panic").to_string())).doing(|| "writing an incident".into())
    })
}

/// Sets a thread's niceness; 0 is the calling one. A refusal changes nothing.
fn set_niceness(thread: libc::pid_t, niceness: libc::c_int) {
    // SAFETY: a plain call. On Linux, a number of a process stands for one thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, thread as libc::id_t, niceness) };
}

struct Watcher<'a> {
    ring: RecordRing,
    names: Names,
    detector: Detector,
    gate: Gate,
    keep_now: Arc<AtomicBool>,
    writer: Option<Writer>,
    happened: &'a mut dyn FnMut(Happening),
    records: u64,
    lost: u64,
    incidents: u64,
    held_bytes: u64,
    /// Slow operations not kept since the last incident.
    not_kept: u64,
    cpu_before_ns: u64,
    until_ns: u64,
}

impl<'a> Watcher<'a> {
    fn new(
        rules: &Rules,
        has_functions: bool,
        (template, began_ns): (Template, u64),
        happened: &'a mut dyn FnMut(Happening),
    ) -> Self {
        let part = |eighths: u64| usize::try_from(rules.buffer / 8 * eighths).unwrap_or(usize::MAX);
        Self {
            ring: RecordRing::new(part(RING_EIGHTHS), began_ns),
            names: Names::new(part(NAMES_EIGHTHS)),
            detector: Detector::new(has_functions),
            gate: Gate::new(rules.slow, u64::try_from(rules.interval.as_nanos()).unwrap_or(u64::MAX)),
            keep_now: rules.keep_now.clone(),
            writer: Some(Writer::start(template)),
            happened,
            records: 0,
            lost: 0,
            incidents: 0,
            held_bytes: 0,
            not_kept: 0,
            cpu_before_ns: capture::process_cpu_ns(),
            until_ns: 0,
        }
    }

    /// Starts to write an incident.
    fn begin(&mut self, trigger: Trigger, coverage: &[model::table::Coverage], libraries: &Libraries) {
        let names = &mut self.names;
        let snapshot = self.ring.snapshot(&mut |record| names.learn(record));
        let job = Job {
            trigger,
            snapshot,
            names: self.names.clone(),
            complete_from_ns: self.ring.complete_from_ns(),
            until_ns: self.until_ns,
            limit_ns: self.gate.limit_ns(),
            coverage: coverage.iter().chain(&libraries.blind).cloned().collect(),
            probed: libraries.probed.clone(),
            records: self.records,
            lost: self.lost,
            cpu_ns: capture::process_cpu_ns() - self.cpu_before_ns,
        };
        if let Some(writer) = &self.writer {
            // It waits for one: the gate opens no other incident before this one is settled.
            let _ = writer.jobs.send(job);
        }
    }

    /// Takes note of an incident that was written, if one was.
    fn settle(&mut self, waits: bool) {
        let Some(writer) = &self.writer else { return };
        let written = if waits { writer.written.recv().ok() } else { writer.written.try_recv().ok() };
        let Some((trigger, from_ns, result)) = written else { return };
        self.gate.settle(&trigger, result.is_ok().then_some(from_ns));
        match result {
            Ok(incident) => {
                self.incidents += 1;
                (self.happened)(Happening::Incident(incident, self.gate.counts()));
            }
            Err(error) => (self.happened)(Happening::Failed(error)),
        }
    }

    fn report_not_kept(&mut self) {
        let not_kept = std::mem::take(&mut self.not_kept);
        if not_kept > 0 {
            (self.happened)(Happening::NotKept(not_kept));
        }
    }

    /// Writes the last incident, if one is open.
    fn end(&mut self, coverage: &[model::table::Coverage], libraries: &Libraries) -> Result<()> {
        if let Some(writer) = &self.writer {
            // Somebody waits now.
            set_niceness(writer.number.load(Ordering::Relaxed), 0);
        }
        if self.gate.is_busy() {
            self.settle(true);
        }
        self.until_ns = capture::boot_ns();
        if let Some(trigger) = self.gate.take_last() {
            self.begin(trigger, coverage, libraries);
            self.settle(true);
        }
        self.not_kept += self.gate.take_not_kept();
        self.report_not_kept();
        if let Some(Writer { jobs, thread, .. }) = self.writer.take() {
            drop(jobs);
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        }
        Ok(())
    }
}

impl Consumer for Watcher<'_> {
    fn put(&mut self, record: &[u8]) {
        let Some(header) = Header::decode(record) else { return };
        self.records += 1;
        if header.kind == LOSS_KIND
            && let Some(Record::Loss(loss)) = Event::decode(record).map(|event| event.record)
        {
            self.lost = self.lost.saturating_add(loss.events);
        }
        let names = &mut self.names;
        if !self.ring.push(header.time_ns, record, &mut |record| names.learn(record)) {
            self.lost = self.lost.saturating_add(1);
        }
        if let Some(operation) = self.detector.observe(&header, record) {
            self.gate.judge(operation);
        }
    }

    fn drained(&mut self, until_ns: u64, session: &Session, libraries: &Libraries) -> Result<()> {
        self.until_ns = until_ns;
        self.held_bytes = self.held_bytes.max((self.ring.held_bytes() + self.names.held_bytes()) as u64);
        self.settle(false);
        if let Some(trigger) = self.gate.take_due(until_ns) {
            self.report_not_kept();
            self.begin(trigger, session.coverage(), libraries);
        }
        if self.keep_now.load(Ordering::Relaxed)
            && let Some(trigger) = self.gate.request(until_ns)
        {
            self.keep_now.store(false, Ordering::Relaxed);
            self.begin(trigger, session.coverage(), libraries);
        }
        self.not_kept += self.gate.take_not_kept();
        if let Some(change) = self.gate.adapt(self.not_kept, until_ns) {
            self.report_not_kept();
            (self.happened)(Happening::Limit(change, self.gate.limit_ns()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panic_of_one_incident_is_its_failure() {
        assert_eq!(failing_on_panic(|| Ok(7)).unwrap(), 7);
        let error = failing_on_panic::<()>(|| panic!("command {} ended twice", 11)).unwrap_err();
        assert_eq!(model::text::error_chain(&error), "writing an incident: command 11 ended twice");
    }
}
