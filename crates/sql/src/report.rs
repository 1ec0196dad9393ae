//! `fathom fleet report`: a page that shows the statements of a fleet's devices day by day, and where they changed.
//!
//! A day's value is the median latency of a statement on a device, by rank. A change is a step in the logarithms of the days (PELT
//! proposes its day) that explains them better than each day's dependence on the previous day, where at least ten days have a value. Days
//! are treated as equidistant, and devices and statements are examined one by one.
//!
//! Among many series without any change, some show one by chance. `stats::changes` decides which ones chance does not explain; its error
//! rates are simulated (docs/results/fleet-changes.md). Where the bound does not hold, the page states so.

use crate::engine::Engine;
use anyhow::Result;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Date32Type, Float64Type, Int64Type};
use futures_util::TryStreamExt;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Days that a series needs to be tested for changes.
const TESTED_DAYS_MIN: usize = stats::changes::SERIES_VALUES_MIN;
/// Statements that are drawn, those with the most total time first.
const STATEMENTS_MAX: usize = 12;
/// Devices that are drawn per statement.
const DEVICES_MAX: usize = 8;

const DAILY_QUERY: &str = r#"
WITH timed AS (
    SELECT o."device", o."date", s."text", o."end_ns" - o."start_ns" AS "latency_ns"
    FROM operations o JOIN shapes s ON s."run" = o."run" AND s."id" = o."shape"
    WHERE o."end_ns" IS NOT NULL AND s."kind" = 'statement'
), ranked AS (
    SELECT "device", "date", "text", "latency_ns",
        row_number() OVER (PARTITION BY "device", "date", "text" ORDER BY "latency_ns") AS "place_in_order",
        count(*) OVER (PARTITION BY "device", "date", "text") AS "executions"
    FROM timed
)
SELECT "text", "device", "date", max("executions") AS "executions", CAST(sum("latency_ns") AS DOUBLE) AS "time_ns",
    min(CASE WHEN 2 * "place_in_order" >= "executions" THEN "latency_ns" END) AS "p50_ns",
    min(CASE WHEN 10 * "place_in_order" >= "executions" THEN "latency_ns" END) AS "p10_ns",
    min(CASE WHEN 10 * "place_in_order" >= 9 * "executions" THEN "latency_ns" END) AS "p90_ns",
    min(CASE WHEN 100 * "place_in_order" >= 99 * "executions" THEN "latency_ns" END) AS "p99_ns"
FROM ranked GROUP BY "text", "device", "date" ORDER BY "text", "device", "date""#;

const ARCHIVES_QUERY: &str =
    r#"SELECT "device", "date", "archive", "run" FROM archives ORDER BY "device", "date", "archive""#;

/// A statement's latencies on a device and a day, in ns.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Day {
    /// Days since 1970.
    day: i32,
    executions: i64,
    p10: i64,
    p50: i64,
    p90: i64,
    p99: i64,
}

/// One statement on one device.
#[derive(Debug, Default, Clone)]
pub struct Series {
    pub days: Vec<Day>,
    executions: i64,
    time_ns: f64,
    /// The days from which on the median differs, once the series is tested.
    changes: Vec<usize>,
}

/// An archive of a device and a day.
#[derive(Debug, Clone)]
struct Source {
    name: String,
    run: String,
}

/// The archives of a device and a day.
type Sources = BTreeMap<(String, i32), Vec<Source>>;

/// Statements, and their devices.
type All = BTreeMap<String, BTreeMap<String, Series>>;

impl Series {
    fn logs(&self) -> Vec<f64> {
        self.days.iter().map(|day| (day.p50.max(1) as f64).ln()).collect()
    }

    /// The geometric mean of the medians of some days.
    fn level(&self, days: std::ops::Range<usize>) -> f64 {
        let some = &self.days[days];
        (some.iter().map(|day| (day.p50.max(1) as f64).ln()).sum::<f64>() / some.len().max(1) as f64).exp()
    }
}

