//! Random access (paper 001, chapter 2): blocks of 1 byte to 16 KiB at uniformly distributed offsets of a file of 10 GB,
//! from 1 to 32 threads.
//!
//! [`engine`] transfers the blocks, [`worker`] is the work of a thread, [`file`] is the file. An iteration is a fixed number
//! of transactions, distributed evenly over the threads; its time is from the first thread's first to the last thread's
//! last. Before each iteration of reads the state of the cache is restored, since the previous iteration has read pages in.

mod aio;
mod engine;
mod file;
mod queue;
mod worker;

use super::directory::{Account, Directory};
use super::files::RunDirectory;
use super::io_error::{self, on};
use super::iterations::{self, INNER_OPTION, ITERATION_MS_MIN_OPTION};
use super::lines::Lines;
use super::pattern::Pattern;
use super::state::{Cache, State, evict};
use crate::options::{Options, Spec};
use crate::{Error, check_cancelled};
use engine::Engine;
use hdrhistogram::Histogram;
use model::Context;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use worker::{Plan, SAMPLED_CHECK_STRIDE, Verify, WHOLE_CHECK_STRIDE};

const HELP_SUMMARY: &str = "Reads or writes of small blocks at random offsets in a large file (paper 001, chapter 2).";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "op", default: "read", help: "read or write" },
    Spec {
        name: "state",
        default: "",
        help: "read: cold, dropped (root), direct, warm; write: buffered (not synced), synced (at an iteration's end), each \
               (every write), direct [the first]",
    },
    Spec { name: "engine", default: "psync", help: "psync (pread, pwrite), libaio or io_uring" },
    Spec { name: "depth", default: "1", help: "transactions in flight per thread, for libaio and io_uring" },
    Spec {
        name: "batch",
        default: "1",
        help: "transactions submitted per system call (fio: 1); 0: as many as possible",
    },
    Spec { name: "file-size", default: "10G", help: "size of the file, in bytes" },
    Spec { name: "block", default: "4K", help: "bytes per transaction (the paper: 1 to 16K)" },
    Spec { name: "align", default: "0", help: "alignment of the offsets; 0: the block size" },
    Spec { name: "threads", default: "1", help: "number of threads (the paper: 1 to 32)" },
    Spec { name: "iterations", default: "10", help: "timed iterations of --inner transactions" },
    INNER_OPTION,
    ITERATION_MS_MIN_OPTION,
    Spec {
        name: "verify",
        default: "",
        help: "verification of the blocks read: whole, edges (first and last 8 bytes; every 64th block whole), or \
            sampled (every 256th block whole) [edges; with --state warm, sampled]",
    },
    Spec {
        name: "latency-every",
        default: "0",
        help: "measure the latency of every Nth transaction; 0: of all, or of every 64th where the clock would cost \
            more than 1 % (--state warm, buffered)",
    },
    Spec {
        name: "file",
        default: "",
        help: "for reads: a file to lay out, or reuse if it exists, and keep [a temporary one in --dir]",
    },
    Spec { name: "seed", default: "2014", help: "seed of the random offsets" },
    Spec { name: "dir", default: ".", help: "directory for the file" },
];

/// The parameters of a run.
#[derive(Debug, Clone)]
struct Parameters {
    writes: bool,
    state: State,
    engine: Engine,
    depth: usize,
    file_size: u64,
    block: usize,
    align: u64,
    threads: u64,
    iterations: u64,
    batch: usize,
    verify: Verify,
    /// 0: depends on the state.
    latency_stride: u64,
    kept_file: Option<PathBuf>,
    seed: u64,
    dir: PathBuf,
}

