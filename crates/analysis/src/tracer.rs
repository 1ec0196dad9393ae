//! The part of an operation's time that is the cost of recording.
//!
//! Recording slows the program down, and the program's clock does not show by how much; but the number of probe hits is known,
//! and so is the cost of a probe. A step of a statement, a call of a function under `--op` and a recorded system call cost the
//! program two probes each. The recorder measures the cost of such a pair (`tracer.price.*` in the environment), and the archive
//! counts the pairs. Where statements are probed inside the process, hooks replace the probes on steps; then each execution of a
//! statement has an additional cost, for its start and its end.
//!
//! Where this time is spent depends on where the clock is read, which is in the middle of each probe: of a pair at a function one
//! half is inside the call and one half outside. This differs if the kernel makes the processor single-step the function's first
//! instruction: the second exception, which is most of the cost, comes after the clock was read, and is entirely inside. So the
//! recorder reports the inside part (`tracer.price.*.inside`). For a statement of k steps, k such parts are in Database and k - 1
//! of the rest in App, between the rows; all k pairs are in the time of the enclosing operation. No more is deducted from a layer
//! than the time it was running.
//!
//! *Uncertainty*: the cost is measured by the recorder itself, at its clock speed and with warm caches; it does not include
//! probes in the kernel below the system call (file system, block layer, scheduler), nor what tracing evicts from the program's
//! caches.

use crate::contract::{OperationSummary, TracerPart};
use crate::rows::{Index, Rows};
use model::{Layer, Reason, ShapeKind};
use std::collections::BTreeMap;

/// From this share of an operation's time on, its times reflect the recording more than the operation.
const LARGE_SHARE_MIN: f64 = 0.1;

/// Layers from which the recording takes time. For files in memory the file system's span is the whole call: it then includes
/// the cost of the call's probes.
const DEDUCTED_LAYERS: [Layer; 4] = [Layer::App, Layer::Database, Layer::Syscall, Layer::FileSystem];

/// Cost of a pair of probes, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Price {
    /// Median, lower and upper bound.
    ns: [f64; 3],
    /// The fraction of it that is inside the operation.
    inside: f64,
}

impl Price {
    /// Returns the fraction before and after the operation.
    fn outside(self) -> f64 {
        1.0 - self.inside
    }
}

/// Returns the cost of recording in the time of a recorded prepare, in ns; 0 if it was not measured.
pub fn in_prepare_ns(rows: &Rows) -> u64 {
    read_price(rows, "prepare").map_or(0, |price| (price.ns[0] * price.inside) as u64)
}

fn read_price(rows: &Rows, what: &str) -> Option<Price> {
    let fact = |name: &str| rows.facts.iter().find(|f| f.name == name)?.value.as_ref()?.parse::<f64>().ok();
    let part = |part: &str| fact(&format!("tracer.price.{what}{part}")).filter(|ns| *ns >= 0.0);
    let ns = [part("")?, part(".low")?, part(".high")?];
    let inside = part(".inside").filter(|_| ns[0] > 0.0).map_or(0.5, |inside| (inside / ns[0]).min(1.0));
    Some(Price { ns, inside })
}

/// The costs that the recorder measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prices {
    step: Price,
    /// Of a statement's execution, in addition to its steps.
    statement: Price,
    function: Price,
    /// Of a recorded system call; may be unknown.
    call: Price,
}

impl Prices {
    /// Returns the costs of a trace; `None` if it has none.
    pub fn from_rows(rows: &Rows) -> Option<Self> {
        // Costs of probes that were not in use are absent; without any, nothing is known.
        let (step, function) = (read_price(rows, "step"), read_price(rows, "function"));
        step.or(function)?;
        Some(Self {
            step: step.unwrap_or_default(),
            statement: read_price(rows, "statement").unwrap_or_default(),
            function: function.unwrap_or_default(),
            call: read_price(rows, "call").unwrap_or_default(),
        })
    }
}

/// Time that the recording took from an execution, in ns.
#[derive(Debug, Clone, Copy, Default)]
struct TracerTime {
    /// By [`DEDUCTED_LAYERS`].
    layers: [f64; 4],
    low: f64,
    high: f64,
}

impl TracerTime {
    fn add(&mut self, layer: usize, pairs: f64, price: Price) {
        let [ns, low, high] = price.ns;
        self.layers[layer] += pairs * ns;
        self.low += pairs * low;
        self.high += pairs * high;
    }
}

