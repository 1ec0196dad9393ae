//! Benchmarks through the binary: the contract, interruptions, bad input, the self-test. The workload is a shell script
//! whose "durations" are fixed, so that scores are arithmetic.

use anyhow::{Context, Result, ensure};
use fathom_tests::bench::FAKE_DESIGN;
use fathom_tests::{Case, fathom, measured_processes, run, run_suite};
use serde_json::Value;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("run_json_has_contract_fields_and_exact_scores", Ok(()), run_json_has_contract_fields_and_exact_scores),
        ("killed_run_resumes_to_same_result", Ok(()), killed_run_resumes_to_same_result),
        ("interrupted_run_keeps_measurements", Ok(()), interrupted_run_keeps_measurements),
        ("damaged_log_error_names_line", Ok(()), damaged_log_error_names_line),
        ("invalid_run_creates_no_archive", Ok(()), invalid_run_creates_no_archive),
        ("design_error_names_file_and_factor", Ok(()), design_mistakes),
        ("selftest_has_no_false_positive", Ok(()), selftest_has_no_false_positive),
        ("list_shows_every_parameter", Ok(()), list_shows_every_parameter),
        ("slower_cell_fails_compare", Ok(()), slower_cell_fails_compare),
        (
            "longer_time_is_slower_and_missing_direction_refused",
            Ok(()),
            longer_time_is_slower_and_missing_direction_refused,
        ),
        ("compare_by_compares_parameter_values", Ok(()), compared_within),
        ("report_combines_two_benchmarks", Ok(()), report_combines_two_benchmarks),
        ("history_has_one_point_per_archive_and_finds_step", Ok(()), history_has_one_point_per_archive_and_finds_step),
        ("show_repeats_results_of_run", Ok(()), shown_again),
        ("tighter_precision_plans_more_replicates", Ok(()), tighter_precision_plans_more_replicates),
        ("missing_baseline_is_reported_and_other_designs_run", Ok(()), without_baseline),
        ("selftest_of_spin_completes", Ok(()), selftest_of_a_load),
        ("sqlite_run_resumes_after_sigkill", Ok(()), killed_load),
        ("durations_are_converted_to_declared_unit", Ok(()), durations_are_converted_to_declared_unit),
        ("failing_command_fails_fail_on", Ok(()), broken_command),
        ("unprivileged_run_replaces_root_only_values", fathom_tests::root(), without_root),
    ];
    run_suite(cases)
}

/// A duration is the same in any printed unit of time; other units give no result.
fn durations_are_converted_to_declared_unit() -> Result<()> {
    let bench = Bench::new()?;
    let design = |prints: &str| {
        format!(
            r#"
name = "units"
question = "How long is a duration?"
argv = ["sh", "-c", 'read unit v < printed; echo "{{\"metric\":\"m\",\"unit\":\"$unit\",\"v\":$v}}"']
[score]
of = "value"
metric = "m"
{prints}
better = "lower"
[run]
blocks = 6
warmup = 0
precision_percent = 90
budget_s = 60
[quick]
blocks = 6
warmup = 0
precision_percent = 90
budget_s = 60
"#
        )
    };
    let measured_as = |archive: &str, prints: &str, printed: &str| -> Result<Value> {
        fs::write(bench.path("printed"), format!("{printed}\n"))?;
        fs::write(bench.path("units.toml"), design(prints))?;
        bench.json(&["run", "units.toml", "--blocks=6", "-o", archive, "--json"])
    };
    for (archive, printed) in [("s.fathom", "s 1.5"), ("ms.fathom", "ms 1500"), ("ns.fathom", "ns 1500000000")] {
        let value = measured_as(archive, "unit = \"s\"", printed)?;
        let result = &value["results"][0];
        let estimate = result["estimate"].as_f64().context("estimate")?;
        ensure!((estimate - 1.5).abs() < 1e-9 && result["unit"] == "s", "{printed}: {result}");
    }
    let value = bench.json(&["compare", "ms.fathom", "s.fathom", "--json"])?;
    let ratio = value["results"][0]["ratio"].as_f64().context("ratio")?;
    ensure!((ratio - 1.0).abs() < 1e-9, "{value}");
    // Without a declared unit archives keep what was printed, and are not compared if that differs.
    measured_as("a.fathom", "", "ms 1500")?;
    measured_as("b.fathom", "", "s 1.5")?;
    let (status, messages) = bench.messages(&["compare", "a.fathom", "b.fathom"])?;
    ensure!(status == Some(1) && messages.contains("not compared"), "{status:?}: {messages}");
    Ok(())
}

