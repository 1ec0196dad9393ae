//! `fathom watch` beside programs that measure their own operations, on a disk whose service times are known.

use anyhow::{Context, Result, ensure};
use fathom_tests::contracts::check_contract;
use fathom_tests::truth::slowdisk::SlowDisk;
use fathom_tests::{ext4, fathom, installed, number, root, rows, run, run_suite, show, wait_until};
use lab::loopdisk::Options;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let needs = || root().and_then(|()| installed("python3"));
    run_suite(vec![
        ("slow_fsyncs_are_kept_and_no_fast_ones", needs(), || slow_ones_are_kept("fsync")),
        ("slow_inserts_are_kept_and_no_fast_ones", needs(), || slow_ones_are_kept("insert")),
        ("neighbour_that_floods_the_disk_is_named", needs(), neighbour_is_named),
        ("idle_process_makes_no_incident", needs(), idle_process_makes_no_incident),
        ("request_keeps_what_the_buffer_holds", needs(), request_keeps_what_the_buffer_holds),
        ("operations_soon_after_an_incident_are_counted", needs(), operations_soon_after_an_incident_are_counted),
        ("processes_of_a_cgroup_are_watched", needs().and_then(|()| cgroups()), processes_of_a_cgroup_are_watched),
        ("watch_ends_with_its_reader", needs(), watch_ends_with_its_reader),
        ("killed_watch_leaves_no_probe_and_no_map", needs(), killed_watch_leaves_nothing),
    ])
}

/// From which duration on operations are slow. The slow disk's flush takes three times as long.
const SLOW: &str = "100ms";
const SLOW_NS: u64 = 100_000_000;
const FLUSH_US: u64 = 300_000;
/// Operations whose own program measured less than this part more than the limit may be on either side of it.
const MARGIN: f64 = 1.2;

const PROGRAM_PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/programs/watched.py");

