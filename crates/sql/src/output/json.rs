//! JSON: one object, `{"format": "fathom.sql", "version": 1, "columns": […], "rows": [{…}, …]}`.
//!
//! Integers are written with all their digits; NaN and the infinities, which JSON has no numbers for, as the strings that
//! protobuf's JSON uses: null is what is missing. Lists are arrays, structures objects, and maps lists of pairs, since their keys may be of
//! any type. Two columns with the same name would share a key, so the second gets `_2`.

use super::{Sink, text};
use anyhow::Result;
use datafusion::arrow::array::{Array, ArrayRef, AsArray, RecordBatch};
use datafusion::arrow::datatypes::{DataType, Float64Type, SchemaRef};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::io::Write;

/// Version of the object.
pub const FORMAT_VERSION: u32 = 1;

pub struct Json<'a> {
    out: &'a mut (dyn Write + Send),
    keys: Vec<String>,
    any: bool,
}

impl<'a> Json<'a> {
    pub fn new(schema: SchemaRef, out: &'a mut (dyn Write + Send)) -> Result<Self> {
        let keys = unique_keys(schema.fields().iter().map(|field| field.name().as_str()));
        let columns: Vec<Value> = schema
            .fields()
            .iter()
            .zip(&keys)
            .map(|(field, key)| json!({"name": key, "type": type_name(field.data_type())}))
            .collect();
        write!(
            out,
            "{{\"format\":\"fathom.sql\",\"version\":{FORMAT_VERSION},\"columns\":{},\"rows\":[",
            Value::from(columns)
        )?;
        Ok(Self { out, keys, any: false })
    }
}

/// Makes names unique. A name that is a column's original one stays with that column.
fn unique_keys<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Vec<String> {
    let own: HashSet<&str> = names.clone().collect();
    let (mut taken, mut next) = (HashSet::new(), HashMap::new());
    names
        .map(|name| {
            let mut key = name.to_string();
            while !taken.insert(key.clone()) {
                let n = next.entry(name).or_insert(1);
                *n += 1;
                key = format!("{name}_{n}");
                if own.contains(key.as_str()) {
                    key = name.to_string();
                }
            }
            key
        })
        .collect()
}

fn type_name(kind: &DataType) -> String {
    match kind {
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => "text".into(),
        DataType::Boolean => "boolean".into(),
        DataType::Date32 | DataType::Date64 => "date".into(),
        whole if whole.is_integer() => "integer".into(),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => "float".into(),
        other => other.to_string(),
    }
}

fn float_value(value: f64) -> Value {
    match value {
        finite if finite.is_finite() => finite.into(),
        f64::INFINITY => "Infinity".into(),
        f64::NEG_INFINITY => "-Infinity".into(),
        _ => "NaN".into(),
    }
}

/// All values of an array.
fn column_values(column: &ArrayRef) -> Result<Value> {
    (0..column.len()).map(|row| cell_value(column, row)).collect::<Result<Vec<_>>>().map(Value::from)
}

fn cell_value(column: &ArrayRef, row: usize) -> Result<Value> {
    // A column that is entirely NULL has no validity mask.
    if column.is_null(row) || column.data_type() == &DataType::Null {
        return Ok(Value::Null);
    }
    Ok(match column.data_type() {
        DataType::Boolean => column.as_boolean().value(row).into(),
        DataType::Float64 => float_value(column.as_primitive::<Float64Type>().value(row)),
        DataType::Float16 | DataType::Float32 => {
            let text = text(column, row)?;
            // Its own digits: those of the same number in 64 bits are more.
            serde_json::from_str(&text).or_else(|_| text.parse().map(float_value)).unwrap_or_else(|_| text.into())
        }
        kind if kind.is_integer() => serde_json::from_str(&text(column, row)?).unwrap_or(Value::Null),
        DataType::List(_) => column_values(&column.as_list::<i32>().value(row))?,
        DataType::LargeList(_) => column_values(&column.as_list::<i64>().value(row))?,
        DataType::FixedSizeList(..) => column_values(&column.as_fixed_size_list().value(row))?,
        DataType::Struct(fields) => {
            let parts = column.as_struct().columns();
            let names = unique_keys(fields.iter().map(|field| field.name().as_str()));
            names
                .into_iter()
                .zip(parts)
                .map(|(name, part)| Ok((name, cell_value(part, row)?)))
                .collect::<Result<_>>()?
        }
        DataType::Map(..) => {
            let entries = column.as_map().value(row);
            let [names, parts] = [entries.column(0), entries.column(1)];
            let pairs = (0..entries.len()).map(|at| Ok(json!([cell_value(names, at)?, cell_value(parts, at)?])));
            pairs.collect::<Result<Vec<_>>>()?.into()
        }
        _ => text(column, row)?.into(),
    })
}