/// A cell whose command now fails must not count as not slower.
fn broken_command() -> Result<()> {
    let bench = Bench::new()?;
    let design = r#"
name = "breaks"
question = "Does it still work?"
argv = ["sh", "-c", "left=$(cat left); echo $((left - 1)) > left; [ $left -gt 0 ] || exit 3; echo '{\"metric\":\"m\",\"unit\":\"ms\",\"v\":10}'"]
[score]
of = "value"
metric = "m"
better = "lower"
[run]
blocks = 6
warmup = 0
precision_percent = 90
budget_s = 60
[quick]
blocks = 6
warmup = 0
precision_percent = 90
budget_s = 60
"#;
    fs::write(bench.path("breaks.toml"), design)?;
    for (archive, works, status) in [("a.fathom", "9", 0), ("b.fathom", "2", 1)] {
        fs::write(bench.path("left"), works)?;
        let (rc, messages) = bench.messages(&["run", "breaks.toml", "--blocks=6", "-o", archive])?;
        ensure!(rc == Some(status), "{archive}: {rc:?}: {messages}");
    }
    let (status, messages) = bench.messages(&["compare", "a.fathom", "b.fathom", "--fail-on=slower"])?;
    ensure!(status == Some(1) && messages.contains("no result in B: breaks"), "{status:?}: {messages}");
    Ok(())
}

struct Bench {
    directory: TempDir,
}

impl Bench {
    fn new() -> Result<Self> {
        Ok(Self { directory: fathom_tests::bench::fake_directory()? })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(fathom());
        command.arg("bench").args(words);
        // The machine under test may be busy; nothing here depends on its speed.
        let calm = match words[0] {
            "run" | "selftest" => Some("--no-wait"),
            "compare" | "history" => Some("--even-disturbed"),
            _ => None,
        };
        command.args(calm);
        command.current_dir(self.directory.path()).stdin(Stdio::null());
        command
    }

    fn json(&self, words: &[&str]) -> Result<Value> {
        Ok(serde_json::from_slice(&run(&mut self.command(words))?.stdout)?)
    }

    fn messages(&self, words: &[&str]) -> Result<(Option<i32>, String)> {
        let Output { status, stderr, .. } = self.command(words).output()?;
        Ok((status.code(), String::from_utf8_lossy(&stderr).into_owned()))
    }

    /// Cell, block and position of each replicate in an archive's log.
    fn order(&self, archive: &str) -> Result<Vec<[u64; 3]>> {
        let text = fs::read_to_string(self.path(archive).join("runs.jsonl"))?;
        let entries = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
        let replicates = entries.iter().filter_map(|e| e.get("replicate"));
        let number = |r: &Value, name: &str| r["replicate"][name].as_u64().with_context(|| format!("{name} in {r}"));
        replicates.map(|r| Ok([number(r, "cell")?, number(r, "block")?, number(r, "place")?])).collect()
    }
}

fn run_json_has_contract_fields_and_exact_scores() -> Result<()> {
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
            "left_out",
            "outliers",
            "gates",
            "verified",
        ] {
            ensure!(!result[name].is_null(), "{name} is missing: {result}");
        }
        // 5 rows in 1000 ns, plus less than a thousandth.
        let score = result["estimate"].as_f64().context("estimate")?;
        ensure!(score <= expected && score > expected * 0.999, "{score} is not {expected}");
        let [low, high] = [0, 1].map(|i| result["ci95"][i].as_f64().unwrap_or(f64::NAN));
        ensure!(low <= score && score <= high, "{result}");
        ensure!(
            result["unit"] == "row/s" && measured_processes(result)? == 6.0 && result["class"] == "flat",
            "{result}"
        );
        ensure!(result["marks"]["mode"] == "made up" && result["verified"] == true, "{result}");
        ensure!(result["gates"]["load"].is_object(), "{result}");
    }
    ensure!(value["environment"]["kernel.release"]["value"].is_string(), "no environment");
    ensure!(fs::read_to_string(bench.path("r.csv"))?.lines().count() == 3, "a line a cell and the names");
    ensure!(fs::read_to_string(bench.path("r.md"))?.contains("| duration=2000 |"), "a row a cell");
    // The tables hold everything.
    run(Command::new(fathom())
        .args(["export", "--csv", "bench.fathom", "-o", "out"])
        .current_dir(bench.directory.path()))?;
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

