//! Collects a recording's [`Metadata`] from the machine: the disks and how they are stacked, the facts about the device, and
//! what the recorder itself did.

use crate::Metadata;
use crate::disk_counters::CountedDisks;
use crate::left_running::LeftProcesses;
use crate::log_disks::log_disks;
use capture::FinishedRecording;
use device::{DiskBacking, Disks, Local};
use model::table::Coverage;
use model::{Context, Dev, Environment, Fact};
use std::path::Path;

/// Maximum number of file systems whose storage the facts describe.
const STORAGES_MAX: usize = 4;

/// Started before the command runs, completed after it.
pub struct Collector {
    pub metadata: Metadata,
    counted: CountedDisks,
}

impl Collector {
    /// Collects what is known before anything runs, so that collecting does not disturb the recording.
    pub fn new(archive: &Path, context: &Context) -> Self {
        context.progress("reading facts about the device", 0, 0);
        let disks = Disks::read(&Local).unwrap_or_default();
        let several = disks.volumes(&Local).into_iter().chain(log_disks(&disks, &Local));
        let mut metadata = Metadata {
            tracer: Some(capture::tracer()),
            disks: disks.rows(None),
            partitions: disks.partitions().into_iter().chain(several).map(|(p, d)| (p.0, d.0)).collect(),
            environment: device::collect(&Local, None),
            all_sleeps: true,
            ..Metadata::default()
        };
        for disk in disks.all.values() {
            if let DiskBacking::File { identity: Some((dev, ino)), .. } = &disk.below {
                metadata.loop_files.push((disk.dev.0, dev.0, *ino));
            }
        }
        let mut collector = Self { metadata, counted: CountedDisks::from_disks(&disks) };
        collector.add_own_file(&archive.join("events.log"));
        collector.add_own_file(archive);
        if capture::in_pid_namespace() {
            let numbers = format!(
                "are global, not of this PID namespace: Fathom, {} in here, is {}",
                std::process::id(),
                capture::tracer()
            );
            collector.add("trace.processes", &numbers, None, "the kernel's list of this namespace's tasks");
        }
        collector
    }

    /// Starts with what another one collected. The disks' own counters are not compared: they are those of another time.
    pub fn from_metadata(metadata: Metadata) -> Self {
        Self { metadata, counted: CountedDisks::from_disks(&Disks::default()) }
    }

    /// Reads the disks' own counters, once the recorded time has begun.
    pub fn count_before(&mut self) {
        self.metadata.under_way = self.counted.commands_under_way();
        self.metadata.counted_before = self.counted.sample();
    }

    /// Reads them again, before the recorded time ends.
    pub fn count_after(&mut self) {
        self.metadata.counted_after = self.counted.sample();
    }

    /// Adds a file that the recorder writes. It must exist for the whole recording: the inode of a removed file may be reused by the
    /// program.
    pub fn add_own_file(&mut self, file: &Path) {
        if let Ok((dev, ino)) = device::identity(&Local, &file.to_string_lossy()) {
            self.metadata.tracer_files.push((dev.0, ino));
        }
    }

    /// Adds, after the end, the facts about SQLite and about the file systems that the files were on, what the probes saw,
    /// and what the recorder took; `outside` of its records were outside the recorded time.
    pub fn finish(
        &mut self,
        finished: &FinishedRecording,
        outside: u64,
        blind: &[Coverage],
        file_systems: &[Dev],
        mut sqlite: Environment,
    ) {
        self.metadata.environment.append(&mut sqlite);
        self.add_storage(file_systems);
        self.metadata.marks_from_ns = finished.marks_from_ns;
        self.metadata.coverage = finished.coverage.clone();
        self.metadata.coverage.extend_from_slice(blind);
        let mut add = |name: &str, value: u64, unit: &str| {
            self.add(name, &value.to_string(), (!unit.is_empty()).then_some(unit), "the recorder");
        };
        add("tracer.cpu", finished.cpu_ns, "ns");
        if finished.counted_ns > 0 {
            add("tracer.counted", finished.counted_ns, "ns");
        }
        add("tracer.records", finished.records, "");
        add("tracer.records_outside", outside, "");
        add("tracer.records_lost", finished.lost, "");
        for (activity, price) in &finished.costs {
            let what = activity.name();
            let parts =
                [("", price.ns), (".low", price.low_ns), (".high", price.high_ns), (".inside", price.inside_ns)];
            for (part, ns) in parts {
                add(&format!("tracer.price.{what}{part}"), ns.round() as u64, "ns");
            }
        }
        if let Some(budget) = &finished.stacks {
            add("stacks.budget", budget.a_second, "1/s");
            add("stacks.from", budget.from_ns, "ns");
            add("stacks.taken", budget.taken, "");
            add("stacks.skipped", budget.skipped, "");
            add("stacks.longest_skipped", budget.longest_skipped_ns, "ns");
            add("stacks.no_room", budget.no_room, "");
        }
        add("trace.start", finished.window_ns.0, "ns");
        add("trace.end", finished.window_ns.1, "ns");
        // Both clocks now: the times of an archive can be compared with those of other programs.
        let ago = capture::boot_ns().saturating_sub(finished.window_ns.0);
        add("trace.start_unix", archive::unix_now_ns().saturating_sub(ago), "ns");
    }

