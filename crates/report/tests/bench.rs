//! The page of a benchmark in a real browser. Needs Chromium and chromedriver; without them every test here is counted as
//! ignored, and its reason printed as `SKIP name: reason`.

mod support {
    #![allow(dead_code, reason = "another test uses the rest")]
    pub mod shown;
    pub mod webdriver;
}

use report::bench_page;
use serde_json::{Value, json};
use support::shown::{Shown, run};
use support::webdriver::Result;

fn show(data: &Value) -> Result<Shown> {
    Shown::page(&bench_page("b <b>.fathom", data), "")
}

/// Two cells of five processes: one flat, one that warms up. Shaped as `analysis::bench::page` shapes it.
fn data() -> Value {
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
        "metrics": [{"cell": 0, "title": "http mode=slow", "metric": "latency.p99", "unit": "ns", "mean": 2e5, "range": [1e5, 3e5]}],
    })
}

/// What a pointer at a place of an element makes appear.
fn pointed(shown: &Shown, selector: &str, x: f64, y: f64) -> Result<String> {
    let tip = shown.browser.run(
        "const c = document.querySelector(arguments[0]), b = c.getBoundingClientRect();\
         c.dispatchEvent(new PointerEvent('pointermove', {clientX: b.left + arguments[1] * b.width, clientY: b.top + arguments[2]}));\
         const tip = document.getElementById('tip'); return tip.hidden ? '' : tip.textContent;",
        &[json!(selector), json!(x), json!(y)],
    )?;
    Ok(tip.as_str().unwrap_or_default().to_owned())
}

/// Whether anything was drawn on a canvas, by its own pixels.
fn drawn(shown: &Shown, selector: &str) -> Result<bool> {
    let seen = shown.browser.run(
        "const c = document.querySelector(arguments[0]);\
         return new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size;",
        &[json!(selector)],
    )?;
    Ok(seen.as_u64().unwrap_or(0) > 3)
}

fn figures_are_drawn_and_tell_their_values() -> Result<()> {
    let shown = show(&data())?;
    let bars = "[data-figure='000/3'] canvas";
    assert!(drawn(&shown, bars)?);
    let tip = pointed(&shown, bars, 0.5, 8.0 + 15.0)?;
    for part in ["mode=slow", "1000 request/s", "± 2.0 %", "3 processes", "flat"] {
        assert!(tip.contains(part), "{part:?} is not in {tip}");
    }
    assert!(pointed(&shown, bars, 0.5, 8.0 + 45.0)?.contains("mode=fast"));
    let text = shown.browser.text("[data-figure='000/3']")?;
    assert!(
        text.contains("The paper, of its machines: Android is slower") && text.contains("All with size=1"),
        "{text}"
    );
    assert!(text.contains("GETs on Linux") && text.contains("1,230"), "{text}");
    assert!(drawn(&shown, "[data-figure='001/1, 3'] canvas")?);
    assert_eq!(shown.browser.attribute("[data-figure='001/1, 3'] canvas", "data-bars")?, "6");
    assert!(drawn(&shown, "#flows-body canvas")?);
    assert!(shown.browser.text("#flows-body")?.contains("limited by application, link rate"));
    // Away from the line, on either side of the middle.
    for (x, cause) in [(0.3, "limited by application"), (0.7, "limited by link rate")] {
        let tip = pointed(&shown, "#flows-body canvas", x, 190.0)?;
        assert!(tip.contains(cause), "{tip:?}");
    }
    shown.quiet()
}

fn curves_show_the_process_that_is_pointed_at() -> Result<()> {
    let shown = show(&data())?;
    let canvas = "#curves-body canvas";
    assert!(drawn(&shown, canvas)?);
    // The first iterations all take 2 ms: at the top of the plot, just right of the axis.
    let tip = pointed(&shown, canvas, 0.3, 21.0)?;
    for part in ["block", "warmup", "of 30: 2 ms", "steady from iteration 11", "1 outliers", "1000 request/s"] {
        assert!(tip.contains(part), "{part:?} is not in {tip:?}");
    }
    assert!(!shown.browser.attribute(canvas, "data-chosen")?.is_empty());
    assert!(shown.browser.text("#curves-body")?.contains("5 warmup"));
    shown.quiet()
}

fn numbers_method_and_doubts_are_said_as_text() -> Result<()> {
    let shown = show(&data())?;
    let badges = shown.browser.text("#badges")?;
    for part in ["quick run", "gates not passed", "every result checked"] {
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

fn a_benchmark_without_results_says_so() -> Result<()> {
    let mut data = data();
    for part in ["figures", "curves", "flows", "metrics", "designs"] {
        data[part] = json!([]);
    }
    data["shown"]["results"] = json!([]);
    data["shown"]["complete"] = json!(false);
    let shown = show(&data)?;
    assert!(shown.browser.text("#scores")?.contains("Nothing was measured."));
    assert_eq!(shown.browser.text("#badges")?, "stopped before its end");
    shown.quiet()
}

fn main() {
    run(&[
        ("figures_are_drawn_and_tell_their_values", figures_are_drawn_and_tell_their_values),
        ("curves_show_the_process_that_is_pointed_at", curves_show_the_process_that_is_pointed_at),
        ("numbers_method_and_doubts_are_said_as_text", numbers_method_and_doubts_are_said_as_text),
        ("a_benchmark_without_results_says_so", a_benchmark_without_results_says_so),
    ]);
}
