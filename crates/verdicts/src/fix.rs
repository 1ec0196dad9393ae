//! Remedies for a command: which ones apply here, what is restored at the end, and the variants that are compared with the unchanged
//! command.
//!
//! A [`Trial`] notes what it is going to change before it changes it, so that the next one can restore what a killed one left.

use analysis::Rows;
use device::knobs::{self, Knob, SavedSettings};
use experiment::Design;
use experiment::ab::{self, AbRequest};
use experiment::fix::contract::UntriedRemedy;
use experiment::fix::remedies::{self, Database as Known, Machine, Remedy};
use experiment::fix::{Variants, copy_paths};
use model::messages::strip_program_name;
use model::text::ShownPath as _;
use model::{Context, FindingCode};
use scores::measure::error::IoContext as _;
use scores::measure::supervised::output;
use scores::measure::{Error, Notice, Notify, Open, Result};
use sqlite::DatabaseHeader;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The finding that reports only how long something took: no remedy follows from it.
const NO_REMEDY_CODE: FindingCode = FindingCode::T01;

/// A request to try remedies.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The command's arguments; `{db}` is the copy of the database.
    pub command: &'a [String],
    pub database: Option<&'a Path>,
    /// Command to run before each arm.
    pub prepare: Option<&'a str>,
    /// Remedies by name; if there are none, those of the findings.
    pub names: &'a [String],
    /// Whether settings of the machine are tried.
    pub system: bool,
    /// A file system whose mount options are tried.
    pub scratch: Option<&'a Path>,
    /// Exact number of blocks.
    pub blocks: Option<u64>,
    /// Time after which no further block is started.
    pub budget: Duration,
    /// Half-width of the intervals at which the trial ends.
    pub precision: f64,
    /// Seed of the order.
    pub seed: Option<u64>,
}

/// Remedies to be tried. Their changes are undone when the trial is ended or dropped.
pub struct Trial {
    /// Their blocks, if there is anything to try.
    pub design: Option<Design>,
    /// Remedies that are tried.
    pub tried: Vec<Remedy>,
    /// Remedies that cannot be tried, and why.
    pub not_tried: Vec<UntriedRemedy>,
    /// Findings that have remedies.
    pub findings: Vec<FindingCode>,
    database: Option<PathBuf>,
    kept: SavedSettings,
    _scratch: tempfile::TempDir,
}

/// Returns the directory for notes on what to restore.
fn notes_directory() -> PathBuf {
    // SAFETY: it only reads this process's user.
    let uid = unsafe { libc::geteuid() };
    if uid == 0 { "/run/fathom".into() } else { std::env::temp_dir().join(format!("fathom-fix-{uid}")) }
}

/// Restores what a killed run left.
pub fn put_back_left_over(notify: Notify<'_>) -> Result<()> {
    let (done, failed) = knobs::restore_left_over(&notes_directory()).doing(notes_directory().shown().to_string())?;
    if !done.is_empty() {
        notify(Notice::PutBack(done.len()));
    }
    failed.into_iter().for_each(|why| notify(Notice::NotPutBack(why.to_string())));
    Ok(())
}

/// Returns all remedies, those of the machine with placeholders for its parts.
pub fn list(request: &Request<'_>) -> Result<Vec<Remedy>> {
    Ok(remedies::all(&Machine {
        scratch: Some("MOUNT".into()),
        queue: Some("/sys/block/DISK/queue".into()),
        schedulers: vec!["NAME".into()],
        ..changeable_machine(request)?
    }))
}

/// Returns what may be changed on this machine, except for the disk, which is not known yet.
fn changeable_machine(request: &Request<'_>) -> Result<Machine> {
    let mut machine = Machine { scratch: request.scratch.map(Into::into), ..Machine::default() };
    if let Some(directory) = request.scratch {
        let there = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = there.lines().any(|line| line.split(' ').nth(1) == directory.to_str());
        if !mounted {
            let what = format!("--scratch {}: no file system is mounted there", directory.shown());
            return Err(Error::Usage(what));
        }
    }
    if request.system {
        let governors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        machine.governors =
            governors.map(|cpu| cpu.path().join("cpufreq/scaling_governor")).filter(|file| file.exists()).collect();
    }
    Ok(machine)
}

