//! The drawing of the timeline: which part of the recording, with its window, rows, names and axes.

use super::*;

pub fn window_ranges_from_ten_microseconds_to_whole_run() -> Result<()> {
    let shown = show_inserts("")?;
    for (preset, width) in [("80000000", 80e6), ("12000000", 12e6)] {
        shown.browser.click(&format!("#presets [data-preset='{preset}']"))?;
        assert_eq!(shown.number("width-ns")?, width);
    }
    shown.browser.keys(CANVAS_SELECTOR, "+")?;
    assert_eq!(shown.number("width-ns")?, 12e6 * 0.6);
    shown.browser.keys(CANVAS_SELECTOR, &"+".repeat(25))?;
    assert!(shown.number("width-ns")? <= 10_000.0);
    shown.browser.click("#fit")?;
    let whole = shown.number("width-ns")?;
    assert!(whole > 80e6);
    shown.browser.keys(CANVAS_SELECTOR, "-")?;
    assert_eq!(shown.number("width-ns")?, whole, "nothing lies outside the run");
    let before = shown.data("operation")?;
    shown.browser.keys(CANVAS_SELECTOR, ARROW_DOWN_KEY)?;
    assert_ne!(shown.data("operation")?, before, "an arrow key goes to the next operation");
    shown.browser.keys(CANVAS_SELECTOR, ESCAPE_KEY)?;
    assert_eq!(shown.data("operation")?, "");
    shown.quiet()
}

pub fn pointer_moves_and_scales_window() -> Result<()> {
    let shown = show_inserts("#from=20000000&to=40000000")?;
    let (gutter, y) = (shown.browser.attribute(CANVAS_SELECTOR, "data-gutter")?.parse::<f64>()?, 60.0);
    shown.browser.drag(CANVAS_SELECTOR, (gutter + 400.0, y), (gutter + 300.0, y))?;
    assert_eq!(shown.number("width-ns")?, 20e6, "dragging keeps the width");
    let from = shown.number("from-ns")?;
    assert!(from > 20e6, "dragging to the left shows what is later");

    shown.browser.run("document.activeElement.blur();", &[])?;
    shown.browser.wheel(CANVAS_SELECTOR, (gutter + 300.0, y), 40)?;
    assert_eq!(shown.number("width-ns")?, 20e6, "without the focus the wheel scrolls the page");
    shown.browser.run("document.getElementById('timeline-canvas').focus();", &[])?;
    shown.browser.wheel(CANVAS_SELECTOR, (gutter, y), -400)?;
    assert!(shown.number("width-ns")? < 20e6);
    let start = shown.number("from-ns")?;
    assert!((start - from).abs() < 100_000.0, "what is under the pointer stays there: {from} and {start}");
    shown.quiet()
}

