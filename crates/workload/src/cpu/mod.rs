//! The processor benchmarks of the papers (000, section 4.2): LINPACK, SciMark 2 and Himeno, each in C, Rust and Java
//! from one definition.
//!
//! How the code is executed is a parameter, `--mode`, and it is proven in the process that measures: see [`native`] for C, [`rust`] for
//! Rust, `java/src/fathom/proof` for a JVM, and [`crate::art`] for Android's runtime. The proof is printed as the mark `mode`; a proof that
//! contradicts the mode is a failure. Every result is checked before and after the timed iterations, and each timed iteration as far as
//! possible.
//!
//! The inputs, the order of every operation and the sums are the same in the three languages, so that their results are
//! the same to the last bit; only `c-fast` may use other arithmetic, and is labelled as not comparable.

mod checksum;
mod himeno;
mod linpack;
mod native;
mod rust;
mod scimark;
mod series;

use crate::options::{Options, Spec};
use crate::{Error, UnprovenMode, check_cancelled, clock, write_sample};
use crate::{art, jvm};
use model::Context;
use native::Level;
use serde_json::json;
use series::{IterationTime, Load};
use std::io::Write;
use std::path::PathBuf;

/// Compiled kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Native {
    /// C at an optimisation level.
    C(Level),
    /// Rust, as compiled into this program.
    Rust,
}

/// The modes of compiled code.
pub const NATIVE_MODES: [&str; 5] = ["c-O0", "c-O2", "c-O3", "c-fast", "rust"];

impl Native {
    /// Returns the mode of that name.
    pub fn from_mode(mode: &str) -> Option<Self> {
        Some(match mode {
            "c-O0" => Self::C(Level::O0),
            "c-O2" => Self::C(Level::O2),
            "c-O3" => Self::C(Level::O3),
            "c-fast" => Self::C(Level::Fast),
            "rust" => Self::Rust,
            _ => return None,
        })
    }

    /// Whether its arithmetic gives the known bits.
    pub fn is_exact(self) -> bool {
        self != Self::C(Level::Fast)
    }

    /// See [`Level::proof`] and [`rust::proof`].
    ///
    /// # Errors
    /// The contradiction.
    pub fn proof(self) -> Result<String, UnprovenMode> {
        match self {
            Self::C(level) => level.proof(),
            Self::Rust => rust::proof(),
        }
    }

    fn himeno(self, arrays: &mut [f32], size: [usize; 3], steps: u64) -> f32 {
        match self {
            Self::C(level) => level.himeno(arrays, size, steps),
            Self::Rust => rust::himeno::himeno(arrays, size, steps),
        }
    }

    fn linpack(self, a: &mut [f64], stride: usize, pivot: &mut [i32], b: &mut [f64]) -> bool {
        match self {
            Self::C(level) => level.linpack(a, stride, pivot, b),
            Self::Rust => rust::linpack::linpack(a, stride, pivot, b),
        }
    }

    fn fft(self, data: &mut [f64], direction: i32) {
        match self {
            Self::C(level) => level.fft(data, direction),
            Self::Rust => rust::scimark::fft(data, direction),
        }
    }

    fn fft_pairs(self, data: &mut [f64], pairs: u64) {
        match self {
            Self::C(level) => level.fft_pairs(data, pairs),
            Self::Rust => rust::scimark::fft_pairs(data, pairs),
        }
    }

    fn sor(self, grid: &mut [f64], n: usize, omega: f64, steps: u64) {
        match self {
            Self::C(level) => level.sor(grid, n, omega, steps),
            Self::Rust => rust::scimark::sor(grid, n, omega, steps),
        }
    }

    fn montecarlo(self, seed: i32, samples: u64) -> u64 {
        match self {
            Self::C(level) => level.montecarlo(seed, samples),
            Self::Rust => rust::scimark::montecarlo(seed, samples),
        }
    }

    fn sparse(self, y: &mut [f64], values: &[f64], rows: &[i32], columns: &[i32], x: &[f64], times: u64) {
        match self {
            Self::C(level) => level.sparse(y, values, rows, columns, x, times),
            Self::Rust => rust::scimark::sparse(y, values, rows, columns, x, times),
        }
    }

    fn lu(self, a: &[f64], factors: &mut [f64], pivot: &mut [i32], times: u64) -> bool {
        match self {
            Self::C(level) => level.lu(a, factors, pivot, times),
            Self::Rust => rust::scimark::lu(a, factors, pivot, times),
        }
    }
}

