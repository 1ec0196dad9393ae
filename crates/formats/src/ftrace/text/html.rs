//! A trace within a web page, as Android's systrace and Chrome's tracing write it.
//!
//! systrace puts its viewer, some megabytes of script, before the trace, and the trace as it is into elements
//! `<script class="trace-data" …>`. Its versions before 2015 had one JavaScript string instead, a line of it for each of the trace's:
//! `var linuxPerfData = "\`, then lines that end in `\n\`.
//!
//! *Uncertainty*: data that the page holds compressed (base64, as newer versions do for other sources than ftrace) is not read.

/// Elements that hold a trace.
const BEGIN: &str = "<script class=\"trace-data\"";
const END: &str = "</script>";
/// What a line of the older form ends in.
const CONTINUED: &str = "\\n\\";

/// Whether a text is a web page.
pub(super) fn is(text: &str) -> bool {
    let start = text.trim_start().get(..15).unwrap_or_default().to_ascii_lowercase();
    start.starts_with("<!doctype html") || start.starts_with("<html")
}

/// The lines of a text that may be a trace's: of a page only those of its traces, if it marks them.
pub(super) fn lines(text: &str) -> Box<dyn Iterator<Item = &str> + '_> {
    if !is(text) {
        return Box::new(text.lines());
    }
    let line = |line| str::strip_suffix(line, CONTINUED).unwrap_or(line);
    if !text.contains(BEGIN) {
        return Box::new(text.lines().map(line));
    }
    let parts = text.split(BEGIN).skip(1).filter_map(|part| part.split_once('>'));
    Box::new(parts.flat_map(move |(_, inside)| inside.split(END).next().unwrap_or_default().lines().map(line)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_lines_of_its_traces_only() {
        let page = "<!DOCTYPE html>\n<html>\n<script>a-1 [000] 1.0: e: x</script>\n\
            <script class=\"trace-data\" type=\"application/text\">\n# tracer: nop\na\n</script>\n<p>b\n\
            <script class=\"trace-data\" type=\"application/text\">\nc\n</script></html>";
        assert_eq!(lines(page).filter(|line| !line.is_empty()).collect::<Vec<_>>(), ["# tracer: nop", "a", "c"]);
        assert_eq!(lines("<html>\nvar linuxPerfData = \"\\\na\\n\\\n").nth(2), Some("a"));
        assert_eq!(lines("a\\n\\\n").collect::<Vec<_>>(), ["a\\n\\"], "no page");
    }
}
