//! Predictions from handmade recordings, so that each can be calculated.

use super::contract::Prediction;
use super::*;
use analysis::handmade::{DATABASE_FILE, DIRECTORY_FILE, DISK_DEV, Execution, JOURNAL_FILE, insert, recording};
use model::table::{File, Slice, Span};
use model::{Layer, Reason};

const WAL_FILE: u64 = 4;

fn predict_without(rows: &Rows, names: &[&str]) -> Prediction {
    let without = names.iter().map(|name| name.parse().unwrap()).collect();
    predict(rows, &PredictionRequest { without, ..PredictionRequest::default() }).unwrap()
}

fn mean_predicted_ns(prediction: &Prediction) -> u64 {
    let statement = &prediction.statements[0];
    assert_eq!(statement.total, prediction.total, "one statement is all");
    assert_eq!(statement.predicted_ns.sum, statement.total.predicted_ns);
    statement.total.predicted_ns / statement.count
}

#[test]
fn a_removed_flush_takes_only_its_wait() {
    // 340 us: 10 + 100 + 20 + 200 in calls, 10 outside. Half of each sync is its flush.
    let rows = with_commands(&vec![insert(); 40]);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["flush"])), 190_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["second-flush"])), 290_000, "the longest, of 100 us, stays");
    let prediction = predict_without(&rows, &["flush"]);
    assert_eq!((prediction.removed[0].executions, prediction.removed[0].time_ns), (40, 40 * 150_000));
    let total = &prediction.total;
    assert!((total.ratio.unwrap() - 190.0 / 340.0).abs() < 1e-12);
    assert!(total.interval.unwrap().iter().all(|end| (end - 190.0 / 340.0).abs() < 1e-12), "all are equal");
    let [low, high] = total.interval_with_model.unwrap();
    assert!(low < 190.0 / 340.0 && high > 190.0 / 340.0);
}

/// The model's error was measured on hardware.
#[test]
fn a_prediction_from_an_emulated_processor_says_so() {
    let mut rows = with_commands(&vec![insert(); 40]);
    assert!(predict_without(&rows, &["flush"]).caveats.against_times().is_none());
    rows.facts.push(analysis::small_trace::emulated_fact());
    let emulated = predict_without(&rows, &["flush"]);
    let totals = emulated.statements.iter().map(|s| &s.total).chain([&emulated.total]);
    assert!(totals.into_iter().all(|total| total.interval_with_model.is_none()));
    let text = text::text(&emulated);
    assert!(text.starts_with("The processor is emulated"), "{text}");
    // As the device that commands are taken from.
    let asked = PredictionRequest { device: Some(&rows), ..PredictionRequest::default() };
    let other = predict(&with_commands(&vec![insert(); 40]), &asked).unwrap();
    assert!(other.caveats.against_times().is_some());
}

#[test]
fn removed_calls_take_all_their_time() {
    let rows = recording(&vec![insert(); 12]);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["sync"])), 40_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["second-sync"])), 240_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["fdatasync rollback journal"])), 240_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["second fdatasync"])), 140_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["pwrite64"])), 310_000);
    // A piece of time is removed only once, whichever removal comes first.
    let both = predict_without(&rows, &["sync", "flush"]);
    assert_eq!((mean_predicted_ns(&both), both.removed[1].time_ns), (40_000, 0));
}

#[test]
fn a_journal_that_stays_is_neither_made_nor_deleted() {
    let calls = [
        vec![("open", JOURNAL_FILE, 30_000, 0)],
        insert().calls,
        vec![("fdatasync", DIRECTORY_FILE, 50_000, 0), ("unlink", JOURNAL_FILE, 40_000, 0)],
    ];
    let rows = recording(&vec![Execution { calls: calls.concat(), ..insert() }; 10]);
    // 466 us in total: 450 in calls, 8 x 2 outside.
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["journal-delete"])), 466_000 - 120_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["directory-sync"])), 466_000 - 50_000);
}