const MODE_OPTION: Spec = Spec {
    name: "mode",
    default: "c-O2",
    help: "c-O0, c-O2, c-O3, c-fast (-O3 -ffast-math: not comparable), rust, jvm-int, jvm-c1, jvm-c2, jvm-tiered, or on \
           Android art-interpreter, art-jit, art-aot",
};
const ITERATIONS_OPTION: Spec = Spec { name: "iterations", default: "30", help: "timed iterations" };
const ITERATION_MS_MIN_OPTION: Spec = Spec {
    name: "min-iteration-ms",
    default: series::DEFAULT_MIN_MS,
    help: "double the units per iteration until one takes this long",
};
const JAVA_OPTION: Spec = Spec { name: "java", default: "java", help: "path of java, for the modes jvm-*" };
const ART_OPTION: Spec = Spec {
    name: "art",
    default: "",
    help: "path of the Android runtime, for the modes art-* [dalvikvm64, dalvikvm or app_process on PATH]",
};

const HIMENO_OPTIONS: &[Spec] = &[
    MODE_OPTION,
    Spec { name: "size", default: "S", help: "XS, S, M, L (1.9 GB) or XL (15.1 GB)" },
    ITERATIONS_OPTION,
    Spec { name: "inner", default: "0", help: "steps per iteration; 0: automatic" },
    ITERATION_MS_MIN_OPTION,
    JAVA_OPTION,
    ART_OPTION,
    art::DEX_JAR_OPTION,
];
const LINPACK_OPTIONS: &[Spec] = &[
    MODE_OPTION,
    Spec { name: "size", default: "500", help: "equations; the benchmark's are 100, 200, 500 and 1000" },
    ITERATIONS_OPTION,
    Spec { name: "inner", default: "0", help: "solutions per iteration; 0: automatic" },
    ITERATION_MS_MIN_OPTION,
    JAVA_OPTION,
    ART_OPTION,
    art::DEX_JAR_OPTION,
];
const SCIMARK_OPTIONS: &[Spec] = &[
    MODE_OPTION,
    Spec { name: "kernel", default: "composite", help: "fft, sor, montecarlo, sparse, lu, or composite (all of them)" },
    Spec { name: "size", default: "small", help: "tiny, small or large: the published sizes" },
    ITERATIONS_OPTION,
    Spec { name: "inner", default: "0", help: "units per iteration (composite: a million flop of each); 0: automatic" },
    ITERATION_MS_MIN_OPTION,
    JAVA_OPTION,
    ART_OPTION,
    art::DEX_JAR_OPTION,
];

/// Options, the table they come from, and its description.
fn options_of(name: &str) -> (&'static str, &'static [Spec]) {
    match name {
        "himeno" => {
            ("Himeno's benchmark: Jacobi's method on a grid, single precision, 34 flop a point.", HIMENO_OPTIONS)
        }
        "linpack" => ("LINPACK: a dense system of equations, 2/3 n^3 + 2 n^2 flop.", LINPACK_OPTIONS),
        _ => ("SciMark 2: five kernels in double precision.", SCIMARK_OPTIONS),
    }
}

/// The parameters of a processor benchmark.
#[derive(Debug)]
struct Parameters {
    name: &'static str,
    mode: String,
    kernel: String,
    size: String,
    iterations: u64,
    /// 0: to be determined.
    inner: u64,
    min_ms: u64,
    java: String,
    art: String,
    dex_jar: PathBuf,
}

impl Parameters {
    fn parse(name: &'static str, words: &[String]) -> Result<Self, Error> {
        let (about, specs) = options_of(name);
        let options = Options::parse(about, specs, words)?;
        let modes: Vec<&str> =
            NATIVE_MODES.into_iter().chain(jvm::MODES.map(|m| m.0)).chain(art::MODES.map(|m| m.0)).collect();
        let mode = options.one_of("mode", &modes)?.to_string();
        let kernel = match name {
            "scimark" => options.one_of("kernel", &[&scimark::KERNEL_NAMES[..], &["composite"]].concat())?,
            _ => name,
        };
        let size = match name {
            "himeno" => options.one_of("size", &himeno::SIZES.map(|s| s.name))?.to_string(),
            "scimark" => options.one_of("size", &scimark::SIZES.map(|s| s.0))?.to_string(),
            _ => linpack::parse_order(options.text("size")).map_err(|e| Error::Usage(e.to_string()))?.to_string(),
        };
        let iterations = options.get("iterations")?;
        let (inner, min_ms) = (options.get("inner")?, options.get("min-iteration-ms")?);
        if !(1..=10_000_000).contains(&iterations) || inner > series::INNER_MAX || min_ms > 3_600_000 {
            let most = series::INNER_MAX;
            return Err(Error::Usage(format!(
                "--iterations is 1 to 10000000, --inner at most {most}, --min-iteration-ms at most 3600000"
            )));
        }
        let (java, art) = (options.text("java").to_string(), options.text("art").to_string());
        let dex_jar = options.text("dex-jar").into();
        Ok(Self { name, mode, kernel: kernel.into(), size, iterations, inner, min_ms, java, art, dex_jar })
    }