impl Parameters {
    fn parse(options: &Options) -> Result<Self, Error> {
        let (writes, state) = State::parse(options, &["synced", "buffered", "each", "direct"])?;
        let between = |name: &str, low: u64, high: u64| match options.bytes(name)? {
            n if (low..=high).contains(&n) => Ok(n),
            n => Err(Error::Usage(format!("--{name} must lie between {low} and {high}; it is {n}"))),
        };
        let block = between("block", 1, 1 << 26)?;
        let file_size = between("file-size", 1, 1 << 60)?;
        if file_size < block {
            return Err(Error::Usage(format!("--file-size {file_size} is smaller than a --block of {block} bytes")));
        }
        let align = match between("align", 0, 1 << 40)? {
            0 => block,
            n => n,
        };
        let engine = Engine::parse(options.one_of("engine", engine::ENGINE_NAMES)?);
        let depth = between("depth", 1, 4096)?;
        if engine == Engine::Psync && depth > 1 {
            return Err(Error::Usage(
                "--depth is for --engine libaio and io_uring; psync has one in flight, use --threads".into(),
            ));
        }
        if engine != Engine::Psync && state == State::Each {
            return Err(Error::Usage("--state each is for --engine psync only".into()));
        }
        let verify = match options.text("verify") {
            "" if state == State::Warm => Verify::Sampled,
            "" => Verify::Edges,
            _ => Verify::parse(options.one_of("verify", &["whole", "edges", "sampled"])?),
        };
        let kept = Some(options.text("file")).filter(|f| !f.is_empty()).map(PathBuf::from);
        if writes && kept.is_some() {
            return Err(Error::Usage("--file is for reads; writes use a new file each time (--dir)".into()));
        }
        Ok(Self {
            writes,
            state,
            engine,
            depth: depth as usize,
            file_size,
            block: block as usize,
            align,
            threads: between("threads", 1, 4096)?,
            iterations: iterations::count(options)?,
            batch: match between("batch", 0, 4096)? {
                0 => depth as usize,
                n => n as usize,
            },
            verify,
            latency_stride: between("latency-every", 0, 1 << 32)?,
            kept_file: kept,
            seed: options.get("seed")?,
            dir: options.text("dir").into(),
        })
    }
}

/// Runs the workload with `words` as its options.
///
/// # Errors
/// See [`Error`]; the file is removed in any case, except one that was named.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
    let parameters = Parameters::parse(&options)?;
    // Every thread has the same number of transactions.
    let inner = options.get::<u64>("inner")?.checked_next_multiple_of(parameters.threads);
    let inner = inner.ok_or_else(|| Error::Usage("--inner is too large".into()))?;
    options.get::<u64>("min-iteration-ms")?;
    let lines = match &parameters.kept_file {
        Some(path) => {
            let place = Directory::new(path.parent().filter(|p| *p != Path::new("")).unwrap_or(Path::new(".")))?;
            parameters.state.check_block(parameters.align.min(parameters.block as u64), place.logical_block())?;
            file::ensure_laid_out(path, parameters.file_size, &place, context)?;
            Run { p: &parameters, options: &options, path, place: &place, context }.execute(inner)?
        }
        None => {
            let place = Directory::new(&parameters.dir)?;
            parameters.state.check_block(parameters.align.min(parameters.block as u64), place.logical_block())?;
            place.check_space(parameters.file_size, "--file-size")?;
            let directory = RunDirectory::new(place.path(), "random")?;
            let path = directory.path().join("file");
            let result = file::lay_out(&path, parameters.file_size, context).and_then(|()| {
                Run { p: &parameters, options: &options, path: &path, place: &place, context }.execute(inner)
            });
            directory.end(result)?
        }
    };
    out.write_all(lines.bytes())?;
    Ok(())
}

/// The pattern of writes: different from that of the layout.
fn write_pattern(p: &Parameters) -> Pattern {
    Pattern::stamped(p.seed ^ 0x7772_6974_7465_6e00, p.align.min(p.block as u64).max(1) as usize, p.block.min(16384))
}

struct Run<'a> {
    p: &'a Parameters,
    options: &'a Options,
    path: &'a Path,
    place: &'a Directory,
    context: &'a Context,
}

