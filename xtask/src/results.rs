//! `cargo xtask results`: which pages of `docs/results` are older than what they measure.
//!
//! The table of `docs/results/README.md` names for each page the commit that it was made from and the paths that it measures. A commit that
//! changed such a path since need not have changed the numbers; it is a reason to look, not an error, so that nothing fails.

use crate::run::output;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;

const INDEX: &str = "docs/results/README.md";
/// Cells of a row: page, made by, date, machine, commit, measures.
const COLUMNS: usize = 6;

/// A page of results.
#[derive(Debug, PartialEq, Eq)]
struct Page<'a> {
    name: &'a str,
    commit: &'a str,
    /// Paths below the repository's root.
    measures: Vec<&'a str>,
}

/// Prints each page with the number of commits since that changed what it measures, the oldest last.
///
/// # Errors
/// The table cannot be read, or names a commit or a path that does not exist.
pub fn print(root: &Path) -> Result<()> {
    let text = std::fs::read_to_string(root.join(INDEX)).with_context(|| format!("cannot read {INDEX}"))?;
    let mut ages = Vec::new();
    for page in pages(&text)? {
        for path in &page.measures {
            ensure!(root.join(path).exists(), "{INDEX}: {} measures {path}, which does not exist", page.name);
        }
        let range = format!("{}..HEAD", page.commit);
        let mut log = Command::new("git");
        log.current_dir(root).args(["rev-list", "--count", &range, "--"]).args(&page.measures);
        let count = output(&mut log).with_context(|| format!("{INDEX}: the commit of {}", page.name))?;
        ages.push((count.trim().parse::<u64>()?, page));
    }
    ages.sort_by_key(|(commits, _)| *commits);
    for (commits, page) in ages {
        let state = if commits == 0 { "up to date".to_string() } else { format!("{commits} commits since") };
        println!("{:24} {}  {state:18}  {}", page.name, page.commit, page.measures.join(" "));
    }
    Ok(())
}

/// The rows of the table.
fn pages(text: &str) -> Result<Vec<Page<'_>>> {
    let rows = text.lines().filter(|line| line.starts_with("| ["));
    rows.map(|row| {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        ensure!(cells.len() == COLUMNS, "{INDEX}: {COLUMNS} cells are expected: {row}");
        let name = cells[0].split_once("](").and_then(|(_, link)| link.strip_suffix(')'));
        let measures = cells[5].split_whitespace().map(|path| path.trim_matches('`')).collect();
        Ok(Page { name: name.context("a row without a link")?, commit: cells[4].trim_matches('`'), measures })
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_has_commit_and_paths() {
        let text =
            "# Results\n| page | … |\n|---|---|\n| [P](p.md) | `make p` | today | here | `abc1` | `crates/a` `b` |\n";
        let page = Page { name: "p.md", commit: "abc1", measures: vec!["crates/a", "b"] };
        assert_eq!(pages(text).unwrap(), [page]);
        assert!(pages("| [P](p.md) | `make p` |\n").is_err());
    }
}