#[test]
fn a_checkpoint_is_removed_and_the_commit_is_kept() {
    let commit = vec![("pwrite64", WAL_FILE, 5_000, 4120), ("fdatasync", WAL_FILE, 90_000, 0)];
    let back = vec![
        ("fdatasync", WAL_FILE, 60_000, 0),
        ("pread64", WAL_FILE, 1_000, 4096),
        ("pwrite64", DATABASE_FILE, 30_000, 4096),
        ("fdatasync", DATABASE_FILE, 200_000, 0),
    ];
    let plain = Execution { outside_ns: 1_000, calls: commit };
    let stalled = Execution { calls: [plain.calls.clone(), back].concat(), ..plain.clone() };
    let mut executions = vec![plain; 100];
    executions[10] = stalled;
    let mut rows = recording(&executions);
    rows.files.push(File { id: WAL_FILE, dev: 1, ino: 9, path: Some("/m/t.db-wal".into()), start_ns: 0 });
    let prediction = predict_without(&rows, &["checkpoint"]);
    assert_eq!(prediction.removed[0].executions, 1);
    let statement = &prediction.statements[0];
    // What remains: 98 us as in the others, and 1 us outside, before the sync.
    assert_eq!((statement.recorded_ns.max, statement.predicted_ns.max), (98_000 + 295_000, 99_000));
    assert_eq!(statement.predicted_ns.p50, 98_000);
}

/// Ten INSERTs, whose waits for a flush are each split into other slices; empty ones are dropped.
fn with_flushes_cut(cut: impl Fn(Slice) -> Vec<Slice>) -> Rows {
    let mut rows = recording(&vec![insert(); 10]);
    let cut = |slice: Slice| if slice.reason == Reason::Flush { cut(slice) } else { vec![slice] };
    let slices = std::mem::take(&mut rows.slices);
    rows.slices = slices.iter().flat_map(cut).filter(|slice| slice.start_ns < slice.end_ns).collect();
    rows
}

/// A thread that need not sleep is not woken: the wait for a CPU after its sleep is removed too. One that still has to sleep is woken.
#[test]
fn a_wait_for_a_cpu_is_removed_only_with_its_whole_sleep() {
    // The last 10 us become a wait for a CPU; the first 30 us of the longer flush a wait for data.
    let rows = with_flushes_cut(|slice| {
        let woken = slice.end_ns - 10_000;
        let data = if slice.end_ns - slice.start_ns > 60_000 { 30_000 } else { 0 };
        let border = slice.start_ns + data;
        vec![
            Slice { reason: Reason::Device, end_ns: border, ..slice.clone() },
            Slice { start_ns: border, end_ns: woken, ..slice.clone() },
            Slice { layer: Layer::RunQueue, reason: Reason::RunQueue, start_ns: woken, ..slice },
        ]
    });
    // The shorter flush is removed with its wake-up, 40 + 10 us; of the longer one only the flush, 60 us.
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["flush"])), 340_000 - 50_000 - 60_000);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["run-queue"])), 340_000 - 20_000);
}

/// The time between a removed command and the next one is spent on waking others.
#[test]
fn a_wait_after_a_removed_command_is_removed() {
    // A write of 10 us, the journal for 5, a flush, the journal for 7.
    let rows = with_flushes_cut(|slice| {
        let [a, b, c] = [slice.start_ns + 10_000, slice.start_ns + 15_000, slice.end_ns - 7_000];
        let parts = [
            (Reason::Device, slice.start_ns, a),
            (Reason::Journal, a, b),
            (Reason::Flush, b, c),
            (Reason::Journal, c, slice.end_ns),
        ];
        parts.map(|(reason, start_ns, end_ns)| Slice { reason, start_ns, end_ns, ..slice.clone() }).to_vec()
    });
    // 150 us in both sleeps, of which 2 x 15 remain.
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["flush"])), 340_000 - 150_000 + 30_000);
}

