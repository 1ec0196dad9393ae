//! Archives of version 0.1 through the program: show, report, export, compare and reindex give the same results as when
//! they were made (for how they were made, see `tests/archives/README.md`).

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, run, run_suite};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tempfile::TempDir;

fn main() -> ExitCode {
    let cases: Vec<Case> = vec![
        ("old_recordings_show_statements", Ok(()), old_recordings_show_statements),
        ("relinked_recordings_keep_counts", Ok(()), linked_again),
        ("old_benchmarks_show_scores", Ok(()), old_benchmarks_show_scores),
        ("benchmark_without_log_shows_no_scores", Ok(()), without_a_log),
        ("old_network_runs_show_rate_and_limit", Ok(()), network_runs),
        ("compare_reports_slower_candidate", Ok(()), compare_reports_slower_candidate),
        ("report_renders_every_archive", Ok(()), report_renders_every_archive),
        ("export_keeps_every_row_of_every_table", Ok(()), export_keeps_every_row_of_every_table),
        ("recordings_export_to_perfetto_and_text", Ok(()), other_formats),
        (
            "output_dash_is_stdout_for_files_and_refused_for_directories",
            Ok(()),
            output_dash_is_stdout_for_files_and_refused_for_directories,
        ),
        ("path_with_line_break_stays_one_line_of_message", Ok(()), line_break),
        ("samples_of_the_manual_have_the_form_of_show", Ok(()), samples_of_the_manual_have_the_form_of_show),
    ];
    run_suite(cases)
}

