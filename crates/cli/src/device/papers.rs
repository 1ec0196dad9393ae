//! `fathom papers --device`: the papers' figures on this machine and on a device, in one go, and what becomes of the papers' claims that
//! compare the two. Both are measured with the same cells at the same time; then 1,000 INSERTs are recorded on each, with the journal
//! mode that its own system comes with, as the papers ran them.

use super::bench::named;
use super::info;
use super::inserts::{self, Load, Outcome};
use crate::args::{self, Papers, Which};
use crate::bench::{INTERRUPTED, load, run as measure};
use crate::{Usage, output};
use analysis::papers::both::{self, Machine};
use analysis::papers::claims;
use analysis::papers::list::{self, List, Listed};
use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use device::remote::DeviceAddress;
use model::Environment;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The workloads that a host and one device run alike.
const BOTH: [&str; 9] = ["linpack", "scimark", "himeno", "http", "draw", "seq", "file", "sqlite", "random"];
/// What is recorded: INSERTs and full scans; with --quick a tenth.
const LOAD: (u64, u64) = (1000, 100);
const TENTH: u64 = 10;
/// The version of `--json`.
const VERSION: u32 = 1;

pub fn run(args: &Papers, place: &DeviceAddress, all: &List, wanted: &[&Listed]) -> Result<ExitCode> {
    if matches!(place, DeviceAddress::Local) {
        return Err(Usage("--device local is this machine; `fathom papers` makes its figures".into()).into());
    }
    let folders = folders(args)?;
    // Asked first: a device that is not there is reported before anything is measured.
    let facts = info::ask(&Which { device: place.clone(), binary: args.beside.binary.clone() })?.facts;
    let folder = match &args.beside.folder {
        Some(folder) => folder.clone(),
        None => PathBuf::from(format!("papers-{}", place.file_name())),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let figures = Figures::of(wanted);
    let called = args.beside.called.clone().unwrap_or_else(|| place.to_string());
    let mut host = machine("host".into(), Environment::new());
    let mut device = machine(called, facts);
    if !figures.workloads.is_empty() {
        let code = measure_both(args, place, &folder, &figures.workloads, &folders)?;
        if code == ExitCode::from(INTERRUPTED) {
            return Ok(without_page(args, &folder));
        }
        host.bench = result(&folder, &DeviceAddress::Local);
        device.bench = result(&folder, place);
    }
    let mut load = String::new();
    if figures.recorded {
        let modes = journal_modes(&device.facts);
        let Some([a, b]) = recorded(args, place, &folder, &modes)? else { return Ok(without_page(args, &folder)) };
        host.recorded = a;
        device.recorded = b;
        load = loaded(args, &modes);
    }
    let folders = folders.iter().map(|Folder { name, here, there }| {
        let [name, here, there] = [name, here, there].map(|text| analysis::text::escaped(text));
        format!("- folder {name}: {here} on the host, {there} on the device")
    });
    let folders: String = folders.map(|line| line + "\n").collect();
    for (machine, name) in [(&mut host, DeviceAddress::Local), (&mut device, place.clone())] {
        if let Ok(bench) = &machine.bench {
            machine.facts.extend(bench.tables.environment.clone());
        } else if machine.facts.is_empty() {
            machine.facts = info::ask(&Which { device: name, binary: Vec::new() })?.facts;
        }
    }
    written(args, &Page { all, wanted, place, folder: &folder, host, device, load: &load, folders: &folders })?;
    Ok(ExitCode::SUCCESS)
}

/// The journal mode that each system comes with, and how it is known.
fn journal_modes(device: &Environment) -> [(String, String); 2] {
    let settings = runner::both::settings([&[], &[]], [&Environment::new(), device]);
    let found = settings.into_iter().find(|s| s.factor == "journal_mode");
    let (a, b, source) = found.map_or_else(Default::default, |s| (s.a, s.b, s.source));
    let why = source.split_once("; B: ").map_or_else(String::new, |(_, why)| why.to_owned());
    [(a, "SQLite's default".into()), (b, why)]
}

fn machine(name: String, facts: Environment) -> Machine {
    let not_asked = || "nothing that was requested needs it".to_string();
    Machine { name, bench: Err(not_asked()), recorded: Err(not_asked()), facts }
}

/// What the figures that are wanted need.
struct Figures {
    workloads: Vec<String>,
    recorded: bool,
}

impl Figures {
    fn of(wanted: &[&Listed]) -> Self {
        let words = wanted.iter().flat_map(|k| &k.bench).filter(|w| BOTH.contains(&w.as_str()));
        let mut workloads: Vec<String> = words.cloned().collect();
        workloads.sort_unstable();
        workloads.dedup();
        Self { workloads, recorded: wanted.iter().any(|k| k.command.is_some() && k.bench.is_empty()) }
    }
}

/// A folder on each of the two, of one name: cells are compared by it.
struct Folder {
    name: String,
    here: String,
    there: String,
}

/// Those of `--dir`, each with its counterpart here.
fn folders(args: &Papers) -> Result<Vec<Folder>> {
    let (dir, dir_here) = (&args.beside.dir, &args.beside.dir_here);
    if let Some(stray) = dir_here.iter().find(|here| !dir.iter().any(|there| named(there).0 == named(here).0)) {
        return Err(Usage(format!("--dir-here {stray}: no --dir of the device has that name")).into());
    }
    let of = |there: &String| {
        let (name, there) = named(there);
        let here = dir_here.iter().map(|here| named(here)).find(|(n, _)| *n == name).map_or(".", |(_, path)| path);
        let here = std::fs::canonicalize(here).with_context(|| format!("--dir-here {here}"))?;
        Ok(Folder { name: name.into(), here: here.display().to_string(), there: there.into() })
    };
    dir.iter().map(of).collect()
}

/// `fathom bench run` for both; what it left is looked at whatever it says but that it was interrupted.
fn measure_both(
    args: &Papers,
    place: &DeviceAddress,
    folder: &Path,
    workloads: &[String],
    folders: &[Folder],
) -> Result<ExitCode> {
    let beside = &args.beside;
    let mut words: Vec<String> = ["fathom", "bench", "run", "--quiet"].map(String::from).to_vec();
    words.push(format!("--device=local,{place}"));
    words.push(format!("--output={}", folder.display()));
    words.push(format!("--seed={}", std::process::id()));
    words.extend(beside.binary.iter().map(|binary| format!("--binary={}", binary.display())));
    for Folder { name, here, there } in folders {
        words.extend([format!("--dir={name}={there}"), format!("--dir-here={name}={here}")]);
    }
    words.extend(beside.blocks.map(|n| format!("--blocks={n}")));
    words.extend(args.quick.then(|| "--quick".into()));
    words.extend(beside.no_wait.then(|| "--no-wait".into()));
    if let Some(jar) = &beside.dex_jar {
        words.push(format!("--dex-jar={}", jar.display()));
        // What each of them has no machine for is missing there, with the reason.
        let modes = |workload: &str, native: &str| format!("--param={workload}.mode={native}jvm-tiered,art-jit");
        let with = [("linpack", "c-O2,"), ("scimark", "c-O2,"), ("himeno", "c-O2,"), ("draw", "")];
        words.extend(with.iter().filter(|(w, _)| workloads.iter().any(|x| x == w)).map(|(w, native)| modes(w, native)));
    }
    words.extend(beside.parameters.iter().map(|(name, values)| format!("--param={name}={}", values.join(","))));
    words.push("--".into());
    words.extend(workloads.iter().cloned());
    let parsed = args::Cli::try_parse_from(&words).map_err(|e| Usage(e.to_string()))?;
    match parsed.verb {
        args::Verb::Bench(bench) => measure(&bench),
        _ => bail!("it cannot be measured"),
    }
}

fn result(folder: &Path, place: &DeviceAddress) -> Result<analysis::bench::results::Bench, String> {
    let path = folder.join(format!("{}.fathom", place.file_name()));
    if !path.exists() {
        return Err("the run there brought no result".into());
    }
    load(&path).map_err(|error| crate::sentence(&error))
}

/// The figures of a recording, or why there is none.
type Recorded = Result<Vec<analysis::papers::Figure>, String>;

/// Those of both; nothing if somebody interrupted.
fn recorded(
    args: &Papers,
    place: &DeviceAddress,
    folder: &Path,
    modes: &[(String, String); 2],
) -> Result<Option<[Recorded; 2]>> {
    let (rows, scans) = size(args);
    let mut both = Vec::new();
    for (place, (mode, _)) in [&DeviceAddress::Local, place].into_iter().zip(modes) {
        let path = folder.join(format!("{}-inserts.fathom", place.file_name()));
        let load = Load { rows, scans, journal_mode: mode.clone() };
        both.push(match inserts::record_at(place, &load, &path, &args.beside.binary)? {
            Outcome::Recorded(path) => inserts::figures(&path),
            Outcome::Not(why) => Err(why),
            Outcome::Interrupted => return Ok(None),
        });
    }
    Ok(both.try_into().ok())
}

fn size(args: &Papers) -> (u64, u64) {
    if args.quick { (LOAD.0 / TENTH, LOAD.1 / TENTH) } else { LOAD }
}

fn loaded(args: &Papers, modes: &[(String, String); 2]) -> String {
    let (rows, scans) = size(args);
    let [(a, why_a), (b, why_b)] = modes;
    format!(
        "The recordings are of {rows} INSERTs in autocommit and {scans} full scans each, in the journal mode that each system comes \
         with: {a} on the host ({why_a}), {b} on the device ({why_b}).\n"
    )
}

/// What is printed.
struct Page<'a> {
    all: &'a List,
    wanted: &'a [&'a Listed],
    place: &'a DeviceAddress,
    folder: &'a Path,
    host: Machine,
    device: Machine,
    load: &'a str,
    folders: &'a str,
}

