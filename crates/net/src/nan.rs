//! Numbers that JSON does not have: it writes NaN as null, and a run must not be lost because one of its numbers is none.

use serde::{Deserialize, Deserializer};

/// One or several numbers as JSON writes them.
pub trait OrNull: Sized {
    /// With null for NaN.
    type Json: for<'de> Deserialize<'de>;
    /// With NaN for null.
    fn of(json: Self::Json) -> Self;
}

impl OrNull for f64 {
    type Json = Option<f64>;

    fn of(json: Self::Json) -> Self {
        json.unwrap_or(f64::NAN)
    }
}

impl OrNull for [f64; 3] {
    type Json = [Option<f64>; 3];

    fn of(json: Self::Json) -> Self {
        json.map(f64::of)
    }
}

impl OrNull for [f64; 5] {
    type Json = [Option<f64>; 5];

    fn of(json: Self::Json) -> Self {
        json.map(f64::of)
    }
}

/// For `serde(deserialize_with)`.
pub fn read<'de, T: OrNull, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::Json::deserialize(from).map(T::of)
}
