//! The page of a benchmark in a real browser. Needs Chromium and chromedriver; without them every test here is counted as
//! ignored, and its reason printed as `SKIP name: reason`.

mod support {
    #![allow(dead_code, reason = "another test uses the rest")]
    pub mod page;
    pub mod webdriver;
}

use model::table::{DesignCell, DesignRow, MarkRow, Replicate, Sample};
use report::bench_page_of;
use scores::contract::Tables;
use scores::net;
use scores::results::Bench;
use serde_json::{Value, json};
use support::page::{ShownPage, of_modules, run};
use support::webdriver::Result;

fn show(data: &Value) -> Result<ShownPage> {
    ShownPage::page(&bench_page_of("b <b>.fathom", data), "")
}

/// Two cells of five processes: one flat, one that warms up. Shaped like the output of `scores::page`.
fn bench_data() -> Value {
    let cell = |mode: &str, estimate: f64| {
        json!({
            "workload": "http", "name": mode, "parameters": {"mode": mode, "size": "1"}, "unit": "request/s", "estimate": estimate,
            "ci95": [estimate * 0.98, estimate * 1.02], "class": "flat", "processes": 5, "failed": 0, "failure": null,
            "iterations": 150, "outliers": 1, "gates": {"load": {"failed": 2}}, "verified": true, "verified_by": "the body",
            "marks": {"mode": "<img src=x>"},
            "quick": true, "absent": null,
        })
    };
    let bar = |mode: &str, estimate: f64, x: Value, series: Value| {
        json!({
            "cell": 0, "label": format!("mode={mode} size=1"), "workload": "http", "x": x, "series": series, "estimate": estimate,
            "ci95": [estimate * 0.98, estimate * 1.02], "values": [estimate * 0.97, estimate, estimate * 1.03], "unit": "request/s",
            "notes": ["flat"],
        })
    };
    let process = |block: u64| {
        let points: Vec<Value> =
            (0..30).map(|n| json!([n, if n < 10 { 2e6 } else { 1e6 + block as f64 * 1e4 }])).collect();
        json!({
            "block": block, "class": "warmup", "steady_from": 10, "points": points, "segments": [[0, 10, 2e6], [10, 30, 1e6]],
            "outliers": [20], "iterations": 30, "score": "1000 request/s",
        })
    };
    let figure = |paper: &str, number: &str, bars: Vec<Value>, x: Value| {
        json!({"paper": paper, "figure": number, "title": "GETs of a byte", "says": "Android is slower than Linux", "x": x,
               "stated": [{"what": "GETs on Linux", "paper": 1234.0, "ours": 1000.0, "unit": "request/s"}],
               "series": if x.is_null() { Value::Null } else { json!("block") }, "bars": bars})
    };
    let lines = ["1", "2", "4"].iter().flat_map(|threads| {
        ["4K", "16K"]
            .map(|block| bar("r", 1000.0 * threads.parse::<f64>().unwrap_or(1.0), json!(threads), json!(block)))
    });
    json!({
        "shown": {"version": 1, "complete": true, "marks": [], "environment": {"kernel.release": {"value": "6.1", "source": "uname", "varies": "boot"}},
                  "results": [cell("slow", 1e3), cell("fast", 1e5)]},
        "command": ["fathom", "bench", "run", "http"],
        "designs": [{"name": "http", "question": "How fast?", "method": ["5 blocks counted."]}],
        "figures": [
            figure("000", "3", vec![bar("slow", 1e3, Value::Null, Value::Null), bar("fast", 1e5, Value::Null, Value::Null)], Value::Null),
            figure("001", "1, 3", lines.collect(), json!("threads")),
        ],
        "curves": [{"cell": 0, "title": "http mode=slow", "unit": "ns", "processes": (0..5).map(process).collect::<Vec<_>>()}],
        "flows": [{"title": "congestion windows", "unit": "segment", "flows": [{"name": "bic", "points": [[0.0, 10.0], [1.0, 20.0]]}],
                   "bands": [{"from": 0.0, "to": 0.5, "cause": "application"}, {"from": 0.5, "to": 1.0, "cause": "link rate"}], "end": 1.0}],
        "compared": null,
        "held": [],
        "metrics": [{"cell": 0, "title": "http mode=slow", "metric": "latency.p99", "unit": "ns", "mean": 2e5, "range": [1e5, 3e5]}],
    })
}

