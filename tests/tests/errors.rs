//! Bad input and failures: a clear error, and nothing lost.

use anyhow::{Context, Result, ensure};
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, ext4, fathom, installed, lane, near, number, record, root, run, shape, show, until};
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

fn main() -> ExitCode {
    let shell = || root().and_then(|()| installed("sqlite3"));
    let cases: Vec<Case> = vec![
        ("record_without_root_names_requirements", root().and_then(|()| installed("setpriv")), without_root),
        ("demo_without_root_shows_sample_and_measures", root().and_then(|()| installed("setpriv")), demo_unprivileged),
        ("missing_btf_names_kernel_option", root().and_then(|()| installed("unshare")), without_btf),
        ("unmounted_tracefs_is_mounted_for_ftrace", root().and_then(|()| installed("unshare")), unmounted_tracefs),
        ("recording_works_without_tracefs", shell().and_then(|()| installed("unshare")), without_tracefs),
        ("recording_under_lockdown_is_refused", root().and_then(|()| installed("unshare")), lockdown),
        ("missing_capability_is_reported", root().and_then(|()| installed("setpriv")), one_capability),
        ("cap_bpf_and_cap_perfmon_suffice_to_record", shell().and_then(|()| installed("setpriv")), two_capabilities),
        ("wrong_arguments_are_refused_with_reason", Ok(()), wrong_arguments),
        ("missing_output_folder_is_named", Ok(()), missing_folder),
        ("unwritable_folder_is_named", root().and_then(|()| installed("setpriv")), unwritable_folder),
        ("lab_without_home_names_cache_option", Ok(()), without_home),
        ("fix_without_root_says_program_name_once", root().and_then(|()| installed("setpriv")), fix_unprivileged),
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
        ("closed_stderr_does_not_stop_recording", shell(), nobody_reads_stderr),
        ("closed_stdout_pipe_is_no_error", shell(), nobody_reads_stdout),
        ("full_stdout_is_error", Ok(()), full_stdout),
        ("full_disk_keeps_stored_events", shell(), full_disk),
        ("recording_on_disk_that_command_fills_keeps_facts_and_probes", shell(), filled_disk),
        ("tables_are_built_on_other_disk", shell(), no_room_for_tables),
        ("max_size_ends_recording", shell(), max_size),
        ("truncated_log_is_read_to_cut", shell(), cut_short),
        ("damaged_table_error_names_reindex", shell(), damaged_table),
        ("newer_archive_is_refused_with_version", shell(), newer_archive),
        ("non_archive_directory_is_not_touched", root(), foreign_folder),
        ("removed_archive_is_reported", root(), removed_meanwhile),
        ("literals_are_dropped_and_control_characters_escaped", shell(), hostile_sql),
        ("program_without_sqlite_is_recorded", root(), no_sqlite),
        ("interrupted_load_removes_its_files", Ok(()), interrupted_load),
    ];
    lane(cases)
}

fn out(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("starting {command:?}"))
}

fn messages(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The program as nobody without any capability runs it, in this folder and from a copy in it.
fn unprivileged(folder: &Path) -> Result<Command> {
    let copy = folder.join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").args(["-R", "a+rwx"]).arg(folder))?;
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"])
        .arg(&copy)
        .current_dir(folder);
    Ok(command)
}

fn demo_unprivileged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = out(unprivileged(folder.path())?.args(["demo", "--rows", "7", "--scans", "3"]))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "{}: {text}{}", output.status, messages(&output));
    let (reason, rest) = text.split_once("==== Sample recording: ").context("no sample is shown")?;
    ensure!(reason.contains("CAP_BPF") && reason.contains("sudo"), "it does not say how to get there: {reason}");
    let (sample, measured) = rest.split_once("==== This machine, untraced").context("nothing is measured")?;
    ensure!(sample.contains("INSERT INTO t VALUES (?, ?)") && sample.contains("\nNo losses"), "{sample}");
    ensure!(measured.contains("INSERT        7 times: median "), "{measured}");
    ensure!(measured.contains("SELECT        3 times: median "), "{measured}");
    let made = |name: &str| folder.path().join(name).exists();
    ensure!(made("sample.fathom") && made("sample.html") && made("sample.pftrace"), "not all of the sample is there");
    ensure!(!made("demo.fathom") && !made("demo.html"), "the sample must not look like a recording of this machine");
    Ok(())
}

fn without_root() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = out(unprivileged(folder.path())?.args(["record", "--", "true"]))?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    let messages = messages(&output);
    ensure!(messages.contains("root") && messages.contains("CAP_BPF"), "{messages}");
    ensure!(!folder.path().join("trace.fathom").exists(), "an archive was left behind");
    Ok(())
}

