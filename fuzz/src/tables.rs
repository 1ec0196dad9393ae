//! What is made of a recording's tables, whatever stands in them: an archive may come from anybody.
//!
//! An input is the executions of a recording, and changes of cells of its tables: `executions table row column value`, one a line.

use analysis::Rows;
use model::table::{Cause, Disk, File, Link, Operation, Shape, Slice, Span};
use model::{Confidence, Layer, Origin, Reason, Relation};
use verdicts::whatif::removal::NAMED_REMOVALS;
use verdicts::whatif::{self, PredictionRequest};
use verdicts::{diff, explain};

pub fn recording_seeds() -> Vec<Vec<u8>> {
    ["9\n", "40\n0 3 3 99\n1 2 1 18446744073709551615\n2 5 2 0\n3 1 0 7\n4 4 4 1\n", "7\n0 0 4 0\n0 0 5 1\n1 9 6 12\n"]
        .map(|text| text.as_bytes().to_vec())
        .into()
}

/// Executions of one statement, each of which writes, syncs and waits for a flush.
fn make_recording(executions: u64) -> Rows {
    let mut rows = Rows {
        shapes: vec![Shape { id: 1, kind: "statement".into(), text: "INSERT INTO t VALUES (?)".into() }],
        files: vec![
            File { id: 1, dev: 1, ino: 1, path: Some("/m/t.db".into()), start_ns: 0 },
            File { id: 2, dev: 1, ino: 2, path: Some("/m/t.db-wal".into()), start_ns: 0 },
        ],
        disks: vec![Disk { dev: 7 << 20, name: "loop0".into(), below: String::new(), holds_files: true }],
        ..Rows::default()
    };
    for nth in 0..executions {
        let (id, start_ns) = (nth * 4, 1000 * nth);
        let span = |id, layer, kind: &'static str| Span {
            id,
            layer,
            kind: kind.into(),
            start_ns: start_ns + 100,
            end_ns: Some(start_ns + 900),
            tgid: 5,
            tid: 5,
            operation: Some(nth),
            file: Some(1 + nth % 2),
            offset: Some(0),
            disk: (layer == Layer::Driver).then_some(7 << 20),
            sector: None,
            bytes: 4096,
            result: Some(4096),
            number: None,
            cache_added: None,
            flags: "".into(),
        };
        rows.spans.extend([
            Span { end_ns: Some(start_ns + 90), start_ns: start_ns + 10, ..span(id, Layer::Syscall, "pwrite64") },
            span(id + 1, Layer::Syscall, "fdatasync"),
            span(id + 2, Layer::Block, "bio"),
            span(id + 3, Layer::Driver, "flush"),
        ]);
        let link = |parent, child, relation| Link {
            parent,
            child,
            relation,
            confidence: Confidence::Exact,
            weakened_by: None,
        };
        rows.links.extend([
            link(id + 1, id + 2, Relation::Calls),
            link(id + 2, id + 3, Relation::Carries),
            link(id + 1, id + 3, Relation::WaitsForFlush),
        ]);
        rows.causes.push(Cause {
            command: id + 3,
            origin: Origin::Operation,
            operation: Some(nth),
            tgid: Some(5),
            share: 1.0,
            confidence: Confidence::Exact,
            via: "flush".into(),
        });
        let slice = |layer, reason, start_ns, end_ns| Slice {
            operation: nth,
            layer,
            reason,
            start_ns,
            end_ns,
            span: None,
            confidence: None,
            wait: None,
            wait_file: None,
            by_tgid: None,
            by_operation: None,
        };
        rows.slices.extend([
            slice(Layer::Database, Reason::Cpu, start_ns, start_ns + 500),
            slice(Layer::Driver, Reason::Flush, start_ns + 500, start_ns + 950),
        ]);
        rows.operations.push(Operation {
            id: nth,
            span: nth,
            shape: 1,
            nth,
            parent: None,
            tgid: 5,
            tid: 5,
            start_ns,
            end_ns: Some(start_ns + 950),
            inside_ns: 900,
            rows: 0,
            steps: Some(1),
            result: Some(101),
        });
    }
    rows
}