#[test]
fn an_absent_removal_names_the_calls_that_there_are() {
    let rows = recording(&vec![insert(); 3]);
    let asked = |name: &str| PredictionRequest { without: vec![name.parse().unwrap()], ..PredictionRequest::default() };
    let error = predict(&rows, &asked("unlink")).unwrap_err().to_string();
    assert!(
        error.contains("no statement made the call `unlink`") && error.contains("fdatasync rollback journal"),
        "{error}"
    );
    assert_eq!(predict(&recording(&[]), &asked("flush")), Err(Error::NoOperation));
    // In addition to another one, too; but what the other one already removed is not absent.
    for names in [["sync", "checkpoint"], ["checkpoint", "sync"], ["checkpoint", "unlink"]] {
        let without = names.iter().map(|name| name.parse().unwrap()).collect();
        let error =
            predict(&rows, &PredictionRequest { without, ..PredictionRequest::default() }).unwrap_err().to_string();
        assert!(error.contains("--without checkpoint: no statement ran a WAL checkpoint"), "{names:?}: {error}");
    }
    assert_eq!(predict_without(&rows, &["sync", "sync"]).removed[1].executions, 0);
}

/// Gives every wait its command, with the times of the wait.
fn with_commands(executions: &[Execution]) -> Rows {
    let mut rows = recording(executions);
    let flushes: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").collect();
    for slice in rows.slices.edit().iter_mut().filter(|s| s.reason == Reason::Flush) {
        let own = flushes.iter().find(|f| f.start_ns <= slice.start_ns && f.end_ns >= Some(slice.end_ns)).unwrap();
        slice.span = Some(own.id);
        let mut spans = rows.spans.edit();
        let span = spans.iter_mut().find(|s| s.id == own.id).unwrap();
        span.start_ns = slice.start_ns;
    }
    rows
}

#[test]
fn another_device_stretches_waits_by_its_service_times() {
    let rows = with_commands(&vec![insert(); 10]);
    // Its flushes take 25 us; ours 50 and 100.
    let other =
        with_commands(&vec![Execution { outside_ns: 0, calls: vec![("fdatasync", DATABASE_FILE, 50_000, 0)] }; 4]);
    let asked = |device, seed| PredictionRequest { device: Some(device), seed, ..PredictionRequest::default() };
    let prediction = predict(&rows, &asked(&other, 1)).unwrap();
    assert_eq!(mean_predicted_ns(&prediction), 340_000 - 25_000 - 75_000);
    assert!(prediction.other_device && prediction.unknown.iter().any(|said| said.contains("drawn one by one")));
    // The same device: other draws, the same times overall.
    let same = predict(&rows, &asked(&rows, 2)).unwrap();
    let ratio = same.total.ratio.unwrap();
    assert!((0.7..1.3).contains(&ratio), "{ratio}");
    assert_eq!(predict(&rows, &asked(&rows, 2)).unwrap(), same, "a seed gives the same draws");
    let none = recording(&[Execution { outside_ns: 1, calls: vec![("pwrite64", DATABASE_FILE, 5, 5)] }]);
    assert_eq!(predict(&rows, &asked(&none, 1)), Err(Error::NoCommands));
}

/// Nothing is removed then, and yet the thread is not woken: its wait for a CPU goes, too.
#[test]
fn a_device_that_takes_no_time_leaves_no_sleep() {
    let mut rows = with_commands(&vec![insert(); 10]);
    let flushes: Vec<Slice> = rows.slices.iter().filter(|s| s.reason == Reason::Flush).collect();
    for flush in flushes {
        let woken = Slice::new(flush.operation, Layer::RunQueue, Reason::RunQueue, flush.end_ns, flush.end_ns + 7);
        rows.slices.push(woken);
    }
    let mut other = with_commands(&[insert()]);
    for span in other.spans.edit().iter_mut().filter(|s| s.layer == Layer::Driver) {
        (span.end_ns, span.number) = (Some(span.start_ns), Some(1));
    }
    let asked = PredictionRequest { device: Some(&other), ..PredictionRequest::default() };
    assert!(predict(&rows, &asked).unwrap().total.ratio.is_some_and(|ratio| ratio < 1.0));
}