/// Starts a long run, and waits until `replicates` replicates are in its log.
fn start_long_run(bench: &Bench, replicates: usize) -> Result<std::process::Child> {
    let mut command = bench.command(&["run", "fake.toml", "-p", "pause=0.05", "--blocks=8", "--seed=11"]);
    let child = command.process_group(0).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let until = Instant::now() + Duration::from_secs(120);
    while bench.order("bench.fathom").map_or(0, |o| o.len()) < replicates {
        ensure!(Instant::now() < until, "no replicates appear");
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(child)
}

fn killed_run_resumes_to_same_result() -> Result<()> {
    let bench = Bench::new()?;
    bench.json(&["run", "fake.toml", "--blocks=8", "--seed=11", "-o", "whole.fathom", "--json"])?;
    let mut child = start_long_run(&bench, 5)?;
    child.kill()?;
    child.wait()?;
    // As if the power had failed while a line was written.
    let log = bench.path("bench.fathom/runs.jsonl");
    let mut bytes = fs::read(&log)?;
    bytes.extend_from_slice(b"{\"replicate\":{\"repl");
    fs::write(&log, bytes)?;
    let value = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == true && value["designs"][0]["seed"] == 11, "{value}");
    ensure!(value["marks"][0]["name"] == "resumed", "{}", value["marks"]);
    ensure!(bench.order("bench.fathom")? == bench.order("whole.fathom")?, "another order");
    // Nothing is left to do, which is not an error.
    let again = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(again["results"] == value["results"], "{again}");
    Ok(())
}

fn interrupted_run_keeps_measurements() -> Result<()> {
    let bench = Bench::new()?;
    let mut child = start_long_run(&bench, 4)?;
    // Twice, like `timeout`, which signals the program and its group. It is one request, not a reason to abort at once.
    run(Command::new("sh").args(["-c", "kill -INT $0; sleep 0.02; kill -INT $0 || true", &child.id().to_string()]))?;
    let status = child.wait()?;
    ensure!(status.code() == Some(130), "{status:?}");
    ensure!(bench.path("bench.fathom/tables/replicates.parquet").is_file(), "no tables");
    let before = bench.order("bench.fathom")?.len();
    ensure!((4..18).contains(&before), "{before}");
    let value = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == true && bench.order("bench.fathom")?.len() == 18, "{value}");
    Ok(())
}

fn damaged_log_error_names_line() -> Result<()> {
    let bench = Bench::new()?;
    bench.json(&["run", "fake.toml", "--blocks=2", "--json"])?;
    let log = bench.path("bench.fathom/runs.jsonl");
    let text = fs::read_to_string(&log)?;
    fs::write(&log, text.replacen("\"block\":1", "\"block\":-1", 1))?;
    let (status, messages) = bench.messages(&["run", "--resume", "bench.fathom"])?;
    ensure!(
        status == Some(1) && messages.contains("is truncated or damaged") && messages.contains("its tables have 6"),
        "{messages}"
    );
    // Without tables the intact part is shown, and the damaged line is named.
    fs::rename(bench.path("bench.fathom/tables"), bench.path("tables"))?;
    let (status, messages) = bench.messages(&["show", "bench.fathom"])?;
    ensure!(status == Some(0) && messages.contains("checksum mismatch") && messages.contains("--resume"), "{messages}");
    fs::remove_dir_all(bench.path("bench.fathom/tables"))?;
    fs::rename(bench.path("tables"), bench.path("bench.fathom/tables"))?;
    // Truncated, while the tables are intact: they must stay.
    let last = text.trim_end().rfind("{\"replicate\"").context("a replicate")?;
    fs::write(&log, &text[..last])?;
    let table = bench.path("bench.fathom/tables/replicates.parquet");
    let before = fs::read(&table)?;
    let (status, messages) = bench.messages(&["run", "--resume", "bench.fathom"])?;
    ensure!(status == Some(1) && messages.contains("is truncated or damaged"), "{messages}");
    ensure!(fs::read(&table)? == before, "the tables were made anew");
    fs::remove_file(&log)?;
    let (status, messages) = bench.messages(&["run", "--resume", "bench.fathom"])?;
    ensure!(status == Some(1) && messages.contains("contains no benchmark"), "{messages}");
    fs::create_dir(bench.path("other"))?;
    let (status, messages) = bench.messages(&["run", "--resume", "other"])?;
    ensure!(status == Some(1) && messages.contains("not a Fathom archive"), "{messages}");
    Ok(())
}

