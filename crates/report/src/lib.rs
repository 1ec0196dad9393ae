//! Archives as one HTML page: a file to open, send or keep that needs no network and no server.
//!
//! Rust computes every figure and the page only draws it (`web/`). Text from a traced program (SQL, paths, names) enters the page
//! at two places: the data blocks, which are JSON that a browser never runs, with every `<` written as `\u003c` so that it cannot
//! end the block; and the titles, which are escaped. Each recording has two blocks, since the page parses the large one only for
//! the selected recording, and the small one (device commands) for all, to show them side by side; one with too many spans for
//! one table has a block for each part of its time, which is parsed when it is viewed. The script puts text into the page as text
//! only. Should any of that ever fail, the page's Content-Security-Policy still runs nothing but the one script whose hash it
//! names.

pub mod archives;
mod bench;
mod hash;
mod pack;
mod script;

pub use bench::{bench_page, bench_page_of};

use analysis::contract::Summary;
use analysis::counts::Counts;
use analysis::figures::{PartRowPositions, PartTables, Scatter, Timeline};
use pack::PackedColumns;
use serde::Serialize;
use serde_json::{Value, json};
use std::io;
use std::mem::take;
use verdicts::explain::contract::Explanation;

/// The page's contents, as JSON: made [from an archive's figures](PageData::of), or by hand in the browser's tests. A part that
/// is `Value::Null` is shown as missing, not left blank.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PageData<'a> {
    /// Short description of the recording: the page's heading.
    pub title: &'a str,
    /// The contract of `fathom show --json`.
    pub summary: Value,
    /// The layered timeline (`analysis::figures::timeline`).
    pub timeline: Value,
    /// The tables of the timeline's parts, if it has any: each is read when it is viewed.
    pub parts: Vec<Value>,
    /// Device commands by time and address (`analysis::figures::scatter`).
    pub scatter: Value,
    /// Counts per execution and layer (`analysis::figures::counts`).
    pub counts: Value,
    /// The causes of lost time: the contract of `fathom explain --json`.
    pub explanation: Value,
}

impl<'a> PageData<'a> {
    /// Builds the page's contents for a recording. The figures' columns are packed.
    pub fn from_figures(
        title: &'a str,
        summary: &Summary,
        timeline: Timeline,
        scatter: Scatter,
        counts: &Counts,
        explanation: &Explanation,
    ) -> serde_json::Result<Self> {
        let mut timeline = timeline;
        let tables = timeline.parts.iter_mut().map(|part| packed_part(take(&mut part.held), take(&mut part.rows)));
        let parts = tables.collect();
        Self::with_parts(title, summary, timeline, parts, scatter, counts, explanation)
    }

    /// The same with the tables of the timeline's parts, which were packed one by one.
    fn with_parts(
        title: &'a str,
        summary: &Summary,
        mut timeline: Timeline,
        parts: Vec<Value>,
        scatter: Scatter,
        counts: &Counts,
        explanation: &Explanation,
    ) -> serde_json::Result<Self> {
        let known = serde_json::to_value(take(&mut timeline.parts))?;
        let mut packed = packed_timeline(timeline)?;
        packed["parts"] = known;
        Ok(Self {
            title,
            summary: serde_json::to_value(summary)?,
            timeline: packed,
            parts,
            scatter: packed_scatter(scatter)?,
            counts: serde_json::to_value(counts)?,
            explanation: serde_json::to_value(explanation)?,
        })
    }
}

fn packed_timeline(mut timeline: Timeline) -> serde_json::Result<Value> {
    let mut packed = PackedColumns::default();
    let tables = [
        ("spans", packed.table(take(&mut timeline.spans))),
        ("links", packed.table(take(&mut timeline.links))),
        ("operations", packed.table(take(&mut timeline.operations))),
        ("slices", packed.table(take(&mut timeline.slices))),
        ("causes", packed.table(take(&mut timeline.causes))),
    ];
    let cells: Vec<Value> = timeline.levels.iter_mut().map(|level| packed.table(take(&mut level.cells))).collect();
    let mut figure = with_tables(serde_json::to_value(timeline)?, tables, &packed)?;
    for (at, cells) in cells.into_iter().enumerate() {
        figure["levels"][at]["cells"] = cells;
    }
    Ok(figure)
}

/// Returns the tables of a part, and the positions of their rows in the recording.
fn packed_part(held: PartTables, rows: PartRowPositions) -> Value {
    let mut packed = PackedColumns::default();
    let mut tables = json!({
        "spans": packed.table(held.spans),
        "links": packed.table(held.links),
        "slices": packed.table(held.slices),
        "causes": packed.table(held.causes),
        "rows": {
            "spans": packed.table(rows.spans),
            "links": packed.table(rows.links),
            "causes": packed.table(rows.causes),
        },
    });
    tables["packed"] = packed.text().into();
    tables
}

