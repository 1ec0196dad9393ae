//! Compares the same command under two names again and again: how often the method finds a difference although there is none.

use crate::measure::score::group_blocks;
use crate::measure::setting::{no_disk, read_sensors, remove_leftovers};
use crate::measure::{Error, Notify, Result};
use crate::selftest;
use experiment::{Design, Discard, Setting, Workload};
use model::Context;
use serde_json::{Value, json};
use std::path::Path;

/// A request for a self-test.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// This program.
    pub fathom: &'a Path,
    /// The workload to compare with itself.
    pub workload: &'a Workload,
    /// Number of comparisons.
    pub comparisons: u64,
    /// Blocks of each comparison.
    pub blocks: u64,
    /// Seed of the order.
    pub seed: u64,
    /// Whether to wait for a hot or busy machine.
    pub wait: bool,
    /// The smallest difference that matters, as a fraction.
    pub margin: f64,
}

#[derive(Debug)]
pub struct SelfTest {
    design: Design,
    result: crate::SelfTest,
    /// Whether all comparisons were made.
    pub complete: bool,
}

/// Runs the self-test.
///
/// # Errors
/// The workload fails or cannot run here, or nothing was compared.
pub fn run(request: &Request<'_>, context: &Context, notify: Notify<'_>) -> Result<SelfTest> {
    let design = experiment::against_itself(request.workload, request.comparisons * request.blocks, request.seed)?;
    let (mut make, mut sensors) = (no_disk, read_sensors);
    let mut setting = Setting::new(request.fathom, &mut make);
    remove_leftovers(&design, &setting, notify);
    setting.sensors = Some(&mut sensors);
    setting.wait = request.wait;
    let results = experiment::run(&design, &mut setting, context, &mut Discard)?;
    context.clear_progress();
    if let Some(failure) = results.replicates.iter().find_map(|r| r.failure.as_ref()) {
        return Err(Error::Workload(format!("{}: a process failed: {failure}", design.name)));
    }
    if let Some(absent) = results.absent.first() {
        return Err(Error::Workload(format!("{} cannot run here: {}", design.name, absent.why)));
    }
    let groups = group_blocks(&results, usize::try_from(request.blocks).unwrap_or(usize::MAX));
    let result = crate::self_test(&groups, request.margin).ok_or(Error::Interrupted)?;
    Ok(SelfTest { complete: results.complete(), result, design })
}

impl SelfTest {
    /// Formats the result for people.
    pub fn text(&self, request: &Request<'_>) -> String {
        selftest::text(&self.result, &self.design.name, request.blocks, request.margin, request.seed)
    }

    /// Formats the result as JSON: docs/reference/json.md.
    pub fn json(&self, request: &Request<'_>) -> serde_json::Result<Value> {
        let mut value = serde_json::to_value(&self.result)?;
        for (name, part) in [
            ("version", json!(1)),
            ("workload", json!(self.design.name)),
            ("blocks", json!(request.blocks)),
            ("margin", json!(request.margin)),
            ("seed", json!(request.seed)),
            ("complete", json!(self.complete)),
        ] {
            value[name] = part;
        }
        Ok(value)
    }
}
