//! What a benchmark reads: the log of its runs, the designs of others, and what a Web server says.

use archive::Runs;
use archive::runs::{Entry, Run};
use experiment::{Choices, Design, Workload, expand};
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use scores::results::Bench;
use scores::{self, Penalty, Tables, Why, comparability, compare, compare_text, plan, show};
use std::collections::BTreeMap;
use std::path::Path;
use workload::http::{MalformedResponse, Response};

/// A log of two cells with three processes each, and one that failed.
pub fn log_seeds() -> Vec<Vec<u8>> {
    let design = DesignRow {
        id: 0,
        name: "w".into(),
        question: "How fast?".into(),
        seed: 1,
        quick: false,
        score: "rate".into(),
        unit: None,
        scale: 1.0,
        better: Some("higher".into()),
        precision: Some(0.02),
        stopped: None,
        baseline: None,
        design: "{}".into(),
    };
    let cell = |id| DesignCell {
        id,
        design: 0,
        name: format!("mode={id}"),
        factors: format!("{{\"mode\":\"{id}\"}}"),
        argv: "[]".into(),
        metric: Some("iteration".into()),
        same_as: None,
        absent: None,
    };
    let run = |id: u64| {
        let sample = |metric: &str, value| Sample {
            replicate: Some(id),
            metric: metric.into(),
            unit: if metric == "work" { "row" } else { "ns" }.into(),
            labels: String::new(),
            time_ns: Some(id),
            value,
        };
        let times = (0..16).map(|nth| sample("iteration", 1000.0 + (id * 7 % 5 + nth % 3) as f64));
        let replicate = Replicate {
            id,
            cell: id % 2,
            block: id / 2,
            place: id % 2,
            start_ns: 10 * id,
            end_ns: 10 * id + 9,
            start_unix_ns: Some(3),
            exit: Some(0),
            verified: Some(true),
            verified_by: Some("sum".into()),
            warmup: id < 2,
            why: None,
            gates: Some("{\"load\":{\"state\":\"passed\"}}".into()),
            failure: (id == 7).then(|| "exit status: 1".into()),
        };
        let marks = vec![MarkRow { replicate: Some(id), name: "mode".into(), text: "native".into() }];
        Entry::Replicate(Box::new(Run { replicate, samples: times.chain([sample("work", 5.0)]).collect(), marks }))
    };
    let head = [Entry::Machine(BTreeMap::new()), Entry::Design(design), Entry::Cell(cell(0)), Entry::Cell(cell(1))];
    let end = [
        Entry::Absent { cell: 1, why: "tired".into() },
        Entry::Mark(MarkRow { replicate: None, name: "resumed".into(), text: "here".into() }),
        Entry::Stopped { design: 0, why: "blocks".into(), replicates: Some(8) },
    ];
    let mut log = Vec::new();
    for entry in head.into_iter().chain((0..8).map(run)).chain(end) {
        // Without seeds a target would test nothing, so this must be loud.
        log.extend(serde_json::to_vec(&entry).unwrap_or_else(|e| panic!("the seeds cannot be made: {e}")));
        log.push(b'\n');
    }
    vec![log]
}

/// A log that is read refers to nothing that is not there, and everything that is made of it can be shown.
pub fn check_log(bytes: &[u8]) {
    let runs = match Runs::parse(&mut &bytes[..], Path::new("b.fathom/runs.jsonl")) {
        // What is whole is used, whatever else was in it.
        Ok((runs, _)) => runs,
        Err(e) => return assert!(e.to_string().contains("runs.jsonl"), "{e}"),
    };
    assert!(runs.cells.iter().all(|c| (c.design as usize) < runs.designs.len()));
    assert!(runs.runs.iter().all(|r| (r.replicate.cell as usize) < runs.cells.len()));
    let tables = Tables {
        designs: runs.designs.clone(),
        cells: runs.cells.clone(),
        replicates: runs.runs.iter().map(|r| r.replicate.clone()).collect(),
        samples: runs.runs.iter().flat_map(|r| r.samples.clone()).collect(),
        marks: runs.runs.iter().flat_map(|r| &r.marks).chain(&runs.marks).cloned().collect(),
        environment: runs.machines.last().cloned().unwrap_or_default(),
    };
    let why = |name: &str| Why { archive: name.into(), failure: None, operation: None, layers: BTreeMap::new() };
    let shown = scores::benchmark(&tables, Penalty::default(), &why);
    for result in &shown.results {
        let inside = |e: f64, [low, high]: [f64; 2]| low <= e && e <= high;
        let Some((e, ci)) = result.estimate.estimate.zip(result.estimate.ci95) else { continue };
        assert!(inside(e, ci), "{e} lies outside {ci:?}");
    }
    let hidden = |text: &str| text.chars().all(|c| c == '\n' || !c.is_control());
    assert!(hidden(&show::text(&shown)) && hidden(&show::markdown(&shown)));
    let bench = Bench { name: "b".into(), tables, ..Bench::default() };
    assert!(hidden(&compare_text::text(&compare::compare_archives(&bench, &bench, &comparability::Rules::default()))));
    assert!(hidden(&plan::text(&plan::plan(&bench, 0.02, 0.03), 0.02, 0.03)));
}