fn packed_scatter(mut scatter: Scatter) -> serde_json::Result<Value> {
    let mut packed = PackedColumns::default();
    let tables = [("points", packed.table(take(&mut scatter.points)))];
    with_tables(serde_json::to_value(scatter)?, tables, &packed)
}

/// Adds these tables and the packed columns to a figure.
fn with_tables<const N: usize>(
    mut figure: Value,
    tables: [(&'static str, Value); N],
    packed: &PackedColumns,
) -> serde_json::Result<Value> {
    if let Some(figure) = figure.as_object_mut() {
        figure.extend(tables.map(|(name, places)| (name.into(), places)));
        figure.insert("packed".into(), packed.text().into());
    }
    Ok(figure)
}

const PAGE_TEMPLATE: &str = concat!(include_str!("../../../web/head.html"), include_str!("../../../web/index.html"));
const PAGE_STYLE: &str = include_str!("../../../web/style.css");

/// Builds the page of one recording: one HTML document in UTF-8 without external references.
pub fn page(data: &PageData) -> String {
    pages(std::slice::from_ref(data), &Value::Null)
}

/// Builds the page of several recordings: one is shown completely, another's timeline below its own, and the device commands of
/// all side by side; `together` contains what is on one common time axis.
pub fn pages(recordings: &[PageData], together: &Value) -> String {
    page_with(recordings, &common_block("together", together))
}

/// Builds the page of the two sides of a comparison: `difference` is the contract of `fathom diff --json`.
pub fn pages_with(recordings: &[PageData], difference: &Value) -> String {
    let titles: Vec<&str> = recordings.iter().map(|r| r.title).collect();
    page_with(recordings, &common_block("difference", &json!({ "titles": titles, "diff": difference })))
}

/// Returns the block of data that belongs to no single recording, if there is any.
fn common_block(class: &str, value: &Value) -> String {
    if value.is_null() {
        return String::new();
    }
    format!("<script type=\"application/json\" class=\"{class}\">{}</script>\n", data_block(value))
}

fn page_with(recordings: &[PageData], common: &str) -> String {
    let script = script::join_modules(script::SCRIPT_MODULES);
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash::csp_source(&script),
        hash::csp_source(PAGE_STYLE)
    );
    let title = escape_html(&recordings.iter().map(|r| r.title).collect::<Vec<_>>().join(", "));
    let fixed = [("policy", policy.as_str()), ("title", &title), ("style", PAGE_STYLE), ("script", &script)];
    let (before, after) = PAGE_TEMPLATE.split_once("{{data}}").unwrap_or((PAGE_TEMPLATE, ""));
    // A page may be as large as its archives: its data is written where it belongs, without copies.
    let mut page = fill_template(before, &fixed);
    recordings.iter().enumerate().for_each(|(number, data)| push_blocks(&mut page, number, data));
    page.push_str(common);
    page + &fill_template(after, &fixed)
}

/// A recording's large block.
#[derive(Serialize)]
struct Figures<'a> {
    counts: &'a Value,
    explanation: &'a Value,
    summary: &'a Value,
    timeline: &'a Value,
    title: &'a str,
}

/// Its small one.
#[derive(Serialize)]
struct Commands<'a> {
    operations: Option<&'a Value>,
    scatter: &'a Value,
}

/// Adds the two blocks of a recording, and one for each of its parts.
fn push_blocks(page: &mut String, number: usize, data: &PageData) {
    let PageData { title, summary, timeline, counts, explanation, .. } = data;
    *page += &format!("<script type=\"application/json\" class=\"recording\" data-title=\"{}\">", escape_html(title));
    add_data(page, &Figures { counts, explanation, summary, timeline, title });
    page.push_str("</script>\n<script type=\"application/json\" class=\"commands\">");
    add_data(page, &Commands { operations: summary.get("operations"), scatter: &data.scatter });
    page.push_str("</script>\n");
    for part in &data.parts {
        *page += &format!("<script type=\"application/json\" class=\"part\" data-of=\"{number}\">");
        add_data(page, part);
        page.push_str("</script>\n");
    }
}

