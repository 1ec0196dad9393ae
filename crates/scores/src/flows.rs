//! Behaviour of flows over time: what a sending TCP reported (congestion window, round-trip time), what arrived, how long packets
//! of UDP took. Cells that differ only in the factor that distinguishes the lines of a figure (the congestion control) are lines
//! of one chart, so that several flows share one axis; so are the streams of a run, and the runs of several archives. If all
//! lines of a chart are of one run, the cause that limited it is shown behind them. What a recording captured at that time is
//! shown below, on the same axis.
//!
//! For each cell the first valid process is drawn: a time series is an example, and an average of several would be one that
//! no flow ever had.

use super::error::Error;
use super::is_counted;
use super::recording_series::RecordingSeries;
use super::results::{Bench, MeasuredCell, factor_words};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of points drawn for a flow; of a longer series every n-th is drawn.
const POINTS_MAX: usize = 600;
/// What is drawn: the metric, its unit, and its title.
const DRAWN_METRICS: &[(&str, &str, &str)] = &[
    ("interval", "bit/s", "throughput"),
    ("tcp.cwnd", "segments", "congestion window"),
    ("tcp.srtt_us", "us", "round-trip time under load (smoothed, of the sender)"),
    ("one_way_us", "us", "one-way delay under load (of UDP, by both clocks)"),
    (LATENCY_METRIC, "us", "latency of recorded operations"),
    (THROUGHPUT_METRIC, "bit/s", "throughput of the recorded disks"),
];
/// Pseudo-metrics from recordings; no metric of a run has these names.
const LATENCY_METRIC: &str = "beside.latency";
const THROUGHPUT_METRIC: &str = "beside.carried";
/// Values that tcp_probe recorded at each acknowledgement are drawn with the readings of the same name.
const PER_ACK_METRICS: (&str, &str, &str) = ("ack.", "tcp.", "each acknowledgement");
/// The cause that limited a run: its share of an interval, with the cause in its labels.
const LIMITED_METRIC: &str = "limited";
/// The factor that distinguishes the lines of a chart.
const LINE_FACTOR: &str = "cc";

/// A chart of flows over time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flows {
    /// What it shows, and the factors common to all its lines.
    pub title: String,
    /// Unit of the values.
    pub unit: &'static str,
    /// The lines.
    pub flows: Vec<Flow>,
    /// What limited the flows, if all are of one run: intervals in order of time.
    pub bands: Vec<Band>,
    /// End of the time axis, s: the same for all charts that belong together.
    pub end: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Flow {
    /// The factor's value, and the stream, if there are several.
    pub name: String,
    /// Seconds since the first reading, and the value.
    pub points: Vec<(f64, f64)>,
}

/// An interval in which one cause limited the flows most of the time.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Band {
    /// Seconds since the first reading.
    pub from: f64,
    /// Seconds since the first reading.
    pub to: f64,
    /// The cause in words: `link rate`.
    pub cause: String,
}

/// Times and values.
type Points = Vec<(u64, f64)>;

/// The readings of a process that are drawn, by chart and by labels.
#[derive(Default)]
struct Lines<'a> {
    /// By what is drawn, by direction, and by the remaining labels.
    lines: BTreeMap<(usize, &'a str, String), Points>,
    /// By direction and time, the cause with the largest share.
    causes: BTreeMap<(&'a str, u64), (&'a str, f64)>,
}

impl<'a> Lines<'a> {
    fn from_process(bench: &'a Bench, process: u64) -> Self {
        let mut courses = Self::default();
        for s in bench.tables.samples.iter().filter(|s| s.replicate == Some(process)) {
            let Some(t) = s.time_ns else { continue };
            let label = |name: &str| s.labels.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            let direction = label("direction").unwrap_or_default();
            if s.metric == LIMITED_METRIC {
                let greatest = courses.causes.entry((direction, t)).or_default();
                if s.value > greatest.1 {
                    *greatest = (label("cause").unwrap_or_default(), s.value);
                }
            } else if let Some((at, each)) = chart_of_metric(&s.metric) {
                let mut rest: Vec<&str> = s.labels.split(' ').filter(|word| !word.starts_with("direction=")).collect();
                rest.extend(each);
                courses.lines.entry((at, direction, rest.join(" "))).or_default().push((t, s.value));
            }
        }
        courses
    }

    fn start(&self) -> Option<u64> {
        self.lines.values().flatten().map(|(t, _)| *t).chain(self.causes.keys().map(|c| c.1)).min()
    }

    fn end(&self) -> Option<u64> {
        self.lines.values().flatten().map(|(t, _)| *t).max()
    }