    /// The facts of the first file system have the names that benchmarks use, those of others are prefixed `storage2`,
    /// `storage3`, ….
    fn add_storage(&mut self, file_systems: &[Dev]) {
        let all: Vec<Environment> = file_systems.iter().map(|dev| device::storage_of(&Local, *dev)).collect();
        // Pipes and files in memory are on no disk.
        let (on_disks, others): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|facts| facts.get("disk.name").is_some_and(|name| name.value.is_some()));
        let mut all = on_disks.into_iter();
        let mut first = all.next().unwrap_or_else(|| on_no_disk(others));
        self.metadata.environment.append(&mut first);
        for (i, facts) in all.take(STORAGES_MAX - 1).enumerate() {
            self.metadata
                .environment
                .extend(facts.into_iter().map(|(name, f)| (format!("storage{}.{name}", i + 2), f)));
        }
    }

    /// Adds what was requested.
    pub fn add_request(&mut self, what: &str) {
        self.add("trace.asked", what, None, "the command line");
    }

    /// Adds what the command left running.
    pub fn add_left_running(&mut self, left: &LeftProcesses) {
        self.add(
            "trace.left_running",
            &left.to_string(),
            None,
            "the processes that were recorded when the command had ended",
        );
    }

    fn add(&mut self, name: &str, value: &str, unit: Option<&str>, source: &str) {
        self.metadata.environment.insert(name.into(), run_fact(value, unit, source));
    }
}

/// Returns what is known about storage when no file was on a disk. The process behind a FUSE file system chooses its own disk, so a
/// program without commands of its own may still cause writes.
fn on_no_disk(others: Vec<Environment>) -> Environment {
    let served = |facts: &Environment| {
        facts
            .get("fs.type")
            .and_then(|f| f.value.as_deref())
            .is_some_and(|kind| kind == "fuse" || kind.starts_with("fuse."))
    };
    let fuse = others.into_iter().find(served);
    let why = match fuse {
        Some(_) => {
            "the files are on FUSE: the process that serves them writes to disks in its own name, not the program that was recorded"
        }
        None => "no file on a disk was read or written",
    };
    let mut facts = fuse.unwrap_or_default();
    let unknown = Fact {
        value: None,
        unknown: Some(why.into()),
        unit: None,
        source: "the recorded calls".into(),
        varies: "run".into(),
    };
    facts.insert("disk.name".into(), unknown);
    facts
}

pub fn run_fact(value: &str, unit: Option<&str>, source: &str) -> Fact {
    Fact {
        value: Some(value.into()),
        unknown: None,
        unit: unit.map(Into::into),
        source: source.into(),
        varies: "run".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_on_fuse_are_on_no_disk_of_their_own() {
        let of = |kind: &str| -> Environment { [("fs.type".to_string(), run_fact(kind, None, "mountinfo"))].into() };
        let why = |facts: &Environment| facts["disk.name"].unknown.clone().unwrap();
        for kind in ["fuse", "fuse.sshfs"] {
            let facts = on_no_disk(vec![of("tmpfs"), of(kind)]);
            assert!(
                facts["fs.type"].value.as_deref() == Some(kind) && why(&facts).contains("are on FUSE"),
                "{facts:?}"
            );
        }
        // File systems that no process serves, including one with a similar name.
        for others in [vec![], vec![of("tmpfs")], vec![of("fuseblk")]] {
            let facts = on_no_disk(others);
            assert!(!facts.contains_key("fs.type") && why(&facts).contains("no file on a disk"), "{facts:?}");
        }
    }
}
