//! The quantities of the papers' figures of recordings: what makes a row and what judges a claim by it share these names.

use analysis::text::{bytes, count, duration};
use serde::{Serialize, Serializer};

/// The unit of a quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Count,
    Bytes,
    Ns,
}

impl Unit {
    /// Formats a value for people.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Count => count(value),
            Self::Bytes => bytes(value),
            Self::Ns => duration(value),
        }
    }
}

/// A quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    DeviceCommandsPerInsert,
    DeviceCommandsPerSelect,
    DatabaseWritesPerInsert,
    DatabaseWriteSize,
    DeviceWrites,
    FileSystemWritesPerInsert,
    JournalWrites,
    DatabaseWrites,
    FirstToSecondJournalWrite,
    JournalToDatabaseWrite,
    DatabaseWriteToNextInsert,
    InsertMedian,
    InsertP95,
    InsertBetweenLayers,
}

impl Quantity {
    /// The name in text and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::DeviceCommandsPerInsert => "device commands per INSERT",
            Self::DeviceCommandsPerSelect => "device commands per SELECT",
            Self::DatabaseWritesPerInsert => "database writes per INSERT, at the file system",
            Self::DatabaseWriteSize => "size of a database write",
            Self::DeviceWrites => "device writes around them",
            Self::FileSystemWritesPerInsert => "file-system writes per INSERT",
            Self::JournalWrites => "of these to the journal",
            Self::DatabaseWrites => "of these to the database",
            Self::FirstToSecondJournalWrite => "from journal write 1 to journal write 2",
            Self::JournalToDatabaseWrite => "from the last journal write to the database write",
            Self::DatabaseWriteToNextInsert => "from the database write to the next INSERT",
            Self::InsertMedian => "median of an INSERT",
            Self::InsertP95 => "95th percentile of an INSERT",
            Self::InsertBetweenLayers => "time of an INSERT between the file system and the driver",
        }
    }

    pub fn unit(self) -> Unit {
        match self {
            Self::DatabaseWriteSize => Unit::Bytes,
            Self::FirstToSecondJournalWrite
            | Self::JournalToDatabaseWrite
            | Self::DatabaseWriteToNextInsert
            | Self::InsertMedian
            | Self::InsertP95
            | Self::InsertBetweenLayers => Unit::Ns,
            Self::DeviceCommandsPerInsert
            | Self::DeviceCommandsPerSelect
            | Self::DatabaseWritesPerInsert
            | Self::DeviceWrites
            | Self::FileSystemWritesPerInsert
            | Self::JournalWrites
            | Self::DatabaseWrites => Unit::Count,
        }
    }
}

impl std::fmt::Display for Quantity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Quantity {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
