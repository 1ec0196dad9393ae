//! Early ends of measurements: Ctrl-C, SIGTERM, SIGKILL, a full disk. Existing files stay, nothing keeps running, nothing is left.

use anyhow::{Context, Result, ensure};
use fathom_tests::bench::Directory;
use fathom_tests::tmpfs::Tmpfs;
use fathom_tests::{Case, fathom, root, run, run_suite, wait_until};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("interrupted_papers_benchmark_writes_no_page", Ok(()), interrupted_papers_benchmark_writes_no_page),
        ("interrupted_papers_recording_writes_no_page", root(), papers_recorded),
        ("interrupted_demo_keeps_old_page", root(), interrupted_demo_keeps_old_page),
        ("interrupted_run_names_command_that_writes_its_files", Ok(()), run_files),
        ("full_disk_leaves_existing_files_unchanged", root(), no_room),
        ("sigkilled_run_kills_its_descendants", Ok(()), sigkilled_run_kills_its_descendants),
        ("damaged_log_advice_restores_complete_run", Ok(()), damaged_log_advice_restores_complete_run),
        ("load_started_mid_run_gives_no_verdict", Ok(()), half_way),
        ("own_threads_and_io_wait_are_no_disturbance", root(), own_load),
    ];
    run_suite(cases)
}

/// Starts it; its messages go to a file.
fn start_run(directory: &Directory, words: &[&str]) -> Result<Child> {
    let log = fs::File::create(directory.path("said"))?;
    Ok(directory.command(words).stdout(Stdio::null()).stderr(log).spawn()?)
}

/// The messages of the process that was started last.
fn messages_of_last(directory: &Directory) -> Result<String> {
    Ok(fs::read_to_string(directory.path("said"))?)
}

/// Replicates in an archive's log.
fn replicates_in_log(directory: &Directory, archive: &str) -> usize {
    let log = fs::read_to_string(directory.path(archive).join("runs.jsonl")).unwrap_or_default();
    log.lines().filter(|line| line.contains("{\"replicate\":{\"id\"")).count()
}

/// Sends a signal by its name; a signal to an ended process is lost.
fn send_signal(child: &Child, name: &str) -> Result<()> {
    Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).stderr(Stdio::null()).status()?;
    Ok(())
}

fn interrupted_papers_benchmark_writes_no_page() -> Result<()> {
    for name in ["INT", "TERM"] {
        let directory = Directory::new()?;
        fs::write(directory.path("page.md"), "made yesterday\n")?;
        let mut child = start_run(&directory, &["papers", "--quick", "-o", "page.md", "000/9"])?;
        wait_until("a process", || Ok(replicates_in_log(&directory, "papers-bench.fathom") > 0))?;
        send_signal(&child, name)?;
        let status = child.wait()?;
        let messages = messages_of_last(&directory)?;
        ensure!(status.code() == Some(130), "{name}: {status:?}: {messages}");
        ensure!(fs::read_to_string(directory.path("page.md"))? == "made yesterday\n", "the page was replaced");
        ensure!(messages.contains("page.md was not written") && messages.contains("papers-bench.fathom"), "{messages}");
        ensure!(replicates_in_log(&directory, "papers-bench.fathom") > 0, "what was measured has gone");
    }
    Ok(())
}

fn papers_recorded() -> Result<()> {
    let directory = Directory::new()?;
    fs::write(directory.path("page.md"), "made yesterday\n")?;
    let mut child = start_run(&directory, &["papers", "-o", "page.md", "000/11"])?;
    wait_until("a recording", || Ok(directory.path("papers.fathom/lock").exists()))?;
    send_signal(&child, "INT")?;
    let status = child.wait()?;
    let messages = messages_of_last(&directory)?;
    ensure!(status.code() == Some(130) && messages.contains("page.md was not written"), "{status:?}: {messages}");
    ensure!(fs::read_to_string(directory.path("page.md"))? == "made yesterday\n", "the page was replaced");
    Ok(())
}

