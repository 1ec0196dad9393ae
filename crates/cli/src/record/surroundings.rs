//! What a recording must know beside the events: the disks and how they stand on each other, the facts about the
//! device, and what the recorder itself did.

use crate::link;
use capture::Finished;
use device::{Below, Disks, Local};
use model::table::Coverage;
use model::{Context, Fact};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Collected before the command runs, completed after it.
pub struct Surroundings {
    /// What goes into the archive.
    pub known: link::Surroundings,
}

impl Surroundings {
    /// Before anything runs, so that collecting does not disturb it.
    pub fn collect(archive: &Path, context: &Context) -> Self {
        context.progress("reading facts about the device", 0, 0);
        let disks = Disks::read(&Local).unwrap_or_default();
        let mut known = link::Surroundings {
            functions: Vec::new(),
            no_room: None,
            tracer: Some(std::process::id()),
            tracer_files: Vec::new(),
            disks: disks.rows(None),
            loop_files: Vec::new(),
            partitions: disks.partitions().into_iter().chain(disks.volumes(&Local)).map(|(p, d)| (p.0, d.0)).collect(),
            coverage: Vec::new(),
            environment: device::collect(&Local, None),
        };
        for disk in disks.all.values() {
            if let Below::File { identity: Some((dev, ino)), .. } = &disk.below {
                known.loop_files.push((disk.dev.0, dev.0, *ino));
            }
        }
        for name in ["events.log", "meta.json", ""] {
            if let Ok((dev, ino)) = device::identity(&Local, &archive.join(name).to_string_lossy()) {
                known.tracer_files.push((dev.0, ino));
            }
        }
        Self { known }
    }

    /// After the end: the facts about where the files were, what the probes saw, and what the recorder took.
    pub fn finish(&mut self, finished: &Finished, blind: &[Coverage], path: Option<&str>) {
        if let Some(path) = path {
            self.known.environment.append(&mut device::collect(&Local, Some(path)));
        }
        self.known.coverage = finished.coverage.clone();
        self.known.coverage.extend_from_slice(blind);
        let mut say = |name: &str, value: u64, unit: &str| {
            self.say(name, &value.to_string(), (!unit.is_empty()).then_some(unit), "the recorder");
        };
        say("tracer.cpu", finished.cpu_ns, "ns");
        say("tracer.records", finished.records, "");
        say("tracer.records_lost", finished.lost, "");
        say("trace.start", finished.window_ns.0, "ns");
        say("trace.end", finished.window_ns.1, "ns");
    }

    /// Which SQLite was there, by file, and which PRAGMAs its programs set while they were recorded.
    pub fn say_sqlite(&mut self, versions: &[(String, String)], pragmas: &BTreeMap<String, String>) {
        let distinct: BTreeSet<&str> = versions.iter().map(|(_, version)| version.as_str()).collect();
        if !distinct.is_empty() {
            let paths: Vec<&str> = versions.iter().map(|(path, _)| path.as_str()).collect();
            self.say("sqlite.version", &distinct.into_iter().collect::<Vec<_>>().join(", "), None, &paths.join(" "));
        }
        for name in ["journal_mode", "synchronous", "page_size"] {
            let key = format!("sqlite.{name}");
            self.known.environment.entry(key).or_insert_with(|| Fact {
                value: None,
                unknown: Some(format!("no statement PRAGMA {name} = … was recorded")),
                unit: None,
                source: "the recorded statements".into(),
                varies: "run".into(),
            });
        }
        for (name, value) in pragmas {
            self.say(&format!("sqlite.{name}"), value, None, "a PRAGMA statement of the recorded program");
        }
    }

    fn say(&mut self, name: &str, value: &str, unit: Option<&str>, source: &str) {
        let fact = Fact {
            value: Some(value.into()),
            unknown: None,
            unit: unit.map(Into::into),
            source: source.into(),
            varies: "run".into(),
        };
        self.known.environment.insert(name.into(), fact);
    }
}

/// Now, ns since 1970.
pub fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
