//! Columns and rows as every table has them: what a value is in a cell of a file, and as a number in memory.

use crate::words::{Absence, Confidence, Layer, LossSource, Origin, Reason, Relation, Wait};
use std::borrow::Cow;
use std::collections::HashMap;

/// The type of a column. There is no unsigned one: the difference of two unsigned times wraps in one engine, overflows in
/// another and is a decimal in a third.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnType {
    /// Signed, 64 bits.
    I64,
    /// Binary floating point, 64 bits.
    F64,
    /// Truth.
    Bool,
    /// Text, UTF-8.
    Text,
}

/// A column as every reader must know it.
#[derive(Debug, Clone, Copy)]
pub struct ColumnInfo {
    /// Name; a unit comes last in it.
    pub name: &'static str,
    pub kind: ColumnType,
    /// Whether a row may leave it empty.
    pub optional: bool,
    /// What it means.
    pub doc: &'static str,
}

#[derive(Debug, Clone, Copy)]
pub struct TableInfo {
    /// Name; the file is `NAME.parquet`.
    pub name: &'static str,
    /// What a row is.
    pub doc: &'static str,
    /// Columns in order.
    pub columns: &'static [ColumnInfo],
}

/// One value of a row.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    /// Nothing.
    Empty,
    /// Integer. A u64 of 2^63 or more, as an inode number or a seed may be, is stored minus 2^64: a key stays a key, and reads back
    /// unchanged.
    I64(i64),
    /// Floating point.
    F64(f64),
    /// Truth.
    Bool(bool),
    /// Text.
    Text(Cow<'static, str>),
}

/// A type that a column may have.
pub trait Column: Sized {
    /// Its type in a file.
    const KIND: ColumnType;
    /// Whether it may be empty.
    const OPTIONAL: bool = false;
    /// The numbers that may stand for it in a packed column.
    const RANGE: (i64, i64) = (i64::MIN, i64::MAX);
    /// The value as a cell.
    fn to_cell(&self) -> Cell;
    /// The value of a cell; `None` if the cell is of another type (a damaged or foreign file).
    fn from_cell(cell: &Cell) -> Option<Self>;
    /// The number that stands for it in a packed column; `None` if it is empty. A text is its number in `texts`.
    fn to_number(&self, texts: &mut Texts) -> Option<i64>;
    /// The value of such a number.
    fn from_number(number: Option<i64>, texts: &Texts) -> Self;
    /// The number of a cell's value; `None` if the cell is of another type.
    fn number_of(cell: &Cell, texts: &mut Texts) -> Option<Option<i64>> {
        Self::from_cell(cell).map(|value| value.to_number(texts))
    }
}

impl Column for u64 {
    const KIND: ColumnType = ColumnType::I64;
    fn to_cell(&self) -> Cell {
        Cell::I64(self.cast_signed())
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::I64(x) => Some(x.cast_unsigned()),
            _ => None,
        }
    }
    fn to_number(&self, _: &mut Texts) -> Option<i64> {
        Some(self.cast_signed())
    }
    #[inline]
    fn from_number(number: Option<i64>, _: &Texts) -> Self {
        number.unwrap_or_default().cast_unsigned()
    }
}

macro_rules! small_columns {
    ($($t:ty),*) => {$(
        impl Column for $t {
            const KIND: ColumnType = ColumnType::I64;
            const RANGE: (i64, i64) = (0, <$t>::MAX as i64);
            fn to_cell(&self) -> Cell { Cell::I64(i64::from(*self)) }
            fn from_cell(cell: &Cell) -> Option<Self> {
                match cell { Cell::I64(x) => (*x).try_into().ok(), _ => None }
            }
            fn to_number(&self, _: &mut Texts) -> Option<i64> { Some(i64::from(*self)) }
            #[inline]
            fn from_number(number: Option<i64>, _: &Texts) -> Self {
                number.unwrap_or_default().try_into().unwrap_or_default()
            }
        }
    )*};
}
small_columns!(u32, u16);

impl Column for i64 {
    const KIND: ColumnType = ColumnType::I64;
    fn to_cell(&self) -> Cell {
        Cell::I64(*self)
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::I64(x) => Some(*x),
            _ => None,
        }
    }
    fn to_number(&self, _: &mut Texts) -> Option<i64> {
        Some(*self)
    }
    #[inline]
    fn from_number(number: Option<i64>, _: &Texts) -> Self {
        number.unwrap_or_default()
    }
}

impl Column for f64 {
    const KIND: ColumnType = ColumnType::F64;
    fn to_cell(&self) -> Cell {
        Cell::F64(*self)
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::F64(x) => Some(*x),
            _ => None,
        }
    }
    fn to_number(&self, _: &mut Texts) -> Option<i64> {
        Some(self.to_bits().cast_signed())
    }
    #[inline]
    fn from_number(number: Option<i64>, _: &Texts) -> Self {
        Self::from_bits(number.unwrap_or_default().cast_unsigned())
    }
}

impl Column for bool {
    const KIND: ColumnType = ColumnType::Bool;
    fn to_cell(&self) -> Cell {
        Cell::Bool(*self)
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Bool(x) => Some(*x),
            _ => None,
        }
    }
    fn to_number(&self, _: &mut Texts) -> Option<i64> {
        Some(i64::from(*self))
    }
    #[inline]
    fn from_number(number: Option<i64>, _: &Texts) -> Self {
        number == Some(1)
    }
}

