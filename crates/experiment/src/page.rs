//! The manual's page of comparisons, which `make bench` regenerates, keeping the parts that people wrote.

/// The handwritten part of the manual's page is between these lines: it is kept when the page is regenerated.
const HAND_WRITTEN_MARKERS: [&str; 2] = ["<!-- by hand -->\n", "<!-- made -->\n"];

/// Returns that part of a page, including the marker lines; empty if there is none.
pub fn hand_written_part(page: &str) -> &str {
    let [begin, end] = HAND_WRITTEN_MARKERS;
    let part = |from: usize| page[from..].find(end).map(|to| &page[from..from + to + end.len()]);
    page.find(begin).and_then(part).unwrap_or_default()
}

/// Formats the page. `what`: what was run.
pub fn page(what: &[String], by_hand: &str, text: &str) -> String {
    let gap = if by_hand.is_empty() { "" } else { "\n" };
    format!(
        "# Performance\n\n\
         Made by `make bench`, which runs `fathom bench run {} --markdown docs/results/performance.md`: each command of a design in a\n\
         fresh process, in randomised complete blocks, compared pair by pair with the baseline of the same block. A ratio\n\
         is the median of the pairs with its 95 % bootstrap interval; the row \"again\" is the baseline against itself and shows\n\
         what the machine's noise alone makes.\n\n{by_hand}{gap}{text}",
        what.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hand_written_part_of_the_page_is_kept() {
        let what = ["a.toml".to_string()];
        let first = page(&what, hand_written_part(""), "## a\n");
        assert!(first.ends_with("makes.\n\n## a\n"));
        let written = first.replace("## a\n", "<!-- by hand -->\nwhy\n<!-- made -->\n\n## a\n");
        let again = page(&what, hand_written_part(&written), "## b\n");
        assert!(again.ends_with("<!-- by hand -->\nwhy\n<!-- made -->\n\n## b\n"), "{again}");
        assert_eq!(hand_written_part(&again), hand_written_part(&written));
        assert_eq!(hand_written_part("<!-- by hand -->\nnever ended"), "");
    }
}
