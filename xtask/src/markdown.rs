//! As much of Markdown as tidy needs: fenced blocks, tables, links.

/// A fenced block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// What stands behind the opening fence.
    pub language: &'a str,
    /// Its lines, with their numbers from 1.
    pub lines: Vec<(usize, &'a str)>,
}

/// The fenced blocks of a text.
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    for (i, line) in text.lines().enumerate() {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => blocks.push(block),
            (Some(language), None) => open = Some(Block { language: language.trim(), lines: Vec::new() }),
            (None, Some(mut block)) => {
                block.lines.push((i + 1, line));
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    blocks
}

/// The rows of the first table whose header row has these cells.
pub fn table<'a>(text: &'a str, header: &[&str]) -> Option<Vec<Vec<&'a str>>> {
    let cells = |line: &'a str| -> Option<Vec<&'a str>> {
        let inner = line.trim().strip_prefix('|')?.strip_suffix('|')?;
        Some(inner.split('|').map(str::trim).collect())
    };
    let mut lines = text.lines();
    lines.find(|line| cells(line).is_some_and(|c| c == header))?;
    // The line of dashes.
    lines.next()?;
    Some(lines.map_while(cells).collect())
}

/// The targets of the links of a text outside fenced blocks, with their lines.
pub fn links(text: &str) -> Vec<(usize, &str)> {
    let mut fenced = false;
    let mut found = Vec::new();
    for (i, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        if fenced {
            continue;
        }
        for after in line.split("](").skip(1) {
            if let Some((target, _)) = after.split_once(')') {
                found.push((i + 1, target));
            }
        }
    }
    found
}

/// The names by which the headings of a text can be linked to, as GitHub and mdBook make them: lower case, spaces become
/// hyphens, punctuation goes, and the second of a kind gets `-1`.
pub fn anchors(text: &str) -> Vec<String> {
    let mut fenced = false;
    let mut found: Vec<String> = Vec::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        }
        let title = line.trim_start_matches('#');
        if fenced || title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let kept = |c: char| match c {
            ' ' => Some('-'),
            '-' | '_' => Some(c),
            c => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
        };
        let base: String = title.trim().chars().filter_map(kept).collect();
        let same = |name: &str| found.iter().any(|f| f == name);
        let nth = (0..).map(|n| if n == 0 { base.clone() } else { format!("{base}-{n}") }).find(|name| !same(name));
        found.extend(nth);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_language_and_line_numbers() {
        let text = "a\n```sh\none\n\ntwo\n```\n```\nthree\n```\n";
        let found = blocks(text);
        assert_eq!(found[0], Block { language: "sh", lines: vec![(3, "one"), (4, ""), (5, "two")] });
        assert_eq!(found[1], Block { language: "", lines: vec![(8, "three")] });
    }

    #[test]
    fn table_is_found_by_header() {
        let text = "| x |\n|---|\n| 0 |\n\n| a | b |\n|---|---|\n| 1 | 2 |\n| 3 |  |\n\nend";
        assert_eq!(table(text, &["a", "b"]), Some(vec![vec!["1", "2"], vec!["3", ""]]));
        assert_eq!(table(text, &["c"]), None);
    }

    #[test]
    fn links_in_code_are_ignored() {
        assert_eq!(links("[a](b.md) and ![c](d.png#e)\n```\n[x](y)\n```\n"), [(1, "b.md"), (1, "d.png#e")]);
    }

    #[test]
    fn headings_become_github_anchors() {
        let text = "# A `b`, c\n```sh\n# none\n```\n## Two\n## Two\n#hash\n### 1. x_y-z (`w.rs`)\n";
        assert_eq!(anchors(text), ["a-b-c", "two", "two-1", "1-x_y-z-wrs"]);
    }
}