/// Returns the tooltip at a point of an element.
fn tooltip_at(shown: &ShownPage, selector: &str, x: f64, y: f64) -> Result<String> {
    let tip = shown.browser.run(
        "const c = document.querySelector(arguments[0]), b = c.getBoundingClientRect();\
         c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + arguments[1] * b.width, clientY: b.top + arguments[2]}));\
         const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent;",
        &[json!(selector), json!(x), json!(y)],
    )?;
    Ok(tip.as_str().unwrap_or_default().to_owned())
}

/// Whether anything was drawn on a canvas, by its pixels.
fn is_drawn(shown: &ShownPage, selector: &str) -> Result<bool> {
    let seen = shown.browser.run(
        "const c = document.querySelector(arguments[0]);\
         return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size;",
        &[json!(selector)],
    )?;
    Ok(seen.as_u64().unwrap_or(0) > 3)
}

fn figures_are_drawn_with_their_values() -> Result<()> {
    let shown = show(&bench_data())?;
    let bars = "[data-figure='000/3'] canvas";
    assert!(is_drawn(&shown, bars)?);
    let tip = tooltip_at(&shown, bars, 0.5, 8.0 + 15.0)?;
    for part in ["mode=slow", "1000 request/s", "± 2.0 %", "3 processes", "flat"] {
        assert!(tip.contains(part), "{part:?} is not in {tip}");
    }
    assert!(tooltip_at(&shown, bars, 0.5, 8.0 + 45.0)?.contains("mode=fast"));
    let text = shown.browser.text("[data-figure='000/3']")?;
    assert!(
        text.contains("The paper, on its machines: Android is slower") && text.contains("All with size=1"),
        "{text}"
    );
    assert!(text.contains("GETs on Linux") && text.contains("1,230"), "{text}");
    assert!(is_drawn(&shown, "[data-figure='001/1, 3'] canvas")?);
    assert_eq!(shown.browser.attribute("[data-figure='001/1, 3'] canvas", "data-bars")?, "6");
    assert!(is_drawn(&shown, "#flows-body canvas")?);
    assert!(shown.browser.text("#flows-body")?.contains("limited by application, link rate"));
    // Away from the line, on either side of the middle.
    for (x, cause) in [(0.3, "limited by application"), (0.7, "limited by link rate")] {
        let tip = tooltip_at(&shown, "#flows-body canvas", x, 190.0)?;
        assert!(tip.contains(cause), "{tip:?}");
    }
    shown.quiet()
}

fn curve_tooltip_shows_process_under_pointer() -> Result<()> {
    let shown = show(&bench_data())?;
    let canvas = "#curves-body canvas";
    assert!(is_drawn(&shown, canvas)?);
    // The first iterations all take 2 ms: at the top of the plot, just right of the axis.
    let tip = tooltip_at(&shown, canvas, 0.3, 21.0)?;
    for part in ["block", "warmup", "of 30: 2 ms", "steady from iteration 11", "1 outliers", "1000 request/s"] {
        assert!(tip.contains(part), "{part:?} is not in {tip:?}");
    }
    assert!(!shown.browser.attribute(canvas, "data-chosen")?.is_empty());
    assert!(shown.browser.text("#curves-body")?.contains("5 warmup"));
    shown.quiet()
}

fn drawn_values_are_exact() -> Result<()> {
    let shown = show(&bench_data())?;
    let modules = [
        include_str!("../../../web/src/format.js"),
        include_str!("../../../web/src/scale.js"),
        include_str!("../../../web/src/plot.js"),
    ];
    let said = of_modules(
        &shown,
        &modules,
        "return [digits(0), digits(0.000123456), digits(9.999), digits(99.96), bytes(1048500), ...tickTexts([1e6, 1.002e6], 'ns'),
         closeAxis(Array.from({ length: 400000 }, (_, i) => 1e6 + i), 4).ticks.join()];",
    )?;
    let expected = ["0", "0.000123", "10", "100", "1 MiB", "1 ms", "1.002 ms", "1000000,1200000,1400000"];
    assert_eq!(said, json!(expected));
    shown.quiet()
}

fn numbers_method_and_notes_are_shown_as_text() -> Result<()> {
    let shown = show(&bench_data())?;
    let badges = shown.browser.text("#badges")?;
    for part in ["quick run", "gates not passed", "every result verified"] {
        assert!(badges.contains(part), "{badges}");
    }
    let table = shown.browser.text("#table-body")?;
    assert!(table.contains("http mode=fast size=1") && table.contains("load not passed 2 times"), "{table}");
    assert!(shown.browser.text("#said")?.contains("<img src=x>"));
    assert!(shown.browser.text("#environment")?.contains("kernel.release"));
    shown.browser.run("document.querySelector('#metrics details').open = true;", &[])?;
    assert!(shown.browser.text("#metrics")?.contains("100 µs to 300 µs"));
    assert_eq!(shown.browser.run("return document.images.length;", &[])?, json!(0));
    assert_eq!(shown.browser.text("#title")?, "b <b>.fathom");
    shown.quiet()
}

