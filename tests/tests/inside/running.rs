//! Running processes are probed inside too, on request: the same operations as with uprobes, and nothing of it is left when the
//! recording ends, or is killed.

use super::{hooked_by_name, own_links, same_statements};
use anyhow::{Context, Result, ensure};
use fathom_tests::{assert_near, fathom, number, records_lost, run, shape_of, show, wait_until};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

/// A program that reads lines and answers each with one. Killed when this is dropped.
pub struct RunningProgram {
    pub child: Child,
    answers: BufReader<ChildStdout>,
}

impl RunningProgram {
    pub fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let answers = BufReader::new(child.stdout.take().context("stdout")?);
        Ok(Self { child, answers })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn tell(&mut self, line: &str) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("stdin")?;
        stdin.write_all(line.as_bytes())?;
        Ok(stdin.flush()?)
    }

    pub fn answer(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(line.ends_with('\n'), "the program ended: {:?}", self.child.wait()?);
        Ok(line.trim_end().to_owned())
    }

    /// Its output at its end, which must be a success.
    pub fn finish(mut self) -> Result<String> {
        drop(self.child.stdin.take());
        let mut rest = String::new();
        self.answers.read_to_string(&mut rest)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {rest}");
        Ok(rest.trim_end().to_owned())
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A recording of a running process.
pub struct AttachedRecording {
    pub child: Child,
    control: File,
    answers: BufReader<File>,
    pub archive: PathBuf,
}

impl AttachedRecording {
    pub fn spawn(directory: &Path, way: &str, pids: &[u32], more: &[String]) -> Result<(Child, PathBuf, PathBuf)> {
        let archive = directory.join(format!("{way}-{}.fathom", pids[0]));
        let (control, answers) = (directory.join(format!("{way}.ctl")), directory.join(format!("{way}.ack")));
        for fifo in [&control, &answers] {
            if !fifo.exists() {
                run(Command::new("mkfifo").arg(fifo))?;
            }
        }
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--keep-sql", "--probes", way, "-o"]).arg(&archive);
        command.arg("--control").arg(format!("fifo:{},{}", control.display(), answers.display()));
        command.args(more);
        for pid in pids {
            command.args(["--pid", &pid.to_string()]);
        }
        Ok((command.stderr(Stdio::piped()).spawn()?, archive, control))
    }

    /// Starts a recording; when this returns, the process is recorded.
    pub fn begin(directory: &Path, way: &str, pids: &[u32]) -> Result<Self> {
        Self::begin_with(directory, way, pids, &[])
    }

    /// The same with more arguments.
    pub fn begin_with(directory: &Path, way: &str, pids: &[u32], more: &[String]) -> Result<Self> {
        let (child, archive, control) = Self::spawn(directory, way, pids, more)?;
        let open = |path: &Path| OpenOptions::new().read(true).write(true).open(path);
        let answers = BufReader::new(open(&control.with_extension("ack"))?);
        let mut recording = Self { child, control: open(&control)?, answers, archive };
        recording.ask("ping")?;
        Ok(recording)
    }

    fn ask(&mut self, what: &str) -> Result<()> {
        writeln!(self.control, "{what}")?;
        // Both ends of the FIFO are ours, too: a recorder that ended does not end it.
        let mut poll = libc::pollfd { fd: self.answers.get_ref().as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let mut ended = false;
        // SAFETY: one valid pollfd.
        while unsafe { libc::poll(&raw mut poll, 1, 100) } <= 0 {
            ensure!(!ended, "{what}: the recorder ended");
            ended = self.child.try_wait()?.is_some();
        }
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        ensure!(line.trim_end_matches(['\n', '\0']).ends_with("ack"), "{what}: {line:?}");
        Ok(())
    }

    pub fn end(mut self) -> Result<Value> {
        self.ask("stop")?;
        self.ended()
    }

    /// Waits for the end of a recording whose processes end.
    pub fn ended(mut self) -> Result<Value> {
        let mut said = String::new();
        self.child.stderr.take().context("stderr")?.read_to_string(&mut said)?;
        let status = self.child.wait()?;
        ensure!(status.success(), "{status}: {said}");
        show(&self.archive)
    }
}

/// The mappings of a process.
pub fn read_maps(pid: u32) -> Result<String> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?)
}