/// Runs `script` in mounts of its own; `$0` is the program, `$1` an empty folder.
fn with_mounts(script: &str, folder: &Path) -> Result<Output> {
    let empty = folder.join("empty");
    fs::create_dir_all(&empty)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-ec", script]).arg(fathom()).arg(&empty).current_dir(folder);
    out(&mut command)
}

fn without_btf() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = with_mounts("mount --bind $1 /sys/kernel/btf; $0 record --backend ebpf -- true", folder.path())?;
    let refused = messages(&output);
    ensure!(output.status.code() == Some(1), "{:?}: {refused}", output.status);
    ensure!(refused.contains("CONFIG_DEBUG_INFO_BTF") && refused.contains("/sys/kernel/btf/vmlinux"), "{refused}");
    ensure!(!folder.path().join("trace.fathom").exists(), "an archive was left behind");
    // What is not asked for by name is recorded another way, and the reason is reported.
    let output = with_mounts("mount --bind $1 /sys/kernel/btf; $0 record -- true", folder.path())?;
    let reported = messages(&output);
    ensure!(output.status.success() && reported.contains("through ftrace"), "{:?}: {reported}", output.status);
    ensure!(reported.contains("CONFIG_DEBUG_INFO_BTF"), "{reported}");
    Ok(())
}

const UNMOUNT: &str = "for m in /sys/kernel/tracing /sys/kernel/debug/tracing /sys/kernel/debug; do umount -l $m 2>/dev/null || true; done; \
     test ! -e /sys/kernel/tracing/events; ";

fn unmounted_tracefs() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = format!("{UNMOUNT} $0 record --backend ftrace -- true; test ! -e /sys/kernel/tracing/events");
    let output = with_mounts(&script, folder.path())?;
    ensure!(output.status.success(), "{:?}: {}", output.status, messages(&output));
    let probes = show(&folder.path().join("trace.fathom"))?["coverage"].as_array().context("coverage[]")?.clone();
    ensure!(probes.iter().any(|row| row["attached"] == true), "{probes:#?}");
    Ok(())
}

fn without_tracefs() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let script = format!(
        "{UNMOUNT} $0 record -q -- sqlite3 {} 'create table t(i); insert into t values (1);'",
        disk.path().join("t.db").display()
    );
    let output = with_mounts(&script, folder.path())?;
    ensure!(output.status.success(), "{}", messages(&output));
    let summary = show(&folder.path().join("trace.fathom"))?;
    ensure!(number(shape(&summary, "INSERT")?, "/per_operation/flushes")? > 0.0, "the INSERT was not followed down");
    Ok(())
}

fn lockdown() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = "mount -t tmpfs fathom-test /sys/kernel/security; \
                  echo 'none integrity [confidentiality]' > /sys/kernel/security/lockdown; $0 record -- true";
    let output = with_mounts(script, folder.path())?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(1) && messages.contains("lockdown"), "{:?}: {messages}", output.status);
    Ok(())
}

fn one_capability() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let copy = folder.path().join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").args(["-R", "a+rwx"]).arg(folder.path()))?;
    for (has, lacks) in [("bpf", "CAP_PERFMON"), ("perfmon", "CAP_BPF")] {
        let output = out(Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups", &format!("--inh-caps=-all,+{has}")])
            .args([format!("--ambient-caps=-all,+{has}"), format!("--bounding-set=-all,+{has}")])
            .arg(&copy)
            .args(["record", "--", "true"])
            .current_dir(folder.path()))?;
        let messages = messages(&output);
        ensure!(output.status.code() == Some(1) && messages.contains(lacks), "{has}: {:?}: {messages}", output.status);
    }
    Ok(())
}

fn two_capabilities() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    run(Command::new("chmod").arg("-R").arg("a+rwx").args([folder.path(), disk.path()]))?;
    let copy = folder.path().join("fathom");
    fs::copy(fathom(), &copy)?;
    run(Command::new("chmod").arg("a+rx").arg(&copy))?;
    let output = out(Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--inh-caps=-all,+bpf,+perfmon"])
        .args(["--ambient-caps=-all,+bpf,+perfmon", "--bounding-set=-all,+bpf,+perfmon"])
        .arg(&copy)
        .args(["record", "--", "sqlite3"])
        .arg(disk.path().join("t.db"))
        .arg("create table t(i); insert into t values (1); insert into t values (2);")
        .current_dir(folder.path()))?;
    let messages = messages(&output);
    if messages.contains("not permitted") && !output.status.success() {
        // This kernel wants root for any probe: it says so, which is the other test's.
        return Ok(());
    }
    ensure!(output.status.success(), "{:?}: {messages}", output.status);
    let summary = show(&folder.path().join("trace.fathom"))?;
    let blind = summary["blind"].as_array().context("blind[]")?;
    let wholly = blind.iter().any(|b| b["layer"] == "Database" && b["wholly"] == true);
    if fs::read("/sys/kernel/btf/vmlinux")?.windows(22).any(|w| w == b"BPF_TRACE_UPROBE_MULTI") {
        // From Linux 6.6 on functions of programs are probed by links, which need no more.
        ensure!(!wholly && !messages.contains("the kernel refused"), "{blind:?}: {messages}");
        return near("INSERTs", number(shape(&summary, "INSERT")?, "/count")?, 2.0);
    }
    ensure!(wholly && messages.contains("the kernel refused"), "{blind:?}: {messages}");
    // The layers below go on, and the files' names stand for the statements.
    near("transactions", number(shape(&summary, "(WRITE TRANSACTION ON T.DB")?, "/count")?, 3.0)
}

