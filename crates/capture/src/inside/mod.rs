//! Probes inside the processes of a command (the crate `inside`): the directory from which they load the object and in which they
//! leave their records, the plan for each library, and the outcome.
//!
//! The object is a file in a directory in memory, not a descriptor: `/proc/PID/fd` of a recorder running as root is not accessible to
//! a program that does not, and an inherited descriptor is closed by programs that start processes properly. A process in another
//! root does not find it; then, as wherever the object is not active, uprobes are used.

pub mod arenas;
pub mod asks;
#[cfg(target_arch = "x86_64")]
mod attach;
#[cfg(not(target_arch = "x86_64"))]
#[path = "attach/none.rs"]
mod attach;
mod directory;
pub mod error;
mod implant;
pub(crate) mod pace;
pub mod planned;

use crate::error::Error;
use crate::kernel::clock::boot_ns;
use crate::launch::{ExecStop, Follower, LingeringProcess};
use crate::multi::ProbePoint;
use crate::price::{self, Activity};
use crate::request;
use crate::sqlite;
use crate::sqlite::find::FoundSqlite;
use crate::trap::{self, Price};
use crate::uprobes::Uprobes;
use arenas::Arenas;
use asks::{PendingQuestion, QuestionListener};
use attach::{Attachment, StuckThreads};
use aya::Ebpf;
use aya::maps::{HashMap, Map, MapData};
use directory::ObjectDirectory;
use error::{ImplantError, InsideError, PlanError};
use inside::layout::LibraryStatus;
use inside::question::Answer;
use model::Event;
use planned::PlannedLibrary;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum number of C libraries in a plan; they and the unwinders are at its end.
const C_LIBRARIES_MAX: usize = 2;
/// Maximum number of unwinders in a plan.
const UNWINDERS_MAX: usize = 2;
/// Maximum number of libraries with SQLite in them; after them come the files whose functions `--op` names.
const SQLITE_LIBRARIES_MAX: usize =
    ::inside::layout::PLAN_LIBRARIES - UNWINDERS_MAX - C_LIBRARIES_MAX - planned::NAMED_FILES_MAX;
/// The first place of an unwinder in a plan.
const UNWINDER_INDEX_MIN: usize = SQLITE_LIBRARIES_MAX + planned::NAMED_FILES_MAX + C_LIBRARIES_MAX;
/// The unwinder of C++ exceptions and of cancellation: a part of its path.
const UNWINDER_PATH_PART: &str = "/libgcc_s.so";

/// Time to wait at the end for traced processes to stop. Those that do not are released when this process ends.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(1);

/// What is probed inside.
pub struct Inside {
    /// Processes that were already running. Dropped before the directory, which is kept if the object cannot be removed from
    /// one.
    attached: Attachments,
    directory: ObjectDirectory,
    libraries: Vec<PlannedLibrary>,
    /// Files whose functions `--op` names.
    named: Vec<PlannedLibrary>,
    c_libraries: Vec<::inside::plan::Library>,
    /// For processes whose loader does not know the object.
    unwinders: Vec<::inside::plan::Library>,
    /// Questions from processes, while they are being answered.
    asks: Option<QuestionListener>,
    /// Traced processes that are to be released.
    lingering: Vec<LingeringProcess>,
    arenas: Arenas,
    /// Threads known to the kernel side, with their processes.
    threads: Option<HashMap<MapData, u32, u32>>,
    /// The plan's libraries that are recorded inside in a process, one bit each.
    hooked: Option<HashMap<MapData, u32, u32>>,
    implants: bool,
    /// The command begins with a program that cannot ask about what it executes.
    follows: bool,
    follower: Option<Follower>,
}

/// Whose statements and functions are to be probed inside.
#[derive(Debug, Clone, Copy)]
pub enum ProbedProcesses<'a> {
    /// The command's processes. `follows`: the programs that it executes are met by following it.
    Command { follows: bool },
    /// These processes, which are running already.
    Running(&'a [u32]),
}