/// Returns the time that the recording took from each execution, by position.
fn tracer_times(index: &Index, prices: Prices) -> Vec<TracerTime> {
    const APP: usize = 0;
    const DATABASE: usize = 1;
    const SYSCALL: usize = 2;
    let rows = index.rows;
    let mut parts = vec![TracerTime::default(); rows.operations.len()];
    let mut calls = vec![0_u32; rows.operations.len()];
    for span in (0..rows.spans.len()).filter(|&at| rows.spans.layer(at) == Layer::Syscall) {
        if let Some(at) = rows.spans.operation(span).and_then(|id| index.operation(id)) {
            calls[at] += 1;
        }
    }
    let kind = |at: usize| index.shape(at).map_or("", |shape| rows.shapes[shape].kind.as_ref());
    for (at, operation) in rows.operations.iter().enumerate() {
        let pairs = operation.steps.unwrap_or(0) as f64;
        let statement = kind(at) == ShapeKind::Statement.name();
        for (inside, outer) in index.chain(at).enumerate() {
            let part = &mut parts[outer];
            part.add(SYSCALL, calls[at].into(), prices.call);
            match (inside, statement) {
                _ if pairs == 0.0 => {}
                (0, true) => {
                    part.add(DATABASE, pairs * prices.step.inside, prices.step);
                    part.add(APP, (pairs - 1.0) * prices.step.outside(), prices.step);
                    part.add(DATABASE, prices.statement.inside, prices.statement);
                }
                (0, false) => part.add(APP, pairs - prices.function.outside(), prices.function),
                (_, true) => {
                    part.add(DATABASE, pairs * prices.step.inside, prices.step);
                    part.add(APP, pairs * prices.step.outside(), prices.step);
                    part.add(DATABASE, prices.statement.inside, prices.statement);
                    part.add(APP, prices.statement.outside(), prices.statement);
                }
                // In a statement's time, all but the calls belongs to Database.
                (_, false) => part.add(
                    if kind(outer) == ShapeKind::Statement.name() { DATABASE } else { APP },
                    pairs,
                    prices.function,
                ),
            }
        }
    }
    parts
}

/// Times by execution and layer; 0 where there is none.
#[derive(Debug, Default)]
pub struct Times(BTreeMap<Layer, Vec<u64>>);

impl Times {
    /// Adds to the time of an execution in a layer.
    pub fn add(&mut self, at: usize, layer: Layer, ns: u64) {
        let all = self.0.entry(layer).or_default();
        if all.len() <= at {
            all.resize(at + 1, 0);
        }
        all[at] = all[at].saturating_add(ns);
    }

    fn time_of(&self, at: usize, layer: Layer) -> u64 {
        self.0.get(&layer).and_then(|all| all.get(at)).copied().unwrap_or(0)
    }

    fn take(&mut self, at: usize, layer: Layer, ns: u64) {
        if let Some(time) = self.0.get_mut(&layer).and_then(|all| all.get_mut(at)) {
            *time = time.saturating_sub(ns);
        }
    }

    /// The times that are not 0.
    pub fn iter(&self) -> impl Iterator<Item = (usize, Layer, u64)> {
        let all = self.0.iter().flat_map(|(&layer, all)| all.iter().enumerate().map(move |(at, &ns)| (at, layer, ns)));
        all.filter(|&(.., ns)| ns > 0)
    }
}

/// Deducts the recording's part from the layers of each finished execution and gives it a layer of its own. `all` are the times
/// of the executions by layer, `running` the part of them on a CPU; `finished` passes the summary of an execution's shape, if it
/// is finished.
pub fn deduct_all(
    index: &Index,
    prices: Prices,
    all: &mut Times,
    running: &Times,
    mut finished: impl FnMut(usize, &mut dyn FnMut(&mut OperationSummary)),
) {
    for (at, part) in tracer_times(index, prices).into_iter().enumerate() {
        finished(at, &mut |summary| deduct(at, part, all, running, summary));
    }
}

/// Returns the recording's part of each execution by layer, for callers that do not sum up executions by shape.
pub fn tracer_part_by_layer(index: &Index, prices: Prices, running: &Times) -> Vec<[(Layer, u64); 4]> {
    let fitted = |(at, part): (usize, TracerTime)| {
        let taken = fit_to_running(at, part, running);
        std::array::from_fn(|i| (DEDUCTED_LAYERS[i], taken[i]))
    };
    tracer_times(index, prices).into_iter().enumerate().map(fitted).collect()
}

