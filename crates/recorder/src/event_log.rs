//! Processing of each record before it is stored: SQL loses its literals, records outside the recorded time are dropped, and
//! [`Observed`] learns from the rest.

use crate::log_writer::BackgroundWriter;
use crate::observed::Observations;
use archive::{Error, LogWriter};
use model::event::{ANY_CPU, File, Header, Loss, Record, Statement, Task};
use std::path::Path;

/// The kind of records that carry SQL.
const STATEMENT_KIND: u8 = Statement::INFO.kind;
/// The kinds that name files and processes.
const FILE_KIND: u8 = File::INFO.kind;
const TASK_KIND: u8 = Task::INFO.kind;
/// The kind that reports what is missing.
const LOSS_KIND: u8 = Loss::INFO.kind;

/// The log and what precedes it.
pub struct EventLog {
    writer: Option<BackgroundWriter>,
    keep_sql: bool,
    /// The recorded time: outside it not every probe was attached.
    from_ns: u64,
    to_ns: u64,
    /// Number of records accepted; after `finish`, of those stored.
    pub records: u64,
    /// Number of records before and after the window, which are not stored.
    pub outside: u64,
    /// Number of records lost before and after the window, which the log does not mention.
    pub lost_outside: u64,
    /// Why the log accepts no more: the disk or the limit is full. Known after `finish`.
    pub full: Option<String>,
    /// Whether the disk is the reason, and not the requested limit.
    pub disk_full: bool,
    /// When it became full: the time of the first record that did not fit.
    pub full_since_ns: u64,
    /// What is learned from the records.
    pub observed: Observations,
}

impl EventLog {
    /// Creates a log in the archive at `dir`. `wanted`: the name of the requested processes, as stored by the kernel.
    pub fn create(dir: &Path, max_bytes: Option<u64>, keep_sql: bool, wanted: Option<String>) -> Result<Self, Error> {
        let writer = Some(BackgroundWriter::new(LogWriter::create(dir, max_bytes)?));
        Ok(Self {
            writer,
            keep_sql,
            from_ns: 0,
            to_ns: u64::MAX,
            records: 0,
            outside: 0,
            lost_outside: 0,
            full: None,
            disk_full: false,
            full_since_ns: 0,
            observed: Observations::new(wanted),
        })
    }

    /// Begins the window: all probes are attached.
    pub fn begins_at(&mut self, ns: u64) {
        self.from_ns = ns;
    }

    /// Ends the window: probes are about to be detached.
    pub fn ends_at(&mut self, ns: u64) {
        self.to_ns = ns;
    }

    /// Stores a record as the kernel made it, if it is within the window. Records made in user space (names, losses) are
    /// always stored.
    pub fn put(&mut self, record: &[u8]) {
        let Some(header) = Header::decode(record) else { return };
        let kind = header.kind;
        if kind == LOSS_KIND {
            return self.put_loss(record);
        }
        // A record that names something is made once, maybe before the window.
        let names = [STATEMENT_KIND, FILE_KIND, TASK_KIND].contains(&kind) || header.cpu == ANY_CPU;
        if !names && !(self.from_ns..=self.to_ns).contains(&header.time_ns) {
            self.outside += 1;
            return;
        }
        if kind == STATEMENT_KIND {
            self.put_statement(&header, record);
        } else {
            self.observed.record(&header, record);
            self.append(record);
        }
    }

    /// Stores a loss. It covers an interval and is noticed at its end, which may be after the window: the last check always
    /// is.
    fn put_loss(&mut self, record: &[u8]) {
        let Some(mut event) = model::Event::decode(record) else { return };
        let Record::Loss(loss) = &mut event.record else { return };
        let (start_ns, end_ns) = (loss.start_ns.min(event.header.time_ns), event.header.time_ns);
        if start_ns > self.to_ns || end_ns < self.from_ns {
            self.lost_outside += loss.events;
            return;
        }
        loss.start_ns = start_ns.max(self.from_ns);
        event.header.time_ns = end_ns.min(self.to_ns);
        self.put_event(&event);
    }

