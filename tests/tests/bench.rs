//! Benchmarks through the binary: the contract, interruptions, bad input, the self-test. The workload is a shell script
//! whose "durations" are fixed, so that scores are arithmetic.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, lane, run};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("scores_are_arithmetic_and_the_contract_is_kept", Ok(()), contract),
        ("a_killed_run_goes_on_as_if_nothing_had_happened", Ok(()), killed),
        ("an_interrupt_keeps_what_was_measured", Ok(()), interrupted),
        ("a_damaged_log_is_named_with_its_line", Ok(()), damaged),
        ("what_cannot_be_run_is_told_before_anything_is_made", Ok(()), mistakes),
        ("a_design_with_a_mistake_is_named_with_its_factor", Ok(()), design_mistakes),
        ("the_same_thing_twice_raises_no_alarm", Ok(()), selftest),
        ("the_list_names_every_parameter", Ok(()), list),
    ];
    lane(cases)
}

/// Iterations of 1000 ns (a) or 2000 ns (b), in some processes a thousandth more; 5 rows of work each.
const SCRIPT: &str = r#"
name = "fake"
question = "How fast is a script that makes its numbers up?"
argv = ["/bin/sh", "-c", '''
sleep {pause}
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do
    echo "{\"metric\":\"iteration\",\"unit\":\"ns\",\"t\":$i,\"v\":$1.$(($$ % 10))}"
done
echo "{\"metric\":\"work\",\"unit\":\"row\",\"v\":5}"
echo "{\"mark\":\"mode\",\"text\":\"made up\"}"
echo "{\"verified\":{honest},\"by\":\"nothing\"}"
''', "sh", "{duration}"]

[score]

[run]
blocks = 6
precision_percent = 2
budget_s = 600

[quick]
blocks = 5
precision_percent = 2
budget_s = 60

[[factor]]
name = "duration"
about = "ns of an iteration"
default = [1000, 2000]
range = [1, 1000000]

[[factor]]
name = "honest"
about = "whether the result is right"
default = true
values = [true, false]

[[factor]]
name = "pause"
about = "s before it begins"
default = 0
values = [0, 0.05]
"#;

struct Bench {
    folder: TempDir,
}

impl Bench {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("fake.toml"), SCRIPT)?;
        Ok(Self { folder })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(fathom());
        command.arg("bench").args(words);
        // The machine under test may be busy; nothing here depends on how fast it is.
        if matches!(words[0], "run" | "selftest") {
            command.arg("--no-wait");
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_slice(&run(&mut self.command(words))?.stdout)?)
    }

    fn said(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let Output { status, stderr, .. } = self.command(words).output()?;
        Ok((status.code(), String::from_utf8_lossy(&stderr).into_owned()))
    }

    /// Cell, block and place of each replicate of an archive's log.
    fn order(&self, archive: &str) -> Result<Vec<[u64; 3]>> {
        let text = fs::read_to_string(self.path(archive).join("runs.jsonl"))?;
        let entries = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let replicates = entries.iter().filter_map(|e| e.get("replicate"));
        let number = |r: &Value, name: &str| r["replicate"][name].as_u64().with_context(|| format!("{name} in {r}"));
        replicates.map(|r| Ok([number(r, "cell")?, number(r, "block")?, number(r, "place")?])).collect()
    }
}

