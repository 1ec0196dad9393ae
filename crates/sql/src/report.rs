//! `fathom fleet report`: a page that shows how statements of a fleet's devices did day by day, and where that changed.
//!
//! A day's value is the median latency of a statement on a device, by rank. A change is what PELT finds in the days' logarithms with
//! Barrett's penalty (`stats::pelt`), where at least ten days have a value. Days are taken as equally far apart, and devices and
//! statements are looked at one by one: of many series without any change, some show one all the same. The page says how many were
//! looked at.

use crate::engine::Engine;
use anyhow::Result;
use datafusion::arrow::array::{AsArray, RecordBatch};
use datafusion::arrow::datatypes::{Date32Type, Float64Type, Int64Type};
use futures_util::TryStreamExt;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Days that a series must have before a change is looked for.
const DAYS: usize = 10;
/// Statements that are drawn, those with the most time first.
const STATEMENTS: usize = 12;
/// Devices that are drawn of a statement.
const DEVICES: usize = 8;

const DAILY: &str = r#"
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
    min(CASE WHEN 2 * "place_in_order" >= "executions" THEN "latency_ns" END) AS "p50_ns"
FROM ranked GROUP BY "text", "device", "date" ORDER BY "text", "device", "date""#;

const ARCHIVES: &str =
    r#"SELECT "device", "date", "archive", "run" FROM archives ORDER BY "device", "date", "archive""#;

/// One statement on one device.
#[derive(Debug, Default, Clone)]
pub struct Series {
    /// Days since 1970, and the day's median in ns.
    pub days: Vec<(i32, i64)>,
    executions: i64,
    time_ns: f64,
}

impl Series {
    /// The days from which on the median is another.
    pub fn changes(&self) -> Vec<usize> {
        if self.days.len() < DAYS {
            return Vec::new();
        }
        let logs: Vec<f64> = self.days.iter().map(|(_, ns)| (*ns.max(&1) as f64).ln()).collect();
        stats::pelt::changepoints(&logs, stats::pelt::penalty(logs.len()), stats::pelt::shortest(logs.len()))
            .unwrap_or_default()
    }

    /// The geometric mean of the medians of some days.
    fn level(&self, days: std::ops::Range<usize>) -> f64 {
        let some = &self.days[days];
        (some.iter().map(|(_, ns)| (*ns.max(&1) as f64).ln()).sum::<f64>() / some.len().max(1) as f64).exp()
    }
}

async fn rows(engine: &Engine, sql: &str) -> Result<Vec<RecordBatch>> {
    let (_, rows) = engine.run(sql).await?;
    Ok(rows.try_collect().await?)
}

fn text(batch: &RecordBatch, column: usize, row: usize) -> String {
    datafusion::arrow::util::display::array_value_to_string(batch.column(column), row).unwrap_or_default()
}

/// The page.
///
/// # Errors
/// A query fails.
pub async fn page(engine: &Engine, name: &str) -> Result<String> {
    let mut all: BTreeMap<String, BTreeMap<String, Series>> = BTreeMap::new();
    for batch in rows(engine, DAILY).await? {
        let (days, counts) =
            (batch.column(2).as_primitive::<Date32Type>(), batch.column(3).as_primitive::<Int64Type>());
        let (times, medians) =
            (batch.column(4).as_primitive::<Float64Type>(), batch.column(5).as_primitive::<Int64Type>());
        for row in 0..batch.num_rows() {
            let series = all.entry(text(&batch, 0, row)).or_default().entry(text(&batch, 1, row)).or_default();
            series.days.push((days.value(row), medians.value(row)));
            series.executions += counts.value(row);
            series.time_ns += times.value(row);
        }
    }
    let mut archives: BTreeMap<(String, i32), Vec<String>> = BTreeMap::new();
    let mut count = 0;
    for batch in rows(engine, ARCHIVES).await? {
        let days = batch.column(1).as_primitive::<Date32Type>();
        for row in 0..batch.num_rows() {
            count += 1;
            let day = archives.entry((text(&batch, 0, row), days.value(row))).or_default();
            day.push(format!("{} ({})", text(&batch, 2, row), text(&batch, 3, row)));
        }
    }
    Ok(drawn(name, count, &all, &archives))
}

