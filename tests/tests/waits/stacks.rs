//! Where threads slept: in a program whose call chain is known, compiled in ways that give different stacks.

use anyhow::{Context as _, Result, bail, ensure};
use archive::Archive;
use fathom_tests::{fathom, record, run, show};
use model::LossSource;
use model::table::{LossRow, StackRow};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Flags common to both.
const COMPILER_FLAGS: [&str; 4] = ["-O2", "-g0", "-Wall", "-pthread"];

fn compile_program(directory: &Path, flags: &[&str]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/sleeper.c");
    let program = directory.join("sleeper");
    run(Command::new("cc").args(COMPILER_FLAGS).args(flags).arg(source).arg("-o").arg(&program))?;
    Ok(program)
}

/// Records `work`; returns the rows of the program's functions and those of the kernel's, and the archive. A kernel that does not run the
/// scheduler's probes (docs/guide/record.md, "A probe that is not run") hides a sleep: then it is recorded again, at most three times.
fn record_stacks(
    directory: &Path,
    program: &Path,
    how: &str,
    more: &[&str],
) -> Result<(Vec<StackRow>, Vec<StackRow>, PathBuf)> {
    let operation = format!("{}:{}", program.display(), if how == "many" { "nap" } else { "work" });
    let file = directory.join("written").display().to_string();
    let options = [&["--op", &operation], more].concat();
    for _ in 0..3 {
        let archive = record(directory, &options, &[&program.display().to_string(), how, &file])?;
        let recorded = Archive::open(&archive)?;
        let losses: Vec<LossRow> = recorded.rows()?;
        if losses.iter().all(|loss| loss.source != LossSource::NotRun) {
            let (kernel, program) = recorded.rows::<StackRow>()?.into_iter().partition(|row| row.kind == "kernel");
            return Ok((program, kernel, archive));
        }
    }
    bail!("in each of three recordings the kernel did not run a probe")
}

/// Whether the functions are adjacent in a chain, in this order.
fn chain_contains(row: &StackRow, functions: &[&str]) -> bool {
    let all: Vec<&str> = row.functions.lines().collect();
    all.windows(functions.len()).any(|some| some == functions)
}

/// With frame pointers or unwind information, or both: each chain is complete and exact, including the caller of a library's function, and
/// the function whose return address a probe replaced.
pub fn slept_in_functions_are_named_exactly() -> Result<()> {
    for flags in [
        &["-fno-omit-frame-pointer"][..],
        &["-fomit-frame-pointer"],
        &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ] {
        let directory = tempfile::tempdir()?;
        let program = compile_program(directory.path(), flags)?;
        for (how, function, in_kernel) in [
            ("timer", "sleep_by_timer", "nanosleep"),
            ("pipe", "wait_for_pipe", "pipe_read"),
            ("futex", "wait_for_futex", "futex_wait"),
        ] {
            let (of_program, of_kernel, archive) = record_stacks(directory.path(), &program, how, &[])?;
            let chain = [function, "middle", "work", "main"];
            let row = of_program.iter().find(|row| chain_contains(row, &chain));
            let seen = || show(&archive).map_or_else(|error| error.to_string(), |summary| summary.to_string());
            let row = row.with_context(|| {
                format!("{flags:?} {how}: no {chain:?} in {of_program:#?}, {of_kernel:#?}; the recording: {}", seen())
            })?;
            ensure!(row.ended.is_none(), "{flags:?} {how}: {row:?}");
            ensure!(row.operation.is_some() && row.end_ns - row.start_ns > 1_000_000, "{row:?}");
            let sleep = of_kernel.iter().find(|other| other.start_ns == row.start_ns).context("its kernel's side")?;
            ensure!(sleep.functions.contains(in_kernel), "{sleep:?}");
        }
    }
    Ok(())
}

/// The same, inside the process: the object's stubs replace return addresses.
pub fn exact_inside() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile_program(directory.path(), &["-fomit-frame-pointer"])?;
    let (of_program, _, _) = record_stacks(directory.path(), &program, "timer", &["--probes", "auto"])?;
    let chain = ["sleep_by_timer", "middle", "work", "main"];
    ensure!(of_program.iter().any(|row| chain_contains(row, &chain) && row.ended.is_none()), "{of_program:#?}");
    Ok(())
}

