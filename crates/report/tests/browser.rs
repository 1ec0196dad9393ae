//! The page in a real browser: what a reader clicks, types and sees. Needs Chromium and chromedriver; without them every
//! test here is counted as ignored, and its reason printed as `SKIP name: reason`.

mod support {
    pub mod many_operations;
    pub mod page;
    pub mod synthetic;
    pub mod webdriver;
}

use analysis::explain::contract::Explanation;
use analysis::figures::Limits;
use report::{PageData, page, pages};
use serde_json::{Value, json};
use support::many_operations;
use support::page::{Shown, of_modules, run};
use support::synthetic::{HOSTILE, INSERT, Synthetic};
use support::webdriver::Result;

const INSERTS: u64 = 60;
const TIMELINE: &str = "#timeline";
const CANVAS: &str = "#timeline-canvas";
const ESCAPE: &str = "\u{e00c}";
const DOWN: &str = "\u{e015}";

fn show(data: &PageData, hash: &str) -> Result<Shown> {
    Shown::page(&page(data), hash)
}

fn show_inserts(hash: &str) -> Result<Shown> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
    show(
        &PageData { title: "60 INSERTs <b>&amp;</b> scans", summary, timeline, scatter, counts, ..PageData::default() },
        hash,
    )
}

impl Shown {
    fn data(&self, name: &str) -> Result<String> {
        self.browser.attribute(TIMELINE, &format!("data-{name}"))
    }

    fn number(&self, name: &str) -> Result<f64> {
        Ok(self.data(name)?.parse()?)
    }

    /// What is highlighted, as numbers of the archive.
    fn highlighted(&self) -> Result<Vec<u64>> {
        self.data("highlighted")?.split_whitespace().map(|id| Ok(id.parse()?)).collect()
    }

    /// One attribute of every element that the panel lists.
    fn listed(&self, name: &str) -> Result<Vec<String>> {
        let found = self.browser.run(
            "return [...document.querySelectorAll('#panel li[data-span]')].map((li) => li.dataset[arguments[0]]);",
            &[json!(name)],
        )?;
        Ok(found.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect())
    }
}

fn page_opens_on_typical_operation_without_console_output() -> Result<()> {
    let shown = show_inserts("")?;
    assert!(!shown.data("operation")?.is_empty());
    assert_eq!(shown.number("width-ns")?, 12e6);
    assert!(shown.browser.text("#panel")?.contains(INSERT));
    assert_eq!(shown.browser.text("#title")?, "60 INSERTs <b>&amp;</b> scans");
    shown.quiet()
}

fn operation_clicked_in_list_shows_its_chain() -> Result<()> {
    let shown = show_inserts("")?;
    let operation = shown.browser.run(
        "const b = document.querySelector('#list-rows tr:not(.chosen) button'); b.id = 'wanted'; return b.dataset.operation;",
        &[],
    )?;
    shown.browser.click("#wanted")?;
    assert_eq!(operation.as_str(), Some(shown.data("operation")?.as_str()));

    // The ground truth: three phases, each with one fsync, one commit and three commands, 7 writes in all.
    let layers = shown.listed("layer")?;
    let of = |layer: &str| layers.iter().filter(|l| *l == layer).count();
    assert_eq!([of("App"), of("Syscall"), of("Block"), of("IoScheduler"), of("Driver")], [1, 10, 9, 9, 9]);
    assert_eq!(shown.listed("kind")?.iter().filter(|kind| *kind == "commit").count(), 3);
    let mut listed: Vec<u64> =
        shown.listed("span")?.iter().map(|id| id.parse()).collect::<std::result::Result<_, _>>()?;
    listed.push(shown.data("span")?.parse()?);
    listed.sort_unstable();
    let mut highlighted = shown.highlighted()?;
    highlighted.sort_unstable();
    assert_eq!(listed, highlighted, "the panel lists what is highlighted, but for the chosen span itself");
    assert!(shown.listed("confidence")?.contains(&"interval".to_owned()), "the weakest link shows");

    // Every slice of its time has a confidence, and every command a file.
    let sure = shown
        .browser
        .run("return [...document.querySelectorAll('#panel table tr')].map((r) => r.lastChild.textContent);", &[])?;
    let sure = sure.as_array().ok_or("rows")?;
    assert!(
        sure.len() > 3
            && sure.iter().all(|s| ["structural", "interval"].contains(&s.as_str().unwrap_or_default().trim())),
        "{sure:?}"
    );

    let panel = shown.browser.text("#panel")?;
    for word in
        ["test.db-journal", "offset 512", "vda sector 4,300,00", "4 KiB", "weakest link interval", "100 % charged here"]
    {
        assert!(panel.replace('\n', " ").contains(word), "{word:?} is not in {panel}");
    }
    shown.quiet()
}