fn benchmark_without_results_says_so() -> Result<()> {
    let mut data = bench_data();
    for part in ["figures", "curves", "flows", "metrics", "designs"] {
        data[part] = json!([]);
    }
    data["shown"]["results"] = json!([]);
    data["shown"]["complete"] = json!(false);
    let shown = show(&data)?;
    assert!(shown.browser.text("#scores")?.contains("Nothing was measured."));
    assert_eq!(shown.browser.text("#badges")?, "interrupted");
    shown.quiet()
}

/// A run of two directions, as stored by `fathom net run -o`.
fn network_run(name: &str) -> Bench {
    let mut tables = Tables::default();
    tables.designs.push(DesignRow {
        id: 0,
        name: scores::run_score::RUN.into(),
        question: "What does the link deliver, and what limited it?".into(),
        seed: 0,
        quick: false,
        score: "value".into(),
        unit: Some("bit/s".into()),
        scale: 1.0,
        better: Some("higher".into()),
        precision: None,
        stopped: Some("blocks".into()),
        baseline: None,
        design: "{}".into(),
    });
    tables.cells.push(DesignCell {
        id: 0,
        design: 0,
        name: "run".into(),
        factors: json!({"direction": "up+down", "seconds": "2", "streams": "1", "traffic": "tcp"}).to_string(),
        argv: "[]".into(),
        metric: Some("throughput".into()),
        same_as: None,
        absent: None,
    });
    tables.replicates.push(Replicate {
        id: 0,
        cell: 0,
        block: 0,
        place: 0,
        start_ns: 5_000_000_000,
        end_ns: 7_000_000_000,
        start_unix_ns: None,
        exit: Some(0),
        verified: Some(true),
        verified_by: Some("bytes counted at the receiver".into()),
        warmup: false,
        why: None,
        gates: None,
        failure: None,
    });
    let mut push = |metric: &str, unit: &str, labels: &str, time_ns: Option<u64>, value: f64| {
        let (metric, unit, labels) = (metric.into(), unit.into(), labels.into());
        tables.samples.push(Sample { replicate: Some(0), metric, unit, labels, time_ns, value });
    };
    for (way, bps) in [("direction=up", 20e9), ("direction=down", 40e9)] {
        for (metric, value) in [("throughput", bps), ("throughput.low", bps * 0.99), ("throughput.high", bps * 1.02)] {
            push(metric, "bit/s", way, None, value);
        }
        for n in 0..20 {
            let at = Some(5_000_000_000 + n * 100_000_000);
            push("interval", "bit/s", way, at, bps);
            push("limited", "1", &format!("{way} cause=CPU"), at, 1.0);
            for stream in 0..2 {
                push("tcp.cwnd", "segment", &format!("{way} stream={stream}"), at, 10.0 + n as f64);
            }
            push("one_way_us", "us", way, at, 16_000.0);
        }
    }
    let limits = json!([
        {"cause": "cpu", "share": 0.97, "evidence": "the sender's <b> ran for 97 %", "remedy": "give it more processor time"},
        {"cause": "link_rate", "share": 0.03, "evidence": "a standing queue", "remedy": null},
    ]);
    let granted =
        json!({"local": "127.0.0.1:1", "peer": "127.0.0.1:2", "send_buffer": 2_626_560, "cookie": 123_456_789});
    for (name, text) in [
        ("limited_by up", limits.to_string()),
        ("limited_by down", limits.to_string()),
        ("granted up sender", granted.to_string().repeat(3)),
        ("limited by", "CPU".into()),
    ] {
        tables.marks.push(MarkRow { replicate: Some(0), name: name.into(), text });
    }
    Bench { name: name.into(), tables, ..Bench::default() }
}

fn page_of_runs(runs: &[Bench]) -> Result<ShownPage> {
    show(&serde_json::to_value(net::page_of(runs, &[])?)?)
}

