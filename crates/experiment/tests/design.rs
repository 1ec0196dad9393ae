//! Designs of shell commands, run like those of users: order, pairing, absence, failure, interruption, cleanup.

mod support;

use experiment::{Design, Disk, DiskRequest, Error, Results, Setting, Sink, StopReason, run};
use model::Context;
use model::table::{DesignCell, MarkRow, Replicate, Sample};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use support::Directory;

type StoreResult = Result<(), Box<dyn std::error::Error + Send + Sync>>;

#[derive(Default)]
struct Rows {
    cells: Vec<DesignCell>,
    replicates: Vec<Replicate>,
    samples: Vec<Sample>,
    marks: Vec<MarkRow>,
}

impl Sink for Rows {
    fn cell(&mut self, row: &DesignCell) -> StoreResult {
        self.cells.push(row.clone());
        Ok(())
    }
    fn absent(&mut self, cell: u64, why: &str) -> StoreResult {
        self.cells[cell as usize].absent = Some(why.into());
        Ok(())
    }
    fn replicate(&mut self, row: &Replicate, samples: &[Sample], marks: &[MarkRow]) -> StoreResult {
        let own = |id: Option<u64>| id == Some(row.id);
        assert!(samples.iter().all(|s| own(s.replicate)) && marks.iter().all(|m| own(m.replicate)));
        self.replicates.push(row.clone());
        self.samples.extend_from_slice(samples);
        self.marks.extend_from_slice(marks);
        Ok(())
    }
}

/// A fake disk; its log records when it was made and removed.
struct FakeDisk {
    path: PathBuf,
    log: Rc<RefCell<String>>,
}

impl Disk for FakeDisk {
    fn path(&self) -> &Path {
        &self.path
    }
    fn device(&self) -> &Path {
        Path::new("/dev/paper")
    }
}

impl Drop for FakeDisk {
    fn drop(&mut self) {
        self.log.borrow_mut().push('-');
    }
}

fn design(text: &str) -> Design {
    let head = "name = 'd'\nquestion = 'q'\nmetric = 'x'\nbetter = 'higher'\nbaseline = 'a'\n";
    Design::parse("test", &format!("{head}{text}")).unwrap()
}

fn run_design(
    design: &Design,
    directory: &Directory,
    context: &Context,
    log: &Rc<RefCell<String>>,
) -> Result<(Results, Rows), Error> {
    let mut make = |_: &DiskRequest| {
        log.borrow_mut().push('+');
        Ok(Box::new(FakeDisk { path: "/paper".into(), log: log.clone() }) as Box<dyn Disk>)
    };
    let mut setting = Setting::new(Path::new("/bin/sh"), &mut make);
    setting.scratch = directory.0.clone();
    let mut rows = Rows::default();
    let results = run(design, &mut setting, context, &mut rows)?;
    Ok((results, rows))
}

const THREE_CELLS: &str = r#"
    blocks = 8
    seed = 42
    [words]
    say = ["{fathom}", "-c", 'echo "{\"metric\":\"x\",\"unit\":\"1/s\",\"v\":$1}"; echo "{\"verified\":true}"', "sh"]
    [[cell]]
    name = "a"
    argv = ["@say", "10"]
    [[cell]]
    name = "a again"
    same_as = "a"
    [[cell]]
    name = "b"
    argv = ["@say", "5"]
"#;

