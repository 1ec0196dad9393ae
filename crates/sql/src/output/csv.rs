//! CSV: RFC 4180, with texts quoted as in `fathom export --csv`.

use super::{Sink, text};
use anyhow::Result;
use archive::export::csv_text;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use std::io::Write;

pub struct Csv<'a>(&'a mut (dyn Write + Send));

impl<'a> Csv<'a> {
    pub fn new(schema: SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Self> {
        let names: Vec<_> = schema.fields().iter().map(|field| csv_text(field.name()).into_owned()).collect();
        write!(out, "{}\r\n", names.join(","))?;
        Ok(Self(out))
    }
}

impl Sink for Csv<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        for row in 0..rows.num_rows() {
            for (at, column) in rows.columns().iter().enumerate() {
                if at > 0 {
                    self.0.write_all(b",")?;
                }
                let value = text(column, row)?;
                // A negative number is not a formula.
                if column.data_type().is_numeric() {
                    self.0.write_all(value.as_bytes())?;
                } else {
                    self.0.write_all(csv_text(&value).as_bytes())?;
                }
            }
            self.0.write_all(b"\r\n")?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}
