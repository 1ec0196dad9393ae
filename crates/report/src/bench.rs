//! The page of a benchmark: the same kind of document as a recording's, with its own sections and script.

use crate::{data_block, escape_html, fill_template, hash, script};
use scores::page::Page;
use serde_json::Value;

const PAGE_TEMPLATE: &str = concat!(include_str!("../../../web/head.html"), include_str!("../../../web/bench.html"));
const PAGE_STYLE: &str = concat!(include_str!("../../../web/style.css"), include_str!("../../../web/bench.css"));

/// Builds the page of a benchmark: one HTML document in UTF-8 without external references.
pub fn bench_page(title: &str, page: &Page) -> serde_json::Result<String> {
    Ok(bench_page_of(title, &serde_json::to_value(page)?))
}

/// The same for data merely shaped like a [`Page`]: the browser's tests draw numbers that are in no archive.
pub fn bench_page_of(title: &str, data: &Value) -> String {
    let script = script::join_modules(script::BENCH_MODULES);
    let policy = format!(
        "default-src 'none'; script-src {}; style-src {}; base-uri 'none'; form-action 'none'",
        hash::csp_source(&script),
        hash::csp_source(PAGE_STYLE)
    );
    let (title, data) = (escape_html(title), data_block(data));
    fill_template(
        PAGE_TEMPLATE,
        &[("policy", &policy), ("title", &title), ("style", PAGE_STYLE), ("data", &data), ("script", &script)],
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_is_self_contained_and_data_is_escaped() {
        let page = bench_page_of("</title><img>", &serde_json::json!({"shown": {"archive": "</script><!--"}}));
        for reference in [" src=", "url(", "@import", "fetch(", "<link", "import(", "<img", "{{"] {
            assert!(!page.contains(reference), "{reference}");
        }
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("://").count(), page.matches("http://www.w3.org/2000/svg").count());
    }
}