/// All bits: a process that is about to be attached to.
const EXPECTED_BITS: u32 = u32::MAX;

/// Makes uprobes skip running processes until it is known whether these are probed inside: nothing of them is recorded twice, or begun by
/// one and ended by the other. Must be called before they are recorded.
pub(crate) fn mark_expected(ebpf: &mut Ebpf, pids: &[u32]) -> Result<(), Error> {
    let refused = |e: String| Error::table("cannot note a process to be probed inside", e);
    let map = ebpf.map_mut("inside_libraries").ok_or_else(|| refused("there is no such table".into()))?;
    let mut table: HashMap<_, u32, u32> = HashMap::try_from(map).map_err(|e| refused(crate::error::chain(&e)))?;
    for pid in pids {
        table.insert(pid, EXPECTED_BITS, 0).map_err(|e| refused(crate::error::chain(&e)))?;
    }
    Ok(())
}

/// Running processes into which the object was loaded. When this is dropped, it is removed from them.
#[derive(Debug, Default)]
struct Attachments {
    all: Vec<Attachment>,
    stuck: StuckThreads,
    /// Processes that are about to be attached to, which uprobes skip ([`mark_expected`]).
    expected: BTreeSet<u32>,
}

impl Attachments {
    fn for_expected(pids: &[u32]) -> Self {
        Self { all: Vec::new(), stuck: StuckThreads::default(), expected: pids.iter().copied().collect() }
    }

    fn remove_all(&mut self, children: &[u32]) {
        for attached in self.all.drain(..) {
            // Children first: they may have been forked with the changes that are reverted there.
            for child in children.iter().filter(|child| **child != attached.pid()) {
                attached.in_child(*child).remove_object(&mut self.stuck);
            }
            attached.remove_object(&mut self.stuck);
        }
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.remove_all(&[]);
    }
}

/// The page size on which the object's offsets and sizes are based.
const PAGE_BYTES: i64 = 4096;

fn page_size() -> i64 {
    // SAFETY: a call with a number.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) }
}

/// Returns the C libraries of this machine.
fn c_libraries() -> Vec<::inside::plan::Library> {
    let glibc = sqlite::find::Libraries::system().resolve("libc.so.6", &[]);
    let all = glibc.into_iter().chain([PathBuf::from(format!("/lib/ld-musl-{}.so.1", std::env::consts::ARCH))]);
    all.filter_map(|path| planned::plan_c_library(&path)).collect()
}

/// Whether this place in a plan is that of an unwinder.
#[cfg(target_arch = "x86_64")]
fn is_unwinder(library: u32) -> bool {
    (UNWINDER_INDEX_MIN..::inside::layout::PLAN_LIBRARIES).contains(&(library as usize))
}

/// Returns the unwinders that running processes have loaded, and the one that they may load.
fn unwinders(pids: &[u32]) -> Vec<::inside::plan::Library> {
    let of = |pid: &u32| {
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let path = maps
            .lines()
            .find(|line| line.contains(UNWINDER_PATH_PART))
            .and_then(|line| line.find('/').map(|at| &line[at..]));
        path.map(PathBuf::from)
    };
    let system = sqlite::find::Libraries::system().resolve("libgcc_s.so.1", &[]);
    let mut all: Vec<::inside::plan::Library> = Vec::new();
    for path in pids.iter().filter_map(of).chain(system) {
        if let Some(library) = planned::plan_unwinder(&path)
            && !all.iter().any(|known| (known.dev, known.ino) == (library.dev, library.ino))
        {
            all.push(library);
        }
    }
    all
}