/// Determines what to try, without changing anything yet.
///
/// # Errors
/// The request is invalid, the command fails, or nothing can be recorded; or `context` was cancelled: everything is restored then.
pub fn prepare(request: &Request<'_>, context: &Context, open: Open<'_>) -> Result<Trial> {
    let mut machine = changeable_machine(request)?;
    let canonical = |path: &Path| path.canonicalize().doing(format!("--database {}", path.shown()));
    let database = request.database.map(canonical).transpose()?;
    let named = request.command.iter().any(|word| word.contains("{db}"));
    if database.is_some() != named {
        return Err(Error::Usage(
            "--database FILE and {db} in CMD must be given together: CMD must use the copy, not the database".into(),
        ));
    }
    let copy = database.as_ref().and_then(|path| copy_paths(path, std::process::id()));
    let scratch = tempfile::Builder::new().prefix("fathom-fix-").tempdir().doing("making a directory for this run")?;
    let object = scratch.path().join("pragmas.so");
    fs::write(&object, workload::variant::PRAGMAS_OBJECT).doing(object.shown().to_string())?;
    let mut back = vec![Knob::Directory(scratch.path().into())];
    back.extend(copy.iter().map(|(directory, _)| Knob::Directory(directory.clone())));
    let noted = || format!("noting what is to be put back in {}", notes_directory().shown());
    let mut kept = SavedSettings::save(&notes_directory(), back.clone()).doing(noted())?;
    if let Some((directory, _)) = &copy {
        fs::create_dir_all(directory).doing(directory.shown().to_string())?;
    }
    let mut variants = Variants {
        fathom: std::env::current_exe().doing("cannot find Fathom's own binary")?,
        command: request.command,
        database: database.clone().zip(copy.map(|(_, copy)| copy)),
        object,
        prepare: request.prepare,
        ..Variants::default()
    };
    let mut known = Known { wal: database.as_deref().is_some_and(has_wal), spans_databases: false };
    let findings = if request.names.is_empty() {
        let (findings, spans) = diagnose(&variants, scratch.path(), &mut machine, request.system, context, open)?;
        known.spans_databases = spans;
        findings
    } else {
        if request.system {
            queue_of(&mut machine, None, database.as_deref());
        }
        Vec::new()
    };
    let all = remedies::adapt_to_database(remedies::all(&machine), known);
    let wanted = if request.names.is_empty() {
        remedies::for_findings(all, &findings)
    } else {
        choose_remedies(all, request.names)?
    };
    let (tried, not_tried) = filter_possible(wanted, &variants, scratch.path(), context)?;
    let mut design = None;
    if !tried.is_empty() {
        let (files, mounts) = current_settings(&tried)?;
        if !files.is_empty() || !mounts.is_empty() {
            back.extend(files.iter().map(|(file, value)| Knob::File(file.clone(), value.clone())));
            back.extend(mounts.iter().map(|(directory, option)| Knob::Mount(directory.clone(), option.clone())));
            // The new notes replace the old ones; nothing on the machine is changed yet.
            std::mem::forget(std::mem::replace(
                &mut kept,
                SavedSettings::save(&notes_directory(), back).doing(noted())?,
            ));
        }
        (variants.machine, variants.mounts) = (&files, &mounts);
        let ab_request = AbRequest {
            commands: variants.commands(&tried),
            prepare: Some(format!("{{{}}}", experiment::fix::PREPARE_VARIABLE)),
            warmup: 1,
            blocks: request.blocks,
            budget: request.budget,
            precision: request.precision,
            seed: request.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000),
        };
        design = Some(Design { name: experiment::fix::DESIGN_NAME.into(), ..ab::design(&ab_request)? });
    }
    Ok(Trial { design, tried, not_tried, findings, database, kept, _scratch: scratch })
}

impl Trial {
    /// Restores everything.
    pub fn end(self) -> Result<()> {
        self.kept.restore().map_err(Error::NotPutBack)
    }

    /// Returns the database's absolute path.
    pub fn database(&self) -> Option<PathBuf> {
        self.database.clone()
    }
}