fn chain_without_mark_has_confidence_of_its_links() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::without_marks(INSERTS);
    let shown = show(
        &PageData { title: "no marks", summary, timeline: timeline.clone(), scatter, counts, ..PageData::default() },
        "#op=105",
    )?;
    assert!(!shown.listed("layer")?.contains(&"App".to_owned()), "no mark is in the chain");
    let sure: Vec<_> = shown.listed("layer")?.into_iter().zip(shown.listed("confidence")?).collect();
    // Every way leads through a call, and a call is its statement's by structure: nothing is surer than that.
    assert!(sure.iter().all(|(_, sure)| ["structural", "interval"].contains(&sure.as_str())), "{sure:?}");
    let commands = |grade: &str| sure.iter().filter(|(layer, sure)| layer == "Driver" && sure == grade).count();
    assert_eq!([commands("structural"), commands("interval")], [6, 3], "the journal's three are by time");
    assert!(shown.browser.text("#panel")?.replace('\n', " ").contains("weakest link interval"));
    shown.quiet()?;

    // Without links in the page, what the trace counts to the operation is there by its thread and time.
    let [_, scatter, counts, summary] = Synthetic::without_marks(INSERTS);
    for (_, column) in timeline["links"].as_object_mut().ok_or("links")?.iter_mut() {
        *column = json!([]);
    }
    let shown =
        show(&PageData { title: "no links", summary, timeline, scatter, counts, ..PageData::default() }, "#op=105")?;
    let sure: Vec<_> = shown.listed("layer")?.into_iter().zip(shown.listed("confidence")?).collect();
    let calls: Vec<_> = sure.iter().filter(|(layer, _)| layer == "Syscall").map(|(_, sure)| sure.as_str()).collect();
    assert_eq!(calls, ["interval"; 10]);
    shown.quiet()
}

fn clicked_span_is_selected_and_links_to_its_operation() -> Result<()> {
    let shown = show_inserts("")?;
    let database: f64 = shown.browser.attribute(CANVAS, "data-database-y")?.parse()?;
    let gutter: f64 = shown.browser.attribute(CANVAS, "data-gutter")?.parse()?;
    shown.browser.keys(CANVAS, ESCAPE)?;
    assert_eq!(shown.data("highlighted-count")?, "0");
    // In a window of 12 ms from a typical operation on, operations of more than 2 ms follow each other closely.
    shown.browser.click_at(CANVAS, gutter + 300.0, database)?;
    let operation = shown.data("operation")?;
    assert!(!operation.is_empty(), "an operation lies there");

    let command =
        shown.browser.run("return document.querySelector('#panel li[data-layer=Driver]').dataset.span;", &[])?;
    let command = command.as_str().unwrap_or_default();
    shown.browser.run("document.querySelector('#panel li[data-layer=Driver] button').click();", &[])?;
    assert_eq!(shown.data("span")?, command);
    assert_eq!(shown.data("operation")?, "");
    let layers = shown.listed("layer")?;
    for layer in ["IoScheduler", "Block", "Syscall", "Database"] {
        assert!(layers.iter().any(|l| l == layer), "{layer} is not above the command: {layers:?}");
    }
    assert_eq!(shown.browser.attribute("#panel li[data-cause]", "data-cause")?, operation);
    assert_eq!(shown.browser.attribute("#panel li[data-cause]", "data-share")?, "1");
    shown.quiet()
}

fn window_ranges_from_ten_microseconds_to_whole_run() -> Result<()> {
    let shown = show_inserts("")?;
    for (preset, width) in [("80000000", 80e6), ("12000000", 12e6)] {
        shown.browser.click(&format!("#presets [data-preset='{preset}']"))?;
        assert_eq!(shown.number("width-ns")?, width);
    }
    shown.browser.keys(CANVAS, "+")?;
    assert_eq!(shown.number("width-ns")?, 12e6 * 0.6);
    shown.browser.keys(CANVAS, &"+".repeat(25))?;
    assert!(shown.number("width-ns")? <= 10_000.0);
    shown.browser.click("#fit")?;
    let whole = shown.number("width-ns")?;
    assert!(whole > 80e6);
    shown.browser.keys(CANVAS, "-")?;
    assert_eq!(shown.number("width-ns")?, whole, "nothing lies outside the run");
    let before = shown.data("operation")?;
    shown.browser.keys(CANVAS, DOWN)?;
    assert_ne!(shown.data("operation")?, before, "an arrow key goes to the next operation");
    shown.browser.keys(CANVAS, ESCAPE)?;
    assert_eq!(shown.data("operation")?, "");
    shown.quiet()
}

