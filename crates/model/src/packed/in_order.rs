//! Rows that are read one after the other: a block at a time is unpacked, in a tenth of the time that its rows take one by one.

use super::{BLOCK_ROWS, PackedTable};
use crate::column::Row;
use std::fmt;

/// The unpacked numbers of a block of one column.
pub struct Values {
    pub values: [i64; BLOCK_ROWS],
    /// A bit for each row that has a value.
    pub present: [u64; BLOCK_ROWS / 64],
}

impl Values {
    /// Takes the rows of a block that is not packed yet.
    pub fn set(&mut self, rows: &[Option<i64>]) {
        self.present = [0; BLOCK_ROWS / 64];
        for (at, value) in rows.iter().enumerate() {
            self.values[at] = value.unwrap_or(0);
            self.present[at / 64] |= u64::from(value.is_some()) << (at % 64);
        }
    }

    #[inline]
    fn get(&self, row: usize) -> Option<i64> {
        (self.present[row / 64] >> (row % 64) & 1 == 1).then_some(self.values[row])
    }
}

/// The rows of a table, of which the block that was read last is unpacked.
pub struct InOrder<'a, T> {
    table: &'a PackedTable<T>,
    block: Option<usize>,
    columns: Vec<Values>,
}

impl<T> fmt::Debug for InOrder<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "block {:?}", self.block)
    }
}

impl<'a, T: Row> InOrder<'a, T> {
    pub(super) fn new(table: &'a PackedTable<T>) -> Self {
        Self { table, block: None, columns: Vec::new() }
    }

    /// The row at this position; there must be so many.
    #[inline]
    pub fn at(&mut self, row: usize) -> T {
        let (block, row) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        if self.block != Some(block) {
            self.unpack(block);
        }
        T::from_numbers(&|column| self.columns[column].get(row), &self.table.texts)
    }

    fn unpack(&mut self, block: usize) {
        let all = self.table.columns.len();
        self.columns.resize_with(all, || Values { values: [0; BLOCK_ROWS], present: [0; BLOCK_ROWS / 64] });
        for (column, values) in self.table.columns.iter().zip(&mut self.columns) {
            column.unpack(block, values);
        }
        self.block = Some(block);
    }
}