/// Plans the functions that `--op` names, and stores their places in the plan in them.
fn plan_named(
    functions: &mut [request::Function],
    others: &[::inside::plan::Library],
) -> Result<Vec<PlannedLibrary>, InsideError> {
    let mut files: Vec<PathBuf> = Vec::new();
    let place = |files: &mut Vec<PathBuf>, path: &Path| {
        let known = files.iter().position(|file| planned::file_identity(file) == planned::file_identity(path));
        known.unwrap_or_else(|| {
            files.push(path.into());
            files.len() - 1
        })
    };
    let places: Vec<usize> = functions.iter().map(|function| place(&mut files, &function.path)).collect();
    let mut all = Vec::new();
    for (n, path) in files.iter().enumerate() {
        let mine = (0u16..).zip(&*functions).zip(&places).filter(|(_, place)| **place == n);
        let mine: Vec<_> = mine.map(|(function, _)| function).collect();
        let too_many = PlanError::TooManyNamed(planned::NAMED_FILES_MAX, ::inside::layout::PLAN_FUNCTIONS);
        let planned = if n < planned::NAMED_FILES_MAX {
            PlannedLibrary::named(path, &mine, others.iter())
        } else {
            Err(too_many)
        };
        all.push(planned.map_err(|why| InsideError::Refused { path: path.clone(), why })?);
    }
    for (function, place) in functions.iter_mut().zip(places) {
        function.inside = Some(SQLITE_LIBRARIES_MAX + place);
    }
    Ok(all)
}

/// Programs of the kernel side, and the functions of the object to which they are attached.
const OBJECT_PROBES: [(&str, &str); 3] = [
    ("inside_thread", ::inside::THREAD_FUNCTION),
    ("inside_hooked", ::inside::HOOKED_FUNCTION),
    ("inside_lost", ::inside::LOST_FUNCTION),
];

impl Inside {
    /// Prepares the directory for these libraries and functions; also returns those that cannot be probed inside, and why. Nested
    /// functions must be probed the same way: with functions, all or nothing. `whom`: the command's programs or running ones.
    pub fn prepare(
        found: &[FoundSqlite],
        functions: &mut [request::Function],
        whom: ProbedProcesses<'_>,
    ) -> Result<(Self, Vec<(PathBuf, PlanError)>), InsideError> {
        if ::inside::OBJECT.is_empty() {
            return Err(InsideError::NoObject);
        }
        if page_size() != PAGE_BYTES {
            return Err(InsideError::Pages(page_size()));
        }
        crate::namespace::determine_namespace().map_err(|e| InsideError::Namespace(crate::error::chain(&e)))?;
        if crate::namespace::in_pid_namespace() {
            return Err(InsideError::Container);
        }
        let (mut libraries, mut refused) = (Vec::new(), Vec::new());
        for found in found {
            match PlannedLibrary::new(found) {
                Ok(_) if libraries.len() == SQLITE_LIBRARIES_MAX => {
                    refused.push((found.path.clone(), PlanError::TooMany));
                }
                Ok(planned) => libraries.push(planned),
                Err(why) => refused.push((found.path.clone(), why)),
            }
        }
        let c_libraries = c_libraries();
        let planned: Vec<_> =
            libraries.iter().map(|l: &PlannedLibrary| l.library.clone()).chain(c_libraries.clone()).collect();
        let (running, follows) = match whom {
            ProbedProcesses::Command { follows } => (None, follows),
            ProbedProcesses::Running(pids) => (Some(pids), false),
        };
        let named = plan_named(functions, &planned)?;
        if libraries.is_empty() && named.is_empty() || !named.is_empty() && !refused.is_empty() {
            let first = refused.first().cloned();
            if let Some((path, why)) = first {
                return Err(InsideError::Refused { path, why });
            }
            // Programs executed later are asked about, if the C library's execve can be hooked, or are met by following.
            if c_libraries.is_empty() && !follows {
                return Err(InsideError::NoLibrary);
            }
        }
        let directory = ObjectDirectory::create()?;
        let asks = Some(QuestionListener::listen(&directory.question_socket())?);
        let arenas = Arenas::new(directory.arenas(), boot_ns(), functions.len());
        let (lingering, threads, hooked) = (Vec::new(), None, None);
        let (implants, follower) = (false, None);
        let inside = Self {
            attached: Attachments::for_expected(running.unwrap_or_default()),
            directory,
            libraries,
            named,
            c_libraries,
            unwinders: running.map(unwinders).unwrap_or_default(),
            asks,
            lingering,
            arenas,
            threads,
            hooked,
            implants,
            follows,
            follower,
        };
        inside.write_plan()?;
        Ok((inside, refused))
    }

