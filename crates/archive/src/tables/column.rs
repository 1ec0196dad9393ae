//! The cells of one column, a few thousand rows at a time. Values stay as Parquet decodes them until their row is wanted: the
//! texts of a dictionary are shared, and a file whose rows repeat a long one must not be able to fill the memory with copies.

use crate::error::Result;
use model::table::Cell;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int64Type};
use parquet::errors::ParquetError;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// A column of a row group.
pub struct Column<'a> {
    values: Values,
    optional: bool,
    /// The value that means empty.
    nothing: Option<&'a Cell>,
    /// What is handed out next; kept for its memory.
    numbers: Vec<Option<i64>>,
}

enum Values {
    Int(Batch<Int64Type>),
    Double(Batch<DoubleType>),
    Bool(Batch<BoolType>),
    Text(Batch<ByteArrayType>, Box<RecentWords>),
}

impl<'a> Column<'a> {
    /// # Errors
    /// Its chunk has a type that no column of ours has.
    pub fn new(reader: ColumnReader, optional: bool, nothing: Option<&'a Cell>) -> Result<Self, ParquetError> {
        let values = match reader {
            ColumnReader::Int64ColumnReader(r) => Values::Int(Batch::new(r)),
            ColumnReader::DoubleColumnReader(r) => Values::Double(Batch::new(r)),
            ColumnReader::BoolColumnReader(r) => Values::Bool(Batch::new(r)),
            ColumnReader::ByteArrayColumnReader(r) => Values::Text(Batch::new(r), Box::default()),
            _ => return Err(ParquetError::General("a column chunk has a different type than its column".into())),
        };
        Ok(Self { values, optional, nothing, numbers: Vec::new() })
    }

    /// Reads the values of exactly `rows` further rows.
    ///
    /// # Errors
    /// The column is damaged, or ends earlier.
    pub fn fill(&mut self, rows: usize) -> Result<(), ParquetError> {
        match &mut self.values {
            Values::Int(batch) => batch.fill(rows, self.optional),
            Values::Double(batch) => batch.fill(rows, self.optional),
            Values::Bool(batch) => batch.fill(rows, self.optional),
            Values::Text(batch, _) => batch.fill(rows, self.optional),
        }
    }

    /// Hands all values of these rows to `sink`, as those of its column of this number.
    pub fn drain(&mut self, rows: usize, number: usize, sink: &mut dyn Sink) -> Result<(), ParquetError> {
        let whole = |x: &i64| self.nothing.is_none_or(|nothing| *nothing != Cell::I64(*x)).then_some(*x);
        self.numbers.clear();
        match &self.values {
            Values::Int(batch) => {
                self.numbers.extend(batch.values_or_none(rows, self.optional)?.map(|x| x.and_then(whole)))
            }
            Values::Double(batch) if self.nothing.is_none() => {
                let bits = |x: &f64| x.to_bits().cast_signed();
                self.numbers.extend(batch.values_or_none(rows, self.optional)?.map(|x| x.map(bits)));
            }
            _ => {
                return (0..rows).try_for_each(|_| {
                    sink.cell(number, &self.next()?);
                    Ok(())
                });
            }
        }
        sink.numbers(number, &self.numbers);
        Ok(())
    }

    /// The cell of the next of these rows.
    ///
    /// # Errors
    /// There are fewer values than rows, or a text is not UTF-8.
    pub fn next(&mut self) -> Result<Cell, ParquetError> {
        let cell = match &mut self.values {
            Values::Int(batch) => batch.next(self.optional)?.map(|x| Cell::I64(*x)),
            Values::Double(batch) => batch.next(self.optional)?.map(|x| Cell::F64(*x)),
            Values::Bool(batch) => batch.next(self.optional)?.map(|x| Cell::Bool(*x)),
            Values::Text(batch, recent) => match batch.next(self.optional)? {
                Some(text) => Some(Cell::Text(recent.text(text)?)),
                None => None,
            },
        };
        Ok(cell.filter(|cell| self.nothing != Some(cell)).unwrap_or(Cell::Empty))
    }
}

