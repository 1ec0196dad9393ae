//! Exports an archive's tables for other programs: the Parquet files as they are (those of older versions in the current
//! format), or CSV.
//!
//! CSV follows RFC 4180. Texts come from traced programs and are thus untrusted, and spreadsheets evaluate a cell that
//! begins like a formula; such a text is prefixed with an apostrophe (OWASP, "CSV injection"). Control characters are
//! written as `\n`, `\t` or `\u{…}`, so that a row stays a line.

use crate::archive::Archive;
use crate::error::{Error, IoResultExt, Result};
use crate::tables::{self, Index};
use model::Context;
use model::table::{Cell, TABLE_VERSION, TABLES};
use std::borrow::Cow;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;

/// Copies the Parquet files into the directory `to`, which is created if missing. Returns the tables' names. Tables of an
/// older version are rewritten, since not every engine computes with their types ([`crate::tables`]).
///
/// # Errors
/// Those of [`Archive::for_each`], [`Error::Io`], [`Error::Interrupted`] if `context` was cancelled.
pub fn parquet(archive: &Archive, to: &Path, context: &Context) -> Result<Vec<String>> {
    let old = Index::read(archive.dir())?.table_version < TABLE_VERSION;
    each_table(archive, to, "parquet", |name, path| {
        check_interrupted(to, context)?;
        if let Some(table) = TABLES.iter().find(|t| t.name == name).filter(|_| old) {
            return tables::rewrite(archive.dir(), table, path);
        }
        let from = tables::table_path(archive.dir(), name);
        let mut source = tables::open_checked(&Index::read(archive.dir())?, name, &from)?;
        let mut copy = File::create_new(path).with_action("create", path)?;
        std::io::copy(&mut source, &mut copy).and_then(|_| copy.sync_all()).with_action("write", path)
    })
}

/// Writes each table as `NAME.csv` into the directory `to`, which is created if missing. Returns the tables' names.
///
/// # Errors
/// Those of [`Archive::for_each`], and [`Error::Interrupted`] if `context` was cancelled.
pub fn csv(archive: &Archive, to: &Path, context: &Context) -> Result<Vec<String>> {
    each_table(archive, to, "csv", |name, path| {
        let Some(table) = TABLES.iter().find(|t| t.name == name) else { return Ok(()) };
        let mut out = BufWriter::new(File::create_new(path).with_action("create", path)?);
        let names: Vec<&str> = table.columns.iter().map(|c| c.name).collect();
        let mut written = write!(out, "{}\r\n", names.join(","));
        let mut line = String::new();
        tables::read(archive.dir(), table, &mut |cells| {
            line.clear();
            csv_line(cells, &mut line);
            // The reader cannot be stopped; further rows are ignored.
            if written.is_ok() && !context.cancelled() {
                written = out.write_all(line.as_bytes());
            }
        })?;
        check_interrupted(to, context)?;
        written.and_then(|()| out.flush()).and_then(|()| out.get_ref().sync_all()).with_action("write", path)
    })
}

fn check_interrupted(to: &Path, context: &Context) -> Result<()> {
    if context.cancelled() { Err(Error::Interrupted { path: to.into() }) } else { Ok(()) }
}

/// Has `each` write every table under a temporary name in the directory `to`. The tables get their own names once all are complete: mixed
/// with those of an earlier export they would match no archive.
fn each_table(
    archive: &Archive,
    to: &Path,
    ending: &str,
    mut each: impl FnMut(&str, &Path) -> Result<()>,
) -> Result<Vec<String>> {
    let index = Index::read(archive.dir())?;
    // A table of a newer minor version has a name unknown to this program, and index.json is not trusted.
    let names: Vec<String> = index.rows.into_keys().filter(|n| TABLES.iter().any(|t| t.name == n)).collect();
    let made = match fs::create_dir(to) {
        Ok(()) => true,
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => false,
        Err(e) => return Err(Error::creating("create the directory", to, e)),
    };
    let tmp = |name: &String| to.join(format!(".{name}.{ending}.{}.tmp", std::process::id()));
    let written = names.iter().try_for_each(|name| each(name, &tmp(name)));
    let written = written.and_then(|()| {
        names.iter().try_for_each(|name| {
            let path = to.join(format!("{name}.{ending}"));
            fs::rename(tmp(name), &path).with_action("replace", &path)
        })
    });
    if written.is_err() {
        for name in &names {
            let _ = fs::remove_file(tmp(name));
        }
        if made {
            let _ = fs::remove_dir_all(to);
        }
    }
    written.map(|()| names)
}

fn csv_line(cells: &[Cell], out: &mut String) {
    for (i, cell) in cells.iter().enumerate() {
        if i > 0 {
            out.push(',');
        }
        // Writing to a String cannot fail.
        let _ = match cell {
            Cell::Empty => Ok(()),
            Cell::I64(x) => write!(out, "{x}"),
            Cell::F64(x) => write!(out, "{x}"),
            Cell::Bool(x) => write!(out, "{x}"),
            Cell::Text(x) => write!(out, "{}", csv_text(x)),
        };
    }
    out.push_str("\r\n");
}

/// A text as a cell: quoted if necessary, on one line, and not a formula.
pub fn csv_text(text: &str) -> Cow<'_, str> {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let special = text.chars().any(|c| c.is_control() || matches!(c, '"' | ','));
    if !formula && !special {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 3);
    out.push('"');
    if formula {
        out.push('\'');
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\"\""),
            c if c.is_control() => out.extend(c.escape_default()),
            c => out.push(c),
        }
    }
    out.push('"');
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn csv_text_is_quoted_and_never_a_formula() {
        for (text, cell) in [
            ("SELECT 1", "SELECT 1"),
            ("a,b", "\"a,b\""),
            ("say \"x\"", "\"say \"\"x\"\"\""),
            ("=HYPERLINK(1)", "\"'=HYPERLINK(1)\""),
            ("-1+1", "\"'-1+1\""),
            ("@SUM(A1)", "\"'@SUM(A1)\""),
            ("\tx", "\"'\\tx\""),
            ("a\r\nb\u{1b}", "\"a\\r\\nb\\u{1b}\""),
            ("é", "é"),
        ] {
            assert_eq!(csv_text(text), cell, "{text:?}");
        }
    }

    #[test]
    fn negative_numbers_are_not_escaped_as_formulas() {
        let mut line = String::new();
        csv_line(&[Cell::I64(-5), Cell::Empty, Cell::I64(i64::MAX), Cell::Bool(true), Cell::F64(0.5)], &mut line);
        assert_eq!(line, "-5,,9223372036854775807,true,0.5\r\n");
    }
}
