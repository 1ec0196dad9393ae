//! The account: every nanosecond has a place, whatever took it.

use super::super::*;
use super::codes;
use analysis::handmade::{Execution, insert, recording};
use analysis::small_trace::fact;
use model::table::{Process, ThreadTime};
use model::{Layer, Reason, Wait};
use proptest::prelude::*;

/// Gives each slice in turn one of these kinds.
fn kinds(rows: &mut Rows, kinds: &[(Layer, Reason, Option<Wait>, Option<u32>)]) {
    for (nth, slice) in rows.slices.edit().iter_mut().enumerate().filter(|_| !kinds.is_empty()) {
        (slice.layer, slice.reason, slice.wait, slice.by_tgid) = kinds[nth % kinds.len()];
    }
}

/// Puts every second execution into the one before it.
fn nested(rows: &mut Rows) {
    let ids: Vec<u64> = rows.operations.iter().map(|o| o.id).collect();
    for (nth, operation) in rows.operations.edit().iter_mut().enumerate().filter(|(nth, _)| nth % 2 == 1) {
        operation.parent = Some(ids[nth - 1]);
    }
}

fn sum(account: &contract::Account) -> u64 {
    account.leaves.iter().map(|leaf| leaf.ns).sum::<u64>() + account.unaccounted_ns
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the slices are, how many are missing, whether executions are inside others, and what the recording costs.
    #[test]
    fn leaves_and_rest_add_up_to_whole(
        calls in prop::collection::vec(
            prop::collection::vec(
                (prop::sample::select(vec!["pwrite64", "fdatasync", "open"]), 1..4_u64, 0..500_000_u64, 0..9000_u64),
                0..6,
            ),
            0..40,
        ),
        of in prop::collection::vec(
            (
                prop::sample::select(Layer::ALL.to_vec()),
                prop::sample::select(Reason::ALL.to_vec()),
                prop::option::of(prop::sample::select(Wait::ALL.to_vec())),
                prop::option::of(1..200_u32),
            ),
            0..9,
        ),
        missing in 1..8_usize,
        inside in any::<bool>(),
        price in prop::option::of(0..200_000_u64),
    ) {
        let executions: Vec<Execution> = calls.into_iter().map(|calls| Execution { outside_ns: 500, calls }).collect();
        let mut rows = recording(&executions);
        kinds(&mut rows, &of);
        let mut nth = 0;
        rows.slices.edit().retain(|_| { nth += 1; nth % missing != 1 });
        if inside {
            nested(&mut rows);
        }
        for (part, ns) in ["", ".low", ".high"].iter().zip(price.into_iter().cycle().take(3)) {
            rows.facts.push(fact(&format!("tracer.price.step{part}"), ns));
        }
        let done = explain(&rows);
        let account = &done.account;
        prop_assert_eq!(account.whole_ns, done.latency_ns);
        prop_assert_eq!(sum(account), account.whole_ns);
        let shares: f64 = account.leaves.iter().map(|leaf| leaf.share).sum();
        prop_assert!(shares <= 1.0 + 1e-9);
        prop_assert!(account.leaves.is_sorted_by(|a, b| a.ns >= b.ns && a.listed >= b.listed));
        for leaf in &account.leaves {
            prop_assert!(leaf.ns > 0 && leaf.statement_ns <= leaf.ns);
            prop_assert!(leaf.executions <= account.executions);
            prop_assert!(leaf.interval.is_none_or(|[low, high]| (0.0..=1.0).contains(&low) && low <= high && high <= 1.0));
            prop_assert!(leaf.by.iter().map(|by| by.ns).sum::<u64>() <= leaf.ns);
        }
        let between = &done.between;
        let parts: u64 = between.leaves.iter().map(|leaf| leaf.ns).sum();
        prop_assert_eq!(between.operations_ns + parts + between.unaccounted_ns, between.whole_ns);
        for leaf in &between.leaves {
            prop_assert!(leaf.interval.is_none_or(|[low, high]| 0.0 <= low && low <= high && high <= 1.0));
            prop_assert!((0.0..=1.0).contains(&leaf.share) && leaf.saves_at_most_ns == leaf.ns);
        }
        for finding in &done.findings {
            let held: u64 = finding.leaves.iter().map(|at| account.leaves[*at].saves_at_most_ns).sum();
            let cap = if finding.leaves.is_empty() { done.latency_ns } else { held };
            prop_assert!(finding.saving_ns.is_none_or(|ns| ns <= cap));
            prop_assert!(finding.saving_interval_ns.is_none_or(|[low, high]| low <= high && high <= cap));
        }
        prop_assert!(text::text(&done).lines().all(|line| line.chars().count() <= 100));
    }
}

