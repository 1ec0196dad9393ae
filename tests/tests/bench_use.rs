//! User-facing behaviour around `bench`: two runs with the same name, a full disk, no terminal, useful advice, and
//! Android's modes without Android or with a fake of it.

use anyhow::{Context, Result, ensure};
use fathom_tests::bench::Directory;
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, fathom, installed, measured_processes, root, run, run_suite, wait_until};
use lab::kept::UndoGuard;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

fn main() -> ExitCode {
    let java = || installed("java").and_then(|()| installed("javac"));
    let cases: Vec<Case> = vec![
        ("live_benchmark_archive_is_not_replaced", Ok(()), two_runs),
        ("live_recording_archive_is_not_replaced", root(), two_recordings),
        ("reindex_restores_missing_meta_from_log", Ok(()), without_meta),
        ("finished_run_prints_archive_path", Ok(()), finished_run_prints_archive_path),
        ("progress_without_terminal_goes_to_stderr", Ok(()), progress_without_terminal_goes_to_stderr),
        ("gate_wait_line_shows_progress", Ok(()), gate_wait_line_shows_progress),
        ("run_and_show_write_same_csv_and_markdown", Ok(()), run_and_show_write_same_csv_and_markdown),
        ("compare_names_failed_gates", Ok(()), compare_names_failed_gates),
        ("run_without_results_keeps_earlier_archive", Ok(()), run_of_nothing),
        ("dir_option_is_refused_for_loads_without_files", Ok(()), dir_option_is_refused_for_loads_without_files),
        ("unknown_names_are_usage_errors", Ok(()), unknown_names_are_usage_errors),
        ("unmounted_disk_ends_run", root(), unmounted_disk_ends_run),
        ("sqlite_checks_free_space_before_start", root(), no_room),
        ("full_archive_disk_keeps_scores", root(), full_archive_disk_keeps_scores),
        ("art_modes_are_listed_and_refused_without_android", Ok(()), no_art),
        ("fake_art_gets_documented_commands_and_proves_mode", Ok(()), fake_art),
        ("runtime_without_libart_proves_no_mode", java(), false_art),
    ];
    run_suite(cases)
}