/// The outcome of the search for changes.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct FoundChanges {
    /// Series with enough days.
    at: usize,
    /// Those whose change would be listed if it were the only series.
    found: usize,
    /// Those of them that are listed.
    listed: usize,
}

/// Looks for changes in every series, and keeps those that chance does not explain.
fn find_changes(all: &mut All) -> FoundChanges {
    let logs: Vec<Vec<f64>> = all.values().flat_map(BTreeMap::values).map(Series::logs).collect();
    let changes = stats::changes::find(&logs);
    let looked = FoundChanges { at: changes.searched, found: changes.found, listed: changes.taken() };
    for (series, places) in all.values_mut().flat_map(BTreeMap::values_mut).zip(changes.places) {
        series.changes = places;
    }
    looked
}

async fn query_rows(engine: &Engine, sql: &str) -> Result<Vec<RecordBatch>> {
    let (_, rows) = engine.run(sql).await?;
    Ok(rows.try_collect().await?)
}

fn cell_text(batch: &RecordBatch, column: usize, row: usize) -> String {
    datafusion::arrow::util::display::array_value_to_string(batch.column(column), row).unwrap_or_default()
}

pub struct ReportData {
    all: All,
    archives: Sources,
    looked: FoundChanges,
}

impl ReportData {
    /// The archives that are linked: those of a change's first day and of the day before, and some of each drawn device's last day.
    pub fn linked(&self) -> Vec<String> {
        let of = |device: &String, day: i32, most: usize| {
            let of_day = self.archives.get(&(device.clone(), day)).into_iter().flatten().take(most);
            of_day.map(|source| source.run.clone()).collect::<Vec<_>>()
        };
        let mut runs = Vec::new();
        for (device, series) in self.all.values().flatten() {
            for &at in &series.changes {
                runs.extend(
                    [at - 1, at].into_iter().flat_map(|at| of(device, series.days[at].day, LINKED_ARCHIVES_MAX)),
                );
            }
        }
        for (_, devices) in statements_by_time(&self.all).into_iter().take(STATEMENTS_MAX) {
            for (device, series) in shown_devices(devices) {
                runs.extend(series.days.last().into_iter().flat_map(|last| of(device, last.day, LINKED_OF_LAST)));
            }
        }
        runs.sort();
        runs.dedup();
        runs
    }
}

/// The statements, those with the most time first.
fn statements_by_time(all: &All) -> Vec<(&String, &BTreeMap<String, Series>)> {
    let time = |devices: &BTreeMap<String, Series>| devices.values().map(|series| series.time_ns).sum::<f64>();
    let mut statements: Vec<_> = all.iter().collect();
    statements.sort_by(|a, b| time(b.1).total_cmp(&time(a.1)));
    statements
}

/// The devices that are drawn for a statement: those with the most executions.
fn shown_devices(devices: &BTreeMap<String, Series>) -> Vec<(&String, &Series)> {
    let mut shown: Vec<_> = devices.iter().collect();
    shown.sort_by_key(|(_, series)| std::cmp::Reverse(series.executions));
    shown.truncate(DEVICES_MAX);
    shown
}

/// Queries the data of a page, and looks for changes.
pub async fn gather_data(engine: &Engine) -> Result<ReportData> {
    let mut all = All::new();
    for batch in query_rows(engine, DAILY_QUERY).await? {
        let days = batch.column(2).as_primitive::<Date32Type>();
        let times = batch.column(4).as_primitive::<Float64Type>();
        let whole = |column: usize, row: usize| batch.column(column).as_primitive::<Int64Type>().value(row);
        for row in 0..batch.num_rows() {
            let series =
                all.entry(cell_text(&batch, 0, row)).or_default().entry(cell_text(&batch, 1, row)).or_default();
            let executions = whole(3, row);
            series.days.push(Day {
                day: days.value(row),
                executions,
                p50: whole(5, row),
                p10: whole(6, row),
                p90: whole(7, row),
                p99: whole(8, row),
            });
            series.executions += executions;
            series.time_ns += times.value(row);
        }
    }
    let mut archives = Sources::new();
    for batch in query_rows(engine, ARCHIVES_QUERY).await? {
        let days = batch.column(1).as_primitive::<Date32Type>();
        for row in 0..batch.num_rows() {
            let day = archives.entry((cell_text(&batch, 0, row), days.value(row))).or_default();
            day.push(Source { name: cell_text(&batch, 2, row), run: cell_text(&batch, 3, row) });
        }
    }
    let looked = find_changes(&mut all);
    Ok(ReportData { all, archives, looked })
}

