use super::contents::{RowTexts, text_of, verify};
use super::files::Files;
use super::*;
use crate::clock;
use crate::storage::testing::{Scratch, values};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

fn run_in(directory: &Scratch, words: &[&str], context: &Context) -> Result<Vec<serde_json::Value>, Error> {
    let mut words: Vec<String> = words.iter().map(ToString::to_string).collect();
    words.extend(["--dir".into(), directory.path().to_str().unwrap().into()]);
    let mut out = Vec::new();
    run(&words, context, &mut out)?;
    Ok(out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect())
}

#[test]
fn every_operation_and_mode_is_verified_and_leaves_nothing() {
    let directory = Scratch::new("sqlite-modes");
    for op in ["insert", "select", "update", "delete", "demo"] {
        for mode in JOURNAL_MODES {
            let words = ["--op", op, "--rows", "5", "--scans=3", "--journal-mode", mode, "--cache=cold"];
            let lines = run_in(&directory, &words, &Context::silent()).unwrap();
            assert_eq!(lines.last().unwrap()["verified"], true, "{op} {mode}");
            let metric = format!("{}.rate", if op == "demo" { "insert" } else { op });
            let rates: Vec<f64> = values(&lines, &metric);
            assert!(rates.len() == 1 && rates[0] > 0.0, "{lines:?}");
            assert_eq!(directory.left(), 0, "{op} {mode}");
        }
    }
}

#[test]
fn each_execution_is_sampled_within_the_run() {
    let directory = Scratch::new("sqlite-each");
    let before = clock::now_ns();
    let words = ["--op=demo", "--rows=25", "--scans=4", "--samples=each", "--per-transaction=10"];
    let lines = run_in(&directory, &words, &Context::silent()).unwrap();
    let of = |metric: &str| lines.iter().filter(|l| l["metric"] == metric).collect::<Vec<_>>();
    assert_eq!((of("insert.latency").len(), of("select.latency").len()), (25, 4));
    let times: Vec<u64> = of("insert.latency").iter().map(|l| l["t"].as_u64().unwrap()).collect();
    assert!(times[0] > before && times.is_sorted() && times[24] < clock::now_ns());
}

/// Only a sample of statements that share a transaction is timed, and the run states so; all of them are counted.
#[test]
fn statements_that_share_a_transaction_are_sampled() {
    let directory = Scratch::new("sqlite-grouped");
    let run = |words: &[&str]| run_in(&directory, words, &Context::silent()).unwrap();
    let said = |lines: &[serde_json::Value]| lines.iter().find(|l| l["mark"] == "latency").map(|l| l["text"].clone());
    let grouped = run(&["--op=insert", "--rows=300", "--per-transaction=100"]);
    assert_eq!(said(&grouped), Some("of every 64th statement".into()));
    assert_eq!((values(&grouped, "work"), values(&grouped, "latency.p50").len()), (vec![300.0], 1));
    assert_eq!(said(&run(&["--op=insert", "--rows=3"])), None);
    assert_eq!(said(&run(&["--op=insert", "--rows=30", "--per-transaction=10", "--samples=each"])), None);
}

#[test]
fn option_samples_none_prints_nothing() {
    let directory = Scratch::new("sqlite-none");
    let lines = run_in(&directory, &["--op=demo", "--rows=5", "--scans=2", "--samples=none"], &Context::silent());
    assert_eq!(lines.unwrap(), Vec::<serde_json::Value>::new());
    let nowhere = ["--samples=none", "--dir=/nonexistent"].map(String::from);
    assert!(matches!(run(&nowhere, &Context::silent(), &mut Vec::new()), Err(Error::Failed(_))));
}

#[test]
fn cancelled_run_leaves_nothing() {
    let directory = Scratch::new("sqlite-cancel");
    let flag = std::sync::Arc::new(std::sync::OnceLock::new());
    let context = Context::new({
        let flag: std::sync::Arc<std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicBool>>> = flag.clone();
        // Cancelled by the first progress report, hence in the middle.
        std::sync::Arc::new(move |_: &str, _, _| {
            if let Some(flag) = flag.get() {
                flag.store(true, Ordering::Relaxed);
            }
        })
    });
    flag.set(context.cancel_flag()).unwrap();
    let result = run_in(&directory, &["--rows=100000", "--journal-mode=wal", "--synchronous=off"], &context);
    assert!(matches!(result, Err(Error::Interrupted)), "{result:?}");
    assert_eq!(directory.left(), 0);
}

#[test]
fn wrong_content_is_detected() {
    let directory = Scratch::new("sqlite-wrong");
    let parameters = Parameters::parse(&["--dir".into(), directory.path().to_str().unwrap().into()]).unwrap();
    let files = Files::new(directory.path()).unwrap();
    let connection = files.connect(&parameters).unwrap();
    connection.execute_batch("CREATE TABLE t (n INTEGER, s TEXT)").unwrap();
    connection.execute("INSERT INTO t VALUES (1, ?1)", [text_of(1)]).unwrap();
    assert!(verify(&connection, 1, 0).unwrap().contains("1 row has the expected content"));
    let wrong = |rows, raised, part: &str| {
        let result = verify(&connection, rows, raised);
        assert!(matches!(&result, Err(Error::Wrong(text)) if text.contains(part)), "{result:?}");
    };
    wrong(2, 0, "1 row instead of 2");
    wrong(1, 1, "row 1 has 1");
    connection.execute("UPDATE t SET s = replace(s, 'x', 'y')", []).unwrap();
    wrong(1, 0, "row 1 has 1");
}

