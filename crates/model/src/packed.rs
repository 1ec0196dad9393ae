//! The rows of a table in memory, as columns of numbers in as few bits as they need.
//!
//! A span as a struct has 224 bytes, most of which repeat those of the span before: its process, its file, the upper half of its time.
//! Here a column is in blocks of 128 rows, each with its lowest value, and the distances from it in equally many bits; a word is its
//! number in a list. Any row is found at once, without the others of its block, and a column can be read without the others of its
//! table. A span takes 15 to 30 bytes.

mod in_order;

use crate::column::{Cell, Row, Texts};
pub use in_order::InOrder;
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Rows of a block.
const BLOCK_ROWS: usize = 128;

/// Which rows of a block have a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    All,
    None,
    /// Those whose bit is set, in the two words before the values.
    Some,
}

/// Where a block is, and how to read it.
#[derive(Debug, Clone, Copy)]
struct Block {
    lowest: i64,
    /// Its first word.
    word: u32,
    bits: u8,
    present: Presence,
}

/// One column.
#[derive(Debug, Clone, Default)]
struct Column {
    blocks: Vec<Block>,
    words: Vec<u64>,
    /// Rows that do not fill a block yet.
    last: Vec<Option<i64>>,
}

impl Column {
    #[inline]
    fn push(&mut self, value: Option<i64>) {
        self.last.push(value);
        if self.last.len() == BLOCK_ROWS {
            self.pack();
        }
    }

    fn pack(&mut self) {
        let values = || self.last.iter().flatten();
        let lowest = values().min().copied().unwrap_or(0);
        let span = values().max().map_or(0, |highest| highest.wrapping_sub(lowest).cast_unsigned());
        let bits = u64::BITS - span.leading_zeros();
        let present = match values().count() {
            0 => Presence::None,
            BLOCK_ROWS => Presence::All,
            _ => Presence::Some,
        };
        let word = self.words.len() as u32;
        if present == Presence::Some {
            let is = |at: usize| u64::from(self.last[at].is_some()) << (at % 64);
            let marks = [0, 64].map(|from| (from..from + 64).fold(0, |marks, at| marks | is(at)));
            self.words.extend(marks);
        }
        let first = self.words.len();
        self.words.resize(first + bits as usize * BLOCK_ROWS / 64, 0);
        if bits > 0 {
            let words = &mut self.words[first..];
            for (at, value) in self.last.iter().enumerate() {
                let Some(value) = value else { continue };
                let distance = value.wrapping_sub(lowest).cast_unsigned();
                let bit = at * bits as usize;
                let (word, shift) = (bit / 64, bit % 64);
                words[word] |= distance << shift;
                if shift + bits as usize > 64 {
                    words[word + 1] |= distance >> (64 - shift);
                }
            }
        }
        self.blocks.push(Block { lowest, word, bits: bits as u8, present });
        self.last.clear();
    }

    #[inline]
    fn get(&self, row: usize) -> Option<i64> {
        let (at, row) = (row / BLOCK_ROWS, row % BLOCK_ROWS);
        let Some(block) = self.blocks.get(at) else { return self.last[row] };
        let mut first = block.word as usize;
        match block.present {
            Presence::All => {}
            Presence::None => return None,
            Presence::Some => {
                if self.words[first + row / 64] >> (row % 64) & 1 == 0 {
                    return None;
                }
                first += BLOCK_ROWS / 64;
            }
        }
        let bits = usize::from(block.bits);
        if bits == 0 {
            return Some(block.lowest);
        }
        let bit = row * bits;
        let (word, shift) = (first + bit / 64, bit % 64);
        let mut distance = self.words[word] >> shift;
        if shift + bits > 64 {
            distance |= self.words[word + 1] << (64 - shift);
        }
        Some(block.lowest.wrapping_add((distance & (u64::MAX >> (64 - bits))).cast_signed()))
    }