fn start_in_background(command: &mut Command) -> Result<Child> {
    Ok(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
}

fn two_runs() -> Result<()> {
    let directory = Directory::new()?;
    let mut first =
        start_in_background(&mut directory.command(&["bench", "run", "fake.toml", "-p", "pause=0.4", "--blocks=20"]))?;
    wait_until("a process in the log", || {
        let log = fs::read_to_string(directory.path("bench.fathom/runs.jsonl"));
        Ok(log.is_ok_and(|log| log.contains("{\"replicate\"")))
    })?;
    let holder = format!("bench.fathom is being written by process {}", first.id());
    for words in [
        &["bench", "run", "fake.toml"][..],
        &["bench", "run", "--resume", "bench.fathom"],
        &["reindex", "bench.fathom"],
    ] {
        let (status, _, messages) = directory.messages(words)?;
        ensure!(status == Some(1) && messages.contains(&holder), "{words:?}: {status:?}: {messages}");
    }
    ensure!(!directory.path("bench.fathom.old").exists(), "the live archive was moved");
    // Readers are allowed, even twice.
    for _ in 0..2 {
        ensure!(directory.run(&["bench", "show", "bench.fathom"])?.contains("INTERRUPTED"), "as far as it is");
    }
    // However it ends, the lock is gone.
    first.kill()?;
    first.wait()?;
    directory.run(&["bench", "run", "fake.toml", "--blocks=2"])?;
    ensure!(directory.path("bench.fathom.old").is_dir() && !directory.path("bench.fathom/lock").exists(), "as ever");
    Ok(())
}

fn two_recordings() -> Result<()> {
    let directory = Directory::new()?;
    let mut first = start_in_background(&mut directory.command(&["record", "-o", "t.fathom", "--", "sleep", "60"]))?;
    wait_until("a recording", || Ok(directory.path("t.fathom/lock").exists()))?;
    let (status, _, messages) = directory.messages(&["record", "-o", "t.fathom", "--", "true"])?;
    let held = messages.contains(&format!("being written by process {}", first.id()));
    // A second signal ends it at once.
    let pid = first.id().to_string();
    run(Command::new("kill").args(["-INT", &pid]))?;
    first.wait()?;
    ensure!(status == Some(1) && held && !directory.path("t.fathom.old").exists(), "{messages}");
    Ok(())
}

fn without_meta() -> Result<()> {
    let directory = Directory::new()?;
    let whole = directory.run(&["bench", "run", "fake.toml", "--blocks=2", "--json"])?;
    let whole: Value = serde_json::from_str(&whole)?;
    let meta = directory.path("bench.fathom/meta.json");
    for damage in [Some("{\"format\": \"fathom-arch"), None] {
        match damage {
            Some(text) => fs::write(&meta, text)?,
            None => fs::remove_file(&meta)?,
        }
        let (status, _, messages) = directory.messages(&["bench", "show", "bench.fathom"])?;
        ensure!(status == Some(1) && messages.contains("fathom reindex bench.fathom"), "{messages}");
        // The advised command does what it should, and does not give the same advice again.
        let (status, _, messages) = directory.messages(&["reindex", "bench.fathom"])?;
        ensure!(
            status == Some(0) && messages.contains("continuing with the log") && !messages.contains("fathom reindex"),
            "{messages}"
        );
        let again: Value = serde_json::from_str(&directory.run(&["bench", "show", "bench.fathom", "--json"])?)?;
        ensure!(again["results"] == whole["results"] && again["complete"] == true, "{again}");
    }
    fs::write(&meta, "{")?;
    fs::remove_file(directory.path("bench.fathom/runs.jsonl"))?;
    let (status, _, messages) = directory.messages(&["reindex", "bench.fathom"])?;
    ensure!(status == Some(1) && messages.contains("no log") && !messages.contains("fathom reindex"), "{messages}");
    Ok(())
}

fn finished_run_prints_archive_path() -> Result<()> {
    let directory = Directory::new()?;
    let (status, out, messages) = directory.messages(&["bench", "run", "fake.toml", "--blocks=2", "-o", "a.fathom"])?;
    for part in ["results are in a.fathom", "fathom bench show a.fathom", "fathom bench compare a.fathom"] {
        ensure!(status == Some(0) && messages.contains(part), "{part}: {messages}");
    }
    for line in out.lines().chain(messages.lines()) {
        ensure!(line.chars().count() <= 100, "longer than 100 columns: {line}");
    }
    let (status, out, messages) = directory.messages(&["bench", "run", "--resume", "a.fathom"])?;
    ensure!(status == Some(0) && out.contains("row/s"), "{messages}");
    ensure!(
        messages.contains("a.fathom is complete (6 processes, 2 blocks)") && messages.contains("--blocks N"),
        "{messages}"
    );
    let (_, _, messages) = directory.messages(&["bench", "run", "fake.toml", "--blocks=2", "-q", "-o", "b.fathom"])?;
    ensure!(messages.is_empty(), "quiet is quiet: {messages}");
    Ok(())
}

fn progress_without_terminal_goes_to_stderr() -> Result<()> {
    let directory = Directory::new()?;
    let (status, out, messages) = directory.messages(&["bench", "run", "fake.toml", "--json"])?;
    let value: Value = serde_json::from_str(&out)?;
    ensure!(status == Some(0) && value["complete"] == true, "{out}");
    ensure!(messages.contains("fathom: fake, warm-up: duration=") && messages.contains("(1/14)"), "{messages}");
    ensure!(
        messages.contains(" left, until ") && !messages.contains('\r') && !messages.contains('\u{1b}'),
        "{messages}"
    );
    Ok(())
}

/// A program that keeps a processor busy, until dropped.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn make_busy() -> Result<Busy> {
    Ok(Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?))
}

