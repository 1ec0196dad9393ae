//! `fathom watch`: turns the command line into a request, and prints what happens.

use crate::{args, notices, progress};
use anyhow::{Context as _, Result};
use model::counted;
use model::text::ShownPath as _;
use recorder::watch::account::{Culprit, Spent};
use recorder::watch::matrix::{Delay, Matrix};
use recorder::watch::{Counts, Happening, Incident, LimitChange, Rules, SlowOperation, WatchResult, utc};
use recorder::{Error, Request, Target};
use serde::Serialize;
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Version of the JSON lines.
const JSON_VERSION: u32 = 1;

pub fn run(args: &args::Watch) -> Result<ExitCode> {
    let context = progress::context(true);
    progress::end_on_signal(&context);
    let rules = Rules {
        slow: args.slow,
        buffer: args.buffer,
        keep: args.keep,
        interval: args.interval,
        keep_now: std::sync::Arc::default(),
    };
    archive::interrupt::set_on_request(rules.keep_now.clone());
    let request = request(args)?;
    let cancel = context.cancel_flag();
    let mut matrix = Matrix::default();
    let write_metrics = |counts: &Counts, matrix: &Matrix| {
        if let Some(file) = &args.prometheus
            && let Err(error) = archive::atomic_file::write_text(file, &prometheus(counts, matrix))
        {
            notices::print_notice(&error);
        }
    };
    let mut happened = |happening: Happening| {
        if let Happening::Incident(incident, counts) = &happening {
            incident.operations.iter().for_each(|operation| matrix.add(operation));
            write_metrics(counts, &matrix);
        }
        let line = if args.json { json_line(&happening) } else { text_line(args, &happening) };
        if let Some(line) = line {
            // Line by line, for a reader at the other end of a pipe. If that is gone, nobody watches.
            let mut out = std::io::stdout().lock();
            if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
                cancel.store(true, Ordering::Relaxed);
            }
        }
        if let (Happening::Incident(incident, _), false) = (&happening, args.as_root)
            && let Err(error) = recorder::output::give_to_caller(&incident.archive)
        {
            notices::print_notice(&error);
        }
    };
    let done = recorder::watch::watch(&request, &rules, &context, &notices::print_recorder_notice, &mut happened);
    let done = match done {
        Ok(done) => done,
        Err(Error::Launch(error)) => {
            let code = error.exit_code();
            eprintln!("fathom: {:#}", anyhow::Error::new(error));
            return Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)));
        }
        Err(error) => return Err(error.into()),
    };
    write_metrics(&done.counts, &matrix);
    if args.json {
        // Nobody may be there to read it.
        let _ = writeln!(std::io::stdout(), "{}", json_summary(&done, &matrix));
    } else {
        if args.who {
            print!("{}", text_matrix(&matrix));
        }
        eprintln!("{}", text_summary(&done));
    }
    Ok(ExitCode::from(u8::try_from(done.status).unwrap_or(1)))
}

fn request(args: &args::Watch) -> Result<Request> {
    let target = if !args.command.is_empty() {
        Target::Command(args.command.clone())
    } else if !args.pid.is_empty() {
        Target::Pids(args.pid.clone())
    } else if let Some(name) = &args.comm {
        Target::Comm(name.clone())
    } else if let Some(cgroup) = &args.cgroup {
        Target::Pids(processes_of(cgroup)?)
    } else {
        Target::All
    };
    let program = args.command.first().map(|word| word.as_os_str());
    let functions = args.operations.iter().flat_map(|operation| match operation.functions(program) {
        Ok(found) => found,
        Err(why) => args::usage_error(&why.to_string()),
    });
    Ok(Request {
        also_all: target == Target::All,
        duration: args.duration,
        functions: functions.collect(),
        keep_sql: args.keep_sql,
        as_root: args.as_root,
        probes: args.probes,
        stacks: false,
        ..Request::new(args.output.clone(), target)
    })
}

