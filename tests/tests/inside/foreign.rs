//! Programs that inspect what the loader loads, and tools that run programs their own way: each ends as it does without Fathom.

use super::{number, run, shape_of, show};
use anyhow::{Context, Result, ensure};
use fathom_tests::fathom;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// SELECTs of [`C_PROGRAM`].
const SELECT_COUNT: f64 = 3.0;
const C_PROGRAM: &str = r#"
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
int main(void)
{
	char *volatile room = malloc(7);
	sqlite3 *db;
	int i;

	if (sqlite3_open(":memory:", &db))
		return 2;
	for (i = 0; i < 3; i++)
		if (sqlite3_exec(db, "SELECT 1", 0, 0, 0))
			return 3;
	free(room);
	puts("done");
	return sqlite3_close(db) ? 4 : 7;
}
"#;

fn output(command: &mut Command) -> Result<Output> {
    command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))
}

/// Runs it alone and recorded: both print the same and end with the same status. Returns its SELECTs.
fn compare_with_bare(directory: &Path, argv: &[&str]) -> Result<f64> {
    let alone = output(Command::new(argv[0]).args(&argv[1..]))?;
    let archive = directory.join("f.fathom");
    let recorded = output(Command::new(fathom()).args(["record", "--quiet", "-o"]).arg(&archive).arg("--").args(argv))?;
    let of = |output: &Output| (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned());
    ensure!(of(&alone) == of(&recorded), "{argv:?}: alone {alone:?}, recorded {recorded:?}");
    let summary = show(&archive)?;
    fs::remove_dir_all(&archive)?;
    number(shape_of(&summary, "SELECT").with_context(|| format!("{argv:?}"))?, "/count")
}

/// AddressSanitizer and similar libraries, which must be loaded first.
pub fn sanitized_programs_end_as_without_fathom() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = directory.path().join("p.c");
    fs::write(&source, C_PROGRAM)?;
    let program = directory.path().join("p");
    let name = program.to_string_lossy();
    let (shared, archive, started) = ("-lsqlite3", "-l:libsqlite3.a", format!("{name}; exit $?"));
    let (alone, by_shell) = ([&*name], ["sh", "-c", &*started]);
    // ThreadSanitizer fails if the kernel randomizes mappings over more than 28 bits.
    let in_order = ["setarch", "-R", &*name];
    let cases: [(&[&str], &str, &[&str]); 7] = [
        (&["-fsanitize=address"], shared, &alone),
        (&["-fsanitize=address"], archive, &by_shell),
        (&["-fsanitize=address", "-static-libasan"], shared, &by_shell),
        (&["-fsanitize=address", "-static-libasan"], archive, &alone),
        (&["-fsanitize=undefined"], shared, &alone),
        (&["-fsanitize=leak"], shared, &by_shell),
        (&["-fsanitize=thread"], shared, &in_order),
    ];
    for (options, sqlite, argv) in cases {
        run(Command::new("cc").args(options).arg("-o").arg(&program).arg(&source).args([sqlite, "-lm", "-ldl"]))?;
        let count = compare_with_bare(directory.path(), argv).with_context(|| format!("{options:?} {sqlite}"))?;
        ensure!(count == SELECT_COUNT, "{options:?} {sqlite} {argv:?}: {count} SELECTs");
    }
    Ok(())
}

/// Programs that start programs their own way.
const STARTER_PROGRAMS: [&str; 12] = [
    "env -i PATH=$PATH",
    "env LD_PRELOAD=libm.so.6",
    "setsid -w",
    "chroot /",
    "nice -n 5",
    "unshare --user --map-root-user --mount",
    "unshare --pid --fork",
    "setpriv --no-new-privs",
    "setpriv --reuid=nobody --clear-groups",
    "prlimit --nofile=8",
    "prlimit --fsize=4096",
    "prlimit --as=60000000",
];

/// Programs that other programs start, with an environment, a session, a root, namespaces, rights or libraries of their own.
pub fn programs_started_by_tools_end_as_without_fathom() -> Result<()> {
    let directory = tempfile::tempdir()?;
    for starter in STARTER_PROGRAMS {
        let line = format!("{starter} sqlite3 :memory: 'SELECT 1; SELECT 2' 'SELECT 3'; {starter} sh -c 'exit 9'");
        let count = compare_with_bare(directory.path(), &["sh", "-c", &line])?;
        ensure!(count == SELECT_COUNT, "{starter}: {count} SELECTs");
    }
    Ok(())
}

/// Functions of libraries that two threads close and reopen more often than there is room for at once.
pub fn functions_of_reopened_libraries_are_counted() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let at = |name: &str| directory.path().join(name).display().to_string();
    let (source, program) = (at("work.c"), super::compile("cc", "reopens.c", directory.path())?);
    // It first allocates stack space, which can be undone.
    let work =
        "#include <unistd.h>\n__attribute__((noinline)) int work(int n) { volatile int s = n; getppid(); return s; }\n";
    fs::write(&source, work)?;
    let libraries = ["a.so", "b.so"].map(at);
    for library in &libraries {
        run(Command::new("cc").args(["-O1", "-shared", "-fPIC", "-o", library, &source]))?;
    }
    let [a, b] = &libraries;
    let (first, second) = (format!("{a}:work"), format!("{b}:work"));
    let options = ["--probes", "inside", "--op", &first, "--op", &second];
    let summary = show(&fathom_tests::record(directory.path(), &options, &[&program.to_string_lossy(), "150", a, b])?)?;
    let count = number(shape_of(&summary, "WORK")?, "/count")?;
    ensure!(count == 2.0 * 150.0 * 3.0, "{count} calls");
    ensure!(summary["environment"]["sqlite.probes"]["value"] == "inside", "{:#}", summary["coverage"]);
    Ok(())
}
