//! Bad input and failures: a clear error, and nothing lost.

#[path = "errors/archives.rs"]
mod archives;
#[path = "errors/permissions.rs"]
mod permissions;
#[path = "errors/streams.rs"]
mod streams;

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, ext4, fathom, installed, number, record, root, run, run_suite, shape_of, show, wait_until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::Duration;

fn main() -> ExitCode {
    let shell = || root().and_then(|()| installed("sqlite3"));
    let cases: Vec<Case> = vec![
        (
            "record_without_root_names_requirements",
            root().and_then(|()| installed("setpriv")),
            permissions::without_root,
        ),
        (
            "demo_without_root_shows_sample_and_measures",
            root().and_then(|()| installed("setpriv")),
            permissions::demo_unprivileged,
        ),
        ("missing_btf_names_kernel_option", root().and_then(|()| installed("unshare")), permissions::without_btf),
        (
            "unmounted_tracefs_is_mounted_for_ftrace",
            root().and_then(|()| installed("unshare")),
            permissions::unmounted_tracefs,
        ),
        ("recording_works_without_tracefs", shell().and_then(|()| installed("unshare")), permissions::without_tracefs),
        (
            "recording_under_lockdown_is_refused",
            root().and_then(|()| installed("unshare")),
            permissions::recording_under_lockdown_is_refused,
        ),
        ("missing_capability_is_reported", root().and_then(|()| installed("setpriv")), permissions::one_capability),
        (
            "cap_bpf_and_cap_perfmon_suffice_to_record",
            shell().and_then(|()| installed("setpriv")),
            permissions::two_capabilities,
        ),
        ("wrong_arguments_are_refused_with_reason", Ok(()), wrong_arguments),
        ("missing_output_directory_is_named", Ok(()), missing_directory),
        (
            "unwritable_directory_is_named",
            root().and_then(|()| installed("setpriv")),
            permissions::unwritable_directory,
        ),
        ("lab_without_home_names_cache_option", Ok(()), permissions::without_home),
        (
            "fix_without_root_says_program_name_once",
            root().and_then(|()| installed("setpriv")),
            permissions::fix_unprivileged,
        ),
        ("missing_double_dash_gets_hint", Ok(()), without_dashes),
        ("unknown_process_name_is_reported", root(), unknown_process_name),
        ("kernel_thread_pid_is_warned_about", root(), kernel_thread),
        ("previous_recording_is_kept_as_old", root(), kept_recordings),
        ("unknown_command_exits_127", root(), unknown_command),
        ("unknown_process_id_is_reported", root(), unknown_process),
        ("exit_status_is_that_of_command", root(), exit_status),
        ("process_left_running_by_command_is_named", root(), left_running),
        ("interrupted_recording_keeps_events", shell(), interrupt_keeps),
        ("killed_child_keeps_its_statements", shell(), killed_child),
        ("killed_recorder_leaves_readable_log", shell(), killed_tracer),
        ("closed_stderr_does_not_stop_recording", shell(), streams::nobody_reads_stderr),
        ("closed_stdout_pipe_is_no_error", shell(), streams::nobody_reads_stdout),
        ("full_stdout_is_error", Ok(()), streams::full_stdout),
        ("full_disk_keeps_stored_events", shell(), archives::full_disk),
        ("size_limit_keeps_stored_events", shell(), archives::size_limit),
        ("recording_on_disk_that_command_fills_keeps_facts_and_probes", shell(), archives::filled_disk),
        ("tables_are_built_on_other_disk", shell(), archives::no_room_for_tables),
        ("max_size_ends_recording", shell(), archives::max_size),
        ("truncated_log_is_read_to_cut", shell(), archives::cut_short),
        ("damaged_table_error_names_reindex", shell(), archives::damaged_table),
        ("newer_archive_is_refused_with_version", shell(), archives::newer_archive),
        ("non_archive_directory_is_not_touched", root(), archives::foreign_directory),
        ("removed_archive_is_reported", root(), archives::removed_meanwhile),
        ("literals_are_dropped_and_control_characters_escaped", shell(), hostile_sql),
        ("program_without_sqlite_is_recorded", root(), no_sqlite),
        ("interrupted_load_removes_its_files", Ok(()), interrupted_load),
    ];
    run_suite(cases)
}

