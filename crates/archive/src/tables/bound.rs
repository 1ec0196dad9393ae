//! What reading a table may cost. Parquet repeats a value in a few bits, so that a forged file of 3 MB can claim billions of rows; in a
//! recording each row has times and numbers of its own.

/// Bytes of cells that any file may hold.
const CELL_BYTES_FREE: u64 = 64 << 20;

/// Bytes of cells per byte of the file. Tables of real recordings have 5 to 18.
const CELL_BYTES_PER_BYTE: u64 = 64;

/// Bytes of a cell: of its number.
const CELL_BYTES: u64 = 8;

/// The limit for a file.
#[derive(Debug, Clone, Copy)]
pub struct ReadLimit(u64);

impl ReadLimit {
    /// The limit for a file of this size.
    pub fn for_file_size(file_bytes: u64) -> Self {
        Self(file_bytes.saturating_mul(CELL_BYTES_PER_BYTE).saturating_add(CELL_BYTES_FREE))
    }

    /// Whether so many rows are more than such a file may hold.
    pub fn is_exceeded_by(self, rows: u64, columns: usize) -> bool {
        rows.saturating_mul(columns as u64).saturating_mul(CELL_BYTES) > self.0
    }

    /// Whether texts of so many bytes are more than such a file may hold.
    pub fn is_exceeded_by_texts(self, bytes: u64) -> bool {
        bytes > self.0
    }
}
