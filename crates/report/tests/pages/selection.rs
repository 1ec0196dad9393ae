//! What a click, a key or a URL selects, and what the panel shows of it.

use super::*;

pub fn page_opens_on_typical_operation_without_console_output() -> Result<()> {
    let shown = show_inserts("")?;
    assert!(!shown.data("operation")?.is_empty());
    assert_eq!(shown.number("width-ns")?, 12e6);
    assert!(shown.browser.text("#panel")?.contains(INSERT_STATEMENT));
    assert_eq!(shown.browser.text("#title")?, "60 INSERTs <b>&amp;</b> scans");
    shown.quiet()
}

pub fn operation_clicked_in_list_shows_its_chain() -> Result<()> {
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

    // Every slice of its time has a confidence, and every command has a file.
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

pub fn chain_without_mark_has_confidence_of_its_links() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::without_marks(INSERT_COUNT);
    let shown = show(
        &PageData { title: "no marks", summary, timeline: timeline.clone(), scatter, counts, ..PageData::default() },
        "#op=105",
    )?;
    assert!(!shown.listed("layer")?.contains(&"App".to_owned()), "no mark is in the chain");
    let sure: Vec<_> = shown.listed("layer")?.into_iter().zip(shown.listed("confidence")?).collect();
    // Every path leads through a call, and a call is linked to its statement structurally: no link has a higher confidence.
    assert!(sure.iter().all(|(_, sure)| ["structural", "interval"].contains(&sure.as_str())), "{sure:?}");
    let commands = |grade: &str| sure.iter().filter(|(layer, sure)| layer == "Driver" && sure == grade).count();
    assert_eq!([commands("structural"), commands("interval")], [6, 3], "the journal's three are by time");
    assert!(shown.browser.text("#panel")?.replace('\n', " ").contains("weakest link interval"));
    shown.quiet()?;

    // Without links in the page, what the trace attributes to the operation is linked by thread and time.
    let [_, scatter, counts, summary] = Synthetic::without_marks(INSERT_COUNT);
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

pub fn clicked_span_is_selected_and_links_to_its_operation() -> Result<()> {
    let shown = show_inserts("")?;
    let database: f64 = shown.browser.attribute(CANVAS_SELECTOR, "data-database-y")?.parse()?;
    let gutter: f64 = shown.browser.attribute(CANVAS_SELECTOR, "data-gutter")?.parse()?;
    shown.browser.keys(CANVAS_SELECTOR, ESCAPE_KEY)?;
    assert_eq!(shown.data("highlighted-count")?, "0");
    // In a window of 12 ms from a typical operation on, operations of more than 2 ms are close to each other.
    shown.browser.click_at(CANVAS_SELECTOR, gutter + 300.0, database)?;
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

pub fn shared_command_names_every_cause_with_share() -> Result<()> {
    let [mut timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let strings = timeline["strings"].as_array_mut().ok_or("strings")?;
    strings.extend([json!("other process"), json!("cron <i>")]);
    let last = strings.len() - 1;
    // The first command becomes one shared by two statements and another program.
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

pub fn finding_leads_to_spans_that_show_it() -> Result<()> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let finding = |code: &str, evidence: &[u64]| {
        json!({
            "code": code, "title": "two or more flushes a commit", "statement": HOSTILE_STATEMENT, "claim": "3 flushes", "executions": 59, "of": 60,
            "time_ns": 120_000_000_u64, "share": 0.41, "interval": [0.38, 0.44], "share_of_all": 0.4, "saving_ns": null,
            "remedy": "WAL", "evidence": evidence,
        })
    };
    let findings =
        [finding("F01", &[5010, 5003, 9_999_999]), finding("J02", &[]), finding("S01", &[]), finding("R01", &[])];
    let explanation = json!({ "version": 1, "findings": findings, "latency_ns": 300_000_000_u64 });
    let shown =
        show(&PageData { title: "found", summary, timeline, scatter, counts, explanation, parts: Vec::new() }, "")?;
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

pub fn url_restores_selection_and_view() -> Result<()> {
    let shown = show_inserts("#op=105&from=14000000&to=19000000")?;
    assert_eq!(
        [shown.data("operation")?, shown.data("from-ns")?, shown.data("to-ns")?],
        ["105", "14000000", "19000000"]
    );
    shown.quiet()
}