/// Returns the processes in a cgroup and in those below it.
fn processes_of(cgroup: &Path) -> Result<Vec<u32>> {
    // Where version 1 is in use beside version 2, this is mounted below it.
    let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
    let below = |root: &Path| root.join(cgroup.strip_prefix("/").unwrap_or(cgroup));
    let is_cgroup = |directory: &PathBuf| directory.join("cgroup.procs").is_file();
    let whole = cgroup.starts_with(roots[0]).then(|| cgroup.to_path_buf());
    let directory = whole.or_else(|| roots.map(below).into_iter().find(is_cgroup)).unwrap_or_else(|| below(roots[0]));
    let (mut found, mut directories) = (Vec::new(), vec![directory.clone()]);
    while let Some(directory) = directories.pop() {
        let file = directory.join("cgroup.procs");
        let text = std::fs::read_to_string(&file).with_context(|| format!("--cgroup: cannot read {}", file.shown()))?;
        found.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        let below = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        directories.extend(below.map(|entry| entry.path()).filter(is_cgroup));
    }
    if found.is_empty() {
        args::usage_error(&format!("--cgroup: no process is in {}", directory.shown()));
    }
    Ok(found)
}

fn text_line(args: &args::Watch, happening: &Happening) -> Option<String> {
    Some(match happening {
        Happening::Begun => {
            eprintln!("fathom: watching for operations of {} and more (Ctrl-C to stop)", args.slow);
            return None;
        }
        Happening::Incident(incident, _) => incident_text(incident),
        Happening::Failed(error) => {
            notices::print_notice(&format!("an incident was not kept: {}", model::text::error_chain(error)));
            return None;
        }
        Happening::NotKept(count) => format!("{} more like it, not kept", counted_slow(*count)),
        Happening::Limit(change, limit_ns) => {
            let now = limit_ns.map_or_else(|| "not known yet".into(), ms);
            match change {
                LimitChange::Raised(_) => format!("too many slow operations: the limit is now {now}"),
                LimitChange::Lowered(_) => format!("fewer slow operations: the limit is now {now}"),
            }
        }
    })
}

fn counted_slow(count: u64) -> String {
    counted(usize::try_from(count).unwrap_or(usize::MAX), "slow operation")
}

fn ms(ns: u64) -> String {
    format!("{:.1} ms", ns as f64 / 1e6)
}

fn incident_text(incident: &Incident) -> String {
    let at = utc(incident.end_unix_ns / 1_000_000_000);
    let what = match incident.operations.split_first() {
        None => format!("requested: {}", ms(incident.window_ns.1 - incident.window_ns.0)),
        Some((worst, others)) => {
            let more = if others.is_empty() { String::new() } else { format!("; {} more", others.len()) };
            format!("{}{more}", operation_text(worst))
        }
    };
    format!("{at} {what}  {}", incident.archive.shown())
}

fn operation_text(operation: &SlowOperation) -> String {
    let name = analysis::text::shown(operation.shape.as_deref().unwrap_or("a call"));
    let process = operation.process.as_deref().map(analysis::text::shown).unwrap_or_default();
    let largest = operation.account.iter().max_by(|a, b| a.1.total_cmp(b.1));
    let cause = largest.map_or_else(
        || "cause unknown".into(),
        |((spent, culprit), ns)| format!("{} {}", ms(*ns as u64), cause_text(operation, spent, *culprit)),
    );
    let (tgid, duration) = (operation.tgid, ms(operation.end_ns - operation.start_ns));
    format!("{name} of {process} ({tgid}): {duration}, of which {cause}")
}

fn cause_text(operation: &SlowOperation, spent: &Spent, culprit: Culprit) -> String {
    let of_disk = spent.disk().map_or_else(String::new, |disk| match operation.disks.get(&disk) {
        Some(name) => format!(" of {}", analysis::text::shown(name)),
        None => format!(" of {}:{}", disk >> 20, disk & 0xf_ffff),
    });
    let whom = match culprit {
        Culprit::Own => String::new(),
        Culprit::Process(tgid) => match operation.culprits.get(&tgid) {
            Some(name) => format!(" for {} ({tgid})", analysis::text::shown(name)),
            None => format!(" for process {tgid}"),
        },
        Culprit::Unknown => " for unknown".into(),
    };
    format!("{}{of_disk}{whom}", spent.name())
}