/// Puts a value into a cell. What no cell is named by is left out.
fn change_cell(rows: &mut Rows, [table, row, column, value]: [u64; 4]) {
    let at = |len: usize| (row as usize).checked_rem(len).unwrap_or(usize::MAX);
    let some = (value != 0).then_some(value);
    match table % 5 {
        0 => {
            let at = at(rows.operations.len());
            let mut operations = rows.operations.edit();
            let Some(operation) = operations.get_mut(at) else { return };
            match column % 8 {
                0 => operation.id = value,
                1 => operation.shape = value,
                2 => operation.nth = value,
                3 => operation.start_ns = value,
                4 => operation.end_ns = some,
                5 => operation.parent = some,
                6 => operation.rows = value,
                _ => operation.steps = some,
            }
        }
        1 => {
            let at = at(rows.spans.len());
            let mut spans = rows.spans.edit();
            let Some(span) = spans.get_mut(at) else { return };
            match column % 9 {
                0 => span.id = value,
                1 => span.end_ns = some,
                2 => span.start_ns = value,
                3 => span.operation = some,
                4 => span.layer = Layer::ALL[value as usize % Layer::ALL.len()],
                5 => span.kind = model::Call::ALL[value as usize % model::Call::ALL.len()].name().into(),
                6 => span.file = some,
                7 => span.bytes = value,
                _ => span.result = Some(value as i64),
            }
        }
        2 => {
            let at = at(rows.slices.len());
            let mut slices = rows.slices.edit();
            let Some(slice) = slices.get_mut(at) else { return };
            match column % 4 {
                0 => slice.operation = value,
                1 => slice.start_ns = value,
                2 => slice.end_ns = value,
                _ => slice.layer = Layer::ALL[value as usize % Layer::ALL.len()],
            }
        }
        3 => {
            let at = at(rows.links.len());
            let mut links = rows.links.edit();
            let Some(link) = links.get_mut(at) else { return };
            match column % 3 {
                0 => link.parent = value,
                1 => link.child = value,
                _ => link.relation = Relation::ALL[value as usize % Relation::ALL.len()],
            }
        }
        _ => {
            let at = at(rows.causes.len());
            let mut causes = rows.causes.edit();
            let Some(cause) = causes.get_mut(at) else { return };
            match column % 3 {
                0 => cause.command = value,
                1 => cause.operation = some,
                _ => cause.share = f64::from_bits(value),
            }
        }
    }
}

/// A recording, and the same with the changes.
fn recording_pair(bytes: &[u8]) -> (Rows, Rows) {
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines();
    let executions = lines.next().and_then(|line| line.trim().parse().ok()).unwrap_or(8).min(64);
    let (plain, mut changed) = (make_recording(executions), make_recording(executions));
    for line in lines.take(100) {
        let mut cells = line.split_whitespace().filter_map(|cell| cell.parse().ok());
        if let (Some(a), Some(b), Some(c), Some(d)) = (cells.next(), cells.next(), cells.next(), cells.next()) {
            change_cell(&mut changed, [a, b, c, d]);
        }
    }
    (plain, changed)
}

/// Any tables are summed up and compared: a recording does not differ from itself, differences add up, and texts fit their columns.
pub fn check_tables(bytes: &[u8]) {
    let (plain, changed) = recording_pair(bytes);
    let _ = analysis::show::text(&analysis::summarise(&changed));
    let explained = explain::explain(&changed);
    for finding in &explained.findings {
        assert!(finding.share.is_none_or(|share| (0.0..=1.0 + 1e-9).contains(&share)), "{finding:?}");
        assert!(finding.saving_ns.unwrap_or(0) <= finding.time_ns.unwrap_or(0), "{finding:?}");
    }
    let text = explain::text::text(&explained) + &explain::text::summary(&explained);
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
    let same = diff::diff(&changed, &changed);
    assert!(["equivalent", "inconclusive"].contains(&same.verdict.name()), "{}", same.why);
    for done in [same, diff::diff(&plain, &changed), diff::diff(&changed, &plain)] {
        let times = &done.latency_ns;
        let most = done.contributions.iter().map(|row| row.a_ns.abs().max(row.b_ns.abs())).fold(0.0, f64::max);
        for rows in [&done.contributions, &done.phases, &done.layers] {
            let sum: f64 = rows.iter().map(|row| row.delta_ns).sum();
            // Fractions of times beyond 2^53 ns are rounded.
            assert!((sum - times.delta_ns).abs() <= 1e-6 * most + 100.0, "{sum} of {}", times.delta_ns);
        }
        assert!(diff::text::text(&done).lines().all(|line| line.chars().count() <= 100));
        assert!(serde_json::to_string(&done).is_ok());
    }
}

/// What is predicted of any tables: less is left without something, and never less than nothing.
pub fn check_predictions(bytes: &[u8]) {
    let (plain, changed) = recording_pair(bytes);
    let ask = |asked: &PredictionRequest<'_>| {
        let done = whatif::predict(&changed, asked).ok()?;
        assert!(whatif::text::text(&done).lines().all(|line| line.chars().count() <= 100));
        assert!(serde_json::to_string(&done).is_ok());
        Some(done)
    };
    for (_, removal, _) in NAMED_REMOVALS {
        if let Some(done) = ask(&PredictionRequest { without: vec![removal.clone()], ..PredictionRequest::default() }) {
            assert!(done.total.predicted_ns <= done.total.recorded_ns.saturating_add(1), "{removal}: {:?}", done.total);
        }
    }
    ask(&PredictionRequest { device: Some(&plain), seed: 1, ..PredictionRequest::default() });
    ask(&PredictionRequest { device: Some(&changed), seed: 2, ..PredictionRequest::default() });
    ask(&PredictionRequest { queue: Some(1), ..PredictionRequest::default() });
}