/// Each verb says what is wrong, of what, and ends with status 2; nothing panics, and nobody's name is said twice.
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
        ("bench run sqlite --dir /no/such/folder", "--dir /no/such/folder"),
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
        let output = out(Command::new(fathom()).args(words.split(' ')))?;
        let said = messages(&output);
        ensure!(output.status.code() == Some(2), "{words}: {}: {said}", output.status);
        ensure!(said.contains(expected), "{words}: {said}");
        ensure!(!said.contains("panicked") && !said.contains("fathom: fathom"), "{words}: {said}");
        let named = said.lines().find_map(|line| line.strip_prefix("fathom: ")?.split_once(": "));
        ensure!(named.is_none_or(|(name, rest)| !rest.ends_with(&format!(": {name}"))), "{words}: {said}");
    }
    let missing = out(Command::new(fathom()).args(["fix", "--database", "/no/such/file", "--", "app", "{db}"]))?;
    let said = messages(&missing);
    ensure!(missing.status.code() == Some(1) && said.contains("--database /no/such/file"), "{said}");
    Ok(())
}

/// An archive of ours, as a copy that may be written.
fn copied(folder: &Path) -> Result<std::path::PathBuf> {
    let archive = folder.join("t.fathom");
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("archives/v3-linux-6.18-virtio");
    run(Command::new("cp").arg("-r").arg(ours).arg(&archive))?;
    Ok(archive)
}

fn missing_folder() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = copied(folder.path())?;
    let archive = archive.to_str().context("a path in UTF-8")?;
    let lines: [&[&str]; 4] = [
        &["report", "-o", "none/x.html", archive],
        &["export", "--perfetto", "-o", "none/x.pftrace", archive],
        &["export", "--csv", "-o", "none/x", archive],
        &["bench", "run", "seq", "--quick", "-o", "none/x.fathom"],
    ];
    for line in lines {
        let output = out(Command::new(fathom()).args(line).current_dir(folder.path()))?;
        let said = messages(&output);
        ensure!(output.status.code() == Some(1) && said.contains("mkdir -p none"), "{line:?}: {said}");
    }
    Ok(())
}

fn unwritable_folder() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut report = unprivileged(folder.path())?;
    let archive = copied(folder.path())?;
    run(Command::new("chmod").args(["-R", "a+rX,a-w"]).arg(folder.path()))?;
    let output = out(report.arg("report").arg(&archive))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains(&*folder.path().to_string_lossy()), "{said}");
    ensure!(said.contains("ermission denied") && !said.contains("panicked"), "{said}");
    Ok(())
}

fn without_home() -> Result<()> {
    let mut command = Command::new(fathom());
    let output = out(command.args(["lab", "run", "scsi-ext4"]).env_remove("HOME").env_remove("XDG_CACHE_HOME"))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains("--cache DIR"), "{}: {said}", output.status);
    Ok(())
}

/// The recorder that fix starts refuses, in its own words; this program's name stands before them once.
fn fix_unprivileged() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = out(unprivileged(folder.path())?.args(["fix", "--", "true"]))?;
    let said = messages(&output);
    ensure!(output.status.code() == Some(1) && said.contains("--try NAME"), "{}: {said}", output.status);
    ensure!(said.starts_with("fathom: ") && said.matches("fathom: ").count() == 1, "{said}");
    Ok(())
}

fn without_dashes() -> Result<()> {
    let output = out(Command::new(fathom()).args(["record", "-q", "ls", "-l"]))?;
    ensure!(output.status.code() == Some(2), "{:?}", output.status);
    ensure!(messages(&output).contains("fathom record -q -- ls -l"), "{}", messages(&output));
    Ok(())
}

