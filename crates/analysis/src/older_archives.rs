//! Conversion of older archives, which have reasons as texts only, and other names.

use model::table::{Coverage, MarkRow};
use model::{Absence, Layer};

/// Their text for a SQLite that was found late, for which they have no separate reason.
const FOUND_LATE_TEXT: &str = "it was found after a process had begun to run it";

/// Converts a coverage row. Archives written before `coverage` had the column `absence` give the reason as a text: these are their texts.
pub fn coverage(mut row: Coverage) -> Coverage {
    if row.absence == Some(Absence::Failed) && row.how.starts_with(FOUND_LATE_TEXT) {
        row.absence = Some(Absence::Late);
    }
    if !row.attached && row.absence.is_none() {
        let how = row.how.as_str();
        let sqlite = ["no SQLite", "nothing that looks like SQLite"].iter().any(|text| how.starts_with(text));
        row.absence = if how.starts_with("no ") && how.ends_with(" was mounted") {
            Some(Absence::NotMounted)
        } else if how.starts_with("this kernel has no tracepoint") {
            Some(Absence::NoTracepoint)
        } else if row.layer == Layer::Database && sqlite {
            Some(Absence::NoSqlite)
        } else {
            None
        };
    }
    row
}

/// Converts a fact's name. Archives of network runs written by 0.2 and before called the server's facts `serves.NAME`.
pub fn fact(name: String) -> String {
    match name.strip_prefix("serves.") {
        Some(rest) => format!("server.{rest}"),
        None => name,
    }
}

/// Converts a mark. The same archives called the marks of both ends `end.asks` and `end.serves`.
pub fn mark(mut row: MarkRow) -> MarkRow {
    match row.name.as_str() {
        "end.asks" => row.name = "end.client".into(),
        "end.serves" => row.name = "end.server".into(),
        _ => {}
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_names_of_ends_become_client_and_server() {
        let of = |name: &str| mark(MarkRow { replicate: None, name: name.into(), text: "x".into() }).name;
        assert_eq!(
            ["end.asks", "end.serves", "end.client", "clocks"].map(of),
            ["end.client", "end.server", "end.client", "clocks"]
        );
        assert_eq!(
            ["serves.kernel.release", "kernel.release"].map(|n| fact(n.into())),
            ["server.kernel.release", "kernel.release"]
        );
    }

    #[test]
    fn texts_of_older_archives_become_reasons() {
        for (layer, how, absence) in [
            (Layer::FileSystem, "no xfs was mounted", Some(Absence::NotMounted)),
            (
                Layer::FileSystem,
                "this kernel has no tracepoint xfs_x, or its module is not loaded",
                Some(Absence::NoTracepoint),
            ),
            (
                Layer::Database,
                "no SQLite was found in app: its transactions are inferred from its files",
                Some(Absence::NoSqlite),
            ),
            (Layer::Block, "no SQLite", None),
            (Layer::Block, "Operation not permitted", None),
        ] {
            let old = Coverage { attached: false, ..Coverage::attached(layer, "probe", how) };
            assert_eq!(coverage(old).absence, absence, "{how}");
        }
    }

    #[test]
    fn failures_of_a_sqlite_found_late_become_found_late() {
        let how =
            "it was found after a process had begun to run it: that process's first statements, or all, are missing";
        let row = |absence| Coverage::absent(Layer::Database, "/a/app", absence, how);
        assert_eq!(coverage(row(Absence::Failed)), row(Absence::Late));
    }

    #[test]
    fn stored_reasons_are_kept() {
        let row = Coverage::absent(Layer::FileSystem, "probe", Absence::Failed, "no xfs was mounted");
        assert_eq!(coverage(row.clone()), row);
        let attached = Coverage::attached(Layer::FileSystem, "probe", "no xfs was mounted");
        assert_eq!(coverage(attached.clone()), attached);
    }
}
