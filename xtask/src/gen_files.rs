//! The files generated from `crates/model`: an event or a table is changed there, and C, and the manual, follow; and the page of the
//! papers' claims, from the results. They are committed, so that a reader of the repository sees them; lint fails when one is stale.

use crate::claims;
use anyhow::{Context, Result, ensure};
use model::event::{EVENT_VERSION, Header, Record, c_constants};
use model::record::{FieldInfo, c_header};
use model::table::{ColumnInfo, ColumnType, TABLE_VERSION, TABLES, TableInfo};
use std::fmt::Write as _;
use std::path::Path;

/// Path within the repository, and content.
fn files(root: &Path) -> Result<Vec<(&'static str, String)>> {
    Ok(vec![
        ("crates/capture/src/bpf/events.h", c_header(&c_constants(), Record::KINDS)),
        ("docs/reference/events.md", events()),
        ("docs/reference/tables.md", tables()),
        ("python/fathom/tables.json", tables_for_python()),
        (claims::PAGE_PATH, claims::page(root)?),
    ])
}

/// Writes stale files, or with `check` fails if any is stale.
pub fn run(root: &Path, check: bool) -> Result<()> {
    let mut stale = Vec::new();
    for (path, content) in files(root)? {
        let file = root.join(path);
        if std::fs::read_to_string(&file).is_ok_and(|old| old == content) {
            continue;
        }
        stale.push(path);
        if !check {
            let directory = file.parent().context("a generated file has a directory")?;
            std::fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
            std::fs::write(&file, content).with_context(|| format!("cannot write {path}"))?;
            println!("wrote {path}");
        }
    }
    ensure!(!check || stale.is_empty(), "stale: {}. Run `cargo xtask gen` and commit.", stale.join(", "));
    Ok(())
}

const GENERATED_NOTICE: &str = "<!-- Generated from crates/model by `cargo xtask gen`. Do not edit. -->\n";

/// The tables' definitions for the Python package.
fn tables_for_python() -> String {
    let column = |column: &ColumnInfo| {
        let kind = match column.kind {
            ColumnType::I64 => "i64",
            ColumnType::F64 => "f64",
            ColumnType::Bool => "bool",
            ColumnType::Text => "text",
        };
        format!("{{\"name\": \"{}\", \"type\": \"{kind}\", \"optional\": {}}}", column.name, column.optional)
    };
    let columns = |columns: &[ColumnInfo]| columns.iter().map(column).collect::<Vec<_>>().join(",\n      ");
    let table = |table: &TableInfo| format!("    \"{}\": [\n      {}\n    ]", table.name, columns(table.columns));
    let tables: Vec<String> = model::fleet::tables().map(table).collect();
    format!(
        "{{\n  \"notice\": \"Generated from crates/model by `cargo xtask gen`. Do not edit.\",\n  \"version\": {TABLE_VERSION},\n  \
         \"leading\": [\n      {}\n  ],\n  \"tables\": {{\n{}\n  }}\n}}\n",
        columns(&model::fleet::LEADING_COLUMNS),
        tables.join(",\n")
    )
}

fn events() -> String {
    let about = prose(&format!(
        "What the probes record, and what `events.log` holds: a header, the fields in this order (little-endian, without \
         gaps), for some kinds a text of `len` bytes, and padding to a multiple of 8 bytes. Version {EVENT_VERSION}."
    ));
    let mut out = format!("# Events\n\n{GENERATED_NOTICE}\n{about}\n\n## Header\n\n");
    fields(&mut out, Header::FIELDS);
    for kind in Record::KINDS {
        let _ = write!(out, "\n## {} ({})\n\n{}\n\n", kind.name, kind.kind, prose(kind.doc));
        fields(&mut out, kind.fields);
        if kind.tail {
            out.push_str("\nA text of `len` bytes follows.\n");
        }
    }
    out
}