fn contract() -> Result<()> {
    let bench = Bench::new()?;
    let words = ["run", "fake.toml", "--blocks=6", "--seed=5", "--json", "--csv=r.csv", "--markdown=r.md"];
    let value = bench.json(&words)?;
    ensure!(value["version"] == 1 && value["complete"] == true && value["quick"] == false, "{value}");
    ensure!(value["designs"][0]["seed"] == 5 && value["designs"][0]["stopped"] == "blocks", "{value}");
    let results = value["results"].as_array().context("results[]")?;
    ensure!(results.len() == 2, "{value}");
    for (result, expected) in results.iter().zip([5e6, 2.5e6]) {
        for name in [
            "workload",
            "parameters",
            "unit",
            "estimate",
            "ci95",
            "class",
            "processes",
            "outliers",
            "gates",
            "verified",
        ] {
            ensure!(!result[name].is_null(), "{name} is missing: {result}");
        }
        // 5 rows in 1000 ns and less than a thousandth.
        let score = result["estimate"].as_f64().context("estimate")?;
        ensure!(score <= expected && score > expected * 0.999, "{score} is not {expected}");
        let [low, high] = [0, 1].map(|i| result["ci95"][i].as_f64().unwrap_or(f64::NAN));
        ensure!(low <= score && score <= high, "{result}");
        ensure!(result["unit"] == "row/s" && result["processes"] == 6 && result["class"] == "flat", "{result}");
        ensure!(result["marks"]["mode"] == "made up" && result["verified"] == true, "{result}");
        ensure!(result["gates"]["load"].is_object(), "{result}");
    }
    ensure!(value["environment"]["kernel.release"]["value"].is_string(), "no environment");
    ensure!(fs::read_to_string(bench.path("r.csv"))?.lines().count() == 3, "a line a cell and the names");
    ensure!(fs::read_to_string(bench.path("r.md"))?.contains("| duration=2000 |"), "a row a cell");
    // The tables hold everything.
    run(Command::new(fathom())
        .args(["export", "--csv", "bench.fathom", "-o", "out"])
        .current_dir(bench.folder.path()))?;
    let rows = |table: &str| -> Result<usize> {
        Ok(fs::read_to_string(bench.path("out").join(format!("{table}.csv")))?.lines().count() - 1)
    };
    ensure!((rows("designs")?, rows("cells")?, rows("replicates")?, rows("marks")?) == (1, 2, 14, 14), "tables");
    // A wrong result is a failure, never a score.
    let output = bench
        .command(&["run", "fake.toml", "-p", "honest=false,true", "-p", "duration=7", "--blocks=3", "--json"])
        .output()?;
    let value: Value = serde_json::from_slice(&output.stdout)?;
    let of = |honest: &str| {
        let results = value["results"].as_array().into_iter().flatten();
        results.clone().find(|r| r["parameters"]["honest"] == honest).with_context(|| format!("{honest} in {value}"))
    };
    ensure!(of("false")?["estimate"].is_null() && of("false")?["processes"] == 0, "{value}");
    ensure!(of("false")?["failure"].as_str().is_some_and(|f| f.contains("check of the result failed")), "{value}");
    ensure!(of("true")?["processes"] == 3, "{value}");
    Ok(())
}

/// Starts a run that would last long, and waits until so many replicates are in its log.
fn start(bench: &Bench, replicates: usize) -> Result<std::process::Child> {
    let mut command = bench.command(&["run", "fake.toml", "-p", "pause=0.05", "--blocks=8", "--seed=11"]);
    let child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let until = Instant::now() + Duration::from_secs(120);
    while bench.order("bench.fathom").map_or(0, |o| o.len()) < replicates {
        ensure!(Instant::now() < until, "no replicates appear");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn killed() -> Result<()> {
    let bench = Bench::new()?;
    bench.json(&["run", "fake.toml", "--blocks=8", "--seed=11", "-o", "whole.fathom", "--json"])?;
    let mut child = start(&bench, 5)?;
    child.kill()?;
    child.wait()?;
    // The power went while a line was written.
    let log = bench.path("bench.fathom/runs.jsonl");
    let mut bytes = fs::read(&log)?;
    bytes.extend_from_slice(b"{\"replicate\":{\"repl");
    fs::write(&log, bytes)?;
    let value = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == true && value["designs"][0]["seed"] == 11, "{value}");
    ensure!(value["marks"][0]["name"] == "resumed", "{}", value["marks"]);
    ensure!(bench.order("bench.fathom")? == bench.order("whole.fathom")?, "another order");
    // There is nothing left to do, and that is no error.
    let again = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(again["results"] == value["results"], "{again}");
    Ok(())
}

fn interrupted() -> Result<()> {
    let bench = Bench::new()?;
    let mut child = start(&bench, 4)?;
    run(Command::new("kill").args(["-INT", "--", &child.id().to_string()]))?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status:?}");
    ensure!(bench.path("bench.fathom/tables/replicates.parquet").is_file(), "no tables");
    let before = bench.order("bench.fathom")?.len();
    ensure!((4..18).contains(&before), "{before}");
    let value = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == true && bench.order("bench.fathom")?.len() == 18, "{value}");
    Ok(())
}