fn written(args: &Papers, page: &Page<'_>) -> Result<()> {
    let Page { all, wanted, place, folder, host, device, load, folders } = page;
    let pairs = both::pairs(host, device);
    let judged = claims::judge(host, device, &pairs, &|figure| wanted.iter().any(|k| claims::is_of(k, figure)));
    let mut text = list::head_of_both(&host.name, &device.name, &model::text::date(now()), args.quick);
    text += &list::overview_of_both(&all.paper, wanted, &BOTH, &place.to_string());
    let _ = writeln!(
        text,
        "\n- **host**: {}\n- **{}**: {}\n{folders}",
        host.is(),
        analysis::text::escaped(&device.name),
        device.is()
    );
    text += &claims::markdown(&judged);
    text.push_str("\n## The figures\n\n");
    let of = |f: &analysis::bench::figure::Figure| {
        wanted.iter().any(|k| k.paper == f.paper && f.figure.split(", ").any(|n| k.is(&format!("{}/{n}", f.paper))))
    };
    if host.bench.is_ok() || device.bench.is_ok() {
        text += &both::benchmarks(host, device, &pairs, &of);
    }
    if !load.is_empty() {
        text += load;
        text.push('\n');
        let kept = |machine: &Machine| {
            let mut figures = machine.recorded.clone().unwrap_or_default();
            figures.retain(|f| wanted.iter().any(|k| k.paper == f.paper && k.number == f.figure));
            (machine.name.clone(), figures)
        };
        let columns: Vec<_> = [host, device].into_iter().filter(|m| m.recorded.is_ok()).map(kept).collect();
        text += &analysis::papers::markdown(&columns);
    }
    let text = model::text::folded(&text);
    match &args.output {
        Some(path) => archive::atomic_file::text(path, &text)?,
        None if !args.beside.json => output::text(&text),
        None => {}
    }
    if args.beside.json {
        let value = serde_json::json!({
            "version": VERSION, "host": host.is(), "device": { "address": place.to_string(), "name": device.name, "is": device.is() },
            "claims": judged,
        });
        output::text(&(serde_json::to_string_pretty(&value)? + "\n"));
    }
    eprintln!("fathom: the archives are in {0}. Draw: fathom report {0}/*.fathom", folder.display());
    Ok(())
}

fn now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos().try_into().unwrap_or(u64::MAX))
}

fn without_page(args: &Papers, folder: &Path) -> ExitCode {
    let page = args.output.as_ref().map_or_else(|| "the page".into(), |p| p.display().to_string());
    eprintln!("fathom: interrupted; {page} was not written; what was measured is in {}", folder.display());
    ExitCode::from(INTERRUPTED)
}
