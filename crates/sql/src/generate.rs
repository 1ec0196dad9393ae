//! Makes many recordings out of a few real ones, for measuring and testing fleets: `fathom-sql generate`, which no manual
//! mentions.
//!
//! A recording's times are stretched by a factor that depends on its device and its day, its settings vary, everything else is as
//! recorded. So sizes, texts and links are real, and every number that a query finds is known from the seed.

use anyhow::{Context as _, Result};
use archive::{Archive, Meta, TablesWriter};
use model::table::*;
use std::path::{Path, PathBuf};

/// What is made.
#[derive(Debug, clap::Args)]
pub struct Generate {
    /// Directory to create; it must not exist
    pub directory: PathBuf,
    /// Real archives, taken in turn
    #[arg(required = true)]
    pub sources: Vec<PathBuf>,
    /// Seed of the random numbers
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Archives to make
    #[arg(long, default_value_t = 100)]
    pub count: u64,
    /// Number of devices
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    pub devices: u64,
    /// Number of days
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u64).range(1..))]
    pub days: u64,
    /// Day from which every second device is slower by a third [default: the last]
    #[arg(long)]
    pub worse_from: Option<u64>,
}

/// 2026-12-03, after the samples that tests add to them.
const FIRST_DAY: u64 = 20_790;
const DAY_NS: u64 = 86_400_000_000_000;

/// SplitMix64: always the same numbers.
fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What distinguishes one archive from its source.
struct Change {
    /// Its times are scaled by this many thousandths.
    stretch: u64,
    /// The facts of the device.
    setting: u64,
}

impl Change {
    fn time(&self, ns: u64) -> u64 {
        u64::try_from(u128::from(ns) * u128::from(self.stretch) / 1000).unwrap_or(u64::MAX)
    }
}

/// Makes the recordings.
pub fn run(args: &Generate) -> Result<()> {
    std::fs::create_dir(&args.directory).with_context(|| format!("creating {}", args.directory.display()))?;
    let sources = args.sources.iter().map(|dir| Ok(Archive::open(dir)?)).collect::<Result<Vec<_>>>()?;
    for n in 0..args.count {
        let source = &sources[(n % sources.len() as u64) as usize];
        let random = mix(args.seed ^ mix(n));
        let (device, day) = (mix(random) % args.devices, mix(random ^ 1) % args.days);
        let directory = args.directory.join(format!("device=shelf-{device:03}"));
        std::fs::create_dir_all(&directory)?;
        // A device has a speed; from some day on half of them are slower by a third.
        let worse = day >= args.worse_from.unwrap_or(args.days - 1) && device % 2 == 0;
        let stretch = (800 + mix(args.seed ^ device) % 400 + random % 50) * if worse { 4 } else { 3 } / 3;
        let change = Change { stretch, setting: device % 3 };
        let at = (FIRST_DAY + day) * DAY_NS + random % DAY_NS;
        make_archive(source, &directory.join(format!("{n:06}.fathom")), at, &change)?;
    }
    Ok(())
}

fn make_archive(source: &Archive, to: &Path, at: u64, change: &Change) -> Result<()> {
    let mut meta = Meta::new(source.meta().kind, at, source.meta().command.clone());
    (meta.complete, meta.linked, meta.boot) = (true, true, source.meta().boot.clone());
    Archive::create(to, &meta, false)?;
    for log in [archive::log::path(source.dir()), archive::runs::path(source.dir())] {
        if let Some(name) = log.file_name().filter(|_| log.is_file()) {
            std::fs::copy(&log, to.join(name))?;
        }
    }
    let mut tables = TablesWriter::create(to)?;
    let out = &mut tables;
    copy_rows(source, out, |row: &mut Operation| {
        row.start_ns = change.time(row.start_ns);
        row.end_ns = row.end_ns.map(|end| change.time(end));
        row.inside_ns = change.time(row.inside_ns);
    })?;
    copy_rows(source, out, |row: &mut Span| {
        row.start_ns = change.time(row.start_ns);
        row.end_ns = row.end_ns.map(|end| change.time(end));
    })?;
    copy_rows(source, out, |row: &mut Slice| {
        (row.start_ns, row.end_ns) = (change.time(row.start_ns), change.time(row.end_ns));
    })?;
    copy_rows(source, out, |row: &mut DriverCommand| {
        row.start_ns = change.time(row.start_ns);
        row.end_ns = row.end_ns.map(|end| change.time(end));
    })?;
    copy_rows(source, out, |row: &mut FactRow| {
        if row.name == "fs.ext4.commit_interval" {
            row.value = Some((5 * (1 + change.setting)).to_string());
        }
    })?;
    copy_rows(source, out, |row: &mut Sample| row.value = row.value * change.stretch as f64 / 1000.0)?;
    copy_rows(source, out, |_: &mut Shape| {})?;
    copy_rows(source, out, |_: &mut Link| {})?;
    copy_rows(source, out, |_: &mut TraceContext| {})?;
    copy_rows(source, out, |_: &mut StatementCounters| {})?;
    copy_rows(source, out, |_: &mut Cause| {})?;
    copy_rows(source, out, |_: &mut File| {})?;
    copy_rows(source, out, |_: &mut Process| {})?;
    copy_rows(source, out, |_: &mut Disk| {})?;
    copy_rows(source, out, |_: &mut LossRow| {})?;
    copy_rows(source, out, |_: &mut CheckRow| {})?;
    copy_rows(source, out, |_: &mut Coverage| {})?;
    copy_rows(source, out, |_: &mut DesignRow| {})?;
    copy_rows(source, out, |_: &mut DesignCell| {})?;
    copy_rows(source, out, |_: &mut Replicate| {})?;
    copy_rows(source, out, |_: &mut MarkRow| {})?;
    Ok(tables.finish()?)
}

fn copy_rows<T: Row>(source: &Archive, out: &mut TablesWriter, change: impl Fn(&mut T)) -> Result<()> {
    for mut row in source.rows::<T>()? {
        change(&mut row);
        out.push(&row)?;
    }
    Ok(())
}
