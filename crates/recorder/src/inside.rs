//! How SQLite is probed: inside the command's processes, or by uprobes.
//!
//! A library that is probed inside has uprobes too, from the start: uprobes see a process in which the object is not active
//! (another environment, another root, setuid, code that cannot be changed), and a hooked process removes their breakpoints from
//! its own copy of the code. So no process is missed; this module only determines how each process was probed, for the coverage.

use crate::collect::run_fact;
use crate::request::{Probes, Request, Target};
use crate::sqlite_version::Identity;
use ::inside::layout::LibraryStatus;
use ::inside::plan::{Counters, Role};
use capture::inside::ProbedProcesses;
use capture::inside::error::{ImplantError, InsideError, PlanError};
use capture::inside::planned::PlannedLibrary;
use capture::sqlite::find::{Finder, FoundSqlite, executed_program};
use capture::{Inside, Session, launch};
use model::event::File;
use model::table::Coverage;
use model::{Absence, Dev, Fact, Layer};
use std::collections::{BTreeMap, BTreeSet};
use std::env::var_os;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time that a process needs from mapping a library to hooking it, while its loader works.
const LOADING_TIMEOUT: Duration = Duration::from_secs(2);

/// What is prepared, and the libraries that have uprobes all the same.
pub type Preparation = Result<(Inside, Vec<(PathBuf, PlanError)>), NotProbedInside>;

/// Why nothing is probed inside.
#[derive(Debug)]
pub struct NotProbedInside {
    pub why: String,
    /// The file that is the reason, if uprobes replace requested probes inside.
    instead: Option<PathBuf>,
}

impl NotProbedInside {
    /// Whether a recording that requested probes inside is made with uprobes nevertheless.
    pub fn is_tolerated(&self) -> bool {
        self.instead.is_some()
    }
}

impl<T: Into<String>> From<T> for NotProbedInside {
    fn from(why: T) -> Self {
        Self { why: why.into(), instead: None }
    }
}

/// Prepares probing inside, if it is requested and possible; otherwise returns the reason.
pub fn prepare(request: &Request, functions: &mut [capture::request::Function]) -> Preparation {
    if request.probes == Probes::Uprobe {
        return Err("uprobes were selected (--probes)".into());
    }
    if request.probes == Probes::Auto && cfg!(target_arch = "aarch64") {
        return Err("on aarch64, probes inside have been tested only in emulators; --probes inside selects them".into());
    }
    if request.also_all {
        return Err("--all records processes that Fathom did not start".into());
    }
    match &request.target {
        Target::Command(_) => {}
        Target::Pids(pids) => return prepare_running(request, pids, functions),
        Target::Comm(_) | Target::All => {
            return Err("only the command that Fathom starts, or the processes of --pid, can be probed inside".into());
        }
    }
    let words = request.command();
    let program = words.first().and_then(|name| launch::resolve_program(name, var_os("PATH").as_deref()).ok());
    let program = program.ok_or("the command was not found")?;
    let first = executed_program(&program);
    check_program(&first)?;
    let has_loader = capture::sqlite::program_loader(&first).is_some();
    let mut finder = Finder::new(var_os("LD_LIBRARY_PATH").as_deref());
    let mut found: Vec<FoundSqlite> = finder.search_system().found;
    let path = var_os("PATH");
    found.extend(finder.search_command(&program, path.as_deref()).found);
    found.extend(finder.search_named(words, path.as_deref()).found);
    let whom = ProbedProcesses::Command { follows: !has_loader };
    let (mut inside, refused) = Inside::prepare(&found, functions, whom).map_err(|why| why.to_string())?;
    if !has_loader {
        inside.implant_into(&first);
    }
    Ok((inside, refused))
}