    /// Writes the plan. A library keeps its place: running processes have read it.
    fn write_plan(&self) -> Result<(), InsideError> {
        let mut plans: Vec<_> = self.libraries.iter().map(|l| l.library.clone()).collect();
        plans.resize(SQLITE_LIBRARIES_MAX, ::inside::plan::Library::default());
        plans.extend(self.named.iter().map(|l| l.library.clone()));
        plans.resize(SQLITE_LIBRARIES_MAX + planned::NAMED_FILES_MAX, ::inside::plan::Library::default());
        plans.extend(self.c_libraries.iter().take(C_LIBRARIES_MAX).cloned());
        plans.resize(UNWINDER_INDEX_MIN, ::inside::plan::Library::default());
        plans.extend(self.unwinders.iter().take(UNWINDERS_MAX).cloned());
        self.directory.write_plan(plans)
    }

    /// Extends the plan by a library that was found later, if it is not in it. Must be called before the library gets its
    /// uprobes.
    ///
    /// # Errors
    /// The reason; it then has uprobes only.
    pub fn add(&mut self, found: &FoundSqlite) -> Result<(), PlanError> {
        if self.library(&found.path).is_some() {
            return Ok(());
        }
        if found.path.starts_with("/proc") {
            return Err(PlanError::OtherRoot);
        }
        let planned = PlannedLibrary::new(found)?;
        if self.libraries.len() == SQLITE_LIBRARIES_MAX {
            return Err(PlanError::TooMany);
        }
        self.libraries.push(planned);
        self.write_plan().map_err(|why| {
            self.libraries.pop();
            PlanError::Plan(crate::error::chain(&why))
        })
    }

    /// Returns the descriptors that become readable when a process asks.
    pub(crate) fn descriptors(&self) -> Vec<std::os::fd::RawFd> {
        let asks = self.asks.iter().flat_map(QuestionListener::descriptors);
        asks.chain(self.follower.iter().map(Follower::descriptor)).collect()
    }

    /// Returns the processes that were met when they executed a program.
    pub fn take_met(&mut self) -> Vec<ExecStop> {
        std::iter::from_fn(|| self.follower.as_mut()?.next_exec()).collect()
    }

    /// Returns the pending questions.
    pub(crate) fn questions(&mut self) -> Vec<PendingQuestion> {
        self.release_stopped();
        self.asks.as_mut().map(QuestionListener::take_complete).unwrap_or_default()
    }