fn interrupted_demo_keeps_old_page() -> Result<()> {
    let directory = Directory::new()?;
    fs::write(directory.path("demo.html"), "made yesterday\n")?;
    let mut child = start_run(&directory, &["demo", "--rows=100000"])?;
    wait_until("a recording", || Ok(directory.path("demo.fathom/lock").exists()))?;
    send_signal(&child, "INT")?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status:?}: {}", messages_of_last(&directory)?);
    ensure!(fs::read_to_string(directory.path("demo.html"))? == "made yesterday\n", "the page was replaced");
    ensure!(!directory.path("demo.pftrace").exists(), "a trace of half of it");
    Ok(())
}

fn run_files() -> Result<()> {
    let directory = Directory::new()?;
    fs::write(directory.path("r.md"), "made yesterday\n")?;
    let words = ["bench", "run", "fake.toml", "-p", "pause=0.4", "--blocks=4", "--markdown=r.md"];
    let mut child = start_run(&directory, &[&words[..], &["--csv=r.csv"]].concat())?;
    wait_until("a process", || Ok(replicates_in_log(&directory, "bench.fathom") > 0))?;
    send_signal(&child, "INT")?;
    let status = child.wait()?;
    let messages = messages_of_last(&directory)?;
    ensure!(status.code() == Some(130) && messages.contains("(the run is incomplete)"), "{messages}");
    ensure!(fs::read_to_string(directory.path("r.md"))? == "made yesterday\n", "the page was replaced");
    ensure!(!directory.path("r.csv").exists(), "half a table");
    // The advice is a command that works.
    let advice = messages.lines().find_map(|l| l.split("continue with: fathom ").nth(1)).context("no advice")?;
    let words: Vec<&str> = advice.split(' ').collect();
    let (status, _, messages) = directory.messages(&words)?;
    ensure!(status == Some(0), "{advice}: {messages}");
    ensure!(
        fs::read_to_string(directory.path("r.md"))?.contains("| duration=2000 ") && directory.path("r.csv").exists(),
        ""
    );
    Ok(())
}

/// Tests every verb that writes a file other than an archive.
fn no_room() -> Result<()> {
    let directory = Directory::new()?;
    run(&mut directory.command(&["bench", "run", "fake.toml", "--blocks=2"]))?;
    run(&mut directory.command(&["record", "-q", "-o", "t.fathom", "--", "true"]))?;
    let _small = Tmpfs::new(directory.path("small"), "64k")?;
    fs::create_dir(directory.path("small/out"))?;
    for name in ["file", "out/designs.csv", "out/designs.parquet"] {
        fs::write(directory.path("small").join(name), "made yesterday\n")?;
    }
    // Fills the remaining space: a write of one more page fails.
    let mut filler = fs::File::create(directory.path("small/filler"))?;
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    let names = || -> Result<BTreeSet<PathBuf>> {
        let list =
            |at: PathBuf| Ok::<_, std::io::Error>(fs::read_dir(at)?.flatten().map(|e| e.path()).collect::<Vec<_>>());
        Ok(list(directory.path("small"))?.into_iter().chain(list(directory.path("small/out"))?).collect())
    };
    let before = names()?;
    for words in [
        &["bench", "run", "fake.toml", "--blocks=2", "-o", "c.fathom", "--markdown=small/file"][..],
        &["bench", "run", "fake.toml", "--blocks=2", "-o", "d.fathom", "--csv=small/file"],
        &["bench", "show", "bench.fathom", "--csv=small/file"],
        &["bench", "show", "bench.fathom", "--markdown=small/file"],
        &["bench", "compare", "bench.fathom", "bench.fathom", "--markdown=small/file"],
        &["papers", "--archive", "t.fathom", "000/11", "-o", "small/file"],
        &["report", "bench.fathom", "-o", "small/file"],
        &["report", "t.fathom", "-o", "small/file"],
        &["export", "t.fathom", "--perfetto", "-o", "small/file"],
        &["export", "t.fathom", "--events", "-o", "small/file"],
        &["export", "bench.fathom", "--csv", "-o", "small/out"],
        &["export", "bench.fathom", "--parquet", "-o", "small/out"],
        &["pool", "keygen", "small/key"],
    ] {
        let (status, _, messages) = directory.messages(words)?;
        ensure!(status == Some(1), "{words:?}: {status:?}: {messages}");
        ensure!(messages.contains("No space left") || messages.contains("not enough space"), "{words:?}: {messages}");
        ensure!(names()? == before, "{words:?} left {:?}", names()?.difference(&before));
        for name in ["file", "out/designs.csv", "out/designs.parquet"] {
            let text = fs::read_to_string(directory.path("small").join(name))?;
            ensure!(text == "made yesterday\n", "{words:?} replaced {name} by {text:?}");
        }
    }
    Ok(())
}