fn gate_wait_line_shows_progress() -> Result<()> {
    let directory = Directory::new()?;
    let _busy = make_busy()?;
    let mut command = Command::new(fathom());
    command
        .args(["bench", "run", "fake.toml", "--quick", "--blocks=2"])
        .current_dir(directory.directory_path())
        .stdin(Stdio::null());
    let messages = String::from_utf8(run(&mut command)?.stderr)?;
    let line = messages.lines().find(|l| l.contains("waiting for the machine: load"));
    // The first line of a design is printed before its first process waits, so only a long wait shows as a line.
    ensure!(line.is_none_or(|l| l.contains("/6)") && l.contains(" left")), "{messages}");
    let gates = directory.run(&["bench", "show", "bench.fathom"])?;
    ensure!(gates.contains("without passing the gate load"), "{gates}");
    Ok(())
}

fn run_and_show_write_same_csv_and_markdown() -> Result<()> {
    let directory = Directory::new()?;
    let then = directory.run(&["bench", "run", "fake.toml", "--blocks=2", "--csv=run.csv", "--markdown=run.md"])?;
    let now = directory.run(&["bench", "show", "bench.fathom", "--csv=show.csv", "--markdown=show.md"])?;
    ensure!(then == now && then.contains("row/s"), "{now}");
    for kind in ["csv", "md"] {
        let read = |of: &str| fs::read_to_string(directory.path(&format!("{of}.{kind}")));
        ensure!(read("run")? == read("show")?, "{kind}");
    }
    let csv = directory.run(&["bench", "show", "bench.fathom", "--csv", "-"])?;
    ensure!(csv == fs::read_to_string(directory.path("run.csv"))? && csv.starts_with("workload,name,"), "{csv}");
    let csv = directory.run(&["bench", "run", "fake.toml", "--blocks=2", "--csv=-"])?;
    ensure!(csv.starts_with("workload,name,") && !directory.path("-").exists(), "{csv}");
    Ok(())
}

fn compare_names_failed_gates() -> Result<()> {
    let directory = Directory::new()?;
    directory.run(&["bench", "run", "fake.toml", "--blocks=6", "-o", "a.fathom"])?;
    {
        let _busy = make_busy()?;
        directory.run(&["bench", "run", "fake.toml", "--blocks=6", "-o", "b.fathom"])?;
    }
    let (status, _, messages) =
        directory.messages(&["bench", "compare", "a.fathom", "b.fathom", "--fail-on=slower"])?;
    ensure!(status == Some(0) && messages.contains("no compared cell is slower"), "{messages}");
    ensure!(messages.contains("B: gate load not passed before") && messages.contains("measure again"), "{messages}");
    Ok(())
}

fn run_of_nothing() -> Result<()> {
    let directory = Directory::new()?;
    directory.run(&["bench", "run", "fake.toml", "--blocks=2"])?;
    let then = directory.run(&["bench", "show", "bench.fathom"])?;
    for _ in 0..3 {
        let (status, out, _) = directory.messages(&["bench", "run", "seq", "--dir=/proc", "--blocks=2"])?;
        ensure!(status == Some(1) && out.contains("not run: cannot create a directory in /proc"), "{out}");
    }
    let (_, _, messages) = directory.messages(&["bench", "run", "--resume", "bench.fathom"])?;
    ensure!(messages.contains("none of it could run"), "{messages}");
    ensure!(directory.run(&["bench", "show", "bench.fathom.old"])? == then, "the results have gone");
    Ok(())
}

fn dir_option_is_refused_for_loads_without_files() -> Result<()> {
    let directory = Directory::new()?;
    let (status, _, messages) = directory.messages(&["bench", "run", "linpack", "--dir=."])?;
    ensure!(status == Some(2) && messages.contains("--dir: linpack has no files"), "{status:?}: {messages}");
    ensure!(!directory.path("bench.fathom").exists(), "nothing was made");
    Ok(())
}