/// Replaces each `{{name}}` of the template, in one pass: inserted text is not scanned again, so that data with
/// `{{script}}` in it stays data.
fn fill_template(template: &str, parts: &[(&str, &str)]) -> String {
    let mut page = String::with_capacity(template.len() + parts.iter().map(|(_, text)| text.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        page.push_str(before);
        let part = after
            .split_once("}}")
            .and_then(|(name, after)| parts.iter().find(|(known, _)| *known == name).map(|(_, text)| (*text, after)));
        match part {
            Some((text, after)) => {
                page.push_str(text);
                rest = after;
            }
            None => {
                page.push_str("{{");
                rest = after;
            }
        }
    }
    page.push_str(rest);
    page
}

/// Escapes text for HTML text or a quoted attribute.
fn escape_html(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c if c.is_control() => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Formats JSON for a `<script type="application/json">`. HTML ends such an element at `</script` and treats `<!--`
/// specially, whatever quotes surround them; inside JSON `<` only occurs in strings, where it may be written as an
/// escape.
fn data_block(value: &Value) -> String {
    let mut block = String::new();
    add_data(&mut block, value);
    block
}

/// Adds a value in this form.
fn add_data(page: &mut String, value: &impl Serialize) {
    serde_json::to_writer(DataBlock(page), value).expect("values have texts as keys, and a page takes all text");
}

/// Takes JSON, and adds it to a page as a data block.
struct DataBlock<'a>(&'a mut String);

impl io::Write for DataBlock<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut rest = std::str::from_utf8(bytes).map_err(io::Error::other)?;
        while let Some(at) = rest.find(['<', '\u{2028}', '\u{2029}']) {
            self.0.push_str(&rest[..at]);
            let mut after = rest[at..].chars();
            self.0.push_str(match after.next() {
                Some('<') => "\\u003c",
                Some('\u{2028}') => "\\u2028",
                _ => "\\u2029",
            });
            rest = after.as_str();
        }
        self.0.push_str(rest);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page_of(title: &str, statement: &str) -> String {
        page(&PageData { title, summary: json!({ "operations": [{ "statement": statement }] }), ..PageData::default() })
    }

    /// Returns the text between two markers of the page.
    fn between<'a>(page: &'a str, before: &str, after: &str) -> &'a str {
        page.split_once(before).and_then(|(_, rest)| rest.split_once(after)).expect("both marks are in the page").0
    }

    #[test]
    fn statement_cannot_end_its_data_block_and_round_trips() {
        let statement = "SELECT '</script><script>alert(1)</script><!--', '\u{0}\u{1b}[31m{{script}}\u{2028}'";
        let page = page_of("t", statement);
        let block = between(&page, "class=\"recording\" data-title=\"t\">", "</script>");
        assert!(!block.contains('<'));
        let data: Value = serde_json::from_str(block).expect("the data block is JSON");
        assert_eq!(data["summary"]["operations"][0]["statement"], statement);
        assert_eq!(page.matches("<script").count(), 3, "two data blocks and the script, nothing else");
    }

    #[test]
    fn each_recording_has_its_own_data_block() {
        let one = |title| PageData { title, summary: json!({ "operations": [] }), ..PageData::default() };
        let page = pages(&[one("a"), one("b\"><script>")], &Value::Null);
        assert_eq!(page.matches("<script").count(), 5);
        assert!(page.contains("<title>a, b&quot;&gt;&lt;script&gt;</title>"));
    }

    #[test]
    fn title_is_escaped() {
        let page = page_of("<img src=x onerror=\"a()\">&\u{7}", "");
        assert!(page.contains("<title>&lt;img src=x onerror=&quot;a()&quot;&gt;&amp;\u{fffd}</title>"));
        assert!(!page.contains("<img"));
    }

    #[test]
    fn csp_allows_only_embedded_script_and_style() {
        let page = page_of("t", "");
        let policy = between(&page, "Content-Security-Policy\" content=\"", "\">");
        let script = between(&page, "<script type=\"module\">", "</script>");
        let style = between(&page, "<style>", "</style>");
        for text in [script, style] {
            assert!(policy.contains(&hash::csp_source(text)), "{policy}");
        }
        assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe") && !policy.contains("http"));
    }

    #[test]
    fn page_has_no_external_references() {
        let page = page_of("t", "");
        for reference in [" src=", "url(", "@import", "fetch(", "XMLHttpRequest", "<link", "<iframe", "import("] {
            assert!(!page.contains(reference), "{reference}");
        }
        // The only URL is the SVG namespace, which no browser fetches.
        assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    }

    #[test]
    fn no_placeholder_is_left() {
        let page = page_of("t", "");
        for name in ["policy", "title", "style", "data", "script"] {
            assert!(!page.contains(&format!("{{{{{name}}}}}")), "{name}");
        }
    }
}