fn unknown_process_name() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let record = |name: &str| {
        out(Command::new(fathom()).args(["record", "--duration", "1", "--comm", name]).current_dir(folder.path()))
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
    let folder = tempfile::tempdir()?;
    let record = |pid: u32| {
        let pid = pid.to_string();
        out(Command::new(fathom()).args(["record", "--duration", "1", "--pid", &pid]).current_dir(folder.path()))
    };
    // kthreadd, where this is not within a namespace of processes.
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
    let folder = tempfile::tempdir()?;
    let record = || out(Command::new(fathom()).args(["record", "--", "true"]).current_dir(folder.path()));
    let all = [record()?, record()?, record()?].map(|output| messages(&output));
    ensure!(!all[0].contains(".old"), "{}", all[0]);
    ensure!(all[1].contains("trace.fathom.old") && !all[1].contains("deleted"), "{}", all[1]);
    ensure!(all[2].contains("trace.fathom.old") && all[2].contains("deleted"), "{}", all[2]);
    Ok(())
}

fn unknown_command() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = out(Command::new(fathom()).args(["record", "--", "no-such-command-here"]).current_dir(folder.path()))?;
    ensure!(output.status.code() == Some(127), "{:?}: {}", output.status, messages(&output));
    ensure!(messages(&output).contains("no-such-command-here"), "{}", messages(&output));
    let output = out(Command::new(fathom()).args(["record", "--", "no-such\nfathom: ok"]).current_dir(folder.path()))?;
    ensure!(messages(&output).lines().count() == 1, "{}", messages(&output));
    Ok(())
}

fn unknown_process() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = out(Command::new(fathom()).args(["record", "--pid", "4194303"]).current_dir(folder.path()))?;
    ensure!(
        output.status.code() == Some(1) && messages(&output).contains("4194303"),
        "{:?}: {}",
        output.status,
        messages(&output)
    );
    Ok(())
}

fn exit_status() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for (script, status) in [("exit 7", 7), ("kill -KILL $$", 137)] {
        let output =
            out(Command::new(fathom()).args(["record", "-q", "--", "sh", "-c", script]).current_dir(folder.path()))?;
        ensure!(
            output.status.code() == Some(status),
            "`{script}` ended with {:?}: {}",
            output.status,
            messages(&output)
        );
    }
    Ok(())
}

/// What a daemon does after its command has ended is in no recording, and that is said, whoever records; a child that ended is not named.
fn left_running() -> Result<()> {
    let folder = tempfile::tempdir()?;
    for backend in ["ebpf", "ftrace"] {
        let record = |script: &str| {
            let mut command = Command::new(fathom());
            command.args(["record", "--backend", backend, "-q", "--no-probe-cost", "--", "sh", "-c", script]);
            out(command.current_dir(folder.path()))
        };
        let output = record(
            "setsid sleep 600 <&- >&- 2>&- & echo $! >pid; until grep -qx sleep /proc/$!/comm; do :; done; exit 5",
        )?;
        let pid = fs::read_to_string(folder.path().join("pid"))?.trim().to_owned();
        run(Command::new("kill").arg(&pid))?;
        let (said, named) = (messages(&output), format!("sleep ({pid})"));
        ensure!(output.status.code() == Some(5), "{backend}: {}: {said}", output.status);
        ensure!(said.contains(&named) && said.contains(&format!("--pid {pid}")), "{backend}: {said}");
        let left = &show(&folder.path().join("trace.fathom"))?["environment"]["trace.left_running"]["value"];
        ensure!(left.as_str() == Some(named.as_str()), "{backend}: {left}");
        let said = messages(&record("sleep 0.01 & wait")?);
        ensure!(!said.contains("still running"), "{backend}: {said}");
    }
    Ok(())
}

/// INSERTs for ever, one a time.
const ENDLESS: &str =
    "PATH=$PATH; f=$0; sqlite3 $f 'create table t(i)'; while :; do sqlite3 $f 'insert into t values (1)'; done";

/// A recording in a process group of its own, so that a signal reaches just what it is sent to; ended when dropped.
struct Recording(Child);

impl Recording {
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
        until("an end of the recording", || Ok(self.0.try_wait()?.is_some()))?;
        Ok(self.0.wait()?)
    }
}

impl Drop for Recording {
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
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let (archive, database) = (folder.path().join("t.fathom"), disk.path().join("t.db"));
    let mut recording = Recording::start(&archive, &[], &["sh", "-c", ENDLESS, &database.to_string_lossy()])?;
    until("an INSERT", || Ok(has_rows(&database, 5)))?;
    recording.signal("INT", true)?;
    recording.ended()?;
    ensure!(number(shape(&show(&archive)?, "INSERT")?, "/count")? >= 5.0, "the INSERTs before Ctrl-C are gone");
    Ok(())
}

