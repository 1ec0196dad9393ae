//! Workloads of shell commands with fixed numbers: stopping, resuming, sizing, false output, gates, directories.

mod support;

use device::Readings;
use experiment::{
    Choices, Design, DiskRequest, PastResults, Results, Setting, Sink, StopReason, Workload, expand, order, run,
};
use model::Context;
use model::table::{DesignCell, MarkRow, Replicate, Sample};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use support::Directory;

#[derive(Default)]
struct Rows {
    cells: Vec<DesignCell>,
    absent: BTreeMap<u64, String>,
    replicates: Vec<Replicate>,
    samples: Vec<Sample>,
    marks: Vec<MarkRow>,
}

impl Sink for Rows {
    fn cell(&mut self, row: &DesignCell) -> experiment::StoreResult {
        self.cells.push(row.clone());
        Ok(())
    }
    fn absent(&mut self, cell: u64, why: &str) -> experiment::StoreResult {
        self.absent.insert(cell, why.into());
        Ok(())
    }
    fn replicate(&mut self, row: &Replicate, samples: &[Sample], marks: &[MarkRow]) -> experiment::StoreResult {
        self.replicates.push(row.clone());
        self.samples.extend_from_slice(samples);
        self.marks.extend_from_slice(marks);
        Ok(())
    }
}

/// A workload whose process runs `script`, with the factor `kind` as $1 and the additions in `rest`.
fn workload(script: &str, rest: &str) -> Workload {
    let text = format!(
        r#"
        name = "fake"
        question = "?"
        argv = ["/bin/sh", "-c", '''{script}''', "sh", "{{kind}}", "@more"]
        timeout_s = 60
        {rest}
        [words]
        more = ["{{dir}}", "{{kept}}", "{{scratch}}", "{{block_number}}"]
        [run]
        blocks = 4
        precision_percent = 2
        budget_s = 600
        [quick]
        blocks = 2
        precision_percent = 2
        budget_s = 600
        [[factor]]
        name = "kind"
        about = "which"
        default = ["a", "b", "bad"]
        values = ["a", "b", "bad", "lie", "silent", "nonsense", "zero", "workless"]
        [[factor]]
        name = "dir"
        about = "where"
        default = "."
        folder = true
    "#
    );
    Workload::parse("fake.toml", &text).unwrap()
}

/// Fixed "durations": 20 iterations of 1000 ns (a) or 2000 ns (b); `bad` dies.
const FAKE_SCRIPT: &str = r#"
    say() { echo "{\"metric\":\"$1\",\"unit\":\"$2\",\"t\":1,\"v\":$3}"; }
    series() { for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do say iteration ns $1; done; }
    case $1 in
        a) series 1000 ;;
        b) series 2000 ;;
        bad) echo "cannot" >&2; exit 1 ;;
        lie) series 1; say work row 5; echo "{\"verified\":false,\"by\":\"3 rows, not 5\"}"; exit 0 ;;
        silent) say work row 5; exit 0 ;;
        nonsense) echo "{\"metric\":\"iteration\",\"v\":\"soon\"}"; series 10 ;;
        zero) series 0 ;;
        workless) series 10; exit 0 ;;
    esac
    say work row 5
    echo "{\"mark\":\"mode\",\"text\":\"fake\"}"
    echo "{\"verified\":true,\"by\":\"fixed\"}"
"#;

#[derive(Default)]
struct Options<'a> {
    past: PastResults,
    sensors: Option<&'a mut dyn FnMut() -> Readings>,
    widths: Option<Box<experiment::HalfWidths<'static>>>,
    why: Option<PathBuf>,
}

fn run_design(design: &Design, directory: &Directory, context: &Context, options: Options<'_>) -> (Results, Rows) {
    let mut make = |_: &DiskRequest| Err("none here".into());
    // Values with shorter lifetimes than the setting are moved into closures of their own.
    let (mut sensors, mut widths) = (options.sensors, options.widths);
    let gated = sensors.is_some();
    let mut read = move || sensors.as_mut().unwrap()();
    let mut look = move |results: &Results| match &mut widths {
        Some(of) => of(results),
        None => vec![None; results.design.cells.len()],
    };
    let mut setting = Setting::new(Path::new("/bin/sh"), &mut make);
    setting.scratch = directory.0.clone();
    setting.past = options.past;
    setting.why = options.why;
    setting.half_widths = Some(&mut look);
    if gated {
        setting.sensors = Some(&mut read);
    }
    let mut rows = Rows::default();
    let results = run(design, &mut setting, context, &mut rows).unwrap();
    (results, rows)
}