fn pointer_moves_and_scales_window() -> Result<()> {
    let shown = show_inserts("#from=20000000&to=40000000")?;
    let (gutter, y) = (shown.browser.attribute(CANVAS, "data-gutter")?.parse::<f64>()?, 60.0);
    shown.browser.drag(CANVAS, (gutter + 400.0, y), (gutter + 300.0, y))?;
    assert_eq!(shown.number("width-ns")?, 20e6, "dragging keeps the width");
    let from = shown.number("from-ns")?;
    assert!(from > 20e6, "dragging to the left shows what is later");

    shown.browser.run("document.activeElement.blur();", &[])?;
    shown.browser.wheel(CANVAS, (gutter + 300.0, y), 40)?;
    assert_eq!(shown.number("width-ns")?, 20e6, "without the focus the wheel scrolls the page");
    shown.browser.run("document.getElementById('timeline-canvas').focus();", &[])?;
    shown.browser.wheel(CANVAS, (gutter, y), -400)?;
    assert!(shown.number("width-ns")? < 20e6);
    let start = shown.number("from-ns")?;
    assert!((start - from).abs() < 100_000.0, "what is under the pointer stays there: {from} and {start}");
    shown.quiet()
}

fn text_of_program_is_escaped() -> Result<()> {
    let shown = show_inserts("")?;
    let seen = shown.browser.run(
        "return [document.images.length, document.querySelectorAll('script').length, document.body.textContent.includes(arguments[0]), \
         /[\\u0000-\\u0008\\u000b-\\u001f\\u202e]/.test(document.querySelector('main').textContent)];",
        &[json!("SELECT '</script><img src=x onerror=alert(1)>\u{241b}[31m' AS \"<b>\\u202e\" FROM t")],
    )?;
    assert_eq!(
        seen,
        json!([0, 3, true, false]),
        "{HOSTILE:?} must be there as text, with its control characters made visible"
    );
    shown.quiet()
}

fn statement_without_device_commands_is_explained() -> Result<()> {
    let shown = show_inserts("")?;
    let panels =
        shown.browser.run("return [...document.querySelectorAll('.scatter')].map((f) => f.dataset.commands);", &[])?;
    assert_eq!(panels, json!([(INSERTS * 9).to_string(), "0"]));
    let words = shown.browser.text(".scatter:last-child .none")?;
    assert_eq!(words, "SELECT: no device command. All of its reads were served from the page cache.");
    shown.quiet()
}