/// A chain that cannot be unwound is cut, marked as such, and contains no function that was not a caller.
pub fn unknown_callers_end_chain_and_say_so() -> Result<()> {
    let none = ["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let truth = ["sleep_by_timer", "sleep_astray", "middle", "work", "main"];
    for how in ["timer", "garbage"] {
        let directory = tempfile::tempdir()?;
        let program = compile_program(directory.path(), &none)?;
        let (of_program, _, _) = record_stacks(directory.path(), &program, how, &[])?;
        let own = |row: &&StackRow| row.end_ns - row.start_ns > 1_000_000 && row.operation.is_some();
        let row = of_program.iter().find(own).with_context(|| format!("{how}: no sleep in {of_program:#?}"))?;
        ensure!(row.ended.is_some(), "{how}: {row:?}");
        // `main` is where a wrong chain would continue, and `wait_for_futex` is where the forged frames lead.
        ensure!(!chain_contains(row, &["wait_for_futex"]), "{how}: {row:?}");
        let known: Vec<&str> = row.functions.lines().filter(|name| truth.contains(name)).collect();
        let first = if how == "timer" { "sleep_by_timer" } else { "sleep_astray" };
        ensure!(known.first() == Some(&first), "{how}: {row:?}");
        let places: Vec<_> = known.iter().map(|name| truth.iter().position(|t| t == name)).collect();
        ensure!(places.is_sorted(), "{how}: {row:?}");
    }
    Ok(())
}

/// Sleeps that exceed the budget: in no window are more than a tenth of a second's taken, and all are accounted for.
pub fn stacks_keep_their_budget() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile_program(directory.path(), &["-fno-omit-frame-pointer"])?;
    let (of_program, of_kernel, archive) = record_stacks(directory.path(), &program, "many", &[])?;
    let summary = show(&archive)?;
    let fact = |name: &str| -> Result<u64> {
        let value = summary["environment"][name]["value"].as_str().with_context(|| format!("no {name}"))?;
        Ok(value.parse()?)
    };
    let (a_second, taken, skipped) = (fact("stacks.budget")?, fact("stacks.taken")?, fact("stacks.skipped")?);
    let mut windows: BTreeMap<u64, u64> = BTreeMap::new();
    of_kernel.iter().for_each(|row| *windows.entry(row.end_ns / 100_000_000).or_default() += 1);
    let most = windows.values().max().copied().unwrap_or(0);
    ensure!((1..=a_second / 10).contains(&most), "{most} in a window of 100 ms: {windows:?}");
    ensure!(taken >= of_program.len() as u64 && skipped > taken, "{taken} taken, {skipped} skipped");
    ensure!(fact("stacks.longest_skipped")? >= fact("stacks.from")?, "what was skipped was long enough");
    ensure!(
        of_program.iter().any(|row| chain_contains(row, &["nap", "naps"]) && row.ended.is_none()),
        "{of_program:#?}"
    );
    Ok(())
}

/// What `show` prints, and what it omits when no stacks were requested.
pub fn slow_waits_are_shown_unless_off() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile_program(directory.path(), &["-fomit-frame-pointer"])?;
    let text = |archive: &Path| -> Result<String> {
        Ok(String::from_utf8(run(Command::new(fathom()).arg("show").arg(archive))?.stdout)?)
    };
    let (_, _, archive) = record_stacks(directory.path(), &program, "timer", &[])?;
    let said = text(&archive)?;
    let line = said.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(
        line.contains("slow wait") && line.contains("sleep_by_timer <- middle <- work <- main; kernel: "),
        "{said}"
    );
    let summary = show(&archive)?;
    let waits = &summary["operations"].as_array().context("operations[]")?[0]["slow_waits"];
    ensure!(waits[0]["program_ended"].is_null() && waits[0]["times"] == 1, "{waits}");
    std::fs::remove_dir_all(&archive)?;
    let (of_program, of_kernel, archive) = record_stacks(directory.path(), &program, "timer", &["--stacks", "off"])?;
    ensure!(of_program.is_empty() && of_kernel.is_empty() && !text(&archive)?.contains("slow wait"), "--stacks off");
    let summary = show(&archive)?;
    let probe = summary["coverage"].as_array().context("coverage[]")?.iter().find(|p| p["probe"] == "stacks");
    ensure!(probe.is_some_and(|p: &Value| p["attached"] == false), "{probe:?}");
    ensure!(summary["environment"]["stacks.taken"].is_null(), "no stack, no budget");
    Ok(())
}

/// `lodger.c` with a library, in which only `work` has a name once it is stripped.
struct LodgerProgram {
    directory: tempfile::TempDir,
    program: PathBuf,
    library: PathBuf,
}

