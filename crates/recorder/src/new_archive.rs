//! The archive of a recording, from its first file to its complete log.

use crate::collect::{Collector, run_fact};
use crate::event_log::EventLog;
use crate::libraries::Libraries;
use crate::output::{self, MovedArchive};
use crate::presets::readable;
use crate::request::{Request, Target};
use crate::{Error, Notice, Notify, Result, sqlite_facts};
use archive::{Archive, Lock, Meta, MetaRoom};
use capture::FinishedRecording;
use device::Local;
use model::{Context, Event};

/// An archive that is being recorded. It is locked until this is dropped.
pub struct NewArchive<'a> {
    request: &'a Request,
    meta: Meta,
    /// The archive that was there before.
    kept: Option<MovedArchive>,
    pub log: EventLog,
    pub collector: Collector,
    /// Reserved for what is only known at the end.
    room: Option<MetaRoom>,
    _lock: Lock,
}

impl<'a> NewArchive<'a> {
    /// Creates the archive, with what is known about the machine by now.
    pub fn create(request: &'a Request, context: &Context, notify: Notify<'_>) -> Result<Self> {
        let output = &request.output;
        let boot = device::boot_id(&Local);
        let mut meta =
            Meta { boot, ..Meta::new(archive::ArchiveKind::Trace, archive::unix_now_ns(), request.stored_command()) };
        let kept = output::keep_old(output)?;
        kept.iter().for_each(|kept| notify(Notice::KeptOld(kept.clone())));
        Archive::create(output, &meta, true)?;
        let lock = Lock::take(output)?;
        let wanted = request.comm().map(|name| capture::cut_comm(name).to_string());
        let log = EventLog::create(output, request.max_size, request.keep_sql, wanted)?;
        let mut collector = Collector::new(output, context);
        if request.command().is_empty() {
            collector.add_request(&request.title());
        }
        collector.metadata.idle_sleeps = request.target != Target::All;
        collector.metadata.functions = request.functions.iter().map(|(_, name)| readable(name)).collect();
        // At once, so that a killed recorder leaves an archive that can be linked.
        collector.metadata.store(&mut meta)?;
        meta.write(output)?;
        let room = MetaRoom::reserve(output);
        // Not earlier: each write makes it a new file.
        collector.add_own_file(&Meta::path(output));
        Ok(Self { request, meta, kept, log, collector, room, _lock: lock })
    }

    /// Removes the archive, since the command never ran, and puts back the previous one.
    pub fn discard(&self) {
        output::put_back(&self.request.output, self.kept.as_ref());
    }

    /// Stores what recorded it, and why that.
    pub fn recorded_by(&mut self, backend: &str, why: &str) {
        let facts = [("trace.backend", backend), ("trace.backend_why", why)];
        let facts = facts.map(|(name, value)| (name.to_owned(), run_fact(value, None, "the recorder")));
        self.collector.metadata.environment.extend(facts);
    }

    /// Stores what is only known at the end, and ends the log.
    pub fn complete(
        &mut self,
        finished: &FinishedRecording,
        marks: &[Event],
        libraries: &Libraries,
        notify: Notify<'_>,
    ) -> Result<()> {
        let (log, metadata) = (&mut self.log, &mut self.collector.metadata);
        marks.iter().for_each(|event| log.put_event(event));
        for tgid in log.observed.nameless().collect::<Vec<_>>() {
            capture::name_of(tgid).iter().for_each(|event| log.put_event(event));
        }
        let refused = log.finish()?;
        metadata.stored = Some(log.records);
        if refused > 0 {
            // What is lost lies within the recording: later records would not have been stored anyway.
            let (from_ns, to_ns) = finished.window_ns;
            let since_ns = log.full_since_ns.clamp(from_ns, to_ns.max(from_ns));
            metadata.no_room = Some((since_ns, to_ns.max(from_ns), refused));
        }
        if let Some(why) = &log.full {
            notify(Notice::LogFull { why: why.clone() });
        }
        if let Some(name) = self.request.comm().filter(|_| !log.observed.found_wanted) {
            notify(Notice::NoSuchProcess { name: name.into() });
        }
        let mut sqlite = sqlite_facts::facts(&mut log.observed, &libraries.probed);
        sqlite.insert("sqlite.probes".into(), libraries.inside.fact());
        sqlite.insert("sqlite.counters".into(), libraries.inside.counters_fact());
        let file_systems = log.observed.file_systems();
        self.collector.finish(finished, log.outside, &libraries.blind, &file_systems, sqlite);
        self.collector.metadata.store(&mut self.meta)?;
        self.meta.complete = self.log.full.is_none();
        let output = &self.request.output;
        let written = self.meta.write(output);
        self.room = None;
        written.map_err(|source| {
            if archive::log::path(output).is_file() {
                Error::NoMeta(source)
            } else {
                Error::Removed { archive: output.clone(), source }
            }
        })
    }
}