/// Whether a process of that number runs: a zombie does not.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Directories of runs in a directory.
fn run_directories(directory: &Path) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    Ok(all.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("fathom-run-"))).collect())
}

/// A process with a pipeline and a daemon, and a background process, none of which ends by itself.
fn sigkilled_run_kills_its_descendants() -> Result<()> {
    let directory = Directory::new()?;
    fs::create_dir(directory.path("disk"))?;
    let design = format!(
        r#"
name = "endless"
question = "?"
metric = "x"
better = "lower"
baseline = "one"
blocks = 1
seed = 1
[[cell]]
name = "one"
background = ["/bin/sh", "-c", "echo $$ >{at}/background; sleep 1000 | sleep 1000"]
argv = ["/bin/sh", "-c", '''
setsid sh -c 'echo $$ >{at}/daemon; sleep 1000' &
sleep 1000 | sleep 1000 & echo $! >{at}/pipeline
while [ ! -s {at}/daemon ] || [ ! -s {at}/background ]; do sleep 0.02; done
echo $$ >{at}/whole.new; mv {at}/whole.new {at}/whole
wait''']
"#,
        at = directory.directory_path().display()
    );
    fs::write(directory.path("endless.toml"), design)?;
    let mut child = start_run(&directory, &["bench", "run", "endless.toml", "-o", "e.fathom"])?;
    wait_until("its processes", || Ok(directory.path("whole").exists()))?;
    let pids: Vec<String> = ["whole", "pipeline", "daemon", "background"]
        .iter()
        .map(|name| Ok(fs::read_to_string(directory.path(name))?))
        .collect::<Result<_>>()?;
    ensure!(pids.iter().all(|pid| is_running(pid)), "not all run");
    child.kill()?;
    child.wait()?;
    wait_until("the end of all its processes", || Ok(pids.iter().all(|pid| !is_running(pid))))?;

    // A load with files: the next run on the storage under test removes leftovers there, but not the files of a live run.
    let design = fathom_tests::bench::FAKE_DESIGN.replace("sleep {pause}", ": >{dir}/file || exit; sleep {pause}")
        + "[[factor]]\nname = \"dir\"\nabout = \"where\"\ndefault = \".\"\ndirectory = true\n";
    fs::write(directory.path("stored.toml"), design)?;
    let words = ["bench", "run", "stored.toml", "--dir=disk", "-p", "pause=0.4", "--blocks=50"];
    let live_words = [&words[..], &["-o", "live.fathom"]].concat();
    let mut live = start_run(&directory, &live_words)?;
    wait_until("a process", || Ok(replicates_in_log(&directory, "live.fathom") > 0))?;
    let mut child = start_run(&directory, &words)?;
    let of = |child: &Child| -> Result<usize> {
        let mine = format!("fathom-run-{}-", child.id());
        Ok(run_directories(&directory.path("disk"))?.iter().filter(|p| p.to_string_lossy().contains(&mine)).count())
    };
    wait_until("a directory", || Ok(replicates_in_log(&directory, "bench.fathom") > 0 && of(&child)? > 0))?;
    child.kill()?;
    child.wait()?;
    ensure!(of(&child)? > 0, "it was killed while a process ran");
    let measured = replicates_in_log(&directory, "live.fathom");
    let words = ["bench", "run", "stored.toml", "--dir=disk", "--blocks=2", "-o", "next.fathom"];
    let (status, _, messages) = directory.messages(&words)?;
    ensure!(status == Some(0) && messages.contains("left behind by a killed run"), "{messages}");
    ensure!(of(&child)? == 0, "its directories are still there");
    wait_until("the live run goes on", || Ok(replicates_in_log(&directory, "live.fathom") > measured + 1))?;
    send_signal(&live, "INT")?;
    live.wait()?;
    let log = fs::read_to_string(directory.path("live.fathom/runs.jsonl"))?;
    ensure!(!log.contains("\"failure\":\""), "a directory of the live run was taken: {log}");
    ensure!(run_directories(&directory.path("disk"))?.is_empty(), "who is interrupted leaves nothing");
    Ok(())
}

