//! The layout of a fleet too large to make here: `fathom-sql simulate`, which no manual mentions. `scripts/fleet-million` measures with
//! it.
//!
//! A real fleet gives the rows and bytes per archive in each table. From that, the layout of this many archives is made as `add` and `gc`
//! would leave it: the checkpoint with every file and run, and the files themselves, of the right size and without content (a hole takes
//! no space). The costs of opening, listing and planning are then really measured; those of reading are calculated.

use crate::fleets::log::Fleet;
use anyhow::{Context as _, Result, bail, ensure};
use fleet::commits::{self, DataFile, State};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// What is made.
#[derive(Debug, clap::Args)]
pub struct Simulate {
    /// Directory to create; it must not exist
    pub directory: PathBuf,
    /// Directory with a real fleet, whose archives are the model for the others
    pub sample: String,
    /// Archives
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub archives: u64,
    /// Days to spread them over
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=20_000))]
    pub days: u64,
}

/// 2026-12-03.
const FIRST_DAY: u64 = 20_790;

/// Makes the layout.
///
/// # Errors
/// The sample is not a fleet, or the directory cannot be written.
pub fn run(args: &Simulate) -> Result<()> {
    let sample = crate::ask::runtime(0)?.block_on(Fleet::open(&args.sample))?;
    let have = sample.state.runs.len() as u64;
    ensure!(have > 0, "{} has no archives", args.sample);
    if args.directory.exists() {
        bail!("{} already exists", args.directory.display());
    }
    let mut tables: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for file in sample.state.files.values() {
        let sum = tables.entry(&file.table).or_default();
        (sum.0, sum.1) = (sum.0 + file.rows, sum.1 + file.bytes);
    }
    fs::create_dir(&args.directory).with_context(|| format!("creating {}", args.directory.display()))?;
    let mut state = State { last: 64, ..State::default() };
    for run in 0..args.archives {
        state.runs.insert(format!("{:016x}", run.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    for day in 0..args.days {
        let date = model::text::date((FIRST_DAY + day) * 86_400_000_000_000).chars().take(10).collect::<String>();
        let share = |whole: u64| whole * (day + 1) / args.days - whole * day / args.days;
        let count = share(args.archives);
        for (table, (rows, bytes)) in &tables {
            let of =
                |sum: u64| u64::try_from(u128::from(sum) * u128::from(count) / u128::from(have)).unwrap_or(u64::MAX);
            let (rows, bytes) = (of(*rows), of(*bytes));
            let files = bytes.div_ceil(sample.info.file_bytes.max(1)).max(1);
            for n in 0..files {
                let part = |whole: u64| whole * (n + 1) / files - whole * n / files;
                add_archive(&args.directory, &mut state, table, &date, (day, n), part(rows), part(bytes))?;
            }
        }
    }
    let files = state.files.len();
    write_file(&args.directory, commits::INFO_FILE_NAME, &serde_json::to_vec(&sample.info)?)?;
    let checkpoint = serde_json::to_vec(&state.to_checkpoint())?;
    write_file(&args.directory, &commits::checkpoint_path(state.last), &checkpoint)?;
    let summary = serde_json::json!({"archives": args.archives, "files": files, "checkpoint_bytes": checkpoint.len(),
        "rows": state.files.values().map(|file| file.rows).sum::<u64>(),
        "bytes": state.files.values().map(|file| file.bytes).sum::<u64>()});
    Ok(std::io::Write::write_all(&mut std::io::stdout(), format!("{summary}\n").as_bytes())?)
}

fn add_archive(
    directory: &Path,
    state: &mut State,
    table: &str,
    date: &str,
    (day, n): (u64, u64),
    rows: u64,
    bytes: u64,
) -> Result<()> {
    let path = format!("{}/part-{day:05}-{n:05}.parquet", commits::data_directory(table, date));
    let to = directory.join(&path);
    fs::create_dir_all(to.parent().unwrap_or(directory)).with_context(|| format!("creating {}", to.display()))?;
    fs::File::create_new(&to)
        .and_then(|file| file.set_len(bytes))
        .with_context(|| format!("creating {}", to.display()))?;
    let (table, date, table_version) = (table.to_string(), date.to_string(), model::table::TABLE_VERSION);
    let file = DataFile { path: path.clone(), table, date, rows, bytes, table_version, sum: 0 };
    state.files.insert(path, file);
    Ok(())
}

fn write_file(directory: &Path, path: &str, bytes: &[u8]) -> Result<()> {
    let to = directory.join(path);
    fs::create_dir_all(to.parent().unwrap_or(directory))?;
    fs::write(&to, bytes).with_context(|| format!("writing {}", to.display()))
}