fn output_of(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Each verb reports what is wrong, and with what, and ends with status 2; nothing panics, and no name is printed
/// twice.
fn wrong_arguments() -> Result<()> {
    for (words, expected) in [
        ("record", "nothing to record"),
        ("record --pid x -- true", "process ID"),
        ("record --op main -- true", "BINARY:FUNCTION"),
        ("record --duration 0 -- true", "more than 0"),
        ("record --max-size 1K -- true", "at least 64K"),
        ("record --via perfetto --all", "--device"),
        ("export T.fathom", "--perfetto"),
        ("whatif T.fathom", "--without"),
        ("whatif T.fathom --without nothing", "directory-sync"),
        ("diff A.fathom", "B.fathom"),
        ("diff A B --fail-on faster", "slower:PERCENT"),
        ("check record", "CMD"),
        ("fix -- app {db}", "--database FILE"),
        ("fix --try nothing -- true", "there is no such remedy here"),
        ("bench run nothing", "nothing"),
        ("bench run sqlite -p rows", "NAME=VALUE"),
        ("bench run sqlite --dir /no/such/directory", "--dir /no/such/directory"),
        ("bench run sqlite --budget 5x", "90s, 5m or 1h"),
        ("bench run sqlite --precision 0", "more than 0"),
        ("bench ab -- true", "at least two commands"),
        ("bench ab -- no-such-program true", "command not found"),
        ("bench compare A.fathom", "B.fathom"),
        ("net run", "ADDR:PORT"),
        ("net run 127.0.0.1", "ADDRESS:PORT"),
        ("net run 127.0.0.1:7100 --udp", "needs a rate"),
        ("net run 127.0.0.1:7100 --rate 1", "1k to 1000G"),
        ("net run 127.0.0.1:7100 --sndbuf x", "256K"),
        ("net serve --listen 0.0.0.0:0", "a key is required"),
        ("net link --loss 2", "share of packets"),
        ("net trial --udp slow", "1k to 1000G"),
        ("pool serve --node 127.0.0.1 --nbd unix:/x", "ADDRESS:PORT"),
        ("pool serve --node 127.0.0.1:1 --nbd /x", "unix:PATH"),
        ("pool node --store a --listen 0.0.0.0:0", "--insecure"),
        ("pool node --backend memory:1 --listen 127.0.0.1:0", "at least 64K"),
        ("pool bench --node 127.0.0.1:1 --node-timeout 25h", "1s to 24h"),
        ("device info nowhere:1", "adb:"),
        ("lab run nothing", "nothing"),
        ("lab list nothing", "nothing"),
        ("papers 9/9", "unknown figure"),
        ("mcp --budget 1", "500"),
    ] {
        let output = output_of(Command::new(fathom()).args(words.split(' ')))?;
        let said = messages(&output);
        ensure!(output.status.code() == Some(2), "{words}: {}: {said}", output.status);
        ensure!(said.contains(expected), "{words}: {said}");
        ensure!(!said.contains("panicked") && !said.contains("fathom: fathom"), "{words}: {said}");
        let named = said.lines().find_map(|line| line.strip_prefix("fathom: ")?.split_once(": "));
        ensure!(named.is_none_or(|(name, rest)| !rest.ends_with(&format!(": {name}"))), "{words}: {said}");
    }
    let missing = output_of(Command::new(fathom()).args(["fix", "--database", "/no/such/file", "--", "app", "{db}"]))?;
    let said = messages(&missing);
    ensure!(missing.status.code() == Some(1) && said.contains("--database /no/such/file"), "{said}");
    Ok(())
}

/// A writable copy of one of our archives.
fn copy_archive(directory: &Path) -> Result<std::path::PathBuf> {
    let archive = directory.join("t.fathom");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("archives/v3-linux-6.18-virtio");
    run(Command::new("cp").arg("-r").arg(ours).arg(&archive))?;
    Ok(archive)
}

fn missing_directory() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let archive = copy_archive(directory.path())?;
    let archive = archive.to_str().context("a path in UTF-8")?;
    let lines: [&[&str]; 4] = [
        &["report", "-o", "none/x.html", archive],
        &["export", "--perfetto", "-o", "none/x.pftrace", archive],
        &["export", "--csv", "-o", "none/x", archive],
        &["bench", "run", "seq", "--quick", "-o", "none/x.fathom"],
    ];
    for line in lines {
        let output = output_of(Command::new(fathom()).args(line).current_dir(directory.path()))?;
        let said = messages(&output);
        ensure!(output.status.code() == Some(1) && said.contains("mkdir -p none"), "{line:?}: {said}");
    }
    Ok(())
}

fn without_dashes() -> Result<()> {
    let output = output_of(Command::new(fathom()).args(["record", "-q", "ls", "-l"]))?;
    ensure!(output.status.code() == Some(2), "{:?}", output.status);
    ensure!(messages(&output).contains("fathom record -q -- ls -l"), "{}", messages(&output));
    Ok(())
}