/// A small seeded generator, so that failures are reproducible.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// Damages a log: removes some lines, cuts its end, or changes some of its bytes.
fn damage_log(whole: &str, random: &mut Random) -> Vec<u8> {
    let mut lines: Vec<&str> = whole.split_inclusive('\n').collect();
    match random.below(3) {
        0 => {
            for _ in 0..=random.below(lines.len() * 2 / 3) {
                lines.remove(random.below(lines.len()));
            }
            lines.concat().into_bytes()
        }
        1 => whole.as_bytes()[..random.below(whole.len())].to_vec(),
        _ => {
            let mut bytes = whole.as_bytes().to_vec();
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = b'0' + random.below(10) as u8;
            }
            bytes
        }
    }
}

fn copy_archive(from: &Path, to: &Path) -> Result<()> {
    run(Command::new("cp").arg("-r").arg(from).arg(to))?;
    Ok(())
}

/// Follows the advice, word by word, until the run is complete or is reported as impossible to complete.
fn follow_advice(directory: &Directory, archive: &str) -> Result<Option<serde_json::Value>> {
    for _ in 0..5 {
        let words = ["bench", "run", "--resume", archive, "--json"];
        let Output { status, stdout, stderr } = directory.command(&words).output()?;
        let messages = String::from_utf8_lossy(&stderr).into_owned();
        if status.success() {
            return Ok(Some(serde_json::from_slice(&stdout)?));
        }
        if ["start a new run", "start again"].iter().any(|end| messages.to_lowercase().contains(end)) {
            return Ok(None);
        }
        // The command is at the end of a sentence.
        let (_, advice) = messages.trim().rsplit_once(": ").context("no advice")?;
        ensure!(advice.starts_with("mv "), "no advice that could be followed: {messages}");
        run(Command::new("sh").args(["-c", advice]).current_dir(directory.directory_path()))?;
    }
    anyhow::bail!("the advice leads nowhere")
}