/// Finds the queue of the disk with that name, or of the disk that holds a file.
fn queue_of(machine: &mut Machine, disk: Option<&str>, file: Option<&Path>) {
    let by_number = || {
        use std::os::unix::fs::MetadataExt;
        let dev = fs::metadata(file?).ok()?.dev();
        let (major, minor) = (libc::major(dev), libc::minor(dev));
        let directory = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // A partition's queue is its disk's.
        [directory.join("queue"), directory.parent()?.join("queue")].into_iter().find(|queue| queue.exists())
    };
    let queue = disk.map(|disk| Path::new("/sys/block").join(disk).join("queue")).filter(|queue| queue.exists());
    machine.queue = queue.or_else(by_number);
    if let Some(queue) = &machine.queue {
        let all = fs::read_to_string(queue.join("scheduler")).unwrap_or_default();
        machine.schedulers = all.split_whitespace().filter(|name| !name.starts_with('[')).map(Into::into).collect();
    }
}

/// Whether a database is in WAL mode, by its header.
fn has_wal(database: &Path) -> bool {
    let mut head = Vec::new();
    let read = fs::File::open(database).and_then(|file| file.take(DatabaseHeader::SIZE as u64).read_to_end(&mut head));
    read.is_ok() && DatabaseHeader::parse(&head).is_some_and(|header| header.wal)
}

/// Records the command once; returns which findings have remedies, and whether its transactions span several databases.
fn diagnose(
    variants: &Variants<'_>,
    directory: &Path,
    machine: &mut Machine,
    system: bool,
    context: &Context,
    open: Open<'_>,
) -> Result<(Vec<FindingCode>, bool)> {
    const NO_RECORDING_REMEDY: &str =
        "without a recording, name the remedies to try: --try NAME,… (`fathom fix --list`)";
    run_shell(&variants.prepare(None), context)?;
    let archive = directory.join("diagnosis.fathom");
    let mut record = Command::new(&variants.fathom);
    record.args(["record", "--quiet", "--as-root", "--no-probe-cost", "-o"]).arg(&archive);
    record.arg("--").args(variants.words()).stdin(Stdio::null());
    let done = output(&mut record, context, || "starting `fathom record`".into())?;
    let said = read_messages(&done.stderr);
    if !archive.join("meta.json").exists() {
        return Err(Error::NotRecorded { why: said, remedy: NO_RECORDING_REMEDY });
    }
    if !done.status.success() {
        let how = if said.is_empty() { done.status.to_string() } else { format!("{}: {said}", done.status) };
        return Err(Error::Command { what: "the command, as it was recorded,".into(), how });
    }
    let rows = Rows::load(&open(&archive).map_err(Error::Open)?)?;
    if system {
        let disk = rows.disks.iter().find(|disk| disk.holds_files).map(|disk| disk.name.as_str());
        queue_of(machine, disk, None);
    }
    let mut codes: Vec<FindingCode> = Vec::new();
    for finding in crate::explain::explain(&rows).findings {
        if finding.code != NO_REMEDY_CODE && !codes.contains(&finding.code) {
            codes.push(finding.code);
        }
    }
    Ok((codes, crate::explain::spans_databases(&rows)))
}

/// Returns the messages of a process of ours, without its program name, which this one adds to its own errors.
fn read_messages(stderr: &[u8]) -> String {
    let said = String::from_utf8_lossy(stderr);
    let lines = said.trim().lines().map(strip_program_name);
    lines.collect::<Vec<_>>().join("\n")
}

fn run_shell(line: &str, context: &Context) -> Result<()> {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", line]).stdin(Stdio::null());
    let done = output(&mut command, context, || "starting /bin/sh".into())?;
    if !done.status.success() {
        return Err(Error::Refused(read_messages(&done.stderr)));
    }
    Ok(())
}

fn choose_remedies(all: Vec<Remedy>, names: &[String]) -> Result<Vec<Remedy>> {
    let one = |name: &String| {
        let found = all.iter().find(|remedy| remedy.name == *name).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|remedy| remedy.name.as_str()).collect();
            Error::Usage(format!("--try {name}: there is no such remedy here; expected one of {}", known.join(", ")))
        })
    };
    names.iter().map(one).collect()
}