/// Private pages of code of the process, where they differ from their files.
pub fn changed_code(pid: u32) -> Result<Vec<String>> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut changed = Vec::new();
    for line in read_maps(pid)?.lines().filter(|line| line.contains(" r-xp ") && line.contains(" /")) {
        let mut words = line.split_whitespace();
        let (range, offset) = (words.next().context("a range")?, words.nth(1).context("an offset")?);
        let path = line.split_once('/').map(|(_, path)| format!("/{path}")).unwrap_or_default();
        let (from, to) = range.split_once('-').context("a range")?;
        let (from, to, offset) = (parse_hex(from)?, parse_hex(to)?, parse_hex(offset)?);
        let mut there = vec![0; (to - from) as usize];
        std::os::unix::fs::FileExt::read_exact_at(&memory, &mut there, from)?;
        let mut own = vec![0; there.len()];
        let file = File::open(&path).with_context(|| path.clone())?;
        let mut filled = 0;
        while let n @ 1.. = std::os::unix::fs::FileExt::read_at(&file, &mut own[filled..], offset + filled as u64)? {
            filled += n;
        }
        changed.extend((0..filled).filter(|i| there[*i] != own[*i]).map(|i| format!("{path}+{:x}", offset + i as u64)));
    }
    Ok(changed)
}

fn parse_hex(text: &str) -> Result<u64> {
    Ok(u64::from_str_radix(text, 16)?)
}

/// Whether a new process, which nobody has attached to, has the same changes of its libraries: the breakpoints of another recording's
/// uprobes, which the kernel writes into every process that maps the file. Suites run side by side.
fn is_changed_everywhere(changed: &[String]) -> Result<bool> {
    let file = |place: &String| place.rsplit_once('+').map(|(path, _)| path.to_owned());
    let files: BTreeSet<String> = changed.iter().filter_map(file).collect();
    let load = "import ctypes, sys\n[ctypes.CDLL(path) for path in sys.argv[1:]]\nprint(flush=True)\nsys.stdin.read()";
    let mut control = RunningProgram::start(Command::new("python3").args(["-c", load]).args(files))?;
    // A program that is no library cannot be loaded, and ends without an answer.
    Ok(control.answer().is_ok() && {
        let everywhere = changed_code(control.pid())?;
        changed.iter().all(|place| everywhere.contains(place))
    })
}

/// Checks that a process is as before: no changed byte of code, no mapping of the object or in its directory.
pub fn is_as_before(pid: u32, mappings: usize) -> Result<()> {
    // Uprobes are removed asynchronously.
    wait_until("its code to be as in its files", || {
        let changed = changed_code(pid)?;
        Ok(changed.is_empty() || is_changed_everywhere(&changed)?)
    })
    .with_context(|| format!("{:?}", changed_code(pid).unwrap_or_default()))?;
    let now = read_maps(pid)?;
    ensure!(!now.contains("fathom-inside"), "{now}");
    // Mappings around the object may have been merged or split by the program's own mappings.
    ensure!(count_mappings(&now) <= mappings + 2, "{mappings} mappings before, now:\n{now}");
    Ok(())
}

/// The number of a process's mappings, for [`is_as_before`].
pub fn mapping_count(pid: u32) -> Result<usize> {
    Ok(count_mappings(&read_maps(pid)?))
}

/// Counts mappings but for the kernel's for uprobes, and the C library's heaps of threads, which come as threads meet in malloc: each at a
/// multiple of 64 MiB, its unused rest behind it.
fn count_mappings(maps: &str) -> usize {
    const HEAP_BYTES: u64 = 64 << 20;
    let (mut count, mut heap_end) = (0, 0);
    for line in maps.lines() {
        let range = line.split(' ').next().and_then(|range| range.split_once('-'));
        let address = |text: &str| u64::from_str_radix(text, 16).unwrap_or(0);
        let (start, end) = range.map_or((0, 0), |(start, end)| (address(start), address(end)));
        let is_heap =
            line.contains(" rw-p ") && start % HEAP_BYTES == 0 || start == heap_end && line.contains(" ---p ");
        if is_heap {
            heap_end = end;
        }
        count += usize::from(!is_heap && !line.ends_with("[uprobes]"));
    }
    count
}

fn compile(directory: &Path) -> Result<PathBuf> {
    super::compile("cc", "running.c", directory)
}