fn damaged_log_advice_restores_complete_run() -> Result<()> {
    let directory = Directory::new()?;
    // Two designs, so that losses in the first one are before the second.
    fs::write(
        directory.path("other.toml"),
        fathom_tests::bench::FAKE_DESIGN.replace("name = \"fake\"", "name = \"other\""),
    )?;
    run(&mut directory.command(&["bench", "run", "fake.toml", "other.toml", "--blocks=3", "--seed=3"]))?;
    let whole = fs::read_to_string(directory.path("bench.fathom/runs.jsonl"))?;
    // The position of each process, and when it began.
    let processes = |log: &str| -> BTreeSet<(u64, u64, u64)> {
        let rows = log.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
        let row = |v: serde_json::Value| {
            let r = v.get("replicate")?.get("replicate")?.clone();
            Some((r["cell"].as_u64()?, r["block"].as_u64()?, r["start_ns"].as_u64()?))
        };
        rows.filter_map(row).collect()
    };
    let before = processes(&whole);
    ensure!(before.len() == 16, "{}", before.len());
    let mut ended = 0;
    for seed in 1..=16_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let name = format!("d{seed}.fathom");
        copy_archive(&directory.path("bench.fathom"), &directory.path(&name))?;
        if random.below(2) == 0 {
            fs::remove_dir_all(directory.path(&name).join("tables"))?;
        }
        let log = directory.path(&name).join("runs.jsonl");
        let left = damage_log(&whole, random);
        fs::write(&log, &left)?;
        let Some(value) = follow_advice(&directory, &name).with_context(|| format!("seed {seed}"))? else { continue };
        ended += 1;
        ensure!(value["complete"] == true, "seed {seed}: {value}");
        let results = value["results"].as_array().context("results")?;
        ensure!(results.len() == 4, "seed {seed}: {value}");
        for result in results {
            ensure!(fathom_tests::measured_processes(result)? == 3.0 && result["failed"] == 0, "seed {seed}: {result}");
        }
        let after = processes(&fs::read_to_string(&log)?);
        let places: BTreeSet<(u64, u64)> = after.iter().map(|(cell, block, _)| (*cell, *block)).collect();
        ensure!(after.len() == 16 && places.len() == 16, "seed {seed}: {after:?}");
        // Intact lines are kept as measured; nothing is taken from a line with a changed byte.
        let left = String::from_utf8_lossy(&left);
        let kept: Vec<&str> = left.lines().filter(|line| whole.lines().any(|l| l == *line)).collect();
        let kept = processes(&kept.join("\n"));
        for process in &after {
            let old = before.iter().find(|old| (old.0, old.1) == (process.0, process.1)).context("a place")?;
            ensure!(
                process == old || process.2 > before.iter().map(|b| b.2).max().unwrap_or(0),
                "seed {seed}: {process:?}"
            );
        }
        let dropped: Vec<_> = kept.intersection(&before).filter(|p| !after.contains(p)).collect();
        ensure!(dropped.is_empty(), "seed {seed}: {dropped:?} were whole and are dropped; left was:\n{left}");
    }
    ensure!(ended >= 8, "only {ended} could be mended");
    Ok(())
}

/// A design whose processes compute for a third of a second on one processor, or on all, or wait.
fn computing_design(what: &str) -> String {
    format!(
        r#"
name = "computing"
question = "?"
argv = ["/bin/sh", "-c", '{what}; echo "{{\"metric\":\"iteration\",\"unit\":\"ns\",\"v\":1000}}"; echo "{{\"metric\":\"work\",\"unit\":\"row\",\"v\":5}}"']
[score]
[run]
blocks = 4
precision_percent = 2
budget_s = 600
[quick]
blocks = 4
precision_percent = 2
budget_s = 60
[[factor]]
name = "n"
about = "nothing"
default = 1
range = [1, 2]
"#
    )
}

const BURN_SCRIPT: &str = "i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done";

/// The marks of the counted processes of an archive: what was counted while they ran.
fn counted_marks(directory: &Directory, archive: &str) -> Result<Vec<serde_json::Value>> {
    let log = fs::read_to_string(directory.path(archive).join("runs.jsonl"))?;
    let rows = log.lines().filter_map(|l| serde_json::from_str::<serde_json::Value>(l).ok());
    let rows = rows.filter_map(|v| Some(v.get("replicate")?.get("replicate")?.clone()));
    let counting = rows.filter(|r| r["warmup"] == false);
    counting.map(|r| Ok(serde_json::from_str(r["gates"].as_str().context("no marks")?)?)).collect()
}

struct Busy(Vec<Child>);