#[test]
fn a_kind_that_the_other_device_lacks_keeps_its_time() {
    let mut rows = with_commands(&vec![insert(); 10]);
    // Most of the device's time is in writes, for which nobody waits.
    let flushes: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").collect();
    for flush in flushes {
        let end_ns = flush.end_ns.map(|end| end + 2 * (end - flush.start_ns));
        let (kind, flags) = ("request".into(), "write sync".into());
        rows.spans.push(Span { id: flush.id + 1_000_000, kind, flags, bytes: 4096, end_ns, ..flush });
    }
    let mut other = with_commands(&[insert()]);
    for span in other.spans.edit().iter_mut().filter(|s| s.kind == "flush") {
        (span.kind, span.flags, span.bytes) = ("request".into(), "write sync".into(), 4096);
    }
    let asked = PredictionRequest { device: Some(&other), ..PredictionRequest::default() };
    let prediction = predict(&rows, &asked).unwrap();
    assert_eq!(mean_predicted_ns(&prediction), 340_000);
    assert!(prediction.unknown.iter().any(|said| said.contains("no flush")), "{:?}", prediction.unknown);
}

/// A flush that waits for another process's command delays its thread by that time, once: its next ones come later, too, and do not
/// overlap others.
#[test]
fn a_queue_of_one_serves_one_command_after_the_other() {
    let mut rows = with_commands(&vec![insert(); 8]);
    let sum = |rows: &Rows, n| {
        predict(rows, &PredictionRequest { queue: Some(n), ..PredictionRequest::default() }).unwrap().total.predicted_ns
    };
    assert_eq!(sum(&rows, 1), 8 * 340_000, "they never overlap");
    // A command is at the device when each execution's first flush begins, for 30 us more.
    let firsts: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").step_by(2).collect();
    for (n, flush) in firsts.into_iter().enumerate() {
        let (start_ns, end_ns) = (flush.start_ns - 10_000, Some(flush.start_ns + 30_000));
        rows.spans.push(Span { id: 70_000 + n as u64, start_ns, end_ns, disk: Some(DISK_DEV), ..flush });
    }
    assert_eq!(sum(&rows, 1), 8 * 340_000 + 30_000);
    assert_eq!(sum(&rows, 2), 8 * 340_000);
}

/// No command, so that nothing is known of whether the disk serves one after the other.
#[test]
fn a_queue_without_commands_claims_nothing_of_the_disk() {
    let rows = recording(&vec![insert(); 8]);
    let said = |rows: &Rows| {
        let asked = PredictionRequest { queue: Some(1), ..PredictionRequest::default() };
        predict(rows, &asked).unwrap().unknown.join("; ")
    };
    let without: Rows = {
        let mut rows = rows;
        rows.spans = rows.spans.iter().filter(|span| span.layer != Layer::Driver).collect();
        rows
    };
    let text = said(&without);
    assert!(!text.contains("one command after the other") && text.contains("another depth changes nothing"), "{text}");
    assert!(!said(&with_commands(&vec![insert(); 8])).contains("another depth changes nothing"));
}

/// Flushes that were never alone: the time of a single one is not in the recording.
#[test]
fn a_depth_that_was_never_recorded_is_unknown() {
    let mut rows = with_commands(&vec![insert(); 8]);
    let extrapolated = |rows: &Rows, n| {
        let prediction = predict(rows, &PredictionRequest { queue: Some(n), ..PredictionRequest::default() }).unwrap();
        prediction.unknown.iter().any(|said| said.contains("hardly any recorded one"))
    };
    assert!(!extrapolated(&rows, 1));
    let flushes: Vec<Span> = rows.spans.iter().filter(|s| s.kind == "flush").collect();
    for (n, flush) in flushes.into_iter().enumerate() {
        let start_ns = flush.start_ns - 10;
        // The first of each pair is not a flush, so that flushes have a single depth: two.
        rows.spans.push(Span { id: 70_000 + n as u64, start_ns, disk: Some(DISK_DEV), kind: "read".into(), ..flush });
    }
    assert!(extrapolated(&rows, 1) && !extrapolated(&rows, 2));
}

