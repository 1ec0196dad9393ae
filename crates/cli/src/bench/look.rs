//! The verbs that look at results: `bench compare`, `bench history`, `bench show`.

use super::{results, store};
use crate::{Usage, args, link, progress, say};
use analysis::bench::comparable::Rules;
use analysis::bench::compare::{self, Compared};
use analysis::bench::results::Bench;
use analysis::bench::{self, Benchmark, Penalty, compared, history};
use anyhow::{Context as _, Result, bail};
use archive::Archive;
use model::counted;
use stats::verdict::Better;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The benchmark in an archive.
pub fn load(path: &Path) -> Result<Bench> {
    let archive = link::open(path, &progress::context(true))?;
    match archive.meta().kind.as_str() {
        "bench" => Ok(Bench::load(&archive, &path.display().to_string())?),
        "net" => bail!("{} is a network run, not a benchmark; `fathom report` makes a page of it", path.display()),
        kind => bail!("{} is a {kind}, not a benchmark; `fathom show` shows it", path.display()),
    }
}

/// The same, with its processes classified as the user wants it.
fn classified(path: &Path, penalty: args::Penalty) -> Result<Bench> {
    let penalty = match penalty {
        args::Penalty::Fixed => Penalty::Fixed,
        args::Penalty::Crops => Penalty::Elbow,
    };
    Ok(Bench { penalty, ..load(path)? })
}

/// The same for a comparison, whose user may want processes that were disturbed to be taken for others.
fn compared_one(path: &Path, args: &args::BenchCompare) -> Result<Bench> {
    let mut bench = classified(path, args.penalty)?;
    if args.even_disturbed {
        bench::disturbed::overlook(&mut bench.tables.replicates);
    }
    Ok(bench)
}

/// Its results; recorded processes are explained.
fn benchmark(path: &Path, penalty: args::Penalty) -> Result<Benchmark> {
    let context = progress::context(true);
    let bench = classified(path, penalty)?;
    Ok(bench::benchmark(&bench.tables, bench.penalty, &|name| results::explain(path, name, &context)))
}

pub fn show(args: &args::BenchShow) -> Result<ExitCode> {
    let benchmark = benchmark(&args.archive, args.penalty)?;
    // The ratios of a comparison follow from its design, which only the log holds.
    let comparisons = store::comparisons(&store::log(&args.archive)?)?;
    let files = results::Files::new(args.csv.as_deref(), args.markdown.as_deref());
    files.print(&match args.json {
        true => results::json(&benchmark, &comparisons, &args.archive)?,
        false => results::text(&benchmark, &comparisons),
    });
    files.write(&benchmark, &comparisons, None)?;
    Ok(ExitCode::SUCCESS)
}

pub fn plan(args: &args::BenchPlan) -> Result<ExitCode> {
    let all = bench::plan::plan(&load(&args.archive)?, args.precision, args.difference);
    say::text(&match args.json {
        true => {
            let value = serde_json::json!({
                "version": 1, "archive": args.archive, "precision": args.precision, "difference": args.difference,
                "results": all,
            });
            serde_json::to_string_pretty(&value)? + "\n"
        }
        false => bench::plan::text(&all, args.precision, args.difference),
    });
    Ok(ExitCode::SUCCESS)
}

/// Writes a page and says so.
pub fn write_page(title: &str, page: &serde_json::Value, output: Option<&Path>, archive: &Path) -> Result<()> {
    let output = output.map_or_else(|| crate::report::beside(archive, "html"), Path::to_path_buf);
    crate::atomic_file::text(&output, &report::bench_page(title, page))?;
    println!("{}: open it in a browser; it needs no network", output.display());
    Ok(())
}

/// `fathom report` of a benchmark, or of two: the second is shown, with the first beside it.
pub fn report(archives: &[PathBuf], output: Option<&Path>) -> Result<()> {
    let context = progress::context(true);
    let (a, shown) = match archives {
        [one] => (None, one),
        [a, b] => (Some(load(a)?), b),
        _ => bail!("a page shows two benchmarks at most; `fathom bench history` shows more of them over time"),
    };
    let bench = load(shown)?;
    let why = |name: &str| results::explain(shown, name, &context);
    let (page, title) = match &a {
        Some(a) => (bench::page::page_beside(a, &bench, &why), format!("{} beside {}", bench.name, a.name)),
        None => (bench::page::page(&bench, &why), bench.name.clone()),
    };
    write_page(&title, &serde_json::to_value(page)?, output, shown)
}