    fn directions(&self) -> usize {
        self.lines.keys().map(|k| k.1).collect::<BTreeSet<_>>().len()
    }

    /// Returns what limited a direction; adjacent intervals of one cause are merged, and a gap belongs to the interval before it.
    fn bands(&self, direction: &str, start: u64) -> Vec<Band> {
        let seconds = |t: u64| t.saturating_sub(start) as f64 / 1e9;
        let mut bands: Vec<Band> = Vec::new();
        for ((_, t), (cause, _)) in self.causes.iter().filter(|((d, _), _)| *d == direction) {
            let (from, cause) = (seconds(*t), super::run_score::cause_in_words(cause));
            match bands.last_mut() {
                Some(last) if last.cause == cause => (),
                last => {
                    last.into_iter().for_each(|last| last.to = from);
                    bands.push(Band { from, to: from, cause });
                }
            }
        }
        let end = self.end().map_or(0.0, seconds);
        bands.last_mut().into_iter().for_each(|last| last.to = end.max(last.from));
        bands
    }
}

/// Returns the chart to which a metric belongs, and an additional label for its line.
fn chart_of_metric(metric: &str) -> Option<(usize, Option<&'static str>)> {
    let place = |wanted: &str| DRAWN_METRICS.iter().position(|d| d.0 == wanted);
    match metric.strip_prefix(PER_ACK_METRICS.0) {
        Some(field) => Some((place(&format!("{}{field}", PER_ACK_METRICS.1))?, Some(PER_ACK_METRICS.2))),
        None => Some((place(metric)?, None)),
    }
}

/// A chart under construction.
#[derive(Default)]
struct Chart {
    flows: Vec<Flow>,
    /// What limited each run with lines in this chart, by the run's name.
    runs: BTreeMap<String, Vec<Band>>,
}

type Charts = BTreeMap<(usize, String), Chart>;

/// Returns the charts for which this archive has readings.
pub fn flows(bench: &Bench, all: &[MeasuredCell]) -> Vec<Flows> {
    let mut charts = Charts::new();
    for m in all {
        let Some(courses) = first_valid_process(bench, m).map(|id| Lines::from_process(bench, id)) else { continue };
        let rest: BTreeMap<String, String> =
            m.factors.clone().into_iter().filter(|(name, _)| name != LINE_FACTOR).collect();
        let title = format!("{} {}", m.design.name, factor_words(&rest));
        let apart = m.factors.get(LINE_FACTOR).cloned().unwrap_or_default();
        let start = courses.start().unwrap_or(0);
        add_lines(&mut charts, &courses, start, &title, &[&apart], &m.cell.name);
    }
    finish_charts(charts, None)
}

/// Returns the flows of several runs on one axis. Runs that overlap in time keep their positions by the clock of the client
/// machine; others start together. Recordings made beside them are on the same axis, for as long as the runs lasted.
///
/// # Errors
/// A recording does not fit on that axis.
pub fn flows_of_runs(runs: &[Bench], recordings: &[RecordingSeries]) -> Result<Vec<Flows>, Error> {
    let mut all = Vec::new();
    for bench in runs {
        for m in bench.measured_cells() {
            let Some(courses) = first_valid_process(bench, &m).map(|id| Lines::from_process(bench, id)) else {
                continue;
            };
            let apart = m.factors.get(LINE_FACTOR).cloned().unwrap_or_default();
            all.push((bench.name.clone(), apart, m.cell.name.clone(), courses));
        }
    }
    let starts: Vec<u64> = all.iter().filter_map(|a| a.3.start()).collect();
    let ends = all.iter().filter_map(|a| a.3.end()).min();
    let (least, most) = (starts.iter().min().copied().unwrap_or(0), starts.iter().max().copied());
    let overlap = most < ends;
    let several = all.len() > 1;
    let mut charts = Charts::new();
    for (name, apart, cell, courses) in &all {
        let start = if overlap { least } else { courses.start().unwrap_or(0) };
        let name = if several { name.as_str() } else { "" };
        add_lines(&mut charts, courses, start, "", &[name, apart], cell);
    }
    let last = all.iter().filter_map(|a| a.3.end()).max().unwrap_or(least);
    for recording in recordings {
        if !overlap {
            return Err(Error::SeveralTimes { recording: recording.name.clone() });
        }
        if let Some(run) =
            runs.iter().find(|run| run.boot.is_some() && recording.boot.is_some() && run.boot != recording.boot)
        {
            return Err(Error::DifferentClocks { run: run.name.clone(), recording: recording.name.clone() });
        }
        if !recording.has_time_within(least, last) {
            return Err(Error::NoOverlap { recording: recording.name.clone() });
        }
        add_recording(&mut charts, recording, least, last);
    }
    Ok(finish_charts(charts, Some(last.saturating_sub(least) as f64 / 1e9).filter(|_| overlap)))
}