fn drawn(
    name: &str,
    count: usize,
    all: &BTreeMap<String, BTreeMap<String, Series>>,
    archives: &BTreeMap<(String, i32), Vec<String>>,
) -> String {
    let looked_at = all.values().flat_map(BTreeMap::values).filter(|series| series.days.len() >= DAYS).count();
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\"><title>{0}</title>\n<style>{STYLE}</style>\n<h1>{0}</h1>\n\
         <p>{1}. Medians of statements by device and day; a change is where PELT (penalty 15 ln n) sets a new level. {2} had {DAYS} \
         days or more and were looked at; with so many, single changes may be chance.</p>\n",
        html(name),
        html(&model::counted(count, "archive")),
        html(&model::counted(looked_at, "series")),
    );
    changes(&mut page, all, archives);
    let mut statements: Vec<_> = all.iter().collect();
    let time = |devices: &BTreeMap<String, Series>| devices.values().map(|series| series.time_ns).sum::<f64>();
    statements.sort_by(|a, b| time(b.1).total_cmp(&time(a.1)));
    for (statement, devices) in statements.iter().take(STATEMENTS) {
        chart(&mut page, statement, devices);
    }
    if statements.len() > STATEMENTS {
        let left = statements.len() - STATEMENTS;
        let _ = writeln!(
            page,
            "<p>{} with less time in all: `fathom sql` has them.</p>",
            html(&model::counted(left, "more statement"))
        );
    }
    page
}

/// The table of changes, the largest first, each with the archives of its first day.
fn changes(
    page: &mut String,
    all: &BTreeMap<String, BTreeMap<String, Series>>,
    archives: &BTreeMap<(String, i32), Vec<String>>,
) {
    let mut found = Vec::new();
    for (statement, devices) in all {
        for (device, series) in devices {
            let places = series.changes();
            for (n, &at) in places.iter().enumerate() {
                let from = if n > 0 { places[n - 1] } else { 0 };
                let to = places.get(n + 1).copied().unwrap_or(series.days.len());
                found.push((statement, device, series.days[at].0, series.level(from..at), series.level(at..to)));
            }
        }
    }
    let size = |found: &(_, _, _, f64, f64)| (found.4 / found.3).ln().abs();
    found.sort_by(|a, b| size(b).total_cmp(&size(a)));
    page.push_str("<h2>Changes</h2>\n");
    if found.is_empty() {
        page.push_str("<p>None.</p>\n");
        return;
    }
    page.push_str(
        "<table><tr><th>from<th>device<th>statement<th>before<th>after<th>ratio<th>archives of that day</tr>\n",
    );
    for (statement, device, day, before, after) in found {
        let of_day = archives.get(&(device.clone(), day)).map(Vec::as_slice).unwrap_or_default();
        let names: Vec<String> = of_day.iter().take(20).map(|name| html(name)).collect();
        let _ = writeln!(
            page,
            "<tr><td>{}<td>{}<td><code>{}</code><td>{}<td>{}<td>{:.2}<td><details><summary>{}</summary>{}</details></tr>",
            fleet::identity::date(day),
            html(device),
            html(statement),
            html(&model::text::duration(before)),
            html(&model::text::duration(after)),
            after / before,
            of_day.len(),
            names.join("<br>"),
        );
    }
    page.push_str("</table>\n");
}

const WIDE: f64 = 900.0;
const HIGH: f64 = 220.0;