/// Does the same for running processes: they are changed while others rely on them, so only on request.
fn prepare_running(request: &Request, pids: &[u32], functions: &mut [capture::request::Function]) -> Preparation {
    if request.probes != Probes::Inside {
        return Err("the code of running processes is changed only with --probes inside".into());
    }
    let mut finder = Finder::new(var_os("LD_LIBRARY_PATH").as_deref());
    let mut found: Vec<FoundSqlite> = finder.search_system().found;
    found.extend(pids.iter().flat_map(|pid| finder.search_process(*pid).found));
    Inside::prepare(&found, functions, ProbedProcesses::Running(pids)).map_err(|why| match &why {
        InsideError::Refused { path, why: of_file } if !functions.is_empty() => {
            NotProbedInside { why: why.to_string(), instead: Some(path.clone()) }
        }
        _ => why.to_string().into(),
    })
}

/// Whether a running process may throw an exception, or be unwound otherwise: it has an unwinder. The return probes of functions that were
/// called with uprobes would end it there.
pub fn may_unwind(pid: u32) -> bool {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    ["/libgcc_s", "/libunwind", "/libc++"].iter().any(|name| maps.contains(name))
}

/// Whether the object can be loaded into a program.
fn check_program(program: &Path) -> Result<(), String> {
    let about = std::fs::metadata(program).map_err(|e| e.to_string())?;
    if about.permissions().mode() & 0o6000 != 0 {
        return Err("the command is setuid or setgid, so its loader ignores LD_PRELOAD".into());
    }
    let mut magic = [0; 5];
    let is_elf = std::fs::File::open(program)
        .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut magic))
        .is_ok_and(|()| magic[..4] == *b"\x7fELF");
    if is_elf && magic[4] == 1 {
        return Err("the command is a 32-bit program, which cannot load the object".into());
    }
    Ok(())
}

/// A library that is probed inside.
struct Library {
    planned: PlannedLibrary,
    /// Its index in the plan.
    place: usize,
    /// Whether it is planned for functions that `--op` names.
    named: bool,
    identity: Option<Identity>,
    hooked: BTreeSet<u32>,
    /// If it is a program: whether it is dynamically linked.
    has_loader: bool,
}

impl Library {
    fn new(place: usize, planned: PlannedLibrary, named: bool) -> Self {
        let identity = Identity::for_path(&planned.path.to_string_lossy());
        let has_loader = capture::sqlite::program_loader(&planned.path).is_some();
        Self { identity, hooked: BTreeSet::new(), has_loader, planned, place, named }
    }
}

/// A process that has mapped a library, and whose object has not reported the outcome yet.
struct LoadingProcess {
    tgid: u32,
    library: usize,
    since: Instant,
    /// The process had mapped it before it was found.
    late: bool,
}

/// Tracks the libraries that are probed inside.
#[derive(Default)]
pub struct Watch {
    libraries: Vec<Library>,
    loading: Vec<LoadingProcess>,
    seen: BTreeSet<(u32, usize)>,
    /// Libraries that have uprobes although others are probed inside.
    rows: Vec<Coverage>,
    /// What has no uprobes either.
    unprobed: Vec<Coverage>,
    /// Libraries in processes that have uprobes although the library is probed inside, by reason: the number, and the first of them.
    outside: BTreeMap<(usize, String), (usize, String)>,
    /// Why nothing is probed inside.
    unused: Option<String>,
    /// Processes into which the object was to be loaded at their exec, and why that failed.
    implanted: BTreeMap<u32, Option<String>>,
    /// Processes that were already running, and why the object could not be loaded into one.
    attached: BTreeMap<u32, Option<String>>,
    /// Why the command is not followed, if it should be.
    not_followed: Option<String>,
}

impl Watch {
    /// Creates a `Watch` that probes nothing inside, for this reason.
    pub fn none(why: &NotProbedInside) -> Self {
        let rows =
            why.instead.iter().map(|path| coverage_row(&path.to_string_lossy(), format!("uprobes only: {}", why.why)));
        Self { unused: Some(why.why.clone()), rows: rows.collect(), ..Self::default() }
    }

