//! The plan of a statement for people: printed as lines, not as cells of a table. Its content is untrusted all the same.

use super::{Sink, text};
use anyhow::Result;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::Schema;
use model::text::shown;
use std::io::Write;

pub struct Plan<'a>(&'a mut (dyn Write + Send));

impl<'a> Plan<'a> {
    pub fn new(out: &'a mut (dyn Write + Send)) -> Self {
        Self(out)
    }

    /// Whether a result is a plan: the engine gives the results of EXPLAIN these columns.
    pub fn is(schema: &Schema) -> bool {
        schema.fields().iter().map(|field| field.name().as_str()).eq(["plan_type", "plan"])
    }
}

impl Sink for Plan<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        for row in 0..rows.num_rows() {
            writeln!(self.0, "{}", shown(&text(rows.column(0), row)?))?;
            for line in text(rows.column(1), row)?.lines() {
                writeln!(self.0, "  {}", shown(line))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(self.0.flush()?)
    }
}