fn unknown_process_name() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let record = |name: &str| {
        output_of(
            Command::new(fathom()).args(["record", "--duration", "1", "--comm", name]).current_dir(directory.path()),
        )
    };
    let messages_of = |name: &str| record(name).map(|output| messages(&output));
    ensure!(
        messages_of("no-such-name")?.contains("no process named no-such-name"),
        "nothing says that nobody was there"
    );
    let me = fs::read_to_string("/proc/self/comm")?;
    ensure!(!messages_of(me.trim())?.contains("no process named"), "this very process was not found");
    Ok(())
}

fn kernel_thread() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let record = |pid: u32| {
        let pid = pid.to_string();
        output_of(
            Command::new(fathom()).args(["record", "--duration", "1", "--pid", &pid]).current_dir(directory.path()),
        )
    };
    // kthreadd, unless this is in a PID namespace.
    ensure!(fs::read_to_string("/proc/2/comm")?.trim() == "kthreadd", "process 2 is another");
    let output = record(2)?;
    ensure!(
        output.status.success() && messages(&output).contains("(kthreadd) is a kernel thread"),
        "{}",
        messages(&output)
    );
    ensure!(!messages(&record(std::process::id())?).contains("kernel thread"), "this very process is called one");
    Ok(())
}

fn kept_recordings() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let record = || output_of(Command::new(fathom()).args(["record", "--", "true"]).current_dir(directory.path()));
    let all = [record()?, record()?, record()?].map(|output| messages(&output));
    ensure!(!all[0].contains(".old"), "{}", all[0]);
    ensure!(all[1].contains("trace.fathom.old") && !all[1].contains("deleted"), "{}", all[1]);
    ensure!(all[2].contains("trace.fathom.old") && all[2].contains("deleted"), "{}", all[2]);
    Ok(())
}

fn unknown_command() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output =
        output_of(Command::new(fathom()).args(["record", "--", "no-such-command-here"]).current_dir(directory.path()))?;
    ensure!(output.status.code() == Some(127), "{:?}: {}", output.status, messages(&output));
    ensure!(messages(&output).contains("no-such-command-here"), "{}", messages(&output));
    let output =
        output_of(Command::new(fathom()).args(["record", "--", "no-such\nfathom: ok"]).current_dir(directory.path()))?;
    ensure!(messages(&output).lines().count() == 1, "{}", messages(&output));
    Ok(())
}

fn unknown_process() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let output = output_of(Command::new(fathom()).args(["record", "--pid", "4194303"]).current_dir(directory.path()))?;
    ensure!(
        output.status.code() == Some(1) && messages(&output).contains("4194303"),
        "{:?}: {}",
        output.status,
        messages(&output)
    );
    Ok(())
}

fn exit_status() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let output = output_of(
            Command::new(fathom()).args(["record", "-q", "--", "sh", "-c", script]).current_dir(directory.path()),
        )?;
        ensure!(
            output.status.code() == Some(status),
            "`{script}` ended with {:?}: {}",
            output.status,
            messages(&output)
        );
    }
    Ok(())
}

/// What a daemon does after its command has ended is in no recording, and that is reported, with every backend; a child that ended is not
/// named.
fn left_running() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for backend in ["ebpf", "ftrace"] {
        let record = |script: &str| {
            let mut command = Command::new(fathom());
            command.args(["record", "--backend", backend, "-q", "--no-probe-cost", "--", "sh", "-c", script]);
            output_of(command.current_dir(directory.path()))
        };
        let output = record(
            "setsid sleep 600 <&- >&- 2>&- & echo $! >pid; until grep -qx sleep /proc/$!/comm; do :; done; exit 5",
        )?;
        let pid = fs::read_to_string(directory.path().join("pid"))?.trim().to_owned();
        run(Command::new("kill").arg(&pid))?;
        let (said, named) = (messages(&output), format!("sleep ({pid})"));
        ensure!(output.status.code() == Some(5), "{backend}: {}: {said}", output.status);
        ensure!(said.contains(&named) && said.contains(&format!("--pid {pid}")), "{backend}: {said}");
        let left = &show(&directory.path().join("trace.fathom"))?["environment"]["trace.left_running"]["value"];
        ensure!(left.as_str() == Some(named.as_str()), "{backend}: {left}");
        let said = messages(&record("sleep 0.01 & wait")?);
        ensure!(!said.contains("still running"), "{backend}: {said}");
    }
    Ok(())
}

