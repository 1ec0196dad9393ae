//! `fathom record`: starts the command and holds it, puts the probes on, stores what comes, and links it.

mod behind;
mod counted;
mod library;
mod log;
mod named;
mod surroundings;

use crate::progress::{self, DRAIN_EVERY};
use crate::{args, link};
use anyhow::{Context as _, Result, bail};
use archive::{Archive, Lock, Meta, Runs};
use capture::launch::{self, Child, LaunchError};
use capture::marks::Marks;
use capture::request::Function;
use capture::sqlite::find::{Finder, Search};
use capture::{Request, Scope, Session};
use library::{Identity, Probed};
use log::Log;
use model::event::Header;
use model::table::Coverage;
use model::{Context, Layer, counted};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use surroundings::Surroundings;
pub use surroundings::{boot, unix_ns};

/// Room for marks: 64 bytes each, used as they are written.
const MARKS: u64 = 1 << 20;

/// How long a command has to end after Ctrl-C, which its terminal sent to it as well.
const GRACE: Duration = Duration::from_secs(3);

/// What was recorded.
pub struct Recorded {
    /// Status of the command, 0 if there was none.
    pub status: i32,
    /// Records stored and lost.
    pub records: u64,
    /// Records lost.
    pub lost: u64,
    /// Operations found; `None` if the tables could not be made for want of room.
    pub operations: Option<u64>,
}