fn unknown_names_are_usage_errors() -> Result<()> {
    let directory = Directory::new()?;
    directory.run(&["bench", "run", "fake.toml", "--blocks=2"])?;
    for (words, part) in [
        (&["bench", "list", "sqlight"][..], "unknown workload \"sqlight\""),
        (&["bench", "selftest", "sqlight"], "unknown workload \"sqlight\""),
        (&["bench", "compare", "bench.fathom", "--by=speed"], "speed"),
        (&["papers", "009/1"], "unknown figure \"009/1\""),
    ] {
        let (status, _, messages) = directory.messages(words)?;
        ensure!(status == Some(2) && messages.contains(part), "{words:?}: {status:?}: {messages}");
    }
    Ok(())
}

fn unmounted_disk_ends_run() -> Result<()> {
    let directory = Directory::new()?;
    let card = Tmpfs::new(directory.path("card"), "4m")?;
    let design = fathom_tests::bench::FAKE_DESIGN.replace("sleep {pause}", "sleep {pause}; : >{dir}/file || exit")
        + "[[factor]]\nname = \"dir\"\nabout = \"where\"\ndefault = \".\"\ndirectory = true\n";
    fs::write(directory.path("stored.toml"), design)?;
    let words =
        ["bench", "run", "stored.toml", "--dir=card=card", "-p", "duration=1000", "-p", "pause=0.4", "--blocks=20"];
    let ended = |archive: &str| {
        let log = fs::read_to_string(directory.path(archive).join("runs.jsonl")).unwrap_or_default();
        log.lines().filter(|line| line.starts_with("{\"replicate\"")).count()
    };
    let mut first = start_in_background(&mut directory.command(&words))?;
    wait_until("three processes", || Ok(ended("bench.fathom") >= 3))?;
    run(Command::new("umount").arg("-l").arg(&card.0))?;
    first.wait()?;
    let value: Value = serde_json::from_str(&directory.run(&["bench", "show", "bench.fathom", "--json"])?)?;
    let result = &value["results"][0];
    let absent = result["absent"].as_str().context("it went on elsewhere")?;
    ensure!(
        absent.contains("given up") && absent.contains("no longer at") && absent.contains("Mount the storage"),
        "{absent}"
    );
    ensure!(result["processes"].as_u64().is_some_and(|n| (1..19).contains(&n)), "what was measured is kept: {result}");
    ensure!(fs::read_dir(directory.path("card"))?.next().is_none(), "files were made under the card");

    // An interrupted run is not resumed on another disk, but on its own.
    let another = UndoGuard::mount("ramfs", "defaults", &card.0)?;
    let mut first = start_in_background(&mut directory.command(&[&words[..], &["-o", "b.fathom"]].concat()))?;
    wait_until("two processes", || Ok(ended("b.fathom") >= 2))?;
    first.kill()?;
    first.wait()?;
    drop(another);
    let (status, _, messages) = directory.messages(&["bench", "run", "--resume", "b.fathom"])?;
    ensure!(
        status == Some(1) && messages.contains("different storage") && messages.contains("fs.type was ramfs"),
        "{messages}"
    );
    let _again = UndoGuard::mount("ramfs", "defaults", &card.0)?;
    let value: Value = serde_json::from_str(&directory.run(&["bench", "run", "--resume", "b.fathom", "--json"])?)?;
    ensure!(value["complete"] == true && measured_processes(&value["results"][0])? == 20.0, "{value}");
    Ok(())
}

fn no_room() -> Result<()> {
    let directory = Directory::new()?;
    let _disk = Tmpfs::new(directory.path("small"), "16m")?;
    let sqlite = |words: &[&str]| {
        directory.messages(&[&["workload", "sqlite", "--dir=small", "--per-transaction=1000"][..], words].concat())
    };
    // 100,000 rows are some 13 MB, plus a write-ahead log.
    let (status, _, messages) = sqlite(&["--rows=100000", "--journal-mode=wal"])?;
    ensure!(
        status == Some(1) && messages.contains("not enough space for") && messages.contains("--rows"),
        "{messages}"
    );
    let (status, out, messages) = sqlite(&["--rows=1000"])?;
    ensure!(status == Some(0) && out.contains("\"verified\":true"), "{messages}");
    ensure!(fs::read_dir(directory.path("small"))?.next().is_none(), "files were left");
    Ok(())
}