#[test]
fn every_block_runs_every_cell_once_in_seeded_order() {
    let directory = Directory::new("order");
    let (results, rows) = run_design(&design(THREE_CELLS), &directory, &Context::silent(), &Rc::default()).unwrap();
    assert!(results.complete() && results.absent.is_empty() && directory.is_empty());
    assert_eq!((rows.cells.len(), rows.replicates.len()), (3, 9 * 3));
    let orders: Vec<Vec<u64>> = rows.replicates.chunks(3).map(|b| b.iter().map(|r| r.cell).collect()).collect();
    for (block, order) in orders.iter().enumerate() {
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2]);
        assert!(rows.replicates[block * 3..block * 3 + 3].iter().all(|r| r.warmup == (block == 0)));
    }
    assert!(orders.iter().any(|o| *o != orders[0]), "the order changes: {orders:?}");
    assert!(rows.replicates.iter().all(|r| r.verified == Some(true) && r.exit == Some(0)));
    let comparisons = results.comparisons();
    assert_eq!(comparisons[2].ratio.map(|r| (r.value, r.n)), Some((0.5, 8)));
    assert!(comparisons[1].self_check.unwrap().passed);
    // The same seed gives the same order, another seed another one.
    let (_, again) = run_design(&design(THREE_CELLS), &directory, &Context::silent(), &Rc::default()).unwrap();
    assert!(rows.replicates.iter().zip(&again.replicates).all(|(a, b)| (a.cell, a.block) == (b.cell, b.block)));
    let other = design(&THREE_CELLS.replace("42", "43"));
    let (_, other) = run_design(&other, &directory, &Context::silent(), &Rc::default()).unwrap();
    assert!(rows.replicates.iter().zip(&other.replicates).any(|(a, b)| a.cell != b.cell));
}

#[test]
fn absent_and_failing_peers_are_named() {
    let text = format!(
        r#"{THREE_CELLS}
        [[cell]]
        name = "missing"
        argv = ["@say", "1"]
        needs = ["no-such-program-anywhere"]
        [[cell]]
        name = "broken"
        argv = ["/bin/sh", "-c", "echo cannot >&2; exit 1"]
        [[cell]]
        name = "silent"
        argv = ["/bin/true"]
        [[cell]]
        name = "elsewhere"
        argv = ["{{nowhere}}"]
        [[cell]]
        name = "unprepared"
        argv = ["@say", "1"]
        setup = [["/bin/false"]]
    "#
    );
    let directory = Directory::new("absent");
    let (results, rows) = run_design(&design(&text), &directory, &Context::silent(), &Rc::default()).unwrap();
    let why = |cell: &str| results.absent.iter().find(|a| a.cell == cell).unwrap().why.clone();
    assert!(why("missing").contains("not installed"));
    assert!(why("broken").contains("cannot") && why("broken").contains("3 consecutive failures"));
    assert!(why("silent").contains("it printed no x"));
    assert!(why("elsewhere").contains("{nowhere}"));
    assert!(why("unprepared").contains("setup failed"));
    let runs = |cell: u64| rows.replicates.iter().filter(|r| r.cell == cell).count();
    assert_eq!((runs(0), runs(3), runs(4), runs(7)), (9, 0, 3, 0));
    assert!(results.complete() && directory.is_empty());
    for name in ["missing", "broken", "silent", "elsewhere", "unprepared"] {
        assert!(experiment::markdown(&results).contains(&format!("| {name} ")), "{name} has a row");
    }
}

#[test]
fn missing_baseline_stops_the_comparison_with_a_reason() {
    let text = THREE_CELLS.replacen("argv = [\"@say\", \"10\"]", "argv = [\"/bin/false\"]", 1);
    let directory = Directory::new("baseline");
    let (results, rows) = run_design(&design(&text), &directory, &Context::silent(), &Rc::default()).unwrap();
    assert_eq!(results.stopped, Some(StopReason::Nothing));
    let baseline = results.missing_baseline().unwrap();
    assert!(baseline.cell == "a" && baseline.why.contains("given up after 3 consecutive failures"), "{baseline:?}");
    let reasons = rows.cells.iter().map(|c| c.absent.as_deref().unwrap());
    assert!(
        reasons.clone().all(|why| why.contains("a cannot run") != why.contains("given up")),
        "{:?}",
        reasons.collect::<Vec<_>>()
    );
    // Ignores line breaks.
    let page = experiment::markdown(&results).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains("**a is missing: given up after 3") && page.contains("nothing to compare with"), "{page}");
    assert!(directory.is_empty());
}

