//! Compares predictions of `fathom whatif` with the truth: each is made from a recording, then the change is made and recorded. Both run
//! in the same block, in random order, on disks of their own.

use super::{Disk, MissingParts, Place, Settings, draw_device, median, run_recorded, statement_time_ns, verb_output};
use anyhow::{Context, Result};
use serde_json::{Value, json};
use stats::random::Random;

/// A change that can be predicted and made.
#[derive(Debug, Clone, Default)]
pub struct Change {
    /// Its name, for people.
    pub name: &'static str,
    /// The question to `whatif`.
    pub ask: &'static [&'static str],
    /// Settings before.
    pub base: Vec<(&'static str, Value)>,
    /// Additional settings after.
    pub after: Vec<(&'static str, Value)>,
    /// Disks before and after.
    pub disks: [Disk; 2],
    /// Whether `--device` is given a recording of another workload on the second disk.
    pub device: bool,
    /// The range from which the time of a write, in us, is drawn, if it differs from that of all trials.
    pub write_us: Option<(u64, u64)>,
    /// Number of processes that only compute, running in the first part, with a disk that takes no time.
    pub hogs: usize,
}

/// Service times of writes by many programs, us.
const SLOW_WRITE_US: Option<(u64, u64)> = Some((4000, 8000));

pub fn all_changes() -> Vec<Change> {
    let mode = |mode: &'static str| vec![("journal_mode", json!(mode))];
    let off = || vec![("synchronous", json!("off"))];
    let normal = || vec![("synchronous", json!("normal"))];
    let barrier = || [Disk::default(), Disk { mount: "nobarrier".into(), ..Disk::default() }];
    let second: &[&str] = &["--without", "second fdatasync rollback journal"];
    // A TRUNCATE journal is synced once more after it was truncated, only with FULL.
    let third: &[&str] = &["--without", "second fdatasync rollback journal,third fdatasync rollback journal"];
    let plain = Change::default();
    // Programs that write at the same time, bypassing the page cache: as many as a device of that width serves at once, and more. They
    // write so slowly that the overhead of the serving program per write (0.2 ms) is small, however many it serves at once.
    let writers = || vec![("writers", json!(16)), ("writes", json!(40))];
    let queue = |before, after, at_once| {
        [before, after].map(|n| Disk { requests: Some(n), at_once: Some(at_once), ..Disk::default() })
    };
    vec![
        Change { name: "none (control: the same again)", base: mode("delete"), ..plain.clone() },
        Change {
            name: "DELETE: synchronous FULL to OFF",
            ask: &["--without", "sync"],
            base: mode("delete"),
            after: off(),
            ..plain.clone()
        },
        Change {
            name: "TRUNCATE: synchronous FULL to OFF",
            ask: &["--without", "sync"],
            base: mode("truncate"),
            after: off(),
            ..plain.clone()
        },
        Change {
            name: "PERSIST: synchronous FULL to OFF",
            ask: &["--without", "sync"],
            base: mode("persist"),
            after: off(),
            ..plain.clone()
        },
        Change {
            name: "WAL: synchronous FULL to NORMAL",
            ask: &["--without", "sync"],
            base: mode("wal"),
            after: normal(),
            ..plain.clone()
        },
        Change {
            name: "DELETE: synchronous FULL to NORMAL",
            ask: second,
            base: mode("delete"),
            after: normal(),
            ..plain.clone()
        },
        Change {
            name: "TRUNCATE: synchronous FULL to NORMAL",
            ask: third,
            base: mode("truncate"),
            after: normal(),
            ..plain.clone()
        },
        Change {
            name: "DELETE: synchronous EXTRA to FULL",
            ask: &["--without", "second fdatasync directory"],
            base: [mode("delete"), vec![("synchronous", json!("extra"))]].concat(),
            after: vec![("synchronous", json!("full"))],
            ..plain.clone()
        },
        Change {
            name: "WAL, NORMAL: checkpoint every 20 pages to none",
            ask: &["--without", "checkpoint"],
            base: [mode("wal"), normal(), vec![("wal_autocheckpoint", json!(20))]].concat(),
            after: vec![("wal_autocheckpoint", json!(0))],
            ..plain.clone()
        },
        Change {
            name: "DELETE: barriers to nobarrier",
            ask: &["--without", "flush"],
            base: mode("delete"),
            disks: barrier(),
            ..plain.clone()
        },
        Change {
            name: "PERSIST: barriers to nobarrier",
            ask: &["--without", "flush"],
            base: mode("persist"),
            disks: barrier(),
            ..plain.clone()
        },
        Change {
            name: "WAL: barriers to nobarrier",
            ask: &["--without", "flush"],
            base: mode("wal"),
            disks: barrier(),
            ..plain.clone()
        },
        Change {
            name: "PERSIST: ext4 with a journal to without",
            ask: &["--without", "metadata"],
            base: mode("persist"),
            disks: [
                Disk::default(),
                Disk { mkfs: ["-O", "^has_journal"].map(String::from).to_vec(), ..Disk::default() },
            ],
            ..plain.clone()
        },
        Change { name: "DELETE: another device", base: mode("delete"), device: true, ..plain.clone() },
        Change { name: "PERSIST: another device", base: mode("persist"), device: true, ..plain.clone() },
        Change { name: "WAL: another device", base: mode("wal"), device: true, ..plain.clone() },
        Change {
            name: "DELETE: four busy processes to none",
            ask: &["--without", "run-queue"],
            base: [mode("delete"), vec![("plain", json!(true))]].concat(),
            hogs: 4,
            ..plain.clone()
        },
        Change {
            name: "16 writers, device of 16 at once: nr_requests 128 to 4",
            ask: &["--queue", "4"],
            base: writers(),
            disks: queue(128, 4, 16),
            write_us: SLOW_WRITE_US,
            ..plain.clone()
        },
        Change {
            name: "16 writers, device of 16 at once: nr_requests 4 to 128",
            ask: &["--queue", "128"],
            base: writers(),
            disks: queue(4, 128, 16),
            write_us: SLOW_WRITE_US,
            ..plain.clone()
        },
        Change {
            name: "16 writers, device of one at once: nr_requests 128 to 4",
            ask: &["--queue", "4"],
            base: writers(),
            disks: queue(128, 4, 1),
            write_us: SLOW_WRITE_US,
            ..plain
        },
    ]
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    pub before: f64,
    pub predicted: f64,
    pub after: f64,
    /// The same for each statement's median execution, predicted and actual: without the few slow ones of a busy machine.
    pub usual: [f64; 2],
    /// Whether the interval including the model's error contained the truth.
    pub held: Option<bool>,
}

impl Trial {
    /// The relative error of the prediction.
    pub fn error(&self) -> f64 {
        self.predicted / self.after - 1.0
    }

    /// The same of the median executions.
    pub fn error_of_usual(&self) -> f64 {
        self.usual[0] / self.usual[1] - 1.0
    }

    /// The same, relative to the time before: predicted minus actual saving.
    pub fn error_of_saving(&self) -> f64 {
        (self.predicted - self.after) / self.before
    }
}

/// Processes that only compute, ended when dropped.
pub struct Hogs(Vec<std::process::Child>);

impl Hogs {
    /// Starts this many.
    pub fn start(count: usize) -> Result<Self> {
        let start = |_| std::process::Command::new("python3").args(["-c", "while True: pass"]).spawn();
        Ok(Self((0..count).map(start).collect::<std::io::Result<_>>()?))
    }
}

impl Drop for Hogs {
    fn drop(&mut self) {
        for hog in &mut self.0 {
            let _ = hog.kill();
            let _ = hog.wait();
        }
    }
}

/// Predicts, makes the change, and compares.
pub fn run_trial(place: &Place, change: &Change, random: &mut Random) -> Result<Trial> {
    let base = Settings::draw(random).with_settings(&change.base);
    let after = base.with_settings(&change.after);
    let takes = match change.write_us {
        Some((from, to)) => (from + random.below(to - from), draw_device(random).1),
        None => draw_device(random),
    };
    let others = if change.device { draw_device(random) } else { takes };
    let disks =
        [Disk { takes_us: takes, ..change.disks[0].clone() }, Disk { takes_us: others, ..change.disks[1].clone() }];
    let own = place.trial()?;
    let record = |name: &str, disk: &Disk, settings: &Settings, hogs: usize| {
        let disk = disk.make(own.path())?;
        run_recorded(own.path(), name, &disk, settings, |_| Hogs::start(hogs)).map(|(archive, _)| archive)
    };
    let mut runs = [("before", &disks[0], &base, change.hogs), ("after", &disks[1], &after, 0)];
    random.shuffle(&mut runs);
    for (name, disk, settings, hogs) in runs {
        record(name, disk, settings, hogs)?;
    }
    let [before, after] = ["before", "after"].map(|name| own.path().join(format!("{name}.fathom")));
    let mut ask: Vec<String> = change.ask.iter().map(ToString::to_string).collect();
    if change.device {
        // A recording of another workload, since a user has not run this one there.
        let other = Settings::draw(random).with_settings(&change.base);
        let other = record("other", &disks[1], &other, 0)?;
        ask.extend(["--device".into(), other.display().to_string()]);
    }
    let (was, is) = (statement_time_ns(&before)?, statement_time_ns(&after)?);
    let true_medians = sum_of_medians(&verb_output("show", &after, &[])?["operations"], "latency_ns")?;
    let trial = if ask.is_empty() {
        let usual = [sum_of_medians(&verb_output("show", &before, &[])?["operations"], "latency_ns")?, true_medians];
        Trial { before: was, predicted: was, after: is, usual, held: None }
    } else {
        let prediction = verb_output("whatif", &before, &ask)?;
        let total = &prediction["total"];
        let end = |at: usize| total["interval_with_model"][at].as_f64().map(|ratio| ratio * was);
        Trial {
            before: was,
            predicted: total["predicted_ns"].as_f64().context("predicted_ns")?,
            after: is,
            usual: [sum_of_medians(&prediction["statements"], "predicted_ns")?, true_medians],
            held: end(0).zip(end(1)).map(|(low, high)| (low..=high).contains(&is)),
        }
    };
    place.done(own, change.name, &format!("{:?}\n{trial:?}\n{takes:?} {others:?}", change.ask))?;
    Ok(trial)
}

/// The sum over statements of their median times their number of executions.
fn sum_of_medians(statements: &Value, times: &str) -> Result<f64> {
    let all = statements.as_array().context("statements")?;
    Ok(all.iter().filter_map(|s| Some(s["count"].as_f64()? * s[times]["p50"].as_f64()?)).sum())
}

pub fn results_page(all: &[(Change, Vec<Trial>)], missing: &MissingParts, how: &str) -> String {
    let ms = |ns: f64| format!("{:.1}", ns / 1e6);
    let mut rows: Vec<(f64, String)> = Vec::new();
    let mut errors: Vec<[f64; 3]> = Vec::new();
    let mut held: Vec<bool> = Vec::new();
    let mut control = String::new();
    for (change, trials) in all {
        let of = |value: &dyn Fn(&Trial) -> f64| median(&trials.iter().map(value).collect::<Vec<_>>());
        let error = [of(&|t| t.error().abs()), of(&|t| t.error_of_saving().abs()), of(&|t| t.error_of_usual().abs())];
        held.extend(trials.iter().filter_map(|t| t.held));
        let list = trials.iter().map(|t| format!("{:+.0}", 100.0 * t.error())).collect::<Vec<_>>().join(", ");
        let asked = match (change.device, change.ask) {
            (true, _) => "`--device`".into(),
            (_, ["--queue", what]) => format!("`--queue {what}`"),
            (_, [_, what]) => format!("`--without '{what}'`"),
            _ => String::new(),
        };
        let row = format!(
            "| {} | {asked} | {} | {} | {} | {:.0} | {:.0} | {:.0} | {list} |\n",
            change.name,
            ms(of(&|t| t.before)),
            ms(of(&|t| t.predicted)),
            ms(of(&|t| t.after)),
            100.0 * error[0],
            100.0 * error[1],
            100.0 * error[2],
        );
        if change.ask.is_empty() && !change.device {
            control = row;
        } else {
            errors.push(error);
            rows.push((error[0], row));
        }
    }
    rows.sort_by(|p, q| q.0.total_cmp(&p.0));
    let summary = |which: usize| {
        let mut sorted: Vec<f64> = errors.iter().map(|error| error[which]).collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let p90 = sorted.get((sorted.len() * 9).div_ceil(10).saturating_sub(1)).copied().unwrap_or(f64::NAN);
        let within = sorted.iter().filter(|e| **e <= 0.15).count();
        format!(
            "**{:.0} %**, nine of ten are within {:.0} %, {within} within 15 %",
            100.0 * median(&sorted),
            100.0 * p90
        )
    };
    let mut out = format!(
        "# What-if predictions\n\nWhat [`fathom whatif`](../guide/whatif.md) predicted from a recording, and what was recorded when the \
         change was really made.\n\n{how}\n\n{}Of {} changes, the median error relative to the true time is {}\n(target: 15 % in the \
         median). Relative to the time before, so of what the change saves, it is\n{}.\nOf the \
         median executions it is {}. The interval with the model's error, which is of an\nearlier table, held the truth in {} of {} trials.\n\n",
        missing.said(),
        errors.len(),
        summary(0),
        summary(1),
        summary(2),
        held.iter().filter(|held| **held).count(),
        held.len(),
    );
    out += "Times are sums over all statements of a run, ms, medians of the trials. *Error* is |predicted / true - 1|, *of the saving*\n\
            |predicted - true| / before, *of the median* the first of statements' median executions (a few that a busy machine made slow are\n\
            not in it), in percent, medians of the trials; the last column has each trial's predicted / true - 1. The\n\
            control compares two equal runs: what a prediction is wrong by on this machine even if the model is right.\n\n";
    out += "| change | asked | before | predicted | true | error | of the saving | of the median | each trial, % |\n|---|---|---:|---:|---:|---:|---:|---:|---|\n";
    rows.iter().for_each(|(_, row)| out += row);
    out + &control
}
