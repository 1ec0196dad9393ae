//! Attaches to a program and detaches from it many times, without recording: a stress of what both do to the program.

use super::super::{Inside, ProbedProcesses};
use crate::request::Function;
use crate::sqlite::find::Finder;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

macro_rules! say {
    ($($what:tt)*) => { writeln!(std::io::stdout(), $($what)*).unwrap() };
}

/// The program answers lines: `spin`, and at the end `halt`. Then it must print `whole`. Another than running.c, functions, and a number of
/// rounds are given by `FATHOM_PROGRAM` (its words), `FATHOM_FUNCTIONS` and `FATHOM_ROUNDS`.
#[test]
#[ignore = "long: attaches to a program 200 times"]
fn program_is_whole_after_rounds() {
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    let (mut words, rounds) = (variable("FATHOM_PROGRAM"), variable("FATHOM_ROUNDS").parse::<u32>().unwrap_or(200));
    let directory = tempfile::tempdir().unwrap();
    if words.is_empty() {
        let program = directory.path().join("running");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/programs/running.c");
        let compiled = Command::new("cc").args(["-w", source, "-lsqlite3", "-lpthread", "-o"]).arg(&program).status();
        if lab::privilege::full().is_err() || !compiled.is_ok_and(|status| status.success()) {
            say!("SKIP program_is_whole_after_rounds: it needs root, cc and SQLite's header");
            return;
        }
        words = format!("{} 4 0 4 2", program.to_string_lossy());
    }
    let mut words = words.split_whitespace();
    let mut command = Command::new(words.next().unwrap());
    let mut child = command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut input = child.stdin.take().unwrap();
    let mut send_line = |line: &str| input.write_all(line.as_bytes()).and_then(|()| input.flush()).unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    send_line("spin\n");
    let (pid, mut random) = (child.id(), u64::from(child.id()));
    let (mut attached, mut refused) = (0, std::collections::BTreeMap::<String, u32>::new());
    let mut kept: Option<Inside> = None;
    for round in 0..rounds {
        // Its directory has the memory of each round.
        if round % 100 == 0 {
            kept = None;
        }
        let inside = kept.get_or_insert_with(|| prepare(pid, &variable("FATHOM_FUNCTIONS")));
        match inside.attach_to(pid) {
            Ok(()) => attached += 1,
            Err(why) => *refused.entry(why.to_string()).or_default() += 1,
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((random >> 33) % 5000));
        inside.remove_attached(&[]);
        assert!(child.try_wait().unwrap().is_none(), "it ended in round {round}");
        if round % 200 == 199 {
            say!("{} rounds, {attached} attached, not: {refused:?}", round + 1);
        }
    }
    drop(kept);
    let left = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    say!("left: {}", left.lines().filter(|line| line.contains("fathom-inside")).count());
    send_line("halt\n");
    drop(input);
    let output_lines: Vec<String> = lines.map_while(Result::ok).collect();
    say!("{rounds} rounds, {attached} attached, not: {refused:?}; it said {output_lines:?}");
    assert!(child.wait().unwrap().success());
    assert!(output_lines.last().is_some_and(|line| line.starts_with("whole")), "{output_lines:?}");
    assert!(attached * 2 > rounds, "{refused:?}");
}

fn prepare(pid: u32, functions: &str) -> Inside {
    let named = functions.split_whitespace().map(|function| {
        let (path, name) = function.rsplit_once(':').unwrap();
        Function { path: PathBuf::from(path), name: name.into(), inside: None }
    });
    let (mut functions, found): (Vec<_>, _) = (named.collect(), Finder::new(None).search_process(pid).found);
    Inside::prepare(&found, &mut functions, ProbedProcesses::Running(&[pid])).unwrap().0
}
