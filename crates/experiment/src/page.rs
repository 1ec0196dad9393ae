//! The manual's page of comparisons, which `make bench` regenerates, keeping the parts that people wrote.

/// The handwritten part of the manual's page is between these lines: it is kept when the page is regenerated.
const BY_HAND: [&str; 2] = ["<!-- by hand -->\n", "<!-- made -->\n"];

/// Returns that part of a page, including the marker lines; empty if there is none.
pub fn by_hand(page: &str) -> &str {
    let [begin, end] = BY_HAND;
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
    fn hand_written_parts_of_page_are_kept() {
        let what = ["a.toml".to_string()];
        let first = page(&what, by_hand(""), "## a\n");
        assert!(first.ends_with("makes.\n\n## a\n"));
        let written = first.replace("## a\n", "<!-- by hand -->\nwhy\n<!-- made -->\n\n## a\n");
        let again = page(&what, by_hand(&written), "## b\n");
        assert!(again.ends_with("<!-- by hand -->\nwhy\n<!-- made -->\n\n## b\n"), "{again}");
        assert_eq!(by_hand(&again), by_hand(&written));
        assert_eq!(by_hand("<!-- by hand -->\nnever ended"), "");
    }
}