    pub fn stop_answering(&mut self) {
        let _ = std::fs::remove_file(self.directory.question_socket());
        self.asks = None;
        self.follower = None;
        let until = Instant::now() + RELEASE_TIMEOUT;
        while !(self.lingering.is_empty() && self.attached.stuck.is_empty()) && Instant::now() < until {
            self.release_stopped();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn release_stopped(&mut self) {
        self.attached.stuck.release_stopped();
        self.lingering = self.lingering.drain(..).filter_map(LingeringProcess::release_if_stopped).collect();
    }

    /// Loads the object into the program that a process asked about, which has no loader, at its exec.
    ///
    /// # Errors
    /// The reason; it is executed either way.
    pub fn implant_at_exec(&mut self, ask: PendingQuestion) -> Result<(), ImplantError> {
        if ask.tid != ask.pid {
            return Err(ImplantError::NotStopped("a thread other than the main one executed it"));
        }
        let mut lingering = std::mem::take(&mut self.lingering);
        let (go, went_on) = (|| ask.reply(Answer::Planned), || ask.has_ended());
        let done = crate::launch::stop_at_exec(ask.pid, go, went_on, |pid| self.implant(pid), &mut lingering);
        self.lingering = lingering;
        done
    }

    /// Makes uprobes record the processes that were expected to be probed inside.
    pub(crate) fn clear_expected(&mut self) {
        for pid in std::mem::take(&mut self.attached.expected) {
            if let Some(table) = &mut self.hooked {
                let _ = table.remove(&pid);
            }
        }
    }

    /// Loads the object into such a process; then its statements are recorded.
    ///
    /// # Errors
    /// The reason; it has uprobes.
    pub fn attach_to(&mut self, pid: u32) -> Result<(), ImplantError> {
        let Attachments { all, stuck, expected } = &mut self.attached;
        expected.remove(&pid);
        let (table, expected) = (&mut self.hooked, &*expected);
        let mut tell = |bits: u32| {
            let Some(table) = table.as_mut() else { return };
            let _ = table.insert(pid, bits, 0);
            // Children forked meanwhile have inherited the expected state, but no jumps.
            let inherited = |(child, bits): &(u32, u32)| *bits == EXPECTED_BITS && !expected.contains(child);
            let children: Vec<u32> = table.iter().flatten().filter(inherited).map(|(child, _)| child).collect();
            for child in children {
                let _ = table.remove(&child);
            }
        };
        let bits = |libraries: &[usize]| libraries.iter().fold(0, |all, library| all | 1u32 << (library & 31));
        let whole = !self.named.is_empty();
        match attach::attach(pid, &self.directory.object(), whole, stuck, |libraries| tell(bits(libraries))) {
            Ok(attached) => all.push(attached),
            Err(why) => {
                tell(0);
                return Err(why);
            }
        }
        Ok(())
    }

    /// Removes the object from running processes, and from those that they have started (`children`).
    pub fn remove_attached(&mut self, children: &[u32]) {
        self.arenas.close();
        self.attached.remove_all(children);
    }

    /// Returns the value of `LD_PRELOAD` for the command; `own` is its previous value.
    pub fn preload(&self, own: Option<OsString>) -> OsString {
        let mut all = self.preloaded().into_os_string();
        if let Some(own) = own.filter(|own| !own.is_empty()) {
            all.push(":");
            all.push(own);
        }
        all
    }

    /// Whether the command, which has no loader, gets the object before its first instruction.
    pub fn implants(&self) -> bool {
        self.implants
    }

    /// Requests loading the object into the command: this program, which has no loader. Only useful if the plan has it.
    pub fn implant_into(&mut self, program: &Path) {
        self.implants = self.plans(program);
    }

    /// Whether the command is to be followed: it begins with a program that can neither load the object nor ask.
    pub fn follows(&self) -> bool {
        self.follows && !self.implants
    }

    /// Whether it or one of its descendants is being followed.
    pub fn is_following(&self) -> bool {
        self.follower.as_ref().is_some_and(|follower| !follower.has_ended())
    }

    /// Sets the follower that meets what the command executes.
    pub fn follow(&mut self, follower: Follower) {
        self.follower = Some(follower);
    }

    /// Returns a function that loads the object into a program, for the thread that traces it.
    pub fn implanter(&self) -> impl Fn(u32) -> Result<(), ImplantError> + Send + 'static {
        let object = self.object();
        move |pid| implant::implant(pid, &object)
    }

    /// Loads the object into a program that [`Child::release_stopped`](crate::launch::Child::release_stopped) has stopped.
    pub fn implant(&self, pid: u32) -> Result<(), ImplantError> {
        implant::implant(pid, &self.object())
    }

    /// Returns the object's file.
    pub fn object(&self) -> PathBuf {
        self.directory.object()
    }

    /// Returns the path that the loader is told to load.
    pub fn preloaded(&self) -> PathBuf {
        self.directory.preloaded()
    }

    pub fn libraries(&self) -> &[PlannedLibrary] {
        &self.libraries
    }

    /// Returns the files whose functions `--op` names, with their places in the plan.
    pub fn named(&self) -> impl Iterator<Item = (usize, &PlannedLibrary)> {
        (SQLITE_LIBRARIES_MAX..).zip(&self.named)
    }

    /// Whether the plan contains that file.
    pub fn plans(&self, path: &Path) -> bool {
        let identity = planned::file_identity(path);
        let mut all = self.libraries.iter().chain(&self.named);
        identity.is_some_and(|id| all.any(|l| (l.library.dev, l.library.ino) == id))
    }

    /// Returns the place in the plan of the library in that file.
    pub fn library(&self, path: &Path) -> Option<usize> {
        let identity = planned::file_identity(path)?;
        self.libraries.iter().position(|l| (l.library.dev, l.library.ino) == identity)
    }

    pub fn status(&mut self, tgid: u32, library: usize) -> LibraryStatus {
        self.arenas.status(tgid, library)
    }

    /// Attaches the uprobes to the object. If that fails, the object is instructed to do nothing.
    pub(crate) fn attach(&mut self, ebpf: &mut Ebpf, uprobes: &mut Uprobes) -> Result<(), InsideError> {
        let attached = self.attach_object_probes(ebpf, uprobes);
        if attached.is_err() {
            self.stop_answering();
            self.directory.write_plan(Vec::new())?;
        }
        attached
    }

    fn attach_object_probes(&mut self, ebpf: &mut Ebpf, uprobes: &mut Uprobes) -> Result<(), InsideError> {
        let hooked = ebpf.take_map("inside_libraries").ok_or(InsideError::Build("the table of its libraries"))?;
        self.hooked = Some(HashMap::try_from(hooked).map_err(|e| InsideError::Attach(crate::error::chain(&e)))?);
        let map = ebpf.take_map("inside_threads").ok_or(InsideError::Build("the table of its threads"))?;
        let threads = match map {
            Map::LruHashMap(data) => HashMap::try_from(Map::LruHashMap(data)),
            other => HashMap::try_from(other),
        };
        self.threads = Some(threads.map_err(|e| InsideError::Attach(crate::error::chain(&e)))?);
        let object = self.object();
        for (program, function) in OBJECT_PROBES {
            let offset = sqlite::entry::find_entry(&object, function).map_err(|_| InsideError::Build(function))?;
            let attached = uprobes.attach(ebpf, &object, &[program], ProbePoint { offset, cookie: 0 });
            attached.map_err(|e| InsideError::Attach(e.why))?;
        }
        Ok(())
    }

    /// Returns how full the fullest ring is, from 0 to 1. Also opens the arenas of new processes.
    pub(crate) fn fill_ratio(&mut self) -> f64 {
        self.arenas.open_new();
        self.arenas.fill_ratio()
    }

    /// Returns what was recorded since, in time order, including losses.
    pub(crate) fn collect(&mut self) -> Vec<Event> {
        let threads = &self.threads;
        let process_of = |tid: u32| threads.as_ref().and_then(|known| known.get(&tid, 0).ok());
        self.arenas.open_new();
        self.arenas.collect(&process_of)
    }

    /// Whether any process is probed inside.
    pub(crate) fn is_used(&self) -> bool {
        self.arenas.any_hooked()
    }

    /// Returns the number of records so far that were lost or invalid.
    pub(crate) fn lost(&self) -> u64 {
        self.arenas.lost()
    }

    /// Returns the cost of recording a step, and the additional cost of a statement, as measured by the processes.
    pub(crate) fn costs(&mut self) -> Vec<(Activity, Price)> {
        let prices = self.arenas.prices();
        price::inside_costs(trap::price_of_batches(&mut prices.step), trap::price_of_batches(&mut prices.statement))
    }

    /// Ends the recording in all processes.
    pub(crate) fn close(&mut self) {
        self.arenas.close();
    }
}