/// Draws the page. `link` returns the URL of an archive's own page, by its run.
pub fn draw_page(name: &str, gathered: &ReportData, link: &dyn Fn(&str) -> Option<String>) -> String {
    let ReportData { all, archives, looked } = gathered;
    let count = archives.values().map(Vec::len).sum();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <link rel=\"icon\" href=\"data:,\"><title>{0}</title>\n<style>{PAGE_STYLE}</style>\n<h1>{0}</h1>\n<p>{1}. Latencies of statements by device and day: the median, in the band from the 10th to the 90th percentile.</p>\n",
        escape_html(name),
        escape_html(&model::counted(count, "archive")),
    );
    push_changes(&mut page, all, archives, *looked, link);
    let statements = statements_by_time(all);
    for (statement, devices) in statements.iter().take(STATEMENTS_MAX) {
        push_chart(&mut page, statement, devices);
        by_device(&mut page, devices, archives, link);
    }
    if statements.len() > STATEMENTS_MAX {
        let left = statements.len() - STATEMENTS_MAX;
        let _ = writeln!(
            page,
            "<p>{} with less time in all: <code>fathom sql</code> has them.</p>",
            escape_html(&model::counted(left, "more statement"))
        );
    }
    page
}

/// Archives that are named per day.
const LINKED_ARCHIVES_MAX: usize = 20;
/// Archives of a device's last day whose pages `--pages` makes.
const LINKED_OF_LAST: usize = 3;

/// The archives of a day, with links to their own pages.
fn source_links(of_day: &[Source], link: &dyn Fn(&str) -> Option<String>) -> String {
    let one = |source: &Source| {
        let name = format!("{} ({})", escape_html(&source.name), escape_html(&source.run));
        link(&source.run).map_or(name.clone(), |to| format!("<a href=\"{}\">{name}</a>", escape_html(&to)))
    };
    let names: Vec<String> = of_day.iter().take(LINKED_ARCHIVES_MAX).map(one).collect();
    let more = if of_day.len() > LINKED_ARCHIVES_MAX {
        format!("<br>and {} more", of_day.len() - LINKED_ARCHIVES_MAX)
    } else {
        String::new()
    };
    format!("<details><summary>{}</summary>{}{more}</details>", of_day.len(), names.join("<br>"))
}