/// Returns recordings alone on one axis: they must share a clock, and overlap in time.
///
/// # Errors
/// Two of them have no common clock, or do not overlap.
pub fn flows_of_recordings(recordings: &[RecordingSeries]) -> Result<Vec<Flows>, Error> {
    let lasted: Vec<(&RecordingSeries, (u64, u64))> =
        recordings.iter().filter_map(|r| Some((r, r.time_range()?))).collect();
    let Some(((first, _), others)) = lasted.split_first().map(|(first, others)| (*first, others)) else {
        return Ok(Vec::new());
    };
    if let Some((other, _)) = others.iter().find(|(r, _)| r.boot.is_none() || r.boot != first.boot) {
        return Err(Error::DifferentClocks { run: first.name.clone(), recording: other.name.clone() });
    }
    let ended = lasted.iter().map(|(_, (_, end))| *end).min().unwrap_or(0);
    if let Some((late, _)) = lasted.iter().find(|(_, (begin, _))| *begin > ended) {
        return Err(Error::NoOverlap { recording: late.name.clone() });
    }
    let least = lasted.iter().map(|(_, (begin, _))| *begin).min().unwrap_or(0);
    let last = lasted.iter().map(|(_, (_, end))| *end).max().unwrap_or(least);
    let mut charts = Charts::new();
    lasted.iter().for_each(|(recording, _)| add_recording(&mut charts, recording, least, last));
    Ok(finish_charts(charts, Some(last.saturating_sub(least) as f64 / 1e9)))
}

/// Adds what a recording captured between these times.
fn add_recording(charts: &mut Charts, recording: &RecordingSeries, least: u64, last: u64) {
    for (metric, lines) in
        [(LATENCY_METRIC, recording.latencies(least, last)), (THROUGHPUT_METRIC, recording.throughputs(least, last))]
    {
        let Some((at, _)) = chart_of_metric(metric).filter(|_| !lines.is_empty()) else { continue };
        let lines = lines.into_iter().map(|(name, course)| Flow { name, points: thin_points(course, least) });
        charts.entry((at, String::new())).or_default().flows.extend(lines);
    }
}

/// Returns the first valid process of a cell.
fn first_valid_process(bench: &Bench, m: &MeasuredCell) -> Option<u64> {
    bench.tables.replicates.iter().find(|r| r.cell == m.cell.id && is_counted(r)).map(|r| r.id)
}

/// Adds a run's lines; `called` names the run, `otherwise` is used if that is empty and there is one line.
fn add_lines(charts: &mut Charts, courses: &Lines, start: u64, title: &str, called: &[&str], otherwise: &str) {
    let both = courses.directions() > 1;
    for ((at, direction, labels), course) in &courses.lines {
        let several = courses.lines.keys().filter(|(a, d, _)| (a, d) == (at, direction)).count() > 1;
        let way = if both { format!("{title} direction={direction}") } else { title.to_string() };
        let chart = charts.entry((*at, way)).or_default();
        let labels = if several { labels.as_str() } else { "" };
        let name: Vec<&str> = called.iter().copied().chain([labels]).filter(|word| !word.is_empty()).collect();
        let name = if name.is_empty() { otherwise.to_string() } else { name.join(" ") };
        chart.flows.push(Flow { name, points: thin_points(course.clone(), start) });
        let run = called.iter().copied().chain([otherwise]).collect::<Vec<_>>().join(" ");
        chart.runs.entry(run).or_insert_with(|| courses.bands(direction, start));
    }
}

/// Finishes the charts. `end`: where all axes end; without it each axis ends with its own flows.
fn finish_charts(charts: Charts, end: Option<f64>) -> Vec<Flows> {
    let own = |chart: &Chart| chart.flows.iter().flat_map(|f| &f.points).fold(0.0, |end, point| point.0.max(end));
    let chart = |((at, title), chart): ((usize, String), Chart)| Flows {
        title: [DRAWN_METRICS[at].2, title.trim()].into_iter().filter(|t| !t.is_empty()).collect::<Vec<_>>().join(": "),
        unit: DRAWN_METRICS[at].1,
        end: end.unwrap_or_else(|| own(&chart)),
        flows: chart.flows,
        // The limit of one run does not apply to another.
        bands: if chart.runs.len() == 1 { chart.runs.into_values().flatten().collect() } else { Vec::new() },
    };
    charts.into_iter().map(chart).collect()
}

