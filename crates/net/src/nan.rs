//! NaN in JSON: it is written as null, and must not invalidate the rest of a run.

use serde::{Deserialize, Deserializer};

/// One or several numbers as JSON represents them.
pub trait NanFromNull: Sized {
    /// The JSON type, with null for NaN.
    type Json: for<'de> Deserialize<'de>;
    /// Converts from JSON, with NaN for null.
    fn from_json(json: Self::Json) -> Self;
}

impl NanFromNull for f64 {
    type Json = Option<f64>;

    fn from_json(json: Self::Json) -> Self {
        json.unwrap_or(f64::NAN)
    }
}

impl NanFromNull for [f64; 3] {
    type Json = [Option<f64>; 3];

    fn from_json(json: Self::Json) -> Self {
        json.map(f64::from_json)
    }
}

impl NanFromNull for [f64; 5] {
    type Json = [Option<f64>; 5];

    fn from_json(json: Self::Json) -> Self {
        json.map(f64::from_json)
    }
}

/// For `serde(deserialize_with)`.
pub fn read<'de, T: NanFromNull, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::Json::deserialize(from).map(T::from_json)
}
