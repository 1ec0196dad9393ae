//! Programs that leave calls of SQLite and named functions in every way, or end at any moment: they do the same as without Fathom, and all
//! executions are counted.

use super::{compile, number, run, shape_of, show};
use anyhow::{Context, Result, bail, ensure};
use fathom_tests::{assert_near, fathom, records_lost};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A comparison with uprobes is impossible: they end a program at the first exception.
pub fn exits(times: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile("c++", "sqlite_exits.cc", directory.path())?;
    let bare = Command::new(&program).output()?;
    for _ in 0..times {
        let archive = directory.path().join("t.fathom");
        let mut command = Command::new(fathom());
        command
            .args(["record", "--quiet", "--keep-sql", "--probes", "inside", "-o"])
            .arg(&archive)
            .arg("--")
            .arg(&program);
        let traced = command.output()?;
        ensure!(traced.status.code() == Some(7), "{traced:?}");
        ensure!(traced.stdout == bare.stdout, "{} is not {}", traced.stdout.escape_ascii(), bare.stdout.escape_ascii());
        let summary = show(&archive)?;
        // A thread keeps eight open executions; those abandoned by a jump, 22, give way to further ones, and are reported.
        let losses = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
        let gave_way = losses.iter().filter(|loss| loss["source"] == "kernel table full");
        let gave_way: f64 = gave_way.filter_map(|loss| loss["events"].as_f64()).sum();
        ensure!(gave_way <= 22.0 && records_lost(&summary)? == gave_way, "{}", summary["loss"]);
        let counts = [
            ("UPDATE", 3000.0, 0.0, 0.0),
            ("SELECT JUMP()", 0.0, 12.0, 0.0),
            ("SELECT TOSS()", 0.0, 5.0, 0.0),
            ("SELECT DIE()", 0.0, 5.0, 0.0),
            ("SELECT COUNT(*) FROM T WHERE", 1.0, 0.0, 1.0),
            ("SELECT SPLIT()", 1.0, 0.0, 1.0),
            ("SELECT A, A FROM T", 1.0, 0.0, 1.0),
            ("INSERT INTO T VALUES (5), (6), (7)", 20.0, 0.0, 0.0),
            ("INSERT INTO T VALUES (9), (9)", 10.0, 0.0, 0.0),
            ("INSERT INTO T VALUES (3) RETURNING A", 800.0, 0.0, 800.0),
        ];
        for (statement, count, unfinished, rows) in counts {
            let found = shape_of(&summary, statement)?;
            assert_near(&format!("{statement}: count"), number(found, "/count")?, count)?;
            assert_near(&format!("{statement}: unfinished"), number(found, "/unfinished")?, unfinished)?;
            assert_near(&format!("{statement}: rows"), number(found, "/rows")?, rows)?;
        }
    }
    Ok(())
}

/// The program prints the same as without Fathom, although its functions have arguments and results of all kinds, and are left by
/// exceptions, jumps, signals, forks, cancellation and by changes of the stack. Uprobes would end it at its first exception.
pub fn named_functions() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/named.cc");
    let program = directory.path().join("named");
    // Functions with the prologues of all compilers.
    run(Command::new("c++").args(["-O0", "-w", "-o"]).arg(&program).arg(&source).arg("-lpthread"))?;
    let bare = Command::new(&program).output()?;
    let counts = [
        ("MANY", 1000.0, 0.0),
        ("VARIADIC", 1000.0, 0.0),
        ("EXTENDED", 1000.0, 0.0),
        ("WIDE", 1000.0, 0.0),
        ("BOTH", 2000.0, 0.0),
        ("EVEN", 1000.0, 0.0),
        ("ODD", 980.0, 0.0),
        ("PASSES", 0.0, 5000.0),
        ("THROWS", 0.0, 5000.0),
        ("JUMPS", 0.0, 3000.0),
        ("FORKS", 20.0, 0.0),
        ("LEAVES", 0.0, 100.0),
    ];
    let names = counts.iter().map(|(name, ..)| name.to_lowercase());
    let operations: Vec<String> = names.map(|name| format!("{}:{name}", program.display())).collect();
    let more = ["libc.so.6:close", "libc.so.6:fsync", "libc.so.6:waitpid"].map(str::to_owned);
    let archive = directory.path().join("n.fathom");
    let mut command = Command::new(fathom());
    command.args(["record", "--quiet", "--probes", "inside", "-o"]).arg(&archive);
    command.args(operations.iter().chain(&more).flat_map(|operation| ["--op", operation]));
    let traced = command.arg("--").arg(&program).output()?;
    ensure!(traced.status.code() == Some(5) && bare.status.code() == Some(5), "{traced:?}");
    ensure!(traced.stdout == bare.stdout, "{} is not {}", traced.stdout.escape_ascii(), bare.stdout.escape_ascii());
    let summary = show(&archive)?;
    for (name, whole, left) in counts {
        let function = shape_of(&summary, name)?;
        assert_near(name, number(function, "/count")?, whole)?;
        assert_near(&format!("{name} left"), number(function, "/unfinished")?, left)?;
    }
    assert_near("WAITPID", number(shape_of(&summary, "WAITPID")?, "/count")?, 60.0)
}