/// A child and its output; killed when dropped.
struct Running {
    child: Child,
    lines: BufReader<ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("its output")?);
        Ok(Self { child, lines })
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "it has ended");
        Ok(line)
    }

    fn value(&mut self) -> Result<Value> {
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Starts the program that measures itself.
    fn program(directory: &Path, kind: &str) -> Result<Self> {
        let mut program = Self::start(Command::new("python3").arg(PROGRAM_PATH).arg(directory).arg(kind))?;
        ensure!(program.line()? == "ready\n");
        Ok(program)
    }

    fn ask(&mut self, words: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("its input")?;
        Ok(writeln!(input, "{words}")?)
    }

    /// Has it do something; returns begin and end of each operation.
    fn intervals(&mut self, words: &str) -> Result<Vec<(u64, u64)>> {
        self.ask(words)?;
        Ok(serde_json::from_str(&self.line()?)?)
    }

    /// Starts to watch processes, and waits until they are.
    fn watch(incidents: &Path, options: &[&str], pids: &[u32]) -> Result<Self> {
        let mut command = Command::new(fathom());
        command.args(["watch", "--json", "-o"]).arg(incidents).args(options);
        command.args(pids.iter().flat_map(|pid| ["--pid".into(), pid.to_string()]));
        let mut watch = Self::start(&mut command)?;
        let begun = watch.value()?;
        ensure!(begun["type"] == "begun" && begun["version"] == 1, "{begun}");
        Ok(watch)
    }

    fn signal(&self, signal: libc::c_int) {
        // SAFETY: a child of ours that was not waited for.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Ends it; returns all that it printed until then, the summary last.
    fn finish(mut self) -> Result<Vec<Value>> {
        self.signal(libc::SIGINT);
        let mut values = Vec::new();
        let mut line = String::new();
        while self.lines.read_line(&mut line)? > 0 {
            values.push(serde_json::from_str(&line)?);
            line.clear();
        }
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {values:?}");
        Ok(values)
    }
}

/// The counts of a summary: seen, kept, below the limit, shed.
fn counts(values: &[Value]) -> Result<[u64; 4]> {
    let summary = values.last().filter(|value| value["type"] == "summary").context("a summary")?;
    let operations = &summary["operations"];
    let of = |name: &str| operations[name].as_u64().with_context(|| format!("{name} in {summary}"));
    let shed = operations["shed"].as_object().context("shed")?.values().filter_map(Value::as_u64).sum();
    let counts = [of("seen")?, of("kept")?, of("below")?, shed];
    ensure!(counts[0] == counts[1..].iter().sum::<u64>(), "each is counted once: {summary}");
    Ok(counts)
}

fn incidents(values: &[Value]) -> Vec<&Value> {
    values.iter().filter(|value| value["type"] == "incident").collect()
}

fn archive(incident: &Value) -> Result<PathBuf> {
    Ok(incident["archive"].as_str().context("archive")?.into())
}

/// Begin and end of an operation of an incident.
fn interval(operation: &Value) -> Result<(u64, u64)> {
    let of = |name: &str| operation[name].as_u64().with_context(|| format!("{name} of {operation}"));
    Ok((of("start_ns")?, of("end_ns")?))
}

fn slow_ones_are_kept(kind: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = SlowDisk::create(directory.path(), (0, FLUSH_US), None, 1, &Options::default())?;
    let mut program = Running::program(disk.disk.path(), kind)?;
    let watch =
        Running::watch(&directory.path().join("i"), &["--slow", SLOW, "--interval", "0"], &[program.child.id()])?;
    let mut measured = program.intervals("do 300")?;
    disk.slow()?;
    measured.extend(program.intervals("do 3")?);
    let values = watch.finish()?;

    let is_slow = |(begin, end): (u64, u64)| end - begin >= SLOW_NS;
    let kept: Vec<(u64, u64)> = incidents(&values)
        .iter()
        .flat_map(|incident| incident["operations"].as_array().into_iter().flatten())
        .map(interval)
        .collect::<Result<_>>()?;
    let holds = |outer: (u64, u64), inner: (u64, u64)| outer.0 <= inner.0 && inner.1 <= outer.1;
    for one in &kept {
        let own = measured.iter().find(|own| holds(**own, *one)).with_context(|| format!("{one:?} is none"))?;
        ensure!(is_slow(*own), "{one:?} is fast: the program measured {} ns", own.1 - own.0);
    }
    let surely = |own: &&(u64, u64)| (own.1 - own.0) as f64 >= SLOW_NS as f64 * MARGIN;
    ensure!(measured.iter().filter(surely).count() >= 3, "the disk was not slow: {measured:?}");
    for own in measured.iter().filter(surely) {
        ensure!(kept.iter().any(|one| holds(*own, *one)), "{own:?} is in no incident: {values:?}");
    }
    let [seen, in_archives, below, shed] = counts(&values)?;
    ensure!(in_archives == kept.len() as u64 && shed == 0, "{values:?}");
    let fast = measured.iter().filter(|own| !is_slow(**own)).count();
    ensure!(seen >= measured.len() as u64 && below >= fast as u64, "{fast} were fast: {values:?}");

    for incident in incidents(&values) {
        let archive = archive(incident)?;
        let stored = rows(&archive, "operations")?;
        for operation in incident["operations"].as_array().context("operations")? {
            let (begin, end) = interval(operation)?;
            let time = |row: &BTreeMap<String, String>, name: &str| row.get(name).and_then(|text| text.parse().ok());
            let whole = stored.iter().any(|row| {
                time(row, "start_ns").is_some_and(|start: u64| start <= begin)
                    && time(row, "end_ns").is_some_and(|stored: u64| stored >= end)
            });
            ensure!(whole, "{operation} is not whole in {}", archive.display());
        }
        let slowest = &incident["operations"][0];
        let spent = slowest["spent"].as_array().context("spent")?;
        let sum: f64 = spent.iter().filter_map(|part| part["ns"].as_f64()).sum();
        let (begin, end) = interval(slowest)?;
        ensure!((sum - (end - begin) as f64).abs() < 1e6, "the parts of {slowest} do not add up");
        let shape = slowest["shape"].as_str().context("shape")?;
        let summary = show(&archive)?;
        let operations = summary["operations"].as_array().context("operations")?;
        let found = operations.iter().find(|operation| operation["statement"] == shape);
        ensure!(found.is_some(), "{shape} is not in {}: {operations:?}", archive.display());
        let explained = run(Command::new(fathom()).args(["explain", "--json"]).arg(&archive))?;
        serde_json::from_slice::<Value>(&explained.stdout).context("explain --json")?;
    }
    Ok(())
}

/// The disk takes its time for each write, and one at a time: whoever syncs little waits for whoever writes much.
fn neighbour_is_named() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = SlowDisk::create(directory.path(), (20_000, 0), None, 1, &Options::default())?;
    let mut victim = Running::program(disk.disk.path(), "fsync")?;
    let mut neighbour = Running::program(disk.disk.path(), "fsync")?;
    let metrics = directory.path().join("fathom.prom");
    let options = ["--slow", SLOW, "--interval", "0", "--prometheus", metrics.to_str().context("its path")?];
    let watch = Running::watch(&directory.path().join("i"), &options, &[victim.child.id()])?;
    victim.intervals("do 20")?;
    disk.slow()?;
    neighbour.ask("flood 8000000")?;
    let mut measured = Vec::new();
    for _ in 0..50 {
        measured.extend(victim.intervals("do 1")?);
    }
    neighbour.line()?;
    let values = watch.finish()?;
    check_contract("watch", &json!({ "version": values[0]["version"], "lines": values }))?;
    let incidents = incidents(&values);
    let slowest = incidents
        .iter()
        .flat_map(|incident| incident["operations"].as_array().into_iter().flatten())
        .max_by_key(|one| interval(one).map_or(0, |(begin, end)| end - begin))
        .with_context(|| format!("no incident; {measured:?}"))?;
    let of_neighbour = |part: &&Value| part["tgid"] == neighbour.child.id();
    let spent = slowest["spent"].as_array().context("spent")?;
    let for_neighbour: f64 = spent.iter().filter(of_neighbour).filter_map(|part| part["ns"].as_f64()).sum();
    let (begin, end) = interval(slowest)?;
    ensure!(for_neighbour > (end - begin) as f64 / 2.0, "the neighbour is not named: {slowest}");

    // Who delayed whom, over all incidents: nothing is lost, and the file for Prometheus agrees.
    let who = &values.last().context("a summary")?["who"];
    let all = incidents.iter().flat_map(|incident| incident["operations"].as_array().into_iter().flatten());
    let durations = all.map(interval).collect::<Result<Vec<_>>>()?.iter().map(|(begin, end)| end - begin).sum::<u64>();
    let rows = who["rows"].as_array().context("rows")?;
    let of_rows: f64 = rows.iter().filter_map(|row| row["ns"].as_f64()).sum();
    ensure!(who["ns"] == durations && (of_rows - durations as f64).abs() < 1e3, "{durations} in {who}");
    let text = std::fs::read_to_string(&metrics)?;
    let seconds: f64 = text
        .lines()
        .filter(|line| line.starts_with("fathom_watch_delay_seconds_total{"))
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
        .sum();
    ensure!((seconds - durations as f64 / 1e9).abs() < 1e-3, "{durations} ns in {text}");
    Ok(())
}

