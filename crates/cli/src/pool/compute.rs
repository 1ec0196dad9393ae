//! `fathom pool bench --compute`: the nodes' processors, alone and while the pool is read; and the pool, alone and while they
//! compute. It is the other future work of paper 001, beside writes.
//!
//! Each node runs LINPACK as a process beside it. What counts of it is what began and ended while the reads went on. The
//! nodes share this machine's processors, so what is seen here is what reads cost a processor that has nothing to spare.

use super::cluster::{Cluster, Wanted, forwarded};
use crate::args::PoolBench;
use anyhow::{Context as _, Result, ensure};
use lab::process::end_with_us;
use pool::bench::Figures;
use serde_json::{Value, json};
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// The kernel, whose result is known to the last bit and is checked.
const KERNEL: [&str; 6] = ["workload", "linpack", "--mode=c-O2", "--size=200", "--min-iteration-ms=20", "--iterations"];
/// What an iteration lasts where a processor is free, as above.
const ITERATION: Duration = Duration::from_millis(20);

/// When something began and ended, CLOCK_BOOTTIME in ns.
type Window = std::ops::Range<u64>;

pub fn run(args: &PoolBench, count: u32) -> Result<ExitCode> {
    let cluster = Cluster::start(&Wanted { count, args: &args.paper })?;
    let (reads_alone, _) = reads(&cluster, args, count)?;
    let iterations = (args.load.duration.as_secs_f64() / ITERATION.as_secs_f64()).ceil().max(20.0) as u64;
    let compute_alone = start(count, iterations)?.rates(&(0..u64::MAX))?;
    // Enough of them to last at least as long as the reads.
    let running = start(count, 2 * iterations)?;
    let (reads_during, window) = reads(&cluster, args, count)?;
    let compute_during = running.rates(&window)?;
    let [alone, during] = [&compute_alone, &compute_during].map(|rates| rates.iter().sum::<f64>());
    if args.load.json {
        let text = json!({
            "nodes": count,
            "reads": {"alone": reads_alone, "during": reads_during},
            "compute": {"kernel": "linpack 200, C -O2", "unit": "flop/s", "alone": alone, "during": during,
                        "nodes_alone": compute_alone, "nodes_during": compute_during},
        });
        println!("{text}");
    } else {
        println!("{}", super::table::heading());
        println!("{}", super::table::line("reads, alone", &reads_alone));
        println!("{}", super::table::line("reads, while the nodes compute", &reads_during));
        let kept = |during: f64, alone: f64| format!("{:.0} % kept", 100.0 * during / alone);
        println!("{:<34}{}", "", kept(reads_during.ops_per_s, reads_alone.ops_per_s));
        println!("\nLINPACK (200 equations, C -O2), {} together", model::counted(count as usize, "node"));
        println!("{:<34}{:>10.1} Mflop/s", "alone", alone / 1e6);
        println!("{:<34}{:>10.1} Mflop/s, {}", "while the pool is read", during / 1e6, kept(during, alone));
    }
    Ok(ExitCode::SUCCESS)
}

/// Measures reads; says when.
fn reads(cluster: &Cluster, args: &PoolBench, count: u32) -> Result<(Figures, Window)> {
    let mut command = cluster.bench()?;
    command.args(forwarded(args, count)).args((!args.load.json).then_some("--json")).stdout(Stdio::piped());
    let begun = workload::clock::now_ns();
    let output = command.output().context("cannot start the coordinator")?;
    let window = begun..workload::clock::now_ns();
    ensure!(output.status.success(), "the reads failed: {}", output.status);
    Ok((serde_json::from_slice(&output.stdout).context("what the coordinator printed")?, window))
}

/// Kernels that run, ended when they are dropped.
struct Kernels(Vec<Child>);

impl Drop for Kernels {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn start(count: u32, iterations: u64) -> Result<Kernels> {
    let mut kernels = Kernels(Vec::new());
    for _ in 0..count {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(KERNEL).arg(iterations.to_string()).stdin(Stdio::null()).stdout(Stdio::piped());
        kernels.0.push(end_with_us(&mut command).spawn().context("cannot start a kernel")?);
    }
    Ok(kernels)
}

impl Kernels {
    /// Waits for their ends; for each node its operations a second, of the iterations within `window`. Each prints only
    /// after its last iteration, so nothing fills up while another is waited for.
    fn rates(mut self, window: &Window) -> Result<Vec<f64>> {
        let rate = |child: Child| {
            let output = child.wait_with_output()?;
            ensure!(output.status.success(), "a node's kernel failed: {}", output.status);
            rate(&String::from_utf8_lossy(&output.stdout), window)
        };
        std::mem::take(&mut self.0).into_iter().map(rate).collect()
    }
}

/// Operations a second, of what a kernel printed.
fn rate(lines: &str, window: &Window) -> Result<f64> {
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
    let work = work.context("a node's kernel reported no work")?;
    ensure!(count > 0, "a node's kernel completed no iteration while the pool was read; give a longer --duration");
    Ok(work * f64::from(count) * 1e9 / ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_iterations_within_read_window_count() {
        let lines = r#"{"metric":"iteration","unit":"ns","t":100,"v":50}
{"metric":"iteration","unit":"ns","t":200,"v":100}
{"metric":"iteration","unit":"ns","t":300,"v":300}
{"metric":"work","unit":"flop","v":7}
{"verified":true,"by":"it"}"#;
        let rate = |window: Window| rate(lines, &window).ok();
        assert_eq!(rate(0..u64::MAX), Some(7.0 * 3.0 * 1e9 / 450.0));
        assert_eq!(rate(150..400), Some(7.0 * 1e9 / 100.0));
        assert_eq!(rate(700..800), None);
    }
}
