//! Losses are reported: records that do not fit are counted per CPU, in the interval of the loss.

mod common;

use capture::{Error, Request, Scope};
use common::Recorder;
use model::LossSource;
use std::collections::BTreeMap;

#[test]
fn full_ring_losses_are_counted_exactly() {
    needs_live_kernel!();
    let directory = tempfile::tempdir().unwrap();
    // More records than the ring holds, without draining.
    let mut child = common::spawn_gated(&format!(
        "exec dd if=/dev/zero of={}/f bs=1 count=1500000 status=none",
        directory.path().display()
    ));
    let mut recorder = Recorder::start(&Request::new(Scope::Pids(vec![child.id()])));
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    assert!(child.wait().unwrap().success());
    recorder.drain();
    let (events, finished) = recorder.finish();

    let mut lost: BTreeMap<u16, u64> = BTreeMap::new();
    for (event, loss) in records!(events, Loss).filter(|(_, l)| l.source == LossSource::Ring.number()) {
        assert!(loss.start_ns < event.header.time_ns && loss.events > 0 && loss.bound == 0);
        *lost.entry(event.header.cpu).or_default() += loss.events;
    }
    let sum: u64 = lost.values().sum();
    assert!(sum > 0, "the ring held everything: the test shows nothing");
    assert_eq!(sum, finished.lost);
    // Each CPU numbers recorded and lost records, so gaps cannot exceed the losses.
    let mut seen: BTreeMap<u16, (u64, u64)> = BTreeMap::new();
    for event in &events {
        let (count, last) = seen.entry(event.header.cpu).or_default();
        *count += 1;
        *last = (*last).max(u64::from(event.header.seq));
    }
    for (cpu, lost) in lost {
        let (mut count, last) = seen[&cpu];
        count -= records!(events, Loss).filter(|(e, _)| e.header.cpu == cpu).count() as u64;
        let holes = last + 1 - count;
        assert!(holes <= lost, "CPU {cpu}: {holes} holes, {lost} lost");
    }
}

#[test]
fn missing_process_is_an_error() {
    needs_live_kernel!();
    // Above the largest number that a kernel assigns (PID_MAX_LIMIT).
    let absent = (4 << 20) + 1;
    let error = capture::Session::start(&Request::new(Scope::Pids(vec![absent]))).unwrap_err();
    assert!(matches!(error, Error::NoProcess(n) if n == absent), "{error}");
}

#[test]
fn every_probe_is_accounted_for() {
    needs_live_kernel!();
    let recorder = Recorder::start(&Request::new(Scope::Command));
    let (_, finished) = recorder.finish();
    for row in &finished.coverage {
        assert!(!row.how.is_empty(), "{row:?}");
        // Stacks are taken by the probes of switches and calls, which count the misses.
        assert_eq!(row.misses.is_some(), row.attached && row.probe != "stacks", "{row:?}");
    }
    let rq_done = finished.coverage.iter().find(|r| r.probe == "rq_done").expect("the probe of completions");
    assert!(rq_done.attached, "{}", rq_done.how);
    // Nearly every window of 5 ms has a context switch; without one there is no cost, which is fine.
    let switch = finished.coverage.iter().find(|r| r.probe == "sched_switch").expect("the probe of switches");
    assert!(!switch.attached || switch.price_ns.is_none_or(|ns| ns > 0.0));
}
