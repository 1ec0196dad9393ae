//! Columns side by side, numbers right-aligned. Widths are those of the first thousand rows; a wider value later widens its
//! line and is not cut.

use super::{Sink, text};
use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use model::text::shown;
use std::io::Write;
use unicode_width::UnicodeWidthStr;

/// Rows that determine the widths.
const MEASURED_ROWS: usize = 1000;

pub struct Table<'a> {
    out: &'a mut (dyn Write + Send),
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Rows buffered until the widths are known.
    waiting: Option<Vec<Vec<String>>>,
    rows: u64,
}

impl<'a> Table<'a> {
    pub fn new(schema: SchemaRef, out: &'a mut (dyn Write + Send)) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| shown(field.name())).collect();
        let right = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        let widths = names.iter().map(|name| name.width()).collect();
        Self { out, names, right, widths, waiting: Some(Vec::new()), rows: 0 }
    }

    fn line(&mut self, cells: &[String]) -> Result<()> {
        let mut line = String::new();
        for ((cell, &width), &right) in cells.iter().zip(&self.widths).zip(&self.right) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            // By width on a terminal: a character of East Asian scripts takes two columns.
            let blank = " ".repeat(width.saturating_sub(cell.width()));
            if right {
                line.extend([blank.as_str(), cell]);
            } else {
                line.extend([cell, blank.as_str()]);
            }
        }
        Ok(writeln!(self.out, "{}", line.trim_end())?)
    }

    fn begin(&mut self) -> Result<()> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        for row in &waiting {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.width());
            }
        }
        let names = self.names.clone();
        self.line(&names)?;
        let rules: Vec<String> = self.widths.iter().map(|&width| "-".repeat(width)).collect();
        self.line(&rules)?;
        waiting.iter().try_for_each(|row| self.line(row))
    }
}

impl Sink for Table<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        for row in 0..rows.num_rows() {
            let cells: Vec<String> =
                rows.columns().iter().map(|column| Ok(shown(&text(column, row)?))).collect::<Result<_>>()?;
            self.rows += 1;
            match &mut self.waiting {
                Some(waiting) if waiting.len() < MEASURED_ROWS => waiting.push(cells),
                _ => {
                    self.begin()?;
                    self.line(&cells)?;
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.begin()?;
        writeln!(self.out, "({})", model::counted(self.rows as usize, "row"))?;
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datafusion::arrow::array::{ArrayRef, Int64Array, StringArray};
    use std::sync::Arc;

    #[test]
    fn wide_characters_take_two_columns() -> Result<()> {
        let names: ArrayRef = Arc::new(StringArray::from(vec!["日本", "ü", "plain"]));
        let counts: ArrayRef = Arc::new(Int64Array::from(vec![1, 22, 3]));
        let rows = RecordBatch::try_from_iter([("name", names), ("数", counts)])?;
        let mut out = Vec::new();
        let mut table = Table::new(rows.schema(), &mut out);
        table.rows(&rows)?;
        table.finish()?;
        let lines = ["name   数", "-----  --", "日本    1", "ü      22", "plain   3", "(3 rows)", ""];
        assert_eq!(String::from_utf8(out)?, lines.join("\n"));
        Ok(())
    }
}
