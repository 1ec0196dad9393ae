//! The loop of a recording: empties the rings from time to time, and probes meanwhile what recorded processes map.

use crate::Result;
use crate::libraries::Libraries;
use crate::stop::StopCondition;
use capture::Session;
use capture::launch::Child;
use model::Record;
use model::event::{File, Header, file_what};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// How often the rings are checked: a quarter of the smallest, 0.5 MiB, fills in 20 ms at 300,000 records/s of one CPU, so
/// the timer, not a wake-up by record, sets the pace (a wake-up alone takes the INSERT rate to 0.45).
pub const DRAIN_INTERVAL: Duration = Duration::from_millis(20);

/// Takes the records of a recording while it is made.
pub trait Consumer {
    /// Takes a record.
    fn put(&mut self, record: &[u8]);

    /// Whether it takes no more.
    fn has_ended(&self) -> bool {
        false
    }

    /// The rings were emptied. All records made until `until_ns` have been taken, but for those of a task that was preempted while it
    /// made one.
    fn drained(&mut self, until_ns: u64, session: &Session, libraries: &Libraries) -> Result<()>;
}

/// Empties the rings periodically until the recording is to end.
pub fn drain_until(
    stop: &mut StopCondition<'_>,
    session: &mut Session,
    libraries: &mut Libraries,
    consumer: &mut dyn Consumer,
    mut child: Option<&mut Child>,
) -> Result<()> {
    while stop.keep_running(child.as_deref_mut())? && !consumer.has_ended() {
        let drains = session.wait(DRAIN_INTERVAL);
        libraries.answer(session);
        libraries.meet(session);
        if libraries.inside.waits() {
            libraries.inside.check_processes(session, false);
        }
        if !drains {
            continue;
        }
        let until_ns = capture::boot_ns();
        let mapped = drain(session, libraries, consumer);
        libraries.inside.check_processes(session, false);
        // For processes that have ended, or run outside a container that Fathom runs in, only the record is left.
        for (tgid, code) in mapped {
            libraries.add_mapped(session, capture::in_proc(tgid), &code);
        }
        consumer.drained(until_ns, session, libraries)?;
    }
    Ok(())
}

/// Empties the rings once; returns what processes mapped.
pub fn drain(session: &mut Session, libraries: &mut Libraries, consumer: &mut dyn Consumer) -> MappedFiles {
    let mut mapped = MappedFiles::new();
    session.drain(&mut |record| {
        note_mapped(record, &mut mapped, libraries);
        consumer.put(record);
    });
    mapped
}

/// Returns the process and the file that a record names, if any.
fn named_file(record: &[u8]) -> Option<(u32, File)> {
    let header = Header::decode(record).filter(|h| h.kind == File::INFO.kind)?;
    match model::Event::decode(record)?.record {
        Record::File(file) => Some((header.tgid, file)),
        _ => None,
    }
}

/// Processes for which files became known, with those that they mapped as code: path and inode.
pub type MappedFiles = BTreeMap<u32, Vec<(PathBuf, u64)>>;

fn note_mapped(record: &[u8], mapped: &mut MappedFiles, libraries: &mut Libraries) {
    let Some((tgid, file)) = named_file(record) else { return };
    let code = mapped.entry(tgid).or_default();
    if file.what == file_what::CODE {
        libraries.inside.mapped(tgid, &file);
        code.push((PathBuf::from(&file.text), file.ino));
    }
}