fn idle_process_makes_no_incident() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let incidents = directory.path().join("i");
    let program = Running::program(directory.path(), "fsync")?;
    let watch = Running::watch(&incidents, &["--slow", "1us", "--duration", "3"], &[program.child.id()])?;
    let mut watch = watch;
    let summary = watch.value()?;
    ensure!(summary["type"] == "summary" && summary["operations"]["seen"] == 0, "{summary}");
    ensure!(std::fs::read_dir(&incidents)?.count() == 0);
    Ok(())
}

/// CLOCK_BOOTTIME as the kernel prints it, rounded down to 10 ms.
fn uptime_s() -> Result<f64> {
    let text = std::fs::read_to_string("/proc/uptime")?;
    text.split_whitespace().next().context("/proc/uptime")?.parse().context("/proc/uptime")
}

fn request_keeps_what_the_buffer_holds() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (disk, kept) = (ext4()?, directory.path().join("i"));
    let mut program = Running::program(disk.path(), "insert")?;
    let before_s = uptime_s()?;
    let mut watch = Running::watch(&kept, &["--slow", "60s", "--keep", "2"], &[program.child.id()])?;
    let mut archives = Vec::new();
    for _ in 0..3 {
        program.intervals("do 20")?;
        watch.signal(libc::SIGUSR1);
        let incident = watch.value()?;
        ensure!(incident["type"] == "incident" && incident["trigger"] == "request", "{incident}");
        ensure!(number(&incident, "/start_ns")? / 1e9 >= before_s, "it begins before the recorder: {incident}");
        archives.push(archive(&incident)?);
    }
    let there: BTreeSet<PathBuf> =
        std::fs::read_dir(&kept)?.map(|entry| Ok(entry?.path())).collect::<Result<BTreeSet<_>>>()?;
    ensure!(there == archives[1..].iter().cloned().collect(), "the newest two stay: {there:?}");
    let operations = &show(&archives[2])?["operations"];
    let inserts = operations
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["statement"].as_str().is_some_and(|text| text.starts_with("INSERT INTO t VALUES")));
    ensure!(inserts.is_some_and(|one| one["count"] == 60), "all three times 20 INSERTs: {operations}");
    let values = watch.finish()?;
    let [_, in_archives, ..] = counts(&values)?;
    ensure!(in_archives == 0, "{values:?}");
    Ok(())
}

fn operations_soon_after_an_incident_are_counted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let mut program = Running::program(disk.path(), "insert")?;
    let options = ["--slow", "1us", "--interval", "1000"];
    let mut watch = Running::watch(&directory.path().join("i"), &options, &[program.child.id()])?;
    program.intervals("do 20")?;
    let incident = watch.value()?;
    let kept = incident["operations"].as_array().context("operations")?.len() as u64;
    program.intervals("do 30")?;
    let values = watch.finish()?;
    let not_kept: u64 =
        values.iter().filter(|one| one["type"] == "not_kept").filter_map(|one| one["operations"].as_u64()).sum();
    ensure!((20..50).contains(&kept) && kept + not_kept == 50, "{kept} kept, {values:?}");
    ensure!(counts(&values)? == [50, kept, 0, not_kept], "{values:?}");
    Ok(())
}