/// Takes the columns of a table: some rows of one column, then the same rows of the next.
pub trait Sink {
    /// The next numbers of a column; fractions as their bits.
    fn numbers(&mut self, column: usize, numbers: &[Option<i64>]);
    /// The next cell of a column.
    fn cell(&mut self, column: usize, cell: &Cell);
    /// All columns of a row group were read.
    ///
    /// # Errors
    /// They are not what their table may hold.
    fn group_ends(&mut self) -> Result<()>;
}

/// Values of some rows, and which of them are next.
struct Batch<D: DataType> {
    reader: ColumnReaderImpl<D>,
    present: Vec<i16>,
    values: Vec<D::T>,
    row: usize,
    value: usize,
}

impl<D: DataType> Batch<D> {
    fn new(reader: ColumnReaderImpl<D>) -> Self {
        Self { reader, present: Vec::new(), values: Vec::new(), row: 0, value: 0 }
    }

    fn fill(&mut self, rows: usize, optional: bool) -> Result<(), ParquetError> {
        self.present.clear();
        self.values.clear();
        (self.row, self.value) = (0, 0);
        let mut records = 0;
        while records < rows {
            let present = optional.then_some(&mut self.present);
            let (more, _, _) = self.reader.read_records(rows - records, present, None, &mut self.values)?;
            if more == 0 {
                return Err(ParquetError::EOF(format!("a column ends {} rows too early", rows - records)));
            }
            records += more;
        }
        Ok(())
    }

    /// The values of all rows.
    fn values_or_none(&self, rows: usize, optional: bool) -> Result<impl Iterator<Item = Option<&D::T>>, ParquetError> {
        let there = if optional { self.present.iter().filter(|level| **level > 0).count() } else { rows };
        if self.values.len() < there || optional && self.present.len() < rows {
            return Err(ParquetError::EOF("a column has fewer values than rows".into()));
        }
        let mut values = self.values.iter();
        Ok((0..rows).map(move |row| if !optional || self.present[row] > 0 { values.next() } else { None }))
    }

    fn next(&mut self, optional: bool) -> Result<Option<&D::T>, ParquetError> {
        let short = || ParquetError::EOF("a column has fewer values than rows".into());
        let there = !optional || *self.present.get(self.row).ok_or_else(short)? > 0;
        self.row += 1;
        if !there {
            return Ok(None);
        }
        self.value += 1;
        self.values.get(self.value - 1).map(Some).ok_or_else(short)
    }
}

/// Short texts that were read before. Most columns of text hold few words (a layer, a call's name, a request's flags), and
/// otherwise a span would take more memory for its words than for all its numbers.
struct Words(BTreeSet<&'static str>);

/// They are kept for the life of the program, so there must not be many: 32 KiB at most.
const WORDS_MAX: usize = 1024;
const WORD_BYTES_MAX: usize = 32;

static SHARED_WORDS: Mutex<Words> = Mutex::new(Words(BTreeSet::new()));

impl Words {
    fn get(&mut self, text: &str) -> Option<&'static str> {
        if let Some(&word) = self.0.get(text) {
            return Some(word);
        }
        if text.len() > WORD_BYTES_MAX || self.0.len() >= WORDS_MAX {
            return None;
        }
        let word: &'static str = Box::leak(text.to_owned().into_boxed_str());
        self.0.insert(word);
        Some(word)
    }
}

/// Words by the place of a dictionary's text in memory: rows that repeat a word need not search for it. The text is held, so
/// that no other can take its place.
struct RecentWords([Option<(ByteArray, &'static str)>; RECENT_WORDS]);

const RECENT_WORDS: usize = 64;

impl Default for RecentWords {
    fn default() -> Self {
        Self([const { None }; RECENT_WORDS])
    }
}

impl RecentWords {
    fn text(&mut self, bytes: &ByteArray) -> Result<Cow<'static, str>, ParquetError> {
        let data = bytes.data();
        let slot = &mut self.0[((data.as_ptr().addr() >> 2) ^ data.len()) % RECENT_WORDS];
        if let Some((known, word)) = slot
            && std::ptr::eq(known.data(), data)
        {
            return Ok(Cow::Borrowed(word));
        }
        let text = std::str::from_utf8(data).map_err(|e| ParquetError::General(e.to_string()))?;
        let word = SHARED_WORDS.lock().unwrap_or_else(PoisonError::into_inner).get(text);
        if let Some(word) = word {
            *slot = Some((bytes.clone(), word));
        }
        Ok(word.map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed))
    }
}