    /// Unpacks a block.
    fn unpack(&self, at: usize, rows: &mut in_order::Values) {
        let Some(block) = self.blocks.get(at) else {
            rows.set(&self.last);
            return;
        };
        let mut first = block.word as usize;
        rows.present = match block.present {
            Presence::All => [u64::MAX; 2],
            Presence::None => [0; 2],
            Presence::Some => {
                first += BLOCK_ROWS / 64;
                [self.words[first - 2], self.words[first - 1]]
            }
        };
        let bits = usize::from(block.bits);
        if bits == 0 {
            rows.values.fill(block.lowest);
            return;
        }
        let words = &self.words[first..first + bits * BLOCK_ROWS / 64];
        let mask = u64::MAX >> (64 - bits);
        for (at, value) in rows.values.iter_mut().enumerate() {
            let (word, shift) = (at * bits / 64, at * bits % 64);
            let next = words.get(word + 1).copied().unwrap_or(0);
            // In two steps, since a shift by 64 has no result.
            let distance = words[word] >> shift | next << 1 << (63 - shift);
            *value = block.lowest.wrapping_add((distance & mask).cast_signed());
        }
    }

    fn bytes(&self) -> usize {
        self.blocks.capacity() * size_of::<Block>() + self.words.capacity() * 8
    }
}

/// Words that were looked up before, by their place in memory: most columns of text repeat few.
#[derive(Debug, Clone)]
struct RecentWords([Option<(&'static str, Option<i64>)>; RECENT_WORDS]);

const RECENT_WORDS: usize = 32;

/// The rows of a table.
pub struct PackedTable<T> {
    columns: Vec<Column>,
    texts: Vec<Texts>,
    recent: Vec<RecentWords>,
    rows: PhantomData<fn() -> T>,
}

impl<T: Row> Default for PackedTable<T> {
    fn default() -> Self {
        let all = T::TABLE.columns.len();
        Self {
            columns: vec![Column::default(); all],
            texts: vec![Texts::default(); all],
            recent: vec![RecentWords([None; RECENT_WORDS]); all],
            rows: PhantomData,
        }
    }
}

impl<T> Clone for PackedTable<T> {
    fn clone(&self) -> Self {
        let (columns, texts, recent) = (self.columns.clone(), self.texts.clone(), self.recent.clone());
        Self { columns, texts, recent, rows: PhantomData }
    }
}

impl<T: Row> fmt::Debug for PackedTable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.len(), T::TABLE.name)
    }
}

impl<T: Row> PackedTable<T> {
    #[inline]
    pub fn len(&self) -> usize {
        let first = &self.columns[0];
        first.blocks.len() * BLOCK_ROWS + first.last.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that the numbers take, without the texts.
    pub fn size_bytes(&self) -> usize {
        self.columns.iter().map(Column::bytes).sum()
    }

    /// The row at this position.
    ///
    /// # Panics
    /// There are not so many.
    #[inline]
    pub fn at(&self, row: usize) -> T {
        T::from_numbers(&|column| self.columns[column].get(row), &self.texts)
    }

    /// The row at this position, if there are so many.
    pub fn get(&self, row: usize) -> Option<T> {
        (row < self.len()).then(|| self.at(row))
    }

    pub fn last(&self) -> Option<T> {
        self.get(self.len().checked_sub(1)?)
    }

    /// The value of one column, as its number.
    #[inline]
    pub(crate) fn number_at(&self, column: usize, row: usize) -> Option<i64> {
        self.columns[column].get(row)
    }

    /// The texts of a column.
    #[inline]
    pub(crate) fn texts_of(&self, column: usize) -> &Texts {
        &self.texts[column]
    }

    pub fn iter(&self) -> Iter<'_, T> {
        Iter { table: self, rows: self.in_order(), next: 0, end: self.len() }
    }

