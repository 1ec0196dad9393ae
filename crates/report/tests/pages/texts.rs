//! Texts of the page: statements, files, losses, and notes where something is missing.

use super::*;

pub fn text_of_program_is_escaped() -> Result<()> {
    let shown = show_inserts("")?;
    let seen = shown.browser.run(
        "return [document.images.length, document.querySelectorAll('script').length, document.body.textContent.includes(arguments[0]), \
         /[\\u0000-\\u0008\\u000b-\\u001f\\u202e]/.test(document.querySelector('main').textContent)];",
        &[json!("SELECT '</script><img src=x onerror=alert(1)>\u{241b}[31m' AS \"<b>\\u202e\" FROM t")],
    )?;
    assert_eq!(
        seen,
        json!([0, 3, true, false]),
        "{HOSTILE_STATEMENT:?} must be there as text, with its control characters made visible"
    );
    shown.quiet()
}

pub fn statement_without_device_commands_is_explained() -> Result<()> {
    let shown = show_inserts("")?;
    let panels =
        shown.browser.run("return [...document.querySelectorAll('.scatter')].map((f) => f.dataset.commands);", &[])?;
    assert_eq!(panels, json!([(INSERT_COUNT * 9).to_string(), "0"]));
    let words = shown.browser.text(".scatter:last-child .none")?;
    assert_eq!(words, "SELECT: no device command. All of its reads were served from the page cache.");
    shown.quiet()
}

pub fn statement_whose_commands_are_left_out_is_not_said_to_have_none() -> Result<()> {
    let [timeline, mut scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    scatter["left_out"]["spans"] = json!(7);
    let shown = show(&PageData { title: "truncated", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    let words = shown.browser.text(".scatter:last-child .none")?;
    assert_eq!(words, "SELECT: no device command. None of those on this page; some were omitted.");
    shown.quiet()
}

pub fn files_of_one_name_are_one_row() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERT_COUNT);
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

pub fn losses_are_shown() -> Result<()> {
    let [mut timeline, scatter, counts, mut summary] = Synthetic::figures(INSERT_COUNT);
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
    // For absent file systems nothing is missing: they are in the table, without a warning.
    for how in ["f2fs is not loaded", "no btrfs was mounted"] {
        assert!(shown.browser.text("#coverage")?.contains(how), "{how}");
    }
    shown.quiet()
}

/// In the statement's table and below the finding about the wait: the functions' names, and the reason why further callers are unknown.
pub fn slow_wait_names_functions() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERT_COUNT);
    let wait = |ns: u64, program: &[&str], ended: Option<&str>| {
        json!({
            "longest_ns": ns, "ns": 2 * ns, "times": 2, "call": "fdatasync", "program": program, "program_ended": ended,
            "kernel": ["jbd2_log_wait_commit", "ext4_sync_file"],
        })
    };
    let waits = [
        wait(42_000_000, &["app_commit", "<b>\u{1b}[31mred"], None),
        wait(7_000_000, &["flush_log"], Some("longer chains are cut")),
        wait(5_000_000, &[], Some("a 32-bit program")),
    ];
    summary["operations"][0]["slow_waits"] = json!(waits);
    let finding = json!({ "code": "L01", "title": "lock wait", "evidence": [], "slow_waits": waits });
    let explanation = json!({ "version": 1, "findings": [finding], "executions": 9, "latency_ns": 300_000_000_u64 });
    let shown =
        show(&PageData { title: "asleep", summary, timeline, scatter, counts, explanation, parts: Vec::new() }, "")?;
    let of_finding =
        shown.browser.run("return [...document.querySelectorAll('#findings li')].map((li) => li.textContent);", &[])?;
    let kernel = "; kernel: jbd2_log_wait_commit ← ext4_sync_file";
    assert_eq!(
        of_finding,
        json!([
            format!("42 ms in fdatasync: app_commit ← <b>\u{241b}[31mred{kernel}"),
            format!("7 ms in fdatasync: flush_log ← ?{kernel}"),
            format!("5 ms in fdatasync: program unknown (a 32-bit program){kernel}"),
        ])
    );
    let chains = "return [...document.querySelectorAll('.slow-waits details')].map((d) => [d.open, d.firstChild.textContent, \
                  ...[...d.querySelectorAll('dd')].map((dd) => dd.textContent)]);";
    let of_statement = shown.browser.run(chains, &[])?;
    let kernel = "jbd2_log_wait_commit ← ext4_sync_file";
    assert_eq!(
        of_statement,
        json!([
            [true, "42 ms in fdatasync, the longest of 2 like it", "app_commit ← <b>\u{241b}[31mred", kernel],
            [false, "7 ms in fdatasync, the longest of 2 like it", "flush_log ← ?", "longer chains are cut", kernel],
            [false, "5 ms in fdatasync, the longest of 2 like it", "unknown (a 32-bit program)", kernel],
        ])
    );
    let open = shown.browser.run(
        "return [...document.querySelectorAll('.statement-part summary')].filter((s) => s.parentNode.open !== \
           !getComputedStyle(s, '::before').content.includes('▸') && getComputedStyle(s, '::before').content !== 'none') \
         .map((s) => s.textContent);",
        &[],
    )?;
    assert_eq!(open, json!([]), "parts whose mark says the opposite");
    shown.quiet()
}

