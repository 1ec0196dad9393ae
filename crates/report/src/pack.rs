//! Columns as bytes: a page of a million spans as JSON would have 150 MB, which takes a browser half a minute to read.
//!
//! The columns of a recording are one stream of bytes, deflated and written as Base64, which any browser can decode
//! (`DecompressionStream`, `web/src/unpack.js`). In the page's JSON, a column contains, instead of its values, its position
//! in that stream, in one of these forms:
//!
//! - `steps`: integers, each as the difference to the previous one;
//! - `lengths`: likewise as the difference to the same row of `start` (an end is near its start);
//! - `reals`: doubles, little-endian; also integers so large that their differences would not be exact in a double.
//!
//! A difference is zigzag-encoded and incremented by one, 0 being "none", and written seven bits per byte, the lowest first.

use analysis::figures::{Column, Table};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

/// Integers up to this are exact, and so are their differences after zigzag encoding.
const EXACT_INTEGER_MAX: i64 = 1 << 50;
/// Compression level, from miniz_oxide's 0 to 10: above it, a page takes twice as long to write for 3 % less.
const COMPRESSION_LEVEL: u8 = 5;

/// Concatenated columns.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PackedColumns {
    bytes: Vec<u8>,
}

impl PackedColumns {
    /// Adds the columns of a table; returns their description for the JSON.
    pub fn table<T: Table>(&mut self, mut table: T) -> Value {
        let mut places = Map::new();
        let mut starts = Vec::new();
        table.take_columns(&mut |name, column| {
            let at = self.bytes.len();
            let (rows, form) = match column {
                Column::Real(values) => (self.reals(values.iter().copied()), "reals"),
                Column::Whole(values)
                    if values
                        .iter()
                        .flatten()
                        .any(|value| !(-EXACT_INTEGER_MAX..=EXACT_INTEGER_MAX).contains(value)) =>
                {
                    (self.reals(values.iter().map(|value| value.map_or(f64::NAN, |value| value as f64))), "reals")
                }
                Column::Whole(values) if name == "end" && starts.len() == values.len() => {
                    values.iter().zip(&starts).for_each(|(&value, &start)| self.step(value, start));
                    (values.len(), "lengths")
                }
                Column::Whole(values) => {
                    let mut before = 0;
                    for &value in &values {
                        self.step(value, before);
                        before = value.unwrap_or(before);
                    }
                    let rows = values.len();
                    if name == "start" && values.iter().all(Option::is_some) {
                        starts = values.into_iter().flatten().collect();
                    }
                    (rows, "steps")
                }
            };
            places.insert(name.into(), json!({ "at": at, "rows": rows, "form": form }));
        });
        Value::Object(places)
    }

    /// Adds doubles; returns their number.
    fn reals(&mut self, values: impl Iterator<Item = f64>) -> usize {
        let before = self.bytes.len();
        values.for_each(|value| self.bytes.extend_from_slice(&value.to_le_bytes()));
        (self.bytes.len() - before) / 8
    }

    fn step(&mut self, value: Option<i64>, from: i64) {
        let mut rest = value.map_or(0, |value| {
            let step = value - from;
            ((step << 1) ^ (step >> 63)) as u64 + 1
        });
        while rest >= 0x80 {
            self.bytes.push(rest as u8 | 0x80);
            rest >>= 7;
        }
        self.bytes.push(rest as u8);
    }

    /// Encodes the columns as text for the page; empty if there are none.
    pub fn text(&self) -> String {
        if self.bytes.is_empty() {
            return String::new();
        }
        STANDARD.encode(miniz_oxide::deflate::compress_to_vec(&self.bytes, COMPRESSION_LEVEL))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A table with given columns.
    #[derive(Default)]
    struct FixedTable(Vec<(&'static str, Column)>);

    impl Table for FixedTable {
        fn take_columns(&mut self, each: &mut dyn FnMut(&'static str, Column)) {
            self.0.drain(..).for_each(|(name, column)| each(name, column));
        }
    }

    /// A short equivalent of `web/src/unpack.js`.
    fn unpacked(bytes: &[u8], place: &Value, starts: &[f64]) -> Vec<f64> {
        let mut at = place["at"].as_u64().unwrap() as usize;
        let rows = place["rows"].as_u64().unwrap() as usize;
        let mut before = 0.0;
        (0..rows)
            .map(|row| {
                if place["form"] == "reals" {
                    at += 8;
                    return f64::from_le_bytes(bytes[at - 8..at].try_into().unwrap());
                }
                let (mut code, mut scale) = (0.0, 1.0);
                loop {
                    let byte = bytes[at];
                    at += 1;
                    code += f64::from(byte & 0x7f) * scale;
                    scale *= 128.0;
                    if byte < 0x80 {
                        break;
                    }
                }
                if code == 0.0 {
                    return f64::NAN;
                }
                let half = code - 1.0;
                let step = if half % 2.0 == 0.0 { half / 2.0 } else { -(half + 1.0) / 2.0 };
                if place["form"] == "lengths" {
                    return starts[row] + step;
                }
                before += step;
                before
            })
            .collect()
    }

    #[test]
    fn columns_are_unpacked_as_they_were() {
        let whole = |values: &[Option<i64>]| Column::Whole(values.to_vec());
        let starts = [Some(5), Some(5), Some(900_000_000_000), Some(1)];
        let ends = [Some(7), None, Some(900_000_000_001), Some(0)];
        let exact = [Some(EXACT_INTEGER_MAX), Some(-EXACT_INTEGER_MAX), None, Some(EXACT_INTEGER_MAX)];
        let large = [Some(i64::MAX), None, Some(i64::MIN), Some(0)];
        let mut packed = PackedColumns::default();
        let places = packed.table(FixedTable(vec![
            ("start", whole(&starts)),
            ("end", whole(&ends)),
            ("exact", whole(&exact)),
            ("large", whole(&large)),
            ("share", Column::Real(vec![0.25, 1.0, f64::NAN, -1e300])),
        ]));
        let text = packed.text();
        let bytes = STANDARD.decode(text).ok().and_then(|b| miniz_oxide::inflate::decompress_to_vec(&b).ok()).unwrap();
        let numbers = |values: &[Option<i64>]| values.iter().map(|v| v.map_or(f64::NAN, |v| v as f64)).collect();
        let starts: Vec<f64> = numbers(&starts);
        for (name, expected) in [
            ("start", starts.clone()),
            ("end", numbers(&ends)),
            ("exact", numbers(&exact)),
            ("large", numbers(&large)),
            ("share", vec![0.25, 1.0, f64::NAN, -1e300]),
        ] {
            let got = unpacked(&bytes, &places[name], &starts);
            let same = |(a, b): (&f64, &f64)| a == b || a.is_nan() && b.is_nan();
            assert!(got.len() == 4 && got.iter().zip(&expected).all(same), "{name}: {got:?}, not {expected:?}");
        }
        assert_eq!(places["end"]["form"], "lengths");
        assert_eq!(places["large"]["form"], "reals");
    }
}