/// A single flush, twenty times, then two threads that flush at the same time, ten times. A device that serves one after the
/// other makes the second wait as a queue of one does: nothing changes. One that serves both at once does not: the second thread
/// is delayed, once.
#[test]
fn a_queue_of_one_changes_nothing_at_a_serial_device() {
    let of = |alone_ns: u64| {
        let flush = Execution { outside_ns: 0, calls: vec![("fdatasync", DATABASE_FILE, 200_000, 0)] };
        let mut rows = with_commands(&vec![flush; 40]);
        let since = rows.operations.end_ns(19).unwrap() + 1000;
        for at in 0..40 {
            // The pairs begin every 300 us.
            let (start, second) = (rows.operations.start_ns(at), at % 2 == 1);
            let by = if at < 20 { 0 } else { start - since - (at as u64 - 20) / 2 * 300_000 };
            let less = if at < 20 || second { 0 } else { 100_000 - alone_ns };
            let operation = &mut rows.operations.edit()[at];
            operation.tid += u32::from(at >= 20 && second);
            (operation.start_ns, operation.end_ns) = (start - by, Some(start + 200_000 - by - less));
            let id = operation.id;
            for slice in rows.slices.edit().iter_mut().filter(|s| s.operation == id) {
                (slice.start_ns, slice.end_ns) = (slice.start_ns - by, slice.end_ns - by);
                let Some(command) = slice.span.filter(|_| slice.reason == Reason::Flush) else { continue };
                slice.end_ns -= less;
                let ns = if at < 20 { alone_ns } else { slice.end_ns - slice.start_ns };
                let mut spans = rows.spans.edit();
                let span = spans.iter_mut().find(|s| s.id == command).unwrap();
                (span.start_ns, span.end_ns) = (slice.end_ns - ns, Some(slice.end_ns));
            }
        }
        let total =
            predict(&rows, &PredictionRequest { queue: Some(1), ..PredictionRequest::default() }).unwrap().total;
        total.predicted_ns as i64 - total.recorded_ns as i64
    };
    assert_eq!(of(50_000), 0);
    assert_eq!(of(100_000), 100_000);
}

/// Many threads that flush without a pause, on a disk that serves one after the other and is never idle: with fewer at the disk
/// the others wait before it for as long. A depth that was not recorded is no guess then.
#[test]
fn a_serial_disk_serves_any_queue_alike() {
    const THREAD_COUNT: usize = 4;
    let mut random = stats::random::Random::new(3);
    let flush = Execution { outside_ns: 0, calls: vec![("fdatasync", DATABASE_FILE, 200_000, 0)] };
    let mut rows = with_commands(&vec![flush; 200]);
    let ends: Vec<u64> = (0..200 + THREAD_COUNT as u64)
        .scan(10_000_000, |end, _| {
            *end += 80_000 + random.below(40_000);
            Some(*end)
        })
        .collect();
    for at in 0..200 {
        // Each begins when its thread's previous one ends, behind those of the other threads.
        let (start, end) = (ends[at], ends[at + THREAD_COUNT]);
        let operation = &mut rows.operations.edit()[at];
        operation.tid += (at % THREAD_COUNT) as u32;
        (operation.start_ns, operation.end_ns) = (start, Some(end));
        let id = operation.id;
        rows.slices.edit().retain(|slice| slice.operation != id || slice.reason == Reason::Flush);
        let mut slices = rows.slices.edit();
        let slice = slices.iter_mut().find(|slice| slice.operation == id).unwrap();
        (slice.start_ns, slice.end_ns) = (start, end);
        let command = slice.span.unwrap();
        let mut spans = rows.spans.edit();
        let span = spans.iter_mut().find(|s| s.id == command).unwrap();
        (span.start_ns, span.end_ns) = (start, Some(end));
    }
    for servers in [1, 2, 16] {
        let prediction =
            predict(&rows, &PredictionRequest { queue: Some(servers), ..PredictionRequest::default() }).unwrap();
        assert_eq!(prediction.total.predicted_ns, prediction.total.recorded_ns, "{servers}");
        assert!(!prediction.unknown.iter().any(|said| said.contains("a guess")), "{:?}", prediction.unknown);
    }
}

