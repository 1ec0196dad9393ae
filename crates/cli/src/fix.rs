//! `fathom fix`: which remedies there are, what is put back at the end, and the blocks in which they are tried.

use crate::bench::{INTERRUPTED, measured};
use crate::{Usage, args, link, output};
use analysis::Rows;
use anyhow::{Context as _, Result, bail};
use device::knobs::{self, Kept, Knob};
use experiment::ab::contract::Outcome;
use experiment::ab::{self, AbRequest};
use experiment::fix::contract::{Fixed, NotTried};
use experiment::fix::remedies::{self, Durability, Machine, Remedy};
use experiment::fix::{Variants, copy_in, text};
use model::{Context, counted};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Where what is to be put back is noted.
fn notes() -> PathBuf {
    // SAFETY: it only reads this process's user.
    let uid = unsafe { libc::geteuid() };
    if uid == 0 { "/run/fathom".into() } else { std::env::temp_dir().join(format!("fathom-fix-{uid}")) }
}

pub fn run(args: &args::Fix) -> Result<ExitCode> {
    left_over()?;
    let mut machine = machine(args)?;
    if args.list {
        machine.schedulers = vec!["NAME".into()];
        return list(&remedies::all(&Machine {
            scratch: Some("MOUNT".into()),
            queue: Some("/sys/block/DISK/queue".into()),
            ..machine
        }));
    }
    let database = args
        .database
        .as_ref()
        .map(|path| path.canonicalize().with_context(|| path.display().to_string()))
        .transpose()?;
    let named = args.command.iter().any(|word| word.contains("{db}"));
    if database.is_some() != named {
        return Err(Usage(
            "--database FILE and {db} in CMD belong together: CMD must use the copy, not the database".into(),
        )
        .into());
    }
    let copy = database.as_ref().and_then(|path| copy_in(path, std::process::id()));
    let scratch = tempfile::Builder::new().prefix("fathom-fix-").tempdir().context("a folder for this run")?;
    let object = scratch.path().join("pragmas.so");
    fs::write(&object, workload::variant::PRAGMAS)?;
    let mut back = vec![Knob::Folder(scratch.path().into())];
    back.extend(copy.iter().map(|(folder, _)| Knob::Folder(folder.clone())));
    let mut kept = Kept::take(&notes(), back.clone())
        .with_context(|| format!("noting what is to be put back in {}", notes().display()))?;
    if let Some((folder, _)) = &copy {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let mut variants = Variants {
        fathom: std::env::current_exe().context("where this program is")?,
        command: &args.command,
        database: database.clone().zip(copy.map(|(_, copy)| copy)),
        object: object.clone(),
        prepare: args.prepare.as_deref(),
        ..Variants::default()
    };
    let findings = match args.names.is_empty() {
        true => diagnosed(&variants, scratch.path(), &mut machine, args.system)?,
        false => {
            if args.system {
                queue_of(&mut machine, None, database.as_deref());
            }
            Vec::new()
        }
    };
    let all = remedies::all(&machine);
    let wanted = match args.names.is_empty() {
        true => remedies::named(all, &findings),
        false => chosen(all, &args.names)?,
    };
    let (tried, not_tried) = possible(wanted, &variants, scratch.path())?;
    if tried.is_empty() {
        kept.put_back().map_err(|why| anyhow::anyhow!(why.join("; ")))?;
        return nothing(args, &findings, &not_tried);
    }
    let (files, mounts) = settings(&tried)?;
    if !files.is_empty() || !mounts.is_empty() {
        back.extend(files.iter().map(|(file, value)| Knob::File(file.clone(), value.clone())));
        back.extend(mounts.iter().map(|(folder, option)| Knob::Mount(folder.clone(), option.clone())));
        // The new notes replace the old ones; nothing of the machine is changed yet.
        std::mem::forget(std::mem::replace(&mut kept, Kept::take(&notes(), back)?));
    }
    (variants.machine, variants.mounts) = (&files, &mounts);
    let design = ab::design(&AbRequest {
        commands: variants.commands(&tried),
        prepare: Some(format!("{{{}}}", experiment::fix::VARIANT)),
        warmup: 1,
        blocks: args.blocks,
        budget: args.budget,
        precision: args.precision,
        seed: args.seed.unwrap_or_else(|| archive::unix_now_ns() % 1_000_000_000),
    })?;
    let measured = measured(&design, &args.output, args.quiet);
    let put_back = kept.put_back();
    let (results, tables) = measured?;
    let allowed = match args.allow {
        args::Allow::Same => Durability::Same,
        args::Allow::LastCommits => Durability::LastCommits,
        args::Allow::Corruption => Durability::Corruption,
    };
    let fixed = Fixed::new(&Outcome::new(&results), tried, not_tried, findings, allowed);
    output::text(&match args.json {
        true => {
            let mut value = serde_json::to_value(&fixed)?;
            value["archive"] = serde_json::json!(args.output);
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => text::text(&fixed),
    });
    tables?;
    if let Err(why) = put_back {
        bail!("not everything was put back: {}", why.join("; "));
    }
    if !results.complete() {
        eprintln!("fathom: interrupted; what was measured is kept: fathom bench show {}", output::word(&args.output));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    match (args.apply, fixed.best()) {
        (true, Some(best)) => apply(best, database.as_deref())?,
        (true, None) => eprintln!("fathom: --apply: there is nothing to set"),
        (false, _) => {}
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts back what a killed run left.
fn left_over() -> Result<()> {
    let (done, failed) = knobs::put_back_left_over(&notes()).with_context(|| notes().display().to_string())?;
    if !done.is_empty() {
        eprintln!("fathom: put back {} that a killed run had left", counted(done.len(), "setting"));
    }
    failed.iter().for_each(|why| eprintln!("fathom: left by a killed run: {}", analysis::text::shown(why)));
    Ok(())
}

fn list(remedies: &[Remedy]) -> Result<ExitCode> {
    for remedy in remedies {
        println!("{}", remedy.name);
        text::settings(remedy).iter().for_each(|setting| println!("  {setting}"));
        println!("  gives up: {}", remedy.gives_up);
    }
    Ok(ExitCode::SUCCESS)
}

/// What may be changed of this machine, the disk aside, which is not known yet.
fn machine(args: &args::Fix) -> Result<Machine> {
    let mut machine = Machine { scratch: args.scratch.clone(), ..Machine::default() };
    if let Some(folder) = &args.scratch {
        let there = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let mounted = there.lines().any(|line| line.split(' ').nth(1) == folder.to_str());
        if !mounted {
            return Err(Usage(format!("--scratch {}: no file system is mounted there", folder.display())).into());
        }
    }
    if args.system {
        let governors = fs::read_dir("/sys/devices/system/cpu").into_iter().flatten().flatten();
        machine.governors =
            governors.map(|cpu| cpu.path().join("cpufreq/scaling_governor")).filter(|file| file.exists()).collect();
    }
    Ok(machine)
}

/// The queue of the disk with that name, or of the one that a file is on.
fn queue_of(machine: &mut Machine, disk: Option<&str>, file: Option<&Path>) {
    let by_number = || {
        use std::os::unix::fs::MetadataExt;
        let dev = fs::metadata(file?).ok()?.dev();
        let (major, minor) = (libc::major(dev), libc::minor(dev));
        let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
        // A partition's queue is its disk's.
        [folder.join("queue"), folder.parent()?.join("queue")].into_iter().find(|queue| queue.exists())
    };
    let queue = disk.map(|disk| Path::new("/sys/block").join(disk).join("queue")).filter(|queue| queue.exists());
    machine.queue = queue.or_else(by_number);
    if let Some(queue) = &machine.queue {
        let all = fs::read_to_string(queue.join("scheduler")).unwrap_or_default();
        machine.schedulers = all.split_whitespace().filter(|name| !name.starts_with('[')).map(Into::into).collect();
    }
}

/// Records the command once, and says which findings name remedies.
fn diagnosed(variants: &Variants<'_>, folder: &Path, machine: &mut Machine, system: bool) -> Result<Vec<String>> {
    prepared(&variants.prepare(None))?;
    let archive = folder.join("diagnosis.fathom");
    let mut record = Command::new(&variants.fathom);
    record.args(["record", "--quiet", "--as-root", "--no-probe-cost", "-o"]).arg(&archive);
    let done = record.arg("--").args(variants.words()).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    let said = String::from_utf8_lossy(&done.stderr).trim().to_owned();
    if !archive.join("meta.json").exists() {
        bail!("{said}\nfathom: without a recording, name the remedies to try: --try NAME,… (`fathom fix --list`)");
    }
    if !done.status.success() {
        bail!("the command failed as it was recorded: {}: {said}", done.status);
    }
    let rows = Rows::load(&link::open(&archive, &Context::silent())?)?;
    if system {
        let disk = rows.disks.iter().find(|disk| disk.holds_files).map(|disk| disk.name.as_str());
        queue_of(machine, disk, None);
    }
    let mut codes: Vec<String> = Vec::new();
    for finding in analysis::explain::explain(&rows).findings {
        if finding.code != "T01" && !codes.contains(&finding.code) {
            codes.push(finding.code);
        }
    }
    Ok(codes)
}

fn prepared(line: &str) -> Result<()> {
    let done = Command::new("/bin/sh").args(["-c", line]).stdin(Stdio::null()).stdout(Stdio::null()).output()?;
    if !done.status.success() {
        bail!("{}", String::from_utf8_lossy(&done.stderr).trim().trim_start_matches("fathom: "));
    }
    Ok(())
}

fn chosen(all: Vec<Remedy>, names: &[String]) -> Result<Vec<Remedy>> {
    let one = |name: &String| {
        let found = all.iter().find(|remedy| remedy.name == *name).cloned();
        found.ok_or_else(|| {
            let known: Vec<&str> = all.iter().map(|remedy| remedy.name.as_str()).collect();
            Usage(format!("--try {name}: there is no such remedy here, but {}", known.join(", "))).into()
        })
    };
    names.iter().map(one).collect()
}

/// Those that can be tried, and why the others cannot.
fn possible(wanted: Vec<Remedy>, variants: &Variants<'_>, folder: &Path) -> Result<(Vec<Remedy>, Vec<NotTried>)> {
    let unreached = match wanted.iter().any(|remedy| remedy.connection.is_some()) {
        true => unreached(variants, folder)?,
        false => None,
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
            Some(why) => not_tried.push(NotTried { name: remedy.name, why }),
            None => tried.push(remedy),
        }
    }
    Ok((tried, not_tried))
}

/// Why the preloaded object does not reach the program's SQLite: it leaves a file where it does.
fn unreached(variants: &Variants<'_>, folder: &Path) -> Result<Option<String>> {
    if workload::variant::PRAGMAS.is_empty() {
        return Ok(Some("settings of connections are set on x86-64 only".into()));
    }
    prepared(&variants.prepare(None))?;
    let (words, seen) = (variants.words(), folder.join("seen"));
    let Some((program, rest)) = words.split_first() else { return Ok(None) };
    let mut once = Command::new(program);
    once.args(rest).env("LD_PRELOAD", &variants.object).env("FATHOM_PRAGMAS_SEEN", &seen);
    let done = once.stdin(Stdio::null()).stdout(Stdio::null()).output().with_context(|| program.clone())?;
    let linked = "the program has SQLite linked into it, or opens no database: its connections cannot be reached";
    Ok(match (done.status.success(), seen.exists()) {
        (true, true) => None,
        (_, false) => Some(linked.into()),
        (false, true) => Some(format!("the program fails with the preloaded object: {}", done.status)),
    })
}

/// Files of settings and mounts that the remedies change, with what they are now.
type Settings = Vec<(PathBuf, String)>;

fn settings(tried: &[Remedy]) -> Result<(Settings, Settings)> {
    let (mut files, mut mounts) = (Settings::new(), Settings::new());
    for remedy in tried {
        if let Some((file, _)) =
            remedy.machine.as_ref().filter(|(file, _)| !files.iter().any(|(known, _)| known == file))
        {
            files.push((file.clone(), knobs::value(file).with_context(|| file.display().to_string())?));
        }
        if let Some((folder, option)) = &remedy.mount
            && let Some(undo) = remedies::undo(option)
        {
            mounts.push((folder.clone(), undo.into()));
        }
    }
    Ok((files, mounts))
}

/// Nothing was tried: that is an answer, not a failure.
fn nothing(args: &args::Fix, findings: &[String], not_tried: &[NotTried]) -> Result<ExitCode> {
    if args.json {
        let value = serde_json::json!({
            "version": experiment::fix::contract::VERSION, "findings": findings, "tried": [], "not_tried": not_tried, "best": null
        });
        output::text(&(serde_json::to_string_pretty(&value)? + "\n"));
        return Ok(ExitCode::SUCCESS);
    }
    match findings {
        [] => println!("No finding names a remedy."),
        codes => println!("Findings: {}; none of their remedies can be tried here.", codes.join(", ")),
    }
    not_tried.iter().for_each(|one| println!("  {}: {}", one.name, one.why));
    Ok(ExitCode::SUCCESS)
}

/// Sets the best for good.
fn apply(best: &Remedy, database: Option<&Path>) -> Result<()> {
    if let (Some(sql), Some(database)) = (&best.persistent, database) {
        workload::variant::pragma(database, sql)?;
        eprintln!("fathom: set in {}: {sql}", database.display());
    }
    if let Some((file, value)) = &best.machine {
        workload::variant::set(file, value)?;
        eprintln!("fathom: set until the machine restarts: {} to {value}", file.display());
    }
    if let Some((folder, option)) = &best.mount {
        workload::variant::remount(folder, option)?;
        eprintln!("fathom: remounted {} with {option}, until it is unmounted", folder.display());
    }
    if let Some(sql) = &best.connection {
        eprintln!(
            "fathom: a connection's setting cannot be set from outside: let the program say {sql} after each open"
        );
    }
    Ok(())
}