    /// Records that the object was loaded into a statically linked program, or why that failed.
    pub fn implanted(&mut self, pid: u32, outcome: std::result::Result<(), ImplantError>) {
        self.implanted.insert(pid, outcome.err().map(|why| why.to_string()));
    }

    /// Whether anything can be probed inside.
    pub fn is_possible(&self) -> bool {
        self.unused.is_none()
    }

    /// Records that the object was loaded into a process that was already running, or why that failed.
    pub fn attached(&mut self, pid: u32, outcome: std::result::Result<(), ImplantError>) {
        self.attached.insert(pid, outcome.err().map(|why| why.to_string()));
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let inodes: BTreeSet<u64> =
            maps.lines().filter_map(|line| line.split_whitespace().nth(4)?.parse().ok()).collect();
        for (library, known) in self.libraries.iter().enumerate() {
            if inodes.contains(&known.planned.library.ino) && self.seen.insert((pid, library)) {
                self.loading.push(LoadingProcess { tgid: pid, library, since: Instant::now(), late: true });
            }
        }
    }

    /// Records that the command begins with a program that cannot ask, and is not followed, for this reason.
    pub fn not_followed(&mut self, why: &ImplantError) {
        self.not_followed = Some(why.to_string());
    }

    /// Extends the plan by a library that was found during the recording.
    pub fn plan(&mut self, session: &mut Session, found: &FoundSqlite) {
        let known = |row: &Coverage| row.probe == found.path.to_string_lossy();
        if self.unused.is_none()
            && !self.rows.iter().any(known)
            && let Some(inside) = session.inside()
            && let Err(why) = inside.add(found)
        {
            self.refused(vec![(found.path.clone(), why)]);
        }
    }

    /// Handles a process that had mapped a library before it was found; its object may be about to ask.
    pub fn met_late(&mut self, pid: u32, path: &Path) {
        if let Some(library) = self.libraries.iter().position(|l| l.planned.path == path)
            && self.seen.insert((pid, library))
        {
            self.loading.push(LoadingProcess { tgid: pid, library, since: Instant::now(), late: true });
        }
    }

    /// Records libraries that are probed by uprobes after all.
    pub fn refused(&mut self, refused: Vec<(PathBuf, PlanError)>) {
        let rows = refused
            .into_iter()
            .map(|(path, why)| coverage_row(&path.to_string_lossy(), format!("uprobes only: {why}")));
        self.rows.extend(rows);
    }

    /// Whether all processes that were already running are probed inside.
    pub fn all_attached(&self) -> bool {
        !self.attached.is_empty() && self.attached.values().all(Option::is_none)
    }

    /// Records that functions of `--op` have no uprobes, which would end attached processes.
    pub fn without_uprobes(&mut self, functions: &[capture::request::Function]) {
        let why = "not probed in programs that the processes of --pid execute: uprobes would end these processes at an exception";
        self.unprobed.extend(functions.iter().map(|function| {
            let probe = format!("{}:{}", function.path.to_string_lossy(), function.name);
            Coverage::absent(Layer::Database, probe, Absence::Failed, why.to_owned())
        }));
    }

    /// Tracks the SQLite in a file, if it is probed inside.
    pub fn watch(&mut self, session: &mut Session, found: &FoundSqlite) {
        let Some(inside) = session.inside() else { return };
        let Some(place) = inside.library(&found.path) else { return };
        let Some(planned) = inside.libraries().get(place) else { return };
        self.libraries.push(Library::new(place, planned.clone(), false));
    }

    /// Tracks the functions that `--op` names.
    pub fn watch_named(&mut self, session: &mut Session) {
        let Some(inside) = session.inside() else { return };
        self.libraries.extend(inside.named().map(|(place, planned)| Library::new(place, planned.clone(), true)));
    }

    /// Records that a process mapped a file as code.
    pub fn mapped(&mut self, tgid: u32, file: &File) {
        let is_it = |l: &Library| l.identity.is_some_and(|id| id.is((Dev(file.dev), file.ino)));
        for (library, _) in self.libraries.iter().enumerate().filter(|(_, library)| is_it(library)) {
            if self.seen.insert((tgid, library)) {
                self.loading.push(LoadingProcess { tgid, library, since: Instant::now(), late: false });
            }
        }
    }

