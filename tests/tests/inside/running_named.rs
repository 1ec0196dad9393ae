//! Functions of `--op` in processes that run already: each call is counted, however it ends, and the process is as before afterwards,
//! whatever was under way.

use super::running::{AttachedRecording, RunningProgram, is_as_before, mapping_count, read_maps};
use anyhow::{Context, Result, ensure};
use fathom_tests::{assert_near, number, records_lost, run, shape_of};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Functions with the prologues of all compilers, and none whose jump would lie across two pages.
fn compile(directory: &Path) -> Result<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/running_named.cc");
    let program = directory.join("program");
    let flags = ["-O0", "-w", "-falign-functions=16", "-lpthread", "-o"];
    run(Command::new("c++").arg(&source).args(flags).arg(&program))?;
    Ok(program)
}

fn operations(program: &Path, names: &[&str]) -> Vec<String> {
    names.iter().flat_map(|name| ["--op".to_owned(), format!("{}:{name}", program.display())]).collect()
}

fn start_program(program: &Path, words: &[&str]) -> Result<RunningProgram> {
    let mut program = RunningProgram::start(Command::new(program).args(words))?;
    ensure!(program.answer()? == "ready", "it has begun otherwise");
    Ok(program)
}

fn run_command(program: &mut RunningProgram, what: &str) -> Result<()> {
    program.tell(&format!("{what}\n"))?;
    ensure!(program.answer()? == "done", "{what}: it answers otherwise");
    Ok(())
}

fn finish_program(program: RunningProgram) -> Result<()> {
    let end = program.finish()?;
    ensure!(end == "whole", "{end}");
    Ok(())
}

fn was_probed(summary: &Value, way: &str) -> Result<()> {
    let probes = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
    ensure!(probes.starts_with(way), "asked for {way}: {probes}: {:#?}", summary["coverage"]);
    Ok(())
}

/// Executions that returned, and that did not.
fn assert_counts(summary: &Value, name: &str, whole: f64, left: f64) -> Result<()> {
    let function = shape_of(summary, &name.to_uppercase()).with_context(|| name.to_owned())?;
    assert_near(name, number(function, "/count")?, whole)?;
    assert_near(&format!("{name} left"), number(function, "/unfinished")?, left)
}

const CALM_FUNCTIONS: [&str; 6] = ["plain", "mixed", "inner", "outer", "nested", "tail"];

/// Calls of a round, by function; recursion is one operation.
fn calm_counts(rounds: f64) -> [(&'static str, f64); 6] {
    let each = [3.0, 1.0, 3.0, 1.0, 1.0, 1.0];
    let mut counts = CALM_FUNCTIONS.map(|name| (name, 0.0));
    counts.iter_mut().zip(each).for_each(|(count, each)| count.1 = rounds * each);
    counts
}

pub fn functions_of_running_process_match_uprobes() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let mut running = start_program(&program, &["3", "0"])?;
    run_command(&mut running, "calm 3")?;
    let before = mapping_count(running.pid())?;
    for way in ["inside", "uprobe"] {
        let recording = AttachedRecording::begin_with(
            directory.path(),
            way,
            &[running.pid()],
            &operations(&program, &CALM_FUNCTIONS),
        )?;
        ensure!(read_maps(running.pid())?.contains("fathom-inside.so") == (way == "inside"), "{way}");
        run_command(&mut running, "calm 200")?;
        let summary = recording.end()?;
        ensure!(records_lost(&summary)? == 0.0, "{way}: {}", summary["loss"]);
        was_probed(&summary, way)?;
        for (name, count) in calm_counts(600.0) {
            assert_counts(&summary, name, count, 0.0).context(way)?;
        }
        is_as_before(running.pid(), before).context(way)?;
    }
    finish_program(running)
}

const WILD_FUNCTIONS: [&str; 5] = ["passes", "throws", "leaps", "ends", "handled"];

