//! `fathom bench`: runs designs and stores what they measured.

use crate::{args, progress, record, show};
use anyhow::{Context as _, Result};
use archive::{Archive, Meta, TablesWriter};
use experiment::{Design, Disk, DiskWanted, Results, Setting, Sink};
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use model::table::{DesignCell, FactRow, Replicate, Row, Sample};
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &args::Bench) -> Result<ExitCode> {
    let context = progress::context(args.json);
    progress::end_on_signal(&context);
    let designs: Vec<Design> = args.designs.iter().map(|path| read(path, args)).collect::<Result<_>>()?;
    let fathom = std::env::current_exe().context("where this program is")?;

    record::keep_old(&args.output, args.json)?;
    let command = std::env::args().collect();
    let mut meta = Meta::new("bench", record::unix_ns(), command);
    Archive::create(&args.output, &meta, true)?;
    let mut tables = Tables { writer: TablesWriter::create(&args.output)?, cells: 0, replicates: 0, base: (0, 0) };

    let mut all = Vec::new();
    for design in &designs {
        let mut make = |wanted: &DiskWanted| make_disk(wanted);
        let mut setting = Setting::new(&fathom, &mut make);
        tables.base = (tables.cells, tables.replicates);
        let results = experiment::run(design, &mut setting, &context, &mut tables)?;
        let complete = results.complete;
        all.push(results);
        if !complete {
            break;
        }
    }
    progress::clear(&context);
    for (name, fact) in device::collect(&device::Local, None) {
        let row = FactRow {
            name,
            value: fact.value,
            unknown: fact.unknown,
            unit: fact.unit,
            source: fact.source,
            varies: fact.varies,
        };
        tables.writer.push(&row)?;
    }
    tables.writer.finish()?;
    meta.complete = all.len() == designs.len() && all.iter().all(|r| r.complete);
    meta.linked = true;
    meta.write(&args.output)?;

    let text: String = all.iter().map(experiment::markdown).collect::<Vec<_>>().join("\n");
    if let Some(path) = &args.markdown {
        std::fs::write(path, page(args, &text)).with_context(|| format!("writing {}", path.display()))?;
    }
    if args.json {
        show::print(&(serde_json::to_string_pretty(&contract(&all))? + "\n"))?;
    } else {
        show::print(&text)?;
    }
    Ok(if meta.complete { ExitCode::SUCCESS } else { ExitCode::from(130) })
}

fn read(path: &Path, args: &args::Bench) -> Result<Design> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let mut design = Design::parse(&path.display().to_string(), &text)?;
    design.blocks = args.blocks.unwrap_or(design.blocks);
    design.seed = args.seed.unwrap_or(design.seed);
    Ok(design)
}

/// The manual's page.
fn page(args: &args::Bench, text: &str) -> String {
    let designs: Vec<String> = args.designs.iter().map(|d| d.display().to_string()).collect();
    format!(
        "# Performance\n\n\
         Made by `make bench`, which runs `fathom bench {} --markdown docs/performance.md`: each command of a design in a\n\
         fresh process, in randomised complete blocks, compared pair by pair with the baseline of the same block. A ratio\n\
         is the median of the pairs with its 95 % bootstrap interval; the row \"again\" is the baseline against itself and shows\n\
         what the machine's noise alone makes.\n\n{text}",
        designs.join(" ")
    )
}

/// `--json`.
fn contract(all: &[Results]) -> Value {
    let designs: Vec<Value> = all
        .iter()
        .map(|results| {
            let cells: Vec<Value> = results
                .comparisons()
                .iter()
                .map(|c| {
                    json!({
                        "cell": c.cell, "median": c.median, "unit": results.unit(), "processes": c.replicates, "failed": c.failed,
                        "ratio": c.ratio.as_ref().map(|r| json!({"estimate": r.value, "ci95": [r.low, r.high], "pairs": r.n})),
                        "absent": c.absent,
                    })
                })
                .collect();
            json!({"design": results.design.name, "question": results.design.question, "seed": results.design.seed,
                   "complete": results.complete, "results": cells})
        })
        .collect();
    json!({"version": 1, "designs": designs})
}

/// A design's rows go into one archive; a second design's numbers begin where the first's ended.
struct Tables {
    writer: TablesWriter,
    cells: u64,
    replicates: u64,
    base: (u64, u64),
}

type Stored = Result<(), Box<dyn std::error::Error + Send + Sync>>;

impl Tables {
    fn put<T: Row>(&mut self, row: &T) -> Stored {
        Ok(self.writer.push(row)?)
    }
}

impl Sink for Tables {
    fn cell(&mut self, row: &DesignCell) -> Stored {
        let row = DesignCell { id: self.base.0 + row.id, ..row.clone() };
        self.cells = self.cells.max(row.id + 1);
        self.put(&row)
    }
    fn replicate(&mut self, row: &Replicate) -> Stored {
        let row = Replicate { id: self.base.1 + row.id, cell: self.base.0 + row.cell, ..row.clone() };
        self.replicates = self.replicates.max(row.id + 1);
        self.put(&row)
    }
    fn sample(&mut self, row: &Sample) -> Stored {
        let row = Sample { replicate: row.replicate.map(|r| self.base.1 + r), ..row.clone() };
        self.put(&row)
    }
}

struct RamDisk(LoopDisk);

impl Disk for RamDisk {
    fn path(&self) -> &Path {
        self.0.path()
    }
    fn device(&self) -> &Path {
        self.0.device()
    }
}

fn make_disk(wanted: &DiskWanted) -> Result<Box<dyn Disk>, String> {
    if wanted.kind != "loop-ram-ext4" {
        return Err(format!("there is no disk of the kind {}; there is: loop-ram-ext4", wanted.kind));
    }
    let disk = LoopDisk::create(wanted.size_mib << 20, FileSystem::Ext4, &Backing::Ram, &Options::default())
        .map_err(|e| format!("a disk in memory cannot be made: {e} (it needs root)"))?;
    Ok(Box::new(RamDisk(disk)))
}
