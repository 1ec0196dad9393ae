//! Where threads slept: on a program whose chain of functions is known, compiled in the ways in which stacks differ.

use anyhow::{Context as _, Result, ensure};
use archive::Archive;
use fathom_tests::{fathom, record, run, show};
use model::table::StackRow;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What both have.
const OPTIMISED: [&str; 4] = ["-O2", "-g0", "-Wall", "-pthread"];

fn compiled(folder: &Path, flags: &[&str]) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/sleeper.c");
    let program = folder.join("sleeper");
    run(Command::new("cc").args(OPTIMISED).args(flags).arg(source).arg("-o").arg(&program))?;
    Ok(program)
}

/// The rows of the program's functions, and those of the kernel's, of a recording of `work`.
fn stacks(folder: &Path, program: &Path, how: &str, more: &[&str]) -> Result<(Vec<StackRow>, Vec<StackRow>, PathBuf)> {
    let operation = format!("{}:{}", program.display(), if how == "many" { "nap" } else { "work" });
    let file = folder.join("written").display().to_string();
    let options = [&["--op", &operation], more].concat();
    let archive = record(folder, &options, &[&program.display().to_string(), how, &file])?;
    let rows: Vec<StackRow> = Archive::open(&archive)?.rows()?;
    let (kernel, program) = rows.into_iter().partition(|row| row.kind == "kernel");
    Ok((program, kernel, archive))
}

/// Whether the functions stand one after the other in a chain.
fn holds(row: &StackRow, functions: &[&str]) -> bool {
    let all: Vec<&str> = row.functions.lines().collect();
    all.windows(functions.len()).any(|some| some == functions)
}

/// With frame pointers or unwind information, or both: each chain is whole and exact, the caller of a library's function included, and the
/// function whose return address a probe replaced.
pub fn exact() -> Result<()> {
    for flags in [
        &["-fno-omit-frame-pointer"][..],
        &["-fomit-frame-pointer"],
        &["-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"],
    ] {
        let folder = tempfile::tempdir()?;
        let program = compiled(folder.path(), flags)?;
        for (how, function, in_kernel) in [
            ("timer", "sleep_by_timer", "nanosleep"),
            ("pipe", "wait_for_pipe", "pipe_read"),
            ("futex", "wait_for_futex", "futex_wait"),
        ] {
            let (of_program, of_kernel, _) = stacks(folder.path(), &program, how, &[])?;
            let chain = [function, "middle", "work", "main"];
            let row = of_program.iter().find(|row| holds(row, &chain));
            let row = row.with_context(|| format!("{flags:?} {how}: no {chain:?} in {of_program:#?}"))?;
            ensure!(row.ended.is_none(), "{flags:?} {how}: {row:?}");
            ensure!(row.operation.is_some() && row.end_ns - row.start_ns > 1_000_000, "{row:?}");
            let sleep = of_kernel.iter().find(|other| other.start_ns == row.start_ns).context("its kernel's side")?;
            ensure!(sleep.functions.contains(in_kernel), "{sleep:?}");
        }
    }
    Ok(())
}

/// The same, inside the process: the object's stubs stand for return addresses.
pub fn exact_inside() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compiled(folder.path(), &["-fomit-frame-pointer"])?;
    let (of_program, _, _) = stacks(folder.path(), &program, "timer", &["--probes", "auto"])?;
    let chain = ["sleep_by_timer", "middle", "work", "main"];
    ensure!(of_program.iter().any(|row| holds(row, &chain) && row.ended.is_none()), "{of_program:#?}");
    Ok(())
}

/// A chain that nothing tells is cut, says so, and holds no function that did not call.
pub fn honest() -> Result<()> {
    let none = ["-fomit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"];
    let truth = ["sleep_by_timer", "sleep_astray", "middle", "work", "main"];
    for how in ["timer", "garbage"] {
        let folder = tempfile::tempdir()?;
        let program = compiled(folder.path(), &none)?;
        let (of_program, _, _) = stacks(folder.path(), &program, how, &[])?;
        let own = |row: &&StackRow| row.end_ns - row.start_ns > 1_000_000 && row.operation.is_some();
        let row = of_program.iter().find(own).with_context(|| format!("{how}: no sleep in {of_program:#?}"))?;
        ensure!(row.ended.is_some(), "{how}: {row:?}");
        // `main` is where a wrong chain would go on, and `wait_for_futex` is where the false frames lead.
        ensure!(!holds(row, &["wait_for_futex"]), "{how}: {row:?}");
        let known: Vec<&str> = row.functions.lines().filter(|name| truth.contains(name)).collect();
        let first = if how == "timer" { "sleep_by_timer" } else { "sleep_astray" };
        ensure!(known.first() == Some(&first), "{how}: {row:?}");
        let places: Vec<_> = known.iter().map(|name| truth.iter().position(|t| t == name)).collect();
        ensure!(places.is_sorted(), "{how}: {row:?}");
    }
    Ok(())
}

/// Sleeps that come faster than the budget: in no window more than a tenth of a second's are taken, and all are accounted for.
pub fn budget() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compiled(folder.path(), &["-fno-omit-frame-pointer"])?;
    let (of_program, of_kernel, archive) = stacks(folder.path(), &program, "many", &[])?;
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
    ensure!(of_program.iter().any(|row| holds(row, &["nap", "naps"]) && row.ended.is_none()), "{of_program:#?}");
    Ok(())
}

/// What `show` prints, and what it does not when nothing was asked for.
pub fn shown() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let program = compiled(folder.path(), &["-fomit-frame-pointer"])?;
    let text = |archive: &Path| -> Result<String> {
        Ok(String::from_utf8(run(Command::new(fathom()).arg("show").arg(archive))?.stdout)?)
    };
    let (_, _, archive) = stacks(folder.path(), &program, "timer", &[])?;
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
    let (of_program, of_kernel, archive) = stacks(folder.path(), &program, "timer", &["--stacks", "off"])?;
    ensure!(of_program.is_empty() && of_kernel.is_empty() && !text(&archive)?.contains("slow wait"), "--stacks off");
    let summary = show(&archive)?;
    let probe = summary["coverage"].as_array().context("coverage[]")?.iter().find(|p| p["probe"] == "stacks");
    ensure!(probe.is_some_and(|p: &Value| p["attached"] == false), "{probe:?}");
    ensure!(summary["environment"]["stacks.taken"].is_null(), "no stack, no budget");
    Ok(())
}