impl LodgerProgram {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let own = Self {
            program: directory.path().join("lodger"),
            library: directory.path().join("liblodger.so"),
            directory,
        };
        own.compile(&["-fno-omit-frame-pointer"], "lodger.c", &own.program)?;
        own.compile(&["-fomit-frame-pointer", "-shared", "-fPIC", "-Dmain=no_main"], "sleeper.c", &own.library)?;
        Ok(own)
    }

    fn compile(&self, flags: &[&str], source: &str, to: &Path) -> Result<()> {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(source);
        run(Command::new("cc").args(COMPILER_FLAGS).args(flags).arg(source).arg("-o").arg(to))?;
        Ok(())
    }

    /// Returns the program's functions of the longest sleep in `run`; the program is started through the command `by`.
    fn slept(&self, by: &[&str], place: &str) -> Result<StackRow> {
        let [program, library] = [&self.program, &self.library].map(|path| path.display().to_string());
        let rows = self.sleeps(&[by, &[&program, place, &library]].concat())?;
        let longest = rows.into_iter().max_by_key(|row| row.end_ns - row.start_ns);
        longest.with_context(|| format!("{place}: no sleep of 20 ms"))
    }

    /// Returns the program's functions of the sleeps of more than 20 ms in `run`, in order.
    fn sleeps(&self, argv: &[&str]) -> Result<Vec<StackRow>> {
        let archive = record(self.directory.path(), &["--op", &format!("{}:run", self.program.display())], argv)?;
        let mut rows: Vec<StackRow> = Archive::open(&archive)?.rows()?;
        std::fs::remove_dir_all(&archive)?;
        rows.retain(|row| row.kind == "program" && row.operation.is_some() && row.end_ns - row.start_ns > 20_000_000);
        // When the library is mapped, Fathom's object requests its probes and waits for the response: on a busy machine that takes longer.
        rows.retain(|row| !row.places.contains("/fathom-inside.so"));
        rows.sort_by_key(|row| row.start_ns);
        Ok(rows)
    }
}

const LIBRARY_CHAIN: [&str; 6] = ["sleep_by_timer", "middle", "work", "call_library", "run", "main"];

/// A library whose file was unlinked or replaced, or is visible only to the process, is read anyway: it is mapped.
pub fn of_lost_library() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    // Only this process sees the file system that the library is on, at a path where others see another file.
    let hidden = "mount -t tmpfs none \"${3%/*}/of-its-own\" && cp \"$3\" \"${3%/*}/of-its-own/lib.so\" && \
                  exec \"$1\" \"$2\" \"${3%/*}/of-its-own/lib.so\"";
    std::fs::create_dir(lodger.directory.path().join("of-its-own"))?;
    std::fs::write(lodger.directory.path().join("of-its-own/lib.so"), "another one")?;
    for (by, place) in
        [(&["unshare", "--mount", "sh", "-c", hidden, "sh"][..], "library"), (&[], "replaced"), (&[], "unlinked")]
    {
        if place == "unlinked" {
            lodger.compile(&["-shared", "-fPIC", "-Dmain=no_main"], "sleeper.c", &lodger.library)?;
        }
        let row = lodger.slept(by, place)?;
        ensure!(chain_contains(&row, &LIBRARY_CHAIN) && row.ended.is_none(), "{by:?} {place}: {row:#?}");
    }
    Ok(())
}

/// A library that was loaded long ago, and is closed right after the sleep in it: its functions are named anyway.
pub fn of_closed_library() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    let row = lodger.slept(&[], "closed")?;
    ensure!(chain_contains(&row, &LIBRARY_CHAIN) && row.ended.is_none(), "{row:#?}");
    Ok(())
}

/// A program with another root than the recorder, with libraries that exist only there.
pub fn of_own_root() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    let root = lodger.directory.path().join("root");
    let shown = |path: &Path| path.display().to_string();
    let said = run(Command::new("ldd").arg(&lodger.program))?.stdout;
    let said = String::from_utf8(said)?;
    let mut files: Vec<&str> = said.split_whitespace().filter(|word| word.starts_with('/')).collect();
    let (program, library) = (shown(&lodger.program), shown(&lodger.library));
    files.extend([&*program, &*library]);
    for file in files {
        let to = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(to.parent().context("a directory")?)?;
        std::fs::copy(file, to)?;
    }
    // These names do not exist outside.
    let (inner, hidden) = (root.join(library.trim_start_matches('/')), root.join("of-its-own.so"));
    std::fs::rename(inner, hidden)?;
    let own = LodgerProgram { program: root.join(program.trim_start_matches('/')), ..lodger };
    let rows = own.sleeps(&["chroot", &shown(&root), &program, "library", "/of-its-own.so"])?;
    ensure!(rows.iter().any(|row| chain_contains(row, &LIBRARY_CHAIN) && row.ended.is_none()), "{rows:#?}");
    Ok(())
}