fn statement_whose_commands_are_left_out_is_not_said_to_have_none() -> Result<()> {
    let [timeline, mut scatter, counts, summary] = Synthetic::figures(INSERTS);
    scatter["left_out"]["spans"] = json!(7);
    let shown = show(&PageData { title: "truncated", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    let words = shown.browser.text(".scatter:last-child .none")?;
    assert_eq!(words, "SELECT: no device command. None of those on this page; some were omitted.");
    shown.quiet()
}

fn shared_command_names_every_cause_with_share() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
    let strings = timeline["strings"].as_array_mut().ok_or("strings")?;
    strings.extend([json!("other process"), json!("cron <i>")]);
    let last = strings.len() - 1;
    // The first command becomes one that two statements and another program had a part in.
    let command = timeline["causes"]["command"][0].clone();
    let id = timeline["spans"]["id"][command.as_u64().ok_or("a row")? as usize].clone();
    let origin = timeline["causes"]["origin"][0].clone();
    let sure = timeline["causes"]["confidence"][0].clone();
    timeline["causes"]["share"][0] = json!(0.5);
    for (origin, operation, process, share) in
        [(origin, json!(1), Value::Null, 0.25), (json!(last - 1), Value::Null, json!(last), 0.25)]
    {
        let row = [
            ("command", &command),
            ("origin", &origin),
            ("operation", &operation),
            ("tgid", &Value::Null),
            ("process", &process),
            ("share", &json!(share)),
            ("confidence", &sure),
            ("via", &json!(0)),
        ];
        for (column, value) in row {
            timeline["causes"][column].as_array_mut().ok_or("a column")?.push(value.clone());
        }
    }
    let shown = show(
        &PageData { title: "shared", summary, timeline, scatter, counts, ..PageData::default() },
        &format!("#span={id}"),
    )?;
    let causes = shown.browser.run("return [...document.querySelectorAll('#panel li[data-cause]')].map((li) => [li.dataset.cause, li.dataset.share]);", &[])?;
    assert_eq!(causes, json!([["100", "0.5"], ["101", "0.25"], ["", "0.25"]]));
    assert!(shown.browser.text("#panel")?.contains("other process (cron <i>)"));
    shown.browser.click("#panel li[data-cause='101'] button")?;
    assert_eq!(shown.data("operation")?, "101");
    assert!(
        shown.highlighted()?.contains(&id.as_u64().ok_or("an id")?),
        "a command that is charged belongs to the chain"
    );
    shown.quiet()
}

fn files_of_one_name_are_one_row() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERTS);
    let file = |path: Option<&str>, ino: u64| json!({ "path": path, "class": "rollback journal", "dev": "254:1", "ino": ino, "writes": 4, "bytes_written": 1024, "reads": 1, "bytes_read": 0 });
    let journals = (0..200).map(|ino| file(Some("/home/ann/test.db-journal"), ino));
    let files: Vec<Value> = journals.chain([file(None, 900), file(None, 901)]).collect();
    summary["files"] = json!(files);
    let shown = show(&PageData { title: "files", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    let rows = shown.browser.run(
        "return [...document.querySelectorAll('#files tbody tr')].map((r) => [...r.children].map((c) => c.textContent));",
        &[],
    )?;
    let row = |path: &str, n: &str, writes: &str, written: &str, reads: &str| {
        json!([path, "rollback journal", n, writes, written, reads, "0 B"])
    };
    let unnamed = |ino: u64| row(&format!("inode {ino}: name unknown"), "1", "4", "1 KiB", "1");
    let journals = row("/home/ann/test.db-journal", "200", "800", "200 KiB", "200");
    assert_eq!(rows, json!([journals, unnamed(900), unnamed(901)]));
    shown.quiet()
}

fn losses_are_shown() -> Result<()> {
    let [mut timeline, scatter, counts, mut summary] = Synthetic::figures(INSERTS);
    timeline["losses"] =
        json!([{ "source": "ring buffer full", "cpu": 1, "start": 4_000_000, "end": 5_000_000, "events": 3 }]);
    timeline["left_out"] = json!({ "why": "The page holds at most so many spans." });
    timeline["duration_ns"] = json!(60_000_000_000u64);
    summary["trace"]["complete"] = json!(false);
    summary["loss"] = json!({ "events": 3, "at_least": true, "weakened_links": 2, "intervals": [
        { "source": "ring buffer full", "cpu": 1, "start_ns": 86_400_004_000_000u64, "end_ns": 86_400_005_000_000u64, "events": 3, "at_least": true, "program": null, "weakened_links": 2 },
    ] });
    let shown = show(&PageData { title: "damaged", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    shown.browser.click("#fit")?;
    assert!(shown.number("width-ns")? > 59e9, "the whole run is what was recorded, not what the page holds");
    let badges = shown.browser.text("#badges")?;
    for word in ["at least 3 events lost", "interrupted recording", "1 probe not attached", "spans in part"] {
        assert!(badges.contains(word), "{word:?} is not in {badges}");
    }
    assert!(shown.browser.text("#losses")?.contains("ring buffer full"));
    assert!(shown.browser.text("#left-out")?.contains("at most so many spans"));
    // Absent file systems miss nothing: they are in the table, without a warning.
    for how in ["f2fs is not loaded", "no btrfs was mounted"] {
        assert!(shown.browser.text("#coverage")?.contains(how), "{how}");
    }
    shown.quiet()
}

fn axis_labels_are_not_cut_off() -> Result<()> {
    let [timeline, mut scatter, counts, summary] = Synthetic::figures(INSERTS);
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
    // Some blocks beside each other, farther out: no two lines may claim one address.
    let modules = [include_str!("../../../web/src/scale.js"), include_str!("../../../web/src/scatter.js")];
    let alike = of_modules(
        &shown,
        &modules,
        "const labels = addressLabels({ low: 2 ** 41, high: 2 ** 41 + 70000 }).map(({ label }) => label); \
         return [labels.length > 2, labels.length - new Set(labels).size];",
    )?;
    assert_eq!(alike, json!([true, 0]));
    shown.quiet()
}

fn finding_leads_to_spans_that_show_it() -> Result<()> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
    let finding = |code: &str, evidence: &[u64]| {
        json!({
            "code": code, "title": "two or more flushes a commit", "statement": HOSTILE, "claim": "3 flushes", "executions": 59, "of": 60,
            "time_ns": 120_000_000_u64, "share": 0.41, "interval": [0.38, 0.44], "share_of_all": 0.4, "saving_ns": null,
            "remedy": "WAL", "evidence": evidence,
        })
    };
    let findings =
        [finding("F01", &[5010, 5003, 9_999_999]), finding("J02", &[]), finding("S01", &[]), finding("R01", &[])];
    let explanation = json!({ "version": 1, "findings": findings, "latency_ns": 300_000_000_u64 });
    let shown = show(&PageData { title: "found", summary, timeline, scatter, counts, explanation }, "")?;
    let text = shown.browser.text("#findings")?.replace('\n', " ");
    for part in [
        "F01",
        "40 % of all time",
        "120 ms, 41 % of the statement’s (38 % to 44 %); in 59 of 60 executions",
        "1 of the spans is",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert!(!text.contains("saving"), "an unknown saving is left out: {text}");
    let open =
        shown.browser.run("return [...document.querySelectorAll('#findings details')].map((d) => d.open);", &[])?;
    assert_eq!(open, json!([true, false, false, false]));
    shown.browser.click("#findings button[data-evidence='5003']")?;
    assert_eq!(shown.data("span")?, "5003");
    shown.quiet()
}

fn page_without_finding_says_so() -> Result<()> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
    let explanation = json!({ "version": 1, "findings": [], "latency_ns": 1 });
    let shown = show(&PageData { title: "healthy", summary, timeline, scatter, counts, explanation }, "")?;
    assert!(shown.browser.text("#findings")?.contains("No finding: nothing"));
    shown.quiet()
}

fn several_recordings_are_selectable_and_comparable() -> Result<()> {
    let part = |title, inserts| {
        let [timeline, scatter, counts, summary] = Synthetic::figures(inserts);
        PageData { title, summary, timeline, scatter, counts, ..PageData::default() }
    };
    let shown = Shown::page(&pages(&[part("first", INSERTS), part("second <i>", 20)]), "")?;
    assert_eq!(shown.browser.text("#recordings")?, "first\nsecond <i>");
    assert_eq!(shown.browser.text("#title")?, "first");
    // The second panel shows the INSERTs of the other recording, beside those of this one.
    shown.browser.run(
        "const s = document.querySelector('.scatter:last-child select'); s.value = '1 0'; s.dispatchEvent(new Event('change'));",
        &[],
    )?;
    let panels = shown.browser.run(
        "return [...document.querySelectorAll('.scatter')].map((f) => [f.dataset.recording, f.dataset.commands, \
         f.querySelector('canvas').width > 0]);",
        &[],
    )?;
    assert_eq!(panels, json!([["0", (INSERTS * 9).to_string(), true], ["1", "180", true]]));

    shown.browser.click("#recordings [data-recording='1']")?;
    let opened = |title: &str| {
        (0..100).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            shown.browser.text("#title").is_ok_and(|text| text == title)
                && !shown.data("from-ns").unwrap_or_default().is_empty()
        })
    };
    assert!(opened("second <i>"), "the second recording was not opened");
    assert_eq!(shown.browser.attribute("#recordings [data-recording='1']", "aria-pressed")?, "true");
    // A command of the first recording, by its address: it opens there.
    let command = shown.browser.run(
        "return JSON.parse(document.querySelector('script.commands').textContent).scatter.points.command[3];",
        &[],
    )?;
    // A view that has just changed writes its address a little later. That may come between the new address and its event, and must not
    // bring back the one that was left.
    shown.browser.run(
        &format!(
            "const left = location.hash; location.hash = '#r=0&span={command}'; history.replaceState(null, '', left || '#r=1');"
        ),
        &[],
    )?;
    assert!(opened("first"), "the first recording was not opened again");
    assert_eq!(shown.data("span")?, command.to_string());
    shown.quiet()
}