fn fields(out: &mut String, fields: &[FieldInfo]) {
    out.push_str("| offset | field | type | meaning |\n|---:|---|---|---|\n");
    let mut at = 0;
    for f in fields {
        let plain = f.c_type.trim_start_matches('_');
        let kind = if f.count > 1 { format!("{plain}[{}]", f.count) } else { plain.to_string() };
        let _ = writeln!(out, "| {at} | `{}` | {kind} | {} |", f.name, cell(f.doc));
        at += f.size;
    }
}

fn tables() -> String {
    let mut out = format!(
        "# Tables\n\n{GENERATED_NOTICE}\nThe Parquet files of an archive, one a table: `NAME.fathom/tables/TABLE.parquet`. \
         Version {TABLE_VERSION}.\n"
    );
    for table in TABLES {
        let _ = write!(out, "\n## {}\n\n{}\n\n", table.name, prose(table.doc));
        out.push_str("| column | type | empty | meaning |\n|---|---|---|---|\n");
        for column in table.columns {
            let kind = match column.kind {
                ColumnType::I64 => "signed 64",
                ColumnType::F64 => "float 64",
                ColumnType::Bool => "bool",
                ColumnType::Text => "text",
            };
            let empty = if column.optional { "may be" } else { "never" };
            let _ = writeln!(out, "| `{}` | {kind} | {empty} | {} |", column.name, cell(column.doc));
        }
    }
    out
}

/// A doc comment as a paragraph: lines of the manual's width, links to Rust items reduced to their names.
fn prose(doc: &str) -> String {
    let mut out = String::new();
    let mut width = 0;
    for word in one_line(doc).split(' ') {
        let length = word.chars().count();
        // A line that begins with this would be a list.
        let bullet = ["-", "*", "+"].contains(&word);
        if width > 0 && width + 1 + length > PROSE_CHARS_MAX && !bullet {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += length;
    }
    out
}

/// Where lines of prose are broken.
const PROSE_CHARS_MAX: usize = 120;

/// A doc comment for use in a table.
fn cell(doc: &str) -> String {
    one_line(doc).replace('|', "\\|")
}

fn one_line(doc: &str) -> String {
    unlink(&doc.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// ``[`crate::Name`]`` is a link for rustdoc only; in the manual it becomes `Name`.
fn unlink(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("[`") {
        out.push_str(before);
        let Some((path, after)) = after.split_once("`]") else {
            out.push_str("[`");
            rest = after;
            continue;
        };
        let _ = write!(out, "`{}`", path.rsplit("::").next().unwrap_or(path));
        rest = after;
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rustdoc_links_become_names() {
        assert_eq!(unlink("Which call ([`crate::Call`]), see [`flags`]."), "Which call (`Call`), see `flags`.");
        assert_eq!(unlink("an open [` stays"), "an open [` stays");
    }

    #[test]
    fn prose_is_wrapped_and_cells_are_not() {
        let long = "word ".repeat(60);
        assert!(prose(&long).lines().count() == 3 && prose(&long).lines().all(|l| l.len() <= PROSE_CHARS_MAX));
        assert_eq!(cell(&long).lines().count(), 1);
    }

    #[test]
    fn every_kind_and_table_has_a_section() {
        let (events, tables) = (events(), tables());
        for kind in Record::KINDS {
            assert!(events.contains(&format!("\n## {} ({})\n", kind.name, kind.kind)), "{}", kind.name);
        }
        for table in TABLES {
            assert!(tables.contains(&format!("\n## {}\n", table.name)), "{}", table.name);
        }
    }

    #[test]
    fn check_names_stale_files() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let repository = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is in the repository")?;
        claims::copy_sources(repository, directory.path())?;
        assert!(run(directory.path(), true).is_err());
        run(directory.path(), false)?;
        run(directory.path(), true)?;
        let header = directory.path().join("crates/capture/src/bpf/events.h");
        let old = std::fs::read_to_string(&header)?;
        std::fs::write(&header, old + "#define MINE 1\n")?;
        let error = run(directory.path(), true).unwrap_err().to_string();
        assert!(error.contains("events.h") && !error.contains("events.md"), "{error}");
        Ok(())
    }
}