/// The content of a recording: a statement, its number of executions, system calls, fsyncs, requests and flushes per execution; and
/// the number of all device commands, and of those without a causing operation or process.
struct RecordedArchive {
    name: &'static str,
    statement: &'static str,
    times: u64,
    per_time: [(&'static str, f64); 4],
    commands: [(&'static str, f64); 2],
}

const RECORDED_ARCHIVES: [RecordedArchive; 3] = [
    RecordedArchive {
        name: "v1-linux-6.1-virtio",
        statement: "INSERT INTO t VALUES (?, ?)",
        times: 25,
        per_time: [("syscalls", 18.0), ("fsyncs", 4.0), ("requests", 7.870_588), ("flushes", 5.44)],
        commands: [("total", 354.0), ("unattributed", 0.0)],
    },
    RecordedArchive {
        name: "v2-linux-6.18-virtio",
        statement: "insert into t values (?)",
        times: 2,
        per_time: [("syscalls", 18.0), ("fsyncs", 4.0), ("requests", 7.5), ("flushes", 4.0)],
        commands: [("total", 201.0), ("unattributed", 34.0)],
    },
    RecordedArchive {
        name: "v3-linux-6.18-virtio",
        statement: "insert into t values (?)",
        times: 2,
        per_time: [("syscalls", 18.0), ("fsyncs", 4.0), ("requests", 7.5), ("flushes", 4.0)],
        commands: [("total", 38.0), ("unattributed", 0.0)],
    },
];

fn old_recordings_show_statements() -> Result<()> {
    for recorded in &RECORDED_ARCHIVES {
        recorded.holds(KeptArchive::copy(recorded.name)?.show_json()?)?;
    }
    Ok(())
}

fn linked_again() -> Result<()> {
    for recorded in &RECORDED_ARCHIVES {
        let kept = KeptArchive::copy(recorded.name)?;
        std::fs::remove_dir_all(kept.path.join("tables"))?;
        run(Command::new(fathom()).arg("link").arg(&kept.path))?;
        recorded.holds(kept.show_json()?)?;
    }
    Ok(())
}

impl RecordedArchive {
    fn holds(&self, show_json: Value) -> Result<()> {
        let operations = show_json["operations"].as_array().context("operations")?;
        let found = operations.iter().find(|o| o["statement"] == self.statement);
        let operation = found.with_context(|| format!("{}: no {}", self.name, self.statement))?;
        ensure!(operation["count"] == self.times, "{}: {}", self.name, operation["count"]);
        for (what, expected) in self.per_time {
            check_near(self.name, what, &operation["per_operation"][what], expected)?;
        }
        for (what, expected) in self.commands {
            check_near(self.name, what, &show_json["device_commands"][what], expected)?;
        }
        ensure!(show_json["loss"]["events"] == 0, "{}: {}", self.name, show_json["loss"]);
        Ok(())
    }
}

fn old_benchmarks_show_scores() -> Result<()> {
    for (name, processes, rates) in [
        ("v2-bench", 2, [4_996_502.448, 2_499_500.100]),
        ("v3-bench", 6, [4_998_750.312, 2_499_437.627]),
        ("v3-bench-slower", 6, [454_522.728, 416_657.986]),
    ] {
        let show_json = KeptArchive::copy(name)?.show_json()?;
        let results = show_json["results"].as_array().context("results")?;
        ensure!(results.len() == rates.len() && show_json["complete"] == true, "{name}: {show_json}");
        for (result, rate) in results.iter().zip(rates) {
            ensure!(result["processes"] == processes && result["verified"] == true, "{name}: {result}");
            ensure!(result["unit"] == "row/s", "{name}: {result}");
            check_near(name, "estimate", &result["estimate"], rate)?;
        }
    }
    Ok(())
}

/// Its tables name no design, so there is nothing to base a score on.
fn without_a_log() -> Result<()> {
    let kept = KeptArchive::copy("v1-bench")?;
    let show_json = kept.show_json()?;
    ensure!(show_json["results"].as_array().is_some_and(Vec::is_empty), "{show_json}");
    ensure!(show_json["environment"]["cpu.architecture"]["value"] == "x86_64", "{show_json}");
    ensure!(kept.rows()?["replicates"] == 17, "{:?}", kept.rows()?);
    Ok(())
}

fn network_runs() -> Result<()> {
    for (name, rate) in [("v2-net", 23_268_752_380.59), ("v3-net", 6_882_069_533.16)] {
        let show_json = KeptArchive::copy(name)?.show_json()?;
        let result = &show_json["results"][0];
        ensure!(result["unit"] == "bit/s" && result["processes"] == 1, "{name}: {result}");
        check_near(name, "estimate", &result["estimate"], rate)?;
        ensure!(show_json["limited_by"][0]["limits"][0]["cause"] == "CPU", "{name}: {}", show_json["limited_by"]);
    }
    Ok(())
}

fn compare_reports_slower_candidate() -> Result<()> {
    let (baseline, candidate) = (KeptArchive::copy("v3-bench")?, KeptArchive::copy("v3-bench-slower")?);
    let mut compare = Command::new(fathom());
    compare.args(["bench", "compare", "--json"]).arg(&baseline.path).arg(&candidate.path);
    let output: Value = serde_json::from_slice(&run(&mut compare)?.stdout)?;
    let results = output["results"].as_array().context("results")?;
    ensure!(results.len() == 2 && results.iter().all(|r| r["verdict"] == "slower"), "{output}");
    check_near("compare", "ratio", &results[0]["ratio"], 0.090_926_858)?;
    let mut history = Command::new(fathom());
    history.args(["bench", "history"]).arg(&baseline.path).arg(&candidate.path);
    let text = String::from_utf8(run(&mut history)?.stdout)?;
    ensure!(text.contains("454523") && text.contains("4998750"), "{text}");
    Ok(())
}

fn report_renders_every_archive() -> Result<()> {
    let alone: Vec<PathBuf> = archive_names()?;
    for (archives, holds) in alone.iter().map(|name| (vec![name.clone()], "")).chain([
        (vec!["v2-linux-6.18-virtio".into(), "v3-linux-6.18-virtio".into()], "insert into t values (?)"),
        (vec!["v3-bench".into(), "v3-bench-slower".into()], "duration=1000"),
        (vec!["v2-net".into(), "v3-net".into()], "net run"),
    ]) {
        let kept = archives.iter().map(KeptArchive::copy).collect::<Result<Vec<_>>>()?;
        let page = kept[0].directory.path().join("page.html");
        run(Command::new(fathom()).arg("report").args(kept.iter().map(|k| &k.path)).arg("-o").arg(&page))?;
        let text = std::fs::read_to_string(&page)?;
        ensure!(text.ends_with("</html>\n") && text.contains(holds), "{archives:?}: {} bytes", text.len());
    }
    Ok(())
}

fn export_keeps_every_row_of_every_table() -> Result<()> {
    for name in archive_names()? {
        let kept = KeptArchive::copy(&name)?;
        let to = kept.directory.path().join("out");
        for (flag, extension) in [("--csv", "csv"), ("--parquet", "parquet")] {
            let directory = to.join(extension);
            std::fs::create_dir_all(&to)?;
            run(Command::new(fathom()).args(["export", flag]).arg(&kept.path).arg("-o").arg(&directory))?;
            for (table, rows) in kept.rows()? {
                let file = directory.join(format!("{table}.{extension}"));
                let bytes = std::fs::read(&file).with_context(|| format!("{}", file.display()))?;
                // The first line has the column names.
                let whole = match extension {
                    "csv" => count_rows(&bytes) == rows + 1,
                    _ => bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"),
                };
                ensure!(whole, "{}: {table} has {rows} rows", name.display());
            }
        }
    }
    Ok(())
}

fn other_formats() -> Result<()> {
    for recorded in &RECORDED_ARCHIVES {
        let kept = KeptArchive::copy(recorded.name)?;
        let trace = kept.directory.path().join("trace.pftrace");
        run(Command::new(fathom()).args(["export", "--perfetto"]).arg(&kept.path).arg("-o").arg(&trace))?;
        let bytes = std::fs::read(&trace)?;
        let statement = recorded.statement.as_bytes();
        ensure!(bytes.windows(statement.len()).any(|w| w == statement), "{}: {} bytes", recorded.name, bytes.len());
        let mut events = Command::new(fathom());
        events.args(["export", "--events", "-o", "-"]).arg(&kept.path);
        ensure!(count_rows(&run(&mut events)?.stdout) > 400, "{}", recorded.name);
    }
    Ok(())
}

/// A single file goes to standard output byte for byte, and nothing else does; no file is named `-`.
fn output_dash_is_stdout_for_files_and_refused_for_directories() -> Result<()> {
    let (trace, bench) = (KeptArchive::copy(RECORDED_ARCHIVES[1].name)?, KeptArchive::copy("v3-bench")?);
    let directory = tempfile::tempdir()?;
    let [recording, benchmark] = [&trace, &bench].map(|kept| kept.path.to_string_lossy().into_owned());
    // Tables are built once.
    trace.show_json()?;
    let fathom_here = |line: &[&str]| {
        let mut command = Command::new(fathom());
        command.args(line).current_dir(directory.path()).output()
    };
    for line in [
        &["report", &recording] as &[&str],
        &["report", &benchmark],
        &["export", "--perfetto", &recording],
        &["export", "--events", &recording],
        &["diff", &recording, &recording],
        &["papers", "000/11", "--archive", &recording],
    ] {
        let of = |place: &str| -> Result<Vec<u8>> {
            let done = fathom_here(&[line, &["-o", place]].concat())?;
            ensure!(done.status.success(), "{line:?}: {}", String::from_utf8_lossy(&done.stderr));
            Ok(done.stdout)
        };
        of("file")?;
        let (file, printed) = (std::fs::read(directory.path().join("file"))?, of("-")?);
        ensure!(!file.is_empty() && file == printed, "{line:?}: {} and {} bytes", file.len(), printed.len());
    }
    for line in [
        &["export", "--csv", &recording] as &[&str],
        &["export", "--parquet", &recording],
        &["import", "/etc/hostname"],
        &["bench", "run", "spin"],
        &["bench", "ab"],
        &["net", "run", "127.0.0.1:1"],
        &["lab", "run", "nvme"],
        &["record", "--all"],
    ] {
        let done = fathom_here(&[line, &["-o", "-"]].concat())?;
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(done.status.code() == Some(2) && said.contains("is a directory"), "{line:?}: {}: {said}", done.status);
    }
    let both = fathom_here(&["diff", &recording, &recording, "--json", "-o", "-"])?;
    ensure!(both.status.code() == Some(2), "{}", both.status);
    ensure!(!directory.path().join("-").exists());
    Ok(())
}

/// An untrusted name cannot forge a message.
fn line_break() -> Result<()> {
    let kept = KeptArchive::copy(RECORDED_ARCHIVES[1].name)?;
    let name = "a\nfathom: all is well\u{1b}[2J.fathom";
    std::fs::rename(&kept.path, kept.directory.path().join(name))?;
    let beside = |ending: &str| format!("{name}.{ending}");
    let quoted = format!("'{name}'");
    let (page, trace, tables) = (beside("html"), beside("pftrace"), beside("csv"));
    for (line, status) in [
        (vec!["show", name], 0),
        (vec!["report", name, "-o", &page], 0),
        (vec!["export", "--perfetto", name, "-o", &trace], 0),
        (vec!["export", "--csv", name, "-o", &tables], 0),
        (vec!["reindex", name], 0),
        (vec!["bench", "show", name], 1),
        (vec!["show", &tables], 1),
        (vec!["whatif", name, "--without", "flush"], 0),
        (vec!["import", name], 1),
        (vec!["diff", name, &page], 1),
        (vec!["check", name], 1),
        (vec!["pool", "forget", "--store", name], 1),
        (vec!["pool", "keygen", &page], 1),
        (vec!["bench", "ab", "--", &quoted, "true"], 2),
    ] {
        let done = Command::new(fathom()).args(&line).current_dir(kept.directory.path()).output()?;
        let said = [done.stdout, done.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        ensure!(done.status.code() == Some(status), "{line:?}: {}: {said}", done.status);
        ensure!(!said.lines().any(|line| line.starts_with("fathom: all is well")), "{line:?}: {said}");
        ensure!(!said.contains('\u{1b}'), "{line:?}: {said}");
    }
    Ok(())
}

/// A copy of an archive, since opening an archive may write to it.
struct KeptArchive {
    directory: TempDir,
    path: PathBuf,
}

impl KeptArchive {
    fn copy(name: impl AsRef<Path>) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let path = directory.path().join(name.as_ref());
        run(Command::new("cp").arg("-r").arg(archives_directory().join(name.as_ref())).arg(&path))?;
        Ok(Self { directory, path })
    }

    fn show_json(&self) -> Result<Value> {
        let output = run(Command::new(fathom()).args(["show", "--json"]).arg(&self.path))?;
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// The rows of each table, from the index.
    fn rows(&self) -> Result<BTreeMap<String, u64>> {
        let index: Value = serde_json::from_slice(&std::fs::read(self.path.join("tables/index.json"))?)?;
        Ok(serde_json::from_value(index["rows"].clone())?)
    }
}

fn archives_directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("archives")
}

fn archive_names() -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(archives_directory())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            names.push(PathBuf::from(entry.file_name()));
        }
    }
    names.sort();
    ensure!(names.len() >= 9, "{names:?}");
    Ok(names)
}

/// Line ends outside quotes.
fn count_rows(text: &[u8]) -> u64 {
    let mut quoted = false;
    let mut ends = 0;
    for byte in text {
        quoted ^= *byte == b'"';
        ends += u64::from(*byte == b'\n' && !quoted);
    }
    ends
}

fn check_near(archive: &str, what: &str, found: &Value, expected: f64) -> Result<()> {
    let found = found.as_f64().with_context(|| format!("{archive}: {what} is {found}"))?;
    ensure!((found - expected).abs() <= expected.abs() * 1e-6, "{archive}: {what} is {found}, not {expected}");
    Ok(())
}

/// The forms of a text's lines by kind, with numbers and units removed.
fn line_forms(text: &str) -> BTreeMap<&'static str, BTreeSet<String>> {
    const UNIT_NAMES: [&str; 8] = ["ns", "us", "ms", "s", "B", "KiB", "MiB", "GiB"];
    let mut found: BTreeMap<&'static str, BTreeSet<String>> = BTreeMap::new();
    for line in text.lines() {
        let words = line.split_whitespace().map(|word| word.trim_end_matches(','));
        let words = words.filter(|word| !UNIT_NAMES.contains(word));
        let form: Vec<_> = words.map(|w| if w.parse::<f64>().is_ok() { "#" } else { w }).collect();
        let form = form.join(" ").replace("# time:", "# times:");
        let kinds = ["# times: median", "layer median", "per execution", "written: calls"];
        if let Some(kind) = kinds.into_iter().find(|kind| form.starts_with(kind)) {
            found.entry(kind).or_default().insert(form);
        }
    }
    found
}

/// If lines of `show` in README and the guide have another form, they were made by another version.
fn samples_of_the_manual_have_the_form_of_show() -> Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let directory = tempfile::tempdir()?;
    let archive = directory.path().join("sample.fathom");
    run(Command::new("cp").arg("-r").arg(root.join("crates/recorder/sample")).arg(&archive))?;
    let shown = run(Command::new(fathom()).arg("show").arg(&archive))?;
    let ours = line_forms(&String::from_utf8_lossy(&shown.stdout));
    ensure!(ours.len() == 4, "{ours:?}");
    for page in ["README.md", "docs/guide/first-recording.md"] {
        let theirs = line_forms(&std::fs::read_to_string(root.join(page))?);
        ensure!(theirs.len() == 4, "{page}: {theirs:?}");
        for (kind, forms) in theirs {
            ensure!(forms.is_subset(&ours[kind]), "{page}: {forms:?}, but `show` prints {:?}", ours[kind]);
        }
    }
    Ok(())
}