impl Drop for Busy {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn half_way() -> Result<()> {
    let directory = Directory::new()?;
    // The sixth process, including the warm-up, waits until the machine is busy: later ones begin then.
    let (turns, now) = (directory.path("turns"), directory.path("now"));
    let (turns, now) = (turns.display(), now.display());
    let turn = format!("echo >>{turns}; until [ $(wc -l <{turns}) -ne 6 ] || [ -e {now} ]; do sleep 0.01; done");
    fs::write(directory.path("computing.toml"), computing_design(&format!("{turn}; {BURN_SCRIPT}")))?;
    let words = ["bench", "run", "computing.toml", "--blocks=8", "-o", "b.fathom"];
    let mut child = start_run(&directory, &words)?;
    wait_until("half of it", || {
        Ok(fs::read_to_string(directory.path("turns")).is_ok_and(|all| all.lines().count() == 6))
    })?;
    // Keeps each processor busy with a process of another family.
    let cpus = std::thread::available_parallelism()?.get();
    let mut busy = Busy(Vec::new());
    for _ in 0..cpus {
        busy.0.push(Command::new("sh").args(["-c", "while :; do :; done"]).spawn()?);
    }
    fs::write(directory.path("now"), "")?;
    child.wait()?;
    drop(busy);
    let marks = counted_marks(&directory, "b.fathom")?;
    // For those that began after it the counters show that, whatever else this machine was doing.
    ensure!(marks.len() == 8, "{}", marks.len());
    for mark in &marks[5..] {
        ensure!(mark["undisturbed"]["state"] == "failed" && mark["during.others"]["state"] == "failed", "{mark}");
        ensure!(mark["during.others"]["value"].as_f64().is_some_and(|cpus| cpus > 0.3), "{mark}");
    }
    let shown = String::from_utf8(run(&mut directory.command(&["bench", "show", "b.fathom"]))?.stdout)?;
    ensure!(shown.contains("disturbed while measured (others") && shown.contains("no verdict is possible"), "{shown}");
    let compare = |more: &[&str]| -> Result<serde_json::Value> {
        let words = ["bench", "compare", "b.fathom", "b.fathom", "--json"];
        let output = run(&mut directory.command(&[&words[..], more].concat()))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    };
    ensure!(compare(&[])?["results"][0]["verdict"] == "disturbed", "a verdict of it");
    ensure!(compare(&["--even-disturbed"])?["results"][0]["verdict"] != "disturbed", "who asks for it has it");
    Ok(())
}

/// In a PID namespace no other process is visible, so that everything counted is its own.
fn own_load() -> Result<()> {
    let directory = Directory::new()?;
    let cpus = std::thread::available_parallelism()?.get() + 1;
    // More processes than processors; children that come and go; one that waits for its disk.
    let crowd = format!("for n in $(seq {cpus}); do ({BURN_SCRIPT}) & done; wait");
    let come_and_go = "for n in $(seq 60); do sh -c \"j=0; while [ \\$j -lt 3000 ]; do j=\\$((j + 1)); done\"; done";
    // A fixed wait, in the command: it sleeps like a process that waits for something.
    let disk = "dd if=/dev/zero of=f bs=1M count=48 conv=fsync 2>/dev/null; cat f f f >/dev/null; rm f; sleep 0.2";
    for (name, what) in [("crowd", crowd.as_str()), ("children", come_and_go), ("disk", disk)] {
        fs::write(directory.path("computing.toml"), computing_design(what))?;
        let archive = format!("{name}.fathom");
        let words = ["bench", "run", "computing.toml", "--no-wait", "--blocks=3", "-q", "-o", &archive];
        let mut command = Command::new("unshare");
        command
            .args(["--pid", "--fork", "--mount-proc"])
            .arg(fathom())
            .args(words)
            .current_dir(directory.directory_path());
        run(&mut command)?;
        let marks = counted_marks(&directory, &archive)?;
        ensure!(marks.len() == 3, "{name}: {marks:?}");
        for mark in marks {
            let others = mark["during.others"]["value"].as_f64().with_context(|| format!("{name}: {mark}"))?;
            ensure!(others < 0.05, "{name}: {others} CPUs of its own are taken for others'");
            ensure!(mark["during.others"]["why"].as_str().is_some_and(|why| why.contains("container")), "{mark}");
        }
    }
    Ok(())
}
