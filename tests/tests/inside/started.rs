//! Programs and libraries that are unknown until the command starts or loads them: their probes are there from the beginning.

use super::linked::{LINK_METHODS, link_program};
use super::{assert_near, hooked_in, number, run, shape_of, show};
use anyhow::{Context as _, Result, ensure};
use fathom_tests::{fathom, record};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

/// For each statement, its number of executions, and its rows.
fn statement_counts(summary: &Value) -> Result<BTreeMap<String, [f64; 3]>> {
    let all = summary["operations"].as_array().context("operations[]")?;
    let count = |o: &Value| {
        let statement = o["statement"].as_str().context("a statement")?.to_owned();
        let numbers = ["/count", "/unfinished", "/rows"].map(|name| number(o, name));
        let [count, unfinished, rows] = numbers;
        Ok((statement, [count?, unfinished?, rows?]))
    };
    all.iter().map(count).collect()
}

/// A program that a command starts, and that Fathom did not know before, has its probes from its beginning: whatever starts it,
/// and with whichever call. The oracle is the program as the command itself, with uprobes.
pub fn each_way(rounds: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let programs: Vec<PathBuf> = LINK_METHODS.iter().map(|(name, _)| directory.path().join(name)).collect();
    for (program, (_, options)) in programs.iter().zip(&LINK_METHODS) {
        link_program("sqlite_threads.c", options, program)?;
    }
    let words = programs.iter().map(|p| format!("{} 3", p.display())).collect::<Vec<_>>().join("; ");
    // A relative path, by posix_spawn; and, in a process of its own, by a fork in a program with threads.
    let spawns = "import os, subprocess, sys, threading
os.chdir(sys.argv[1])
for name in ('pie', 'static', 'static-pie'):
    os.posix_spawn('./' + name, [name, '3'], os.environ); os.wait()
    t = threading.Thread(target=lambda: subprocess.check_call([name, '3'], executable=sys.argv[1] + '/' + name))
    t.start(); t.join()";
    let own = directory.path().to_string_lossy().into_owned();
    let expected = statement_counts(&show(&record(
        directory.path(),
        &["--probes", "uprobe", "--keep-sql"],
        &[&programs[0].to_string_lossy(), "3"],
    )?)?)?;
    ensure!(expected.len() >= 3, "{expected:?}");
    let expected: BTreeMap<_, _> =
        expected.into_iter().map(|(name, numbers)| (name, numbers.map(|n| n * 2.0 * 3.0))).collect();
    let twice = format!("{words}; {words}");
    let ways = [&["sh", "-c", &twice][..], &["python3", "-c", spawns, &own]];
    for argv in ways.iter().cycle().take(rounds * ways.len()) {
        let summary = show(&record(directory.path(), &["--probes", "inside", "--keep-sql"], argv)?)?;
        let found = statement_counts(&summary)?;
        for (statement, numbers) in &expected {
            ensure!(
                found.get(statement) == Some(numbers),
                "{statement}: {:?} is not {numbers:?}",
                found.get(statement)
            );
        }
        for program in &programs {
            hooked_in(&summary, program, "2 processes")?;
        }
    }
    Ok(())
}

/// A statically linked shell, as in the lab's guests, can neither load the object nor announce programs: Fathom finds what it executes
/// by following it. With a script that names the programs, and one that does not.
pub fn of_static_shell() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let programs: Vec<PathBuf> = LINK_METHODS.iter().map(|(name, _)| directory.path().join(name)).collect();
    for (program, (_, options)) in programs.iter().zip(&LINK_METHODS) {
        link_program("sqlite_threads.c", options, program)?;
    }
    let busybox = String::from_utf8(run(Command::new("which").arg("busybox"))?.stdout)?.trim().to_owned();
    let own = directory.path().to_string_lossy().into_owned();
    let options = ["--probes", "uprobe", "--keep-sql"];
    let expected =
        statement_counts(&show(&record(directory.path(), &options, &[&programs[0].to_string_lossy(), "3"])?)?)?;
    ensure!(expected.len() >= 3, "{expected:?}");
    let script = directory.path().join("script");
    let words = programs.iter().map(|p| format!("{} 3\n", p.display())).collect::<String>();
    fs::write(&script, format!("#!{busybox} sh\ncd /\n{words}{words}exit 7\n"))?;
    run(Command::new("chmod").arg("755").arg(&script))?;
    let lists = "cd \"$1\"; for p in *pie; do ./$p 3; ./$p 3 & wait; done; (./static 3) | \"$0\" cat; \"$0\" sh -c './static 3'; exit 7";
    for argv in [&[&*script.to_string_lossy()][..], &[&busybox, "sh", "-c", lists, &busybox, &own]] {
        let archive = directory.path().join("b.fathom");
        let _ = fs::remove_dir_all(&archive);
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--probes", "inside", "--keep-sql", "-o"]).arg(&archive);
        let recorded = command.arg("--").args(argv).output()?;
        ensure!(recorded.status.code() == Some(7), "{recorded:?}");
        let summary = show(&archive)?;
        let found = statement_counts(&summary)?;
        for (statement, numbers) in &expected {
            let numbers = numbers.map(|n| n * 6.0);
            let found = found.get(statement);
            ensure!(found == Some(&numbers), "{argv:?}: {statement}: {found:?} is not {numbers:?}");
        }
        let probes = &summary["environment"]["sqlite.probes"]["value"];
        ensure!(probes == "inside", "{argv:?}: {probes}, {:#?}", summary["coverage"]);
        for program in &programs {
            hooked_in(&summary, program, "2 processes")?;
        }
    }
    Ok(())
}