/// A comparison with uprobes is impossible: they end a program at the first exception.
pub fn functions_left_otherwise_are_counted_in_running_process() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let mut running = start_program(&program, &["3", "0"])?;
    run_command(&mut running, "wild 60")?;
    let before = mapping_count(running.pid())?;
    let names = operations(&program, &[&WILD_FUNCTIONS[..], &CALM_FUNCTIONS[..]].concat());
    let recording = AttachedRecording::begin_with(directory.path(), "inside", &[running.pid()], &names)?;
    run_command(&mut running, "wild 200")?;
    let summary = recording.end()?;
    was_probed(&summary, "inside")?;
    ensure!(records_lost(&summary)? == 0.0, "{}", summary["loss"]);
    for (name, whole, left) in [
        ("passes", 0.0, 600.0),
        ("throws", 0.0, 600.0),
        ("leaps", 0.0, 600.0),
        ("ends", 0.0, 12.0),
        ("handled", 60.0, 0.0),
    ] {
        assert_counts(&summary, name, whole, left)?;
    }
    for (name, count) in calm_counts(600.0) {
        assert_counts(&summary, name, count, 0.0)?;
    }
    is_as_before(running.pid(), before)?;
    run_command(&mut running, "wild 60")?;
    finish_program(running)
}

/// Calls that began before the recording are not recorded. Those that end after it find the object gone, on whatever stack.
pub fn under_way() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let mut running = start_program(&program, &["1", "0"])?;
    let before = mapping_count(running.pid())?;
    let names = operations(&program, &["held", "holds", "suspended", "plain"]);
    run_command(&mut running, "hold")?;
    let recording = AttachedRecording::begin_with(directory.path(), "inside", &[running.pid()], &names)?;
    run_command(&mut running, "free")?;
    run_command(&mut running, "calm 10")?;
    run_command(&mut running, "hold")?;
    let summary = recording.end()?;
    was_probed(&summary, "inside")?;
    for name in ["held", "holds", "suspended"] {
        assert_counts(&summary, name, 0.0, 1.0)?;
    }
    assert_counts(&summary, "plain", 30.0, 0.0)?;
    // A thread of its own has started since.
    is_as_before(running.pid(), before + 6)?;
    run_command(&mut running, "free")?;
    finish_program(running)
}

/// Threads throw, jump, start and end while it is attached to and detached from, repeatedly.
pub fn busy(rounds: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    let mut running = start_program(&program, &["2", "2"])?;
    let names = operations(&program, &["plain", "inner", "outer", "nested", "passes", "throws", "leaps", "spins"]);
    run_command(&mut running, "spin")?;
    let mut inside = 0;
    for round in 0..rounds {
        let recording = AttachedRecording::begin_with(directory.path(), "inside", &[running.pid()], &names)?;
        run_command(&mut running, if round % 2 == 0 { "calm 100" } else { "hold" })?;
        let archive = recording.archive.clone();
        let summary = recording.end().with_context(|| format!("round {round}"))?;
        let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default().to_owned();
        // Threads that start and end may prevent attaching; then the reason is reported, and uprobes would end the program.
        ensure!(fact == "inside", "round {round}: {fact}");
        inside += 1;
        if round % 2 == 0 {
            for (name, count) in [("plain", 600.0), ("inner", 600.0), ("outer", 200.0), ("nested", 200.0)] {
                assert_counts(&summary, name, count, 0.0).with_context(|| format!("round {round}"))?;
            }
        } else {
            run_command(&mut running, "free")?;
        }
        ensure!(number(shape_of(&summary, "SPINS")?, "/count")? > 0.0, "{summary}");
        std::fs::remove_dir_all(archive)?;
        is_as_before(running.pid(), usize::MAX - 2).with_context(|| format!("round {round}"))?;
    }
    run_command(&mut running, "halt")?;
    finish_program(running)?;
    ensure!(inside == rounds, "it was probed inside in {inside} of {rounds} recordings only");
    Ok(())
}

/// A timer's signals interrupt threads that fork and start programs, while it is attached to and detached from; statements and a function
/// are recorded.
pub fn forking(rounds: usize) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = super::compile("cc", "running_forks.c", directory.path())?;
    let mut running = start_program(&program, &["1", "2", "2", "300"])?;
    let names = operations(&program, &["operation"]);
    run_command(&mut running, "spin")?;
    for round in 0..rounds {
        let recording = AttachedRecording::begin_with(directory.path(), "inside", &[running.pid()], &names)?;
        // A fixed wait: the program runs while it is recorded.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let archive = recording.archive.clone();
        let summary = recording.end().with_context(|| format!("round {round}"))?;
        was_probed(&summary, "inside").with_context(|| format!("round {round}"))?;
        for name in ["OPERATION", "SELECT 5 + 1"] {
            ensure!(number(shape_of(&summary, name)?, "/count")? > 0.0, "{name}: {summary}");
        }
        std::fs::remove_dir_all(archive)?;
        is_as_before(running.pid(), usize::MAX - 2).with_context(|| format!("round {round}"))?;
    }
    run_command(&mut running, "halt")?;
    let end = running.finish()?;
    ensure!(end.starts_with("whole"), "{end}");
    Ok(())
}