pub fn design_seeds() -> Vec<Vec<u8>> {
    let all = [
        include_bytes!("../../experiments/peers/himeno.toml").to_vec(),
        include_bytes!("../../experiments/peers/insert-wal.toml").to_vec(),
    ];
    assert!(all.iter().all(|text| Design::parse("d.toml", &String::from_utf8_lossy(text)).is_ok()));
    all.into()
}

/// A comparison that is taken can be run: it has its baseline, every cell a command, and it is read again from an archive.
pub fn check_design(bytes: &[u8]) {
    match Design::parse("d.toml", &String::from_utf8_lossy(bytes)) {
        Ok(design) => {
            assert!(design.cells.iter().any(|c| Some(&c.name) == design.baseline.as_ref()));
            assert!(design.cells.iter().all(|c| !c.argv.is_empty()) && design.blocks > 0 && design.timeout_s > 0);
            let stored = serde_json::to_string(&design).and_then(|text| serde_json::from_str::<Design>(&text));
            assert!(stored.is_ok_and(|d| d.name == design.name));
        }
        Err(e) => assert!(e.to_string().contains("d.toml"), "{e}"),
    }
}

pub fn workload_seeds() -> Vec<Vec<u8>> {
    let all = [
        include_bytes!("../../experiments/suite/random.toml").to_vec(),
        include_bytes!("../../experiments/suite/himeno.toml").to_vec(),
    ];
    assert!(all.iter().all(|text| Workload::parse("w.toml", &String::from_utf8_lossy(text)).is_ok()));
    all.into()
}

/// A workload that is taken becomes a design whose cells all have names of their own, or an error that says why not.
pub fn check_workload(bytes: &[u8]) {
    let workload = match Workload::parse("w.toml", &String::from_utf8_lossy(bytes)) {
        Ok(workload) => workload,
        Err(e) => return assert!(e.to_string().contains("w.toml"), "{e}"),
    };
    for quick in [false, true] {
        match expand(&workload, &Choices { quick, ..Choices::default() }) {
            Ok(design) => {
                assert!(!design.cells.is_empty() && design.blocks > 0);
                let mut factors: Vec<_> = design.cells.iter().map(|c| &c.factors).collect();
                factors.sort();
                assert!(factors.windows(2).all(|pair| pair[0] != pair[1]), "a cell is there twice");
            }
            Err(e) => assert!(!e.to_string().is_empty()),
        }
    }
}

pub fn response_seeds() -> Vec<Vec<u8>> {
    [
        &b"\x30HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP"[..],
        b"\x40HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nA: b\r\n\r\n",
        b"\x05HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nuntil the end",
        b"\x21HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 204 No\r\nConnection: close\r\n\r\n",
    ]
    .map(<[u8]>::to_vec)
    .into()
}

/// However a response comes in pieces, it says the same, and its body is no longer than what came. The first byte cuts.
pub fn check_response(bytes: &[u8]) {
    let Some((&cut, bytes)) = bytes.split_first() else { return };
    let read = |cut: usize| -> Result<(u16, bool, Vec<u8>, usize), MalformedResponse> {
        let (mut response, mut body, mut waiting) = (Response::default(), Vec::new(), Vec::new());
        for piece in [&bytes[..cut], &bytes[cut..]] {
            waiting.extend_from_slice(piece);
            let taken = response.take(&waiting, &mut |part| body.extend_from_slice(part))?;
            assert!(taken <= waiting.len());
            waiting.drain(..taken);
        }
        response.end()?;
        Ok((response.status, response.close, body, waiting.len()))
    };
    let whole = read(bytes.len());
    assert_eq!(whole, read(usize::from(cut).min(bytes.len())));
    if let Ok((_, _, body, left)) = whole {
        assert!(body.len() + left <= bytes.len());
    }
}
