//! The papers' figures of benchmarks, built from this archive: 000, figures 1 to 10; 001, figures 1 to 4 (7 to 12: [`cluster`]);
//! 002, figures 5 and 6 and the numbers of its chapter 4; 004, figure 1.
//!
//! The papers print them as plots without tables. The statements of their text are here, in words, and are shown
//! beside our values; none of our numbers is derived from theirs. A figure takes the cells of its workload that it is
//! about: `000/9` the INSERTs of `sqlite`, `000/6` the runs of `seq` on external storage. The archive records which
//! machine a cell is from.

use super::cluster;
use super::figure::{Bar, Figure, score_bar};
use super::results::{Bench, MeasuredCell, factor_words};
use analysis::text::{digits, escaped, scale};
use model::table::DesignRow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// What a figure is built from.
struct FigureSpec {
    paper: &'static str,
    figure: &'static str,
    title: &'static str,
    says: &'static str,
    /// The designs whose cells it uses.
    workloads: &'static [&'static str],
    /// A factor, and values (or prefixes of values) of which a cell must have one; a cell without the factor does not match.
    only: Option<(&'static str, &'static [&'static str])>,
    /// The same for values that a cell must not have.
    without: Option<(&'static str, &'static [&'static str])>,
    lines: Option<(&'static str, &'static str)>,
    /// Converts transactions/s to KB/s, by the factor that is their size.
    bytes: Option<&'static str>,
}

const EMPTY_SPEC: FigureSpec = FigureSpec {
    paper: "",
    figure: "",
    title: "",
    says: "",
    workloads: &[],
    only: None,
    without: None,
    lines: None,
    bytes: None,
};

/// Directory names that indicate a card or stick.
pub const EXTERNAL_NAMES: &[&str] = &["external", "usb", "sd", "card"];

const FIGURE_SPECS: &[FigureSpec] = &[
    FigureSpec {
        paper: "000",
        figure: "1",
        title: "CPU: LINPACK and SciMark2 in Java",
        says: "Android is slower than Linux on the same machine: SOR on the server PC about 14 % of Linux, Monte Carlo on the \
               netbook about 7 %",
        workloads: &["linpack", "scimark"],
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "2",
        title: "CPU: Himeno, native code and bytecode",
        says: "bytecode is slower than native code on both, and more so on Android",
        workloads: &["himeno"],
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "3",
        title: "HTTP transactions: GETs of a byte",
        says: "Android is slower than Linux",
        workloads: &["http"],
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "4",
        title: "drawing rectangles, lines and circles",
        says: "Android is slower than Linux but for rectangles; lines relate as the processors of figure 1 do",
        workloads: &["draw"],
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "5",
        title: "sequential write and read, internal storage",
        says: "Android is slower than Linux, writing and reading",
        workloads: &["seq"],
        without: Some(("dir", EXTERNAL_NAMES)),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "6",
        title: "sequential write and read, external storage",
        says: "writing is about equal (the stick is the limit); reading is slower on Android",
        workloads: &["seq"],
        only: Some(("dir", EXTERNAL_NAMES)),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "7",
        title: "writing and reading many files (the paper: of 1 MB), internal storage",
        says: "Android is slower than Linux",
        workloads: &["file"],
        without: Some(("dir", EXTERNAL_NAMES)),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "8",
        title: "writing and reading many files (the paper: of 1 MB), external storage",
        says: "writing is about equal on many machines (the stick is the limit)",
        workloads: &["file"],
        only: Some(("dir", EXTERNAL_NAMES)),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "9",
        title: "SQLite: INSERTs (the paper: 1,000 rows)",
        says: "Android is slower than Linux on the same machine",
        workloads: &["sqlite"],
        only: Some(("op", &["insert"])),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "000",
        figure: "10",
        title: "SQLite: scans (the paper: of 1,000 rows)",
        says: "much faster than INSERTs, and as fast as the processor; Android is slower than Linux",
        workloads: &["sqlite"],
        only: Some(("op", &["select"])),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "001",
        figure: "1, 3",
        title: "random reads, transactions/s by threads and block size",
        says: "flash (figure 1) is faster than a hard disk (figure 3), at most some 2,100 a second; with more than 4 threads it \
               gains nothing; blocks below 4 KB give no more transactions",
        workloads: &["random"],
        lines: Some(("threads", "block")),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "001",
        figure: "2, 4",
        title: "random reads, KB/s by threads and block size",
        says: "the same runs as figures 1 and 3",
        workloads: &["random"],
        lines: Some(("threads", "block")),
        bytes: Some("block"),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "002",
        figure: "5",
        title: "TCP over a delay machine, by one-way delay",
        says: "stable to a one-way delay of 16 ms, and much lower at 32 ms; UDP 1.0 Mb/s (the receive buffer is not \
            reported; ours is autotuned, and with receive_buffer=32K throughput drops likewise)",
        workloads: &["net-delay"],
        only: Some(("cc", &["cubic"])),
        lines: Some(("delay_ms", "direction")),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "002",
        figure: "6",
        title: "TCP over a delay machine, by one-way delay and congestion control",
        says: "the server sends, without loss: westwood is lower than bic, cubic, htcp and reno",
        workloads: &["net-delay"],
        only: Some(("direction", &["down"])),
        lines: Some(("delay_ms", "cc")),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "002",
        figure: "loss",
        title: "TCP by loss and congestion control",
        says: "not yet measured when the paper was written",
        workloads: &["net-loss"],
        lines: Some(("loss", "cc")),
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "002",
        figure: "ch4",
        title: "Wi-Fi and Bluetooth, TCP and UDP, to the phone (down) and from it (up)",
        says: "Wi-Fi: TCP to the phone 9.83 Mb/s, from it 7.22, UDP about 1.0 both ways; phone to phone TCP 4.62, \
            UDP 0.584. Bluetooth: TCP to the phone 1.564, from it 1.444, UDP about the same. Window and buffer sizes \
            do not affect UDP over Wi-Fi or Bluetooth, except that a larger receive buffer helps UDP to the phone \
            over Bluetooth. iperf 2 sends UDP at 1 Mb/s by default, which is most likely what was measured as UDP \
            over Wi-Fi",
        workloads: &["net-wlan"],
        ..EMPTY_SPEC
    },
    FigureSpec {
        paper: "004",
        figure: "1",
        title: "SQLite: INSERTs (the paper: 10,000 rows)",
        says: "Android x86 is about 45 % slower than Linux on the same PC, and 34 % slower than an Android phone",
        workloads: &["sqlite"],
        only: Some(("op", &["insert"])),
        ..EMPTY_SPEC
    },
];

/// Designs that measure between real devices what other designs measure over a model of their link.
const BETWEEN_DEVICES: &[(&str, &[&str])] = &[("net-delay", &["net-delay-devices"]), ("net-wlan", &["net-devices"])];

/// Returns the same figure, between devices.
fn figure_between_devices(spec: &FigureSpec, all: &[MeasuredCell]) -> Option<Figure> {
    let (_, workloads) = BETWEEN_DEVICES.iter().find(|(model, _)| spec.workloads == [*model])?;
    // A phone's own congestion control is CUBIC, or the choice of its manufacturer.
    let only = spec.only.map(|only| if only.0 == "cc" { ("cc", &["cubic", "kernel"][..]) } else { only });
    let made = build_figure(&FigureSpec { workloads, only, ..*spec }, all);
    Some(Figure { title: format!("{}; between devices", made.title).into(), ..made })
}

/// Returns the figures for which this archive has cells.
pub fn figures(bench: &Bench) -> Vec<Figure> {
    let all = bench.measured_cells();
    let made = FIGURE_SPECS.iter().map(|spec| build_figure(spec, &all));
    let made = made.chain(FIGURE_SPECS.iter().filter_map(|spec| figure_between_devices(spec, &all)));
    let mut figures: Vec<Figure> = made.filter(|f| !f.bars.is_empty()).collect();
    figures.extend(cluster::figures(bench, &all));
    figures
}

/// Returns the cells that are in none of these figures, one figure per design, without a paper's name.
pub fn other_figures(bench: &Bench, figures: &[Figure]) -> Vec<Figure> {
    let shown: BTreeSet<u64> = figures.iter().flat_map(|f| &f.bars).map(|b| b.cell).collect();
    let all = bench.measured_cells();
    let one = |design: &DesignRow| {
        let bars = all.iter().filter(|m| m.design.id == design.id && !shown.contains(&m.cell.id));
        Figure {
            paper: "",
            figure: "",
            title: format!("{}: {}", design.name, design.question).into(),
            says: "",
            x: None,
            series: None,
            bars: bars.filter_map(|m| build_bar(&EMPTY_SPEC, m)).collect(),
            stated: Vec::new(),
        }
    };
    bench.tables.designs.iter().map(one).filter(|f| !f.bars.is_empty()).collect()
}

fn build_figure(spec: &FigureSpec, all: &[MeasuredCell]) -> Figure {
    let one_of = |m: &MeasuredCell, (factor, values): (&str, &[&str])| {
        m.factors.get(factor).is_some_and(|v| values.iter().any(|start| v.starts_with(start)))
    };
    let wanted = |m: &&MeasuredCell| {
        spec.workloads.contains(&m.design.name.as_str())
            && spec.only.is_none_or(|only| one_of(m, only))
            && !spec.without.is_some_and(|without| one_of(m, without))
    };
    Figure {
        paper: spec.paper,
        figure: spec.figure,
        title: spec.title.into(),
        says: spec.says,
        x: spec.lines.map(|l| l.0),
        series: spec.lines.map(|l| l.1),
        bars: all.iter().filter(wanted).filter_map(|m| build_bar(spec, m)).collect(),
        stated: Vec::new(),
    }
}

fn build_bar(spec: &FigureSpec, m: &MeasuredCell) -> Option<Bar> {
    let mut bar = score_bar(m);
    if spec.workloads.len() > 1 {
        bar.label = format!("{} {}", m.design.name, factor_words(&m.factors));
    }
    if let Some(factor) = spec.bytes {
        let size = parse_size(m.factors.get(factor)?)? / 1024.0;
        bar.estimate = bar.estimate.map(|v| v * size);
        bar.ci95 = bar.ci95.map(|c| c.map(|v| v * size));
        bar.values.iter_mut().for_each(|v| *v *= size);
        bar.unit = "KB/s".into();
    }
    let factor = |name: Option<&str>| name.and_then(|n| m.factors.get(n)).cloned();
    Some(Bar { x: factor(spec.lines.map(|l| l.0)), series: factor(spec.lines.map(|l| l.1)), ..bar })
}

/// Parses a size in bytes as written in a factor's value: `4096`, `4K`.
fn parse_size(text: &str) -> Option<f64> {
    let (digits, factor) = match text.chars().last()? {
        'K' | 'k' => (&text[..text.len() - 1], 1024.0),
        'M' | 'm' => (&text[..text.len() - 1], 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|n| n * factor)
}

/// Returns what all cells of a figure have in common, by factor.
fn common_words(figure: &Figure) -> Vec<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for word in figure.bars.iter().flat_map(|b| b.label.split(' ')) {
        *counts.entry(word).or_default() += 1;
    }
    counts.into_iter().filter(|(_, n)| *n == figure.bars.len() && *n > 1).map(|(w, _)| w.to_string()).collect()
}

/// Formats the figures as Markdown: what the paper states, then our values in a column of their own.
pub fn markdown(figures: &[Figure]) -> String {
    let mut text = String::new();
    for f in figures {
        let common = common_words(f);
        let _ = writeln!(text, "### {} figure {}: {}\n\nThe paper: {}.\n", f.paper, f.figure, f.title, f.says);
        if !f.stated.is_empty() {
            text.push_str("| in its text | paper | ours | unit |\n|---|---:|---:|---|\n");
            for s in &f.stated {
                let ours = s.ours.map_or_else(|| "not measured".into(), digits);
                let _ = writeln!(text, "| {} | {} | {ours} | {} |", s.what, digits(s.paper), s.unit);
            }
            text.push('\n');
        }
        if !common.is_empty() {
            let _ = writeln!(text, "Measured here, all with {}:\n", escaped(&common.join(" ")));
        }
        text.push_str("| cell | ours | 95 % interval | unit | processes | |\n|---|---:|---:|---|---:|---|\n");
        for b in &f.bars {
            let label: Vec<&str> = b.label.split(' ').filter(|w| !common.iter().any(|c| c == w)).collect();
            let (size, unit) = scale(&b.unit, b.estimate.unwrap_or(0.0));
            let shown = |x: f64| digits(x / size);
            let ours = b.estimate.map_or_else(|| "none".into(), shown);
            let interval = b.ci95.map_or_else(String::new, |[low, high]| format!("{} to {}", shown(low), shown(high)));
            let cells = [label.join(" "), ours, interval, unit, b.values.len().to_string(), b.notes.join("; ")];
            let _ = writeln!(text, "| {} |", cells.map(|c| escaped(&c)).join(" | "));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;

    #[test]
    fn a_figure_has_its_own_cells_and_no_values_of_the_paper() {
        let mut sqlite = bench("b", "sqlite");
        sqlite.add(&[("op", "insert"), ("rows", "1000")], 100.0, 1000.0, 4);
        sqlite.add(&[("op", "select"), ("rows", "1000")], 100.0, 1000.0, 4);
        let made: Vec<(String, usize)> =
            figures(&sqlite).iter().map(|f| (format!("{}/{}", f.paper, f.figure), f.bars.len())).collect();
        assert_eq!(made, [("000/9".into(), 1), ("000/10".into(), 1), ("004/1".into(), 1)]);
        let mut seq = bench("b", "seq");
        seq.add(&[("dir", "/data")], 100.0, 1000.0, 4);
        seq.add(&[("dir", "external")], 100.0, 1000.0, 4);
        let made: Vec<&str> = figures(&seq).iter().map(|f| f.figure).collect();
        assert_eq!(made, ["5", "6"]);
        let text = markdown(&figures(&seq));
        assert!(
            text.contains("### 000 figure 5") && text.contains("| 10") && text.contains("Android is slower"),
            "{text}"
        );
        let mut other = bench("b", "w");
        other.add(&[("a", "1")], 100.0, 1000.0, 4);
        assert!(figures(&other).is_empty() && other_figures(&seq, &figures(&seq)).is_empty());
        assert_eq!(other_figures(&other, &[])[0].title, "w: How fast?");
    }

    #[test]
    fn kilobytes_are_transactions_times_their_size() {
        let mut random = bench("b", "random");
        random.add(&[("threads", "4"), ("block", "4K")], 1000.0, 1000.0, 4);
        let all = figures(&random);
        let (tps, kbs) = (&all[0].bars[0], &all[1].bars[0]);
        assert!((kbs.estimate.unwrap() / tps.estimate.unwrap() - 4.0).abs() < 1e-9 && kbs.unit == "KB/s");
        assert_eq!((tps.x.as_deref(), tps.series.as_deref()), (Some("4"), Some("4K")));
        assert_eq!(
            [parse_size("1"), parse_size("16K"), parse_size("x"), parse_size("")],
            [Some(1.0), Some(16384.0), None, None]
        );
    }
}
