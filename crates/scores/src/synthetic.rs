//! A synthetic benchmark for tests: every iteration is known, so that every ratio can be calculated.

use super::results::Bench;
use model::Fact;
use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use stats::random::Random;

/// Creates a benchmark of one design whose score is a rate; cells are added later.
pub fn bench(name: &str, design: &str) -> Bench {
    let mut bench = Bench { name: name.into(), created_unix_ns: 1_000_000_000, ..Bench::default() };
    bench.tables.designs.push(DesignRow {
        id: 0,
        name: design.into(),
        question: "How fast?".into(),
        seed: 7,
        quick: false,
        score: "rate".into(),
        unit: None,
        scale: 1.0,
        better: Some("higher".into()),
        precision: Some(0.02),
        stopped: Some("precision".into()),
        baseline: None,
        design: "{}".into(),
    });
    bench
}

impl Bench {
    /// Adds a cell of `processes` processes of 30 iterations of `work` rows, each taking `row_ns` a row, with 0.3 % of
    /// noise between processes and 0.5 % within. Returns the cell's number.
    pub fn add(&mut self, factors: &[(&str, &str)], row_ns: f64, work: f64, processes: u64) -> u64 {
        let cell = self.tables.cells.len() as u64;
        let map: std::collections::BTreeMap<&str, &str> = factors.iter().copied().collect();
        self.tables.cells.push(DesignCell {
            id: cell,
            design: 0,
            name: map.iter().map(|(n, v)| format!("{n}={v}")).collect::<Vec<_>>().join(" "),
            factors: serde_json::json!(map).to_string(),
            argv: "[]".into(),
            metric: Some("iteration".into()),
            same_as: None,
            absent: None,
        });
        let mut random = Random::new(cell ^ row_ns.to_bits() ^ self.created_unix_ns);
        let mut noise = |size: f64| 1.0 + size * (random.below(2001) as f64 / 1000.0 - 1.0);
        for block in 0..processes {
            let id = self.tables.replicates.len() as u64;
            self.tables.replicates.push(Replicate {
                id,
                cell,
                block,
                place: cell,
                start_ns: id * 10,
                end_ns: id * 10 + 5,
                start_unix_ns: None,
                exit: Some(0),
                verified: Some(true),
                verified_by: Some("the sum".into()),
                warmup: false,
                why: None,
                gates: None,
                failure: None,
            });
            let level = noise(0.003);
            let sample = |metric: &str, unit: &str, value: f64| Sample {
                replicate: Some(id),
                metric: metric.into(),
                unit: unit.into(),
                labels: String::new(),
                time_ns: None,
                value,
            };
            for _ in 0..30 {
                self.tables.samples.push(sample("iteration", "ns", row_ns * work * level * noise(0.005)));
            }
            self.tables.samples.push(sample("work", "row", work));
            self.tables.samples.push(sample("latency.p99", "ns", 100.0 + block as f64));
            self.tables.marks.push(MarkRow { replicate: Some(id), name: "mode".into(), text: "native".into() });
        }
        cell
    }

    /// Adds a fact of the device.
    pub fn fact(&mut self, name: &str, value: &str, varies: &str) {
        let fact =
            Fact { value: Some(value.into()), unknown: None, unit: None, source: "test".into(), varies: varies.into() };
        self.tables.environment.insert(name.into(), fact);
    }
}
