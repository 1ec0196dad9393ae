//! A trace within a web page, as Android's systrace and Chrome's tracing write it.
//!
//! systrace puts its viewer, some megabytes of script, before the trace, and the trace as it is into elements
//! `<script class="trace-data" …>`. Its versions before 2015 had one JavaScript string instead, a line of it for each of the trace's:
//! `var linuxPerfData = "\`, then lines that end in `\n\`.
//!
//! *Uncertainty*: data that the page holds compressed (base64, as newer versions do for other sources than ftrace) is not read.

/// Elements that hold a trace.
const TRACE_ELEMENT_BEGIN: &str = "<script class=\"trace-data\"";
const TRACE_ELEMENT_END: &str = "</script>";
/// What a line of the older form ends in.
const LINE_CONTINUATION: &str = "\\n\\";

/// Whether a text is a web page.
pub(super) fn is_page(text: &str) -> bool {
    let start = text.trim_start().get(..15).unwrap_or_default().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// The lines of a text that may be a trace's: of a page only those of its traces, if it marks them.
pub(super) fn lines(text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if !is_page(text) {
        return Box::new(text.lines());
    }
    let line = |line| str::strip_suffix(line, LINE_CONTINUATION).unwrap_or(line);
    if !text.contains(TRACE_ELEMENT_BEGIN) {
        return Box::new(text.lines().map(line));
    }
    let parts = text.split(TRACE_ELEMENT_BEGIN).skip(1).filter_map(|part| part.split_once('>'));
    Box::new(
        parts.flat_map(move |(_, inside)| inside.split(TRACE_ELEMENT_END).next().unwrap_or_default().lines().map(line)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_only_the_lines_of_its_traces() {
        let page = "<!DOCTYPE html>\n<html>\n<script>a-1 [000] 1.0: e: x</script>\n\
            <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\na\n</script>\n<p>b\n\
            <script class=\"trace-data\" type=\"application/text\">\nc\n</script></html>";
        assert_eq!(lines(page).filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["# tracer: nop", "a", "c"]);
        assert_eq!(lines("<html>\nvar linuxPerfData = \"\\\na\\n\\\n").nth(2), Some("a"));
        assert_eq!(lines("a\\n\\\n").collect::<Vec<_>>(), ["a\\n\\"], "no page");
    }
}