fn invalid_run_creates_no_archive() -> Result<()> {
    let bench = Bench::new()?;
    for (words, part) in [
        (&["run", "sqlight"][..], "unknown workload \"sqlight\""),
        (&["run", "missing.toml"], "missing.toml"),
        (&["run", "fake.toml", "-p", "speed=1"], "no selected workload has this parameter"),
        (&["run", "fake.toml", "-p", "duration=0"], "factor duration"),
        (&["run", "fake.toml", "-p", "duration"], "NAME=VALUE"),
        (&["run", "sqlite", "--dir", "/no/such/directory"], "/no/such/directory"),
        (&["run", "fake.toml", "--precision", "0"], "percent"),
        (&["run", "fake.toml", "--resume", "x.fathom"], "cannot be used with"),
    ] {
        let (status, messages) = bench.messages(words)?;
        ensure!(status == Some(2) && messages.contains(part), "{words:?}: {status:?}: {messages}");
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
        fs::write(bench.path("wrong.toml"), FAKE_DESIGN.replacen(from, to, 1))?;
        let (status, messages) = bench.messages(&["run", "wrong.toml"])?;
        ensure!(
            status == Some(2) && messages.contains("wrong.toml") && messages.contains(part),
            "{status:?}: {messages}"
        );
    }
    Ok(())
}

fn selftest_has_no_false_positive() -> Result<()> {
    let bench = Bench::new()?;
    let value = bench.json(&["selftest", "fake.toml", "--comparisons=4", "--blocks=5", "--json"])?;
    ensure!(value["comparisons"] == 4 && value["alarms"] == 0 && value["rate"] == 0.0, "{value}");
    let high = value["ci95"][1].as_f64().context("ci95")?;
    ensure!((0.3..0.6).contains(&high), "four comparisons promise little: {value}");
    let output = run(&mut bench.command(&["selftest", "fake.toml", "--comparisons=2", "--blocks=5"]))?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.contains("false positives") && text.contains("0 of 2"), "{text}");
    Ok(())
}

/// From now on a 1 is put before each duration: eleven or six times as long. The command stays the same.
fn slow_program_down(bench: &Bench) -> Result<()> {
    Ok(fs::write(bench.path("slow"), "1")?)
}

fn slower_cell_fails_compare() -> Result<()> {
    let bench = Bench::new()?;
    let measure = |name: &str| bench.json(&["run", "fake.toml", "--blocks=5", "--seed=3", "--json", "-o", name]);
    measure("a.fathom")?;
    measure("same.fathom")?;
    slow_program_down(&bench)?;
    measure("slow.fathom")?;
    let value = bench.json(&["compare", "a.fathom", "same.fathom", "--json"])?;
    let verdicts = |value: &Value| -> Vec<String> {
        let all = value["results"].as_array().into_iter().flatten();
        all.map(|r| r["verdict"].as_str().unwrap_or_default().to_string()).collect()
    };
    ensure!(verdicts(&value) == ["equivalent", "equivalent"], "{value}");
    // The exit status follows the verdict, as scripts need.
    run(&mut bench.command(&["compare", "a.fathom", "same.fathom", "--fail-on=slower"]))?;
    let output = bench.command(&["compare", "a.fathom", "slow.fathom", "--fail-on=slower:50", "--json"]).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.code() == Some(1) && messages.contains("slower: fake duration=1000"), "{messages}");
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(verdicts(&value) == ["slower", "slower"] && value["version"] == 3, "{value}");
    for (result, expected) in value["results"].as_array().context("results")?.iter().zip([1.0 / 11.0, 1.0 / 6.0]) {
        let ratio = result["ratio"].as_f64().context("ratio")?;
        let [low, high] = [0, 1].map(|i| result["ratio_ci95"][i].as_f64().unwrap_or(f64::NAN));
        ensure!((ratio / expected - 1.0).abs() < 0.01 && low <= ratio && ratio <= high, "{result}");
    }
    let speed = value["overall"]["speed"].as_f64().context("overall")?;
    ensure!((speed * 66_f64.sqrt() - 1.0).abs() < 0.01, "{speed}");
    // Eleven times as long is 1,000 % longer: less than the limit. And in the other direction nothing became slower.
    run(&mut bench.command(&["compare", "a.fathom", "slow.fathom", "--fail-on=slower:1100"]))?;
    let output =
        run(&mut bench.command(&["compare", "slow.fathom", "a.fathom", "--fail-on=slower", "--markdown=c.md"]))?;
    ensure!(String::from_utf8(output.stdout)?.contains("faster"), "no verdict in the text");
    ensure!(fs::read_to_string(bench.path("c.md"))?.contains("| fake duration=1000"), "no table");
    // One parameter may differ on purpose: 1000 ns in A compared with 12000 ns in B.
    let value = bench.json(&["compare", "a.fathom", "slow.fathom", "--by=duration=1000,2000", "--json"])?;
    let results = value["results"].as_array().context("results")?;
    ensure!(results.len() == 1 && results[0]["levels"] == serde_json::json!(["1000", "2000"]), "{value}");
    ensure!(results[0]["ratio"].as_f64().is_some_and(|r| (r * 12.0 - 1.0).abs() < 0.01), "{value}");
    for (by, part) in [("duration=1000", "mode=jvm-tiered,art-jit"), ("duration=1000,7", "it has 1000, 2000")] {
        let (status, messages) = bench.messages(&["compare", "a.fathom", "slow.fathom", "--by", by])?;
        ensure!(status == Some(2) && messages.contains(part), "{by}: {status:?}: {messages}");
    }
    let (status, messages) = bench.messages(&["compare", "a.fathom", "missing.fathom"])?;
    ensure!(status == Some(1) && messages.contains("missing.fathom"), "{status:?}: {messages}");
    let (status, messages) = bench.messages(&["compare", "a.fathom", "slow.fathom", "--fail-on=faster"])?;
    ensure!(status == Some(2) && messages.contains("slower"), "{status:?}: {messages}");
    Ok(())
}