/// Endless INSERTs, one at a time. Each waits for a lock of `has_rows`: a `create table` that failed as busy would leave nothing to insert into.
const ENDLESS_SCRIPT: &str = "PATH=$PATH; f=$0; run() { sqlite3 -cmd '.timeout 60000' $f \"$1\"; }
    run 'create table t(i)'; while :; do run 'insert into t values (1)'; done";

/// A recording in a process group of its own, so that a signal reaches only its target; ended when dropped.
struct RecordingGroup(Child);

impl RecordingGroup {
    fn start(archive: &Path, options: &[&str], argv: &[&str]) -> Result<Self> {
        let mut command = Command::new(fathom());
        command.args(["record", "-o"]).arg(archive).args(options).arg("--").args(argv);
        Ok(Self(command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?))
    }

    fn signal(&self, name: &str, group: bool) -> Result<()> {
        let target = if group { format!("-{}", self.0.id()) } else { self.0.id().to_string() };
        run(Command::new("kill").args([&format!("-{name}"), "--", &target])).map(drop)
    }

    fn ended(&mut self) -> Result<std::process::ExitStatus> {
        wait_until("an end of the recording", || Ok(self.0.try_wait()?.is_some()))?;
        Ok(self.0.wait()?)
    }
}

impl Drop for RecordingGroup {
    fn drop(&mut self) {
        let _ = self.signal("KILL", true);
        let _ = self.0.wait();
    }
}

fn has_rows(database: &Path, least: u64) -> bool {
    let count = Command::new("sqlite3").arg(database).arg("select count(*) from t").stderr(Stdio::null()).output();
    count.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).trim().parse().is_ok_and(|n: u64| n >= least))
}

fn interrupt_keeps() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let (archive, database) = (directory.path().join("t.fathom"), disk.path().join("t.db"));
    let mut recording =
        RecordingGroup::start(&archive, &[], &["sh", "-c", ENDLESS_SCRIPT, &database.to_string_lossy()])?;
    wait_until("an INSERT", || Ok(has_rows(&database, 5)))?;
    recording.signal("INT", true)?;
    recording.ended()?;
    ensure!(number(shape_of(&show(&archive)?, "INSERT")?, "/count")? >= 5.0, "the INSERTs before Ctrl-C are gone");
    Ok(())
}

fn killed_child() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("t.db");
    let script =
        format!("sqlite3 {0} 'create table t(i); insert into t values (1);'; kill -KILL $$", database.display());
    let archive = directory.path().join("t.fathom");
    let output =
        output_of(Command::new(fathom()).args(["record", "-q", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]))?;
    ensure!(output.status.code() == Some(137), "{:?}", output.status);
    ensure!(number(shape_of(&show(&archive)?, "INSERT")?, "/count")? >= 1.0, "the INSERT before the kill is gone");
    Ok(())
}

fn killed_tracer() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let (archive, database) = (directory.path().join("t.fathom"), disk.path().join("t.db"));
    let mut recording =
        RecordingGroup::start(&archive, &[], &["sh", "-c", ENDLESS_SCRIPT, &database.to_string_lossy()])?;
    // Waits until the part written so far contains an INSERT: the size does not show that, since a busy machine's other
    // events fill chunks too.
    let copy = directory.path().join("copy.fathom");
    let mut said = String::new();
    wait_until("an INSERT in the log", || {
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        if !has_rows(&database, 1) || !Command::new("cp").arg("-r").args([&archive, &copy]).status()?.success() {
            said = "no INSERT was executed, or the archive could not be copied".into();
            return Ok(false);
        }
        let found = show(&copy).and_then(|summary| shape_of(&summary, "INSERT").map(drop));
        said = found.as_ref().err().map(|error| format!("{error:#}")).unwrap_or_default();
        Ok(found.is_ok())
    })
    .with_context(|| said.clone())?;
    recording.signal("KILL", false)?;
    recording.ended()?;
    let summary = show(&archive)?;
    ensure!(number(shape_of(&summary, "INSERT")?, "/count")? >= 1.0, "the log of a killed recorder shows nothing");
    ensure!(
        summary["trace"]["complete"] == serde_json::Value::Bool(false),
        "a recording cut short calls itself complete"
    );
    Ok(())
}

