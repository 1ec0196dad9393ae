//! Pages of recordings with more operations than are drawn individually, and search in them.

use super::*;

/// Limits of spans: read at once, of a part, and of all parts.
const WHOLE_LIMITS: Limits = Limits { spans: usize::MAX, part: 0, all: 0, points: 200_000, lanes: 32, window: None };

/// Shows a recording with this many operations.
fn show_many(operations: u64, limits: Limits, hash: &str) -> Result<ShownPage> {
    show_rows(&many_operations::make_rows(operations), limits, hash)
}

fn show_rows(rows: &analysis::rows::Rows, limits: Limits, hash: &str) -> Result<ShownPage> {
    let summary = analysis::summary::summarise(rows);
    let counts = analysis::figures::counts(&summary);
    let (timeline, scatter) = (analysis::figures::timeline(rows, &limits), analysis::figures::scatter(rows, &limits));
    let shown = ShownPage::page(
        &page(&PageData::from_figures("many", &summary, timeline, scatter, &counts, &Explanation::default())?),
        hash,
    )?;
    for _ in 0..1000 {
        if shown.browser.run("return document.body.dataset.opened === 'true';", &[])? == json!(true) {
            return Ok(shown);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Err("the page was not opened".into())
}

/// Waits until an operation is selected: it may have to be loaded.
fn wait_for_operation(shown: &ShownPage, operation: u64) -> Result<()> {
    wait_for(shown, &format!("document.querySelector('#timeline').dataset.operation === '{operation}'"))
}

/// Returns what the page shows of a chain: the panel with its elements, and what is highlighted.
fn chain_of(shown: &ShownPage, operation: u64) -> Result<(String, Vec<u64>)> {
    shown.browser.run(&format!("location.hash = '#op={operation}';"), &[])?;
    wait_for_operation(shown, operation)?;
    let mut highlighted = shown.highlighted()?;
    highlighted.sort_unstable();
    Ok((shown.browser.text("#panel")?, highlighted))
}

/// Returns a checksum of what the timeline shows.
fn timeline_checksum(page: &ShownPage) -> Result<Value> {
    page.browser.run(
        "const c = document.querySelector('#timeline-canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data; \
         let sum = 0; for (let i = 0; i < d.length; i += 1) sum = (sum * 31 + d[i]) % 4294967291; return sum;",
        &[],
    )
}

pub fn commands_beyond_address_map_look_the_same() -> Result<()> {
    const OPERATION_COUNT: u64 = 50;
    let mut rows = many_operations::make_rows(OPERATION_COUNT);
    for (command, kind, flags) in
        [(OPERATION_COUNT - 1, "command", "read readahead"), (OPERATION_COUNT - 2, "flush", "flush preflush")]
    {
        let id = many_operations::command_id(command);
        for span in rows.spans.edit().iter_mut().filter(|span| span.id == id) {
            (span.kind, span.flags) = (kind.into(), flags.into());
        }
    }
    let mut seen = Vec::new();
    for points in [200_000, 10] {
        let shown = show_rows(&rows, Limits { points, ..WHOLE_LIMITS }, &format!("#op={}", OPERATION_COUNT - 1))?;
        let (from, to) =
            (many_operations::window_of(OPERATION_COUNT - 2).0, many_operations::window_of(OPERATION_COUNT - 1).1);
        shown.browser.run(&format!("location.hash = '#op={}&from={from}&to={to}';", OPERATION_COUNT - 1), &[])?;
        wait_for(&shown, &format!("document.querySelector('#timeline').dataset.fromNs === '{from}'"))?;
        rows_of(&shown, "Driver")?;
        seen.push(timeline_checksum(&shown)?);
        let left_out = shown.browser.text("#left-out")?;
        assert_eq!(left_out.contains("the first 10 of 50 device commands"), points == 10, "{left_out}");
        shown.quiet()?;
    }
    assert_eq!(seen[0], seen[1], "reads and flushes are marked as such");
    Ok(())
}

pub fn recording_in_parts_opens_as_in_one() -> Result<()> {
    const OPERATION_COUNT: u64 = 2_000;
    let whole = show_many(OPERATION_COUNT, WHOLE_LIMITS, "#op=3")?;
    let parts = show_many(OPERATION_COUNT, Limits { spans: 600, part: 250, all: usize::MAX, ..WHOLE_LIMITS }, "#op=3")?;
    assert_eq!(parts.browser.text("#left-out")?, "");
    assert!(!parts.browser.text("#badges")?.contains("in part"));
    // The first of a part, those around its border, the last of all, and back.
    for operation in [3, 82, 83, 84, 1000, OPERATION_COUNT - 1, 166, 0] {
        assert_eq!(chain_of(&parts, operation)?, chain_of(&whole, operation)?, "operation {operation}");
    }
    // A command, by its address; and from there its operation.
    let command = many_operations::command_id(1234);
    for page in [&whole, &parts] {
        page.browser.run(&format!("location.hash = '#span={command}';"), &[])?;
        wait_for(page, &format!("document.querySelector('#timeline').dataset.span === '{command}'"))?;
        assert_eq!(page.data("highlighted-count")?, "3");
    }
    // All spans of a window, whichever parts they belong to, are drawn as from a single table.
    for page in [&whole, &parts] {
        page.browser.run("location.hash = '#op=83&from=7800000&to=8900000';", &[])?;
        wait_for_operation(page, 83)?;
        wait_for(page, "document.querySelector('#timeline').dataset.fromNs === '7800000'")?;
        rows_of(page, "Driver")?;
    }
    let wanted = timeline_checksum(&whole)?;
    let same = (0..200).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(20));
        timeline_checksum(&parts).is_ok_and(|so| so == wanted)
    });
    assert!(same, "the parts draw something else");
    // Search goes through all parts.
    parts.browser.keys("#search", "pwrite64")?;
    wait_for(&parts, "document.querySelector('#found').textContent === '2,000 spans'")?;
    parts.browser.click("#found-before")?;
    let last = many_operations::call_id(OPERATION_COUNT - 1);
    wait_for(&parts, &format!("document.querySelector('#timeline').dataset.span === '{last}'"))?;
    whole.quiet()?;
    parts.quiet()
}

