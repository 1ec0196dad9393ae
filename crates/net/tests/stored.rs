//! Evaluates stored runs of several machines: the first cause is an injected one, and no cause contradicts itself.

use net::why::{self, Cause, stored::StoredRun};
use std::path::Path;

fn stored_runs() -> Vec<(String, StoredRun)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/stored");
    let mut files: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let lines = |path: &std::path::PathBuf| -> Vec<(String, StoredRun)> {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(path).unwrap();
        let one = |(at, line): (usize, &str)| {
            let place = format!("{name}:{}", at + 1);
            (place.clone(), StoredRun::parse(line).unwrap_or_else(|why| panic!("{place}: {why}")))
        };
        text.lines().enumerate().map(one).collect()
    };
    files.iter().filter(|path| path.extension().is_some_and(|e| e == "jsonl")).flat_map(lines).collect()
}

#[test]
fn stored_runs_are_judged_by_known_cause() {
    let (mut wrong, mut machines) = (Vec::new(), std::collections::BTreeMap::<String, usize>::new());
    for (place, stored) in stored_runs() {
        let limits = why::limits(&stored.ends());
        *machines.entry(stored.machine.clone()).or_default() += 1;
        if !limits.first().is_some_and(|first| stored.expected.contains(&first.cause)) {
            let said: Vec<_> = limits.iter().map(|l| format!("{:?} {:.2}: {}", l.cause, l.share, l.evidence)).collect();
            wrong.push(format!("{place}: {} on {}: {said:#?}", stored.injected, stored.machine));
        }
    }
    for (machine, runs) in &machines {
        println!("{runs} runs of: {machine}");
    }
    assert!(machines.len() >= 4, "runs of too few machines are stored");
    assert!(wrong.is_empty(), "{} wrong: {}", wrong.len(), wrong.join("\n"));
}

#[test]
fn causes_of_stored_runs_agree_with_received_rate() {
    for (place, stored) in stored_runs() {
        let limits = why::limits(&stored.ends());
        let sum: f64 = limits.iter().map(|l| l.share).sum();
        assert!(sum <= 1.0 + 1e-9 && limits.iter().all(|l| (0.0..=1.0).contains(&l.share)), "{place}: {limits:?}");
        let Some(first) = limits.first() else { continue };
        // Loss is evaluated from the second half of a run.
        let of_all = first.share > 0.9 && first.cause != Cause::Congestion;
        if let Some(allows) = first.allows_bps.filter(|_| of_all) {
            assert!(
                stored.rate_bps <= allows * 3.5 && allows <= stored.rate_bps * 3.5,
                "{place}: {} arrived, and {first:?}",
                stored.rate_bps
            );
        }
    }
}
