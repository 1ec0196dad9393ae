//! Why a line of text is not an event.

use std::fmt;

/// Why a line could not be parsed. Written by hand: this crate depends on no other crate except serde.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ParseError {
    /// It has no words.
    Empty,
    /// Its first word is not a time.
    Time(String),
    /// It ends before its thread.
    NoThread,
    /// Its thread is invalid.
    Thread(String),
    /// It ends before the name of its record.
    NoRecord,
    /// No record has that name.
    UnknownRecord(String),
    /// A word after the name is not a field with a value.
    NotAField(String),
    /// The record has no such field.
    UnknownField { record: String, field: String },
    /// A field's value is not of the field's type.
    Value {
        field: String,
        /// What was given.
        value: String,
        expected: &'static str,
    },
    /// A quoted text does not end.
    OpenQuote,
    /// A quoted text ends with a backslash.
    OpenEscape,
    /// A character given by its number does not exist.
    Character,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("an empty line"),
            Self::Time(word) => write!(f, "{word}: not a time such as @1000"),
            Self::NoThread => f.write_str("no thread"),
            Self::Thread(word) => write!(f, "{word}: not TGID/TID"),
            Self::NoRecord => f.write_str("no record name"),
            Self::UnknownRecord(name) => write!(f, "there is no record {name}"),
            Self::NotAField(word) => write!(f, "{word}: not field=value"),
            Self::UnknownField { record, field } => write!(f, "{record} has no field {field}"),
            Self::Value { field, value, expected } => write!(f, "{field}={value}: not a {expected}"),
            Self::OpenQuote => f.write_str("a text without its closing quote"),
            Self::OpenEscape => f.write_str("a backslash at the end"),
            Self::Character => f.write_str("a bad \\u{…}"),
        }
    }
}

impl std::error::Error for ParseError {}