/// A comparison whose metric is a time, read from the file `time`. Older archives do not record which direction is
/// better.
fn longer_time_is_slower_and_missing_direction_refused() -> Result<()> {
    let bench = Bench::new()?;
    let design = |better: &str, word: &str| {
        format!(
            r#"
name = "times"
question = "?"
metric = "wall"
{better}
baseline = "one"
blocks = 6
warmup = 0
seed = 1
[[cell]]
name = "one"
argv = ["/bin/sh", "-c", 'echo "{{\"metric\":\"wall\",\"unit\":\"ms\",\"v\":$(cat time).$(($$ % 10))}}"', "sh", "{word}"]
"#
        )
    };
    let measure = |archive: &str, time: &str, word: &str| -> Result<()> {
        fs::write(bench.path("time"), time)?;
        fs::write(bench.path("times.toml"), design("better = 'lower'", word))?;
        run(&mut bench.command(&["run", "times.toml", "-o", archive]))?;
        Ok(())
    };
    fs::write(bench.path("times.toml"), design("", "x"))?;
    let (status, messages) = bench.messages(&["run", "times.toml"])?;
    ensure!(status == Some(2) && messages.contains("\"wall\" has no direction"), "{status:?}: {messages}");
    measure("a.fathom", "104", "x")?;
    measure("b.fathom", "133", "x")?;
    measure("other.fathom", "133", "y")?;
    // Both orders: 104 ms that became 133 are slower, and in the other direction faster.
    let (status, messages) = bench.messages(&["compare", "a.fathom", "b.fathom", "--fail-on=slower"])?;
    ensure!(status == Some(1) && messages.contains("slower: times"), "{status:?}: {messages}");
    let output = run(&mut bench.command(&["compare", "b.fathom", "a.fathom", "--fail-on=slower", "--json"]))?;
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(value["results"][0]["verdict"] == "faster" && value["results"][0]["unit"] == "ms", "{value}");
    ensure!(value["results"][0]["higher_is_better"] == false, "{value}");
    // Another command under the same name is not compared without an explicit request.
    let (status, messages) = bench.messages(&["compare", "a.fathom", "other.fathom", "--fail-on=slower"])?;
    ensure!(
        status == Some(1) && messages.contains("their commands differ: A has \"x\" where B has \"y\""),
        "{messages}"
    );
    let (status, messages) =
        bench.messages(&["compare", "other.fathom", "a.fathom", "--other-commands", "--fail-on=slower"])?;
    ensure!(status == Some(0), "{status:?}: {messages}");
    // An older archive: log and tables have no direction, and lines neither number nor checksum.
    let log = bench.path("b.fathom/runs.jsonl");
    let text = fs::read_to_string(&log)?;
    let without_sum = |line: &str| line.rsplit_once(",\"n\":").map_or(line.into(), |(entry, _)| format!("{entry}}}\n"));
    let old = text
        .lines()
        .map(without_sum)
        .collect::<String>()
        .replace("\"better\":\"lower\"", "\"better\":null")
        .replace("\\\"better\\\":\\\"lower\\\"", "\\\"better\\\":null");
    ensure!(old != text, "the log has another form: {text}");
    fs::write(&log, old)?;
    fs::remove_dir_all(bench.path("b.fathom/tables"))?;
    let (status, messages) = bench.messages(&["compare", "a.fathom", "b.fathom"])?;
    ensure!(
        status == Some(1) && messages.contains("does not record the direction") && messages.contains("--better"),
        "{status:?}: {messages}"
    );
    let (status, messages) =
        bench.messages(&["compare", "a.fathom", "b.fathom", "--better=lower", "--fail-on=slower"])?;
    ensure!(status == Some(1) && messages.contains("slower: times"), "{status:?}: {messages}");
    Ok(())
}

