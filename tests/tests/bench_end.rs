//! How what measures ends before its time: Ctrl-C, SIGTERM, SIGKILL, a full disk. What was there stays, nothing runs on, nothing is left.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, lane, root, run, until};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use tempfile::TempDir;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("an_interrupted_benchmark_makes_no_page_of_papers", Ok(()), papers),
        ("an_interrupted_recording_makes_no_page_of_papers", root(), papers_recorded),
        ("an_interrupted_demo_keeps_the_page_that_is_there", root(), demo),
        ("an_interrupted_run_writes_no_files_and_says_how_to_have_them", Ok(()), run_files),
        ("a_full_disk_leaves_every_file_as_it_was", root(), no_room),
        ("a_killed_run_takes_everything_along_that_it_started", Ok(()), killed),
    ];
    lane(cases)
}

struct Folder(TempDir);

impl Folder {
    fn new() -> Result<Self> {
        Ok(Self(fathom_tests::bench::folder()?))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(fathom());
        command.args(words).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    fn said(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let Output { status, stderr, .. } = self.command(words).output()?;
        Ok((status.code(), String::from_utf8_lossy(&stderr).into_owned()))
    }

    fn start(&self, words: &[&str]) -> Result<Child> {
        let log = fs::File::create(self.path("said"))?;
        Ok(self.command(words).stdout(Stdio::null()).stderr(log).spawn()?)
    }

    /// What the one that was started last said.
    fn it_said(&self) -> Result<String> {
        Ok(fs::read_to_string(self.path("said"))?)
    }

    /// Replicates in an archive's log.
    fn measured(&self, archive: &str) -> usize {
        let log = fs::read_to_string(self.path(archive).join("runs.jsonl")).unwrap_or_default();
        log.lines().filter(|line| line.contains("{\"replicate\":{\"id\"")).count()
    }
}

/// Sends a signal by its name; sent to who has ended it is lost.
fn signal(child: &Child, name: &str) -> Result<()> {
    Command::new("kill").args([&format!("-{name}"), &child.id().to_string()]).stderr(Stdio::null()).status()?;
    Ok(())
}

fn papers() -> Result<()> {
    for name in ["INT", "TERM"] {
        let folder = Folder::new()?;
        fs::write(folder.path("page.md"), "made yesterday\n")?;
        let mut child = folder.start(&["papers", "--quick", "-o", "page.md", "000/9"])?;
        until("a process", || Ok(folder.measured("papers-bench.fathom") > 0))?;
        signal(&child, name)?;
        let status = child.wait()?;
        let said = folder.it_said()?;
        ensure!(status.code() == Some(130), "{name}: {status:?}: {said}");
        ensure!(fs::read_to_string(folder.path("page.md"))? == "made yesterday\n", "the page was replaced");
        ensure!(said.contains("page.md is not written") && said.contains("papers-bench.fathom"), "{said}");
        ensure!(folder.measured("papers-bench.fathom") > 0, "what was measured has gone");
    }
    Ok(())
}

fn papers_recorded() -> Result<()> {
    let folder = Folder::new()?;
    fs::write(folder.path("page.md"), "made yesterday\n")?;
    let mut child = folder.start(&["papers", "-o", "page.md", "000/11"])?;
    until("a recording", || Ok(folder.path("papers.fathom/lock").exists()))?;
    signal(&child, "INT")?;
    let status = child.wait()?;
    let said = folder.it_said()?;
    ensure!(status.code() == Some(130) && said.contains("page.md is not written"), "{status:?}: {said}");
    ensure!(fs::read_to_string(folder.path("page.md"))? == "made yesterday\n", "the page was replaced");
    Ok(())
}

fn demo() -> Result<()> {
    let folder = Folder::new()?;
    fs::write(folder.path("demo.html"), "made yesterday\n")?;
    let mut child = folder.start(&["demo", "--rows=100000"])?;
    until("a recording", || Ok(folder.path("demo.fathom/lock").exists()))?;
    signal(&child, "INT")?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status:?}: {}", folder.it_said()?);
    ensure!(fs::read_to_string(folder.path("demo.html"))? == "made yesterday\n", "the page was replaced");
    ensure!(!folder.path("demo.pftrace").exists(), "a trace of half of it");
    Ok(())
}

fn run_files() -> Result<()> {
    let folder = Folder::new()?;
    fs::write(folder.path("r.md"), "made yesterday\n")?;
    let words = ["bench", "run", "fake.toml", "--no-wait", "-p", "pause=0.4", "--blocks=4", "--markdown=r.md"];
    let mut child = folder.start(&[&words[..], &["--csv=r.csv"]].concat())?;
    until("a process", || Ok(folder.measured("bench.fathom") > 0))?;
    signal(&child, "INT")?;
    let status = child.wait()?;
    let said = folder.it_said()?;
    ensure!(status.code() == Some(130) && said.contains("not written, since the run is not complete"), "{said}");
    ensure!(fs::read_to_string(folder.path("r.md"))? == "made yesterday\n", "the page was replaced");
    ensure!(!folder.path("r.csv").exists(), "half a table");
    // The advice is a command, and does what was wanted.
    let advice = said.lines().find_map(|l| l.split("go on with: fathom ").nth(1)).context("no advice")?;
    let words: Vec<&str> = advice.split(' ').collect();
    let (status, said) = folder.said(&[&words[..], &["--no-wait"]].concat())?;
    ensure!(status == Some(0), "{advice}: {said}");
    ensure!(
        fs::read_to_string(folder.path("r.md"))?.contains("| duration=2000 |") && folder.path("r.csv").exists(),
        ""
    );
    Ok(())
}