/// Each wait that the kernel names, none of which a rule may know: it is the first thing said, with who ended it.
#[test]
fn the_largest_part_is_named_whatever_it_is() {
    for wait in Wait::ALL {
        let mut rows = recording(&vec![insert(); 20]);
        rows.processes.push(Process { tgid: 7, name: "compute".into(), parent: None, tracked: false });
        for operation in rows.operations.edit().iter_mut() {
            let end = operation.end_ns.unwrap();
            operation.end_ns = Some(end + 660_000);
            let mut slice = Slice::new(operation.id, Layer::App, Reason::Other, end, end + 660_000);
            (slice.wait, slice.by_tgid) = (Some(*wait), Some(7));
            rows.slices.push(slice);
        }
        let done = explain(&rows);
        let first = &done.account.leaves[0];
        assert_eq!((first.wait, first.ns, first.executions), (Some(*wait), 20 * 660_000, 20));
        let line = text::summary(&done);
        assert!(line.starts_with("Largest part: 66 % of the time waits for "), "{wait}: {line}");
        assert!(line.contains("compute (PID 7)"), "{wait}: {line}");
        // Times of an emulated processor are no verdict in this line either.
        rows.facts.push(analysis::small_trace::emulated_fact());
        let line = text::summary(&explain(&rows)).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(line.contains("compute (PID 7) (the processor is emulated"), "{wait}: {line}");
    }
}

/// A sleep without a name has its size, and nothing is claimed to be no cause.
#[test]
fn a_sleep_without_a_name_is_said_to_have_none() {
    let executions = vec![Execution { outside_ns: 900_000, calls: Vec::new() }; 20];
    let mut rows = recording(&executions);
    kinds(&mut rows, &[(Layer::Database, Reason::Other, None, None)]);
    let done = explain(&rows);
    assert!(codes(&done).is_empty(), "{:?}", codes(&done));
    let said = text::text(&done);
    assert!(said.contains("100.0 % sleeps for a reason that has no name"), "{said}");
    assert!(said.contains("No finding: no known cause fits. The largest part of the time sleeps"), "{said}");
    rows.slices.edit().clear();
    let lost = explain(&rows);
    assert!(text::text(&lost).contains("100.0 % not accounted for"), "{}", text::text(&lost));
    assert!(text::summary(&lost).starts_with("Largest part: 100 % of the time is not accounted for"));
}

/// The recording's part is taken from time on a CPU, in proportion, and is a leaf of its own.
#[test]
fn the_part_of_the_recording_is_a_leaf() {
    let mut rows = recording(&vec![insert(); 10]);
    let before = explain(&rows).account;
    for (part, ns) in ["", ".low", ".high"].iter().zip([2_000, 1_500, 2_500]) {
        rows.facts.push(fact(&format!("tracer.price.step{part}"), ns));
    }
    let after = explain(&rows).account;
    let own = after.leaves.iter().find(|leaf| leaf.layer == Some(Layer::Tracer)).expect("a leaf for it");
    // One step an execution, half of whose price is inside.
    assert_eq!((own.ns, own.executions), (10 * 1_000, 10));
    let database = |account: &contract::Account| {
        account.leaves.iter().find(|leaf| leaf.layer == Some(Layer::Database)).map_or(0, |leaf| leaf.ns)
    };
    assert_eq!((database(&before), database(&after)), (10 * 10_000, 10 * 9_000));
}