impl Run<'_> {
    fn execute(&self, inner: u64) -> Result<Lines, Error> {
        let p = self.p;
        let mut lines = Lines::default();
        self.place.marks(&mut lines);
        lines.mark("state", format!("{:?}", p.state).to_lowercase());
        lines.mark("engine", p.engine.name());
        let cores = std::thread::available_parallelism().map_or(0, usize::from) as u64;
        lines.mark("threads", format!("{} on {cores} CPUs", p.threads));
        if p.engine == Engine::Libaio && p.state != State::Direct {
            lines.mark(
                "engine.doubt",
                "libaio moves data through the page cache synchronously: --depth has no effect here",
            );
        }
        let plan = self.plan();
        if p.state == State::Warm {
            file::read_into_cache(self.path, self.context)?;
        }
        let mut cache = Cache::default();
        let mut account = Account::default();
        let parts = worker::run_threads(p.threads, &plan, self.context, |order| {
            let mut one = |n: u64, counts: bool, cache: &mut Cache| -> Result<(u64, u64), Error> {
                if p.writes {
                    // Data left by the previous iteration is written back first.
                    self.sync()?;
                } else {
                    cache.prepare(p.state, &[self.path])?;
                }
                let before = self.place.counters();
                let (begin, end) = order(n / p.threads, counts)?;
                if p.writes {
                    self.sync()?;
                }
                if counts {
                    account.add(before, self.place.counters(), n * p.block as u64);
                }
                Ok((begin, end - begin))
            };
            let inner = match inner {
                0 => iterations::size_iteration(self.options, 16 * p.threads, |n| {
                    one(n, false, &mut Cache::default()).map(|(_, ns)| ns)
                })?,
                n => n,
            };
            lines.mark("inner", inner);
            lines.work("operation", inner);
            let mut total = 0;
            for nth in 0..p.iterations {
                self.context.progress("random", nth, p.iterations);
                let (start, ns) = one(inner, true, &mut cache)?;
                lines.iteration(start, ns);
                total += ns;
            }
            let seconds = total.max(1) as f64 / 1e9;
            let done = inner as f64 * p.iterations as f64;
            lines.sample("transactions", "1/s", done / seconds);
            lines.sample("bandwidth", "KiB/s", done * p.block as f64 / 1024.0 / seconds);
            Ok(())
        })?;
        let (mut all, mut sampled) = (worker::histogram()?, Vec::new());
        for part in parts {
            // The bounds are the same, so it fits.
            let _ = all.add(&part.latencies);
            sampled.extend(part.sampled);
        }
        self.latencies(&all, plan.latency_stride, &mut lines);
        cache.append_to(p.state, account.read_bytes(), account.requested(), &mut lines);
        account.append_to(p.writes, &mut lines);
        lines.verified(if p.writes {
            let n = self.read_back(&plan, sampled)?;
            format!("{n} of the written blocks read back whole, from the disk where its pages can be evicted")
        } else {
            let reads = account.requested() / p.block as u64;
            match p.verify {
                Verify::Edges if p.block > 16 => {
                    format!("the first and last 8 bytes of {reads} reads, of every {WHOLE_CHECK_STRIDE}th every byte")
                }
                Verify::Sampled => {
                    format!("every byte of every {SAMPLED_CHECK_STRIDE}th of {reads} reads; the length of all")
                }
                _ => format!("every byte of {reads} reads"),
            }
        });
        Ok(lines)
    }

    fn plan(&self) -> Plan<'_> {
        let p = self.p;
        Plan {
            path: self.path,
            writes: p.writes,
            state: p.state,
            engine: p.engine,
            depth: p.depth,
            block: p.block,
            align: p.align,
            places: (p.file_size - p.block as u64) / p.align + 1,
            seed: p.seed,
            pattern: if p.writes { write_pattern(p) } else { file::layout_pattern() },
            batch: p.batch,
            verify: p.verify,
            // Two clock readings are a tenth of a read from memory.
            latency_stride: match p.latency_stride {
                0 if matches!(p.state, State::Warm | State::Buffered) => 64,
                0 => 1,
                n => n,
            },
        }
    }

    fn latencies(&self, all: &Histogram<u64>, every: u64, lines: &mut Lines) {
        if every > 1 {
            lines.mark("latency", format!("of every {every}th transaction"));
        }
        for (name, q) in [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99_9", 0.999), ("max", 1.0)] {
            lines.sample(&format!("latency.{name}"), "ns", all.value_at_quantile(q) as f64);
        }
    }

    fn sync(&self) -> Result<(), Error> {
        std::fs::File::open(self.path).and_then(|f| f.sync_all()).map_err(on("sync", self.path))
    }

    /// Reads sampled writes again; returns how many.
    fn read_back(&self, plan: &Plan<'_>, mut places: Vec<u64>) -> Result<usize, Error> {
        let file = std::fs::File::open(self.path).map_err(on("open", self.path))?;
        evict(&file).map_err(on("evict from the page cache", self.path))?;
        places.sort_unstable();
        places.dedup();
        let mut block = vec![0; plan.block];
        for place in &places {
            check_cancelled(self.context)?;
            file.read_exact_at(&mut block, *place).map_err(on("read back", self.path))?;
            if let Some(at) = plan.pattern.wrong(*place, &block) {
                return Err(io_error::wrong_byte(self.path, at));
            }
        }
        Ok(places.len())
    }
}

#[cfg(test)]
mod tests;
