//! Which texts of an archive may be private, and what a fleet keeps of them.
//!
//! Every text column has a class. For three classes the owner of a fleet decides, once, when the fleet is created, whether texts are kept,
//! replaced by hashes (equal texts have equal hashes, so they can be counted and joined), or dropped. Numbers, times and Fathom's own
//! words stay. A recording never holds bound values, and SQL literals only with `--keep-sql`.
//!
//! Hashes use the fleet's salt, so that two fleets cannot be joined by them. Whoever can read the salt can still guess a short text:
//! use `drop` for texts that nobody may guess.

use model::table::Cell;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a text is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A name given by Fathom or the device.
    Public,
    /// Commands, names of processes and what they print.
    Command,
    /// Paths of files.
    Path,
    /// Texts of statements.
    Sql,
    /// Public or a command's, depending on the row's name.
    Mark,
    /// The same, for a fact: public unless its name indicates otherwise.
    Fact,
}

/// Marks whose text is Fathom's; the text of any other is the program's.
const PUBLIC_MARKS: [&str; 6] = [archive::runs::LIMITED_BY_MARK, "mode", "cache", "inner", "clock", "warm"];

/// Facts whose value is not the device's: what was asked on the command line, and the names of processes.
const PRIVATE_FACTS: [&str; 2] = ["trace.asked", "trace.left_running"];

/// Text columns that are not public.
const PRIVATE_COLUMNS: &[(&str, &str, Class)] = &[
    ("shapes", "text", Class::Sql),
    // It leads to an application's own data on the same request elsewhere.
    ("contexts", "traceparent", Class::Sql),
    ("files", "path", Class::Path),
    ("stacks", "functions", Class::Command),
    ("stacks", "places", Class::Path),
    ("processes", "name", Class::Command),
    ("disks", "below", Class::Path),
    ("losses", "program", Class::Path),
    ("coverage", "how", Class::Path),
    ("coverage", "probe", Class::Path),
    ("facts", "value", Class::Fact),
    ("facts", "source", Class::Path),
    ("facts", "unknown", Class::Path),
    // In a comparison of commands, the commands are the cells' names.
    ("designs", "question", Class::Command),
    ("designs", "baseline", Class::Command),
    ("designs", "design", Class::Command),
    ("cells", "argv", Class::Command),
    ("cells", "absent", Class::Command),
    ("cells", "factors", Class::Command),
    ("cells", "name", Class::Command),
    ("cells", "same_as", Class::Command),
    ("replicates", "failure", Class::Command),
    ("replicates", "why", Class::Path),
    ("marks", "text", Class::Mark),
    ("samples", "labels", Class::Command),
    ("archives", "command", Class::Command),
];

/// The class of a column.
pub fn column_class(table: &str, column: &str) -> Class {
    let found = PRIVATE_COLUMNS.iter().find(|(of, name, _)| (*of, *name) == (table, column));
    found.map_or(Class::Public, |(_, _, class)| *class)
}

/// How a text is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Treatment {
    #[default]
    Keep,
    Hash,
    Drop,
}

/// The rules of a fleet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Rules {
    /// Commands, names of processes and what they print.
    pub commands: Treatment,
    /// Paths of files.
    pub paths: Treatment,
    /// Texts of statements.
    pub sql: Treatment,
}

impl Rules {
    /// Whether everything is kept.
    pub fn keep_all(&self) -> bool {
        *self == Self::default()
    }

    fn treatment(&self, class: Class, name: Option<&str>) -> Treatment {
        match class {
            Class::Public => Treatment::Keep,
            Class::Mark if name.is_some_and(|name| PUBLIC_MARKS.contains(&name)) => Treatment::Keep,
            Class::Fact if name.is_none_or(|name| !PRIVATE_FACTS.contains(&name)) => Treatment::Keep,
            Class::Command | Class::Mark | Class::Fact => self.commands,
            Class::Path => self.paths,
            Class::Sql => self.sql,
        }
    }

    /// Makes a cell of a class what the fleet stores; `name` is the value of the row's column `name`, if it has one.
    pub fn apply(&self, class: Class, name: Option<&str>, cell: &mut Cell, optional: bool, salt: &str) {
        let Cell::Text(text) = cell else { return };
        match self.treatment(class, name) {
            Treatment::Keep => {}
            Treatment::Hash => *cell = Cell::Text(hash_text(text, salt).into()),
            Treatment::Drop if optional => *cell = Cell::Empty,
            Treatment::Drop => *cell = Cell::Text("(dropped)".into()),
        }
    }
}

