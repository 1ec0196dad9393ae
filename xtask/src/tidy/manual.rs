//! The form of the manual: no line too long for an editor or a review, fences on lines of their own, and every page in the table of
//! contents.

use crate::markdown::{blocks, links};
use crate::source::File;

/// The manual, from which mdBook makes a site, and its table of contents.
const MANUAL_DIRECTORY: &str = "docs/";
const CONTENTS_PATH: &str = "docs/SUMMARY.md";

/// Longer lines are cut off by a terminal and unreadable in a diff.
const LINE_CHARS_MAX: usize = 140;

/// Lines of a page that are too long, as `path:line: what`. A table's row cannot be broken, nor can a link's target, which does not
/// count.
pub fn long_lines(file: &File) -> Vec<String> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let lines = file.text.lines().enumerate().filter(|(_, line)| !line.trim_start().starts_with('|'));
    let long = lines.map(|(i, line)| (i + 1, visible_chars(line))).filter(|(_, width)| *width > LINE_CHARS_MAX);
    long.map(|(line, width)| format!("{}:{line}: {width} characters, more than {LINE_CHARS_MAX}", file.path)).collect()
}

/// Blocks whose fence is followed by more than a language: the lines of the block have been joined like those of a paragraph, and none of
/// its command lines is checked any more ([`super::docs`]).
pub fn joined_blocks(file: &File) -> Vec<String> {
    if !file.path.ends_with(".md") {
        return Vec::new();
    }
    let joined = blocks(&file.text).into_iter().filter(|block| block.language.contains(char::is_whitespace));
    joined
        .map(|block| format!("{}: a block opens with more than a language: `{}`", file.path, block.language))
        .collect()
}

/// The characters of a line without the targets of its links.
fn visible_chars(line: &str) -> usize {
    let targets: usize = links(line).iter().map(|(_, target)| target.chars().count()).sum();
    line.chars().count() - targets
}

/// Pages that are missing from the manual's table of contents (and thus from its site), or from the index of their own directory.
pub fn unlisted(files: &[File]) -> Vec<String> {
    let Some(contents) = files.iter().find(|f| f.path == CONTENTS_PATH) else {
        return vec![format!("there is no {CONTENTS_PATH}")];
    };
    let listed: Vec<String> =
        links(&contents.text).iter().map(|(_, target)| format!("{MANUAL_DIRECTORY}{target}")).collect();
    let page = |f: &&File| f.path.starts_with(MANUAL_DIRECTORY) && f.path.ends_with(".md") && f.path != CONTENTS_PATH;
    let missing = files.iter().filter(page).filter(|f| !listed.contains(&f.path));
    let mut offences: Vec<String> = missing.map(|f| format!("{}: not in {CONTENTS_PATH}", f.path)).collect();
    for index in files.iter().filter(|f| f.path.starts_with(MANUAL_DIRECTORY) && f.path.ends_with("/README.md")) {
        let directory = index.path.trim_end_matches("README.md");
        let named: Vec<String> = links(&index.text).iter().map(|(_, target)| format!("{directory}{target}")).collect();
        let beside = |f: &&File| {
            page(f)
                && f.path != index.path
                && f.path.rsplit_once('/').is_some_and(|(dir, _)| dir == directory.trim_end_matches('/'))
        };
        let missing = files.iter().filter(beside).filter(|f| !named.contains(&f.path));
        offences.extend(missing.map(|f| format!("{}: not in {}", f.path, index.path)));
    }
    offences
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> File {
        File { path: path.into(), text: text.into() }
    }

    #[test]
    fn block_joined_to_its_fence_is_reported() {
        let of = |text| joined_blocks(&file("docs/a.md", text));
        assert_eq!(of("```sh\nfathom show x\n```\n```\ntext\n```\n"), [""; 0]);
        let joined = of("```sh fathom show x fathom\nbench list\n```\n");
        assert_eq!(joined, ["docs/a.md: a block opens with more than a language: `sh fathom show x fathom`"]);
        assert_eq!(joined_blocks(&file("a.rs", "//! ```sh fathom show x\n//! ```\n")), [""; 0]);
    }

    #[test]
    fn long_lines_are_offences_except_tables_and_links() {
        let long = "x ".repeat(71);
        assert_eq!(
            long_lines(&file("docs/a.md", &format!("a\n{long}\n"))),
            ["docs/a.md:2: 142 characters, more than 140"]
        );
        assert_eq!(long_lines(&file("README.md", &long)), ["README.md:1: 142 characters, more than 140"]);
        for (path, text) in [
            ("docs/a.md", format!("| {long} |")),
            ("docs/a.md", format!("[a]({})", "y".repeat(150))),
            ("docs/a.md", "\u{e4}".repeat(140)),
            ("docs/a.txt", long),
        ] {
            assert_eq!(long_lines(&file(path, &text)), [""; 0], "{path}: {text}");
        }
    }

    #[test]
    fn page_missing_from_the_contents_is_an_offence() {
        let contents = file(CONTENTS_PATH, "# Summary\n\n[Start](README.md)\n\n- [A](guide/a.md)\n");
        let pages = |names: &[&str]| names.iter().map(|n| file(n, "")).collect::<Vec<_>>();
        let mut files = pages(&["docs/README.md", "docs/guide/a.md", "docs/b.md", "README.md", "docs/b.png"]);
        assert_eq!(unlisted(&files), ["there is no docs/SUMMARY.md"]);
        files.push(contents);
        let offences = ["docs/b.md: not in docs/SUMMARY.md", "docs/b.md: not in docs/README.md"];
        assert_eq!(unlisted(&files), offences);
        files.push(file("docs/guide/README.md", "[b](b.md)"));
        let more = unlisted(&files);
        assert!(more.contains(&"docs/guide/a.md: not in docs/guide/README.md".to_string()), "{more:?}");
    }
}