#[test]
fn an_execution_without_sleeps_takes_warm_cpu_time() {
    // After each sync the first write of a kind takes 40 us, those after it 10 us.
    let write = |ns| ("pwrite64", JOURNAL_FILE, ns, 4096);
    let calls = vec![write(40_000), write(10_000), write(10_000), ("fdatasync", JOURNAL_FILE, 500_000, 0)];
    let rows = recording(&vec![Execution { outside_ns: 0, calls }; 20]);
    // 60 us of writes remain, of which a quarter.
    let prediction = predict_without(&rows, &["sync"]);
    assert_eq!(mean_predicted_ns(&prediction), 15_000);
    assert!(
        prediction.unknown.iter().any(|said| said.contains("need 25 % of their CPU time")),
        "{:?}",
        prediction.unknown
    );
    // An execution that still sleeps is as cold as before.
    let calls = [
        vec![write(40_000), write(10_000), ("fdatasync", JOURNAL_FILE, 500_000, 0), write(40_000)],
        vec![write(10_000)],
    ];
    let calls = [calls.concat(), vec![("fdatasync", DATABASE_FILE, 300_000, 0)]].concat();
    let rows = recording(&vec![Execution { outside_ns: 0, calls }; 20]);
    assert_eq!(mean_predicted_ns(&predict_without(&rows, &["fdatasync rollback journal"])), 400_000);
}

/// Every part of the account can be removed by its name, and no more than it holds is saved beside what follows from it.
#[test]
fn each_leaf_of_the_account_can_be_removed() {
    let rows = recording(&vec![insert(); 20]);
    let account = crate::explain::explain(&rows).account;
    assert!(account.leaves.len() >= 3, "{:?}", account.leaves);
    for leaf in &account.leaves {
        let removal: Removal = leaf.id.parse().unwrap_or_else(|why| panic!("{}: {why}", leaf.id));
        let done = predict(&rows, &PredictionRequest { without: vec![removal], ..Default::default() }).unwrap();
        assert!(done.removed[0].time_ns >= leaf.ns, "{}: {:?} of {}", leaf.id, done.removed, leaf.ns);
        assert!(done.total.predicted_ns <= account.whole_ns - leaf.ns, "{}: {:?}", leaf.id, done.total);
    }
    let missing = PredictionRequest { without: vec!["timer".parse().unwrap()], ..Default::default() };
    let why = predict(&rows, &missing).unwrap_err().to_string();
    assert!(why.contains("no statement has a part `timer`") && why.contains(&account.leaves[0].id), "{why}");
}

/// A donor whose commands waited for each other serves as fast as one whose commands did not.
#[test]
fn the_queue_of_the_donor_is_not_taken_over() {
    let (rows, mut queued) = (with_commands(&vec![insert(); 20]), with_commands(&vec![insert(); 20]));
    let mut spans = queued.spans.edit();
    let mut extra = Vec::new();
    for span in spans.iter_mut().filter(|span| span.layer == Layer::Driver) {
        // Another one of the same kind, issued with it and served after it, before the next two.
        let ns = span.end_ns.unwrap() - span.start_ns;
        span.start_ns *= 4;
        span.end_ns = Some(span.start_ns + ns);
        extra.push(Span {
            id: span.id + 1_000_000,
            start_ns: span.start_ns + 1,
            end_ns: span.end_ns.map(|end| end + ns),
            ..span.clone()
        });
    }
    spans.extend(extra);
    drop(spans);
    let with = |other: &Rows| predict(&rows, &PredictionRequest { device: Some(other), ..Default::default() }).unwrap();
    let (alone, beside) = (with(&rows).total.predicted_ns as f64, with(&queued).total.predicted_ns as f64);
    assert!((beside / alone - 1.0).abs() < 0.02, "{beside} beside a queue, {alone} alone");
}

/// A donor that never did what takes most of the time is refused.
#[test]
fn a_donor_that_cannot_serve_is_refused() {
    let (rows, mut reader) = (with_commands(&vec![insert(); 20]), with_commands(&vec![insert(); 20]));
    for span in reader.spans.edit().iter_mut().filter(|span| span.layer == Layer::Driver) {
        (span.kind, span.flags) = ("read".into(), "read".into());
    }
    let asked = PredictionRequest { device: Some(&reader), ..Default::default() };
    let why = predict(&rows, &asked).unwrap_err();
    assert!(matches!(&why, Error::CannotServe { kinds } if kinds.contains("flush")), "{why}");
}