fn full_archive_disk_keeps_scores() -> Result<()> {
    let directory = Directory::new()?;
    let disk = Tmpfs::new(directory.path("small"), "4m")?;
    let filler = disk.0.join("filler");
    // As much space as the log takes, and three pages for tables, which need more than that.
    directory.run(&["bench", "run", "fake.toml", "--blocks=2", "-o", "small/b.fathom"])?;
    let pages = |file: &str| -> Result<u64> {
        Ok(fs::metadata(directory.path("small/b.fathom").join(file))?.len().div_ceil(4096))
    };
    let room = pages("runs.jsonl")? + 2 * pages("meta.json")? + 1 + 3;
    fs::remove_dir_all(directory.path("small/b.fathom"))?;
    fs::write(&filler, vec![1; ((1024 - room) as usize) << 12])?;
    let (status, out, messages) =
        directory.messages(&["bench", "run", "fake.toml", "--blocks=2", "-o", "small/b.fathom"])?;
    ensure!(status == Some(1) && out.contains("row/s") && out.contains("duration=2000"), "{status:?}: {out}{messages}");
    ensure!(
        messages.contains("runs.jsonl, which is kept") && messages.contains("fathom reindex small/b.fathom"),
        "{messages}"
    );
    ensure!(!messages.to_lowercase().contains("panicked"), "{messages}");
    fs::remove_file(&filler)?;
    directory.run(&["reindex", "small/b.fathom"])?;
    ensure!(directory.run(&["bench", "show", "small/b.fathom"])? == out, "what was shown then");
    Ok(())
}

fn no_art() -> Result<()> {
    if installed("dalvikvm64").is_ok() || installed("app_process64").is_ok() {
        return Ok(());
    }
    let directory = Directory::new()?;
    for workload in ["linpack", "scimark", "himeno"] {
        let list = directory.run(&["bench", "list", workload])?;
        for mode in ["art-interpreter", "art-jit", "art-aot"] {
            let reason = format!("not available (mode={mode}): no Android runtime");
            ensure!(list.contains(&reason), "{workload} {mode}: {list}");
        }
        let (status, out, messages) = directory.messages(&["workload", workload, "--mode=art-jit"])?;
        ensure!(
            status == Some(1) && out.is_empty() && messages.contains("dalvikvm64") && messages.contains("java/dex"),
            "{messages}"
        );
    }
    // In a run it is one cell with the reason, next to those that can be run.
    let words = ["bench", "run", "linpack", "-p", "mode=c-O2,art-aot", "-p", "size=100", "--blocks=2", "--json"];
    let value: Value = serde_json::from_str(&directory.run(&words)?)?;
    let cell = |mode: &str| value["results"].as_array().into_iter().flatten().find(|r| r["parameters"]["mode"] == mode);
    ensure!(cell("c-O2").context("c-O2")?["processes"] == 2, "{value}");
    let absent = cell("art-aot").context("art-aot")?["absent"].as_str().context("a reason")?;
    ensure!(absent.contains("Android device") && absent.contains("dalvikvm64"), "{absent}");
    Ok(())
}