/// `fathom record`.
pub fn run(args: &args::Record) -> Result<ExitCode> {
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let done = match args.backend {
        args::Backend::None => untraced(args, &context),
        args::Backend::Attached => attached(args, &context),
        args::Backend::Ebpf => record(args, &context),
    };
    progress::clear(&context);
    let done = match done {
        Ok(done) => done,
        // A shell's own statuses for a command that is not there or cannot be run.
        Err(error) if let Some(code) = error.downcast_ref::<LaunchError>().map(LaunchError::exit_code) => {
            eprintln!("fathom: {error:#}");
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Err(error) => return Err(error),
    };
    if args.backend == args::Backend::Ebpf && !args.as_root {
        give_to_caller(&args.output)?;
    }
    if !args.quiet && args.backend == args::Backend::Ebpf {
        let operations = done.operations.map(|n| format!(", {}", counted(n as usize, "operation")));
        eprintln!(
            "{}: {}{}{}",
            args.output.display(),
            counted(done.records as usize, "event"),
            operations.as_deref().unwrap_or(", not linked"),
            if done.lost > 0 { format!(", {} lost", counted(done.lost as usize, "event")) } else { String::new() }
        );
        if operations.is_some() {
            eprintln!("next: fathom show {0}, or fathom report {0}", crate::say::word(&args.output));
        }
    }
    Ok(ExitCode::from(u8::try_from(done.status).unwrap_or(1)))
}

/// Starts the command just as for a recording and records nothing: the other arm of a comparison.
fn untraced(args: &args::Record, context: &Context) -> Result<Recorded> {
    let marks = Marks::create(MARKS)?;
    let Some(mut child) = start(args, &args.command, &marks)? else {
        args::usage_error("--backend none needs a command: -- CMD");
    };
    child.release()?;
    let mut end = End::new(args, context);
    while end.waits(Some(&mut child))? {
        std::thread::sleep(DRAIN_EVERY);
    }
    Ok(Recorded { status: end.status, records: 0, lost: 0, operations: None })
}

/// Puts the probes on as for a recording, with programs that return at once: what is left of their price then is that of
/// calling them.
fn attached(args: &args::Record, context: &Context) -> Result<Recorded> {
    let Watch { mut child, mut session, .. } = watch(args)?;
    warn_of_refusals(session.coverage());
    if !args.quiet {
        let probes = session.coverage().iter().filter(|row| row.attached).count();
        eprintln!("fathom: {} attached; nothing is recorded", counted(probes, "probe"));
    }
    if let Some(child) = &mut child {
        session.track_child(child.pid())?;
        child.release()?;
    }
    let mut end = End::new(args, context);
    while end.waits(child.as_mut())? {
        if session.wait(DRAIN_EVERY) {
            session.drain(&mut |_| ());
        }
    }
    session.finish(&mut |_| ());
    Ok(Recorded { status: end.status, records: 0, lost: 0, operations: None })
}

/// The command, held before its first instruction, and everything that watches it.
struct Watch {
    marks: Marks,
    child: Option<Child>,
    session: Session,
    libraries: Libraries,
}

fn watch(args: &args::Record) -> Result<Watch> {
    let request = request(args)?;
    let marks = Marks::create(MARKS)?;
    // Before the probes: their hundred files would make the child's table of open files a large one, and the untraced arm of
    // a comparison has a small one.
    let child = start(args, &args.command, &marks)?;
    let mut session = Session::start(&request)?;
    for function in &request.functions {
        let probe = format!("{}:{}", function.path.display(), function.name);
        if let Some(row) = session.coverage().iter().find(|row| row.probe == probe && !row.attached) {
            bail!("--op {probe}: {}", named::why(&function.path, &function.name, &row.how));
        }
        if !args.quiet && named::throws(&function.path) {
            eprintln!(
                "fathom: {} may throw exceptions or panic: one that leaves {} ends the program while it is recorded, since the kernel \
                 hides the way back from unwinders",
                function.path.display(),
                function.name
            );
        }
    }
    let mut libraries = Libraries {
        finder: Finder::new(std::env::var_os("LD_LIBRARY_PATH").as_deref()),
        blind: Vec::new(),
        probed: Vec::new(),
    };
    libraries.add(&mut session, |finder| finder.system());
    libraries.known_processes(&mut session, args);
    if let Some(first) = args.command.first() {
        let program = launch::resolve(first, std::env::var_os("PATH").as_deref())?;
        libraries.add(&mut session, |finder| finder.command(&program, std::env::var_os("PATH").as_deref()));
    }
    Ok(Watch { marks, child, session, libraries })
}

/// Records, and links what was recorded.
pub fn record(args: &args::Record, context: &Context) -> Result<Recorded> {
    // Again when it is made; asked now because probes take a second to put on and to take off.
    Archive::has_room(&args.output, true)?;
    let Watch { marks, mut child, mut session, mut libraries } = watch(args)?;
    let mut meta = Meta { boot: boot(), ..Meta::new("trace", unix_ns(), stored_command(args)) };
    let kept = keep_old(&args.output, args.quiet)?;
    Archive::create(&args.output, &meta, true)?;
    // Until the tables are made.
    let _lock = Lock::take(&args.output)?;
    let wanted = args.comm.as_deref().map(|name| capture::cut_comm(name).to_string());
    let mut log = Log::create(&args.output, args.max_size, args.keep_sql, wanted)?;
    let mut around = Surroundings::collect(&args.output, context);
    if args.command.is_empty() {
        around.say_asked(&asked(args));
    }
    around.known.functions = args.functions.iter().map(|(_, name)| name.clone()).collect();

    // At once, so that a recorder that is killed leaves an archive which can be linked.
    around.known.store(&mut meta)?;
    meta.write(&args.output)?;
    // Not before: each writing of it makes it a new file.
    around.writes(&args.output.join("meta.json"));
    log.begins_at(workload::clock::now_ns());
    around.count_before();
    args.pid.iter().copied().filter(|pid| capture::is_of_the_kernel(*pid)).for_each(warn_of_the_kernel);
    if let Some(child) = &mut child {
        session.track_child(child.pid())?;
        child.release().inspect_err(|_| put_back(&args.output, kept.as_deref()))?;
    }
    let mut end = End::new(args, context);
    drain_to_the_end(&mut end, &mut session, &mut libraries, &mut log, child.as_mut())?;

    around.count_after();
    // Taking so many probes off takes a while, in which some see what others do not see any more.
    log.ends_at(workload::clock::now_ns());
    let mut finished = session.finish(&mut |record| log.put(record));
    // What was lost before and after the window would not have been stored.
    finished.lost = finished.lost.saturating_sub(log.lost_outside);
    progress::clear(context);
    warn_of_refusals(&finished.coverage);
    if let Some(child) = &mut child
        && log.ended()
    {
        // A log that is full ends the recording, not the command.
        while end.waits(Some(child))? {
            std::thread::sleep(DRAIN_EVERY);
        }
    }
    let marked = marks.read()?;
    marked.events.iter().for_each(|event| log.put_event(event));
    for tgid in log.nameless().collect::<Vec<_>>() {
        capture::name_of(tgid).iter().for_each(|event| log.put_event(event));
    }
    let refused = log.finish()?;
    around.known.stored = Some(log.records);
    progress::clear(context);
    if refused > 0 {
        // What is lost lies within the recording: what came after it was not to be stored.
        let (from_ns, to_ns) = finished.window_ns;
        let since_ns = log.full_since_ns.clamp(from_ns, to_ns.max(from_ns));
        around.known.no_room = Some((since_ns, to_ns.max(from_ns), refused));
    }
    if let Some(why) = &log.full {
        eprintln!("fathom: the recording ended early: {why}");
    }
    if let Some(name) = args.comm.as_ref().filter(|_| !log.found_wanted) {
        eprintln!(
            "fathom: no process named {name} was there or began; what is recorded are others' device commands. A name is \
             what `ps -o comm` shows, at most 15 bytes"
        );
    }
    around.say_sqlite(log.ran().version(&libraries.probed), log.pragmas(), log.databases());
    around.finish(&finished, log.outside, &libraries.blind, &log.file_systems());
    around.known.store(&mut meta)?;
    meta.complete = log.full.is_none();
    meta.write(&args.output).with_context(|| match archive::log::path(&args.output).is_file() {
        true => "the events are kept; `fathom link` can make the tables where there is room".to_string(),
        false => format!("{} was removed while it was being written: what was recorded is gone", args.output.display()),
    })?;
    let operations = match link::link(&args.output, context) {
        Ok(linked) => Some(linked.operations),
        Err(error)
            if log.full.is_some()
                || error.downcast_ref::<recorder::Error>().is_some_and(recorder::Error::lacks_room) =>
        {
            eprintln!("fathom: {}", crate::sentence(&error));
            eprintln!(
                "fathom: the events are kept, but their tables find no room here: copy {} to a roomier disk and run `fathom link` on it",
                args.output.display()
            );
            None
        }
        Err(error) => return Err(error),
    };
    Ok(Recorded { status: end.status, records: log.records, lost: finished.lost, operations })
}

/// What the kernel refused though it has it: said at once, since a layer that nobody sees looks like one that did nothing.
fn warn_of_refusals(coverage: &[Coverage]) {
    let refused: Vec<&Coverage> =
        coverage.iter().filter(|row| !row.attached && row.how.contains("Permission denied")).collect();
    if let Some(first) = refused.first() {
        eprintln!(
            "fathom: the kernel refused {} probes, such as {} ({}); `fathom show` lists them under Probes",
            refused.len(),
            first.probe,
            first.how
        );
    }
}

/// What looks like a recording that saw nothing.
fn warn_of_the_kernel(pid: u32) {
    eprintln!(
        "fathom: {} is a thread of the kernel: it makes no system calls and runs no statements, and what it writes it \
         mostly writes for others. Record who it works for, or --all",
        process(pid)
    );
}

fn process(pid: u32) -> String {
    capture::comm_of(pid).map_or_else(|| format!("process {pid}"), |name| format!("process {pid} ({name})"))
}

/// What was asked for, in words: the recording's title if there is no command.
fn asked(args: &args::Record) -> String {
    match &args.comm {
        _ if !args.pid.is_empty() => args.pid.iter().map(|pid| process(*pid)).collect::<Vec<_>>().join(", "),
        Some(name) => format!("processes named {name}"),
        None => "every process".into(),
    }
}

/// The command as it is stored. A word with a space or a quote in it is SQL or a script more often than not, and what the
/// user typed there is as private as a statement's literals.
fn stored_command(args: &args::Record) -> Vec<String> {
    let store = |word: &OsString| {
        let word = word.to_string_lossy();
        let looks_like_sql = word.contains(|c: char| c.is_whitespace() || c == '\'' || c == '"');
        if args.keep_sql || !looks_like_sql { word.into_owned() } else { analysis::sql::normalise(&word) }
    };
    args.command.iter().map(store).collect()
}

/// Empties the ring by the clock until the recording is to end.
fn drain_to_the_end(
    end: &mut End,
    session: &mut Session,
    libraries: &mut Libraries,
    log: &mut Log,
    mut child: Option<&mut Child>,
) -> Result<()> {
    let mut synced = Instant::now();
    let code_mapped = model::event::File::INFO.kind;
    while end.waits(child.as_deref_mut())? && !log.ended() {
        if !session.wait(DRAIN_EVERY) {
            continue;
        }
        let mut mapped = Vec::new();
        session.drain(&mut |record| {
            if let Some(header) = Header::decode(record).filter(|h| h.kind == code_mapped) {
                mapped.push(header.tgid);
            }
            log.put(record);
        });
        mapped.sort_unstable();
        mapped.dedup();
        // Of processes outside of a container that Fathom runs in, nothing can be read.
        for tgid in mapped.into_iter().filter_map(capture::in_proc) {
            libraries.add(session, |finder| finder.process(tgid));
        }
        if synced.elapsed() > Duration::from_secs(1) {
            log.sync();
            synced = Instant::now();
            end.context.progress(&format!("recording: {} events (Ctrl-C ends it)", log.records), 0, 0);
        }
    }
    Ok(())
}

/// When a recording ends: with its command, with its time, or when somebody says so.
struct End<'a> {
    context: &'a Context,
    deadline: Option<Instant>,
    asked: Option<Instant>,
    status: i32,
}