pub fn axis_labels_are_not_cut_off() -> Result<()> {
    let [timeline, mut scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    // Far out on a large disk, a few MiB apart: labels such as `161.66 GiB`.
    for (i, sector) in scatter["points"]["sector"].as_array_mut().ok_or("sectors")?.iter_mut().enumerate() {
        if !sector.is_null() {
            *sector = json!(339_020_000 + 37 * i as u64);
        }
    }
    let shown = show(&PageData { title: "far out", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    let labels = shown.browser.run(
        "const seen = []; const paint = CanvasRenderingContext2D.prototype.fillText; \
         CanvasRenderingContext2D.prototype.fillText = function (text, x, y) { \
           if (this.textAlign === 'right') seen.push([text, x - this.measureText(text).width]); paint.call(this, text, x, y); }; \
         const s = document.querySelector('.scatter select'); s.dispatchEvent(new Event('change')); \
         CanvasRenderingContext2D.prototype.fillText = paint; return seen;",
        &[],
    )?;
    let labels = labels.as_array().ok_or("labels")?;
    let far = |label: &Value| label[0].as_str().is_some_and(|text| text.starts_with("161.") && text.ends_with(" GiB"));
    assert!(labels.len() > 2 && labels.iter().any(far), "{labels:?}");
    assert!(labels.iter().all(|label| label[1].as_f64().is_some_and(|x| x >= 0.0)), "cut off at the left: {labels:?}");
    // A few adjacent blocks, farther out: no two lines may have the same address.
    let modules = [include_str!("../../../../web/src/scale.js"), include_str!("../../../../web/src/scatter.js")];
    let alike = of_modules(
        &shown,
        &modules,
        "const labels = addressLabels({ low: 2 ** 41, high: 2 ** 41 + 70000 }).map(({ label }) => label); \
         return [labels.length > 2, labels.length - new Set(labels).size];",
    )?;
    assert_eq!(alike, json!([true, 0]));
    shown.quiet()
}

/// Adds to the timeline a burst of `deep` simultaneous commands, and as many threads with a call each, that ends before `until`.
fn with_burst(timeline: &mut Value, deep: u64, until: u64) -> Result<()> {
    let layer = |name: &str| timeline["layers"].as_array().and_then(|all| all.iter().position(|l| l["name"] == name));
    let (driver, syscall) = (layer("Driver").ok_or("Driver")?, layer("Syscall").ok_or("Syscall")?);
    for at in 0..deep {
        let lanes = |of: usize| timeline["layers"][of]["lanes"].as_array().map_or(0, Vec::len);
        let places = [
            (driver, lanes(driver), "vda".to_owned(), 0),
            (syscall, lanes(syscall), format!("cp {}", 9000 + at), at + 1),
        ];
        for (layer, lane, name, group) in places {
            let more = json!({ "name": name, "group": group });
            timeline["layers"][layer]["lanes"].as_array_mut().ok_or("lanes")?.push(more);
            let spans = timeline["spans"].as_object_mut().ok_or("spans")?;
            for (column, values) in spans.iter_mut() {
                let values = values.as_array_mut().ok_or("a column")?;
                let value = match column.as_str() {
                    "id" => json!(1_000_000 + values.len()),
                    "layer" => json!(layer),
                    "lane" => json!(lane),
                    "start" => json!(until - 500_000 + at),
                    "end" => json!(until),
                    "kind" | "label" | "flags" | "bytes" => json!(0),
                    "tgid" | "tid" => json!(9000 + at),
                    _ => Value::Null,
                };
                values.push(value);
            }
        }
    }
    Ok(())
}

pub fn burst_makes_lanes_flat_only_where_it_is() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let before = show(
        &PageData {
            title: "calm",
            summary: summary.clone(),
            timeline: timeline.clone(),
            scatter: scatter.clone(),
            counts: counts.clone(),
            ..PageData::default()
        },
        "#from=20000000&to=40000000",
    )?;
    let calm = rows_of(&before, "Driver")?;
    with_burst(&mut timeline, 30, 4_000_000)?;
    let shown = show(
        &PageData { title: "burst", summary, timeline, scatter, counts, ..PageData::default() },
        "#from=20000000&to=40000000",
    )?;
    assert_eq!(rows_of(&shown, "Driver")?, calm, "the burst is not in this window");
    shown.browser.click("#fit")?;
    let whole = rows_of(&shown, "Driver")?;
    assert_eq!(whole.len(), calm.len() + 30);
    assert!(whole.iter().all(|(_, high, _)| *high < 10.0), "{whole:?}");
    // The first rows have most of the spans, and stay high enough to be read.
    assert!(whole[0].1 >= 7.0 && whole.last().is_some_and(|(_, high, _)| *high < 4.0), "{whole:?}");
    // Moving keeps the rows in their places; another scale rearranges them.
    shown.browser.run("location.hash = '#from=0&to=9000000';", &[])?;
    let there = rows_of(&shown, "Syscall")?;
    shown.browser.run("document.getElementById('timeline-canvas').focus();", &[])?;
    for _ in 0..4 {
        shown.browser.keys(CANVAS_SELECTOR, "\u{e014}")?;
    }
    assert!(shown.number("from-ns")? > 4e6, "the window has left the burst");
    assert_eq!(rows_of(&shown, "Syscall")?, there);
    shown.browser.keys(CANVAS_SELECTOR, "+")?;
    assert_eq!(rows_of(&shown, "Syscall")?.len(), 1);
    shown.quiet()
}

pub fn row_without_spans_in_window_is_hidden() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let at =
        timeline["layers"].as_array().and_then(|all| all.iter().position(|l| l["name"] == "Driver")).ok_or("Driver")?;
    let page = |timeline: &Value, hash: &str| {
        let (summary, scatter, counts) = (summary.clone(), scatter.clone(), counts.clone());
        show(
            &PageData { title: "idle", summary, timeline: timeline.clone(), scatter, counts, ..PageData::default() },
            hash,
        )
    };
    let busy = rows_of(&page(&timeline, "#from=20000000&to=40000000")?, "Driver")?;
    // The layer's first disk is idle in this window.
    timeline["layers"][at]["lanes"].as_array_mut().ok_or("lanes")?.insert(0, json!({ "name": "idle", "group": 99 }));
    let layers = timeline["spans"]["layer"].clone();
    for (i, lane) in timeline["spans"]["lane"].as_array_mut().ok_or("lanes")?.iter_mut().enumerate() {
        if layers[i] == json!(at) {
            *lane = json!(lane.as_u64().ok_or("lane")? + 1);
        }
    }
    let shown = page(&timeline, "#from=20000000&to=40000000")?;
    let names = |rows: &[(f64, f64, String)]| rows.iter().map(|row| row.2.clone()).collect::<Vec<_>>();
    assert_eq!(names(&rows_of(&shown, "Driver")?), names(&busy));
    // A layer stays, even if none of its rows has anything.
    shown.browser.run("location.hash = '#from=20000000&to=20000010';", &[])?;
    assert_eq!(rows_of(&shown, "Driver")?.len(), 1);
    shown.quiet()
}

pub fn arrow_keys_without_selection_start_in_window() -> Result<()> {
    let shown = show_inserts("#from=20000000&to=40000000")?;
    for (key, after) in [(ARROW_DOWN_KEY, true), ("\u{e013}", false)] {
        shown.browser.run("location.hash = '#from=20000000&to=40000000';", &[])?;
        shown.browser.keys(CANVAS_SELECTOR, ESCAPE_KEY)?;
        assert_eq!(shown.data("operation")?, "");
        shown.browser.keys(CANVAS_SELECTOR, key)?;
        let began = shown.browser.run(
            "return document.querySelector('#list-rows tr.chosen td').textContent.replace(/[^0-9.]/g, '');",
            &[],
        )?;
        let began: f64 = began.as_str().ok_or("no operation")?.parse()?;
        assert_eq!(began >= 20.0, after, "{began} ms");
        assert!((18.0..24.0).contains(&began), "next to the window's start: {began} ms");
    }
    shown.quiet()
}

pub fn names_stand_beside_their_rows() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    with_burst(&mut timeline, 20, 4_000_000)?;
    // A path too long for one line on a phone.
    let title = "/srv/recordings/2026-11-26/name_without_a_space_of_a_recording.fathom";
    let shown =
        show(&PageData { title, summary, timeline, scatter, counts, ..PageData::default() }, "#from=0&to=90000000")?;
    for width in [1280, 390] {
        shown.browser.resize(width, 900)?;
        rows_of(&shown, "Syscall")?;
        let beyond = "const page = document.documentElement; return page.scrollWidth - page.clientWidth;";
        assert_eq!(shown.browser.run(beyond, &[])?, json!(0), "the page scrolls sideways at {width} pixels");
        shown.browser.run(
            "window.seen = []; const paint = CanvasRenderingContext2D.prototype.fillText; \
             CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most) { \
               if (this.canvas.id === 'timeline-canvas') window.seen.push([text, x, y, this.measureText(text).width]); paint.call(this, text, x, y, most); };",
            &[],
        )?;
        shown.browser.run("location.hash = `#from=0&to=${90000000 + innerWidth}`;", &[])?;
        let rows = rows_of(&shown, "Syscall")?;
        let seen = shown.browser.run("return window.seen;", &[])?;
        let gutter: f64 = shown.browser.attribute(CANVAS_SELECTOR, "data-gutter")?.parse()?;
        // 20 threads of the burst and the program's own.
        assert_eq!(rows.len(), 21);
        for (top, high, name) in &rows {
            let stem = name.split(' ').next().unwrap_or_default();
            let label = seen.as_array().into_iter().flatten().find(|said| {
                let [text, y] = [said[0].as_str().map(str::to_owned), said[2].as_f64().map(|y| y.to_string())];
                let y: f64 = y.and_then(|y| y.parse().ok()).unwrap_or(-1.0);
                text.is_some_and(|text| text.starts_with(stem)) && y > *top && y < top + high.max(12.0)
            });
            let label = label.ok_or_else(|| format!("{name} is not beside {top} at {width} pixels: {seen}"))?;
            let (x, wide) = (label[1].as_f64().ok_or("x")?, label[3].as_f64().ok_or("width")?);
            assert!(x + wide <= gutter, "{name} reaches into the plot at {width} pixels");
        }
    }
    shown.quiet()
}
