//! What happens, as JSON lines (docs/reference/json.md).

use recorder::watch::account::{Culprit, Spent};
use recorder::watch::matrix::{Delay, Matrix};
use recorder::watch::{Happening, SlowOperation, WatchResult};
use serde::Serialize;
use serde_json::json;

/// Version of the lines.
const JSON_VERSION: u32 = 1;

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

pub fn json_line(happening: &Happening) -> Option<String> {
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
        Happening::NotKept(count) => json!({ "version": JSON_VERSION, "type": "not_kept", "operations": count }),
        Happening::Limit(_, limit_ns) => json!({ "version": JSON_VERSION, "type": "limit", "limit_ns": limit_ns }),
    };
    Some(value.to_string())
}

pub fn json_summary(done: &WatchResult, matrix: &Matrix) -> String {
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