impl<'a> End<'a> {
    fn new(args: &args::Record, context: &'a Context) -> Self {
        Self { context, deadline: args.duration.map(|d| Instant::now() + d), asked: None, status: 0 }
    }

    /// Whether it goes on.
    fn waits(&mut self, child: Option<&mut Child>) -> Result<bool> {
        let over = self.deadline.is_some_and(|d| Instant::now() >= d);
        let Some(child) = child else { return Ok(!over && !self.context.cancelled()) };
        if let Some(exit) = child.try_wait()? {
            self.status = exit.status();
            return Ok(false);
        }
        if over && self.asked.is_none() {
            child.signal(libc::SIGTERM)?;
        }
        if over || self.context.cancelled() {
            let asked = *self.asked.get_or_insert_with(Instant::now);
            if asked.elapsed() > GRACE {
                eprintln!("fathom: the command goes on; its recording ends here");
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Which files with SQLite in them are probed.
struct Libraries {
    finder: Finder,
    blind: Vec<Coverage>,
    /// The SQLites found.
    probed: Vec<Probed>,
}

impl Libraries {
    fn add(&mut self, session: &mut Session, search: impl FnOnce(&mut Finder) -> Search) {
        let search = search(&mut self.finder);
        for found in search.found {
            session.attach_sqlite(&found.path, &found.symbols);
            let version = found.symbols.version.clone().unwrap_or_else(|| "unknown".into());
            let path = found.path.display().to_string();
            self.probed.push(Probed { file: Identity::of(&path), path, version });
        }
        self.blind.extend(search.absent.into_iter().map(|(path, why)| Coverage {
            layer: Layer::Database,
            probe: path.display().to_string(),
            attached: false,
            how: why.to_string(),
            hits: None,
            misses: None,
            price_ns: None,
        }));
    }

    fn known_processes(&mut self, session: &mut Session, args: &args::Record) {
        if args.all || args.comm.is_some() {
            self.add(session, Finder::every_process);
        }
        for pid in &args.pid {
            self.add(session, |finder| finder.process(*pid));
        }
    }
}

fn request(args: &args::Record) -> Result<Request> {
    let scope = if !args.command.is_empty() {
        Scope::Command
    } else if !args.pid.is_empty() {
        Scope::Pids(args.pid.clone())
    } else if let Some(name) = &args.comm {
        Scope::Comm(name.clone())
    } else if args.all {
        Scope::All
    } else {
        args::usage_error("say what to record: a command (-- CMD), --pid N, --comm NAME or --all");
    };
    let mut request = Request::new(scope);
    request.also_all = args.all;
    request.hollow = args.backend == args::Backend::Attached;
    request.price = !args.no_probe_cost && !request.hollow;
    for (binary, name) in &args.functions {
        let (path, libraries) = (std::env::var_os("PATH"), std::env::var_os("LD_LIBRARY_PATH"));
        let path = named::file(binary, path.as_deref(), libraries.as_deref())
            .with_context(|| format!("--op {}:{name}", binary.display()))?;
        request.functions.push(Function { path, name: name.clone(), offset: None });
    }
    Ok(request)
}

/// Makes the child that becomes the command, as who called sudo.
fn start(args: &args::Record, command: &[OsString], marks: &Marks) -> Result<Option<Child>> {
    if command.is_empty() {
        return Ok(None);
    }
    let mut plan = launch::Command::new(command)?.marks(marks.fd());
    if !args.as_root
        && let Some(user) = launch::User::caller()?
    {
        plan = plan.as_user(user);
    }
    Ok(Some(plan.spawn()?))
}

/// A benchmark's log without a replicate is smaller.
const SMALL_LOG: u64 = 1 << 20;

/// An archive of that name stays, as `NAME.fathom.old`; what is no archive is not touched (`Archive::create` says so).
pub fn keep_old(output: &Path, quiet: bool) -> Result<Option<PathBuf>> {
    Lock::is_free(output)?;
    if Meta::read(output).is_err() {
        return Ok(None);
    }
    // What holds nothing that was measured shall not push out what does.
    let small = std::fs::metadata(archive::runs::path(output)).is_ok_and(|log| log.len() < SMALL_LOG);
    if small && Runs::read(output).is_ok_and(|runs| runs.runs.is_empty()) {
        std::fs::remove_dir_all(output)
            .with_context(|| format!("removing {}, which holds no result", output.display()))?;
        return Ok(None);
    }
    let mut old = output.as_os_str().to_owned();
    old.push(".old");
    let old = Path::new(&old);
    Lock::is_free(old)?;
    let replaced = Meta::read(old).is_ok();
    if replaced {
        std::fs::remove_dir_all(old).with_context(|| format!("removing {}", old.display()))?;
    }
    std::fs::rename(output, old).with_context(|| format!("keeping {} as {}", output.display(), old.display()))?;
    if !quiet {
        let gone = if replaced { ", in place of an older one, which is gone" } else { "" };
        eprintln!("fathom: what was there is now {}{gone} (one is kept)", old.display());
    }
    Ok(Some(old.to_path_buf()))
}

/// Removes the archive of a command that never ran, and puts the one back that stood there.
fn put_back(output: &Path, kept: Option<&Path>) {
    // It holds nothing but its own empty log; a failure leaves both, under their two names.
    if Meta::read(output).is_ok() && std::fs::remove_dir_all(output).is_ok() {
        let _ = kept.map(|kept| std::fs::rename(kept, output));
    }
}

/// Gives what was made to who called sudo, so that it can be removed without it.
pub fn give_to_caller(path: &Path) -> Result<()> {
    let Some(user) = launch::User::caller()? else { return Ok(()) };
    let mut all = vec![path.to_path_buf()];
    while let Some(path) = all.pop() {
        // A link that somebody put there is given away itself, never what it leads to.
        if path.symlink_metadata()?.is_dir() {
            all.extend(std::fs::read_dir(&path)?.filter_map(|e| Some(e.ok()?.path())));
        }
        std::os::unix::fs::lchown(&path, Some(user.uid), Some(user.gid))
            .with_context(|| format!("giving {} to the user who called", path.display()))?;
    }
    Ok(())
}
