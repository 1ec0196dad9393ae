//! The table's content: its rows, and what a scan must find.

use super::failed;
use crate::Error;
use rusqlite::{Connection, Statement};

/// The string of row `n`: 100 bytes, different in every row so that nothing compresses or deduplicates it away.
pub(super) fn text_of(n: u64) -> String {
    format!("{n:0>10}{:x<90}", "abcdefghijklmnopqrstuvwxyz ")
}

/// The strings of one row after the other, in the same memory: allocating each would be part of the timed work.
#[derive(Debug)]
pub(super) struct RowTexts(String);

impl RowTexts {
    /// Creates it with the string of row 0.
    pub(super) fn new() -> Self {
        Self(text_of(0))
    }

    /// The string of row `n`, as [`text_of`].
    pub(super) fn for_row(&mut self, n: u64) -> &str {
        let (mut digits, mut rest) = ([b'0'; 10], n);
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        match std::str::from_utf8(&digits) {
            Ok(digits) if rest == 0 && self.0.len() == 100 => self.0.replace_range(..10, digits),
            // More rows than fit in ten digits: a longer string.
            _ => self.0 = text_of(n),
        }
        &self.0
    }
}

/// What a full scan of the table must find.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contents {
    rows: u64,
    sum: i128,
    bytes: u64,
}

impl Contents {
    /// The contents of rows 1 to `rows`.
    pub(super) fn expected(rows: u64) -> Self {
        let n = i128::from(rows);
        Self { rows, sum: n * (n + 1) / 2, bytes: rows * 100 }
    }

    /// Performs one scan.
    pub(super) fn scan(statement: &mut Statement<'_>) -> rusqlite::Result<Self> {
        let mut found = Self { rows: 0, sum: 0, bytes: 0 };
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            found.rows += 1;
            found.sum += i128::from(row.get::<_, i64>(0)?);
            found.bytes += row.get_ref(1)?.as_str()?.len() as u64;
        }
        Ok(found)
    }
}

/// Checks that the table holds the rows 1 to `rows`, each integer increased by `raised`, and that the file is intact;
/// returns a description.
pub(super) fn verify(connection: &Connection, rows: u64, raised: u64) -> Result<String, Error> {
    let problem = |e| failed("check the contents")(e);
    let sound: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0)).map_err(problem)?;
    if sound != "ok" {
        return Err(Error::Wrong(format!("PRAGMA integrity_check: {sound}")));
    }
    let mut statement = connection.prepare("SELECT n, s FROM t ORDER BY rowid").map_err(problem)?;
    let mut found = statement.query([]).map_err(problem)?;
    let mut count = 0;
    while let Some(row) = found.next().map_err(problem)? {
        count += 1;
        let (n, s): (i64, String) = row.get(0).and_then(|n| Ok((n, row.get(1)?))).map_err(problem)?;
        if n != (count + raised) as i64 || s != text_of(count) {
            return Err(Error::Wrong(format!(
                "row {count} has {n} and a string of {} bytes: unexpected content",
                s.len()
            )));
        }
    }
    if count != rows {
        return Err(Error::Wrong(format!("the table has {} instead of {rows}", model::counted(count as usize, "row"))));
    }
    let hold = if rows == 1 { "has the expected" } else { "have the expected" };
    Ok(format!("{} {hold} content; PRAGMA integrity_check: ok", model::counted(rows as usize, "row")))
}