fn hash_text(text: &str, salt: &str) -> String {
    let hash = Sha256::new().chain_update(salt).chain_update([0]).chain_update(text).finalize();
    let digits: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("hash:{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::table::ColumnType;

    /// Text columns whose words are those of Fathom, the kernel or the device. A new text column belongs here or into `PRIVATE_COLUMNS`.
    const PUBLIC_COLUMNS: &[(&str, &[&str])] = &[
        ("shapes", &["kind"]),
        ("spans", &["layer", "kind", "flags"]),
        ("links", &["relation", "confidence"]),
        ("driver_commands", &["confidence", "protocol", "name", "error"]),
        ("causes", &["origin", "confidence", "via"]),
        ("slices", &["layer", "reason", "confidence", "wait"]),
        ("thread_times", &["layer", "reason", "call", "wait"]),
        ("stacks", &["kind", "ended"]),
        ("disks", &["name"]),
        ("losses", &["source"]),
        ("checks", &["what", "unknown"]),
        ("coverage", &["layer", "absence"]),
        ("facts", &["name", "unit", "varies"]),
        ("designs", &["name", "score", "unit", "better", "stopped"]),
        ("cells", &["metric"]),
        ("replicates", &["verified_by", "gates"]),
        ("marks", &["name"]),
        ("samples", &["metric", "unit"]),
        ("archives", &["kind", "boot", "made_by"]),
    ];

    #[test]
    fn every_text_column_has_one_class() {
        for table in crate::tables() {
            for column in table.columns.iter().filter(|column| column.kind == ColumnType::Text) {
                let public = PUBLIC_COLUMNS.iter().any(|(of, names)| *of == table.name && names.contains(&column.name));
                let private = column_class(table.name, column.name) != Class::Public;
                assert!(public != private, "{}.{}", table.name, column.name);
            }
        }
    }

    #[test]
    fn every_rule_names_an_existing_column() {
        let there = |of: &str, name: &str| {
            crate::tables().any(|table| table.name == of && table.columns.iter().any(|column| column.name == name))
        };
        for (of, name, _) in PRIVATE_COLUMNS {
            assert!(there(of, name), "{of}.{name}");
        }
    }

    fn treated(rules: Rules, class: Class, name: Option<&str>, optional: bool) -> Cell {
        let mut cell = Cell::Text("secret".into());
        rules.apply(class, name, &mut cell, optional, "salt");
        cell
    }

    #[test]
    fn hash_hides_the_text_and_keeps_equality() {
        let rules = Rules { paths: Treatment::Hash, ..Rules::default() };
        let cell = treated(rules, Class::Path, None, true);
        assert_eq!(cell, treated(rules, Class::Path, None, true));
        assert!(matches!(&cell, Cell::Text(text) if text.starts_with("hash:") && text.len() == 21), "{cell:?}");
        assert_ne!(hash_text("secret", "salt"), hash_text("secret", "pepper"));
        assert_ne!(hash_text("secret", "salt"), hash_text("secret2", "salt"));
        assert_eq!(treated(rules, Class::Sql, None, true), Cell::Text("secret".into()));
    }

    #[test]
    fn dropped_text_is_gone_and_the_column_stays_valid() {
        let rules = Rules { commands: Treatment::Drop, paths: Treatment::Drop, sql: Treatment::Drop };
        for class in [Class::Command, Class::Path, Class::Sql, Class::Mark] {
            assert_eq!(treated(rules, class, None, true), Cell::Empty);
            assert_eq!(treated(rules, class, None, false), Cell::Text("(dropped)".into()));
        }
        assert_eq!(treated(rules, Class::Mark, Some("limited by"), false), Cell::Text("secret".into()));
        assert_eq!(treated(rules, Class::Mark, Some("granted up sender"), false), Cell::Text("(dropped)".into()));
        assert_eq!(treated(rules, Class::Fact, Some("trace.left_running"), true), Cell::Empty);
        assert_eq!(treated(rules, Class::Fact, Some("os.name"), true), Cell::Text("secret".into()));
        assert_eq!(treated(rules, Class::Public, None, false), Cell::Text("secret".into()));
    }
}