/// A function without a name is named by its file; the chain continues after it.
pub fn of_stripped_library() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    run(Command::new("strip").arg(&lodger.library))?;
    let row = lodger.slept(&[], "library")?;
    ensure!(chain_contains(&row, &["work", "call_library", "run", "main"]) && row.ended.is_none(), "{row:#?}");
    // Exported functions have names anyway.
    ensure!(chain_contains(&row, &["sleep_by_timer", "middle", "work"]), "{row:#?}");
    Ok(())
}

/// Threads with stacks of 64 KiB, generated code, and a signal handler: no frame is missing.
pub fn of_odd_places() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    let row = lodger.slept(&[], "thread")?;
    ensure!(chain_contains(&row, &LIBRARY_CHAIN[..5]) && row.ended.is_none(), "{row:#?}");
    if cfg!(target_arch = "x86_64") {
        // Code that is made executable is not announced: it is looked for when a stack leads to it, and a process that has ended by then
        // has none. The chain is cut there, and says so.
        let (mut row, mut left) = (lodger.slept(&[], "made")?, 3);
        while row.ended.is_some() && left > 0 {
            (row, left) = (lodger.slept(&[], "made")?, left - 1);
        }
        let all: Vec<&str> = row.functions.lines().collect();
        let made = all.iter().position(|name| name.starts_with("[code made by process "));
        let made = made.with_context(|| format!("no made code: {row:#?}"))?;
        ensure!(
            all[made - 1] == "sleep_here" && all[made + 1..].starts_with(&["call_made", "run", "main"]),
            "{row:#?}"
        );
    }
    if cfg!(target_arch = "x86_64") {
        let row = lodger.slept(&[], "vdso")?;
        ensure!(chain_contains(&row, &["sleep_here", "handle_in_vdso"]), "{row:#?}");
        ensure!(row.functions.contains("\ntell_time\nrun\nmain") || row.ended.is_some(), "{row:#?}");
    }
    let row = lodger.slept(&[], "handler")?;
    ensure!(chain_contains(&row, &["sleep_here", "handle"]), "{row:#?}");
    ensure!(row.functions.contains("\nrun\nmain") || row.ended.is_some(), "{row:#?}");
    Ok(())
}

/// What does not fit is cut, and marked as such; what has no end is not followed, so that the recording ends.
pub fn of_endless_stack() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    for (place, function, why) in [
        ("deep", "go_down", "longer"),
        ("wide", "go_down_wide", "beyond"),
        ("endless", "sleep_endlessly_described", "called"),
    ] {
        let row = lodger.slept(&[], place)?;
        ensure!(row.functions.contains(function), "{place}: {row:#?}");
        ensure!(row.ended.as_ref().is_some_and(|ended| ended.contains(why)), "{place}: {row:#?}");
    }
    Ok(())
}

/// A name is untrusted, and a terminal interprets some characters as commands.
pub fn of_hostile_name() -> Result<()> {
    let lodger = LodgerProgram::new()?;
    let name = "evil\u{1b}[31m\n\tname\u{202e}";
    run(Command::new("objcopy").args(["--redefine-sym", &format!("call_library={name}")]).arg(&lodger.program))?;
    let row = lodger.slept(&[], "library")?;
    ensure!(chain_contains(&row, &["work", "evil?[31m??name\u{202e}", "run", "main"]), "{row:#?}");
    Ok(())
}

/// musl's functions have neither unwind information nor frame pointers: with those of the program the function that called them is skipped.
/// It is still named, from the call instruction of its caller, and a possible gap is marked.
pub fn of_static_program() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/sleeper.c");
    let program = directory.path().join("sleeper");
    let flags = ["-static", "-fno-omit-frame-pointer"];
    run(Command::new("musl-gcc").args(COMPILER_FLAGS).args(flags).arg(source).arg("-o").arg(&program))?;
    let (of_program, _, _) = record_stacks(directory.path(), &program, "timer", &[])?;
    let own = |row: &&StackRow| row.end_ns - row.start_ns > 1_000_000 && row.operation.is_some();
    let row = of_program.iter().find(own).with_context(|| format!("no sleep in {of_program:#?}"))?;
    ensure!(chain_contains(row, &["sleep_by_timer", "middle", "work", "main"]), "{row:#?}");
    let all: Vec<&str> = row.functions.lines().collect();
    let of_musl = all.iter().take_while(|name| **name != "sleep_by_timer").copied().collect::<Vec<_>>();
    ensure!(of_musl.last() == Some(&"?") || of_musl.last() == Some(&"nanosleep"), "{row:#?}");
    Ok(())
}