    /// Stores a statement. A traced program's text may contain what its user would not want stored, so it is not passed on
    /// unchanged.
    fn put_statement(&mut self, header: &Header, record: &[u8]) {
        let event = model::Event::decode(record);
        let (shape, traceparent) = match event.as_ref().map(|event| &event.record) {
            Some(Record::Statement(statement)) => {
                (sqlite::normalise(&statement.text), sqlite::traceparent(&statement.text).map(str::to_string))
            }
            _ => (String::new(), None),
        };
        self.observed.statement(header.tgid, &shape);
        let Some(mut event) = event else { return };
        if let Record::Statement(statement) = &mut event.record
            && !self.keep_sql
        {
            statement.text = traceparent.map_or(shape.clone(), |parent| sqlite::with_traceparent(&shape, &parent));
        }
        self.put_event(&event);
    }

    /// Stores an event made by the recorder itself.
    pub fn put_event(&mut self, event: &model::Event) {
        let mut bytes = Vec::new();
        event.encode(&mut bytes);
        self.append(&bytes);
    }

    fn append(&mut self, record: &[u8]) {
        if let Some(writer) = &mut self.writer {
            writer.append(record);
            self.records += 1;
        }
    }

    /// Writes out what is buffered, so that a crash loses only what arrived since.
    pub fn flush(&mut self) {
        if let Some(writer) = &mut self.writer {
            writer.flush();
        }
    }

    /// Records that there was no room for the data elsewhere before it reached the log: the recording ended early, though
    /// the whole log may fit.
    pub fn had_no_room(&mut self, why: String) {
        (self.full, self.disk_full) = (Some(why), true);
    }

    /// Whether nothing more can be stored.
    pub fn ended(&self) -> bool {
        self.writer.as_ref().is_none_or(BackgroundWriter::ended)
    }

    /// Ends the log; returns how many records did not fit.
    pub fn finish(&mut self) -> Result<u64, Error> {
        let Some(writer) = self.writer.take() else { return Ok(0) };
        let written = writer.finish()?;
        self.full_since_ns = written.full_since_ns;
        self.disk_full |= written.disk_full;
        self.full = written.full.or(self.full.take());
        self.records = written.records;
        Ok(written.refused)
    }
}

#[cfg(test)]
mod tests {
    use super::EventLog;
    use archive::LogReader;
    use model::event::{ANY_CPU, FsWrite, Header, Loss};
    use model::{Event, Record};

    /// The last sample of the counters is taken after the window, but includes losses within it.
    #[test]
    fn loss_is_clipped_to_the_window() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::create(dir.path(), None, false, None).unwrap();
        log.begins_at(100);
        log.ends_at(200);
        let put = |log: &mut EventLog, time_ns: u64, cpu: u16, record: Record| {
            let mut bytes = Vec::new();
            Event { header: Header { time_ns, cpu, kind: record.kind(), ..Header::default() }, record }
                .encode(&mut bytes);
            log.put(&bytes);
        };
        let of = |start_ns: u64, events: u64| Loss { start_ns, events, ..Loss::default() }.into();
        put(&mut log, 90, 1, of(50, 1));
        put(&mut log, 110, 1, of(90, 2));
        put(&mut log, 150, ANY_CPU, of(120, 4));
        put(&mut log, 230, 0, of(190, 8));
        put(&mut log, 210, 0, FsWrite::default().into());
        put(&mut log, 260, ANY_CPU, of(230, 16));
        log.finish().unwrap();
        let mut reader = LogReader::open(dir.path()).unwrap();
        let stored: Vec<_> = std::iter::from_fn(|| reader.next_event())
            .map(|event| match event.record {
                Record::Loss(loss) => (loss.start_ns, event.header.time_ns, loss.events),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(stored, [(100, 110, 2), (120, 150, 4), (190, 200, 8)]);
        assert_eq!((log.outside, log.lost_outside), (1, 17));
    }
}
