//! The tables in the pages of docs/results, as values: what a command measured and wrote there.

use anyhow::{Context, Result, ensure};
use std::path::{Path, PathBuf};

/// Where the pages are.
pub const RESULTS_DIRECTORY: &str = "docs/results";

/// The pages of results.
#[derive(Debug)]
pub struct Results(PathBuf);

/// One value of a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Value {
    /// The words that name its row.
    pub name: String,
    /// As the page shows it.
    pub shown: String,
    pub number: f64,
    /// The 95 % interval.
    pub interval: Option<[f64; 2]>,
    /// Whether the run's processes disagree.
    pub is_inconsistent: bool,
}

impl Results {
    pub fn in_repository(root: &Path) -> Self {
        Self(root.join(RESULTS_DIRECTORY))
    }

    /// Returns a value of the table below the heading that begins with `table`. `place` has words of the row's first cells, and after a
    /// `|` the column, counted from 1 behind the first one, where that is not the column "ours".
    pub fn value(&self, page: &str, table: &str, place: &str) -> Result<Value> {
        let text = std::fs::read_to_string(self.0.join(page))
            .with_context(|| format!("cannot read {RESULTS_DIRECTORY}/{page}"))?;
        let rows = rows_below(&text, table);
        ensure!(!rows.is_empty(), "{RESULTS_DIRECTORY}/{page} has no table below the heading \"{table}\"");
        let (words, column) = match place.split_once('|') {
            Some((words, column)) => {
                (words.trim(), Some(column.trim().parse::<usize>().context("a column is a number")?))
            }
            None => (place.trim(), None),
        };
        value_of(&rows, words, column).with_context(|| format!("{RESULTS_DIRECTORY}/{page}, {table}"))
    }
}

fn value_of(rows: &[Vec<String>], words: &str, column: Option<usize>) -> Result<Value> {
    let head = &rows[0];
    let index = match column {
        Some(column) => column,
        None => head.iter().position(|title| title == "ours").context("no column \"ours\"; give its number")?,
    };
    // Words may be spread over the cells before the value: those of a table whose rows are named by several factors.
    let is_named = |row: &&Vec<String>| {
        let name = row[..index.min(row.len())].join(" ");
        words
            .split(' ')
            .all(|word| name.split(' ').any(|have| have.trim_end_matches(',') == word.trim_end_matches(',')))
    };
    let mut found = rows[1..].iter().filter(is_named);
    let row = found.next().with_context(|| format!("no row with {words}"))?;
    ensure!(found.next().is_none(), "several rows with {words}");
    let cell = row.get(index).with_context(|| format!("no column {index} in the row with {words}"))?;
    let found_number = self::number(cell).with_context(|| format!("{words}: {cell} is no number"))?;
    let of = |title: &str| head.iter().position(|t| t == title).and_then(|at| row.get(at));
    let interval = if column.is_none() { of("95 % interval").and_then(|text| interval(text)) } else { None };
    let unit = of("unit").filter(|_| column.is_none()).map(|unit| format!(" {unit}")).unwrap_or_default();
    let shown = match interval {
        Some(_) => format!("{cell} ({}){unit}", of("95 % interval").map_or("", String::as_str)),
        None => format!("{cell}{unit}"),
    };
    let marks = row.last().map_or("", String::as_str);
    // The cells that name the row, but not the paper's own values; and the column, where there are several.
    let is_name = |(at, cell): &(usize, &String)| *at == 0 || (head[*at] != "paper" && self::number(cell).is_none());
    let before = if column.is_some() { index } else { 1 };
    let mut name: Vec<&str> = row
        .iter()
        .enumerate()
        .take(before)
        .filter(is_name)
        .map(|(_, cell)| cell.as_str())
        .filter(|cell| !cell.is_empty())
        .collect();
    name.extend(column.map(|_| head[index].as_str()));
    Ok(Value {
        name: name.join(", "),
        shown,
        number: found_number,
        interval,
        is_inconsistent: marks.contains("inconsistent"),
    })
}

/// Returns the rows of the first table below a heading, or a paragraph, that begins with a text; without the line that separates the head.
fn rows_below(text: &str, heading: &str) -> Vec<Vec<String>> {
    let begins = |line: &&str| line.trim_start_matches('#').trim_start().starts_with(heading);
    let mut lines = text.lines().skip_while(|line| !begins(line)).skip(1);
    let table = lines.by_ref().skip_while(|line| !line.starts_with('|') && !line.starts_with('#'));
    let rows =
        table.take_while(|line| line.starts_with('|')).filter(|line| !line.trim_matches(['|', '-', ':']).is_empty());
    rows.map(cells).collect()
}

fn cells(line: &str) -> Vec<String> {
    let inner = line.trim().trim_start_matches('|');
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(|cell| cell.trim().replace("\\_", "_")).collect()
}

/// The first number of a cell, in the unit of the cell's text: thousands may be separated by commas.
fn number(cell: &str) -> Option<f64> {
    let first = cell.split([' ', '/']).next()?;
    first.replace(',', "").parse().ok().filter(|number: &f64| number.is_finite())
}

fn interval(text: &str) -> Option<[f64; 2]> {
    let (low, high) = text.split_once(" to ")?;
    Some([number(low)?, number(high)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULTS_PAGE: &str = "# A\n\n## Figures 7\n\nText.\n\n| | one: 1 | 8 nodes |\n|---|---:|---:|\n| batch 1, 4 threads | 1,999 | 5,114 / 3 |\n\
                        | batch 10, 4 threads | 2,053 | x |\n\n## Next\n\n| cell | ours | 95 % interval | unit | |\n|---|---|---|---|---|\n\
                        | op=a page\\_size=1 | 9.6 | 9 to 10 | Mb/s | inconsistent; quick run |\n";

    fn value(table: &str, words: &str, column: Option<usize>) -> Result<Value> {
        value_of(&rows_below(RESULTS_PAGE, table), words, column)
    }

    #[test]
    fn value_is_found_by_row_and_column() {
        assert_eq!(value("Figures 7", "batch 1, 4 threads", Some(1)).unwrap().number, 1999.0);
        assert_eq!(value("Figures 7", "batch 1,", Some(2)).unwrap().number, 5114.0);
        let ours = value("Next", "op=a page_size=1", None).unwrap();
        assert_eq!((ours.number, ours.interval, ours.is_inconsistent), (9.6, Some([9.0, 10.0]), true));
        assert_eq!(ours.shown, "9.6 (9 to 10) Mb/s");
    }

    #[test]
    fn ambiguous_or_absent_place_is_refused() {
        for (table, words, column, why) in [
            ("Figures 7", "threads", Some(1), "several rows"),
            ("Figures 7", "batch 100", Some(1), "no row"),
            ("Figures 7", "batch 10, 4", Some(2), "no number"),
            ("Figures 7", "batch 1,", Some(9), "no column"),
            ("Figures 7", "batch 1,", None, "no column"),
        ] {
            let error = value(table, words, column).unwrap_err().to_string();
            assert!(error.contains(why), "{words}: {error}");
        }
        assert!(rows_below(RESULTS_PAGE, "Elsewhere").is_empty());
    }
}
