//! Whether SQLite's statements were seen; and if not, what shows that a process uses SQLite all the same.

use model::table::{Coverage, File, Operation, Process, Shape, Span};
use model::{Absence, Layer, ShapeKind};
use sqlite::FileClass;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What the rows show of it.
#[derive(Debug, Default)]
pub struct SqliteCoverage {
    /// Shapes that are statements (true) or inferred transactions.
    shapes: HashMap<u64, bool>,
    /// Files named as SQLite's.
    files: HashSet<u64>,
    /// Processes that executed statements, of which transactions were inferred, that used such files.
    with_statements: HashSet<u32>,
    inferred: HashSet<u32>,
    users: HashSet<u32>,
    /// Names of the processes that were to be recorded.
    tracked: BTreeMap<u32, String>,
}

impl SqliteCoverage {
    pub fn operation(&mut self, row: &Operation) {
        match self.shapes.get(&row.shape) {
            Some(true) => drop(self.with_statements.insert(row.tgid)),
            Some(false) => drop(self.inferred.insert(row.tgid)),
            None => {}
        }
    }

    pub fn shape(&mut self, row: &Shape) {
        let statement = row.is(ShapeKind::Statement);
        if statement || row.is(ShapeKind::Transaction) {
            self.shapes.insert(row.id, statement);
        }
    }

    pub fn span(&mut self, row: &Span) {
        if row.layer == Layer::Syscall && row.file.is_some_and(|file| self.files.contains(&file)) {
            self.users.insert(row.tgid);
        }
    }

    pub fn file(&mut self, row: &File) {
        if row.path.as_deref().is_some_and(|path| sqlite::class(path) != FileClass::Other) {
            self.files.insert(row.id);
        }
    }

    pub fn process(&mut self, row: &Process) {
        if row.tracked {
            self.tracked.insert(row.tgid, row.name.clone());
        }
    }

    /// What was not seen of the database's layer, and what stands in its place.
    pub fn rows(&self) -> Vec<Coverage> {
        let mut rows = BTreeMap::new();
        for (tgid, name) in self.tracked.iter().filter(|(tgid, _)| !self.with_statements.contains(tgid)) {
            let name = if name.is_empty() { format!("process {tgid}") } else { name.clone() };
            let how = if self.inferred.contains(tgid) {
                format!("no SQLite was found in {name}: its transactions are inferred from its files")
            } else if self.users.contains(tgid) {
                format!(
                    "no SQLite was found in {name}, though it uses files named like SQLite's: its statements are not \
                     recorded"
                )
            } else {
                continue;
            };
            rows.insert(name, how);
        }
        if rows.is_empty() && self.with_statements.is_empty() {
            let how = "no SQLite: no statement, and no file named like SQLite's";
            rows.insert("sqlite".into(), how.into());
        }
        rows.into_iter().map(|(probe, how)| Coverage::absent(Layer::Database, probe, Absence::NoSqlite, how)).collect()
    }
}