    /// Whether a process still has to be checked.
    pub fn waits(&self) -> bool {
        !self.loading.is_empty()
    }

    /// Checks the processes that have mapped a library. `last`: the recording ends.
    pub fn check_processes(&mut self, session: &mut Session, last: bool) {
        for process in std::mem::take(&mut self.loading) {
            match self.process_state(session, &process, last) {
                ProcessState::Hooked => {
                    self.libraries[process.library].hooked.insert(process.tgid);
                }
                ProcessState::Loading => self.loading.push(process),
                ProcessState::Outside(why) => self.outside(&process, &why),
            }
        }
    }

    fn process_state(&self, session: &mut Session, process: &LoadingProcess, last: bool) -> ProcessState {
        let library = &self.libraries[process.library];
        let Some(inside) = session.inside() else { return ProcessState::Outside("the recording ended".into()) };
        let (object, preloaded) = (inside.object(), inside.preloaded());
        match inside.status(process.tgid, library.place) {
            LibraryStatus::Hooked => return ProcessState::Hooked,
            LibraryStatus::Refused(why) => return ProcessState::Outside(why.into()),
            LibraryStatus::Unseen => {}
        }
        if let Some(Some(why)) = self.attached.get(&process.tgid) {
            return ProcessState::Outside(why.clone());
        }
        let in_time = !last && process.since.elapsed() < LOADING_TIMEOUT;
        let implanted = self.implanted.get(&process.tgid);
        if let Some(Some(why)) = implanted {
            return ProcessState::Outside(format!("it is linked statically, and {why}"));
        }
        let holds = |name: &str, path: &Path| {
            let text = std::fs::read(format!("/proc/{}/{name}", process.tgid)).ok()?;
            let wanted = path.as_os_str().as_encoded_bytes();
            Some(text.windows(wanted.len()).any(|w| w == wanted))
        };
        // A loader loads the object before any library, but after the program itself.
        let exe = PathBuf::from(format!("/proc/{}/exe", process.tgid));
        let own = capture::inside::planned::file_identity(&exe);
        let is_program = own == Some((library.planned.library.dev, library.planned.library.ino));
        // It may be stopped before its first instruction, about to get the object: if found at that moment, it is not late.
        if is_program && implanted.is_none() && in_time && inside.is_following() {
            return ProcessState::Loading;
        }
        if is_program && !library.has_loader && implanted.is_none() {
            return ProcessState::Outside(match &self.not_followed {
                Some(why) => format!("it is linked statically, and what started it could not be followed: {why}"),
                None => "it is linked statically, and what started it did not announce it".into(),
            });
        }
        // In this order: an object that has been loaded removes itself from the environment.
        let held = (holds("environ", &preloaded), holds("maps", &object));
        // It may have loaded the object and ended meanwhile.
        if inside.status(process.tgid, library.place) == LibraryStatus::Hooked {
            return ProcessState::Hooked;
        }
        match held {
            (_, Some(true)) if in_time => ProcessState::Loading,
            (_, Some(_)) if process.late => {
                ProcessState::Outside("it was found after the process had begun to use it".into())
            }
            (Some(true), Some(false)) if in_time && is_program => ProcessState::Loading,
            (_, Some(true)) => ProcessState::Outside("its object did not hook the library".into()),
            (Some(true), Some(false)) => ProcessState::Outside("its loader did not load the object".into()),
            (_, Some(false)) => ProcessState::Outside("LD_PRELOAD was taken out of its environment".into()),
            (_, None) => ProcessState::Outside("it ended without loading the object".into()),
        }
    }

    fn outside(&mut self, process: &LoadingProcess, why: &str) {
        let name = || capture::comm_of(process.tgid).unwrap_or_else(|| "a process that has ended".into());
        let first = || (0, format!("{} ({})", name(), process.tgid));
        self.outside.entry((process.library, why.into())).or_insert_with(first).0 += 1;
    }