/// Returns the remedies that can be tried, and why the others cannot.
fn filter_possible(
    wanted: Vec<Remedy>,
    variants: &Variants<'_>,
    directory: &Path,
    context: &Context,
) -> Result<(Vec<Remedy>, Vec<UntriedRemedy>)> {
    let unreached = if wanted.iter().any(|remedy| remedy.connection.is_some()) {
        why_unreached(variants, directory, context)?
    } else {
        None
    };
    let (mut tried, mut not_tried) = (Vec::new(), Vec::new());
    for remedy in wanted {
        let why = if remedy.persistent.is_some() && variants.database.is_none() {
            Some("it is a setting of the database: give --database FILE, and {db} in CMD".to_owned())
        } else if remedy.connection.is_some() {
            unreached.clone()
        } else {
            None
        };
        match why {
            Some(why) => not_tried.push(UntriedRemedy { name: remedy.name, why }),
            None => tried.push(remedy),
        }
    }
    Ok((tried, not_tried))
}

/// Returns why the preloaded object does not reach the program's SQLite: it creates a file where it does.
fn why_unreached(variants: &Variants<'_>, directory: &Path, context: &Context) -> Result<Option<String>> {
    if workload::variant::PRAGMAS_OBJECT.is_empty() {
        return Ok(Some("settings of connections are set on x86-64 only".into()));
    }
    run_shell(&variants.prepare(None), context)?;
    let (words, seen) = (variants.words(), directory.join("seen"));
    let Some((program, rest)) = words.split_first() else { return Ok(None) };
    let mut once = Command::new(program);
    once.args(rest).env("LD_PRELOAD", &variants.object).env("FATHOM_PRAGMAS_SEEN", &seen);
    let done = output(once.stdin(Stdio::null()), context, || program.clone())?;
    let linked = "the program has SQLite linked into it, or opens no database: its connections cannot be reached";
    Ok(match (done.status.success(), seen.exists()) {
        (true, true) => None,
        (_, false) => Some(linked.into()),
        (false, true) => Some(format!("the program fails with the preloaded object: {}", done.status)),
    })
}

/// Files of settings and mounts that the remedies change, with their current values.
type Settings = Vec<(PathBuf, String)>;

fn current_settings(tried: &[Remedy]) -> Result<(Settings, Settings)> {
    let (mut files, mut mounts) = (Settings::new(), Settings::new());
    for remedy in tried {
        if let Some((file, _)) =
            remedy.machine.as_ref().filter(|(file, _)| !files.iter().any(|(known, _)| known == file))
        {
            files.push((file.clone(), knobs::selected_value(file).doing(file.shown().to_string())?));
        }
        if let Some((directory, option)) = &remedy.mount
            && let Some(undo) = remedies::undo_option(option)
        {
            mounts.push((directory.clone(), undo.into()));
        }
    }
    Ok((files, mounts))
}

/// Applies the best remedy permanently; returns what was set, in sentences.
pub fn apply(best: &Remedy, database: Option<&Path>) -> Result<Vec<String>> {
    let mut done = Vec::new();
    if let (Some(sql), Some(database)) = (&best.persistent, database) {
        workload::variant::apply_pragmas(database, sql)?;
        done.push(format!("set in {}: {sql}", database.shown()));
    }
    if let Some((file, value)) = &best.machine {
        workload::variant::write_setting(file, value)?;
        done.push(format!("set until the machine restarts: {} to {value}", file.shown()));
    }
    if let Some((directory, option)) = &best.mount {
        workload::variant::remount(directory, option)?;
        done.push(format!("remounted {} with {option}, until it is unmounted", directory.shown()));
    }
    if let Some(sql) = &best.connection {
        done.push(format!(
            "a connection's setting cannot be set from outside: have the program execute {sql} after each open"
        ));
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// This program shows the recorder's error and puts its own name in front of it.
    #[test]
    fn error_of_an_own_process_loses_the_program_name() {
        assert_eq!(
            read_messages(b"fathom: the kernel refuses\nfathom: see the guide\n"),
            "the kernel refuses\nsee the guide"
        );
        let whole = Error::NotRecorded { why: read_messages(b"fathom: no BTF\n"), remedy: "name them" }.to_string();
        assert_eq!(whole, "no BTF\nname them");
    }

    #[test]
    fn unknown_remedy_is_a_usage_error_with_the_known_names() {
        let all = remedies::all(&Machine::default());
        let first = all[0].name.clone();
        assert_eq!(choose_remedies(all.clone(), std::slice::from_ref(&first)).unwrap()[0].name, first);
        let refused = choose_remedies(all, &["x".into()]);
        assert!(matches!(&refused, Err(Error::Usage(why)) if why.contains(&first)), "{refused:?}");
    }
}