/// Both reports are made; other tests check their content in a browser.
fn report_combines_two_benchmarks() -> Result<()> {
    let bench = Bench::new()?;
    for name in ["a.fathom", "b.fathom"] {
        bench.json(&["run", "fake.toml", "--blocks=3", "--json", "-o", name])?;
    }
    let report = |archives: &[&str]| {
        let mut command = Command::new(fathom());
        command.arg("report").args(archives).args(["-o", "page.html"]).current_dir(bench.directory.path());
        command
    };
    let data = || -> Result<Value> {
        let page = fs::read_to_string(bench.path("page.html"))?;
        let block =
            page.split_once("id=\"data\">").and_then(|(_, rest)| rest.split_once("</script>")).context("data")?;
        Ok(serde_json::from_str(block.0)?)
    };
    run(&mut report(&["a.fathom"]))?;
    ensure!(data()?["compared"].is_null(), "nothing stands beside it");
    run(&mut report(&["a.fathom", "b.fathom"]))?;
    let value = data()?;
    let results = value["compared"]["results"].as_array().context("compared")?;
    ensure!(results.len() == 2 && results.iter().all(|r| r["verdict"].is_string()), "{}", value["compared"]);
    ensure!(value["compared"]["differs"].is_array(), "{}", value["compared"]);
    let output = report(&["a.fathom", "b.fathom", "a.fathom"]).output()?;
    ensure!(
        !output.status.success() && String::from_utf8_lossy(&output.stderr).contains("bench history"),
        "{output:?}"
    );
    Ok(())
}

fn compared_within() -> Result<()> {
    let bench = Bench::new()?;
    bench.json(&["run", "fake.toml", "--blocks=5", "--json"])?;
    let value = bench.json(&["compare", "bench.fathom", "--by=duration=2000", "--json"])?;
    ensure!(
        value["results"][0]["verdict"] == "inconclusive",
        "2 of the 32 ways to swap five blocks are so extreme: {value}"
    );
    bench.json(&["run", "fake.toml", "--blocks=6", "--json"])?;
    let value = bench.json(&["compare", "bench.fathom", "--by=duration=2000", "--json"])?;
    let result = &value["results"][0];
    ensure!(value["by"] == "duration" && result["levels"] == serde_json::json!(["2000", "1000"]), "{value}");
    ensure!(result["verdict"] == "faster", "{value}");
    ensure!(result["ratio"].as_f64().is_some_and(|r| (r - 2.0).abs() < 0.01), "{value}");
    let (status, messages) = bench.messages(&["compare", "bench.fathom", "--by=speed"])?;
    ensure!(status == Some(2) && messages.contains("speed"), "{status:?}: {messages}");
    Ok(())
}

fn history_has_one_point_per_archive_and_finds_step() -> Result<()> {
    let bench = Bench::new()?;
    fs::create_dir(bench.path("all"))?;
    let measure = |name: &str| bench.json(&["run", "fake.toml", "--blocks=5", "--json", "-o", name]);
    measure("all/first.fathom")?;
    slow_program_down(&bench)?;
    measure("all/second.fathom")?;
    fs::write(bench.path("all/notes.txt"), "not an archive")?;
    let value = bench.json(&["history", "all", "--json"])?;
    let archives = value["archives"].as_array().context("archives")?;
    ensure!(archives.len() == 2 && archives.iter().all(|a| a["complete"] == true), "{value}");
    ensure!(archives[0]["archive"].as_str().is_some_and(|a| a.contains("first")), "the oldest comes first: {value}");
    let cells = value["cells"].as_array().context("cells")?;
    ensure!(cells.len() == 2, "{value}");
    for cell in cells {
        let points = cell["points"].as_array().context("points")?;
        ensure!(points.len() == 2 && points[1]["verdict"] == "slower" && points[0]["verdict"].is_null(), "{cell}");
    }
    let output = run(&mut bench.command(&["history", "all/second.fathom", "all/first.fathom"]))?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(text.contains("duration=1000") && text.contains("slower"), "{text}");
    let (status, messages) = bench.messages(&["history", "fake.toml"])?;
    ensure!(status == Some(1) && messages.contains("fake.toml"), "{status:?}: {messages}");
    Ok(())
}