    /// Whether the library in that file is probed inside that process.
    pub fn is_hooked(&self, pid: u32, path: &Path) -> bool {
        self.libraries.iter().any(|l| l.planned.path == path && l.hooked.contains(&pid))
    }

    /// Whether processes were probed both ways.
    pub fn is_mixed(&self) -> bool {
        let inside = self.libraries.iter().any(|l| !l.hooked.is_empty());
        inside && !(self.rows.is_empty() && self.outside.is_empty())
    }

    /// Returns how the command's SQLite was probed, and why, as a fact.
    pub fn fact(&self) -> Fact {
        let refused = self.attached.values().flatten().next();
        let value = match &self.unused {
            Some(why) => format!("uprobes: {why}"),
            None if !self.attached.is_empty() && self.attached.values().all(Option::is_some) => {
                format!("uprobes: {}", refused.map_or("", String::as_str))
            }
            None if !self.rows.is_empty() || !self.outside.is_empty() => {
                "inside; uprobes where listed in the coverage".into()
            }
            None if self.libraries.iter().all(|l| l.hooked.is_empty()) => {
                "inside, but no process had a SQLite with symbols or a function of --op".into()
            }
            None => "inside".into(),
        };
        run_fact(&value, None, "the recorder")
    }

    /// Returns whether SQLite's own counters were read, and why not, as a fact.
    pub fn counters_fact(&self) -> Fact {
        let hooked = self.libraries.iter().filter(|library| !library.hooked.is_empty() && !library.named);
        let (mut read, mut unread) = (0, Vec::new());
        for library in hooked.filter(|l| l.planned.library.functions.iter().any(|f| f.role == Role::Step)) {
            let missing = match library.planned.library.counters {
                Some(Counters { cache: Some(_), .. }) => None,
                Some(_) => Some("those of the page cache were not: a function that returns them has no symbol"),
                None => Some("they were not read: sqlite3_stmt_status has no symbol, or the version is unknown"),
            };
            read += usize::from(missing.is_none());
            unread.extend(missing.map(|why| format!("{}: {why}", library.planned.path.to_string_lossy())));
        }
        let value = match (read, unread.is_empty()) {
            (0, true) => "not read: only probes inside a process read them".into(),
            (_, true) => "read".into(),
            (0, false) => unread.join("; "),
            (_, false) => format!("read; {}", unread.join("; ")),
        };
        run_fact(&value, None, "the recorder")
    }

    /// Returns the rows for the coverage.
    pub fn coverage(&self) -> Vec<Coverage> {
        let hooked = self.libraries.iter().filter(|l| !l.hooked.is_empty());
        let rows = hooked.map(|library| {
            let names: Vec<&str> = library.planned.functions.iter().map(|(name, _)| name.as_str()).collect();
            let processes = model::counted(library.hooked.len(), "process");
            let how = format!("{processes}, by jumps in {}", names.join(", "));
            let named = if library.named { format!(":{}", names.join(",")) } else { String::new() };
            coverage_row(&format!("{}{named} inside", library.planned.path.to_string_lossy()), how)
        });
        let outside = self.outside.iter().map(|((library, why), (count, first))| {
            let path = self.libraries[*library].planned.path.to_string_lossy();
            let (probe, others) = match count - 1 {
                0 => (format!("{path} in {first}"), String::new()),
                others => {
                    (format!("{path} in {first} and others"), format!("{}, ", model::counted(others + 1, "process")))
                }
            };
            coverage_row(&probe, format!("{others}by uprobes, since {why}"))
        });
        rows.chain(outside).chain(self.rows.iter().chain(&self.unprobed).cloned()).collect()
    }
}

enum ProcessState {
    Hooked,
    Loading,
    Outside(String),
}

fn coverage_row(probe: &str, how: String) -> Coverage {
    Coverage::attached(Layer::Database, probe, how)
}