/// A small file system in memory, unmounted when dropped.
struct Tmpfs(PathBuf);

impl Tmpfs {
    fn new(at: PathBuf, size: &str) -> Result<Self> {
        fs::create_dir(&at)?;
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(&at))?;
        Ok(Self(at))
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

/// Every verb that writes a file besides an archive.
fn no_room() -> Result<()> {
    let folder = Folder::new()?;
    run(&mut folder.command(&["bench", "run", "fake.toml", "--no-wait", "--blocks=2"]))?;
    run(&mut folder.command(&["record", "-q", "-o", "t.fathom", "--", "true"]))?;
    let _small = Tmpfs::new(folder.path("small"), "64k")?;
    fs::create_dir(folder.path("small/out"))?;
    for name in ["file", "out/designs.csv", "out/designs.parquet"] {
        fs::write(folder.path("small").join(name), "made yesterday\n")?;
    }
    // The rest of the room: a write of one page more finds none.
    let mut filler = fs::File::create(folder.path("small/filler"))?;
    while std::io::Write::write_all(&mut filler, &[1; 4096]).is_ok() {}
    let names = || -> Result<BTreeSet<PathBuf>> {
        let list =
            |at: PathBuf| Ok::<_, std::io::Error>(fs::read_dir(at)?.flatten().map(|e| e.path()).collect::<Vec<_>>());
        Ok(list(folder.path("small"))?.into_iter().chain(list(folder.path("small/out"))?).collect())
    };
    let before = names()?;
    for words in [
        &["bench", "run", "fake.toml", "--no-wait", "--blocks=2", "-o", "c.fathom", "--markdown=small/file"][..],
        &["bench", "run", "fake.toml", "--no-wait", "--blocks=2", "-o", "d.fathom", "--csv=small/file"],
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
        let (status, said) = folder.said(words)?;
        ensure!(status == Some(1), "{words:?}: {status:?}: {said}");
        ensure!(said.contains("No space left") || said.contains("no room"), "{words:?}: {said}");
        ensure!(names()? == before, "{words:?} left {:?}", names()?.difference(&before));
        for name in ["file", "out/designs.csv", "out/designs.parquet"] {
            let text = fs::read_to_string(folder.path("small").join(name))?;
            ensure!(text == "made yesterday\n", "{words:?} replaced {name} by {text:?}");
        }
    }
    Ok(())
}

/// Whether a process of that number runs: a zombie does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Folders of runs in a folder.
fn left(folder: &Path) -> Result<Vec<PathBuf>> {
    let all = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    Ok(all.filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("fathom-run-"))).collect())
}

/// A process with a pipeline and a daemon, and a background process, none of which ends by itself.
fn killed() -> Result<()> {
    let folder = Folder::new()?;
    fs::create_dir(folder.path("disk"))?;
    let design = format!(
        r#"
name = "endless"
question = "?"
metric = "x"
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
        at = folder.0.path().display()
    );
    fs::write(folder.path("endless.toml"), design)?;
    let mut child = folder.start(&["bench", "run", "endless.toml", "--no-wait", "-o", "e.fathom"])?;
    until("its processes", || Ok(folder.path("whole").exists()))?;
    let pids: Vec<String> = ["whole", "pipeline", "daemon", "background"]
        .iter()
        .map(|name| Ok(fs::read_to_string(folder.path(name))?))
        .collect::<Result<_>>()?;
    ensure!(pids.iter().all(|pid| runs(pid)), "not all run");
    child.kill()?;
    child.wait()?;
    until("the end of all its processes", || Ok(pids.iter().all(|pid| !runs(pid))))?;

    // A load with files: what it leaves on the storage under test goes with the next run there, what a live run has does not.
    let design = fathom_tests::bench::DESIGN.replace("sleep {pause}", ": >{dir}/file || exit; sleep {pause}")
        + "[[factor]]\nname = \"dir\"\nabout = \"where\"\ndefault = \".\"\nfolder = true\n";
    fs::write(folder.path("stored.toml"), design)?;
    let words = ["bench", "run", "stored.toml", "--no-wait", "--dir=disk", "-p", "pause=0.4", "--blocks=50"];
    let live_words = [&words[..], &["-o", "live.fathom"]].concat();
    let mut live = folder.start(&live_words)?;
    until("a process", || Ok(folder.measured("live.fathom") > 0))?;
    let mut child = folder.start(&words)?;
    let of = |child: &Child| -> Result<usize> {
        let mine = format!("fathom-run-{}-", child.id());
        Ok(left(&folder.path("disk"))?.iter().filter(|p| p.to_string_lossy().contains(&mine)).count())
    };
    until("a folder", || Ok(folder.measured("bench.fathom") > 0 && of(&child)? > 0))?;
    child.kill()?;
    child.wait()?;
    ensure!(of(&child)? > 0, "it was killed while a process ran");
    let measured = folder.measured("live.fathom");
    let words = ["bench", "run", "stored.toml", "--no-wait", "--dir=disk", "--blocks=2", "-o", "next.fathom"];
    let (status, said) = folder.said(&words)?;
    ensure!(status == Some(0) && said.contains("that a killed run had left"), "{said}");
    ensure!(of(&child)? == 0, "its folders are still there");
    until("the live run goes on", || Ok(folder.measured("live.fathom") > measured + 1))?;
    signal(&live, "INT")?;
    live.wait()?;
    let log = fs::read_to_string(folder.path("live.fathom/runs.jsonl"))?;
    ensure!(!log.contains("\"failure\":\""), "a folder of the live run was taken: {log}");
    ensure!(left(&folder.path("disk"))?.is_empty(), "who is interrupted leaves nothing");
    Ok(())
}