fn killed_child() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let database = disk.path().join("t.db");
    let script =
        format!("sqlite3 {0} 'create table t(i); insert into t values (1);'; kill -KILL $$", database.display());
    let archive = folder.path().join("t.fathom");
    let output =
        out(Command::new(fathom()).args(["record", "-q", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]))?;
    ensure!(output.status.code() == Some(137), "{:?}", output.status);
    ensure!(number(shape(&show(&archive)?, "INSERT")?, "/count")? >= 1.0, "the INSERT before the kill is gone");
    Ok(())
}

fn killed_tracer() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let (archive, database) = (folder.path().join("t.fathom"), disk.path().join("t.db"));
    let mut recording = Recording::start(&archive, &[], &["sh", "-c", ENDLESS, &database.to_string_lossy()])?;
    // Until what is written so far shows an INSERT: no size tells, since a busy machine's other events fill chunks too.
    let copy = folder.path().join("copy.fathom");
    until("an INSERT in the log", || {
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        if !has_rows(&database, 1) || !Command::new("cp").arg("-r").args([&archive, &copy]).status()?.success() {
            return Ok(false);
        }
        Ok(show(&copy).is_ok_and(|summary| shape(&summary, "INSERT").is_ok()))
    })?;
    recording.signal("KILL", false)?;
    recording.ended()?;
    let summary = show(&archive)?;
    ensure!(number(shape(&summary, "INSERT")?, "/count")? >= 1.0, "the log of a killed recorder shows nothing");
    ensure!(
        summary["trace"]["complete"] == serde_json::Value::Bool(false),
        "a recording cut short calls itself complete"
    );
    Ok(())
}

/// A tmpfs of its own for the archive; the mount goes before its folder.
struct Small(Tmpfs, #[expect(dead_code, reason = "it is for its end")] tempfile::TempDir);

impl Small {
    fn new(size: &str) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        Ok(Self(Tmpfs::new(folder.path().join("small"), size)?, folder))
    }

    fn path(&self) -> &Path {
        &self.0.0
    }
}

/// Many INSERTs by one process.
fn many(database: &Path, rows: u32) -> String {
    format!(
        "sqlite3 {0} 'create table t(i)'; for i in $(seq {rows}); do echo 'insert into t values (1);'; done | sqlite3 {0}",
        database.display()
    )
}

fn full_disk() -> Result<()> {
    let disk = ext4()?;
    // A limit that was not reached excuses nothing.
    for (database, limit) in [("t.db", &[][..]), ("u.db", &["--max-size", "1G"])] {
        full_disk_with(&disk.path().join(database), limit).with_context(|| format!("{limit:?}"))?;
    }
    Ok(())
}

fn full_disk_with(database: &Path, limit: &[&str]) -> Result<()> {
    let small = Small::new("2m")?;
    let archive = small.path().join("t.fathom");
    let script = many(database, 8000);
    let mut command = Command::new(fathom());
    command.args(["record", "-o"]).arg(&archive).args(limit).args(["--", "sh", "-c", &script]);
    let output = out(&mut command)?;
    let messages = messages(&output);
    ensure!(messages.contains("full") || messages.contains("No space"), "{messages}");
    // The command ended well, and the recording did not.
    ensure!(output.status.code() == Some(1), "{}: {messages}", output.status);
    ensure!(messages.contains("is incomplete") && messages.contains("CMD ended with status 0"), "{messages}");
    // The tables do not fit beside the log; on a disk with more space everything that was kept can be seen.
    let roomy = tempfile::tempdir()?;
    run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path()))?;
    let summary = show(&roomy.path().join("t.fathom"))?;
    ensure!(number(shape(&summary, "INSERT")?, "/count")? >= 100.0, "what fitted was not kept");
    Ok(())
}

/// The recorder leaves room on its disk, and the command takes that too, to the last byte. What was recorded is known all the same.
fn filled_disk() -> Result<()> {
    let (small, ext4) = (Small::new("16m")?, ext4()?);
    for disk in [small.path(), ext4.path()] {
        let archive = disk.join("t.fathom");
        let fill = format!(
            "sqlite3 {0}/db 'create table t(i)'; dd if=/dev/zero of={0}/filler bs=1M; dd if=/dev/zero of={0}/rest bs=1k; exit 0",
            disk.display()
        );
        let mut command = Command::new(fathom());
        command.args(["record", "--no-probe-cost", "-o"]).arg(&archive).args(["--", "sh", "-c", &fill]);
        let said = messages(&out(&mut command)?);
        let roomy = tempfile::tempdir()?;
        run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path()))?;
        let names: Vec<_> = fs::read_dir(&archive)?.flatten().map(|entry| entry.file_name()).collect();
        ensure!(!names.iter().any(|name| name == "meta.json.tmp"), "{names:?}");
        let shown = show(&roomy.path().join("t.fathom"))?;
        let probes = shown["coverage"].as_array().map_or(0, Vec::len);
        ensure!(probes > 20, "{probes} probes are known: {said}");
        ensure!(shown["environment"]["trace.end"]["value"].is_string(), "the facts are lost: {said}");
    }
    Ok(())
}

