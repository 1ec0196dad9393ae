//! The page on a phone: narrow, and touched.

use super::*;

const PHONE_SIZE: (u32, u32) = (390, 844);

pub fn narrow_window_needs_no_horizontal_scrolling() -> Result<()> {
    let shown = show_inserts("")?;
    for width in [360, 480, 800] {
        shown.browser.resize(width, 800)?;
        // Elements beyond the right edge, except for the contents of scrollable elements.
        let beyond = shown.browser.run(
            "const w = document.documentElement.clientWidth; \
             const scrolls = (n) => n && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(n).overflowX) || scrolls(n.parentElement)); \
             return [...document.querySelectorAll('body *')].filter((n) => n.getBoundingClientRect().right > w + 1 && \
             n.getBoundingClientRect().width > 0 && !scrolls(n.parentElement)).map((n) => `${n.tagName} ${n.id} ${n.className}`);",
            &[],
        )?;
        assert_eq!(beyond, json!([]), "at {width} pixels");
    }
    // Scrollable elements need not scroll either: the sections' names, the panel with its table of times, the list of operations.
    for width in [360, 390, 420, 800, 1100, 1400] {
        shown.browser.resize(width, 800)?;
        let sideways = shown.browser.run(
            "return ['nav', '#panel', '.list .scroll'].map((name) => document.querySelector(name)) \
             .filter((n) => n.scrollWidth > n.clientWidth).map((n) => [n.tagName, n.scrollWidth, n.clientWidth]);",
            &[],
        )?;
        assert_eq!(sideways, json!([]), "at {width} pixels");
    }
    shown.quiet()
}

pub fn captions_and_latencies_are_in_sight_on_a_phone() -> Result<()> {
    let shown = show_inserts("")?;
    shown.browser.resize(PHONE_SIZE.0, PHONE_SIZE.1)?;
    let cut = shown.browser.run(
        "return [...document.querySelectorAll('.scroll')].filter((s) => s.clientWidth > 0).map((s) => \
           [s.querySelector('caption > span')?.getBoundingClientRect().right ?? 0, s.getBoundingClientRect().right, s.ariaLabel]) \
         .filter(([text, edge]) => text > edge + 1);",
        &[],
    )?;
    assert_eq!(cut, json!([]), "captions wider than the screen");
    let latencies = shown.browser.run(
        "const w = document.documentElement.clientWidth; const all = [...document.querySelectorAll('#list-rows tr')]; \
         const seen = (cell) => { const b = cell.getBoundingClientRect(); return b.width > 0 && b.right <= w; }; \
         return [all.length, all.filter((row) => seen(row.children[3]) && / [nµm]?s$/.test(row.children[3].textContent)).length];",
        &[],
    )?;
    assert_eq!(latencies[0], latencies[1], "rows of the list, and those with a latency in sight");
    assert_ne!(latencies[0], json!(0));
    // Late in a long recording, and of an operation that was cut off.
    let reaching = shown.browser.run(
        "const cells = document.querySelectorAll('#list-rows tr:first-child td.number'); \
         cells[0].textContent = '1,123,197.110 ms'; cells[2].textContent = 'end not recorded'; \
         return [...cells].filter((cell) => cell.scrollWidth > cell.clientWidth).map((cell) => cell.textContent);",
        &[],
    )?;
    assert_eq!(reaching, json!([]), "cells that reach into the next");
    shown.quiet()
}

pub fn fingers_move_timeline_sideways_and_page_up() -> Result<()> {
    let shown = show_inserts("#from=20000000&to=40000000")?;
    shown.browser.resize(PHONE_SIZE.0, PHONE_SIZE.1)?;
    shown.browser.touchable(true)?;
    rows_of(&shown, "Driver")?;
    let swipe =
        |x: f64, y: f64| (0..12).map(|at| vec![(250.0 + x * f64::from(at), 200.0 + y * f64::from(at))]).collect();
    let path: Vec<_> = swipe(-12.0, 0.0);
    shown.browser.fingers(CANVAS_SELECTOR, &path)?;
    assert_eq!(shown.number("width-ns")?.round(), 20e6, "one finger does not zoom");
    let from = shown.number("from-ns")?;
    assert!(from > 20e6, "a finger to the left shows what is later: {from}");
    // The timeline can be higher than the screen: the page must still scroll.
    let before = shown.browser.run("return scrollY;", &[])?.as_f64().unwrap_or_default();
    let path: Vec<_> = swipe(0.0, -14.0);
    shown.browser.fingers(CANVAS_SELECTOR, &path)?;
    wait_for(&shown, &format!("scrollY > {}", before + 50.0))?;
    assert_eq!(shown.number("from-ns")?, from, "and not the timeline");
    let apart: Vec<_> =
        (0..10).map(|at| vec![(220.0 - 8.0 * f64::from(at), 200.0), (240.0 + 8.0 * f64::from(at), 200.0)]).collect();
    shown.browser.fingers(CANVAS_SELECTOR, &apart)?;
    assert!(shown.number("width-ns")? < 19e6, "two fingers zoom: {}", shown.number("width-ns")?);
    shown.quiet()
}