/// Returns the recording's part of one execution by [`DEDUCTED_LAYERS`], limited to the time it was running there.
fn fit_to_running(at: usize, part: TracerTime, running: &Times) -> [u64; 4] {
    let room = DEDUCTED_LAYERS.map(|layer| running.time_of(at, layer));
    let mut taken: [u64; 4] = std::array::from_fn(|i| (part.layers[i].round() as u64).min(room[i]));
    // How a pair is divided between layers is less certain than its total: what does not fit into one of the two is in the
    // other. The same holds for a call and the file system below it.
    for (from, to) in [(0, 1), (1, 0), (2, 3)] {
        let left = (part.layers[from].round() as u64).saturating_sub(room[from]);
        taken[to] = taken[to].saturating_add(left).min(room[to]);
    }
    taken
}

/// Deducts the recording's part from one execution's layers.
fn deduct(at: usize, part: TracerTime, all: &mut Times, running: &Times, summary: &mut OperationSummary) {
    let taken = fit_to_running(at, part, running);
    let sum = taken.iter().fold(0_u64, |sum, ns| sum.saturating_add(*ns));
    let part_of = summary.tracer.get_or_insert_with(TracerPart::default);
    part_of.ns = part_of.ns.saturating_add(sum);
    part_of.low_ns = part_of.low_ns.saturating_add(part.low.round() as u64);
    part_of.high_ns = part_of.high_ns.saturating_add(part.high.round() as u64);
    if sum == 0 {
        return;
    }
    for (layer, ns) in DEDUCTED_LAYERS.into_iter().zip(taken).filter(|(_, ns)| *ns > 0) {
        all.take(at, layer, ns);
        if let Some(time) = summary.layers.get_mut(&layer) {
            time.exclusive_ns = time.exclusive_ns.saturating_sub(ns);
            if let Some(cpu) = time.reasons.get_mut(Reason::Cpu.name()) {
                *cpu = cpu.saturating_sub(ns);
            }
        }
    }
    all.add(at, Layer::Tracer, sum);
    let own = summary.layers.entry(Layer::Tracer).or_default();
    own.exclusive_ns = own.exclusive_ns.saturating_add(sum);
    let cpu = own.reasons.entry(Reason::Cpu.name().into()).or_default();
    *cpu = cpu.saturating_add(sum);
}

