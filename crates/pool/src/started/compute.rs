//! Measures computation on the nodes' CPUs, alone and while the pool is read; and reads of the pool, alone and while the
//! nodes compute. This is the future work of paper 001, as are writes.
//!
//! Each node has LINPACK running as a separate process. Only iterations that began and ended during the reads count. The
//! nodes share this machine's CPUs, so the result is the cost of reads for a fully loaded CPU.

use super::{Cluster, Error, Result};
use crate::bench::Figures;
use child::kill_with_parent;
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The compute kernel, whose result is known to the last bit and is checked.
const KERNEL_ARGS: [&str; 6] =
    ["workload", "linpack", "--mode=c-O2", "--size=200", "--min-iteration-ms=20", "--iterations"];
/// The duration of an iteration on an idle CPU, as above.
const ITERATION_DURATION: Duration = Duration::from_millis(20);
/// The minimum number of iterations for a measurement.
const ITERATIONS_MIN: f64 = 20.0;

/// A time window, CLOCK_BOOTTIME in ns.
type Window = std::ops::Range<u64>;

#[derive(Debug, Clone)]
pub struct Slowdown {
    /// Reads while the nodes do nothing else.
    pub reads_alone: Figures,
    /// Reads while they compute.
    pub reads_during: Figures,
    /// Operations per second of each node, without reads.
    pub compute_alone: Vec<f64>,
    /// The same during reads.
    pub compute_during: Vec<f64>,
}

/// Measures both, separately and together. `words`: the arguments of the reads for `fathom pool bench`, which prints JSON.
///
/// # Errors
/// A process cannot be started, or fails.
pub fn measure(cluster: &Cluster, words: &[String], duration: Duration) -> Result<Slowdown> {
    let count = cluster.nodes();
    let (reads_alone, _) = measure_reads(cluster, words)?;
    let iterations = (duration.as_secs_f64() / ITERATION_DURATION.as_secs_f64()).ceil().max(ITERATIONS_MIN) as u64;
    let compute_alone = start_kernels(cluster.program(), count, iterations)?.rates(&(0..u64::MAX))?;
    // Enough iterations to last at least as long as the reads.
    let running = start_kernels(cluster.program(), count, 2 * iterations)?;
    let (reads_during, window) = measure_reads(cluster, words)?;
    Ok(Slowdown { reads_alone, reads_during, compute_alone, compute_during: running.rates(&window)? })
}

/// Measures reads; also returns their time window.
fn measure_reads(cluster: &Cluster, words: &[String]) -> Result<(Figures, Window)> {
    const READER_NAME: &str = "the coordinator";
    let mut command = cluster.bench();
    command.args(words).stdout(Stdio::piped());
    let begun = now_ns();
    let output = command.output().map_err(|source| Error::Start { what: READER_NAME, source })?;
    let window = begun..now_ns();
    if !output.status.success() {
        return Err(Error::Failed { what: READER_NAME, status: output.status });
    }
    let figures = serde_json::from_slice(&output.stdout);
    Ok((figures.map_err(|source| Error::Printed { what: READER_NAME, source })?, window))
}

fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// The name of a kernel in messages.
const KERNEL_NAME: &str = "a node's kernel";

/// Running kernels, killed when they are dropped.
struct Kernels(Vec<Child>);

impl Drop for Kernels {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have exited already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start_kernels(program: &Path, count: usize, iterations: u64) -> Result<Kernels> {
    let mut kernels = Kernels(Vec::new());
    for _ in 0..count {
        let mut command = Command::new(program);
        command.args(KERNEL_ARGS).arg(iterations.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        kernels
            .0
            .push(kill_with_parent(&mut command).spawn().map_err(|source| Error::Start { what: KERNEL_NAME, source })?);
    }
    Ok(kernels)
}

impl Kernels {
    /// Waits until all have exited; returns each node's operations per second, over the iterations within `window`. Each
    /// prints only after its last iteration, so no pipe fills up while another process is waited for.
    fn rates(mut self, window: &Window) -> Result<Vec<f64>> {
        let rate = |child: Child| {
            let output = child.wait_with_output().map_err(|source| Error::Start { what: KERNEL_NAME, source })?;
            if !output.status.success() {
                return Err(Error::Failed { what: KERNEL_NAME, status: output.status });
            }
            kernel_rate(&String::from_utf8_lossy(&output.stdout), window)
        };
        std::mem::take(&mut self.0).into_iter().map(rate).collect()
    }
}

/// Operations per second, from a kernel's output.
fn kernel_rate(lines: &str, window: &Window) -> Result<f64> {
    let (mut work, mut ns, mut count) = (None, 0, 0_u32);
    for line in lines.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let number = |key: &str| line[key].as_f64();
        match line["metric"].as_str() {
            Some("work") => work = number("v"),
            Some("iteration") => {
                let (Some(begun), Some(lasted)) = (line["t"].as_u64(), number("v")) else { continue };
                if window.contains(&begun) && begun + lasted as u64 <= window.end {
                    (ns, count) = (ns + lasted as u64, count + 1);
                }
            }
            _ => {}
        }
    }
    let work = work.ok_or(Error::Nothing("a node's kernel reported no work"))?;
    match count {
        0 => Err(Error::Nothing(
            "a node's kernel completed no iteration while the pool was read; give a longer --duration",
        )),
        _ => Ok(work * f64::from(count) * 1e9 / ns as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iterations_within_the_read_window_count() {
        let lines = r#"{"metric":"iteration","unit":"ns","t":100,"v":50}
{"metric":"iteration","unit":"ns","t":200,"v":100}
{"metric":"iteration","unit":"ns","t":300,"v":300}
{"metric":"work","unit":"flop","v":7}
{"verified":true,"by":"it"}"#;
        let rate = |window: Window| kernel_rate(lines, &window).ok();
        assert_eq!(rate(0..u64::MAX), Some(7.0 * 3.0 * 1e9 / 450.0));
        assert_eq!(rate(150..400), Some(7.0 * 1e9 / 100.0));
        assert_eq!(rate(700..800), None);
    }
}
