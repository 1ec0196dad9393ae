//! What a recording must know beside the events: the disks and how they stand on each other, the facts about the
//! device, and what the recorder itself did.

use super::counted::Counter;
use super::log::Opened;
use analysis::files::DatabaseHeader;
use capture::Finished;
use device::{Below, Disks, Local};
use model::table::Coverage;
use model::{Context, Dev, Fact};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Collected before the command runs, completed after it.
pub struct Surroundings {
    /// What goes into the archive.
    pub known: recorder::Metadata,
    counter: Counter,
}

impl Surroundings {
    /// Before anything runs, so that collecting does not disturb it.
    pub fn collect(archive: &Path, context: &Context) -> Self {
        context.progress("reading facts about the device", 0, 0);
        let disks = Disks::read(&Local).unwrap_or_default();
        let mut known = recorder::Metadata {
            functions: Vec::new(),
            under_way: Vec::new(),
            counted_before: Vec::new(),
            counted_after: Vec::new(),
            no_room: None,
            stored: None,
            tracer: Some(capture::tracer()),
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
        let mut around = Self { known, counter: Counter::of(&disks) };
        around.writes(&archive.join("events.log"));
        around.writes(archive);
        if capture::within() {
            let numbers = format!(
                "are numbered as outside of this PID namespace: Fathom, {} in here, is {}",
                std::process::id(),
                capture::tracer()
            );
            around.say("trace.processes", &numbers, None, "the kernel's list of this namespace's tasks");
        }
        around
    }

    /// Reads what the disks count themselves, once the recorded time has begun.
    pub fn count_before(&mut self) {
        self.known.under_way = self.counter.under_way();
        self.known.counted_before = self.counter.read();
    }

    /// Reads it again, before the recorded time ends.
    pub fn count_after(&mut self) {
        self.known.counted_after = self.counter.read();
    }

    /// A file that the recorder writes. It must be there for as long as is recorded: a removed one's inode may become the program's.
    pub fn writes(&mut self, file: &Path) {
        if let Ok((dev, ino)) = device::identity(&Local, &file.to_string_lossy()) {
            self.known.tracer_files.push((dev.0, ino));
        }
    }

    /// After the end: the facts about the file systems that the files were on, what the probes saw, and what the recorder took; of
    /// that, so many records were `outside` the recorded time.
    pub fn finish(&mut self, finished: &Finished, outside: u64, blind: &[Coverage], file_systems: &[Dev]) {
        self.say_storage(file_systems);
        self.known.coverage = finished.coverage.clone();
        self.known.coverage.extend_from_slice(blind);
        let mut say = |name: &str, value: u64, unit: &str| {
            self.say(name, &value.to_string(), (!unit.is_empty()).then_some(unit), "the recorder");
        };
        say("tracer.cpu", finished.cpu_ns, "ns");
        if finished.counted_ns > 0 {
            say("tracer.counted", finished.counted_ns, "ns");
        }
        say("tracer.records", finished.records, "");
        say("tracer.records_outside", outside, "");
        say("tracer.records_lost", finished.lost, "");
        for (what, price) in &finished.costs {
            let parts =
                [("", price.ns), (".low", price.low_ns), (".high", price.high_ns), (".inside", price.inside_ns)];
            for (part, ns) in parts {
                say(&format!("tracer.price.{what}{part}"), ns.round() as u64, "ns");
            }
        }
        say("trace.start", finished.window_ns.0, "ns");
        say("trace.end", finished.window_ns.1, "ns");
    }

    /// The first one's facts have the names that benchmarks give theirs, those of others are of `storage2`, `storage3`, ….
    fn say_storage(&mut self, file_systems: &[Dev]) {
        let on_disks = file_systems.iter().map(|dev| device::storage_of(&Local, *dev));
        // Pipes and files in memory are on none.
        let mut all = on_disks.filter(|facts| facts.get("disk.name").is_some_and(|name| name.value.is_some()));
        match all.next() {
            Some(mut first) => self.known.environment.append(&mut first),
            None => {
                let why = "no file on a disk was read or written".to_string();
                let fact = Fact {
                    value: None,
                    unknown: Some(why),
                    unit: None,
                    source: "the recorded calls".into(),
                    varies: "run".into(),
                };
                self.known.environment.insert("disk.name".into(), fact);
            }
        }
        for (i, facts) in all.take(STORAGES - 1).enumerate() {
            self.known.environment.extend(facts.into_iter().map(|(name, f)| (format!("storage{}.{name}", i + 2), f)));
        }
    }

    /// What was asked for.
    pub fn say_asked(&mut self, what: &str) {
        self.say("trace.asked", what, None, "the command line");
    }

    /// Which SQLite ran, which PRAGMAs its programs set while they were recorded, and what the headers of
    /// their databases say of the others.
    pub fn say_sqlite(
        &mut self,
        version: Option<Fact>,
        pragmas: &BTreeMap<String, String>,
        databases: &BTreeMap<String, Opened>,
    ) {
        if let Some(version) = version {
            self.known.environment.insert("sqlite.version".into(), version);
        }
        let (stored, unread) = headers(databases);
        for (name, values) in &stored {
            let distinct: BTreeSet<&str> = values.iter().map(|(_, value)| value.as_str()).collect();
            let paths: Vec<&str> = values.iter().map(|(path, _)| path.as_str()).collect();
            let source = format!("file header, when the recording ended: {}", paths.join(" "));
            self.say(&format!("sqlite.{name}"), &distinct.into_iter().collect::<Vec<_>>().join(", "), None, &source);
        }
        for (name, in_file) in PRAGMAS {
            let recorded = format!("no statement PRAGMA {name} = … was recorded");
            let unknown = match (in_file, unread.first()) {
                (false, _) => {
                    format!("{recorded}, and a database's file does not keep it: each connection has its own")
                }
                (true, None) if databases.is_empty() => format!("{recorded}, and no database was seen being opened"),
                (true, None) => format!("{recorded}, and the file's header does not tell"),
                (true, Some(why)) => format!("{recorded}, and the file's header cannot be read: {why}"),
            };
            self.known.environment.entry(format!("sqlite.{name}")).or_insert_with(|| Fact {
                value: None,
                unknown: Some(unknown),
                unit: None,
                source: "the recorded statements and the files' headers".into(),
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

/// File systems whose storage is told of.
const STORAGES: usize = 4;

/// PRAGMAs that explain a trace, and whether a database's file keeps their value.
const PRAGMAS: [(&str, bool); 9] = [
    ("journal_mode", true),
    ("page_size", true),
    ("encoding", true),
    ("schema_format", true),
    ("synchronous", false),
    ("cache_size", false),
    ("locking_mode", false),
    ("mmap_size", false),
    ("wal_autocheckpoint", false),
];

/// Values by name of PRAGMA, each with the database that it is of.
type Stored = BTreeMap<&'static str, Vec<(String, String)>>;

/// What the headers of databases say now, and why some cannot be read. Only now, since a look during the recording would
/// bring pages into the cache, or keep a removed file's blocks from being freed.
fn headers(databases: &BTreeMap<String, Opened>) -> (Stored, Vec<String>) {
    let (mut stored, mut unread) = (Stored::new(), Vec::new());
    for (path, opened) in databases {
        match header(path, *opened) {
            Ok(header) => {
                for (name, value) in header.facts() {
                    stored.entry(name).or_default().push((path.clone(), value));
                }
            }
            Err(why) => unread.push(format!("{path}: {why}")),
        }
    }
    (stored, unread)
}

/// The header of the database that a process saw at `path`: through its own root if it still lives.
fn header(path: &str, opened: Opened) -> Result<DatabaseHeader, String> {
    use std::io::Read;
    let inside = capture::in_proc(opened.tgid).map(|pid| format!("/proc/{pid}/root{path}"));
    let places = inside.as_deref().into_iter().chain([path]);
    let place = places.into_iter().find(|p| Path::new(p).exists()).ok_or("it is gone")?;
    // A recorded program may have put a pipe there, whose opening would wait for a writer.
    let open = std::fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(place);
    let mut file = open.map_err(|e| e.to_string())?;
    let about = file.metadata().map_err(|e| e.to_string())?;
    if !about.is_file() || (opened.ino != 0 && about.ino() != opened.ino) {
        return Err("another file has its name now".into());
    }
    let mut bytes = [0; DatabaseHeader::SIZE];
    file.read_exact(&mut bytes).map_err(|_| "it is empty or shorter than a header")?;
    DatabaseHeader::parse(&bytes).ok_or_else(|| "it has no header of SQLite's (it may be encrypted)".into())
}

/// The boot whose CLOCK_BOOTTIME is this machine's.
pub fn boot() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?.trim().to_string())
}

/// Now, ns since 1970.
pub fn unix_ns() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