fn text_summary(done: &WatchResult) -> String {
    let counts = done.counts;
    let share = |ns: u64| 100.0 * ns as f64 / (done.duration_ns as f64).max(1.0);
    let probes = done.probes_ns.map_or_else(|| "not measured".into(), |ns| format!("{:.2} %", share(ns)));
    format!(
        "fathom: {} seen: {} kept in {}, {} below the limit, {} not kept\nfathom: {} recorded, {} lost; CPU of a core: itself {:.2} %, \
         its probes {probes}; buffer at most {:.1} MiB",
        counted(counts.seen as usize, "operation"),
        counts.kept,
        counted(done.incidents as usize, "incident"),
        counts.below,
        counts.shed(),
        counted(done.records as usize, "event"),
        done.lost,
        share(done.cpu_ns),
        done.held_bytes as f64 / f64::from(1 << 20)
    )
}

/// Number of rows that are printed; the JSON has all.
const PRINTED_ROWS_MAX: usize = 20;

fn text_matrix(matrix: &Matrix) -> String {
    let rows = matrix.rows();
    let share = |ns: f64| 100.0 * ns / (matrix.total_ns as f64).max(1.0);
    let mut text = format!("{:<16} {:<16} {:<28} {:>12} {:>7}\n", "victim", "delayed by", "in", "ms", "share");
    for (delay, ns) in rows.iter().take(PRINTED_ROWS_MAX) {
        let place =
            if delay.disk.is_empty() { delay.spent.into() } else { format!("{} of {}", delay.spent, delay.disk) };
        let [victim, culprit, place] = [&delay.victim, &delay.culprit, &place].map(|name| analysis::text::shown(name));
        text += &format!("{victim:<16} {culprit:<16} {place:<28} {:>12.1} {:>5.1} %\n", ns / 1e6, share(*ns));
    }
    let others: f64 = rows.iter().skip(PRINTED_ROWS_MAX).map(|(_, ns)| ns).sum();
    if others > 0.0 {
        let count = counted(rows.len() - PRINTED_ROWS_MAX, "other row");
        text += &format!("{count:<62} {:>12.1} {:>5.1} %\n", others / 1e6, share(others));
    }
    let total = counted(usize::try_from(matrix.operations).unwrap_or(usize::MAX), "slow operation");
    text + &format!("{total:<62} {:>12.1}\n", matrix.total_ns as f64 / 1e6)
}

/// Prometheus's text format, version 0.0.4: of counters that only grow while the recorder runs.
fn prometheus(counts: &Counts, matrix: &Matrix) -> String {
    let label = |text: &str| text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    let mut text = String::from(
        "# HELP fathom_watch_operations_total Operations seen, by what became of them.\n\
         # TYPE fathom_watch_operations_total counter\n",
    );
    for (result, count) in [("kept", counts.kept), ("below", counts.below), ("shed", counts.shed())] {
        text += &format!("fathom_watch_operations_total{{result=\"{result}\"}} {count}\n");
    }
    text += "# HELP fathom_watch_delay_seconds_total Time of the slow operations that were kept.\n\
             # TYPE fathom_watch_delay_seconds_total counter\n";
    for (Delay { victim, culprit, spent, disk }, ns) in matrix.rows() {
        let [victim, culprit, disk] = [victim, culprit, disk].map(|name| label(&name));
        text += &format!(
            "fathom_watch_delay_seconds_total{{victim=\"{victim}\",culprit=\"{culprit}\",spent=\"{spent}\",disk=\"{disk}\"}} {:.9}\n",
            ns / 1e9
        );
    }
    text
}

/// A part of a slow operation's time.
#[derive(Debug, Serialize)]
struct Part<'a> {
    spent: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk: Option<&'a str>,
    /// `own`, `process` or `unknown`.
    culprit: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tgid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'a str>,
    ns: f64,
}