pub fn packed_columns_are_what_was_recorded() -> Result<()> {
    let shown = show_many(2_000, WHOLE_LIMITS, "#op=1017")?;
    assert_eq!(shown.data("operation")?, "1017");
    let listed: Vec<(String, String)> = shown.listed("layer")?.into_iter().zip(shown.listed("span")?).collect();
    let own = |layer: &str, id: u64| (layer.to_owned(), id.to_string());
    assert_eq!(
        listed,
        [own("Syscall", many_operations::call_id(1017)), own("Driver", many_operations::command_id(1017))]
    );
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

pub fn search_finds_statements_files_and_spans() -> Result<()> {
    let shown = show_inserts("")?;
    let operations =
        || -> Result<String> { Ok(shown.browser.text("#list-page")?.split(' ').next().unwrap_or_default().to_owned()) };
    assert_eq!(operations()?, (INSERT_COUNT + INSERT_COUNT / 10 + 1).to_string());
    let latencies = shown.browser.run(
        "return [...document.querySelectorAll('#list-rows tr')].map((row) => parseFloat(row.children[3].textContent));",
        &[],
    )?;
    let latencies: Vec<f64> = serde_json::from_value(latencies)?;
    assert!(latencies.is_sorted_by(|a, b| a >= b), "the slowest first: {latencies:?}");
    // Users of the journal's file: the INSERTs.
    shown.browser.keys("#search", "DB-JOURNAL")?;
    assert_eq!(operations()?, INSERT_COUNT.to_string());
    let all: u64 = shown.browser.text("#found")?.replace(',', "").replace(" spans", "").parse()?;
    assert_eq!(all % INSERT_COUNT, 0, "each has as many: {all}");
    shown.browser.keys("#search", "\u{e007}")?;
    assert!(shown.browser.text("#found")?.starts_with("1 of "));
    assert!(shown.browser.text("#panel")?.contains("test.db-journal"));
    let first = shown.data("span")?;
    shown.browser.click("#found-after")?;
    assert_ne!(shown.data("span")?, first);
    shown.browser.click("#found-before")?;
    assert_eq!(shown.data("span")?, first);
    // A statement's own text; no match; and all again.
    shown.browser.keys("#search", ESCAPE_KEY)?;
    shown.browser.keys("#search", "onerror")?;
    assert_eq!(operations()?, "1");
    shown.browser.keys("#search", "zzz")?;
    assert_eq!([operations()?, shown.browser.text("#found")?], ["0", "0 spans"]);
    shown.browser.keys("#search", ESCAPE_KEY)?;
    assert_eq!(operations()?, (INSERT_COUNT + INSERT_COUNT / 10 + 1).to_string());
    assert_eq!(shown.browser.text("#found")?, "");
    shown.quiet()
}

pub fn latencies_and_device_times_are_shown() -> Result<()> {
    let shown = show_many(500, WHOLE_LIMITS, "")?;
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
    // No bio was recorded: nothing is shown about the queue.
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

pub fn page_without_room_shows_whole_run_and_opens_any_operation() -> Result<()> {
    const OPERATION_COUNT: u64 = 2_000;
    let limits = Limits { spans: 600, part: 100, all: 600, ..WHOLE_LIMITS };
    let shown = show_many(OPERATION_COUNT, limits, "")?;
    let badges = shown.browser.text("#badges")?;
    assert!(badges.contains("spans in part"), "{badges}");
    // All are listed, the slowest first, and the slowest one is complete.
    assert!(shown.browser.text("#list-page")?.starts_with("2,000 operations"));
    shown.browser.run(
        "const o = document.querySelector('#list-order'); o.value = 'slowest'; o.dispatchEvent(new Event('change'));",
        &[],
    )?;
    let slowest = shown.browser.run("return document.querySelector('#list-rows button').dataset.operation;", &[])?;
    assert_eq!(slowest, json!(many_operations::slowest_operation(OPERATION_COUNT).to_string()));
    shown.browser.click("#list-rows button")?;
    wait_for_operation(&shown, many_operations::slowest_operation(OPERATION_COUNT))?;
    assert_eq!(shown.listed("layer")?, ["Syscall", "Driver"]);
    // For one that does not fit, the page explains how to see it.
    let quick = many_operations::fastest_operation(OPERATION_COUNT);
    shown.browser.run(&format!("location.hash = '#op={quick}';"), &[])?;
    let panel = shown.browser.text("#panel [data-whole=false]")?;
    assert!(panel.contains("fathom report many --from ") && panel.contains(" --to "), "{panel}");
    // The run is drawn to its end, even where no span is held: by how busy the rows were.
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
    // On request, its time is held.
    let window = many_operations::window_of(quick);
    let shown = show_many(OPERATION_COUNT, Limits { window: Some(window), ..limits }, &format!("#op={quick}"))?;
    assert_eq!(shown.listed("layer")?, ["Syscall", "Driver"]);
    shown.quiet()
}