fn narrow_window_needs_no_horizontal_scrolling() -> Result<()> {
    let shown = show_inserts("")?;
    for width in [360, 480, 800] {
        shown.browser.resize(width, 800)?;
        // What lies beyond the right edge, but for the insides of what scrolls by itself.
        let beyond = shown.browser.run(
            "const w = document.documentElement.clientWidth; \
             const scrolls = (n) => n && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(n).overflowX) || scrolls(n.parentElement)); \
             return [...document.querySelectorAll('body *')].filter((n) => n.getBoundingClientRect().right > w + 1 && \
             n.getBoundingClientRect().width > 0 && !scrolls(n.parentElement)).map((n) => `${n.tagName} ${n.id} ${n.className}`);",
            &[],
        )?;
        assert_eq!(beyond, json!([]), "at {width} pixels");
    }
    // What may scroll by itself need not, either: the sections' names, and the panel with its table of times.
    for width in [360, 420, 800, 1100, 1400] {
        shown.browser.resize(width, 800)?;
        let sideways = shown.browser.run(
            "return ['nav', '#panel'].map((name) => document.querySelector(name)) \
             .filter((n) => n.scrollWidth > n.clientWidth).map((n) => [n.tagName, n.scrollWidth, n.clientWidth]);",
            &[],
        )?;
        assert_eq!(sideways, json!([]), "at {width} pixels");
    }
    shown.quiet()
}

/// Adds to the timeline a burst of `deep` commands at once, and as many threads with a call each, that ends before `until`.
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

/// The rows that a layer shows: top, height, name.
fn rows_of(shown: &Shown, layer: &str) -> Result<Vec<(f64, f64, String)>> {
    // What is drawn in the next frame tells its places.
    for _ in 0..100 {
        let drawn = shown.browser.run("const c = document.querySelector('#timeline-canvas'); const f = document.querySelector('#timeline'); \
             return c.dataset.drawn === `${f.dataset.fromNs} ${f.dataset.toNs}` && c.clientWidth === Number(c.dataset.width);", &[])?;
        if drawn == json!(true) {
            break;
        }
    }
    let all: Value = serde_json::from_str(&shown.browser.attribute(CANVAS, "data-rows")?)?;
    Ok(serde_json::from_value(all[layer].clone())?)
}