/// One statement: a line a device, on a logarithmic axis.
fn chart(page: &mut String, statement: &str, devices: &BTreeMap<String, Series>) {
    let mut shown: Vec<_> = devices.iter().collect();
    shown.sort_by_key(|(_, series)| std::cmp::Reverse(series.executions));
    shown.truncate(DEVICES);
    let days = || shown.iter().flat_map(|(_, series)| series.days.iter());
    let (first, last) = (days().map(|day| day.0).min().unwrap_or(0), days().map(|day| day.0).max().unwrap_or(0));
    let log = |ns: i64| (ns.max(1) as f64).log10();
    let least = days().map(|day| log(day.1)).fold(f64::INFINITY, f64::min) - 0.05;
    let most = days().map(|day| log(day.1)).fold(f64::NEG_INFINITY, f64::max) + 0.05;
    let x = |day: i32| 70.0 + (WIDE - 90.0) * f64::from(day - first) / f64::from((last - first).max(1));
    let y = |ns: i64| 10.0 + (HIGH - 40.0) * (most - log(ns)) / (most - least).max(1e-9);
    let _ =
        writeln!(page, "<h2><code>{}</code></h2>\n<svg viewBox=\"0 0 {WIDE} {HIGH}\" role=\"img\">", html(statement));
    for ns in [10_f64.powf(least + 0.05), 10_f64.powf(most - 0.05)] {
        let at = y(ns as i64);
        let _ = writeln!(
            page,
            "<line class=\"axis\" x1=\"70\" x2=\"{WIDE}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"4\" y=\"{at:.1}\">{}</text>",
            html(&model::text::duration(ns))
        );
    }
    for (day, anchor) in [(first, "start"), (last, "end")] {
        let _ = writeln!(
            page,
            "<text text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
            x(day),
            HIGH - 8.0,
            fleet::identity::date(day)
        );
    }
    for (n, (device, series)) in shown.iter().enumerate() {
        let points: Vec<String> = series.days.iter().map(|&(day, ns)| format!("{:.1},{:.1}", x(day), y(ns))).collect();
        let _ = writeln!(
            page,
            "<g class=\"d{n}\"><title>{}</title><polyline points=\"{}\"/>",
            html(device),
            points.join(" ")
        );
        for &(day, ns) in &series.days {
            let _ = write!(page, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"2\"/>", x(day), y(ns));
        }
        for at in series.changes() {
            let (day, ns) = series.days[at];
            let _ = write!(page, "<circle class=\"change\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"6\"/>", x(day), y(ns));
        }
        page.push_str("</g>\n");
    }
    page.push_str("</svg>\n<p class=\"key\">");
    for (n, (device, _)) in shown.iter().enumerate() {
        let _ = write!(page, "<span class=\"d{n}\">■</span> {} ", html(device));
    }
    if devices.len() > DEVICES {
        let _ = write!(page, "and {} with fewer executions", html(&model::counted(devices.len() - DEVICES, "device")));
    }
    page.push_str("</p>\n");
}

const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;max-width:960px;margin:2em auto;padding:0 1em;color:#222;background:#fff}\
code{white-space:pre-wrap;overflow-wrap:anywhere}table{border-collapse:collapse}td,th{padding:.2em .7em;text-align:left;vertical-align:top;\
border-bottom:1px solid #ddd}svg{width:100%}svg text{font-size:11px;fill:#666}polyline{fill:none;stroke:currentColor;stroke-width:1.5}\
circle{fill:currentColor}.change{fill:none;stroke:#d00;stroke-width:2}.axis{stroke:#ddd}.d0{color:#1f77b4}.d1{color:#ff7f0e}.d2{color:#2ca02c}\
.d3{color:#9467bd}.d4{color:#8c564b}.d5{color:#e377c2}.d6{color:#7f7f7f}.d7{color:#17becf}@media(prefers-color-scheme:dark){body{background:#181818;\
color:#ddd}td,th{border-color:#444}.axis{stroke:#444}svg text{fill:#999}}";

/// A text of anybody's, as a page shows it.
fn html(text: &str) -> String {
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
        Series { days: (0..).zip(medians.iter().copied()).collect(), executions: 1, time_ns: 1.0 }
    }

    #[test]
    fn step_is_found_where_it_is_and_level_series_has_none() {
        let noise = |n: i64| 1_000_000 + (n * 7919) % 997 * 30;
        let level: Vec<i64> = (0..30).map(noise).collect();
        assert_eq!(series(&level).changes(), [0; 0]);
        let step: Vec<i64> = (0..30).map(|n| if n < 17 { noise(n) } else { 2 * noise(n) }).collect();
        assert_eq!(series(&step).changes(), [17]);
        assert_eq!(series(&step[15..20]).changes(), [0; 0], "too few days");
    }

    #[test]
    fn hostile_text_stays_text_on_page() {
        let name = "<script>alert(1)</script>\u{1b}[2J\" onload='x'";
        let step: Vec<i64> = (0..20).map(|n| if n < 10 { 1000 + n } else { 9000 + n }).collect();
        let all = BTreeMap::from([(name.to_string(), BTreeMap::from([(name.to_string(), series(&step))]))]);
        let archives = BTreeMap::from([((name.to_string(), 10), vec![name.to_string()])]);
        let page = drawn(name, 1, &all, &archives);
        assert!(!page.contains("<script") && !page.contains('\u{1b}') && !page.contains("onload='"), "{page}");
        assert!(page.contains("&lt;script&gt;") && page.contains("class=\"change\""));
    }

    #[test]
    fn empty_fleet_has_page() {
        assert!(drawn("x", 0, &BTreeMap::new(), &BTreeMap::new()).contains("None."));
    }
}