/// The same work in one process, recorded both ways: the work that a line of `work` starts ends with an answer.
fn same_both_ways(
    mut program: RunningProgram,
    work: &str,
    least: usize,
    on_disk: bool,
) -> Result<(Value, RunningProgram)> {
    let directory = tempfile::tempdir()?;
    let (mut both, mut answers, mut links) = (Vec::new(), Vec::new(), Vec::new());
    let before = mapping_count(program.pid())?;
    for way in ["inside", "uprobe"] {
        let recording = AttachedRecording::begin(directory.path(), way, &[program.pid()])?;
        ensure!(
            read_maps(program.pid())?.contains("fathom-inside.so") == (way == "inside"),
            "{way}: {}",
            read_maps(program.pid())?
        );
        program.tell(work)?;
        answers.push(program.answer()?);
        let archive = recording.archive.clone();
        let summary = recording.end()?;
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        let probes = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(probes.starts_with(way), "asked for {way}: {probes}: {:#?}", summary["coverage"]);
        // Without a system call there is no such table; and links of threads that wait for a processor depend on chance.
        links.push(if on_disk { own_links(&archive)? } else { BTreeMap::new() });
        both.push(summary);
        is_as_before(program.pid(), before)?;
    }
    ensure!(answers[0] == answers[1], "{answers:?}");
    ensure!(links[0] == links[1], "links:\ninside {:?}\nuprobe {:?}", links[0], links[1]);
    same_statements(&both, least)?;
    Ok((both.swap_remove(0), program))
}

/// One thread: a Python, whose statements write.
const PYTHON_PROGRAM: &str = r#"
import sqlite3, sys
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("pragma journal_mode=wal").fetchall()
db.execute("create table t (a integer primary key, b text)")
for line in sys.stdin:
    db.execute("delete from t")
    for i in range(60): db.execute("insert into t (b) values (?)", ("x%d" % i,))
    rows = db.execute("select a from t where a < 20").fetchall()
    for row in db.execute("select a from t where a < 10"): db.execute("update t set b = 'u' where a = ?", (row[0],))
    try: db.execute("insert into t (a) values (1)")
    except sqlite3.IntegrityError: pass
    print(len(rows), flush=True)
"#;

pub fn running_python_matches_uprobes() -> Result<()> {
    let disk = fathom_tests::ext4()?;
    let database = disk.path().join("t.db");
    let mut program = RunningProgram::start(Command::new("python3").args(["-c", PYTHON_PROGRAM]).arg(&database))?;
    // Run once, so that the first recording does not include one-time work.
    program.tell("go\n")?;
    ensure!(program.answer()? == "19", "it has begun otherwise");
    let (summary, program) = same_both_ways(program, "go\n", 6, true)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT INTO T (B)")?, "/count")?, 60.0)?;
    hooked_by_name(&summary, "libsqlite3.so", "1 process")?;
    program.finish().map(drop)
}

pub fn running_sqlite3_shell_matches_uprobes() -> Result<()> {
    let disk = fathom_tests::ext4()?;
    let mut program = RunningProgram::start(Command::new("sqlite3").arg(disk.path().join("t.db")))?;
    program.tell("create table t(a, b);\n.print ready\n")?;
    ensure!(program.answer()? == "ready", "it has begun otherwise");
    let work = "delete from t; insert into t values (1, 2), (3, 4); insert into t select a + 1, b from t; select count(*) from t;\n";
    let (summary, program) = same_both_ways(program, work, 4, true)?;
    assert_near("rows", number(shape_of(&summary, "SELECT COUNT")?, "/rows")?, 1.0)?;
    hooked_by_name(&summary, "libsqlite3.so", "1 process")?;
    program.finish().map(drop)
}

/// Closes and opens SQLite's library more often than the object has room for at once, and does the same with each.
const REOPENING_PROGRAM: &str = r#"
import sys, _ctypes
from ctypes import CDLL, c_void_p, byref
library = CDLL("libsqlite3.so.0")
for line in sys.stdin:
    for i in range(200):
        db = c_void_p()
        failed = library.sqlite3_open(b":memory:", byref(db))
        for _ in range(5): failed |= library.sqlite3_exec(db, b"select 5", None, None, None)
        failed |= library.sqlite3_close(db)
        _ctypes.dlclose(library._handle)
        library = CDLL("libsqlite3.so.0")
        if failed: sys.exit("failed")
    print("done", flush=True)
"#;