/// A library that cannot be known in advance: a copy under another name, opened while the program runs.
pub fn library_unknown_before_is_probed_when_loaded() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let library = directory.path().join("libother.so");
    fs::copy(fs::canonicalize("/usr/lib/x86_64-linux-gnu/libsqlite3.so.0")?, &library)?;
    let script = "import ctypes, sys
lib, db = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()
lib.sqlite3_open(b':memory:', ctypes.byref(db))
for sql in [b'create table t (a)'] + [b'insert into t values (1)'] * 30 + [b'select * from t']:
    assert lib.sqlite3_exec(db, sql, None, None, None) == 0";
    let path = library.to_string_lossy();
    let summary =
        show(&record(directory.path(), &["--probes", "inside", "--keep-sql"], &["python3", "-c", script, &path])?)?;
    assert_near("INSERTs", number(shape_of(&summary, "INSERT")?, "/count")?, 30.0)?;
    assert_near("CREATEs", number(shape_of(&summary, "CREATE")?, "/count")?, 1.0)?;
    assert_near("rows", number(shape_of(&summary, "SELECT * FROM T")?, "/rows")?, 30.0)?;
    hooked_in(&summary, &library, "1 process")
}

/// Fathom is notified of a program that is then not executed: its caller must get the same error, and continue.
pub fn not_executed() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("program");
    link_program("sqlite_threads.c", LINK_METHODS[1].1, &program)?;
    // A file that is open for writing is announced, and then not executed (ETXTBSY): by the same process, which then starts it in a
    // child of vfork, during which it cannot be stopped.
    let script = "import os, sys
program, copy = sys.argv[1], sys.argv[2]
for mode in (0o755, 0o644, 0o755):
    os.chmod(program, mode)
    with open(program, 'r+b'):
        try: os.execve(program, ['p'], {})
        except OSError as e: print(e.errno)
    if mode == 0o755:
        os.posix_spawn(program, ['p', '2'], {}); print(os.waitstatus_to_exitcode(os.wait()[1]))
with open(copy, 'wb') as f: f.write(open(program, 'rb').read(64))
os.chmod(copy, 0o755)
for path in (copy, sys.argv[3], 'nothing', ''):
    try: os.execve(path, ['p'], {})
    except OSError as e: print(e.errno)
print('whole', flush=True)
with open(program, 'r+b'):
    try: os.execve(program, ['p'], {})
    except OSError as e: sys.exit(e.errno)";
    let (own, copy) =
        (program.to_string_lossy().into_owned(), directory.path().join("cut").to_string_lossy().into_owned());
    let words = ["-c", script, &own, &copy, &directory.path().to_string_lossy()].map(str::to_owned);
    let bare = Command::new("python3").args(&words).output()?;
    let archive = directory.path().join("n.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--keep-sql", "--probes", "inside", "-o"]).arg(&archive).args(["--", "python3"]);
    let traced = command.args(&words).output()?;
    ensure!(bare.stdout.ends_with(b"whole\n"), "{bare:?}");
    ensure!(traced.stdout == bare.stdout && traced.status == bare.status, "{traced:?} is not {bare:?}");
    assert_near("INSERTs", number(shape_of(&show(&archive)?, "INSERT")?, "/count")?, 66.0 * 4.0)
}
