//! Tables in memory as packed columns: whole, or a row group at a time.

use crate::archive::{Archive, own_text};
use crate::error::{Error, Result};
use crate::tables::{self, ReadLimit, Sink};
use model::packed::PackedTable;
use model::table::{Cell, Row};
use std::fs;
use std::path::PathBuf;

impl Archive {
    /// All rows of a table, packed. A table without rows is empty.
    pub fn packed<T: Row>(&self) -> Result<PackedTable<T>> {
        let mut packing = TablePacker::<T>::new(self, None);
        tables::read_columns(self.dir(), &T::TABLE, &mut packing)?;
        Ok(packing.table)
    }

    /// Hands the rows of a table to `each`, a row group at a time, with no more of them in memory.
    ///
    /// # Errors
    /// As [`Archive::rows`]; groups before the damaged one have been handed out then.
    pub fn for_each_group<T: Row>(&self, mut each: impl FnMut(PackedTable<T>)) -> Result<()> {
        tables::read_columns(self.dir(), &T::TABLE, &mut TablePacker::new(self, Some(&mut each)))
    }
}

/// The columns of a table as they are read.
struct TablePacker<'a, T> {
    table: PackedTable<T>,
    path: PathBuf,
    bound: ReadLimit,
    /// Bytes of texts, and values that are none of their columns.
    texts: u64,
    invalid: u64,
    /// Takes each group; without it, the table becomes whole.
    each: Option<&'a mut dyn FnMut(PackedTable<T>)>,
}

impl<'a, T: Row> TablePacker<'a, T> {
    fn new(archive: &Archive, each: Option<&'a mut dyn FnMut(PackedTable<T>)>) -> Self {
        let path = tables::table_path(archive.dir(), T::TABLE.name);
        let bound = ReadLimit::for_file_size(fs::metadata(&path).map_or(0, |about| about.len()));
        Self { table: PackedTable::default(), path, bound, texts: 0, invalid: 0, each }
    }
}

impl<T: Row> Sink for TablePacker<'_, T> {
    fn numbers(&mut self, column: usize, numbers: &[Option<i64>]) {
        self.invalid += self.table.push_numbers(column, numbers.iter().copied());
    }

    fn cell(&mut self, column: usize, cell: &Cell) {
        self.texts = self.texts.saturating_add(own_text(cell));
        // A group is read to its end; further texts are dropped.
        let cell = if self.bound.is_exceeded_by_texts(self.texts) { &Cell::Empty } else { cell };
        self.invalid += u64::from(!self.table.push_cell(column, cell));
    }

    fn group_ends(&mut self) -> Result<()> {
        if self.bound.is_exceeded_by_texts(self.texts) {
            let texts = self.texts;
            return Err(Error::damaged_table(&self.path, format!("it repeats texts until they take {texts} bytes")));
        }
        if self.invalid > 0 {
            let invalid = self.invalid;
            return Err(Error::damaged_table(&self.path, format!("{invalid} values are invalid in their columns")));
        }
        if let Some(each) = &mut self.each {
            each(std::mem::take(&mut self.table));
            self.texts = 0;
        }
        Ok(())
    }
}