pub fn running_program_that_reopens_sqlite_matches_uprobes() -> Result<()> {
    let mut program = RunningProgram::start(Command::new("python3").args(["-c", REOPENING_PROGRAM]))?;
    program.tell("go\n")?;
    ensure!(program.answer()? == "done", "it has begun otherwise");
    let (summary, program) = same_both_ways(program, "go\n", 1, false)?;
    assert_near("SELECTs", number(shape_of(&summary, "SELECT 5")?, "/count")?, 1000.0)?;
    program.finish().map(drop)
}

/// Eight working and eight waiting threads, none of which may notice.
pub fn running_threads_match_uprobes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut program = RunningProgram::start(Command::new(compile(directory.path())?).args(["8", "500", "8", "0"]))?;
    ensure!(program.answer()? == "ready", "it has begun otherwise");
    let (summary, program) = same_both_ways(program, "go\n", 3, false)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 8.0 * 500.0)?;
    hooked_by_name(&summary, "libsqlite3.so", "1 process")?;
    let end = program.finish()?;
    ensure!(end == "whole, 0 interrupted", "{end}");
    Ok(())
}

/// Threads work, wait, start and end while it is attached to and detached from, repeatedly.
pub fn busy(rounds: usize, threads: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut program = RunningProgram::start(Command::new(compile(directory.path())?).args([threads, "0", "4", "2"]))?;
    ensure!(program.answer()? == "ready", "it has begun otherwise");
    program.tell("spin\n")?;
    let mut inside = 0;
    for _ in 0..rounds {
        let recording = AttachedRecording::begin(directory.path(), "inside", &[program.pid()])?;
        // A fixed wait: the program runs while it is recorded.
        std::thread::sleep(Duration::from_millis(20));
        let archive = recording.archive.clone();
        let summary = recording.end()?;
        let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default().to_owned();
        // Threads that start and end may prevent attaching; then the reason is reported.
        ensure!(fact == "inside" || fact.starts_with("uprobes: "), "{fact}");
        inside += usize::from(fact == "inside");
        if fact == "inside" {
            ensure!(number(shape_of(&summary, "INSERT INTO T VALUES (?")?, "/count")? > 0.0, "{summary}");
        }
        fs::remove_dir_all(archive)?;
        wait_until("its code to be as in its files", || Ok(changed_code(program.pid())?.is_empty()))?;
    }
    program.tell("halt\n")?;
    program.answer()?;
    let end = program.finish()?;
    ensure!(end == "whole, 0 interrupted", "{end}");
    ensure!(inside * 2 > rounds, "it was probed inside in {inside} of {rounds} recordings only");
    Ok(())
}

/// A process that is attached to leaves SQLite by exceptions, jumps, signals, forks and cancellation as without Fathom.
pub fn running_process_leaves_statements_by_exceptions() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = super::compile("c++", "sqlite_exits.cc", directory.path())?;
    let bare = Command::new(&program).output()?;
    let mut attached = RunningProgram::start(Command::new(&program).arg("wait"))?;
    ensure!(attached.answer()? == "ready", "it has begun otherwise");
    let recording = AttachedRecording::begin(directory.path(), "inside", &[attached.pid()])?;
    attached.tell("go\n")?;
    let mut printed = Vec::new();
    attached.answers.read_to_end(&mut printed)?;
    let status = attached.child.wait()?;
    ensure!(status.code() == Some(7) && printed == bare.stdout, "{status}: {}", printed.escape_ascii());
    let summary = recording.ended()?;
    // What it executes has uprobes.
    let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
    ensure!(fact.starts_with("inside"), "{fact}");
    assert_near("UPDATEs", number(shape_of(&summary, "UPDATE")?, "/count")?, 3000.0)?;
    for (statement, left) in [("SELECT JUMP()", 12.0), ("SELECT TOSS()", 5.0), ("SELECT DIE()", 5.0)] {
        assert_near(statement, number(shape_of(&summary, statement)?, "/unfinished")?, left)?;
    }
    Ok(())
}