pub fn processes_outside_operations_are_listed_in_part() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERT_COUNT);
    let other =
        |n: u64| json!({ "tgid": 9000 + n, "name": "cc", "origin": "other process", "commands": 2000 - n, "bytes": 0 });
    summary["device_commands"]["processes"] = (0..1234).map(other).collect();
    let shown = show(&PageData { title: "a build", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    let account = shown.browser.text("#account")?;
    let listed = account.matches("cc 9").count();
    assert!((5..=50).contains(&listed), "{listed}");
    assert!(account.contains(&format!("and 1,{} more", 234 - listed)), "{account}");
    shown.quiet()
}

pub fn page_without_finding_says_so() -> Result<()> {
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let leaf = |what: &str, ns: u64| {
        json!({ "what": what, "ns": ns, "share": ns as f64 / 1000.0, "listed": true, "interval": [0.5, 0.7], "executions": 3, "statement": "SELECT 1",
                "statement_ns": ns, "longest_span": null, "slow_waits": [] })
    };
    let account = json!({ "whole_ns": 1000, "executions": 4, "unaccounted_ns": 10,
                          "leaves": [leaf("waits for a futex", 970), leaf("runs in the program", 20)] });
    let explanation = json!({ "version": 1, "findings": [], "latency_ns": 1000, "account": account });
    let shown =
        show(&PageData { title: "healthy", summary, timeline, scatter, counts, explanation, parts: Vec::new() }, "")?;
    // What takes the time is said whether or not a finding names it.
    let findings = shown.browser.text("#findings")?;
    assert!(findings.contains("No finding: no cause that is known by name"), "{findings}");
    assert!(findings.contains("97 % waits for a futex (50 % to 70 %)") && findings.contains("in 3 of 4"), "{findings}");
    assert!(findings.contains("1.0 % not accounted for"), "{findings}");
    let [timeline, scatter, counts, summary] = Synthetic::figures(INSERT_COUNT);
    let explanation = json!({ "version": 1, "findings": [], "executions": 0, "latency_ns": 0 });
    let shown =
        show(&PageData { title: "empty", summary, timeline, scatter, counts, explanation, parts: Vec::new() }, "")?;
    assert!(shown.browser.text("#findings")?.contains("No operation ended"));
    shown.quiet()
}

/// Waits until the other recording's timeline was drawn below.
fn drawn_below(shown: &ShownPage) -> Result<bool> {
    for _ in 0..1000 {
        let drawn = shown.browser.run(
            "const f = document.querySelector('#timeline'); const b = document.querySelector('#beside'); \
             const [from, to] = [f.dataset.fromNs, f.dataset.toNs].map((ns) => Number(ns) + Number(b.dataset.shiftNs)); \
             const at = (document.querySelector('#beside-canvas').dataset.drawn ?? '').split(' ').map(Number); \
             return at.length === 2 && Math.abs(at[0] - from) <= 1 && Math.abs(at[1] - to) <= 1;",
            &[],
        )?;
        if drawn == json!(true) {
            return Ok(true);
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    Ok(false)
}

pub fn other_recording_is_drawn_below_from_same_execution() -> Result<()> {
    let part = |title, inserts| {
        let [timeline, scatter, counts, summary] = Synthetic::figures(inserts);
        PageData { title, summary, timeline, scatter, counts, ..PageData::default() }
    };
    let one = ShownPage::page(&pages(&[part("alone", 20)], &Value::Null), "")?;
    assert_eq!(one.browser.run("return document.querySelector('#beside').hidden;", &[])?, json!(true));
    let shown = ShownPage::page(&pages(&[part("first", INSERT_COUNT), part("second <i>", 20)], &Value::Null), "")?;
    assert!(drawn_below(&shown)?, "the second recording stands below the first");
    // The execution that exists only in the first, and one that exists in both.
    for (nth, both) in [(INSERT_COUNT - 1, false), (7, true)] {
        let id = shown.browser.run(
            "const t = JSON.parse(document.querySelector('script.recording').textContent).timeline; \
             const shape = t.shapes.findIndex((s) => s.text.startsWith('INSERT')); \
             const { operations } = t; \
             return operations.id[operations.shape.findIndex((s, i) => s === shape && operations.nth[i] === arguments[0])];",
            &[json!(nth)],
        )?;
        shown.browser.run(&format!("location.hash = '#r=0&op={id}';"), &[])?;
        let id = id.to_string();
        let chosen = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(20));
            shown.data("operation").is_ok_and(|operation| operation == id)
        });
        assert!(chosen, "operation {id} was not chosen");
        assert!(drawn_below(&shown)?);
        let said = shown.browser.text("#beside-said")?;
        assert!(said.starts_with("second <i>"), "{said}");
        assert_eq!(said.contains("begins at the same place"), both, "{said}");
        assert_eq!(shown.browser.attribute("#beside", "data-operation")?.is_empty(), !both);
    }
    shown.quiet()
}