fn hostile_sql() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let script = format!(
        r#"printf 'create table "<img src=x onerror=alert(1)>\033[31m" (a);\ninsert into "<img src=x onerror=alert(1)>\033[31m" values (\047s3cr3t-t0ken\047);\n' | sqlite3 {}"#,
        disk.path().join("t.db").display()
    );
    let archive = record(directory.path(), &[], &["sh", "-c", &script])?;
    let shown = run(Command::new(fathom()).arg("show").arg(&archive))?.stdout;
    ensure!(!shown.contains(&0x1b), "an escape sequence of the traced program reaches the terminal");
    run(Command::new(fathom()).arg("report").arg(&archive))?;
    let page = fs::read_to_string(directory.path().join("t.html"))?;
    ensure!(!page.contains("<img src=x"), "HTML of the traced program is part of the page");
    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(directory.path().join("csv")))?;
    run(Command::new(fathom()).args(["export", "--perfetto"]).arg(&archive).arg("-o").arg(directory.path().join("p")))?;
    // A file name may contain anything but `/`.
    let name = disk.path().join("\u{1b}[2J\u{9b}1A\u{202e}bd.t");
    let script = r#"import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute("create table t (a)"); d.execute("insert into t values (1)"); d.commit()"#;
    let archive = record(directory.path(), &[], &["python3", "-c", script, &name.to_string_lossy()])?;
    for options in [&[][..], &["--json"]] {
        let messages = run(Command::new(fathom()).arg("show").args(options).arg(&archive))?.stdout;
        let messages = String::from_utf8(messages)?;
        ensure!(
            !messages.contains(['\u{1b}', '\u{9b}', '\u{202e}']),
            "{options:?}: a name steers the terminal: {messages:?}"
        );
        ensure!(messages.contains("bd.t"), "{options:?}: the file is not told of");
    }
    let files = &show(&archive)?["files"];
    let told = |file: &serde_json::Value| file["path"].as_str() == name.to_str();
    ensure!(files.as_array().is_some_and(|files| files.iter().any(told)), "JSON tells another name: {files}");
    let secret = Command::new("grep").args(["-rlF", "s3cr3t-t0ken"]).arg(directory.path()).output()?;
    ensure!(secret.stdout.is_empty(), "a literal was stored: {}", String::from_utf8_lossy(&secret.stdout));
    Ok(())
}

fn no_sqlite() -> Result<()> {
    let (directory, disk) = (tempfile::tempdir()?, ext4()?);
    let file = disk.path().join("f");
    let archive = record(
        directory.path(),
        &[],
        &["dd", "if=/dev/zero", &format!("of={}", file.display()), "bs=4k", "count=8", "conv=fsync"],
    )?;
    let summary = show(&archive)?;
    // A call that waits for the device is an operation of its own there.
    let operations = summary["operations"].as_array().context("no operations")?;
    ensure!(operations.len() == 1 && operations[0]["statement"] == "fsync f", "{operations:?}");
    ensure!(number(&summary, &format!("/device_commands/by_disk/{}/total", disk.name()))? >= 1.0, "dd wrote nothing");
    let shown = run(Command::new(fathom()).arg("show").arg(&archive))?.stdout;
    let shown = String::from_utf8(shown)?;
    ensure!(shown.contains("No SQLite"), "{shown}");
    Ok(())
}

/// Every load on storage, ended midway by each signal that a user or a system sends.
fn interrupted_load() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let long = "1000000";
    for (name, options) in [
        ("random", vec!["--file-size=8M", "--threads=4", "--inner=1000"]),
        ("random", vec!["--op=write", "--file-size=8M", "--inner=100", "--state=each"]),
        ("seq", vec!["--count=8"]),
        ("file", vec!["--op=read", "--files=8"]),
        ("sqlite", vec!["--rows=1000"]),
    ] {
        for signal in ["-INT", "-TERM", "-HUP"] {
            let mut child = Command::new(fathom())
                .args(["workload", name, "--iterations", long])
                .args(&options)
                .arg("--dir")
                .arg(directory.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            wait_until("a file of the workload", || {
                ensure!(child.try_wait()?.is_none(), "{name} made nothing");
                Ok(fs::read_dir(directory.path())?.next().is_some())
            })?;
            // A fixed wait: into the load, beyond its preparation; but whenever the signal comes, the same must hold.
            std::thread::sleep(Duration::from_millis(200));
            run(Command::new("kill").args([signal, &child.id().to_string()]))?;
            let status = child.wait()?;
            ensure!(status.code() == Some(130), "{name} {options:?}: {status}");
            let left: Vec<_> = fs::read_dir(directory.path())?.collect();
            ensure!(left.is_empty(), "{name} {options:?} left {left:?}");
        }
    }
    Ok(())
}