fn no_room_for_tables() -> Result<()> {
    let disk = ext4()?;
    // What tables take: half of it is left when the log is stored. How long logs are differs too much to say it before.
    let roomy = tempfile::tempdir()?;
    let whole = record(roomy.path(), &[], &["sh", "-c", &many(&disk.path().join("u.db"), 200)])?;
    let size = |path: &Path| fs::metadata(path).map_or(0, |about| about.len());
    let tables: u64 = fs::read_dir(whole.join("tables"))?.flatten().map(|entry| size(&entry.path())).sum();
    let small = Small::new("64m")?;
    let archive = small.path().join("t.fathom");
    // It waits at its stdin, which makes no events, until the log is stored and the disk filled.
    let done = roomy.path().join("done");
    let script = format!("{}; : > {}; read x; exit 3", many(&disk.path().join("t.db"), 200), done.display());
    let mut command = Command::new(fathom());
    command.args(["record", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    until("the end of the INSERTs", || {
        ensure!(child.try_wait()?.is_none(), "the recording ended before its command");
        Ok(done.exists())
    })?;
    // The recorder stores what it has once a second. Others' device commands may still come in; for a few of them there is room.
    let (mut stored, mut since) = (0, Instant::now());
    until("a log that grows no more", || {
        let now = size(&archive.join("events.log"));
        if now.saturating_sub(stored) > 32 << 10 {
            (stored, since) = (now, Instant::now());
        }
        Ok(now > 0 && since.elapsed() > Duration::from_secs(4))
    })?;
    let fill = format!(
        "fallocate -l $(($(stat -f -c '%a * %S' {0}) - {1})) {0}/filler",
        small.path().display(),
        tables / 2 + (80 << 10)
    );
    run(Command::new("sh").args(["-c", &fill]))?;
    // Closes its stdin.
    let output = child.wait_with_output()?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(3), "not the command's status: {:?}: {messages}", output.status);
    ensure!(
        messages.contains("a disk with more space") && messages.contains("not linked") && !messages.contains("next:"),
        "{messages}"
    );
    run(Command::new("cp").arg("-r").arg(&archive).arg(roomy.path().join("copy.fathom")))?;
    near("INSERTs", number(shape(&show(&roomy.path().join("copy.fathom"))?, "INSERT")?, "/count")?, 200.0)
}

fn max_size() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let archive = folder.path().join("t.fathom");
    let script = many(&disk.path().join("t.db"), 3000);
    let mut command = Command::new(fathom());
    command.args(["record", "-q", "--max-size", "200K", "-o"]).arg(&archive).args(["--", "sh", "-c", &script]);
    let output = run(&mut command)?;
    ensure!(
        messages(&output).contains("ended early"),
        "nothing says that the limit was reached: {}",
        messages(&output)
    );
    let size = fs::metadata(archive.join("events.log"))?.len();
    ensure!(size <= 200 << 10, "the log has {size} bytes");
    let count = number(shape(&show(&archive)?, "INSERT")?, "/count")?;
    ensure!((1.0..3000.0).contains(&count), "{count} INSERTs of 3,000");
    Ok(())
}

fn recorded(folder: &Path) -> Result<std::path::PathBuf> {
    let disk = ext4()?;
    record(folder, &[], &["sh", "-c", &many(&disk.path().join("t.db"), 200)])
}

fn cut_short() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = recorded(folder.path())?;
    let whole = number(shape(&show(&archive)?, "INSERT")?, "/count")?;
    let log = archive.join("events.log");
    let bytes = fs::read(&log)?;
    fs::write(&log, &bytes[..bytes.len() - 7])?;
    run(Command::new(fathom()).arg("reindex").arg(&archive))?;
    let summary = show(&archive)?;
    let left = shape(&summary, "INSERT").and_then(|s| number(s, "/count")).unwrap_or(0.0);
    ensure!(left <= whole, "a shorter log shows more");
    ensure!(!summary["loss"]["intervals"].as_array().context("intervals")?.is_empty(), "the cut is not told as a loss");
    // Cut at the edge of a chunk, the log itself shows nothing.
    let all = number(&summary, "/loss/events")?;
    fs::write(&log, [])?;
    run(Command::new(fathom()).arg("reindex").arg(&archive))?;
    let none = number(&show(&archive)?, "/loss/events")?;
    ensure!(none > all && none > 1000.0, "of an empty log {none} events are told as lost");
    Ok(())
}