/// Determines how large the recording's part of a shape is, once its latency is known.
pub fn judge_tracer_part(summary: &mut OperationSummary) {
    let latency = summary.latency_ns.sum;
    let Some(part) = &mut summary.tracer else { return };
    // The part cannot exceed the latency. Where the cost did not fit into the running time, the true part may exceed what was deducted.
    let most = latency.max(part.ns);
    (part.low_ns, part.high_ns) = (part.low_ns.min(most), part.high_ns.clamp(part.ns, most));
    part.share = part.ns as f64 / latency.max(1) as f64;
    part.large = part.share > LARGE_SHARE_MIN;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::small_trace::{self, fact};
    use crate::summary::summarise;

    fn rows(step: [u64; 3]) -> Rows {
        let mut rows = small_trace::rows();
        for what in ["step", "function"] {
            for (part, ns) in ["", ".low", ".high"].iter().zip(step) {
                rows.facts.push(fact(&format!("tracer.price.{what}{part}"), ns));
            }
        }
        rows
    }

    #[test]
    fn unknown_probe_costs_are_not_subtracted() {
        let summary = summarise(&small_trace::rows());
        assert!(summary.operations.iter().all(|o| o.tracer.is_none() && !o.layers.contains_key(&Layer::Tracer)));
    }

    #[test]
    fn layers_with_the_tracer_add_up_to_the_latency() {
        for price in [[0, 0, 0], [700, 600, 900], [40_000, 30_000, 50_000], [u64::MAX / 4; 3]] {
            let mut rows = rows(price);
            for (n, operation) in rows.operations.edit().iter_mut().enumerate() {
                operation.steps = Some(n as u64 * 7);
            }
            let (with, without) = (summarise(&rows), summarise(&small_trace::rows()));
            for (with, without) in with.operations.iter().zip(&without.operations) {
                let sum =
                    |o: &OperationSummary| o.layers.values().map(|l| l.exclusive_ns).sum::<u64>() + o.unexplained_ns;
                assert_eq!((sum(with), &with.statement), (sum(without), &without.statement), "{price:?}");
                for (layer, time) in &with.layers {
                    let reasons: u64 = time.reasons.values().sum();
                    assert_eq!(reasons, time.exclusive_ns, "{price:?}: {layer} of {}", with.statement);
                }
                let part = with.tracer.unwrap_or_default();
                assert!(part.low_ns <= part.high_ns && part.ns <= part.high_ns, "{part:?}");
                assert_eq!(part.large, part.share > LARGE_SHARE_MIN);
                let layer = with.layers.get(&Layer::Tracer).map_or(0, |l| l.exclusive_ns);
                assert_eq!(layer, part.ns, "{price:?}");
            }
        }
    }

    /// A statement of 1,000 rows: half of each step's probe pair counts in the database, the other half between steps in the application.
    #[test]
    fn half_of_a_steps_probe_cost_is_inside_the_step() {
        let mut rows = rows([10, 9, 12]);
        let scan = rows.operations.iter().position(|o| o.shape == 2).unwrap();
        rows.operations.edit()[scan].steps = Some(1001);
        let index = Index::new(&rows);
        let part = tracer_times(&index, Prices::from_rows(&rows).unwrap())[scan];
        assert_eq!((part.layers, part.low, part.high), ([5000.0, 5005.0, 0.0, 0.0], 9004.5, 12006.0));
    }

    /// When probed inside the process, a statement has a cost of its own, of which one half is before its start and after its end.
    #[test]
    fn a_statements_price_counts_once_for_each_execution() {
        let mut rows = rows([10, 9, 12]);
        for (part, ns) in ["", ".low", ".high"].iter().zip([100, 80, 140]) {
            rows.facts.push(fact(&format!("tracer.price.statement{part}"), ns));
        }
        let scan = rows.operations.iter().position(|o| o.shape == 2).unwrap();
        rows.operations.edit()[scan].steps = Some(1001);
        let index = Index::new(&rows);
        let part = tracer_times(&index, Prices::from_rows(&rows).unwrap())[scan];
        assert_eq!((part.layers, part.low, part.high), ([5000.0, 5055.0, 0.0, 0.0], 9044.5, 12076.0));
    }

    /// A function whose first instruction is single-stepped: most of its probe pair is inside.
    #[test]
    fn a_measured_inside_cost_is_used_for_probes() {
        let mut rows = rows([10, 9, 12]);
        rows.facts.push(fact("tracer.price.step.inside", 8));
        let scan = rows.operations.iter().position(|o| o.shape == 2).unwrap();
        rows.operations.edit()[scan].steps = Some(1001);
        let index = Index::new(&rows);
        let part = tracer_times(&index, Prices::from_rows(&rows).unwrap())[scan];
        assert_eq!(part.layers.map(f64::round), [2000.0, 8008.0, 0.0, 0.0]);
    }

    /// On tmpfs the file system's span is the whole call.
    #[test]
    fn a_calls_probe_cost_without_time_of_its_own_goes_below_it() {
        let part = TracerTime { layers: [0.0, 0.0, 300.0, 0.0], low: 280.0, high: 330.0 };
        let [mut all, running] = [(); 2].map(|()| {
            let mut times = Times::default();
            times.add(0, Layer::Syscall, 50);
            times.add(0, Layer::FileSystem, 1000);
            times
        });
        let mut summary = OperationSummary::default();
        deduct(0, part, &mut all, &running, &mut summary);
        assert_eq!(summary.tracer.unwrap().ns, 300);
        assert_eq!(
            (all.time_of(0, Layer::Syscall), all.time_of(0, Layer::FileSystem), all.time_of(0, Layer::Tracer)),
            (0, 750, 300)
        );
    }

    /// Waiting is not overhead, but overhead beyond the running time may still be part of the latency.
    #[test]
    fn the_overheads_interval_is_capped_only_by_the_latency() {
        let part_of = |latency| {
            let mut summary = OperationSummary {
                tracer: Some(TracerPart { ns: 100, low_ns: 280, high_ns: 330, ..TracerPart::default() }),
                ..OperationSummary::default()
            };
            summary.latency_ns.sum = latency;
            judge_tracer_part(&mut summary);
            let part = summary.tracer.unwrap();
            (part.ns, part.low_ns, part.high_ns)
        };
        assert_eq!(part_of(1000), (100, 280, 330));
        assert_eq!(part_of(200), (100, 200, 200));
    }
}