pub fn compare(args: &args::BenchCompare) -> Result<ExitCode> {
    let a = compared_one(&args.a, args)?;
    let rules = Rules {
        better: args.better.map(|better| match better {
            args::Better::Higher => Better::Higher,
            args::Better::Lower => Better::Lower,
        }),
        other_commands: args.other_commands,
    };
    let done: Compared = match (&args.b, &args.by) {
        (Some(b), None) => compare::archives(&a, &compared_one(b, args)?, &rules),
        (Some(b), Some(by)) => {
            let values = by.split_once('=').and_then(|(name, values)| Some((name, values.split_once(',')?)));
            let Some((name, (of_a, of_b))) = values else {
                return Err(Usage(format!(
                    "--by {by}: of two archives two values are compared; give it as mode=jvm-tiered,art-jit"
                ))
                .into());
            };
            compare::across(&a, &compared_one(b, args)?, name, [of_a, of_b], &rules).map_err(Usage)?
        }
        (None, Some(by)) => {
            let (name, base) = by.split_once('=').map_or((by.as_str(), None), |(name, base)| (name, Some(base)));
            compare::within(&a, name, base, &rules).map_err(Usage)?
        }
        // The parser asks for one of them.
        (None, None) => bail!("give a second archive, or --by and a parameter"),
    };
    if let Some(path) = &args.markdown {
        results::write(path, compared::markdown(&done))?;
    }
    results::Files::new(None, args.markdown.as_deref()).print(&match args.json {
        true => serde_json::to_string_pretty(&done)? + "\n",
        false => compared::text(&done),
    });
    let shown = analysis::text::shown;
    // A build that compares nothing, or not the cell that became slower, must not pass for one that is no slower.
    for cell in &done.incomparable {
        eprintln!("fathom: not compared: {}: {}", shown(&cell.title()), shown(&cell.why.join("; ")));
    }
    if done.results.is_empty() {
        if done.incomparable.is_empty() {
            eprintln!(
                "fathom: nothing was compared: no cell of the one has the workload and the parameters of a cell of the other"
            );
        }
        return Ok(ExitCode::from(1));
    }
    let Some(percent) = args.fail_on else { return Ok(ExitCode::SUCCESS) };
    Ok(fail_on(&done, percent))
}

/// What `--fail-on slower:PERCENT` comes to: 1 if a cell is slower, if one could not be compared, or if B lost a result that A has.
fn fail_on(done: &Compared, percent: f64) -> ExitCode {
    let shown = analysis::text::shown;
    let slower = done.slower(percent);
    // A machine that was busy or hot makes things slower, and hides what is: a build that fails, or passes, shall know.
    let gates = |pair: &compare::Pair| match &pair.gates()[..] {
        [] => String::new(),
        gates => format!(" ({})", gates.join("; ")),
    };
    for pair in &slower {
        eprintln!("fathom: slower: {}{}", shown(&pair.title()), shown(&gates(pair)));
    }
    // A cell's latencies come from the same processes as its score.
    let mut cells: Vec<&compare::Pair> = done.results.iter().collect();
    cells.dedup_by(|pair, before| pair.is_of_cell(before));
    let doubtful: Vec<&compare::Pair> = cells.iter().filter(|pair| !pair.gates().is_empty()).copied().collect();
    if slower.is_empty() {
        eprintln!("fathom: --fail-on: no cell that was compared is slower");
        for pair in &doubtful {
            eprintln!("fathom: but {}{}", shown(&pair.title()), shown(&gates(pair)));
        }
    }
    if !doubtful.is_empty() {
        eprintln!(
            "fathom: in {} of {} the machine was not as it should be: measure again when it is quiet to be sure",
            doubtful.len(),
            counted(cells.len(), "cell")
        );
    }
    // A B that fails more than A did, so that no ratio can be made, is no B that is not slower.
    let is_lost = |p: &&compare::Pair| {
        let broken = p.ratio.is_none() && p.b.failed > p.a.failed;
        p.a.estimate.is_some() && (p.b.estimate.is_none() || broken)
    };
    let lost: Vec<&compare::Pair> = done.results.iter().filter(is_lost).collect();
    for pair in &lost {
        eprintln!("fathom: no result any more: {}", shown(&pair.title()));
    }
    let alone = done.unmatched.iter().filter(|cell| cell.of == "a").count();
    if alone > 0 && done.by.is_none() {
        eprintln!("fathom: {} of A {} not in B", counted(alone, "cell"), if alone == 1 { "is" } else { "are" });
    }
    let compared = done.results.iter().any(|pair| pair.ratio.is_some());
    if !compared {
        eprintln!("fathom: --fail-on: there is no ratio of any cell: more processes must succeed");
    }
    let passed = compared && slower.is_empty() && lost.is_empty() && done.incomparable.is_empty();
    if passed { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

pub fn history(args: &args::BenchHistory) -> Result<ExitCode> {
    let mut benches = Vec::new();
    for path in archives(&args.paths)? {
        let mut bench = load(&path)?;
        if args.even_disturbed {
            bench::disturbed::overlook(&mut bench.tables.replicates);
        }
        benches.push(bench);
    }
    let done = history::history(benches);
    say::text(&match args.json {
        true => serde_json::to_string_pretty(&done)? + "\n",
        false => history::text(&done, &date),
    });
    Ok(ExitCode::SUCCESS)
}

/// The archives named, and the benchmarks in the folders named; recordings there are passed over.
fn archives(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        if Archive::open(path).is_ok() || !path.is_dir() {
            all.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("reading {}", path.display()))?;
        let mut found: Vec<PathBuf> = entries
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|p| Archive::open(p).is_ok_and(|a| a.meta().kind == "bench"))
            .collect();
        if found.is_empty() {
            bail!("{} is no archive and holds none of `fathom bench run`", path.display());
        }
        found.sort();
        all.extend(found);
    }
    Ok(all)
}

/// A time in UTC, to the minute (days to dates after Hinnant, "chrono-compatible low-level date algorithms").
fn date(unix_ns: u64) -> String {
    let minutes = unix_ns / 60_000_000_000;
    let days = (minutes / 1440) as i64 + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year}-{month:02}-{day:02} {:02}:{:02} UTC", minutes / 60 % 24, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::date;

    /// Values of `date -u -d @SECONDS`.
    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00 UTC"),
            (951_827_696, "2000-02-29 12:34 UTC"),
            (1_709_164_799, "2024-02-28 23:59 UTC"),
            (4_107_542_399, "2100-02-28 23:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), text);
        }
    }
}