fn thin_points(mut course: Points, start: u64) -> Vec<(f64, f64)> {
    course.sort_unstable_by_key(|(t, _)| *t);
    let step = course.len().div_ceil(POINTS_MAX).max(1);
    course.iter().step_by(step).map(|(t, v)| (t.saturating_sub(start) as f64 / 1e9, *v)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::bench;
    use model::table::Sample;

    #[test]
    fn cells_that_differ_in_congestion_control_share_an_axis() {
        let mut b = bench("b", "net-delay");
        let cells = [
            [("cc", "reno"), ("delay_ms", "8")],
            [("cc", "cubic"), ("delay_ms", "8")],
            [("cc", "reno"), ("delay_ms", "0")],
        ];
        for factors in &cells {
            b.add(factors, 100.0, 1000.0, 2);
        }
        let reading = |replicate: u64, metric: &str, time_ns: u64, value: f64| Sample {
            replicate: Some(replicate),
            metric: metric.into(),
            unit: "segment".into(),
            labels: "direction=down stream=0".into(),
            time_ns: Some(time_ns),
            value,
        };
        for replicate in 0..6 {
            for n in 0..2000 {
                // Out of order, as the two ends deliver them.
                b.tables.samples.push(reading(replicate, "tcp.cwnd", 5_000_000_000 - n * 1_000_000, n as f64));
            }
        }
        b.tables.samples.push(reading(0, "tcp.srtt_us", 5_000_000_000, 16_000.0));
        let charts = flows(&b, &b.measured_cells());
        let said: Vec<(&str, Vec<&str>)> =
            charts.iter().map(|c| (c.title.as_str(), c.flows.iter().map(|f| f.name.as_str()).collect())).collect();
        assert_eq!(
            said,
            [
                ("congestion window: net-delay delay_ms=0", vec!["reno"]),
                ("congestion window: net-delay delay_ms=8", vec!["reno", "cubic"]),
                ("round-trip time under load (smoothed, of the sender): net-delay delay_ms=8", vec!["reno"]),
            ]
        );
        let course = &charts[1].flows[0].points;
        assert!(course.len() <= POINTS_MAX && course.is_sorted_by(|a, b| a.0 <= b.0));
        assert_eq!(course[0], (0.0, 1999.0), "times count from the first reading");
        assert!(flows(&bench("b", "http"), &[]).is_empty());
    }

    /// A run of two streams from `begin` on, for two seconds, of which the first is application-limited.
    fn run(name: &str, begin: u64) -> Bench {
        let mut b = bench(name, "net run");
        b.add(&[("streams", "2")], 100.0, 1000.0, 1);
        let mut push = |metric: &str, labels: &str, time_ns: u64, value: f64| {
            b.tables.samples.push(Sample {
                replicate: Some(0),
                metric: metric.into(),
                unit: String::new(),
                labels: labels.into(),
                time_ns: Some(time_ns),
                value,
            });
        };
        for n in 0..=20 {
            let t = begin + n * 100_000_000;
            for stream in ["0", "1"] {
                push("tcp.cwnd", &format!("direction=up stream={stream}"), t, n as f64);
            }
            push("interval", "direction=up", t, 1e6);
            let (early, late) = if n < 10 { (0.8, 0.2) } else { (0.3, 0.7) };
            push("limited", "direction=up cause=application", t, early);
            push("limited", "direction=up cause=link_rate", t, late);
        }
        b
    }

    #[test]
    fn streams_of_a_run_share_an_axis_with_shaded_limits() {
        let charts = flows_of_runs(&[run("a", 5_000_000_000)], &[]).unwrap();
        let said: Vec<(&str, Vec<&str>)> =
            charts.iter().map(|c| (c.title.as_str(), c.flows.iter().map(|f| f.name.as_str()).collect())).collect();
        let cell = run("a", 0).tables.cells[0].name.clone();
        assert_eq!(said, [("throughput", vec![cell.as_str()]), ("congestion window", vec!["stream=0", "stream=1"])]);
        let band = |from, to, cause: &str| Band { from, to, cause: cause.into() };
        for chart in &charts {
            assert_eq!(chart.bands, [band(0.0, 1.0, "application"), band(1.0, 2.0, "link rate")], "{}", chart.title);
        }
    }

    #[test]
    fn simultaneous_runs_share_a_time_axis() {
        let course = |charts: &[Flows], flow: usize| charts[1].flows[flow].points[0].0;
        let charts = flows_of_runs(&[run("a", 5_000_000_000), run("b", 6_000_000_000)], &[]).unwrap();
        assert_eq!((course(&charts, 0), course(&charts, 2)), (0.0, 1.0));
        assert_eq!(charts[1].flows[2].name, "b stream=0");
        assert!(charts.iter().all(|c| c.bands.is_empty()), "of two runs");
        let charts = flows_of_runs(&[run("a", 5_000_000_000), run("b", 60_000_000_000)], &[]).unwrap();
        assert_eq!((course(&charts, 0), course(&charts, 2)), (0.0, 0.0), "they begin together");
    }

    #[test]
    fn a_recording_is_aligned_by_its_clock_or_refused() {
        let recording = RecordingSeries {
            name: "r".into(),
            boot: Some("one".into()),
            operations: vec![(4_000_000_000, 7.0), (5_500_000_000, 8.0)],
            commands: [(("vda".into(), "write"), vec![(5_150_000_000, 12_500), (5_160_000_000, 12_500)])].into(),
            ..RecordingSeries::default()
        };
        let mut run_a = run("a", 5_000_000_000);
        let charts = flows_of_runs(std::slice::from_ref(&run_a), std::slice::from_ref(&recording)).unwrap();
        let of = |title: &str| charts.iter().find(|c| c.title.contains(title)).unwrap();
        let latency = of("recorded operations");
        // Events before the run are not drawn.
        assert_eq!(latency.flows, [Flow { name: "r operations".into(), points: vec![(0.5, 8.0)] }]);
        let disk = &of("disks").flows[0];
        assert_eq!(disk.name, "r vda write");
        // 25,000 bytes between 100 and 200 ms are 2 Mb/s there.
        assert_eq!((disk.points[0], disk.points[1], disk.points[2].1), ((0.1, 0.0), (0.2, 2e6), 0.0));
        assert!(charts.iter().all(|c| c.end == 2.0), "one axis");

        let refused = |runs: &[Bench], reason: &str| {
            let why = flows_of_runs(runs, std::slice::from_ref(&recording)).unwrap_err().to_string();
            assert!(why.contains(reason), "{why}");
        };
        refused(&[run("a", 60_000_000_000)], "does not overlap");
        refused(&[run("a", 5_000_000_000), run("b", 60_000_000_000)], "not made at the same time");
        run_a.boot = Some("two".into());
        refused(&[run_a], "different clocks");
    }

    #[test]
    fn recordings_share_an_axis_by_the_hosts_clock_or_not_at_all() {
        let at = |name: &str, boot: Option<&str>, times: [u64; 2]| RecordingSeries {
            name: name.into(),
            boot: boot.map(Into::into),
            operations: times.map(|t| (t * 1_000_000_000, 7.0)).to_vec(),
            ..RecordingSeries::default()
        };
        let (a, b) = (at("a", Some("one"), [5, 9]), at("b", Some("one"), [7, 12]));
        let charts = flows_of_recordings(&[a.clone(), b.clone()]).unwrap();
        let said: Vec<_> = charts[0].flows.iter().map(|f| (f.name.as_str(), f.points.clone())).collect();
        assert_eq!(
            said,
            [("a operations", vec![(0.0, 7.0), (4.0, 7.0)]), ("b operations", vec![(2.0, 7.0), (7.0, 7.0)])]
        );
        assert_eq!((charts.len(), charts[0].end), (1, 7.0));
        let why = |all: &[RecordingSeries]| flows_of_recordings(all).unwrap_err().to_string();
        assert!(why(&[a.clone(), at("b", Some("two"), [7, 12])]).contains("different clocks"));
        assert!(why(&[at("a", None, [5, 9]), at("b", None, [7, 12])]).contains("different clocks"));
        assert!(why(&[a, at("b", Some("one"), [10, 12])]).contains("does not overlap"));
        assert!(flows_of_recordings(&[RecordingSeries::default()]).unwrap().is_empty());
    }

    #[test]
    fn each_acknowledgement_is_drawn_with_the_readings() {
        let mut a = run("a", 5_000_000_000);
        for n in 0..3000 {
            a.tables.samples.push(Sample {
                replicate: Some(0),
                metric: "ack.cwnd".into(),
                unit: "segment".into(),
                labels: "direction=up stream=0".into(),
                time_ns: Some(5_000_000_000 + n * 500_000),
                value: 10.0,
            });
        }
        let charts = flows_of_runs(&[a], &[]).unwrap();
        let windows = charts.iter().find(|c| c.title == "congestion window").unwrap();
        let names: Vec<&str> = windows.flows.iter().map(|f| f.name.as_str()).collect();
        assert_eq!(names, ["stream=0", "stream=0 each acknowledgement", "stream=1"]);
        assert_eq!(windows.flows[1].points[0], (0.0, 10.0));
    }
}