fn damaged() -> Result<()> {
    let bench = Bench::new()?;
    bench.json(&["run", "fake.toml", "--blocks=2", "--json"])?;
    let log = bench.path("bench.fathom/runs.jsonl");
    let text = fs::read_to_string(&log)?;
    fs::write(&log, text.replacen("\"block\":1", "\"block\":-1", 1))?;
    let (status, said) = bench.said(&["run", "--resume", "bench.fathom"])?;
    ensure!(status == Some(1) && said.contains("runs.jsonl is damaged: line"), "{said}");
    fs::remove_file(&log)?;
    let (status, said) = bench.said(&["run", "--resume", "bench.fathom"])?;
    ensure!(status == Some(1) && said.contains("holds no benchmark"), "{said}");
    fs::create_dir(bench.path("other"))?;
    let (status, said) = bench.said(&["run", "--resume", "other"])?;
    ensure!(status == Some(1) && said.contains("not a Fathom archive"), "{said}");
    Ok(())
}

fn mistakes() -> Result<()> {
    let bench = Bench::new()?;
    for (words, part) in [
        (&["run", "sqlight"][..], "there is no workload \"sqlight\""),
        (&["run", "missing.toml"], "missing.toml"),
        (&["run", "fake.toml", "-p", "speed=1"], "no workload that is run has that parameter"),
        (&["run", "fake.toml", "-p", "duration=0"], "factor duration"),
        (&["run", "fake.toml", "-p", "duration"], "NAME=VALUE"),
        (&["run", "sqlite", "--dir", "/no/such/folder"], "/no/such/folder"),
        (&["run", "fake.toml", "--precision", "0"], "percent"),
        (&["run", "fake.toml", "--resume", "x.fathom"], "cannot be used with"),
    ] {
        let (status, said) = bench.said(words)?;
        ensure!(status == Some(2) && said.contains(part), "{words:?}: {status:?}: {said}");
    }
    ensure!(!bench.path("bench.fathom").exists(), "an archive was left behind");
    Ok(())
}

fn design_mistakes() -> Result<()> {
    let bench = Bench::new()?;
    for (from, to, part) in [
        ("default = [1000, 2000]", "default = [0]", "factor duration"),
        ("\"{duration}\"]", "\"{dururation}\"]", "{dururation}"),
        ("blocks = 6", "blokcs = 6", "line "),
    ] {
        fs::write(bench.path("wrong.toml"), SCRIPT.replacen(from, to, 1))?;
        let (status, said) = bench.said(&["run", "wrong.toml"])?;
        ensure!(status == Some(2) && said.contains("wrong.toml") && said.contains(part), "{status:?}: {said}");
    }
    Ok(())
}

fn selftest() -> Result<()> {
    let bench = Bench::new()?;
    let value = bench.json(&["selftest", "fake.toml", "--comparisons=4", "--blocks=5", "--json"])?;
    ensure!(value["comparisons"] == 4 && value["alarms"] == 0 && value["rate"] == 0.0, "{value}");
    let high = value["ci95"][1].as_f64().context("ci95")?;
    ensure!((0.3..0.6).contains(&high), "four comparisons promise little: {value}");
    let output = run(&mut bench.command(&["selftest", "fake.toml", "--comparisons=2", "--blocks=5"]))?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.contains("false alarms") && text.contains("0 of 2"), "{text}");
    Ok(())
}

fn list() -> Result<()> {
    let bench = Bench::new()?;
    let value = bench.json(&["list", "--json"])?;
    let sqlite =
        value["workloads"].as_array().into_iter().flatten().find(|w| w["name"] == "sqlite").context("sqlite")?;
    ensure!(sqlite["parameters"].as_array().is_some_and(|p| p.iter().any(|p| p["name"] == "journal_mode")), "{sqlite}");
    let output = run(&mut bench.command(&["list", "fake.toml"]))?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.contains("duration") && text.contains("allowed: 1 to 1000000"), "{text}");
    ensure!(Path::new(&bench.path("fake.toml")).is_file(), "the list only reads");
    Ok(())
}