#[test]
fn disks_are_made_as_often_as_requested_and_removed() {
    for (fresh, expected) in [("replicate", "+-".repeat(6)), ("block", "+-".repeat(3)), ("run", "+-".into())] {
        let text = format!(
            r#"
            blocks = 2
            seed = 1
            disk = {{ kind = "paper", size_mib = 1, fresh = "{fresh}" }}
            [[cell]]
            name = "a"
            argv = ["/bin/sh", "-c", 'test {{disk}}{{device}} = /paper/dev/paper && echo "{{\"metric\":\"x\",\"v\":1}}"']
            [[cell]]
            name = "b"
            same_as = "a"
        "#
        );
        let (directory, log) = (Directory::new(fresh), Rc::default());
        let (results, _) = run_design(&design(&text), &directory, &Context::silent(), &log).unwrap();
        assert!(results.absent.is_empty(), "{:?}", results.absent);
        assert_eq!(*log.borrow(), expected, "{fresh}");
    }
}

#[test]
fn scratch_and_background_live_as_long_as_the_replicate() {
    // The background command reports that it has started, and runs beside the replicate.
    let text = r#"
        blocks = 2
        warmup = 0
        seed = 1
        [[cell]]
        name = "a"
        background = ["/bin/sh", "-c", "echo $$ > {scratch}/pid; sleep 1000"]
        background_settle_ms = 200
        argv = ["/bin/sh", "-c", 'p=$(cat {scratch}/pid); kill -0 $p && echo "{\"metric\":\"x\",\"v\":$p}"']
    "#;
    let directory = Directory::new("background");
    let (results, rows) = run_design(&design(text), &directory, &Context::silent(), &Rc::default()).unwrap();
    assert!(results.absent.is_empty() && directory.is_empty());
    for sample in rows.samples.iter().filter(|s| s.metric == "x") {
        assert!(!Path::new(&format!("/proc/{}", sample.value)).exists());
    }
}

#[test]
fn interrupted_run_keeps_its_measurements() {
    let text = THREE_CELLS.replace("blocks = 8", "blocks = 1000");
    let directory = Directory::new("interrupt");
    let holder: std::sync::Arc<std::sync::OnceLock<std::sync::Arc<std::sync::atomic::AtomicBool>>> = Default::default();
    let context = Context::new({
        let holder = holder.clone();
        std::sync::Arc::new(move |_: &str, done, _| {
            if let Some(flag) = holder.get().filter(|_| done >= 9) {
                flag.store(true, std::sync::atomic::Ordering::Relaxed);
            }
        })
    });
    holder.set(context.cancel_flag()).unwrap();
    let (results, rows) = run_design(&design(&text), &directory, &context, &Rc::default()).unwrap();
    assert!(!results.complete() && directory.is_empty());
    assert!((9..=10).contains(&rows.replicates.len()), "{}", rows.replicates.len());
    assert!(experiment::markdown(&results).contains("was interrupted"));
}

/// The shipped designs are valid, and each names its A/A arm.
#[test]
fn peer_designs_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/peers");
    let mut seen = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        // A peer's own source may be beside its design.
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let design = Design::parse(&path.display().to_string(), &text).unwrap();
        assert!(
            design.cells.iter().any(|c| c.same_as.is_some() && c.same_as == design.baseline),
            "{}: no A/A",
            path.display()
        );
        assert!(design.blocks >= 6, "{}: too few blocks for an interval", path.display());
        seen += 1;
    }
    assert!(seen >= 4);
}

/// The suite's designs parse and expand, quick and full.
#[test]
fn suite_designs_are_valid() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/suite");
    let mut seen = 0;
    for file in std::fs::read_dir(directory).unwrap() {
        let path = file.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let workload = experiment::Workload::parse(&path.display().to_string(), &text).unwrap();
        assert_eq!(path.file_stem().unwrap(), &*workload.name);
        for quick in [false, true] {
            let design = experiment::expand(&workload, &experiment::Choices { quick, ..Default::default() }).unwrap();
            assert!(design.blocks >= if quick { 5 } else { 10 }, "{}: too few blocks", path.display());
        }
        seen += 1;
    }
    assert!(seen >= 1);
}