impl Column for String {
    const KIND: ColumnType = ColumnType::Text;
    fn to_cell(&self) -> Cell {
        Cell::Text(Cow::Owned(self.clone()))
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Text(x) => Some(x.to_string()),
            _ => None,
        }
    }
    fn to_number(&self, texts: &mut Texts) -> Option<i64> {
        Some(texts.number(self))
    }
    #[inline]
    fn from_number(number: Option<i64>, texts: &Texts) -> Self {
        number.map_or_else(Self::new, |number| texts.text(number).to_string())
    }
}

/// A text that the program itself chose, such as a span's kind. Read back, it is a text like any other.
impl Column for Cow<'static, str> {
    const KIND: ColumnType = ColumnType::Text;
    fn to_cell(&self) -> Cell {
        Cell::Text(self.clone())
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Text(x) => Some(x.clone()),
            _ => None,
        }
    }
    fn to_number(&self, texts: &mut Texts) -> Option<i64> {
        Some(texts.number_of(self))
    }
    #[inline]
    fn from_number(number: Option<i64>, texts: &Texts) -> Self {
        number.map_or(Cow::Borrowed(""), |number| texts.text(number).clone())
    }
}

impl<T: Column> Column for Option<T> {
    const KIND: ColumnType = T::KIND;
    const OPTIONAL: bool = true;
    const RANGE: (i64, i64) = T::RANGE;
    fn to_cell(&self) -> Cell {
        self.as_ref().map_or(Cell::Empty, Column::to_cell)
    }
    fn from_cell(cell: &Cell) -> Option<Self> {
        match cell {
            Cell::Empty => Some(None),
            other => T::from_cell(other).map(Some),
        }
    }
    fn to_number(&self, texts: &mut Texts) -> Option<i64> {
        self.as_ref()?.to_number(texts)
    }
    #[inline]
    fn from_number(number: Option<i64>, texts: &Texts) -> Self {
        number.map(|number| T::from_number(Some(number), texts))
    }
}

macro_rules! named_columns {
    ($($t:ty),*) => {$(
        impl Column for $t {
            const KIND: ColumnType = ColumnType::Text;
            fn to_cell(&self) -> Cell { Cell::Text(Cow::Borrowed(self.name())) }
            fn from_cell(cell: &Cell) -> Option<Self> {
                match cell { Cell::Text(x) => Self::from_name(x), _ => None }
            }
            fn to_number(&self, _: &mut Texts) -> Option<i64> {
                Self::ALL.iter().position(|one| one == self).map(|at| at as i64)
            }
            #[inline]
            fn from_number(number: Option<i64>, _: &Texts) -> Self {
                let at = number.and_then(|at| usize::try_from(at).ok()).unwrap_or_default();
                Self::ALL.get(at).copied().unwrap_or(Self::ALL[0])
            }
        }
    )*};
}
named_columns!(Absence, Layer, Relation, Confidence, Origin, Reason, LossSource, Wait);

/// A row of a table.
pub trait Row: Sized {
    const TABLE: TableInfo;
    /// The lowest and the highest number of each column.
    const RANGES: &'static [(i64, i64)];
    /// Its values in the order of the columns.
    fn cells(&self) -> Vec<Cell>;
    /// The row of these values; `None` if one is of the wrong type.
    fn from_cells(cells: &[Cell]) -> Option<Self>;
    /// Passes the numbers of its values in the order of the columns, with the texts of each column.
    fn numbers(&self, texts: &mut [Texts], each: &mut dyn FnMut(Option<i64>));
    /// The row of the numbers of each column.
    fn from_numbers(number: &impl Fn(usize) -> Option<i64>, texts: &[Texts]) -> Self;
    /// The number of a cell of a column; `None` if it is of the wrong type.
    fn number_of(column: usize, cell: &Cell, texts: &mut Texts) -> Option<Option<i64>>;
}

/// The position of a column among those of its table.
pub(crate) const fn position(columns: &[ColumnInfo], name: &str) -> usize {
    let mut at = 0;
    while at < columns.len() {
        let (known, name) = (columns[at].name.as_bytes(), name.as_bytes());
        let mut same = 0;
        while same < known.len() && same < name.len() && known[same] == name[same] {
            same += 1;
        }
        if same == known.len() && same == name.len() {
            return at;
        }
        at += 1;
    }
    panic!("a column is not one of its table");
}

/// The texts of a column, each once.
#[derive(Debug, Clone, Default)]
pub struct Texts {
    all: Vec<Cow<'static, str>>,
    number: HashMap<Cow<'static, str>, i64>,
}

impl Texts {
    /// The number of a text.
    pub fn number(&mut self, text: &str) -> i64 {
        self.number.get(text).copied().unwrap_or_else(|| self.add(Cow::Owned(text.to_owned())))
    }

    /// The same of a text that may be one of the program's own words: then rows that are read share it, without a copy of each.
    #[expect(clippy::ptr_arg, reason = "whether it is borrowed decides whether it is copied")]
    pub fn number_of(&mut self, text: &Cow<'static, str>) -> i64 {
        self.number.get(text).copied().unwrap_or_else(|| self.add(text.clone()))
    }

    fn add(&mut self, text: Cow<'static, str>) -> i64 {
        let number = self.all.len() as i64;
        self.all.push(text.clone());
        self.number.insert(text, number);
        number
    }

    /// The text of a number.
    #[inline]
    pub fn text(&self, number: i64) -> &Cow<'static, str> {
        const EMPTY_TEXT: &Cow<'static, str> = &Cow::Borrowed("");
        usize::try_from(number).ok().and_then(|at| self.all.get(at)).unwrap_or(EMPTY_TEXT)
    }
}