/// Where cgroups of version 2 are mounted.
fn cgroup_root() -> Option<&'static Path> {
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    roots.into_iter().find(|root| root.join("cgroup.controllers").is_file())
}

fn cgroups() -> Result<(), String> {
    cgroup_root().map(drop).ok_or_else(|| "no cgroups of version 2 are mounted".into())
}

/// A cgroup, removed when dropped: what is in it has to have ended.
struct Cgroup(PathBuf);

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

fn processes_of_a_cgroup_are_watched() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let name = format!("fathom-watch-{}", std::process::id());
    let cgroup = Cgroup(cgroup_root().context("cgroups")?.join(&name));
    std::fs::create_dir(&cgroup.0)?;
    let (mut inside, mut outside) = (Running::program(disk.path(), "fsync")?, Running::program(disk.path(), "fsync")?);
    std::fs::write(cgroup.0.join("cgroup.procs"), inside.child.id().to_string())?;
    let watch = Running::watch(&directory.path().join("i"), &["--slow", "60s", "--cgroup", &name], &[])?;
    inside.intervals("do 7")?;
    outside.intervals("do 20")?;
    ensure!(counts(&watch.finish()?)? == [7, 0, 7, 0]);
    Ok(())
}

fn watch_ends_with_its_reader() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let mut program = Running::program(disk.path(), "insert")?;
    let options = ["--slow", "1us", "--interval", "0"];
    let watch = Running::watch(&directory.path().join("i"), &options, &[program.child.id()])?;
    let Running { child, lines } = &mut { watch };
    // The other end of its output.
    *lines = BufReader::new(Command::new("true").stdout(Stdio::piped()).spawn()?.stdout.take().context("an output")?);
    program.intervals("do 20")?;
    wait_until("its end", || Ok(child.try_wait()?.is_some()))
}

/// Whether the kernel has a BPF object: programs, maps and links are asked for by other commands of bpf(2).
fn exists(command: libc::c_int, id: u32) -> bool {
    let attributes = [id, 0, 0, 0];
    // SAFETY: the kernel reads as many bytes as it is told, and they live until the call returns.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes.as_ptr(), size_of_val(&attributes)) };
    if fd >= 0 {
        // SAFETY: the descriptor was just opened, and nothing else knows it.
        unsafe { libc::close(fd as libc::c_int) };
    }
    fd >= 0
}

/// BPF_PROG_GET_FD_BY_ID, BPF_MAP_GET_FD_BY_ID and BPF_LINK_GET_FD_BY_ID, and what /proc calls their numbers.
const OBJECTS: [(libc::c_int, &str); 3] = [(13, "prog_id:"), (14, "map_id:"), (30, "link_id:")];

/// Returns the BPF objects of a process, as the kernel lists its descriptors.
fn objects_of(pid: u32) -> Result<BTreeSet<(libc::c_int, u32)>> {
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo"))?.flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for (command, name) in OBJECTS {
            let numbers = text.lines().filter_map(|line| line.strip_prefix(name)?.trim().parse().ok());
            found.extend(numbers.map(|id| (command, id)));
        }
    }
    Ok(found)
}

fn killed_watch_leaves_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let kept = directory.path().join("i");
    let disk = ext4()?;
    let mut program = Running::program(disk.path(), "insert")?;
    let mut watch = Running::watch(&kept, &["--slow", "1us", "--interval", "0"], &[program.child.id()])?;
    program.intervals("do 20")?;
    let objects = objects_of(watch.child.id())?;
    for (command, name) in OBJECTS {
        let count = objects.iter().filter(|object| object.0 == command && exists(command, object.1)).count();
        ensure!(count > 0, "{name} of none of {objects:?} exists: this proves nothing");
    }
    // While it writes an incident, or about to.
    watch.child.kill()?;
    watch.child.wait()?;
    wait_until("the end of its BPF objects", || Ok(objects.iter().all(|(command, id)| !exists(*command, *id))))?;
    program.intervals("do 20")?;
    // The next one removes what it left unfinished.
    let next = Running::watch(&kept, &["--slow", "60s"], &[program.child.id()])?;
    let names: Vec<String> =
        std::fs::read_dir(&kept)?.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    ensure!(names.iter().all(|name| name.ends_with(".fathom")), "{names:?}");
    next.finish()?;
    Ok(())
}