/// The recorder is killed at a random moment: the program continues, and the next recording removes the leftovers.
pub fn killed(rounds: u64, threads: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let mut program = RunningProgram::start(Command::new(compile(directory.path())?).args([threads, "0", "4", "1"]))?;
    ensure!(program.answer()? == "ready", "it has begun otherwise");
    program.tell("spin\n")?;
    let (mut drawn, mut within) = (1u64, 0);
    // Between when it began to search for the process and when it was attached to.
    for round in 0..rounds {
        let (mut recorder, archive, _) = AttachedRecording::spawn(directory.path(), "inside", &[program.pid()], &[])?;
        drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let before = read_maps(program.pid())?.contains("fathom-inside");
        // In two thirds of the rounds, once the object is loaded: earlier, it would seldom be in the middle of
        // something.
        if round % 3 > 0 {
            wait_until("it to be attached to, or the recorder to be done", || {
                Ok(read_maps(program.pid())?.contains(&format!("fathom-inside-{}-", recorder.id()))
                    || recorder.try_wait()?.is_some())
            })?;
            // A fixed wait: up to a random moment.
            std::thread::sleep(Duration::from_micros((drawn >> 33) % 4000));
        } else {
            // A fixed wait: up to a random moment.
            std::thread::sleep(Duration::from_micros((drawn >> 33) % 1_200_000));
        }
        if round % 6 == 5 {
            // Interrupted first, so that it is killed while it removes its object.
            // SAFETY: a signal to this test's own child.
            unsafe { libc::kill(recorder.id().cast_signed(), libc::SIGINT) };
            // A fixed wait: up to a random moment.
            std::thread::sleep(Duration::from_micros((drawn >> 20) % 300_000));
        }
        recorder.kill()?;
        recorder.wait()?;
        within += usize::from(!before && read_maps(program.pid())?.contains("fathom-inside"));
        let _ = fs::remove_dir_all(archive);
        ensure!(program.child.try_wait()?.is_none(), "the program ended in round {round}");
    }
    program.tell("halt\n")?;
    program.answer()?;
    // The next one removes it, unless the program's threads do not stop in time.
    let pid = program.pid();
    wait_until("a recording by the object", || {
        let recording = AttachedRecording::begin(directory.path(), "inside", &[pid])?;
        let archive = recording.archive.clone();
        let summary = recording.end()?;
        fs::remove_dir_all(archive)?;
        Ok(summary["environment"]["sqlite.probes"]["value"] == "inside")
    })?;
    is_as_before(pid, usize::MAX - 2)?;
    let end = program.finish()?;
    ensure!(end.starts_with("whole, "), "{end}");
    ensure!(within > 0, "no recorder was killed while the object was in the program");
    Ok(())
}