fn damaged_table() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = recorded(folder.path())?;
    let table = archive.join("tables/spans.parquet");
    let mut bytes = fs::read(&table)?;
    let end = bytes.len() - 40;
    bytes[end..].fill(0xff);
    fs::write(&table, bytes)?;
    let output = out(Command::new(fathom()).arg("show").arg(&archive))?;
    let messages = messages(&output);
    ensure!(
        output.status.code() == Some(1) && messages.contains("spans") && messages.contains("fathom reindex"),
        "{messages}"
    );
    run(Command::new(fathom()).arg("reindex").arg(&archive))?;
    run(Command::new(fathom()).arg("show").arg(&archive))?;
    // A single bit must not become a number.
    let mut bytes = fs::read(&table)?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&table, bytes)?;
    let output = out(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(output.status.code() == Some(1), "a flipped bit was not seen: {:?}", output.status);
    Ok(())
}

fn newer_archive() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = recorded(folder.path())?;
    let meta = archive.join("meta.json");
    let mut value: serde_json::Value = serde_json::from_slice(&fs::read(&meta)?)?;
    value["version"] = 999.into();
    fs::write(&meta, value.to_string())?;
    let output = out(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(output.status.code() == Some(1) && messages(&output).contains("999"), "{}", messages(&output));
    // The name of the maker is untrusted text.
    value["made_by"] = "Fathom \u{1b}[31m9".into();
    fs::write(&meta, value.to_string())?;
    let output = out(Command::new(fathom()).arg("show").arg(&archive))?;
    ensure!(!output.stderr.contains(&0x1b), "an escape sequence of an archive reaches the terminal");
    Ok(())
}

fn foreign_folder() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let precious = folder.path().join("photos.fathom");
    fs::create_dir(&precious)?;
    fs::write(precious.join("wedding.jpg"), "precious")?;
    let output = out(Command::new(fathom()).args(["record", "-o"]).arg(&precious).args(["--", "true"]))?;
    ensure!(output.status.code() == Some(1), "{:?}", output.status);
    ensure!(fs::read_to_string(precious.join("wedding.jpg"))? == "precious", "the folder was touched");
    Ok(())
}

fn removed_meanwhile() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(fathom());
    command.args(["record", "-o", "t.fathom", "--", "rm", "-r", "t.fathom"]).current_dir(folder.path());
    let output = out(&mut command)?;
    let messages = messages(&output);
    ensure!(output.status.code() == Some(1), "{:?}: {messages}", output.status);
    ensure!(messages.contains("was removed while it was being written") && !messages.contains("kept"), "{messages}");
    Ok(())
}

fn hostile_sql() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let script = format!(
        r#"printf 'create table "<img src=x onerror=alert(1)>\033[31m" (a);\ninsert into "<img src=x onerror=alert(1)>\033[31m" values (\047s3cr3t-t0ken\047);\n' | sqlite3 {}"#,
        disk.path().join("t.db").display()
    );
    let archive = record(folder.path(), &[], &["sh", "-c", &script])?;
    let shown = run(Command::new(fathom()).arg("show").arg(&archive))?.stdout;
    ensure!(!shown.contains(&0x1b), "an escape sequence of the traced program reaches the terminal");
    run(Command::new(fathom()).arg("report").arg(&archive))?;
    let page = fs::read_to_string(folder.path().join("t.html"))?;
    ensure!(!page.contains("<img src=x"), "HTML of the traced program is part of the page");
    run(Command::new(fathom()).args(["export", "--csv"]).arg(&archive).arg("-o").arg(folder.path().join("csv")))?;
    run(Command::new(fathom()).args(["export", "--perfetto"]).arg(&archive).arg("-o").arg(folder.path().join("p")))?;
    // A name of a file may hold anything but `/`.
    let name = disk.path().join("\u{1b}[2J\u{9b}1A\u{202e}bd.t");
    let script = r#"import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute("create table t (a)"); d.execute("insert into t values (1)"); d.commit()"#;
    let archive = record(folder.path(), &[], &["python3", "-c", script, &name.to_string_lossy()])?;
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
    let secret = Command::new("grep").args(["-rlF", "s3cr3t-t0ken"]).arg(folder.path()).output()?;
    ensure!(secret.stdout.is_empty(), "a literal was stored: {}", String::from_utf8_lossy(&secret.stdout));
    Ok(())
}

fn no_sqlite() -> Result<()> {
    let (folder, disk) = (tempfile::tempdir()?, ext4()?);
    let file = disk.path().join("f");
    let archive = record(
        folder.path(),
        &[],
        &["dd", "if=/dev/zero", &format!("of={}", file.display()), "bs=4k", "count=8", "conv=fsync"],
    )?;
    let summary = show(&archive)?;
    // A call that waits for the medium is an operation of its own there.
    let operations = summary["operations"].as_array().context("no operations")?;
    ensure!(operations.len() == 1 && operations[0]["statement"] == "fsync f", "{operations:?}");
    ensure!(number(&summary, &format!("/device_commands/by_disk/{}/total", disk.name()))? >= 1.0, "dd wrote nothing");
    let shown = run(Command::new(fathom()).arg("show").arg(&archive))?.stdout;
    let shown = String::from_utf8(shown)?;
    ensure!(shown.contains("No SQLite"), "{shown}");
    Ok(())
}