/// A small number of the rounds of the long test.
pub fn chaos_ends_as_without_fathom() -> Result<()> {
    chaotic(&[("1", "200", "inside")])
}

pub fn long_chaos() -> Result<()> {
    chaotic(&[("2", "10000", "inside"), ("2", "10000", "uprobe")])
}

/// Two copies of the library: one that is known in advance, one that is found when it is loaded.
fn chaotic(runs: &[(&str, &str, &str)]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (program, library) = (directory.path().join("chaos"), directory.path().join("libother.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/chaos.c");
    run(Command::new("cc").args(["-O0", "-w", "-o"]).arg(&program).arg(&source).args(["-lpthread", "-ldl"]))?;
    let known = "/usr/lib/x86_64-linux-gnu/libsqlite3.so.0";
    fs::copy(fs::canonicalize(known)?, &library)?;
    let operation = format!("{}:operation", program.display());
    for (seed, rounds, way) in runs {
        let words = [*seed, *rounds, known, &library.to_string_lossy()];
        let bare = run(Command::new(&program).args(words))?.stdout;
        let mut command = Command::new(fathom());
        command
            .args(["record", "--quiet", "--probes", way, "--op", &operation, "-o"])
            .arg(directory.path().join("c.fathom"));
        let traced = run(command.arg("--").arg(&program).args(words))?.stdout;
        ensure!(traced == bare, "{way}: {} is not {}", traced.escape_ascii(), bare.escape_ascii());
    }
    Ok(())
}

/// Its output has the number of statements, and whether each child ended as expected.
pub fn endings(seed: &str) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile("cc", "sqlite_endings.c", directory.path())?;
    ended_as_counted(&program, &[(seed, "inside"), (seed, "uprobe")])
}

pub fn ended_as_counted(program: &Path, runs: &[(&str, &str)]) -> Result<()> {
    let directory = tempfile::tempdir()?;
    for (seed, way) in runs {
        let words = [seed, "400"];
        let bare = Command::new(program).args(words).output()?;
        let archive = directory.path().join(format!("{way}{seed}.fathom"));
        let mut command = Command::new(fathom());
        command.args(["record", "--quiet", "--keep-sql", "--probes", way, "-o"]).arg(&archive).arg("--");
        let traced = run(command.arg(program).args(words))?;
        let printed = String::from_utf8(traced.stdout)?;
        ensure!(printed.as_bytes() == bare.stdout, "{way}: {printed} is not {}", bare.stdout.escape_ascii());
        let numbers: Vec<f64> = printed.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let [counted, again, 0.0] = numbers[..] else { bail!("{way}, seed {seed}: {printed}") };
        let summary = show(&archive)?;
        // If a machine does other I/O meanwhile, runs of the block layer's probes may be missed.
        let losses = summary["loss"]["intervals"].as_array().context("loss/intervals[]")?;
        ensure!(losses.iter().all(|loss| loss["source"] == "probe not run"), "{way}, seed {seed}: {losses:?}");
        for (statement, count) in [("INSERT INTO T VALUES (5)", counted), ("INSERT INTO T VALUES (5), (6)", again)] {
            let all = summary["operations"].as_array().context("operations[]")?;
            let is_it = |o: &&Value| o["statement"].as_str().is_some_and(|s| s.eq_ignore_ascii_case(statement));
            let found = all.iter().find(is_it).with_context(|| format!("{way}: {statement}"))?;
            assert_near(&format!("{way}, seed {seed}, {statement}: count"), number(found, "/count")?, count)?;
            assert_near(&format!("{way}, seed {seed}, {statement}: unfinished"), number(found, "/unfinished")?, 0.0)?;
        }
    }
    Ok(())
}