fn shown_again() -> Result<()> {
    let bench = Bench::new()?;
    let then = bench.json(&["run", "fake.toml", "--blocks=5", "--json"])?;
    let now = bench.json(&["show", "bench.fathom", "--json"])?;
    ensure!(then["results"] == now["results"] && then["environment"] == now["environment"], "{now}");
    let text = String::from_utf8(run(&mut bench.command(&["show", "bench.fathom"]))?.stdout)?;
    ensure!(text.contains("duration=2000") && text.contains("row/s") && text.contains("5 processes"), "{text}");
    let csv = String::from_utf8(run(&mut bench.command(&["show", "bench.fathom", "--csv=-"]))?.stdout)?;
    ensure!(csv.lines().count() == 3 && csv.starts_with("workload,name,"), "{csv}");
    let page = String::from_utf8(run(&mut bench.command(&["show", "bench.fathom", "--markdown=-"]))?.stdout)?;
    ensure!(page.contains("| duration=1000 |"), "{page}");
    Ok(())
}

fn tighter_precision_plans_more_replicates() -> Result<()> {
    let bench = Bench::new()?;
    // A tenth more in each block: rates from 1000 to 1400 parts, the middle one 1200.
    let spread = FAKE_DESIGN.replacen("$longer$1.", "$longer$((1000 + 100 * {block_number})).", 1);
    ensure!(spread != FAKE_DESIGN, "the script has another form");
    fs::write(bench.path("fake.toml"), spread)?;
    bench.json(&["run", "fake.toml", "--blocks=5", "--json"])?;
    let needed = |precision: &str| -> Result<u64> {
        let value = bench.json(&["plan", "bench.fathom", "--json", precision])?;
        ensure!(value["version"] == 1 && value["results"].as_array().is_some_and(|r| r.len() == 2), "{value}");
        value["results"][0]["for_precision"].as_u64().with_context(|| format!("{value}"))
    };
    // Their range is 17 % in both directions: the smallest number of processes with an interval suffices for 20 %.
    let (wide, narrow) = (needed("--precision=20")?, needed("--precision=2")?);
    ensure!(wide == 5 && narrow > 20, "{wide} {narrow}");
    let text = String::from_utf8(run(&mut bench.command(&["plan", "bench.fathom"]))?.stdout)?;
    ensure!(text.contains("duration=2000") && text.contains("a difference of 3.00 %"), "{text}");
    Ok(())
}

/// Two cells that print 10 and 5, and a baseline that `needs`.
fn comparison_design(name: &str, needs: &str) -> String {
    format!(
        r#"
name = "{name}"
question = "?"
metric = "x"
better = "higher"
baseline = "one"
blocks = 3
seed = 1
[[cell]]
name = "one"
needs = ["{needs}"]
argv = ["/bin/sh", "-c", 'echo "{{\"metric\":\"x\",\"v\":10}}"']
[[cell]]
name = "half"
argv = ["/bin/sh", "-c", 'echo "{{\"metric\":\"x\",\"v\":5}}"']
"#
    )
}

fn without_baseline() -> Result<()> {
    let bench = Bench::new()?;
    fs::write(bench.path("first.toml"), comparison_design("first", "no-such-program"))?;
    fs::write(bench.path("second.toml"), comparison_design("second", "sh"))?;
    let output = bench.command(&["run", "first.toml", "second.toml", "--json"]).output()?;
    let messages = String::from_utf8_lossy(&output.stderr);
    let reason = "one is missing: no-such-program is not installed";
    ensure!(
        output.status.code() == Some(1) && messages.contains("first was not compared") && messages.contains(reason),
        "{messages}"
    );
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(value["complete"] == true, "{value}");
    let comparisons = value["comparisons"].as_array().context("comparisons")?;
    let cell = |design: usize, cell: usize| &comparisons[design]["results"][cell];
    ensure!(cell(0, 0)["absent"] == "no-such-program is not installed" && cell(0, 1)["processes"] == 0, "{value}");
    ensure!(cell(0, 1)["absent"].as_str().is_some_and(|why| why.contains("nothing to compare with")), "{value}");
    // Three pairs have a ratio, and too few for an interval.
    ensure!(cell(1, 1)["ratio"]["estimate"] == 0.5 && cell(1, 1)["ratio"]["ci95"].is_null(), "{value}");
    let text = String::from_utf8(run(&mut bench.command(&["show", "bench.fathom"]))?.stdout)?;
    // The page's lines are wrapped.
    let unfolded = text.split_whitespace().collect::<Vec<_>>().join(" ");
    ensure!(unfolded.contains(reason) && text.contains("| 0.500 |") && text.contains("too few pairs"), "{text}");
    let again = bench.json(&["show", "bench.fathom", "--json"])?;
    ensure!(again["comparisons"] == value["comparisons"], "{again}");
    Ok(())
}