fn network_run_shows_estimate_and_limits() -> Result<()> {
    let shown = page_of_runs(&[network_run("x.fathom")])?;
    let scores = "#scores-body canvas";
    assert_eq!(shown.browser.attribute(scores, "data-bars")?, "3", "both together, and each direction");
    let words = shown.browser.attribute(scores, "aria-label")?;
    assert!(words.contains("60 Gbit/s") && words.contains("20 Gbit/s") && words.contains("40 Gbit/s"), "{words}");
    let tip = tooltip_at(&shown, scores, 0.5, 8.0 + 15.0)?;
    assert!(tip.contains("95 % interval 59.4 Gbit/s to 61.2 Gbit/s"), "{tip}");
    let table = shown.browser.text("#table-body")?;
    assert!(table.contains("60 Gbit/s") && table.contains("59.4 Gbit/s to 61.2 Gbit/s"), "{table}");
    assert!(!shown.browser.text("body")?.contains("no result"));

    let held = shown.browser.text("#held")?;
    for part in [
        "up",
        "down",
        "CPU",
        "97 %",
        "the sender's <b> ran for 97 %",
        "give it more processor time",
        "link rate",
        "3.0 %",
    ] {
        assert!(held.contains(part), "{part:?} is not in {held}");
    }
    // Each line of a chart is one of several flows on one axis, and its limiting cause is shaded.
    let charts = shown.browser.run(
        "return [...document.querySelectorAll('#flows-body figure')].map((f) => [f.querySelector('h3').textContent, f.querySelector('canvas').dataset.flows,         f.querySelector('canvas').dataset.bands]);",
        &[],
    )?;
    let charts = charts.as_array().ok_or("charts")?;
    for (title, flows) in
        [("throughput: direction=up", "1"), ("congestion window: direction=up", "2"), ("one-way delay", "1")]
    {
        let found = charts.iter().find(|c| c[0].as_str().is_some_and(|t| t.starts_with(title)));
        let found = found.ok_or_else(|| format!("{title} is not in {charts:?}"))?;
        assert!(found[1] == flows && found[2] == "1", "{found}");
    }
    let tip = tooltip_at(&shown, "#flows-body canvas", 0.5, 190.0)?;
    assert!(tip.contains("limited by CPU"), "{tip}");
    // A run has no iterations; and nothing is wider than the page, at any width.
    assert_eq!(shown.browser.run("return document.getElementById('curves').hidden;", &[])?, json!(true));
    for width in [1400, 800, 420] {
        let cut = shown.browser.run(
            "document.body.style.width = arguments[0] + 'px';             return [...document.querySelectorAll('.scroll')].filter((n) => n.scrollWidth > n.clientWidth + 1).map((n) => n.getAttribute('aria-label'));",
            &[json!(width)],
        )?;
        assert!(width < 800 || cut == json!([]), "at {width} px these are cut: {cut}");
    }
    shown.quiet()
}

fn several_network_runs_are_shown_side_by_side() -> Result<()> {
    let shown = page_of_runs(&[network_run("a.fathom"), network_run("b.fathom")])?;
    let words = shown.browser.attribute("#scores-body canvas", "aria-label")?;
    assert!(words.contains("a.fathom") && words.contains("b.fathom"), "{words}");
    let held = shown.browser.text("#held")?;
    assert!(held.contains("a.fathom, up") && held.contains("b.fathom, down"), "{held}");
    let table = shown.browser.text("#table-body")?;
    assert!(table.contains("a.fathom") && table.contains("b.fathom"), "{table}");
    shown.quiet()?;
    // Runs in another unit have a chart of their own.
    let mut other = network_run("b.fathom");
    other.tables.designs[0].unit = Some("1/s".into());
    other.tables.cells[0].factors = json!({"direction": "up+down", "seconds": "9"}).to_string();
    let shown = page_of_runs(&[network_run("a.fathom"), other])?;
    let scores = shown.browser.text("#scores-body")?;
    let apart = |name: &str, seconds: &str| scores.lines().any(|line| line.contains(name) && line.contains(seconds));
    assert!(apart("a.fathom", "seconds=2") && apart("b.fathom", "seconds=9"), "{scores}");
    assert!(!apart("b.fathom", "seconds=2"), "{scores}");
    shown.quiet()
}

fn main() {
    run(&[
        ("figures_are_drawn_with_their_values", figures_are_drawn_with_their_values),
        ("curve_tooltip_shows_process_under_pointer", curve_tooltip_shows_process_under_pointer),
        ("drawn_values_are_exact", drawn_values_are_exact),
        ("numbers_method_and_notes_are_shown_as_text", numbers_method_and_notes_are_shown_as_text),
        ("network_run_shows_estimate_and_limits", network_run_shows_estimate_and_limits),
        ("several_network_runs_are_shown_side_by_side", several_network_runs_are_shown_side_by_side),
        ("benchmark_without_results_says_so", benchmark_without_results_says_so),
    ]);
}
