//! The papers' figures for a host and a device: what has to be measured for the requested ones, and the page with the papers' claims.

use crate::claims;
use crate::list::{self, List, ListedFigure};
use crate::networks::is_network;
use crate::pairs::{Directory, MeasureBoth};
use crate::two_machines::{self, Machine};
use device::remote::DeviceAddress;
use model::Environment;
use scores::figure::Figure;
use scores::figures;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// The workloads that a host and one device run identically.
const COMMON_WORKLOADS: [&str; 9] = ["linpack", "scimark", "himeno", "http", "draw", "seq", "file", "sqlite", "random"];
/// The recorded load: INSERTs and full scans; a tenth of it in a quick run.
const ROWS_AND_SCANS: (u64, u64) = (1000, 100);
const QUICK_DIVISOR: u64 = 10;
/// The version of the JSON.
const FORMAT_VERSION: u32 = 1;

/// Measurements needed for the requested figures.
#[derive(Debug)]
pub struct Needs {
    /// Workloads of benchmarks that both run identically.
    pub workloads: Vec<String>,
    /// Network workloads with the device as a part.
    pub networks: Vec<String>,
    /// Whether INSERTs are recorded.
    pub recorded: bool,
}

impl Needs {
    /// Determines the needs of these figures.
    pub fn from_figures(wanted: &[&ListedFigure]) -> Self {
        let mut all: Vec<String> = wanted.iter().flat_map(|k| &k.bench).cloned().collect();
        all.sort_unstable();
        all.dedup();
        let (networks, mut workloads): (Vec<String>, Vec<String>) = all.into_iter().partition(|w| is_network(w));
        workloads.retain(|w| COMMON_WORKLOADS.contains(&w.as_str()));
        Self { workloads, networks, recorded: wanted.iter().any(|k| k.command.is_some() && k.bench.is_empty()) }
    }

    /// Adds the needs to a run of both: the workloads, and the modes of bytecode if there is any.
    pub fn add_to<'a>(&self, run: MeasureBoth<'a>) -> MeasureBoth<'a> {
        let mut modes = run.modes;
        if run.dex_jar.is_some() {
            // Modes for which a machine lacks a runtime are missing there, with the reason.
            let of = |(workload, native): &(&str, &str)| format!("--param={workload}.mode={native}jvm-tiered,art-jit");
            let with = [("linpack", "c-O2,"), ("scimark", "c-O2,"), ("himeno", "c-O2,"), ("draw", "")];
            modes.extend(with.iter().filter(|(w, _)| self.workloads.iter().any(|x| x == w)).map(of));
        }
        MeasureBoth { modes, workloads: self.workloads.clone(), ..run }
    }
}

/// Returns a machine without any measurements yet.
pub fn unmeasured_machine(name: String, facts: Environment) -> Machine {
    let not_asked = || "nothing that was requested needs it".to_string();
    Machine { name, bench: Err(not_asked()), recorded: Err(not_asked()), network: Err(not_asked()), facts }
}

/// Returns the number of recorded INSERTs and full scans.
pub fn rows_and_scans(quick: bool) -> (u64, u64) {
    if quick { (ROWS_AND_SCANS.0 / QUICK_DIVISOR, ROWS_AND_SCANS.1 / QUICK_DIVISOR) } else { ROWS_AND_SCANS }
}

/// Contents of the page.
#[derive(Debug)]
pub struct Page<'a> {
    /// All existing figures.
    pub all: &'a List,
    pub wanted: &'a [&'a ListedFigure],
    pub place: &'a DeviceAddress,
    /// Measurements of the host.
    pub host: Machine,
    /// Measurements of the device.
    pub device: Machine,
    /// Whether it was a smoke test.
    pub quick: bool,
    /// The journal modes of the recordings and their sources, if there are recordings.
    pub modes: Option<[(String, String); 2]>,
    /// Named directories, each with its counterpart.
    pub directories: Vec<Directory>,
}

impl Page<'_> {
    fn judge_claims(&self) -> Vec<claims::JudgedClaim> {
        let pairs = two_machines::pair_cells(&self.host, &self.device);
        claims::judge(&self.host, &self.device, &pairs, &|figure| self.wanted.iter().any(|k| claims::is_of(k, figure)))
    }

    /// Formats the page as Markdown, with this date.
    pub fn markdown(&self, date: &str) -> String {
        let Page { all, wanted, place, host, device, .. } = self;
        let mut text = list::head_of_both(&host.name, &device.name, date, self.quick);
        text += &list::overview_of_both(&all.paper, wanted, &place.to_string());
        let name = analysis::text::escaped(&device.name);
        let _ = writeln!(text, "\n- **host**: {}\n- **{name}**: {}", host.description(), device.description());
        for Directory { name, host_path: here, device_path: there } in &self.directories {
            let [name, here, there] = [name, here, there].map(|text| analysis::text::escaped(text));
            let _ = writeln!(text, "- directory {name}: {here} on the host, {there} on the device");
        }
        text.push('\n');
        text += &claims::markdown(&self.judge_claims());
        text.push_str("\n## The figures\n\n");
        let of = |f: &Figure| {
            let is = |k: &&ListedFigure, n: &str| k.paper == f.paper && k.is_named_by(&format!("{}/{n}", f.paper));
            wanted.iter().any(|k| f.figure.split(", ").any(|n| is(k, n)))
        };
        if host.bench.is_ok() || device.bench.is_ok() {
            text += &two_machines::benchmark_figures(host, device, &two_machines::pair_cells(host, device), &of);
        }
        if let Some([(a, why_a), (b, why_b)]) = &self.modes {
            let (rows, scans) = rows_and_scans(self.quick);
            let _ = writeln!(
                text,
                "The recordings are of {rows} INSERTs in autocommit and {scans} full scans each, in the journal mode that each system \
                 comes with: {a} on the host ({why_a}), {b} on the device ({why_b}).\n"
            );
            let kept = |machine: &Machine| {
                let mut figures = machine.recorded.clone().unwrap_or_default();
                figures.retain(|f| wanted.iter().any(|k| k.paper == f.paper && k.number == f.figure));
                (machine.name.clone(), figures)
            };
            let columns: Vec<_> = [host, device].into_iter().filter(|m| m.recorded.is_ok()).map(kept).collect();
            text += &crate::markdown(&columns);
        }
        if wanted.iter().any(|k| k.bench.iter().any(|w| is_network(w))) {
            text.push_str(
                "## The networks\n\nThe host emulates the cluster and the links on one machine; the device is a node of a cluster and an end \
                 of a link, over its own network. So no ratio of both is formed.\n\n",
            );
            for machine in [host, device] {
                let name = analysis::text::escaped(&machine.name);
                match &machine.network {
                    Ok(bench) => {
                        let _ = writeln!(text, "Of {name}:\n");
                        let made: Vec<Figure> = figures::figures(bench).into_iter().filter(|f| of(f)).collect();
                        text += &figures::markdown(&made);
                    }
                    Err(why) => {
                        let _ = writeln!(text, "Nothing of {name}: {}.\n", analysis::text::escaped(why));
                    }
                }
            }
        }
        model::text::wrap_markdown(&text)
    }

    /// Formats the page as JSON.
    pub fn json(&self) -> Value {
        let Page { place, host, device, .. } = self;
        json!({
            "version": FORMAT_VERSION, "host": host.description(),
            "device": { "address": place.to_string(), "name": device.name, "is": device.description() },
            "claims": self.judge_claims(),
        })
    }
}