    /// The kernels to run: one, or SciMark's five.
    fn kernels(&self) -> Vec<&str> {
        if self.kernel == "composite" { scimark::KERNEL_NAMES.to_vec() } else { vec![&self.kernel] }
    }

    /// The size, which has been validated.
    fn himeno_size(&self) -> himeno::Size {
        himeno::SIZES.into_iter().find(|s| s.name == self.size).unwrap_or(himeno::SIZES[1])
    }

    fn load(&self, native: Native, kernel: &str) -> Result<Box<dyn Load>, Error> {
        Ok(match self.name {
            "himeno" => {
                Box::new(himeno::Himeno::new(native, self.himeno_size()).map_err(|e| Error::Failed(e.to_string()))?)
            }
            "linpack" => {
                let n = linpack::parse_order(&self.size).map_err(|e| Error::Usage(e.to_string()))?;
                Box::new(linpack::Linpack::new(native, n))
            }
            _ => scimark::load(native, kernel, &self.size),
        })
    }
}

/// Runs a processor benchmark; a `jvm-*` mode becomes a JVM and does not return, an `art-*` mode runs Android's runtime.
///
/// # Errors
/// See [`Error`]. A wrong result prints `"verified":false` and is [`Error::Failed`].
pub fn run(name: &'static str, words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let parameters = Parameters::parse(name, words)?;
    let Some(native) = Native::from_mode(&parameters.mode) else { return run_in_java(&parameters, context, out) };
    let proof = native.proof().map_err(|e| Error::Failed(format!("this build is not {}: {e}", parameters.mode)))?;
    let label = if native.is_exact() { "" } else { " (another arithmetic: not comparable with the other modes)" };
    let kernels = parameters.kernels();
    let loads: Result<Vec<_>, _> = kernels.iter().map(|k| parameters.load(native, k)).collect();
    let mut series = Series::new(&parameters, loads?);
    let measured = series.run(context);
    // Only now, so that a slow reader of our output cannot disturb the timed part.
    write_mark(out, "mode", &format!("{}{label}: {proof}", parameters.mode))?;
    match measured {
        Ok(by) => {
            series.print(&kernels, out)?;
            write_verdict(out, true, &by)?;
            out.flush()?;
            Ok(())
        }
        Err(Error::Failed(why)) => {
            write_verdict(out, false, &why)?;
            out.flush()?;
            Err(Error::Failed(format!("{name}: wrong result: {why}")))
        }
        Err(other) => Err(other),
    }
}

/// Prints a fact of the run.
fn write_mark(out: &mut dyn Write, name: &str, text: &str) -> std::io::Result<()> {
    writeln!(out, "{}", json!({"mark": name, "text": text}))
}

fn write_verdict(out: &mut dyn Write, right: bool, by: &str) -> std::io::Result<()> {
    writeln!(out, "{}", json!({"verified": right, "by": by}))
}

/// The timed iterations of one kernel, or of five in turn.
struct Series<'a> {
    parameters: &'a Parameters,
    loads: Vec<Box<dyn Load>>,
    inner: u64,
    /// By iteration, then by kernel.
    times: Vec<Vec<IterationTime>>,
    results: Vec<String>,
}

impl<'a> Series<'a> {
    fn new(parameters: &'a Parameters, loads: Vec<Box<dyn Load>>) -> Self {
        Self { parameters, loads, inner: parameters.inner, times: Vec::new(), results: Vec::new() }
    }

    /// Checks, sizes, measures and checks again. Returns a description of the checks.
    fn run(&mut self, context: &Context) -> Result<String, Error> {
        let mut now = clock::now_ns;
        let before: Result<Vec<_>, _> = self.loads.iter_mut().map(|l| l.check()).collect();
        let before = before?;
        if self.inner == 0 {
            let min_ns = self.parameters.min_ms * 1_000_000;
            self.inner = series::size_iteration(&mut self.loads, min_ns, context, &mut now)?;
        }
        let units: Vec<u64> = series::shares(&self.loads).iter().map(|share| share * self.inner).collect();
        for _ in 0..self.parameters.iterations {
            check_cancelled(context)?;
            let each = self.loads.iter_mut().zip(&units);
            let times: Result<Vec<_>, _> = each.map(|(load, units)| load.run(*units, &mut now)).collect();
            self.times.push(times?);
        }
        for load in &mut self.loads {
            self.results.push(load.check_data()?);
        }
        let after: Result<Vec<_>, _> = self.loads.iter_mut().map(|l| l.check()).collect();
        if after? != before {
            return Err(Error::Failed("the checks before and after the iterations differ".into()));
        }
        Ok(format!("{}; the same before and after the iterations", before.join("; ")))
    }

