//! Columns side by side, numbers to the right. Widths are those of the first thousand rows; a wider value later pushes its line
//! out and is not cut.

use super::{Sink, text};
use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use model::text::shown;
use std::io::Write;

/// Rows that decide the widths.
const MEASURED: usize = 1000;

pub struct Table<'a> {
    out: &'a mut (dyn Write + Send),
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Rows that wait for the widths, which are then known.
    waiting: Option<Vec<Vec<String>>>,
    rows: u64,
}

impl<'a> Table<'a> {
    pub fn new(schema: SchemaRef, out: &'a mut (dyn Write + Send)) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|field| shown(field.name())).collect();
        let right = schema.fields().iter().map(|field| field.data_type().is_numeric()).collect();
        let widths = names.iter().map(|name| name.chars().count()).collect();
        Self { out, names, right, widths, waiting: Some(Vec::new()), rows: 0 }
    }

    fn line(&mut self, cells: &[String]) -> Result<()> {
        let mut line = String::new();
        for ((cell, &width), &right) in cells.iter().zip(&self.widths).zip(&self.right) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            match right {
                true => line += &format!("{cell:>width$}"),
                false => line += &format!("{cell:<width$}"),
            }
        }
        Ok(writeln!(self.out, "{}", line.trim_end())?)
    }

    fn begin(&mut self) -> Result<()> {
        let Some(waiting) = self.waiting.take() else { return Ok(()) };
        for row in &waiting {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
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
                Some(waiting) if waiting.len() < MEASURED => waiting.push(cells),
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