#[test]
fn damaged_file_is_detected() {
    let directory = Scratch::new("sqlite-damaged");
    let words = ["--page-size=512", "--dir", directory.path().to_str().unwrap()].map(String::from);
    let parameters = Parameters::parse(&words).unwrap();
    let files = Files::new(directory.path()).unwrap();
    let connection = files.connect(&parameters).unwrap();
    connection.execute_batch("CREATE TABLE t (n INTEGER, s TEXT); CREATE TABLE u (n INTEGER)").unwrap();
    for n in 1..=20 {
        connection.execute("INSERT INTO t VALUES (?1, ?2)", rusqlite::params![n, text_of(n as u64)]).unwrap();
    }
    drop(connection);
    // The root page of the other table: no row of ours is touched.
    let mut bytes = std::fs::read(&files.database).unwrap();
    bytes[1024..1034].fill(0xff);
    std::fs::write(&files.database, bytes).unwrap();
    let result = verify(&files.connect(&parameters).unwrap(), 20, 0);
    assert!(matches!(&result, Err(Error::Wrong(text)) if text.contains("integrity_check")), "{result:?}");
}

#[test]
fn iterations_are_reported_with_work() {
    let directory = Scratch::new("sqlite-iterations");
    for (op, unit, work) in
        [("insert", "row", 20.0), ("update", "row", 20.0), ("delete", "row", 20.0), ("select", "scan", 3.0)]
    {
        let words = ["--op", op, "--rows=20", "--scans=3", "--iterations=4", "--per-transaction=7"];
        let lines = run_in(&directory, &words, &Context::silent()).unwrap();
        assert_eq!(values(&lines, "iteration").len(), 4, "{op}");
        let line = lines.iter().find(|l| l["metric"] == "work").unwrap();
        assert_eq!((line["unit"].as_str(), line["v"].as_f64()), (Some(unit), Some(work)));
        assert!(values(&lines, "latency.p50")[0] > 0.0);
        assert!(lines.iter().any(|l| l["mark"] == "sqlite" && l["text"].as_str().unwrap().contains("bundled")));
        assert_eq!(directory.left(), 0);
    }
}

#[test]
fn warm_up_iterations_run_and_are_not_reported() {
    let directory = Scratch::new("sqlite-warmup");
    for op in ["insert", "select"] {
        // Progress is reported once per 64 statements, and so once each time.
        let times = Arc::new(AtomicU64::new(0));
        let work = times.clone();
        let context = Context::new(Arc::new(move |_, _, _| {
            work.fetch_add(1, Ordering::Relaxed);
        }));
        let words = ["--op", op, "--rows=64", "--scans=64", "--iterations=2", "--warmup=3", "--samples=each"];
        let lines = run_in(&directory, &words, &context).unwrap();
        assert_eq!(times.load(Ordering::Relaxed), 3 + 2, "{op}");
        assert_eq!(values(&lines, "iteration").len(), 2, "{op}");
        assert_eq!(values(&lines, &format!("{op}.rate")).len(), 2, "{op}");
        assert_eq!(values(&lines, &format!("{op}.latency")).len(), 2 * 64, "{op}");
        assert_eq!(directory.left(), 0);
    }
    let refused = run_in(&directory, &["--op=demo", "--warmup=1"], &Context::silent());
    assert!(matches!(&refused, Err(Error::Usage(text)) if text.contains("--warmup")), "{refused:?}");
}

/// The system's own engine, checked through ours.
#[test]
fn system_engine_gives_same_content() {
    let installed = std::process::Command::new("sqlite3").arg("--version").output();
    let Ok(version) = installed else {
        eprintln!("SKIP system_engine_gives_same_content: sqlite3 is not installed");
        return;
    };
    let version = String::from_utf8(version.stdout).unwrap();
    let directory = Scratch::new("sqlite-system");
    for op in ["insert", "select", "update", "delete"] {
        for mode in ["delete", "wal"] {
            let words = [
                "--engine=system",
                "--op",
                op,
                "--rows=250",
                "--scans=3",
                "--iterations=2",
                "--journal-mode",
                mode,
                "--cache=cold",
                "--per-transaction=100",
                "--page-size=1024",
            ];
            let lines = run_in(&directory, &words, &Context::silent()).unwrap();
            assert_eq!((values(&lines, "iteration").len(), values(&lines, &format!("{op}.rate")).len()), (2, 2));
            let engine = lines.iter().find(|l| l["mark"] == "sqlite").unwrap()["text"].as_str().unwrap();
            assert!(engine.starts_with(version.split(' ').next().unwrap()), "{engine}");
            assert_eq!(lines.last().unwrap()["verified"], true, "{op} {mode}");
            assert_eq!(directory.left(), 0, "{op} {mode}");
        }
    }
}

#[test]
fn row_text_has_100_bytes() {
    assert!([0, 1, 999, 9_999_999_999].iter().all(|n| text_of(*n).len() == 100));
    let mut texts = RowTexts::new();
    assert!([7, 12_345, 0, 9_999_999_999, 10_000_000_000, 12].iter().all(|n| texts.for_row(*n) == text_of(*n)));
}

#[test]
fn invalid_options_create_nothing() {
    for words in [
        &["--journal-mode=fast"][..],
        &["--page-size=1000"],
        &["--rows=0"],
        &["--per-transaction=0"],
        &["--op=vacuum"],
        &["--samples=some"],
        &["--iterations=0"],
        &["--engine=system", "--op=demo"],
        &["--engine=system", "--samples=each"],
    ] {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        assert!(matches!(run(&words, &Context::silent(), &mut Vec::new()), Err(Error::Usage(_))), "{words:?}");
    }
    let nowhere: Vec<String> = ["--dir=/nonexistent".into()].into();
    let result = run(&nowhere, &Context::silent(), &mut Vec::new());
    assert!(matches!(result, Err(Error::Failed(text)) if text.contains("/nonexistent")));
}
