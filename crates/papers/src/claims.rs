//! The papers' claims that compare Linux with Android, judged by what was measured on a host and on a device.
//!
//! A claim is **confirmed** only if every cell that it is about supports it, **not confirmed** if one contradicts it, and
//! otherwise it **cannot be tested**, with the reason: nothing was measured on one of the two, or too few processes to decide.
//! Only the direction is judged: the papers' machines are of 2009 to 2013, so none of their factors is expected here. There is
//! one recording per machine; its counts are exact, its times have no interval, and only a difference of a quarter or more
//! counts.

use super::list::ListedFigure;
use super::network::{Cell, NetworkTest};
pub use super::outcome::Outcome;
use super::outcome::{Decision, RELEVANT_RATIO_MIN, cannot_be_tested};
use super::quantity::Quantity;
use super::two_machines::{self, Machine, format_ratio};
use analysis::text::{digits, escaped};
use scores::compare::Pair;
use scores::figures::EXTERNAL_NAMES;
use serde::Serialize;
use stats::verdict::Verdict;
use std::fmt::Write as _;

/// A claim with its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JudgedClaim {
    /// Paper and figure.
    pub figure: &'static str,
    /// The paper's statement.
    pub claim: &'static str,
    /// The verdict.
    pub outcome: Outcome,
    /// The evidence.
    pub because: String,
}