/// The table of changes, the largest first, each with the archives of its first day and of the day before.
fn push_changes(
    page: &mut String,
    all: &All,
    archives: &Sources,
    looked: FoundChanges,
    link: &dyn Fn(&str) -> Option<String>,
) {
    let mut found = Vec::new();
    for (statement, devices) in all {
        for (device, series) in devices {
            let places = &series.changes;
            for (n, &at) in places.iter().enumerate() {
                let from = if n > 0 { places[n - 1] } else { 0 };
                let to = places.get(n + 1).copied().unwrap_or(series.days.len());
                let days = (series.days[at - 1].day, series.days[at].day);
                found.push((statement, device, days, series.level(from..at), series.level(at..to)));
            }
        }
    }
    let size = |found: &(_, _, _, f64, f64)| (found.4 / found.3).ln().abs();
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    let _ = writeln!(
        page,
        "<h2>Changes</h2>\n<p>A change is a day from which on the median is another, which explains the days better than that each depends \
         on the day before, and which the same noise in another order does not show. {} series had enough days (at least {TESTED_DAYS_MIN}); {} showed a \
         change, {} of them one that stands out among all series. Of those that are listed, one in twenty may be chance, also where days \
         depend on the day before. The exception are series that jump now and then and then take longer than three days to come halfway \
         back: most changes that they have here may be such jumps.</p>",
        looked.at, looked.found, looked.listed
    );
    if found.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str(
        "<div class=\"wide\"><table><tr><th>from<th>device<th>statement<th>before<th>after<th>ratio<th>archives of the day before<th>of that \
         day</tr>\n",
    );
    for (statement, device, (last, day), before, after) in found {
        let of = |day: i32| archives.get(&(device.clone(), day)).map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td><code>{}</code><td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{:.2}<td>{}<td>{}</tr>",
            fleet::identity::format_day(day),
            escape_html(device),
            escape_html(statement),
            escape_html(&model::text::duration(before)),
            escape_html(&model::text::duration(after)),
            after / before,
            source_links(of(last), link),
            source_links(of(day), link),
        );
    }
    page.push_str("</table></div>\n");
}

/// The last day's distribution on each device, and its archives.
fn by_device(
    page: &mut String,
    devices: &BTreeMap<String, Series>,
    archives: &Sources,
    link: &dyn Fn(&str) -> Option<String>,
) {
    page.push_str(
        "<details><summary>by device, on its last day</summary><div class=\"wide\"><table><tr><th>device<th>day<th>executions<th>p10<th>p50\
         <th>p90<th>p99<th>archives</tr>\n",
    );
    for (device, series) in devices {
        let Some(last) = series.days.last() else { continue };
        let time = |ns: i64| escape_html(&model::text::duration(ns as f64));
        let of_day = archives.get(&(device.clone(), last.day)).map(Vec::as_slice).unwrap_or_default();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td class=\"n\">{}<td>{}</tr>",
            escape_html(device),
            fleet::identity::format_day(last.day),
            last.executions,
            time(last.p10),
            time(last.p50),
            time(last.p90),
            time(last.p99),
            source_links(of_day, link),
        );
    }
    page.push_str("</table></div></details>\n");
}

const CHART_WIDTH: f64 = 720.0;
const CHART_HEIGHT: f64 = 230.0;
/// Most marks of the time axis.
const AXIS_MARKS_MAX: usize = 6;

/// Round times (1, 2, 5, 10, …) from `least` to `most`, given as decimal logarithms; the ends if they are too close for two
/// marks.
fn axis_marks(least: f64, most: f64) -> Vec<f64> {
    let of = |steps: &[f64]| -> Vec<f64> {
        let decades =
            (least.floor() as i32..=most.ceil() as i32).flat_map(|n| steps.iter().map(move |s| s * 10_f64.powi(n)));
        decades.filter(|ns| (least..=most).contains(&ns.log10())).collect()
    };
    let found =
        [&[1.0, 2.0, 5.0][..], &[1.0, 3.0], &[1.0]].map(of).into_iter().find(|marks| marks.len() <= AXIS_MARKS_MAX);
    found.filter(|marks| marks.len() > 1).unwrap_or_else(|| vec![10_f64.powf(least), 10_f64.powf(most)])
}