fn parts(operation: &SlowOperation) -> Vec<Part<'_>> {
    let part = |((spent, culprit), ns): (&(Spent, Culprit), &f64)| {
        let (kind, tgid) = match culprit {
            Culprit::Own => ("own", None),
            Culprit::Process(tgid) => ("process", Some(*tgid)),
            Culprit::Unknown => ("unknown", None),
        };
        (spent.name(), spent.disk(), kind, tgid, *ns)
    };
    let mut parts: Vec<_> = operation.account.iter().map(part).collect();
    parts.sort_by(|a, b| b.4.total_cmp(&a.4));
    let name = |tgid: Option<u32>| tgid.and_then(|tgid| operation.culprits.get(&tgid)).map(String::as_str);
    let disk = |disk: Option<u32>| disk.and_then(|disk| operation.disks.get(&disk)).map(String::as_str);
    let row = |(spent, dev, culprit, tgid, ns)| Part { spent, disk: disk(dev), culprit, tgid, process: name(tgid), ns };
    parts.into_iter().map(row).collect()
}

fn json_line(happening: &Happening) -> Option<String> {
    let value = match happening {
        Happening::Begun => json!({ "version": JSON_VERSION, "type": "begun" }),
        Happening::Incident(incident, _) => {
            let operation = |one: &SlowOperation| {
                json!({
                    "shape": one.shape, "process": one.process, "tgid": one.tgid, "tid": one.tid,
                    "start_ns": one.start_ns, "end_ns": one.end_ns, "spent": parts(one),
                })
            };
            let trigger = if incident.operations.is_empty() { "request" } else { "slow" };
            json!({
                "version": JSON_VERSION, "type": "incident", "trigger": trigger, "archive": incident.archive,
                "bytes": incident.bytes, "events": incident.events, "start_ns": incident.window_ns.0,
                "end_ns": incident.window_ns.1, "end_unix_ns": incident.end_unix_ns, "removed": incident.removed,
                "operations": incident.operations.iter().map(operation).collect::<Vec<_>>(),
            })
        }
        Happening::Failed(error) => {
            json!({ "version": JSON_VERSION, "type": "failed", "why": model::text::error_chain(error) })
        }
        Happening::NotKept(count) => json!({ "version": JSON_VERSION, "type": "not kept", "operations": count }),
        Happening::Limit(_, limit_ns) => json!({ "version": JSON_VERSION, "type": "limit", "limit_ns": limit_ns }),
    };
    Some(value.to_string())
}

fn json_summary(done: &WatchResult, matrix: &Matrix) -> String {
    let counts = done.counts;
    let row = |(delay, ns): (Delay, f64)| {
        let Delay { victim, culprit, spent, disk } = delay;
        json!({ "victim": victim, "culprit": culprit, "spent": spent, "disk": disk, "ns": ns })
    };
    let who: Vec<_> = matrix.rows().into_iter().map(row).collect();
    json!({
        "version": JSON_VERSION, "type": "summary", "incidents": done.incidents,
        "operations": {
            "seen": counts.seen, "kept": counts.kept, "below": counts.below,
            "shed": {
                "rate": counts.shed_rate, "raised_limit": counts.shed_raised, "buffer": counts.shed_buffer,
                "failed": counts.shed_failed,
            },
        },
        "events": done.records, "lost": done.lost, "duration_ns": done.duration_ns, "cpu_ns": done.cpu_ns,
        "probes_ns": done.probes_ns, "buffer_bytes": done.held_bytes,
        "who": { "operations": matrix.operations, "ns": matrix.total_ns, "rows": who },
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_the_metrics() {
        let mut matrix = Matrix::default();
        matrix.add(&SlowOperation {
            tgid: 1,
            tid: 1,
            start_ns: 0,
            end_ns: 1_500_000_000,
            process: Some("a\"b\\c\nd".into()),
            shape: None,
            account: Default::default(),
            culprits: Default::default(),
            disks: Default::default(),
        });
        let text = prometheus(&Counts { seen: 3, below: 2, kept: 1, ..Counts::default() }, &matrix);
        let samples: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(samples.len(), 4, "{text}");
        let expected = "{victim=\"a\\\"b\\\\c\\nd\",culprit=\"unknown\",spent=\"other\",disk=\"\"} 1.500000000";
        assert!(samples[3].ends_with(expected), "{text}");
    }
}