    fn print(&self, kernels: &[&str], out: &mut dyn Write) -> std::io::Result<()> {
        write_mark(out, "inner", &self.inner.to_string())?;
        write_mark(out, "result", &self.results.join("; "))?;
        let shares = series::shares(&self.loads);
        let work = self.loads.iter().zip(shares).map(|(l, share)| l.flop() * (share * self.inner) as f64);
        let work: Vec<f64> = work.collect();
        let now = clock::now_ns();
        if let [work] = work[..] {
            write_sample(out, "work", "flop", now, work)?;
            for time in self.times.iter().flatten() {
                write_sample(out, "iteration", "ns", time.start_ns, time.duration_ns as f64)?;
            }
            return Ok(());
        }
        for (kernel, work) in kernels.iter().zip(&work) {
            write_sample(out, &format!("work.{kernel}"), "flop", now, *work)?;
        }
        write_sample(out, "work", "flop", now, work.iter().sum())?;
        for times in &self.times {
            for (kernel, time) in kernels.iter().zip(times) {
                write_sample(out, &format!("iteration.{kernel}"), "ns", time.start_ns, time.duration_ns as f64)?;
            }
            let start_ns = times.first().map_or(0, |t| t.start_ns);
            write_sample(out, "iteration", "ns", start_ns, composite_ns(&work, times))?;
        }
        Ok(())
    }
}

/// The composite is the mean of the five rates. For it to be work over time, as everywhere else, its time is the one
/// that all the work would take at that mean rate.
fn composite_ns(work: &[f64], times: &[IterationTime]) -> f64 {
    let rates = work.iter().zip(times).map(|(w, t)| w / t.duration_ns.max(1) as f64);
    work.iter().sum::<f64>() / (rates.sum::<f64>() / work.len() as f64)
}

fn run_in_java(parameters: &Parameters, context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let mut words = vec![parameters.name.to_string()];
    let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
    option("iterations", parameters.iterations.to_string());
    option("inner", parameters.inner.to_string());
    option("min-iteration-ms", parameters.min_ms.to_string());
    let mut heap = 64 << 20;
    match parameters.name {
        "himeno" => {
            let size = parameters.himeno_size();
            option("size", size.grid.map(|n| n.to_string()).join(","));
            option("expect", format!("{:08x},{:016x}", size.gosa, size.pressure));
            heap += himeno::bytes(size.grid);
        }
        "linpack" => {
            let n: usize = parameters.size.parse().unwrap_or_default();
            option("size", n.to_string());
            if let Some((_, sum)) = linpack::SOLUTION_CHECKSUMS.iter().find(|(known, _)| *known == n) {
                option("expect", format!("{sum:016x}"));
            }
            heap += 8 * (n * (n + 8)) as u64;
        }
        _ => {
            let (_, size, known) =
                scimark::SIZES.into_iter().find(|s| s.0 == parameters.size).unwrap_or(scimark::SIZES[1]);
            option("kernel", parameters.kernels().join(","));
            option("size", size.map(|n| n.to_string()).join(","));
            option("expect", known.map(|n| format!("{n:x}")).join(","));
            heap +=
                8 * 8 * size.iter().map(|n| *n as u64).sum::<u64>() + 4 * 8 * (size[1].pow(2) + size[4].pow(2)) as u64;
        }
    }
    if heap > available_bytes() {
        let available = available_bytes();
        return Err(Error::Failed(format!("a heap of {heap} bytes is needed, and {available} are available")));
    }
    if art::MODES.iter().any(|(mode, _)| *mode == parameters.mode) {
        let (mode, launcher, jar) = (&parameters.mode, &parameters.art, &parameters.dex_jar);
        return art::run(&art::ModeRequest { mode, launcher, jar, heap, framework: false }, &words, context, out);
    }
    jvm::become_jvm(&parameters.java, &parameters.mode, heap, &words, out)
}

/// Memory available without swapping; unlimited if the kernel does not report it.
fn available_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"));
    let kib: Option<u64> = line.and_then(|l| l.trim().trim_end_matches(" kB").parse().ok());
    kib.map_or(u64::MAX, |k| k * 1024)
}

#[cfg(test)]
mod tests;