    /// Reads rows that are near each other.
    pub fn in_order(&self) -> InOrder<'_, T> {
        InOrder::new(self)
    }

    pub fn push(&mut self, row: T) {
        let mut columns = self.columns.iter_mut();
        row.numbers(&mut self.texts, &mut |number| {
            if let Some(column) = columns.next() {
                column.push(number);
            }
        });
    }

    /// Adds the next cell of a column, and returns whether it is valid there. The columns must become equally long.
    pub fn push_cell(&mut self, column: usize, cell: &Cell) -> bool {
        let texts = &mut self.texts[column];
        let number = match cell {
            Cell::Text(Cow::Borrowed(word)) => {
                let slot = &mut self.recent[column].0[(word.as_ptr().addr() >> 4) % RECENT_WORDS];
                match slot {
                    Some((known, number)) if std::ptr::eq(*known, *word) => Some(*number),
                    _ => {
                        let number = T::number_of(column, cell, texts);
                        *slot = number.map(|number| (*word, number));
                        number
                    }
                }
            }
            _ => T::number_of(column, cell, texts),
        };
        self.columns[column].push(number.flatten());
        number.is_some()
    }

    /// Adds the next numbers of a column that is no text, and returns how many are invalid there. The columns must become equally long.
    pub fn push_numbers(&mut self, column: usize, numbers: impl Iterator<Item = Option<i64>>) -> u64 {
        let (low, high) = T::RANGES[column];
        let optional = T::TABLE.columns[column].optional;
        let mut invalid = 0;
        let own = &mut self.columns[column];
        for number in numbers {
            let valid = number.map_or(optional, |number| (low..=high).contains(&number));
            invalid += u64::from(!valid);
            own.push(number.filter(|_| valid));
        }
        invalid
    }

    /// The rows, to be changed; they are packed again when the result is dropped.
    pub fn edit(&mut self) -> Edit<'_, T> {
        Edit { rows: self.iter().collect(), table: self }
    }
}

impl<T: Row> Extend<T> for PackedTable<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.push(row));
    }
}

impl<T: Row> FromIterator<T> for PackedTable<T> {
    fn from_iter<I: IntoIterator<Item = T>>(rows: I) -> Self {
        let mut table = Self::default();
        table.extend(rows);
        table
    }
}

impl<T: Row> From<Vec<T>> for PackedTable<T> {
    fn from(rows: Vec<T>) -> Self {
        rows.into_iter().collect()
    }
}

impl<'a, T: Row> IntoIterator for &'a PackedTable<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// Rows one after the other.
#[derive(Debug)]
pub struct Iter<'a, T: Row> {
    table: &'a PackedTable<T>,
    rows: InOrder<'a, T>,
    next: usize,
    end: usize,
}

impl<T: Row> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { rows: self.table.in_order(), ..*self }
    }
}

impl<T: Row> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        let row = self.next;
        (row < self.end).then(|| {
            self.next += 1;
            self.rows.at(row)
        })
    }

    fn nth(&mut self, rows: usize) -> Option<T> {
        self.next = self.next.saturating_add(rows).min(self.end);
        self.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.end - self.next, Some(self.end - self.next))
    }
}

impl<T: Row> ExactSizeIterator for Iter<'_, T> {}

impl<T: Row> DoubleEndedIterator for Iter<'_, T> {
    fn next_back(&mut self) -> Option<T> {
        (self.next < self.end).then(|| {
            self.end -= 1;
            self.table.at(self.end)
        })
    }
}

/// Rows that are being changed.
#[derive(Debug)]
pub struct Edit<'a, T: Row> {
    rows: Vec<T>,
    table: &'a mut PackedTable<T>,
}

impl<T: Row> Deref for Edit<'_, T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.rows
    }
}

impl<T: Row> DerefMut for Edit<'_, T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.rows
    }
}

impl<T: Row> Drop for Edit<'_, T> {
    fn drop(&mut self) {
        *self.table = std::mem::take(&mut self.rows).into();
    }
}