/// Processes that are left alone have uprobes, and the coverage gives the reason.
pub fn running_programs_left_to_uprobes_say_why() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let says = |program: &mut Command, reason: &str| -> Result<()> {
        let mut program = RunningProgram::start(program)?;
        ensure!(program.answer()? == "ready", "it has begun otherwise");
        let recording = AttachedRecording::begin(directory.path(), "inside", &[program.pid()])?;
        program.tell("go\n")?;
        program.answer()?;
        let summary = recording.end()?;
        assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 5.0)
            .with_context(|| reason.to_owned())?;
        let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(fact.starts_with("uprobes: ") && fact.contains(reason), "{reason}: {fact}");
        let rows = summary["coverage"].as_array().context("coverage[]")?;
        let told = |row: &Value| {
            row["how"].as_str().is_some_and(|how| how.contains("by uprobes, since") && how.contains(reason))
        };
        ensure!(rows.iter().any(told), "{reason}: {rows:#?}");
        program.finish().map(drop)
    };
    let words = ["1", "5", "0", "0"];
    let program = compile(directory.path())?;
    let linked = directory.path().join("static");
    super::linked::link_program("running.c", &["-static", "-lsqlite3", "-lm"], &linked)?;
    says(Command::new(&linked).args(words), "it is linked statically")?;
    let python = |preparation: &str| {
        let script = format!(
            "import sqlite3, sys, ctypes\nlibc = ctypes.CDLL(None)\n{preparation}\ndb = sqlite3.connect(':memory:')\n\
             db.execute('create table t (a)')\nprint('ready', flush=True)\nfor line in sys.stdin:\n  \
             for i in range(5): db.execute('insert into t values (1)')\n  print('done', flush=True)\n"
        );
        let mut command = Command::new("python3");
        command.args(["-c", &script]);
        command
    };
    // A filter that allows everything: PR_SET_NO_NEW_PRIVS, then a program of one instruction.
    let filter = "import struct\nlibc.prctl(38, 1, 0, 0, 0)\ncode = ctypes.create_string_buffer(struct.pack('HBBI', 6, 0, 0, 0x7fff0000))\n\
        p = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', 1, ctypes.addressof(code)))\nassert libc.prctl(22, 2, p, 0, 0) == 0";
    says(&mut python(filter), "a filter of system calls")?;
    says(&mut python("assert libc.mlockall(1) == 0"), "it locks its memory")?;
    // In a PID namespace, of which the test sees only the outer process's child.
    let mut program = RunningProgram::start(Command::new(&program).args(words))?;
    program.answer()?;
    let pid = program.pid();
    // SAFETY: signals to this test's own child.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGSTOP) };
    wait_until("it to be stopped", || Ok(fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T ")))?;
    let recording = AttachedRecording::begin(directory.path(), "inside", &[pid])?;
    ensure!(fs::read_to_string(format!("/proc/{pid}/stat"))?.contains(") T "), "it was woken");
    // SAFETY: as above.
    unsafe { libc::kill(pid.cast_signed(), libc::SIGCONT) };
    program.tell("go\n")?;
    program.answer()?;
    let summary = recording.end()?;
    assert_near("INSERTs of the stopped one", number(shape_of(&summary, "INSERT")?, "/count")?, 5.0)?;
    let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
    ensure!(fact.contains("it is stopped"), "{fact}");
    program.finish().map(drop)
}

/// A second recording of the same process, a traced process, and one that executes another program, forks or ends meanwhile.
pub fn running_process_is_recorded_among_others() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let start = || -> Result<RunningProgram> {
        let mut program = RunningProgram::start(Command::new(&program).args(["2", "5", "0", "0"]))?;
        program.answer()?;
        Ok(program)
    };
    let mut running = start()?;
    let second = tempfile::tempdir()?;
    let first = AttachedRecording::begin(directory.path(), "inside", &[running.pid()])?;
    let other = AttachedRecording::begin(second.path(), "inside", &[running.pid()])?;
    running.tell("go\n")?;
    running.answer()?;
    let (other, first) = (other.end()?, first.end()?);
    for (summary, fact) in [(&first, "inside"), (&other, "uprobes: another recording probes it inside")] {
        assert_near("INSERTs", number(shape_of(summary, "INSERT")?, "/count")?, 10.0)?;
        ensure!(
            summary["environment"]["sqlite.probes"]["value"] == fact,
            "{}",
            summary["environment"]["sqlite.probes"]
        );
    }
    is_as_before(running.pid(), usize::MAX - 2)?;
    running.finish()?;

    let mut ends = start()?;
    let recording = AttachedRecording::begin(directory.path(), "inside", &[ends.pid()])?;
    ends.tell("go\n")?;
    ends.answer()?;
    ends.finish()?;
    assert_near("INSERTs of one that ended", number(shape_of(&recording.ended()?, "INSERT")?, "/count")?, 10.0)?;

    let script = "import os, sqlite3, sys\ndb = sqlite3.connect(':memory:')\nprint('ready', flush=True)\nsys.stdin.readline()\n\
        db.execute('select 1').fetchall()\nif os.fork() == 0:\n  db.execute('select 22').fetchall()\n  os._exit(0)\nos.wait()\n\
        os.execvp('python3', ['python3', '-c', \"import sqlite3, sys; sqlite3.connect(':memory:').execute('select 333').fetchall(); \
        print('done', flush=True); sys.stdin.readline()\"])";
    let mut executes = RunningProgram::start(Command::new("python3").args(["-c", script]))?;
    executes.answer()?;
    let recording = AttachedRecording::begin(directory.path(), "inside", &[executes.pid()])?;
    executes.tell("go\n")?;
    executes.answer()?;
    let pid = executes.pid();
    let summary = recording.end()?;
    for statement in ["SELECT 1", "SELECT 22", "SELECT 333"] {
        let all = summary["operations"].as_array().context("operations[]")?;
        let found = all.iter().find(|o| o["statement"].as_str().is_some_and(|s| s.eq_ignore_ascii_case(statement)));
        assert_near(statement, number(found.with_context(|| format!("{statement}: {all:#?}"))?, "/count")?, 1.0)?;
    }
    is_as_before(pid, usize::MAX - 2)?;
    drop(executes);

    let missing = Command::new(fathom()).args(["record", "--probes", "inside", "--pid", "4194303"]).output()?;
    ensure!(missing.status.code() == Some(1), "{missing:?}");
    Ok(())
}