fn burst_makes_lanes_flat_only_where_it_is() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
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
    // Moving keeps the rows in their places; another scale arranges them anew.
    shown.browser.run("location.hash = '#from=0&to=9000000';", &[])?;
    let there = rows_of(&shown, "Syscall")?;
    shown.browser.run("document.getElementById('timeline-canvas').focus();", &[])?;
    for _ in 0..4 {
        shown.browser.keys(CANVAS, "\u{e014}")?;
    }
    assert!(shown.number("from-ns")? > 4e6, "the window has left the burst");
    assert_eq!(rows_of(&shown, "Syscall")?, there);
    shown.browser.keys(CANVAS, "+")?;
    assert_eq!(rows_of(&shown, "Syscall")?.len(), 1);
    shown.quiet()
}

fn names_stand_beside_their_rows() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERTS);
    with_burst(&mut timeline, 20, 4_000_000)?;
    let shown = show(
        &PageData { title: "names", summary, timeline, scatter, counts, ..PageData::default() },
        "#from=0&to=90000000",
    )?;
    for width in [1280, 390] {
        shown.browser.resize(width, 900)?;
        rows_of(&shown, "Syscall")?;
        shown.browser.run(
            "window.seen = []; const paint = CanvasRenderingContext2D.prototype.fillText; \
             CanvasRenderingContext2D.prototype.fillText = function (text, x, y, most) { \
               if (this.canvas.id === 'timeline-canvas') window.seen.push([text, x, y, this.measureText(text).width]); paint.call(this, text, x, y, most); };",
            &[],
        )?;
        shown.browser.run("location.hash = `#from=0&to=${90000000 + innerWidth}`;", &[])?;
        let rows = rows_of(&shown, "Syscall")?;
        let seen = shown.browser.run("return window.seen;", &[])?;
        let gutter: f64 = shown.browser.attribute(CANVAS, "data-gutter")?.parse()?;
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

/// Shows a recording of so many operations, of which the page holds so many spans.
fn show_many(operations: u64, spans: usize, window: Option<(u64, u64)>, hash: &str) -> Result<Shown> {
    let rows = many_operations::rows(operations);
    let limits = Limits { spans, window, ..Limits::default() };
    let summary = analysis::summary::summarise(&rows);
    let counts = analysis::figures::counts(&summary);
    let (timeline, scatter) = (analysis::figures::timeline(&rows, &limits), analysis::figures::scatter(&rows, &limits));
    let shown = Shown::page(
        &page(&PageData::of("many", &summary, timeline, scatter, &counts, &Explanation::default())?),
        hash,
    )?;
    for _ in 0..600 {
        if shown.browser.run("return document.body.dataset.opened === 'true';", &[])? == json!(true) {
            return Ok(shown);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Err("the page was not opened".into())
}

fn packed_columns_are_what_was_recorded() -> Result<()> {
    let shown = show_many(2_000, usize::MAX, None, "#op=1017")?;
    assert_eq!(shown.data("operation")?, "1017");
    let listed: Vec<(String, String)> = shown.listed("layer")?.into_iter().zip(shown.listed("span")?).collect();
    let own = |layer: &str, id: u64| (layer.to_owned(), id.to_string());
    assert_eq!(listed, [own("Syscall", many_operations::call(1017)), own("Driver", many_operations::command(1017))]);
    let panel = shown.browser.text("#panel")?.replace('\n', " ");
    for word in [
        many_operations::latency_text(1017).as_str(),
        "weakest link structural",
        "Device commands 1 (shares of 1), 4 KiB",
    ] {
        assert!(panel.contains(word), "{word:?} is not in {panel}");
    }
    assert_eq!(shown.browser.text("#left-out")?, "");
    shown.browser.click("#fit")?;
    assert_eq!(rows_of(&shown, "Syscall")?.len(), 1);
    shown.quiet()
}

fn search_finds_statements_files_and_spans() -> Result<()> {
    let shown = show_inserts("")?;
    let operations =
        || -> Result<String> { Ok(shown.browser.text("#list-page")?.split(' ').next().unwrap_or_default().to_owned()) };
    assert_eq!(operations()?, (INSERTS + INSERTS / 10 + 1).to_string());
    let latencies = shown.browser.run(
        "return [...document.querySelectorAll('#list-rows tr')].map((row) => parseFloat(row.children[3].textContent));",
        &[],
    )?;
    let latencies: Vec<f64> = serde_json::from_value(latencies)?;
    assert!(latencies.is_sorted_by(|a, b| a >= b), "the slowest first: {latencies:?}");
    // What used the journal's file: the INSERTs.
    shown.browser.keys("#search", "DB-JOURNAL")?;
    assert_eq!(operations()?, INSERTS.to_string());
    let all: u64 = shown.browser.text("#found")?.replace(',', "").replace(" spans", "").parse()?;
    assert_eq!(all % INSERTS, 0, "each has as many: {all}");
    shown.browser.keys("#search", "\u{e007}")?;
    assert!(shown.browser.text("#found")?.starts_with("1 of "));
    assert!(shown.browser.text("#panel")?.contains("test.db-journal"));
    let first = shown.data("span")?;
    shown.browser.click("#found-after")?;
    assert_ne!(shown.data("span")?, first);
    shown.browser.click("#found-before")?;
    assert_eq!(shown.data("span")?, first);
    // A statement's own text; nothing; and all again.
    shown.browser.keys("#search", ESCAPE)?;
    shown.browser.keys("#search", "onerror")?;
    assert_eq!(operations()?, "1");
    shown.browser.keys("#search", "zzz")?;
    assert_eq!([operations()?, shown.browser.text("#found")?], ["0", "0 spans"]);
    shown.browser.keys("#search", ESCAPE)?;
    assert_eq!(operations()?, (INSERTS + INSERTS / 10 + 1).to_string());
    assert_eq!(shown.browser.text("#found")?, "");
    shown.quiet()
}

fn latencies_and_device_times_are_shown() -> Result<()> {
    let shown = show_many(500, usize::MAX, None, "")?;
    let counts = shown.browser.run(
        "return [...document.querySelectorAll('.bins i')].map((bar) => Number(bar.dataset.count)).reduce((a, b) => a + b, 0);",
        &[],
    )?;
    assert_eq!(counts, json!(500), "every operation is in one bar");
    let numbers = shown.browser.text(".statement-part .numbers")?;
    for word in ["median", "p95", "p99", "max"] {
        assert!(numbers.contains(word), "{word} is not in {numbers}");
    }
    let cells = shown.browser.run(
        "return [...document.querySelectorAll('.device-times tbody td, .device-times tbody th')].map((cell) => cell.textContent);",
        &[],
    )?;
    // No bio was recorded: nothing is said of the queue.
    assert_eq!(
        cells.as_array().map(|all| all[..7].to_vec()),
        Some(json!(["vda", "write", "0", "–", "–", "–", "500"]).as_array().cloned().unwrap_or_default())
    );
    assert!(shown.browser.text(".device-times .note")?.ends_with("1 at most."));
    let depth = shown.browser.run(
        "const chart = document.querySelector('.depth');
         const heights = [...chart.querySelectorAll('.most')].map((bar) => bar.getBoundingClientRect().height);
         const whole = chart.querySelector('.parts').getBoundingClientRect();
         return [chart.dataset.disk, chart.dataset.parts, chart.dataset.most, Math.round(Math.max(...heights)),
                 Math.floor(whole.height), chart.scrollWidth <= chart.clientWidth];",
        &[],
    )?;
    assert_eq!(
        depth,
        json!(["vda", "120", "1", 55, 56, true]),
        "disk, parts, most, its height, all of it, no overflow"
    );
    shown.quiet()
}

fn page_without_room_shows_whole_run_and_opens_any_operation() -> Result<()> {
    const ALL: u64 = 2_000;
    let shown = show_many(ALL, 600, None, "")?;
    let badges = shown.browser.text("#badges")?;
    assert!(badges.contains("spans in part"), "{badges}");
    // All are listed, the slowest first, and that one is whole.
    assert!(shown.browser.text("#list-page")?.starts_with("2,000 operations"));
    shown.browser.run(
        "const o = document.querySelector('#list-order'); o.value = 'slowest'; o.dispatchEvent(new Event('change'));",
        &[],
    )?;
    let slowest = shown.browser.run("return document.querySelector('#list-rows button').dataset.operation;", &[])?;
    assert_eq!(slowest, json!(many_operations::slowest(ALL).to_string()));
    shown.browser.click("#list-rows button")?;
    assert_eq!(shown.listed("layer")?, ["Syscall", "Driver"]);
    // One that has no room says how to see it.
    let quick = many_operations::quickest(ALL);
    shown.browser.run(&format!("location.hash = '#op={quick}';"), &[])?;
    let panel = shown.browser.text("#panel [data-whole=false]")?;
    assert!(panel.contains("fathom report many --from ") && panel.contains(" --to "), "{panel}");
    // The run is drawn to its end, also where no span is held: by how busy the rows were.
    shown.browser.run("location.hash = ''; document.getElementById('fit').click();", &[])?;
    rows_of(&shown, "Driver")?;
    let seen = |layer: &str| -> Result<f64> {
        let row = rows_of(&shown, layer)?.remove(0);
        let share = shown.browser.run(
            "const c = document.querySelector('#timeline-canvas'); const s = c.width / c.clientWidth; const g = Number(c.dataset.gutter) + 2; \
             const d = c.getContext('2d').getImageData(Math.round(g * s), Math.round(arguments[0] * s), c.width - Math.round((g + 4) * s), 1).data; \
             const empty = c.getContext('2d').getImageData(Math.round((g - 4) * s), Math.round(arguments[0] * s), 1, 1).data; \
             let n = 0; for (let i = 0; i < d.length; i += 4) if (Math.abs(d[i] - empty[0]) + Math.abs(d[i + 2] - empty[2]) > 12) n += 1; return n / (d.length / 4);",
            &[json!(row.0 + row.1 / 2.0)],
        )?;
        share.as_f64().ok_or_else(|| "a share".into())
    };
    assert!(seen("Driver")? > 0.9, "{} of the driver's row is drawn", seen("Driver")?);
    // Asked for, its time is held.
    let window = many_operations::window(quick);
    let shown = show_many(ALL, 600, Some(window), &format!("#op={quick}"))?;
    assert_eq!(shown.listed("layer")?, ["Syscall", "Driver"]);
    shown.quiet()
}

fn url_restores_selection_and_view() -> Result<()> {
    let shown = show_inserts("#op=105&from=14000000&to=19000000")?;
    assert_eq!(
        [shown.data("operation")?, shown.data("from-ns")?, shown.data("to-ns")?],
        ["105", "14000000", "19000000"]
    );
    shown.quiet()
}

fn emulated_times_are_marked() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERTS);
    summary["environment"]["virtual.accelerator"] = json!({ "value": "tcg", "source": "boot command line" });
    let shown = show(&PageData { title: "guest", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    assert!(shown.browser.text("#badges")?.contains("emulated times: order, not speed"));
    shown.quiet()?;
    assert!(!show_inserts("")?.browser.text("#badges")?.contains("emulated"));
    Ok(())
}

fn page_without_figures_says_so() -> Result<()> {
    let nothing = PageData {
        title: "nothing",
        summary: Value::Null,
        timeline: Value::Null,
        scatter: Value::Null,
        counts: Value::Null,
        explanation: Value::Null,
    };
    let shown = show(&nothing, "")?;
    assert!(shown.browser.text("#findings")?.contains("No findings were computed"));
    assert!(shown.browser.text("#statements")?.contains("No operation was recorded."));
    assert!(shown.browser.text("#panel")?.contains("Nothing selected"));
    assert_eq!(shown.browser.text("#badges")?, "loss unknown", "what was not counted is not said to be none");
    shown.quiet()
}

fn main() {
    run(&[
        (
            "page_opens_on_typical_operation_without_console_output",
            page_opens_on_typical_operation_without_console_output,
        ),
        ("operation_clicked_in_list_shows_its_chain", operation_clicked_in_list_shows_its_chain),
        ("chain_without_mark_has_confidence_of_its_links", chain_without_mark_has_confidence_of_its_links),
        ("clicked_span_is_selected_and_links_to_its_operation", clicked_span_is_selected_and_links_to_its_operation),
        ("window_ranges_from_ten_microseconds_to_whole_run", window_ranges_from_ten_microseconds_to_whole_run),
        ("pointer_moves_and_scales_window", pointer_moves_and_scales_window),
        ("text_of_program_is_escaped", text_of_program_is_escaped),
        ("shared_command_names_every_cause_with_share", shared_command_names_every_cause_with_share),
        ("files_of_one_name_are_one_row", files_of_one_name_are_one_row),
        ("losses_are_shown", losses_are_shown),
        ("statement_without_device_commands_is_explained", statement_without_device_commands_is_explained),
        (
            "statement_whose_commands_are_left_out_is_not_said_to_have_none",
            statement_whose_commands_are_left_out_is_not_said_to_have_none,
        ),
        ("axis_labels_are_not_cut_off", axis_labels_are_not_cut_off),
        ("finding_leads_to_spans_that_show_it", finding_leads_to_spans_that_show_it),
        ("emulated_times_are_marked", emulated_times_are_marked),
        ("page_without_finding_says_so", page_without_finding_says_so),
        ("several_recordings_are_selectable_and_comparable", several_recordings_are_selectable_and_comparable),
        ("narrow_window_needs_no_horizontal_scrolling", narrow_window_needs_no_horizontal_scrolling),
        ("burst_makes_lanes_flat_only_where_it_is", burst_makes_lanes_flat_only_where_it_is),
        ("names_stand_beside_their_rows", names_stand_beside_their_rows),
        ("packed_columns_are_what_was_recorded", packed_columns_are_what_was_recorded),
        ("search_finds_statements_files_and_spans", search_finds_statements_files_and_spans),
        ("latencies_and_device_times_are_shown", latencies_and_device_times_are_shown),
        (
            "page_without_room_shows_whole_run_and_opens_any_operation",
            page_without_room_shows_whole_run_and_opens_any_operation,
        ),
        ("url_restores_selection_and_view", url_restores_selection_and_view),
        ("page_without_figures_says_so", page_without_figures_says_so),
    ]);
}