/// One statement: one line per device, on a logarithmic axis.
fn push_chart(page: &mut String, statement: &str, devices: &BTreeMap<String, Series>) {
    let shown = shown_devices(devices);
    let days = || shown.iter().flat_map(|(_, series)| series.days.iter());
    let (first, last) = (days().map(|day| day.day).min().unwrap_or(0), days().map(|day| day.day).max().unwrap_or(0));
    let log = |ns: i64| (ns.max(1) as f64).log10();
    let least = days().map(|day| log(day.p10)).fold(f64::INFINITY, f64::min) - 0.05;
    let most = days().map(|day| log(day.p90)).fold(f64::NEG_INFINITY, f64::max) + 0.05;
    let x = |day: i32| 70.0 + (CHART_WIDTH - 90.0) * f64::from(day - first) / f64::from((last - first).max(1));
    let y = |ns: i64| 10.0 + (CHART_HEIGHT - 40.0) * (most - log(ns)) / (most - least).max(1e-9);
    let _ = writeln!(
        page,
        "<h2><code>{}</code></h2>\n<div class=\"wide\"><svg viewBox=\"0 0 {CHART_WIDTH} {CHART_HEIGHT}\" role=\"img\">",
        escape_html(statement)
    );
    for ns in axis_marks(least + 0.05, most - 0.05) {
        let at = y(ns.round() as i64);
        let _ = writeln!(
            page,
            "<line class=\"axis\" x1=\"70\" x2=\"{CHART_WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text text-anchor=\"end\" x=\"64\" y=\"{:.1}\">{}</text>",
            at + 4.0,
            escape_html(&model::text::duration(ns))
        );
    }
    // On a single day, the two labels would overlap.
    for (day, anchor) in [(first, "start"), (last, "end")].into_iter().take(if first == last { 1 } else { 2 }) {
        let _ = writeln!(
            page,
            "<text text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(day),
            CHART_HEIGHT - 8.0,
            fleet::identity::format_day(day)
        );
    }
    for (n, (device, series)) in shown.iter().enumerate() {
        let place = |day: &Day, ns: i64| format!("{:.1},{:.1}", x(day.day), y(ns));
        let points: Vec<String> = series.days.iter().map(|day| place(day, day.p50)).collect();
        let low = series.days.iter().map(|day| place(day, day.p10));
        let band: Vec<String> = low.chain(series.days.iter().rev().map(|day| place(day, day.p90))).collect();
        let _ = writeln!(
            page,
            "<g class=\"d{n}\"><title>{}</title><polygon points=\"{}\"/><polyline points=\"{}\"/>",
            escape_html(device),
            band.join(" "),
            points.join(" ")
        );
        for day in &series.days {
            let time = |ns: i64| escape_html(&model::text::duration(ns as f64));
            let _ = write!(
                page,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2.5\"><title>{}, {}: {} ({} to {})</title></circle>",
                x(day.day),
                y(day.p50),
                escape_html(device),
                fleet::identity::format_day(day.day),
                time(day.p50),
                time(day.p10),
                time(day.p90),
            );
        }
        for &at in &series.changes {
            let Day { day, p50, .. } = series.days[at];
            let _ = write!(page, "<circle class=\"change\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\"/>", x(day), y(p50));
        }
        page.push_str("</g>\n");
    }
    page.push_str("</svg></div>\n<p class=\"key\">");
    for (n, (device, _)) in shown.iter().enumerate() {
        let _ = write!(page, "<span class=\"d{n}\">■</span> {} ", escape_html(device));
    }
    if devices.len() > DEVICES_MAX {
        let _ = write!(
            page,
            "and {} with fewer executions",
            escape_html(&model::counted(devices.len() - DEVICES_MAX, "device"))
        );
    }
    page.push_str("</p>\n");
}

