//! The kernel's verifier follows every path through a program, so that a branch with many outcomes multiplies the work on all that comes
//! after it. Loading is most of what the start of a recording takes.

mod common;

use aya::programs::loaded_programs;
use capture::{Request, Scope};
use common::Recorder;
use std::collections::BTreeSet;

/// The largest needs 36,000 on Linux 6.18. The kernel's own limit is a million, which takes seconds.
const INSTRUCTIONS_MAX: u32 = 100_000;

#[test]
fn verifier_follows_few_paths_of_each_program() {
    needs_live_kernel!();
    let recorder = Recorder::start(&Request::new(Scope::Command));
    let own: BTreeSet<u32> = std::fs::read_dir("/proc/self/fdinfo")
        .unwrap()
        .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path()).ok())
        .filter_map(|text| text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().parse().ok())
        .collect();
    let mut counts: Vec<(u32, String)> = loaded_programs()
        .filter_map(Result::ok)
        .filter(|program| own.contains(&program.id()))
        .filter_map(|program| {
            Some((program.verified_instruction_count()?, program.name_as_str().unwrap_or_default().to_owned()))
        })
        .collect();
    recorder.finish();
    counts.sort_unstable();
    assert!(counts.len() > 30, "{counts:?}");
    assert!(counts.last().is_some_and(|(count, _)| *count < INSTRUCTIONS_MAX), "{counts:?}");
}