/// Every load on storage, ended in the midst by each signal that a user or a system sends.
fn interrupted_load() -> Result<()> {
    let folder = tempfile::tempdir()?;
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
                .arg(folder.path())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()?;
            until("a file of the workload", || {
                ensure!(child.try_wait()?.is_none(), "{name} made nothing");
                Ok(fs::read_dir(folder.path())?.next().is_some())
            })?;
            // A fixed wait: into the load, not only what prepares it; but whenever it comes, the same must hold.
            std::thread::sleep(Duration::from_millis(200));
            run(Command::new("kill").args([signal, &child.id().to_string()]))?;
            let status = child.wait()?;
            ensure!(status.code() == Some(130), "{name} {options:?}: {status}");
            let left: Vec<_> = fs::read_dir(folder.path())?.collect();
            ensure!(left.is_empty(), "{name} {options:?} left {left:?}");
        }
    }
    Ok(())
}

/// A pipe whose reader is gone.
fn nobody() -> Result<Stdio> {
    let (reader, writer) = std::io::pipe()?;
    drop(reader);
    Ok(writer.into())
}

fn nobody_reads_stderr() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = folder.path().join("t.fathom");
    // The second time there is an old recording to remark on as well.
    for _ in 0..2 {
        let status = Command::new(fathom())
            .args(["record", "-o"])
            .arg(&archive)
            .args([
                "--",
                "sh",
                "-c",
                "sqlite3 \"$0\" 'CREATE TABLE t(x); INSERT INTO t VALUES(1); DROP TABLE t'; exit 7",
            ])
            .arg(folder.path().join("db"))
            .stdin(Stdio::null())
            .stderr(nobody()?)
            .status()?;
        ensure!(status.code() == Some(7), "{status}");
        let shown = show(&archive)?;
        ensure!(number(shape(&shown, "INSERT")?, "/count")? == 1.0, "the INSERT is missing");
    }
    Ok(())
}

fn nobody_reads_stdout() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let archive = record(folder.path(), &[], &["sqlite3", "-batch", ":memory:", "SELECT 1"])?;
    let page = folder.path().join("page.html");
    let (archive, page) = (archive.to_string_lossy().into_owned(), page.to_string_lossy().into_owned());
    let lines: [&[&str]; 11] = [
        &["workload", "spin", "--iterations", "50000", "--inner", "1"],
        &["show", &archive],
        &["show", "--json", &archive],
        &["report", &archive, "-o", &page],
        &["export", "--events", &archive],
        &["export", "--events", "-o", "-", &archive],
        &["export", "--perfetto", "-o", "-", &archive],
        &["bench", "list"],
        &["completions", "bash"],
        &["man"],
        &["--help"],
    ];
    for line in lines {
        let output = out(Command::new(fathom()).args(line).stdout(Stdio::null()))?;
        ensure!(output.status.success(), "{line:?} with a reader: {}: {}", output.status, messages(&output));
        let mut child = Command::new(fathom());
        child.args(line).stdin(Stdio::null()).stdout(nobody()?).stderr(Stdio::piped());
        let output = child.spawn()?.wait_with_output()?;
        ensure!(output.status.success(), "{line:?}: {}: {}", output.status, messages(&output));
        ensure!(
            !messages(&output).contains("panicked") && !messages(&output).contains("Broken pipe"),
            "{}",
            messages(&output)
        );
    }
    ensure!(Path::new(&page).exists(), "the page was not made");
    Ok(())
}

fn full_stdout() -> Result<()> {
    let spin = ["workload", "spin", "--iterations", "3", "--inner", "1"];
    let device = ["device", "info", "local"];
    let help = ["workload", "spin", "--help"];
    for line in [
        &["man"] as &[&str],
        &["bench", "list"],
        &["completions", "bash"],
        &["lab", "list"],
        &["--version"],
        &["--help"],
        &["help", "record"],
        &["bench", "run", "-h"],
        &help,
        &device,
        &spin,
    ] {
        let full = fs::File::options().write(true).open("/dev/full")?;
        let child = Command::new(fathom()).args(line).stdout(full).stderr(Stdio::piped()).spawn()?;
        let output = child.wait_with_output()?;
        ensure!(output.status.code() == Some(1), "{line:?}: {}", output.status);
        ensure!(messages(&output).contains("No space left"), "{line:?}: {}", messages(&output));
    }
    Ok(())
}