/// A row of the time outside operations.
fn outside(tid: u32, (start_ns, end_ns): (u64, u64), layer: Layer, reason: Reason, ns: u64) -> ThreadTime {
    ThreadTime {
        tgid: 7,
        tid,
        start_ns,
        end_ns,
        layer,
        reason,
        call: None,
        wait: None,
        by_tgid: None,
        wait_file: None,
        ns,
        times: 1,
        longest_start_ns: start_ns,
        longest_ns: ns,
        span: None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the rows are, also those of a damaged archive, and whether operations overlap them.
    #[test]
    fn times_of_threads_add_up_to_their_windows(
        times in prop::collection::vec(
            (
                1..4_u32,
                0..5_000_000_u64,
                0..2_000_000_u64,
                0..3_000_000_u64,
                prop::sample::select(Layer::ALL.to_vec()),
                prop::sample::select(Reason::ALL.to_vec()),
                prop::option::of(prop::sample::select(Wait::ALL.to_vec())),
                prop::option::of(1..200_u32),
            ),
            0..30,
        ),
        executions in 0..5_usize,
    ) {
        let mut rows = recording(&vec![insert(); executions]);
        for (tid, start_ns, length, ns, layer, reason, wait, by_tgid) in times {
            let row = outside(tid, (start_ns, start_ns + length), layer, reason, ns);
            rows.thread_times.push(ThreadTime { wait, by_tgid, ..row });
        }
        let between = explain(&rows).between;
        let parts: u64 = between.leaves.iter().map(|leaf| leaf.ns).sum();
        let given: u64 = rows.thread_times.iter().map(|time| time.ns).sum();
        prop_assert_eq!(parts, given);
        prop_assert_eq!(between.operations_ns + parts + between.unaccounted_ns, between.whole_ns);
        for leaf in &between.leaves {
            prop_assert!(leaf.interval.is_none_or(|[low, high]| 0.0 <= low && low <= high && high <= 1.0));
            prop_assert!(leaf.ns > 0 && leaf.by.iter().map(|by| by.ns).sum::<u64>() <= leaf.ns);
        }
    }
}

/// A thread that computes between its statements, and another one that only reads a file: both are in the account of threads.
#[test]
fn time_outside_operations_is_divided_too() {
    let mut rows = recording(&vec![insert(); 10]);
    rows.processes.push(Process { tgid: 7, name: "reader".into(), parent: None, tracked: true });
    let operations: u64 = explain(&rows).account.whole_ns;
    let before = explain(&rows).between;
    assert_eq!(before.operations_ns, operations);
    let call = |ns| ThreadTime {
        call: Some("pread64".into()),
        ..outside(8, (1_000_000, 21_000_000), Layer::Syscall, Reason::Cpu, ns)
    };
    rows.thread_times.push(call(8_000_000));
    rows.thread_times.push(ThreadTime { layer: Layer::FileSystem, ..call(1_000_000) });
    let futex = outside(8, (1_000_000, 21_000_000), Layer::App, Reason::Other, 10_000_000);
    rows.thread_times.push(ThreadTime { wait: Some(Wait::Futex), by_tgid: Some(7), ..futex });
    let after = explain(&rows).between;
    assert_eq!((after.whole_ns - before.whole_ns, after.threads - before.threads), (20_000_000, 1));
    let ids: Vec<_> = after.leaves.iter().map(|leaf| (leaf.id.as_str(), leaf.ns, leaf.what.as_str())).collect();
    let expected = [
        ("futex", 10_000_000, "waits for a futex, ended by reader (PID 7)"),
        ("cpu:Syscall:pread64", 9_000_000, "runs in the kernel, in pread64"),
    ];
    assert_eq!(ids, expected);
    assert_eq!(after.unaccounted_ns - before.unaccounted_ns, 1_000_000);
    // Without an operation, it is the whole account.
    rows.operations.edit().clear();
    rows.slices.edit().clear();
    rows.spans.edit().iter_mut().for_each(|span| span.operation = None);
    let none = explain(&rows);
    assert_eq!((none.executions, none.between.operations_ns), (0, 0));
    let said = text::summary(&none);
    assert!(said.starts_with("Outside operations: 100 % of the time of 1 thread; 50 % waits for a futex"), "{said}");
}