/// Cells of both machines.
#[derive(Debug, Clone, Copy)]
struct Cells {
    workloads: &'static [&'static str],
    /// A factor and prefixes of its values.
    only: Option<(&'static str, &'static [&'static str])>,
    without: Option<(&'static str, &'static [&'static str])>,
}

const fn all(workloads: &'static [&'static str]) -> Cells {
    Cells { workloads, only: None, without: None }
}

const fn only(workload: &'static [&'static str], factor: &'static str, values: &'static [&'static str]) -> Cells {
    Cells { workloads: workload, only: Some((factor, values)), without: None }
}

/// How a claim is judged.
#[derive(Debug, Clone, Copy)]
enum Test {
    /// The device is slower in each cell.
    Slower(Cells),
    /// The device is slower in no cell.
    NotSlower(Cells),
    /// Both are within a quarter in each cell.
    Alike(Cells),
    /// The time of bytecode relative to native code is larger on the device.
    BytecodeCostsMore(&'static str),
    /// The ratio of one workload equals that of the other, within a quarter.
    SameRatio(Cells, Cells),
    /// The device's recording has more of this, by at least a half.
    More(&'static str, Quantity),
    /// The device's recording has a larger time, by at least a quarter; `x86`: for Android on a PC.
    Longer(&'static str, Quantity, bool),
    /// A smaller time.
    Shorter(&'static str, Quantity),
    /// The same time within a quarter, for Android on a PC.
    SameTime(&'static str, Quantity),
    /// The same count, for Android on a PC.
    SameCount(&'static str, Quantity),
    /// Its recording has some of this.
    Some(&'static str, Quantity),
    /// Its recording has none of this.
    None(&'static str, Quantity),
    /// Flash compared with a hard disk.
    HardDisk(Cells),
    /// Tested with the device as part of a network.
    Network(NetworkTest),
    /// Not testable with a host and one device.
    Other(&'static str),
}

impl Test {
    /// Whether the claim is about times. Counts do not depend on the processor.
    fn is_of_time(self) -> bool {
        !matches!(self, Self::More(..) | Self::SameCount(..) | Self::Some(..) | Self::None(..) | Self::Other(_))
    }
}

/// Smallest relevant difference between counts per INSERT.
const COUNT_DIFFERENCE_MIN: f64 = 0.5;
const INSERT_CELLS: Cells = only(&["sqlite"], "op", &["insert"]);
const LINE_CELLS: Cells = only(&["draw"], "shape", &["line"]);
/// Bytecode variants of the CPU benchmarks.
const BYTECODE_CELLS: Cells = only(&["linpack", "scimark"], "mode", &["jvm", "art"]);

const fn above(a: Cell, b: Cell) -> Test {
    Test::Network(NetworkTest::Above(a, b))
}

/// One node on the device, with flash like in the paper.
const fn node(threads: &'static str, batch: &'static str) -> Cell {
    Cell("cluster-devices", [("io", "flash"), ("threads", threads), ("batch", batch)])
}

const fn without_io(batch: &'static str) -> Cell {
    Cell("cluster-devices", [("io", "none"), ("threads", "32"), ("batch", batch)])
}

/// The device as the client; `down`: traffic to the device.
const fn end(traffic: &'static str, direction: &'static str) -> Cell {
    Cell("net-devices", [("traffic", traffic), ("direction", direction), ("cc", "kernel")])
}

/// Traffic to the device, from a server behind this machine.
const fn delayed(cc: &'static str, delay_ms: &'static str) -> Cell {
    Cell("net-delay-devices", [("direction", "down"), ("cc", cc), ("delay_ms", delay_ms)])
}

#[rustfmt::skip]
const CLAIMS: &[(&str, &str, Test)] = &[
    ("000/1", "LINPACK and SciMark2 in Java are slower on Android", Test::Slower(BYTECODE_CELLS)),
    ("000/2", "bytecode is slower than native code, and more so on Android", Test::BytecodeCostsMore("himeno")),
    ("000/3", "HTTP transactions are slower on Android", Test::Slower(all(&["http"]))),
    ("000/4", "drawing lines and circles is slower on Android", Test::Slower(only(&["draw"], "shape", &["line", "circle"]))),
    ("000/4", "drawing rectangles is not", Test::NotSlower(only(&["draw"], "shape", &["rect"]))),
    ("000/4", "lines relate as the processors of figure 1 do", Test::SameRatio(LINE_CELLS, BYTECODE_CELLS)),
    ("000/5", "sequential I/O is slower on Android, internal storage",
     Test::Slower(Cells { workloads: &["seq"], only: None, without: Some(("dir", EXTERNAL_NAMES)) })),
    ("000/6", "sequential reading is slower on Android, external storage",
     Test::Slower(Cells { workloads: &["seq"], only: Some(("dir", EXTERNAL_NAMES)), without: Some(("op", &["write"])) })),
    ("000/6", "sequential writing is about equal, external storage",
     Test::Alike(Cells { workloads: &["seq"], only: Some(("dir", EXTERNAL_NAMES)), without: Some(("op", &["read"])) })),
    ("000/7", "file I/O is slower on Android, internal storage",
     Test::Slower(Cells { workloads: &["file"], only: None, without: Some(("dir", EXTERNAL_NAMES)) })),
    ("000/8", "writing files is about equal, external storage",
     Test::Alike(Cells { workloads: &["file"], only: Some(("dir", EXTERNAL_NAMES)), without: Some(("op", &["read"])) })),
    ("000/9", "INSERTs are slower on Android", Test::Slower(INSERT_CELLS)),
    ("000/10", "SELECTs are slower on Android", Test::Slower(only(&["sqlite"], "op", &["select"]))),
    ("000/11", "during INSERTs Android's device gets write commands", Test::Some("11", Quantity::DeviceCommandsPerInsert)),
    ("000/12", "during SELECTs it gets none: the page cache answers", Test::None("12", Quantity::DeviceCommandsPerSelect)),
    ("000/13-15", "an INSERT writes the database three times on Android, twice on Linux",
     Test::More("13-15", Quantity::DatabaseWritesPerInsert)),
    ("000/13-15", "the device gets more writes for it on Android", Test::More("13-15", Quantity::DeviceWrites)),
    ("001/1-4", "flash answers more random reads than a hard disk", Test::HardDisk(all(&["random"]))),
    ("001/7", "one request in a packet: more threads raise the rate", above(node("32", "1"), node("1", "1"))),
    ("001/7-9", "more nodes raise the rate, nearly in proportion with 10 and 100 requests in a packet",
     Test::Other("one device is one node; with several: `fathom bench run cluster-devices -p at=adb:A+adb:B -p nodes=1,2`")),
    ("001/8", "10 requests in a packet give more than 1", above(node("32", "10"), node("32", "1"))),
    ("001/8", "with 10, more than 8 threads gain nothing", Test::Network(NetworkTest::Alike(node("32", "10"), node("8", "10")))),
    ("001/9", "100 requests in a packet give more than 1", above(node("32", "100"), node("32", "1"))),
    ("001/9", "with 100, more than 4 threads gain nothing", Test::Network(NetworkTest::Alike(node("32", "100"), node("4", "100")))),
    ("001/10", "without I/O, 10 requests in a packet give nearly ten times what 1 gives",
     Test::Network(NetworkTest::Times(10.0, without_io("10"), without_io("1")))),
    ("002/ch4", "TCP to the phone is faster than from it", above(end("tcp", "down"), end("tcp", "up"))),
    ("002/ch4", "UDP to the phone, as iperf 2 sends it, carries less than TCP", above(end("tcp", "down"), end("udp_iperf", "down"))),
    ("002/ch4", "and so does UDP from it", above(end("tcp", "up"), end("udp_iperf", "up"))),
    ("002/5", "TCP is stable to a one-way delay of 16 ms",
     Test::Network(NetworkTest::Alike(delayed("cubic", "0"), delayed("cubic", "16")))),
    ("002/5", "and lower at 32 ms", above(delayed("cubic", "16"), delayed("cubic", "32"))),
    ("002/6", "westwood is lower than cubic", above(delayed("cubic", "16"), delayed("westwood", "16"))),
    ("004/1", "INSERTs are slower on the phone than on Linux (0.83, by the paper's two ratios)", Test::Slower(INSERT_CELLS)),
    ("004/2-4", "an INSERT is more file-system writes on the phone (14 versus 3)", Test::More("2-4", Quantity::FileSystemWritesPerInsert)),
    ("004/2-4", "more of them to the journal (11 versus 2)", Test::More("2-4", Quantity::JournalWrites)),
    ("004/2-4", "more of them to the database (3 versus 1)", Test::More("2-4", Quantity::DatabaseWrites)),
    ("004/2-4", "the block layer gets more requests on the phone", Test::More("2-4", Quantity::DeviceCommandsPerInsert)),
    ("004/2-3", "Android x86 makes as many file-system writes as Linux", Test::SameCount("2-4", Quantity::FileSystemWritesPerInsert)),
    ("004/2-3", "the journal's first write to its second takes about as long on Android x86",
     Test::SameTime("2-4", Quantity::FirstToSecondJournalWrite)),
    ("004/2-3", "the database write to the next INSERT takes longer on Android x86",
     Test::Longer("2-4", Quantity::DatabaseWriteToNextInsert, true)),
    ("004/4", "a single INSERT takes less time on the phone", Test::Shorter("5", Quantity::InsertMedian)),
    ("004/5", "requests take long from layer to layer on the phone",
     Test::Longer("5", Quantity::InsertBetweenLayers, false)),
];

/// Whether one of these workloads was to run in a directory with such a name.
fn has_directory(machine: &Machine, cells: Cells, names: &[&str]) -> bool {
    machine.bench.as_ref().is_ok_and(|bench| {
        bench.measured_cells().iter().any(|m| {
            cells.workloads.contains(&m.design.name.as_str())
                && m.factors.get("dir").is_some_and(|dir| names.iter().any(|name| dir.starts_with(name)))
        })
    })
}

/// Judges the claims whose figures satisfy `wanted`.
pub fn judge(host: &Machine, device: &Machine, pairs: &[Pair], wanted: &dyn Fn(&str) -> bool) -> Vec<JudgedClaim> {
    let both = MachinePair { host, device, pairs };
    let kept = CLAIMS.iter().filter(|(figure, ..)| wanted(figure));
    kept.map(|&(figure, claim, test)| {
        let (outcome, because) = both.test(figure, test);
        JudgedClaim { figure, claim, outcome, because }
    })
    .collect()
}

/// Whether a claim's figure is part of a listed one: `004/2-3` is part of `004/2-4`.
pub fn is_of(listed: &ListedFigure, figure: &str) -> bool {
    let (paper, number) = figure.split_once('/').unwrap_or((figure, ""));
    let first = number.split('-').next().unwrap_or(number);
    listed.is_named_by(figure) || listed.is_named_by(&format!("{paper}/{first}"))
}

/// Formats the table of claims.
pub fn markdown(all: &[JudgedClaim]) -> String {
    let mut out = String::from("## The papers' claims\n\n| figure | claim | here | by |\n|---|---|---|---|\n");
    for j in all {
        let _ = writeln!(
            out,
            "| {} | {} | {} | {} |",
            j.figure,
            j.claim,
            j.outcome.text(),
            escaped(&j.because).replace("\\`", "`")
        );
    }
    let of = |outcome| all.iter().filter(|j| j.outcome == outcome).count();
    let _ = writeln!(
        out,
        "\n{} confirmed, {} not confirmed, {} cannot be tested. Confirmed: every cell says so; not confirmed: one says otherwise.",
        of(Outcome::Confirmed),
        of(Outcome::NotConfirmed),
        of(Outcome::CannotBeTested)
    );
    out
}

struct MachinePair<'a> {
    host: &'a Machine,
    device: &'a Machine,
    pairs: &'a [Pair],
}

fn outcome_if(holds: bool) -> Outcome {
    if holds { Outcome::Confirmed } else { Outcome::NotConfirmed }
}

impl MachinePair<'_> {
    fn test(&self, figure: &str, test: Test) -> Decision {
        use Verdict::{Equivalent, Faster, Slower};
        let paper = figure.split('/').next().unwrap_or_default();
        let emulated = [self.host, self.device].into_iter().find(|machine| machine.is_emulated());
        if let Some(machine) = emulated.filter(|_| test.is_of_time()) {
            return cannot_be_tested(format!("{}'s processor is emulated: its times are no speed", machine.name));
        }
        match test {
            Test::Slower(cells) => self.judge_verdicts(cells, &[Slower], &[Faster, Equivalent]),
            Test::NotSlower(cells) => self.judge_verdicts(cells, &[Faster, Equivalent], &[Slower]),
            Test::Alike(cells) => self.judge_alike(cells),
            Test::BytecodeCostsMore(workload) => self.judge_bytecode(workload),
            Test::SameRatio(a, b) => self.judge_same_ratio(a, b),
            Test::More(figure, what) => {
                self.judge_rows(paper, figure, what, |h, d| outcome_if(d - h >= COUNT_DIFFERENCE_MIN))
            }
            Test::Longer(figure, what, x86) => match self.not_a_pc().filter(|_| x86) {
                Some(why) => why,
                None => self.judge_rows(paper, figure, what, |h, d| outcome_if(d >= h * RELEVANT_RATIO_MIN)),
            },
            Test::Shorter(figure, what) => {
                self.judge_rows(paper, figure, what, |h, d| outcome_if(d * RELEVANT_RATIO_MIN <= h))
            }
            Test::SameTime(figure, what) => self.not_a_pc().unwrap_or_else(|| {
                self.judge_rows(paper, figure, what, |h, d| {
                    outcome_if(d <= h * RELEVANT_RATIO_MIN && h <= d * RELEVANT_RATIO_MIN)
                })
            }),
            Test::SameCount(figure, what) => self.not_a_pc().unwrap_or_else(|| {
                self.judge_rows(paper, figure, what, |h, d| outcome_if((d - h).abs() < COUNT_DIFFERENCE_MIN))
            }),
            Test::Some(figure, what) => {
                self.judge_rows(paper, figure, what, |_, d| outcome_if(d >= COUNT_DIFFERENCE_MIN))
            }
            Test::None(figure, what) => self.judge_rows(paper, figure, what, |_, d| outcome_if(d < 0.05)),
            Test::HardDisk(cells) => match self.host.fact("disk.rotational") {
                Some("1" | "true" | "yes") => self.judge_verdicts(cells, &[Faster], &[Slower, Equivalent]),
                _ => cannot_be_tested(format!("the disk of {} is no hard disk, or that is not known", self.host.name)),
            },
            Test::Network(test) => test.judge(&self.device.network),
            Test::Other(why) => cannot_be_tested(why),
        }
    }

    /// Android x86 means Android on a PC's processor.
    fn not_a_pc(&self) -> Option<Decision> {
        match self.device.fact("cpu.architecture") {
            Some("x86_64" | "i686" | "x86") if self.device.fact("os.sdk").is_some() => None,
            _ => Some(cannot_be_tested(format!("{} is not Android on a PC's processor", self.device.name))),
        }
    }

    fn cells(&self, cells: Cells) -> Vec<&Pair> {
        let begins = |pair: &Pair, (factor, values): (&str, &[&str])| {
            let own = pair.parameters.get(factor).cloned();
            let own = own.or_else(|| Some(pair.levels.as_ref()?[0].clone()).filter(|_| factor == "mode"));
            own.is_some_and(|own| values.iter().any(|v| own.starts_with(v)))
        };
        let fits = |pair: &&Pair| {
            cells.workloads.contains(&pair.workload.as_str())
                && cells.only.is_none_or(|only| begins(pair, only))
                && !cells.without.is_some_and(|without| begins(pair, without))
        };
        self.pairs.iter().filter(fits).collect()
    }

    /// Judges by the cells' verdicts: all must be in `good`; one in `bad` contradicts.
    fn judge_verdicts(&self, cells: Cells, good: &[Verdict], bad: &[Verdict]) -> Decision {
        let pairs = self.cells(cells);
        if pairs.is_empty() {
            return cannot_be_tested(self.why_no_pair(cells));
        }
        let of = |list: &[Verdict]| pairs.iter().filter(|p| list.contains(&p.verdict)).count();
        let (yes, no, all) = (of(good), of(bad), pairs.len());
        let because = format!("{}; {}", tally(&pairs), ratio_range(&pairs));
        if no > 0 {
            (Outcome::NotConfirmed, because)
        } else if yes == all {
            (Outcome::Confirmed, because)
        } else {
            cannot_be_tested(format!("too few or disturbed processes: {because}"))
        }
    }

    fn why_no_pair(&self, cells: Cells) -> String {
        match cells.only {
            Some(("dir", names)) if [self.host, self.device].into_iter().all(|machine| has_directory(machine, cells, names)) => {
                "external storage was used on both, but such a cell has no result on one of them".into()
            }
            Some(("dir", _)) => {
                "no directory of external storage was measured on both: give one with `--dir internal=DIRECTORY --dir external=DIRECTORY` (on the \
                 device), and its counterpart here with `--dir-here external=DIRECTORY`"
                    .into()
            }
            _ => two_machines::why_unpaired([self.host, self.device], cells.workloads),
        }
    }

    fn judge_alike(&self, cells: Cells) -> Decision {
        let pairs = self.cells(cells);
        if pairs.is_empty() {
            return cannot_be_tested(self.why_no_pair(cells));
        }
        let within = |[low, high]: [f64; 2]| low >= 1.0 / RELEVANT_RATIO_MIN && high <= RELEVANT_RATIO_MIN;
        let beyond = |[low, high]: [f64; 2]| high < 1.0 / RELEVANT_RATIO_MIN || low > RELEVANT_RATIO_MIN;
        let intervals: Vec<[f64; 2]> = pairs.iter().filter_map(|p| p.ratio_ci95).collect();
        let because = format!("{}, a quarter at most is about equal", ratio_range(&pairs));
        if intervals.iter().any(|i| beyond(*i)) {
            (Outcome::NotConfirmed, because)
        } else if intervals.len() == pairs.len() && intervals.iter().all(|i| within(*i)) {
            (Outcome::Confirmed, because)
        } else {
            cannot_be_tested(format!("the intervals are too wide: {because}"))
        }
    }

    /// Compares the ratios: bytecode's device / host below native code's.
    fn judge_bytecode(&self, workload: &'static str) -> Decision {
        let of = |values: &'static [&'static str]| {
            let cells =
                Cells { workloads: &["linpack", "scimark", "himeno"], only: Some(("mode", values)), without: None };
            self.cells(cells).into_iter().find(|p| p.workload == workload)
        };
        match (of(&["c-", "rust"]), of(&["jvm", "art"])) {
            (Some(native), Some(bytecode)) => judge_below(bytecode, native, "bytecode", "native code"),
            _ => cannot_be_tested(two_machines::why_unpaired([self.host, self.device], &[workload])),
        }
    }

    fn judge_same_ratio(&self, a: Cells, b: Cells) -> Decision {
        let mean = |cells: Cells| {
            let logs: Vec<f64> = self.cells(cells).iter().filter_map(|p| p.ratio).map(f64::ln).collect();
            (!logs.is_empty()).then(|| (logs.iter().sum::<f64>() / logs.len() as f64).exp())
        };
        match (mean(a), mean(b)) {
            (Some(x), Some(y)) => {
                let because = format!(
                    "device / host: lines {}, processors {} (geometric means, no interval; a quarter counts)",
                    digits(x),
                    digits(y)
                );
                (outcome_if(x <= y * RELEVANT_RATIO_MIN && y <= x * RELEVANT_RATIO_MIN), because)
            }
            (None, _) => cannot_be_tested(self.why_no_pair(a)),
            _ => cannot_be_tested(self.why_no_pair(b)),
        }
    }

    fn judge_rows(&self, paper: &str, figure: &str, what: Quantity, judge: impl Fn(f64, f64) -> Outcome) -> Decision {
        let mut values = Vec::new();
        for machine in [self.host, self.device] {
            let figures = match &machine.recorded {
                Ok(figures) => figures,
                Err(why) => return cannot_be_tested(format!("no recording of {}: {why}", machine.name)),
            };
            let found = figures.iter().find(|f| f.paper == paper && f.figure == figure);
            let Some(row) = found.and_then(|f| f.rows.iter().find(|r| r.what == what)) else {
                return cannot_be_tested(format!("the recording of {} has no figure {figure}", machine.name));
            };
            let Some(value) = row.ours else { return cannot_be_tested(format!("{}: {}", machine.name, row.note)) };
            values.push(value);
        }
        let shown = |x: f64| what.unit().format(x);
        let because = format!("host {}, device {}; one recording each", shown(values[0]), shown(values[1]));
        (judge(values[0], values[1]), because)
    }
}

/// Whether the device loses more in `lower` than in `upper`: the ratio of the ratios and its interval are below 1; the
/// half-widths of both are combined like those of independent values.
fn judge_below(lower: &Pair, upper: &Pair, a: &str, b: &str) -> Decision {
    let because = format!("device / host: {a} {}, {b} {}", format_ratio(lower), format_ratio(upper));
    let (Some(x), Some(y), Some(ci), Some(other)) = (lower.ratio, upper.ratio, lower.ratio_ci95, upper.ratio_ci95)
    else {
        return cannot_be_tested(format!("no interval; {because}"));
    };
    let half = |[low, high]: [f64; 2]| (high / low).ln() / 2.0;
    let (middle, half) = ((x / y).ln(), half(ci).hypot(half(other)));
    if !half.is_finite() {
        cannot_be_tested(format!("no interval; {because}"))
    } else if middle + half < 0.0 {
        (Outcome::Confirmed, because)
    } else if middle - half > 0.0 || half < RELEVANT_RATIO_MIN.ln() / 2.0 {
        (Outcome::NotConfirmed, because)
    } else {
        cannot_be_tested(format!("too few or disturbed processes: {because}"))
    }
}

/// Formats the verdicts of cells: `slower in 3, inconclusive in 1 of 4 cells`.
fn tally(pairs: &[&Pair]) -> String {
    let mut verdicts: Vec<(Verdict, usize)> = Vec::new();
    for pair in pairs {
        match verdicts.iter_mut().find(|(name, _)| *name == pair.verdict) {
            Some((_, n)) => *n += 1,
            None => verdicts.push((pair.verdict, 1)),
        }
    }
    let all: Vec<String> = verdicts.iter().map(|(name, n)| format!("{name} in {n}")).collect();
    format!("{} of {}", all.join(", "), model::counted(pairs.len(), "cell"))
}

fn ratio_range(pairs: &[&Pair]) -> String {
    let mut all: Vec<&&Pair> = pairs.iter().filter(|p| p.ratio.is_some()).collect();
    all.sort_by(|a, b| a.ratio.partial_cmp(&b.ratio).unwrap_or(std::cmp::Ordering::Equal));
    match &all[..] {
        [] => "no ratio".into(),
        [one] => format!("device / host {}", format_ratio(one)),
        [first, .., last] => format!("device / host from {} to {}", format_ratio(first), format_ratio(last)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::quantity::Unit;
    use super::*;

    /// Both are made of the papers' texts; the page of all claims is made of that table.
    #[test]
    fn the_claims_are_those_of_the_papers_page() {
        let table = include_str!("../../../experiments/papers/claims.toml");
        for (figure, claim, _) in CLAIMS {
            let is_of = |entry: &str| entry.starts_with(&format!("figure = \"{figure}\"\nsays = \"{claim}\"\n"));
            assert!(
                table.split("[[claim]]\n").any(is_of),
                "{figure}: {claim} is not in experiments/papers/claims.toml"
            );
        }
    }
    use analysis::{small_trace, summarise};
    use model::Environment;
    use scores::results::Bench;
    use scores::synthetic::bench;

    fn machine(name: &str, bench: Bench) -> Machine {
        Machine {
            name: name.into(),
            bench: Ok(bench),
            recorded: Err("not root there".into()),
            network: Err("no network was measured".into()),
            facts: Environment::new(),
        }
    }

    fn sqlite(name: &str, insert_ns: f64, select_ns: f64, processes: u64) -> Machine {
        let mut b = bench(name, "sqlite");
        b.add(&[("op", "insert"), ("journal_mode", "wal")], insert_ns, 100.0, processes);
        b.add(&[("op", "insert"), ("journal_mode", "delete")], insert_ns * 3.0, 100.0, processes);
        b.add(&[("op", "select"), ("journal_mode", "wal")], select_ns, 100.0, processes);
        machine(name, b)
    }

    fn judged(host: &Machine, device: &Machine, figure: &str) -> Vec<JudgedClaim> {
        judge(host, device, &two_machines::pair_cells(host, device), &|f| f == figure)
    }

    #[test]
    fn slower_in_each_cell_confirms_and_faster_in_one_does_not() {
        let (host, device) = (sqlite("host", 1e6, 1e5, 12), sqlite("x", 2e6, 0.5e5, 12));
        let one = |figure| judged(&host, &device, figure).remove(0);
        assert_eq!(one("000/9").outcome, Outcome::Confirmed, "{:?}", one("000/9"));
        assert!(one("000/9").because.contains("slower in 2 of 2 cells"), "{}", one("000/9").because);
        assert_eq!(one("000/10").outcome, Outcome::NotConfirmed);
        assert_eq!(judged(&host, &sqlite("y", 1e6, 1e5, 12), "000/9")[0].outcome, Outcome::NotConfirmed);
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let (host, device) = (sqlite("host", 1e6, 1e5, 12), sqlite("x", 2e6, 1e5, 12));
        for figure in
            ["000/1", "000/3", "000/5", "000/6", "000/11", "001/7", "001/8", "001/10", "002/ch4", "002/5", "004/5"]
        {
            for j in judged(&host, &device, figure) {
                assert_eq!(j.outcome, Outcome::CannotBeTested, "{j:?}");
                assert!(!j.because.is_empty());
            }
        }
        assert!(judged(&host, &device, "000/11")[0].because.contains("not root there"));
        // Three processes are too few to decide.
        let few = sqlite("few", 1.02e6, 1e5, 2);
        assert_ne!(judged(&host, &few, "000/9")[0].outcome, Outcome::Confirmed);
    }

    #[test]
    fn times_of_an_emulated_processor_decide_nothing_counts_do() {
        let (host, mut device) = (sqlite("host", 1e6, 1e5, 12), sqlite("guest", 2e6, 0.5e5, 12));
        let fact = model::Fact {
            value: Some("tcg".into()),
            unknown: None,
            unit: None,
            source: "/proc/cmdline".into(),
            varies: "boot".into(),
        };
        device.facts.insert("virtual.accelerator".into(), fact);
        device.recorded = Ok(crate::measured_figures(&summarise(&small_trace::rows())));
        for figure in ["000/9", "000/10", "000/13-15", "004/1", "004/2-4", "004/4", "004/5"] {
            for judged in judged(&host, &device, figure) {
                let counted = ["000/13-15", "004/2-4"].contains(&figure);
                assert_eq!(judged.because.contains("emulated"), !counted, "{judged:?}");
                assert!(counted || judged.outcome == Outcome::CannotBeTested, "{judged:?}");
            }
        }
        assert!(
            device.description().contains("its times are no speed") && !host.description().contains("speed"),
            "{}",
            device.description()
        );
    }

    #[test]
    fn external_storage_needs_a_directory_on_both() {
        let seq = |name: &str, dir: &str, op: &str| {
            let mut b = bench(name, "seq");
            b.add(&[("op", op), ("dir", dir)], 1e6, 100.0, 12);
            machine(name, b)
        };
        let why = |host: &Machine, device: &Machine| -> Vec<String> {
            judged(host, device, "000/6").into_iter().map(|j| j.because).collect()
        };
        let host = seq("host", "external", "write");
        for because in why(&host, &seq("x", "internal", "write")) {
            assert!(because.contains("no directory of external storage"), "{because}");
        }
        let both = why(&host, &seq("x", "external", "write"));
        assert!(both[0].contains("has no result on one of them"), "reading: {both:?}");
        assert!(!both[1].contains("external storage"), "writing: {both:?}");
    }

    #[test]
    fn bytecode_of_corresponding_modes_is_compared() {
        let himeno = |name: &str, mode: &str, native: f64, bytecode: f64| {
            let mut b = bench(name, "himeno");
            b.add(&[("mode", "c-O2")], native, 100.0, 12);
            b.add(&[("mode", mode)], bytecode, 100.0, 12);
            machine(name, b)
        };
        let host = himeno("host", "jvm-tiered", 1e6, 2e6);
        let one = |device: &Machine| judged(&host, device, "000/2").remove(0);
        // Twice as slow in C, eight times in bytecode.
        assert_eq!(one(&himeno("x", "art-jit", 2e6, 16e6)).outcome, Outcome::Confirmed);
        assert_eq!(one(&himeno("y", "art-jit", 4e6, 4e6)).outcome, Outcome::NotConfirmed);
        assert_eq!(one(&himeno("z", "art-aot", 4e6, 4e6)).outcome, Outcome::CannotBeTested);
    }

    #[test]
    fn counts_of_recordings_are_compared() {
        let with = |name: &str, more: f64| {
            let mut m = sqlite(name, 1e6, 1e5, 4);
            let mut figures = crate::measured_figures(&summarise(&small_trace::rows()));
            let rows = figures.iter_mut().flat_map(|f| &mut f.rows).filter(|r| r.unit == Unit::Count);
            rows.for_each(|r| r.ours = r.ours.map(|x| x + more));
            m.recorded = Ok(figures);
            m
        };
        let host = with("host", 0.0);
        let outcomes =
            |device: &Machine| -> Vec<Outcome> { judged(&host, device, "004/2-4").iter().map(|j| j.outcome).collect() };
        assert_eq!(outcomes(&with("x", 2.0)), [Outcome::Confirmed; 4]);
        assert_eq!(outcomes(&with("y", 0.0)), [Outcome::NotConfirmed; 4]);
        // A claim about Android x86 is not tested on a phone.
        assert!(judged(&host, &with("x", 2.0), "004/2-3").iter().all(|j| j.outcome == Outcome::CannotBeTested));
        assert_eq!(judged(&host, &with("x", 0.0), "000/12")[0].outcome, Outcome::Confirmed);
        assert_eq!(judged(&host, &with("x", 1.0), "000/12")[0].outcome, Outcome::NotConfirmed);
    }

    /// Every row named by a claim is in one of the figures.
    #[test]
    fn claims_name_rows_and_figures_that_exist() {
        let figures = crate::measured_figures(&summarise(&small_trace::rows()));
        let listed = crate::list::list().unwrap();
        for (name, claim, test) in CLAIMS {
            assert!(listed.figure.iter().any(|k| is_of(k, name)), "{name}");
            if let Test::More(f, w)
            | Test::Longer(f, w, _)
            | Test::Shorter(f, w)
            | Test::SameTime(f, w)
            | Test::SameCount(f, w)
            | Test::Some(f, w)
            | Test::None(f, w) = test
            {
                let paper = name.split('/').next().unwrap();
                let found =
                    figures.iter().any(|x| x.paper == paper && x.figure == *f && x.rows.iter().any(|r| r.what == *w));
                assert!(found, "{claim}");
            }
        }
    }

    #[test]
    fn the_table_counts_the_outcomes() {
        let (host, device) = (sqlite("host", 1e6, 1e5, 12), sqlite("x", 2e6, 1e5, 12));
        let all = judge(&host, &device, &two_machines::pair_cells(&host, &device), &|_| true);
        let text = markdown(&all);
        assert!(text.contains("| 000/9 | INSERTs are slower on Android | confirmed |"), "{text}");
        assert!(text.contains("cannot be tested"), "{text}");
    }
}