pub fn difference_stands_on_page_of_compared_recordings() -> Result<()> {
    let part = |title| {
        let [timeline, scatter, counts, summary] = Synthetic::figures(20);
        PageData { title, summary, timeline, scatter, counts, ..PageData::default() }
    };
    let phase = json!({ "phase": "fdatasync <b>WAL", "layer": null, "reason": null, "a_ns": 2e6, "b_ns": 5e6, "delta_ns": 3e6,
        "interval": [2e6, 4e6], "share": 1.0, "different_work": true });
    let tiny = json!({ "phase": "write DB", "layer": null, "reason": null, "a_ns": 2000, "b_ns": 1000, "delta_ns": -1000,
        "interval": null, "share": -0.000_3, "different_work": false });
    let edge =
        json!({ "statement": "INSERT", "edge": "second fdatasync WAL", "executions": 20, "of": 20, "sure": true });
    let difference = json!({ "verdict": "slower", "why": "It did more.", "latency_ns": { "ratio": 2.5, "ratio_interval": [2.0, 3.0] },
        "phases": [phase, tiny], "layers": [], "statements": [], "edges": { "only_a": [], "only_b": [edge] } });
    let shown = ShownPage::page(&pages_with(&[part("a"), part("b")], &difference), "")?;
    let text = shown.browser.text("#difference")?;
    for said in [
        "slower: B / A = 2.50 (2.00 to 3.00) · It did more.",
        "fdatasync <b>WAL",
        "+3 ms",
        "100 %",
        "> −0.1 %",
        "second fdatasync WAL",
    ] {
        assert!(text.contains(said), "{said} is not in {text}");
    }
    assert!(!text.contains("Only in A"), "{text}");
    let without = ShownPage::page(&pages(&[part("a"), part("b")], &Value::Null), "")?;
    assert_eq!(without.browser.run("return document.querySelector('#difference').hidden;", &[])?, json!(true));
    shown.quiet()
}

pub fn several_recordings_are_selectable_and_comparable() -> Result<()> {
    let part = |title, inserts| {
        let [timeline, scatter, counts, summary] = Synthetic::figures(inserts);
        PageData { title, summary, timeline, scatter, counts, ..PageData::default() }
    };
    let flow = |name: &str, at: f64| json!({ "name": name, "points": [[at, 5.0], [at + 1.0, 9.0]] });
    let chart = json!({
        "title": "latency", "unit": "us", "bands": [], "end": 3.0, "flows": [flow("first operations", 0.0), flow("second operations", 2.0)],
    });
    let together = json!({ "charts": [chart], "note": "second's clock was <i>1 s</i> ahead." });
    let shown = ShownPage::page(&pages(&[part("first", INSERT_COUNT), part("second <i>", 20)], &together), "")?;
    let drawn = shown.browser.run(
        "const c = document.querySelector('#together canvas'); return [c.dataset.flows, c.width > 0, \
         c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((b) => b > 0)];",
        &[],
    )?;
    assert_eq!(drawn, json!(["2", true, true]));
    assert_eq!(shown.browser.text("#together-note")?, "second's clock was <i>1 s</i> ahead.");
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
    assert_eq!(panels, json!([["0", (INSERT_COUNT * 9).to_string(), true], ["1", "180", true]]));

    shown.browser.click("#recordings [data-recording='1']")?;
    let opened = |title: &str| {
        (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            shown.browser.text("#title").is_ok_and(|text| text == title)
                && !shown.data("from-ns").unwrap_or_default().is_empty()
        })
    };
    assert!(opened("second <i>"), "the second recording was not opened");
    assert_eq!(shown.browser.attribute("#recordings [data-recording='1']", "aria-pressed")?, "true");
    // A command of the first recording, by its address: that recording is opened.
    let command = shown.browser.run(
        "return JSON.parse(document.querySelector('script.commands').textContent).scatter.points.command[3];",
        &[],
    )?;
    // A view that has just changed writes its address a little later. That may happen between the new address and its event, and
    // must not restore the address that was left.
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

pub fn emulated_times_are_marked() -> Result<()> {
    let [timeline, scatter, counts, mut summary] = Synthetic::figures(INSERT_COUNT);
    summary["environment"]["virtual.accelerator"] = json!({ "value": "tcg", "source": "boot command line" });
    let shown = show(&PageData { title: "guest", summary, timeline, scatter, counts, ..PageData::default() }, "")?;
    assert!(shown.browser.text("#badges")?.contains("emulated times: order, not speed"));
    shown.quiet()?;
    assert!(!show_inserts("")?.browser.text("#badges")?.contains("emulated"));
    Ok(())
}

pub fn page_without_figures_says_so() -> Result<()> {
    let nothing = PageData {
        parts: Vec::new(),
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