fn design(workload: &Workload, directory: &Directory, kinds: &[&str], blocks: u64) -> Design {
    let kinds = kinds.iter().map(ToString::to_string).collect();
    let choices = Choices {
        factors: BTreeMap::from([("kind".to_string(), kinds)]),
        dirs: vec![("here".into(), directory.0.clone())],
        blocks: Some(blocks),
        seed: 7,
        ..Choices::default()
    };
    expand(workload, &choices).unwrap()
}

/// Everything that must not depend on an interruption.
fn plan(rows: &[Replicate]) -> Vec<(u64, u64, u64, u64, bool, Option<String>)> {
    rows.iter().map(|r| (r.id, r.cell, r.block, r.place, r.warmup, r.failure.clone())).collect()
}

#[test]
fn processes_run_in_seeded_order_and_keep_their_output() {
    let directory = Directory::new("order");
    let design = design(&workload(FAKE_SCRIPT, ""), &directory, &["a", "b"], 6);
    let (results, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    let expected: Vec<u64> = order::blocks(7, 2).take(7).flatten().map(|c| c as u64).collect();
    assert_eq!(rows.replicates.iter().map(|r| r.cell).collect::<Vec<_>>(), expected);
    assert_eq!((results.stopped, results.replicates.len()), (Some(StopReason::Blocks), 14));
    assert!(rows.replicates.iter().all(|r| r.verified == Some(true) && r.verified_by.as_deref() == Some("fixed")));
    assert!(rows.replicates.iter().all(|r| r.start_unix_ns.is_some() && r.gates.is_none()));
    assert_eq!(rows.marks.len(), 14);
    assert_eq!(rows.samples.iter().filter(|s| s.metric == "iteration").count(), 14 * 20);
    assert!(directory.is_empty());
}

#[test]
fn cells_of_a_block_get_its_number() {
    let directory = Directory::new("block");
    let script = format!("echo \"{{\\\"mark\\\":\\\"seed\\\",\\\"text\\\":\\\"$5\\\"}}\"\n{FAKE_SCRIPT}");
    let design = design(&workload(&script, ""), &directory, &["a", "b"], 3);
    let (_, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    let texts: Vec<&str> = rows.marks.iter().filter(|m| m.name == "seed").map(|m| m.text.as_str()).collect();
    assert_eq!(texts, ["0", "0", "1", "1", "2", "2", "3", "3"]);
}

#[test]
fn resumed_run_equals_an_uninterrupted_one() {
    let directory = Directory::new("resume");
    let design = design(&workload(FAKE_SCRIPT, ""), &directory, &["a", "bad", "b"], 5);
    let (whole, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    // The bad cell is given up after three blocks.
    assert_eq!(rows.replicates.len(), 6 * 2 + 3);
    for cut in 0..=rows.replicates.len() {
        let before = |id: Option<u64>| id.is_some_and(|id| id < cut as u64);
        let given_up = plan(&rows.replicates[..cut]).iter().filter(|(_, cell, ..)| *cell == 1).count() == 3;
        let past = PastResults {
            replicates: rows.replicates[..cut].to_vec(),
            samples: rows.samples.iter().filter(|s| before(s.replicate)).cloned().collect(),
            marks: rows.marks.iter().filter(|m| before(m.replicate)).cloned().collect(),
            absent: if given_up { rows.absent.clone() } else { BTreeMap::new() },
        };
        let (results, rest) =
            run_design(&design, &directory, &Context::silent(), Options { past, ..Options::default() });
        assert_eq!(plan(&results.replicates), plan(&whole.replicates), "cut at {cut}");
        assert_eq!(plan(&rest.replicates), plan(&whole.replicates[cut..]), "cut at {cut}");
        assert_eq!((results.absent, results.samples.len()), (whole.absent.clone(), whole.samples.len()));
    }
}

#[test]
fn failed_recording_says_why() {
    let directory = Directory::new("why");
    let mut design = design(&workload(FAKE_SCRIPT, "why = {}"), &directory, &["a"], 2);
    // As if its directory could not be created: there is no command to record.
    design.cells[0].why.as_mut().unwrap().variables.clear();
    let options = Options { why: Some(directory.0.clone()), ..Options::default() };
    let (results, rows) = run_design(&design, &directory, &Context::silent(), options);
    let texts = |r: &&Replicate| r.why.as_deref() == Some("fake-0.fathom");
    let (kept, stored) = (results.replicates.iter().find(texts), rows.replicates.iter().find(texts));
    assert!(kept.and_then(|r| r.failure.as_ref()).is_some_and(|why| why.contains("{kind}")), "{kept:?}");
    assert_eq!(kept, stored);
}

#[test]
fn unverified_crashed_and_invalid_replicates_have_no_result() {
    let directory = Directory::new("lies");
    let kinds = ["lie", "bad", "silent", "nonsense", "zero", "workless"];
    let design = design(&workload(FAKE_SCRIPT, ""), &directory, &kinds, 2);
    let (results, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    let why = |cell: usize| rows.replicates.iter().find(|r| r.cell == cell as u64).unwrap().failure.clone().unwrap();
    for (cell, part) in [
        (0, "check of the result failed: 3 rows, not 5"),
        (1, "cannot"),
        (2, "printed no iteration"),
        (3, "an invalid line"),
        (4, "not a valid time"),
        (5, "no `work` metric was printed"),
    ] {
        assert!(why(cell).contains(part), "{}: {}", kinds[cell], why(cell));
    }
    assert!(rows.replicates.iter().all(|r| r.failure.is_some()));
    // In the third block everything has been given up.
    assert_eq!((results.absent.len(), rows.absent.len()), (6, 6));
}

#[test]
fn blocks_are_added_until_intervals_are_narrow() {
    let directory = Directory::new("precision");
    let mut design = design(&workload(FAKE_SCRIPT, ""), &directory, &["a", "b"], 3);
    design.plan.as_mut().unwrap().exactly = false;
    let narrow_from = |blocks: usize| Options {
        widths: Some(Box::new(move |results: &Results| {
            let counted = |c: u64| results.replicates.iter().filter(|r| r.cell == c && !r.warmup).count();
            (0..2).map(|c| Some(if counted(c) >= blocks { 0.01 } else { 0.5 })).collect()
        })),
        ..Options::default()
    };
    for (narrow, blocks) in [(1, 3), (5, 5)] {
        let (results, rows) = run_design(&design, &directory, &Context::silent(), narrow_from(narrow));
        assert_eq!((results.stopped, rows.replicates.len()), (Some(StopReason::Precision), (1 + blocks) * 2));
    }
    // Without any budget only the minimum number of blocks is run.
    design.plan.as_mut().unwrap().budget = std::time::Duration::ZERO;
    let (results, rows) = run_design(&design, &directory, &Context::silent(), narrow_from(5));
    assert_eq!((results.stopped, rows.replicates.len()), (Some(StopReason::Budget), (1 + 3) * 2));
}

#[test]
fn inner_count_is_fixed_after_the_warm_up() {
    let script = r#"
        echo "{\"metric\":\"said\",\"v\":${6#--inner=}}"
        if [ "$6" = 0 ]; then echo "{\"mark\":\"inner\",\"text\":\"64\"}"; exit 0; fi
        echo "{\"metric\":\"iteration\",\"v\":10}"; echo "{\"metric\":\"work\",\"v\":${6#--inner=}}"
    "#;
    let mut workload = workload(script, "sizing = { calibrate = ['0'], fixed = ['--inner={inner}'] }");
    workload.argv.push("@sizing".into());
    let directory = Directory::new("sizing");
    let design = design(&workload, &directory, &["a", "b"], 3);
    let (results, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    assert!(results.absent.is_empty(), "{:?}", results.absent);
    let said: Vec<f64> = rows.samples.iter().filter(|s| s.metric == "said").map(|s| s.value).collect();
    assert_eq!(said, [0.0, 0.0, 64.0, 64.0, 64.0, 64.0, 64.0, 64.0]);
    // A resumed run does not size again.
    let past =
        PastResults { replicates: rows.replicates[..2].to_vec(), marks: rows.marks.clone(), ..PastResults::default() };
    let (_, rest) = run_design(&design, &directory, &Context::silent(), Options { past, ..Options::default() });
    assert!(rest.samples.iter().filter(|s| s.metric == "said").all(|s| s.value == 64.0));
    assert_eq!(rest.replicates.len(), 6);
}

/// The user needs the workload's message, not the fact that it was the warm-up.
#[test]
fn failed_warm_up_quotes_the_workloads_error() {
    let script = "echo 'not enough space for 16 MiB' >&2; exit 1";
    let mut workload = workload(script, "sizing = { calibrate = ['0'], fixed = ['--inner={inner}'] }");
    workload.argv.push("@sizing".into());
    let directory = Directory::new("no-room");
    let design = design(&workload, &directory, &["a"], 3);
    let (results, _) = run_design(&design, &directory, &Context::silent(), Options::default());
    assert!(results.absent[0].why.contains("not enough space for 16 MiB"), "{}", results.absent[0].why);
}

#[test]
fn states_of_the_gates_are_recorded_with_each_process() {
    let directory = Directory::new("gates");
    let mut design = design(&workload(FAKE_SCRIPT, ""), &directory, &["a"], 2);
    let plan = design.plan.as_mut().unwrap();
    // Waiting may take a tenth of this.
    (plan.quick, plan.budget) = (true, std::time::Duration::from_secs(2));
    let mut degrees = [40.0, 40.0, 50.0].into_iter();
    let mut sensors = || Readings {
        temperature_c: Ok(degrees.next().unwrap_or(50.0)),
        frequency_mhz: Err("not reported by the kernel".into()),
        busy_cpus: Ok(0.0),
        battery: Err("no battery".into()),
    };
    let (_, rows) = run_design(
        &design,
        &directory,
        &Context::silent(),
        Options { sensors: Some(&mut sensors), ..Options::default() },
    );
    let state = |row: &Replicate, gate: &str| {
        let gates: serde_json::Value = serde_json::from_str(row.gates.as_ref().unwrap()).unwrap();
        gates[gate]["state"].as_str().unwrap().to_string()
    };
    let of = |gate: &str| rows.replicates.iter().map(|r| state(r, gate)).collect::<Vec<_>>();
    assert_eq!(of("temperature"), ["passed", "passed", "failed"]);
    assert_eq!((of("battery"), of("load")), (vec!["unavailable".to_string(); 3], vec!["passed".to_string(); 3]));
}

#[test]
fn leftovers_of_processes_are_removed_even_after_a_kill() {
    let script = r#"
        touch "$2/mine" "$3/ours"; ls "$3" | grep -q ours || exit 1
        echo '{"metric":"iteration","v":5}'; echo '{"metric":"work","v":1}'
        [ $1 = b ] && kill -9 $$
        exit 0
    "#;
    let directory = Directory::new("leftovers");
    let design = design(&workload(script, ""), &directory, &["a", "b"], 2);
    let (results, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    assert!(rows.replicates.iter().all(|r| r.failure.is_some() == (r.cell == 1)), "{:?}", rows.replicates);
    assert!(results.complete() && directory.is_empty());
}

#[test]
fn vanished_storage_fails_only_its_cells() {
    let script = r#"[ $1 = b ] && rm -rf "$(dirname "$2")"; echo '{"metric":"iteration","v":5}'; echo '{"metric":"work","v":1}'"#;
    let (directory, card) = (Directory::new("scratch"), Directory::new("card"));
    let design = design(&workload(script, ""), &card, &["b"], 5);
    let (results, rows) = run_design(&design, &directory, &Context::silent(), Options::default());
    let last = rows.replicates.last().unwrap().failure.clone().unwrap();
    assert!(last.contains("cannot inspect") && last.contains("card"), "{last}");
    assert_eq!((results.stopped, results.absent.len()), (Some(StopReason::Nothing), 1));
    assert!(rows.replicates[0].failure.is_none() && directory.is_empty());
}