/// Functions that cannot be hooked have uprobes, and so have all others, and the coverage gives the reason.
pub fn functions_left_to_uprobes_say_why() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let program = compile(directory.path())?;
    // A function that is too short for a jump, and one whose jump lies across two pages.
    let source = directory.path().join("short.c");
    let text = "#include <stdio.h>\n#include <string.h>\nasm(\".globl brief\\n.type brief, @function\\nbrief:\\n push %rbp\\n pop %rbp\\n ret\\n\");\n\
         asm(\".balign 4096\\n.skip 4092\\n.globl across\\n.type across, @function\\nacross:\\n push %rbp\\n mov %rsp, %rbp\\n pop %rbp\\n nop\\n nop\\n ret\\n\");\n\
         void brief(void), across(void);\nint main(void) { char line[9]; puts(\"ready\"); fflush(stdout);\n\
         while (fgets(line, 9, stdin)) { for (int i = 0; i < 7; i++) brief(), across(); puts(\"done\"); fflush(stdout); } puts(\"whole\"); }\n";
    std::fs::write(&source, text)?;
    let short = directory.path().join("short");
    run(Command::new("cc").arg("-w").arg(&source).arg("-o").arg(&short))?;
    for (program, names, counts, reason) in [
        (&short, vec![format!("{}:brief", short.display())], vec![("brief", 7.0)], "too short"),
        (&short, vec![format!("{}:across", short.display())], vec![("across", 7.0)], "lie across two pages"),
        (
            &program,
            vec![format!("{}:plain", program.display()), "libc.so.6:dlsym".into()],
            vec![("plain", 30.0)],
            "it looks at where it is called from",
        ),
    ] {
        let mut running = start_program(program, &["1", "0"])?;
        let names: Vec<String> = names.into_iter().flat_map(|name| ["--op".into(), name]).collect();
        let recording = AttachedRecording::begin_with(directory.path(), "inside", &[running.pid()], &names)?;
        run_command(&mut running, "calm 10")?;
        let summary = recording.end()?;
        for (name, count) in counts {
            assert_counts(&summary, name, count, 0.0).context(reason)?;
        }
        let fact = summary["environment"]["sqlite.probes"]["value"].as_str().unwrap_or_default();
        ensure!(fact.starts_with("uprobes: ") && fact.contains(reason), "{reason}: {fact}");
        let rows = summary["coverage"].as_array().context("coverage[]")?;
        let told = |row: &Value| row["how"].as_str().is_some_and(|how| how.contains("uprobes") && how.contains(reason));
        ensure!(rows.iter().any(told), "{reason}: {rows:#?}");
        finish_program(running)?;
    }
    Ok(())
}

/// Forbids itself, while the object is in it, all system calls but those that it needs, on pain of death.
const FILTERED_PROGRAM: &str = r#"
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
os.write(1, b"ready\n")
os.read(0, 100)
allowed = [0, 1, 9, 12, 15, 202, 219, 231]
code = [struct.pack("HBBI", 0x20, 0, 0, 0)]
code += [struct.pack("HBBI", 0x15, len(allowed) - i, 0, number) for i, number in enumerate(allowed)]
code += [struct.pack("HBBI", 6, 0, 0, 0x80000000), struct.pack("HBBI", 6, 0, 0, 0x7fff0000)]
text = ctypes.create_string_buffer(b"".join(code))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code), ctypes.addressof(text)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter, 0, 0) == 0
os.write(1, b"done\n")
while os.read(0, 100): os.write(1, b"done\n")
libc._exit(0)
"#;

/// Removing the object takes system calls, for which the program would be killed.
pub fn filter_installed_meanwhile_does_not_kill() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let names = ["--op".to_owned(), "libc.so.6:fputs".to_owned()];
    for more in [&[][..], &names] {
        let mut program = RunningProgram::start(Command::new("python3").args(["-c", FILTERED_PROGRAM]))?;
        ensure!(program.answer()? == "ready", "it has begun otherwise");
        let recording = AttachedRecording::begin_with(directory.path(), "inside", &[program.pid()], more)?;
        let is_there = read_maps(program.pid())?.contains("fathom-inside.so");
        run_command(&mut program, "filter")?;
        let summary = recording.end()?;
        ensure!(is_there, "it was not attached to: {}", summary["environment"]["sqlite.probes"]);
        run_command(&mut program, "continue")?;
        program.finish()?;
    }
    Ok(())
}