fn selftest_of_a_load() -> Result<()> {
    let bench = Bench::new()?;
    let value = bench.json(&["selftest", "--comparisons=2", "--blocks=5", "--json"])?;
    ensure!(value["workload"] == "spin" && value["comparisons"] == 2 && value["blocks"] == 5, "{value}");
    // Its findings depend on the machine; that the shares match the counts does not.
    let share = |count: &str, rate: &str| Some(value[count].as_f64()? / 2.0 == value[rate].as_f64()?);
    ensure!(share("alarms", "rate") == Some(true) && share("misses", "miss_rate") == Some(true), "{value}");
    ensure!(value["noise"].as_f64().is_some_and(|noise| noise > 0.0 && noise.is_finite()), "{value}");
    Ok(())
}

fn killed_load() -> Result<()> {
    let bench = Bench::new()?;
    fs::create_dir(bench.path("disk"))?;
    let words =
        ["run", "sqlite", "-p", "op=insert", "-p", "journal_mode=wal,delete", "-p", "rows=50", "-p", "iterations=2"];
    let more = ["--blocks=6", "--seed=4", "--dir=disk"];
    let mut child = bench.command(&[&words[..], &more].concat()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let until = Instant::now() + Duration::from_secs(300);
    while bench.order("bench.fathom").map_or(0, |o| o.len()) < 4 {
        ensure!(Instant::now() < until, "no replicates appear");
        std::thread::sleep(Duration::from_millis(2));
    }
    child.kill()?;
    child.wait()?;
    // The measurements are available although tables were never built.
    let before = bench.order("bench.fathom")?.len();
    let value = bench.json(&["show", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == false && value["results"].as_array().is_some_and(|r| r.len() == 2), "{value}");
    let value = bench.json(&["run", "--resume", "bench.fathom", "--json"])?;
    ensure!(value["complete"] == true && value["designs"][0]["seed"] == 4, "{value}");
    for result in value["results"].as_array().context("results")? {
        ensure!(measured_processes(result)? == 6.0 && result["failed"] == 0 && result["verified"] == true, "{result}");
    }
    // A warm-up block and six more, of two cells, each once.
    let order = bench.order("bench.fathom")?;
    let runs: std::collections::BTreeSet<_> = order.iter().map(|[cell, block, _]| (cell, block)).collect();
    ensure!(before < 14 && order.len() == 14 && runs.len() == 14, "{order:?}");
    Ok(())
}

fn without_root() -> Result<()> {
    let bench = Bench::new()?;
    // The user nobody must have the same path to the binary and to the directory as root.
    fs::copy(fathom(), bench.path("fathom"))?;
    let nobody = 65534;
    for path in [bench.directory.path().to_path_buf(), bench.path("disk")] {
        fs::create_dir_all(&path)?;
        std::os::unix::fs::chown(&path, Some(nobody), Some(nobody))?;
    }
    let as_nobody = |words: &[&str]| {
        let mut command = Command::new(bench.path("fathom"));
        command
            .args(["bench", "run", "random", "--quick", "--blocks=2", "--no-wait", "--json", "--dir=disk"])
            .args(words);
        command.args(["-p", "file_size=8M", "-p", "block=4K", "-p", "threads=1", "-p", "iterations=2"]);
        command
            .current_dir(bench.directory.path())
            .uid(nobody)
            .gid(nobody)
            .env("HOME", bench.directory.path())
            .stdin(Stdio::null());
        command
    };
    let output = run(&mut as_nobody(&[]))?;
    let value: Value = serde_json::from_slice(&output.stdout)?;
    let result = &value["results"][0];
    ensure!(
        result["parameters"]["op"] == "read-cold" && result["processes"] == 2 && result["verified"] == true,
        "{value}"
    );
    ensure!(!result["marks"]["cache"].is_null(), "what the cache held is not told: {result}");
    let expected = "random: op=read-cold instead of op=read-dropped, which needs drop_caches";
    let marks = value["marks"].as_array().context("marks")?;
    ensure!(marks.iter().any(|m| m["name"] == "instead" && m["text"] == expected), "{value}");
    ensure!(String::from_utf8_lossy(&output.stderr).contains(expected), "it is not said while it runs");
    // Requesting it by name gives it, or the reason why not.
    let output = as_nobody(&["-p", "op=read-dropped", "-o", "asked.fathom"]).output()?;
    let value: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(output.status.code() == Some(1), "{value}");
    ensure!(value["results"][0]["absent"].as_str().is_some_and(|why| why.contains("root")), "{value}");
    Ok(())
}

fn list_shows_every_parameter() -> Result<()> {
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