/// A FAKE of ART's launcher and compiler: scripts that accept their command lines and print what `fathom.Main` prints on
/// a device. Its "memory map" is the file `maps`, so that a test determines what it proves.
fn fake_adb(directory: &Directory) -> Result<PathBuf> {
    let bin = directory.path("bin");
    fs::create_dir(&bin)?;
    let here = directory.directory_path().display();
    let machine = format!(
        r#"#!/bin/sh
echo "$@" >> {here}/commands
[ -s {here}/maps ] && cat {here}/maps
echo '{{"mark":"art","text":"Dalvik 2.1.0"}}'
echo '{{"mark":"inner","text":"1"}}'
echo '{{"metric":"work","unit":"flop","t":1,"v":1000}}'
for t in 1 2 3 4 5; do echo "{{\"metric\":\"iteration\",\"unit\":\"ns\",\"t\":$t,\"v\":1000}}"; done
echo '{{"verified":'$(cat {here}/right)',"by":"a fake"}}'
[ "$(cat {here}/right)" = true ]
"#
    );
    let compiler = format!(
        "#!/bin/sh\necho dex2oat \"$@\" >> {here}/commands\nfor a; do case $a in --oat-file=*) : > \"${{a#*=}}\" ;; esac; done\n"
    );
    for (name, text) in [("dalvikvm64", machine), ("dex2oat64", compiler)] {
        lab::script::write(bin.join(name), &text)?;
    }
    fs::write(directory.path("fathom-dex.jar"), "dexed classes")?;
    fs::write(directory.path("right"), "true")?;
    Ok(bin)
}

const ART_MAP_LINE: &str = "7000000000-7000a00000 r-xp 00200000 fe:05 1234 /apex/com.android.art/lib64/libart.so";
const JIT_MAP_LINE: &str = "58000000-5a000000 r-xs 02000000 00:01 99 /memfd:jit-cache (deleted)";

fn write_maps(directory: &Directory, lines: &[&str]) -> Result<()> {
    let text = lines.join("\n") + "\n";
    fs::write(directory.path("maps"), format!("{}\n", serde_json::json!({"mark": "art.maps", "text": text})))?;
    Ok(())
}