impl Sink for Json<'_> {
    fn rows(&mut self, rows: &RecordBatch) -> Result<()> {
        for row in 0..rows.num_rows() {
            self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
            self.any = true;
            // By hand, since a map would sort the columns.
            self.out.write_all(b"{")?;
            for (at, (key, column)) in self.keys.iter().zip(rows.columns()).enumerate() {
                let comma = if at > 0 { "," } else { "" };
                write!(self.out, "{comma}{}:{}", Value::from(key.as_str()), cell_value(column, row)?)?;
            }
            self.out.write_all(b"}")?;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.out.write_all(b"\n]}\n")?;
        Ok(self.out.flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::{Value, cell_value, json, unique_keys};
    use datafusion::arrow::array::builder::{Int64Builder, MapBuilder, StringBuilder};
    use datafusion::arrow::array::{
        ArrayRef, Float32Array, Float64Array, Int64Array, ListArray, NullArray, StructArray,
    };
    use datafusion::arrow::datatypes::{DataType, Field, Int64Type};
    use std::sync::Arc;

    #[test]
    fn column_of_nulls_has_no_texts() {
        let column: ArrayRef = Arc::new(NullArray::new(2));
        assert_eq!(cell_value(&column, 1).unwrap(), Value::Null);
    }

    #[test]
    fn numbers_that_json_lacks_are_not_missing() {
        let values = [7.5, 7.0 / 0.0, -7.0 / 0.0, f64::NAN];
        let wanted = [json!(7.5), json!("Infinity"), json!("-Infinity"), json!("NaN")];
        let narrow: ArrayRef = Arc::new(Float32Array::from(values.map(|one| one as f32).to_vec()));
        let column: ArrayRef = Arc::new(Float64Array::from(values.to_vec()));
        for (row, wanted) in wanted.into_iter().enumerate() {
            assert_eq!(
                (cell_value(&column, row).unwrap(), cell_value(&narrow, row).unwrap()),
                (wanted.clone(), wanted)
            );
        }
    }

    #[test]
    fn nested_values_keep_their_types() {
        let list: ArrayRef = Arc::new(ListArray::from_iter_primitive::<Int64Type, _, _>([Some([Some(1), None])]));
        assert_eq!(cell_value(&list, 0).unwrap(), json!([1, null]));
        let field = |name: &str| Arc::new(Field::new(name, DataType::Int64, true));
        let part = |n: i64| -> ArrayRef { Arc::new(Int64Array::from(vec![n])) };
        let structure: ArrayRef =
            Arc::new(StructArray::from(vec![(field("a"), part(1)), (field("b"), part(2)), (field("a"), part(3))]));
        assert_eq!(cell_value(&structure, 0).unwrap(), json!({"a": 1, "b": 2, "a_2": 3}));
        let mut map = MapBuilder::new(None, Int64Builder::new(), StringBuilder::new());
        map.keys().append_value(7);
        map.values().append_value("x");
        map.append(true).unwrap();
        let map: ArrayRef = Arc::new(map.finish());
        assert_eq!(cell_value(&map, 0).unwrap(), json!([[7, "x"]]));
    }

    #[test]
    fn columns_of_one_name_get_different_keys() {
        assert_eq!(unique_keys(["a", "b", "a", "a"].into_iter()), ["a", "b", "a_2", "a_3"]);
        assert_eq!(unique_keys(["a", "a", "a_2", "a_2"].into_iter()), ["a", "a_3", "a_2", "a_2_2"]);
    }
}