const PAGE_STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;\
background:#fff}h1,h2{overflow-wrap:anywhere;line-height:1.25}h2{margin-top:2em;font-size:1.2em}a{color:#06c}code{white-space:pre-wrap;\
overflow-wrap:anywhere}.wide{overflow-x:auto}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;vertical-align:top;\
border-bottom:1px solid #ddd}td code{display:inline-block;min-width:14em}.n{text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums}\
td:first-child{white-space:nowrap}td:nth-child(2){min-width:6em}summary{cursor:pointer}svg{width:100%;min-width:540px}svg text{font-size:11px;fill:#555}\
polygon{fill:currentColor;opacity:.1}polyline{fill:none;stroke:currentColor;stroke-width:1.5}circle{fill:currentColor}.change{fill:none;stroke:#d00;\
stroke-width:2}.axis{stroke:#ddd}.d0{color:#1f77b4}.d1{color:#d95f02}.d2{color:#2ca02c}.d3{color:#9467bd}.d4{color:#8c564b}.d5{color:#d6409f}\
.d6{color:#7f7f7f}.d7{color:#0e9aa7}@media(prefers-color-scheme:dark){body{background:#181818;color:#ddd}a{color:#6bf}td,th{border-color:#444}\
.axis{stroke:#444}svg text{fill:#aaa}.change{stroke:#f55}.d0{color:#5fa8dc}.d3{color:#b795dd}.d4{color:#c08b7f}}";

/// An untrusted text, escaped for a page.
fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in model::text::shown(text).chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(medians: &[i64]) -> Series {
        let day = |(day, &p50)| Day { day, executions: 1, p10: p50 / 2, p50, p90: p50 * 2, p99: p50 * 3 };
        Series { days: (0..).zip(medians).map(day).collect(), executions: 1, time_ns: 1.0, changes: Vec::new() }
    }

    fn gathered(all: All, archives: Sources) -> ReportData {
        let mut all = all;
        let looked = find_changes(&mut all);
        ReportData { all, archives, looked }
    }

    #[test]
    fn hostile_text_stays_text_on_the_page() {
        let name = "<script>alert(1)</script>\u{1b}[2J\" onload='x'";
        let step: Vec<i64> = (0..20).map(|n| if n < 10 { 1000 + n } else { 9000 + n }).collect();
        let all = BTreeMap::from([(name.to_string(), BTreeMap::from([(name.to_string(), series(&step))]))]);
        let sources = vec![Source { name: name.into(), run: name.into() }];
        let archives = BTreeMap::from([((name.to_string(), 10), sources)]);
        let gathered = gathered(all, archives);
        assert_eq!(gathered.linked(), [name]);
        let page = draw_page(name, &gathered, &|run| Some(format!("/archive/{run}")));
        assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains("onload='"), "{page}");
        assert!(
            page.contains("&lt;script&gt;")
                && page.contains("class=\"change\"")
                && page.contains("<a href=\"/archive/")
        );
    }

    #[test]
    fn axis_has_few_round_marks() {
        let shown = |least: f64, most: f64| {
            axis_marks(least.log10(), most.log10()).iter().map(|ns| ns.round()).collect::<Vec<_>>()
        };
        assert_eq!(shown(900.0, 5_500.0), [1000.0, 2000.0, 5000.0]);
        assert_eq!(shown(1e3, 1e9), [1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9].iter().copied().step_by(6).collect::<Vec<_>>());
        assert_eq!(shown(2_100.0, 4_900.0), [2100.0, 4900.0]);
        assert_eq!(shown(1.0, 1.0), [1.0, 1.0]);
    }

    #[test]
    fn archives_of_the_last_day_are_linked_without_any_change() {
        let all = BTreeMap::from([("INSERT".to_string(), BTreeMap::from([("a".to_string(), series(&[1000; 3]))]))]);
        let of_day =
            |names: &[&str]| names.iter().map(|name| Source { name: (*name).into(), run: (*name).into() }).collect();
        let archives = BTreeMap::from([
            (("a".to_string(), 1), of_day(&["x"])),
            (("a".to_string(), 2), of_day(&["p", "q", "r", "s"])),
        ]);
        let gathered = gathered(all, archives);
        assert_eq!(gathered.linked(), ["p", "q", "r"]);
        let page = draw_page("x", &gathered, &|run| Some(format!("/archive/{run}")));
        assert!(page.contains("<a href=\"/archive/s\">") && !page.contains("/archive/x"), "{page}");
    }

    #[test]
    fn empty_fleet_has_a_page() {
        assert!(draw_page("x", &gathered(BTreeMap::new(), BTreeMap::new()), &|_| None).contains("None."));
    }
}