fn fake_art() -> Result<()> {
    let directory = Directory::new()?;
    let bin = fake_adb(&directory)?;
    let path = format!("{}:{}", bin.display(), std::env::var("PATH")?);
    let jar = format!("--dex-jar={}", directory.path("fathom-dex.jar").display());
    let art = |mode: &str| -> Result<(Option<i32>, String, String)> {
        let words = ["workload", "linpack", "--size=100", "--mode", mode, &jar, "--iterations=5", "--inner=1"];
        let output = directory.command(&words).env("PATH", &path).output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
    };
    let odex = format!(
        "7100000000-7100010000 r-xp 00005000 fe:2c 77 {}",
        directory.path("aot/oat/arm64/fathom-dex.odex").display()
    );
    // JSON marks have their keys in alphabetical order; the runtime's own line is not printed.
    for (mode, proof, part) in [
        ("art-interpreter", vec![ART_MAP_LINE], "no JIT cache"),
        ("art-jit", vec![ART_MAP_LINE, JIT_MAP_LINE], "/memfd:jit-cache"),
        ("art-aot", vec![ART_MAP_LINE, &odex], "fathom-dex.odex is mapped executable"),
    ] {
        write_maps(&directory, &proof)?;
        let (status, out, messages) = art(mode)?;
        ensure!(
            status == Some(0) && out.contains("\"verified\":true") && out.contains("\"iteration\""),
            "{mode}: {messages}"
        );
        ensure!(out.contains(&format!("{mode}: in /proc/self/maps: ")) && out.contains(part), "{out}");
        ensure!(!out.contains("art.maps"), "{out}");
        // A proof of one mode does not prove any other.
        for other in ["art-interpreter", "art-jit", "art-aot"].iter().filter(|other| **other != mode) {
            let (status, out, messages) = art(other)?;
            ensure!(
                status == Some(1) && out.is_empty() && messages.contains("not in mode"),
                "{mode} as {other}: {out}{messages}"
            );
        }
    }
    let commands = fs::read_to_string(directory.path("commands"))?;
    let jars =
        [directory.path("fathom-dex.jar"), directory.path("aot/fathom-dex.jar")].map(|p| p.display().to_string());
    for expected in [
        format!("-Xint -Xms65m -Xmx65m -cp {} fathom.Main linpack --iterations 5 --inner 1", jars[0]),
        format!("-Xusejit:true -Xms65m -Xmx65m -cp {} fathom.Main linpack", jars[0]),
        format!("-Xusejit:false -Xms65m -Xmx65m -cp {} fathom.Main linpack", jars[1]),
        format!("dex2oat --dex-file={} --oat-file=", jars[1]),
    ] {
        ensure!(commands.contains(&expected), "{expected} is not among\n{commands}");
    }
    ensure!(commands.contains("--compiler-filter=speed"), "{commands}");
    ensure!(commands.matches("dex2oat").count() == 1, "compiled once:\n{commands}");
    // Without a proof there is no score, and neither with a wrong result.
    fs::write(directory.path("maps"), "")?;
    let (status, out, messages) = art("art-jit")?;
    ensure!(status == Some(1) && out.is_empty() && messages.contains("printed no memory map"), "{messages}");
    write_maps(&directory, &[JIT_MAP_LINE])?;
    let (status, out, messages) = art("art-jit")?;
    ensure!(status == Some(1) && out.is_empty() && messages.contains("libart.so"), "{messages}");
    write_maps(&directory, &[ART_MAP_LINE, JIT_MAP_LINE])?;
    fs::write(directory.path("right"), "false")?;
    let (status, out, messages) = art("art-jit")?;
    ensure!(status == Some(1) && out.contains("\"verified\":false") && messages.contains("wrong result"), "{messages}");
    // As a cell of a design, with its proof in the archive.
    fs::write(directory.path("right"), "true")?;
    let dex = format!("dex_jar={}", directory.path("fathom-dex.jar").display());
    let words = ["bench", "run", "himeno", "-p", "mode=art-jit", "-p", &dex, "--blocks=2", "--json"];
    let value: Value = serde_json::from_slice(&run(directory.command(&words).env("PATH", &path))?.stdout)?;
    let result = &value["results"][0];
    ensure!(result["processes"] == 2 && result["parameters"]["mode"] == "art-jit", "{value}");
    ensure!(result["marks"]["mode"].as_str().is_some_and(|m| m.contains("jit-cache")), "{}", result["marks"]);
    // A launcher without the jar.
    fs::remove_file(directory.path("fathom-dex.jar"))?;
    let (status, _, messages) = art("art-jit")?;
    ensure!(status == Some(1) && messages.contains("java/dex") && messages.contains("--dex-jar"), "{messages}");
    Ok(())
}

/// The real classes, run by a JVM that claims to be Android's: they print their memory map, which does not contain
/// libart.so.
fn false_art() -> Result<()> {
    let directory = Directory::new()?;
    let source = "public class Says { public static void main(String[] words) throws Exception {\n\
                  System.setProperty(\"java.vm.name\", \"Dalvik\"); fathom.Main.main(words); } }\n";
    fs::write(directory.path("Says.java"), source)?;
    let jar = directory.path("fathom-dex.jar");
    run(Command::new("sh").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../java/build")).arg(&jar))?;
    run(Command::new("javac")
        .arg("-cp")
        .arg(&jar)
        .arg("-d")
        .arg(directory.directory_path())
        .arg(directory.path("Says.java")))?;
    let launcher = directory.path("dalvikvm64");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != fathom.Main ]; do shift; done\nshift\nexec java -cp {}:{} Says \"$@\"\n",
        jar.display(),
        directory.directory_path().display()
    );
    lab::script::write(&launcher, &script)?;
    let (art, dex) = (format!("--art={}", launcher.display()), format!("--dex-jar={}", jar.display()));
    let words =
        ["workload", "linpack", "--size=100", "--mode=art-interpreter", &art, &dex, "--iterations=2", "--inner=1"];
    let (status, out, messages) = directory.messages(&words)?;
    ensure!(
        status == Some(1) && out.is_empty() && messages.contains("the runtime itself (libart.so)"),
        "{status:?}: {out}{messages}"
    );
    Ok(())
}
