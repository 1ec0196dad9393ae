//! The probes of a recording as lines of `show`: what was seen, and what was not, with the reason.

use crate::contract::{Probe, Summary};
use crate::lines::{line, wrapped};
use crate::text::shown;
use model::Absence;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of probes named for one reason of absence.
const NAMED_PROBES_MAX: usize = 4;
/// File systems and protocols that have probes of their own, named after them; no machine has them all.
const OPTIONAL_PROBE_PREFIXES: [&str; 7] = ["btrfs", "ext4", "f2fs", "mmc", "nvme", "scsi", "xfs"];

/// Adds the probes that were attached, the layers that are blind, and what of an imported trace was not used.
pub fn text(out: &mut String, summary: &Summary) {
    if summary.coverage.is_empty() {
        line(out, "\nProbes: unknown.");
        return;
    }
    // Nothing was missed of a file system that was not mounted.
    let unused = |p: &&Probe| p.absence == Some(Absence::NotMounted);
    // The substitute for SQLite's statements is described in a separate sentence below.
    let probe = |p: &&Probe| !unused(p) && p.absence != Some(Absence::NoSqlite);
    let probes: Vec<&Probe> = summary.coverage.iter().filter(probe).collect();
    let force = probes.iter().filter(|p| p.attached).count();
    line(out, &format!("\nProbes: {force} of {} attached", probes.len()));
    let here: BTreeSet<&str> = probes.iter().filter(|p| p.attached).filter_map(|p| belongs_to(&p.probe)).collect();
    let elsewhere = |p: &&Probe| {
        p.absence == Some(Absence::NoTracepoint) && belongs_to(&p.probe).is_some_and(|name| !here.contains(name))
    };
    let (missing, blind): (Vec<&Probe>, Vec<&Probe>) = probes.into_iter().filter(|p| !p.attached).partition(elsewhere);
    let missing: BTreeSet<&str> = missing.into_iter().filter_map(|p| belongs_to(&p.probe)).collect();
    if !missing.is_empty() {
        let names: Vec<&str> = missing.into_iter().collect();
        line(out, &format!("  not in this kernel, or module not loaded: {}", names.join(", ")));
    }
    // Many probes that are absent for the same reason are reported together.
    let mut reasons: BTreeMap<(model::Layer, &str), Vec<&str>> = BTreeMap::new();
    for probe in &blind {
        reasons.entry((probe.layer, &probe.how)).or_default().push(&probe.probe);
    }
    for ((layer, how), probes) in reasons {
        let named: Vec<String> = probes.iter().take(NAMED_PROBES_MAX).map(|probe| shown(probe)).collect();
        let more = if probes.len() > NAMED_PROBES_MAX {
            format!(" and {} more", probes.len() - NAMED_PROBES_MAX)
        } else {
            String::new()
        };
        wrapped(out, "  blind: ", &format!("{} {}{more}: {}", layer.name(), named.join(", "), shown(how)));
    }
    for blind in summary.blind.iter().filter(|b| b.wholly || b.layer != model::Layer::Database) {
        let how_much = if blind.wholly { "no probe attached" } else { "not recorded" };
        wrapped(out, "  ", &format!("{how_much}, {}: {}", blind.layer.name(), shown(&blind.means)));
    }
    for (name, what) in [("trace.left_out", "left out"), ("trace.not_readable", "not readable")] {
        let events = summary.environment.get(name).and_then(|fact| fact.value.as_deref());
        events
            .iter()
            .for_each(|events| wrapped(out, "  ", &format!("{what} of the imported trace: {}", shown(events))));
    }
}

/// Returns the file system or protocol to which a probe is specific, if any.
fn belongs_to(probe: &str) -> Option<&'static str> {
    OPTIONAL_PROBE_PREFIXES.into_iter().find(|name| probe.strip_prefix(name).is_some_and(|rest| rest.starts_with('_')))
}
