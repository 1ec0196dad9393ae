//! The sizes that pages claim to have once they are decompressed. The parquet crate allocates that much, and three megabytes of zeros
//! compress to a few hundred bytes; so the headers are read first. A header is a Thrift struct in the compact protocol, of which only
//! the first fields matter here (parquet.thrift: `PageHeader`).

use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use parquet::file::reader::ChunkReader;
use std::io::Read;

/// Bytes of the longest header: its statistics hold two values, which writers truncate.
const HEADER_BYTES_MAX: u64 = 1 << 20;

/// Depth of structs in a header; `PageHeader` has three.
const DEPTH_MAX: u32 = 8;

/// Size of the largest page of a column chunk, decompressed, in bytes.
///
/// # Errors
/// Its pages do not follow each other as its metadata says.
pub fn largest_page_bytes<R: ChunkReader>(source: &R, chunk: &ColumnChunkMetaData) -> Result<u64, ParquetError> {
    let (mut at, bytes) = chunk.byte_range();
    let end = at
        .checked_add(bytes)
        .filter(|end| *end <= source.len())
        .ok_or_else(|| metadata_error("a chunk beyond the file"))?;
    let mut largest = 0;
    while at < end {
        let mut header = Header { source: source.get_read(at)?, read: 0 };
        let (whole, compressed) = header.sizes()?;
        largest = largest.max(whole);
        at = at.saturating_add(header.read).saturating_add(compressed);
    }
    Ok(largest)
}

fn metadata_error(what: &str) -> ParquetError {
    ParquetError::General(what.into())
}

struct Header<R> {
    source: R,
    read: u64,
}

impl<R: Read> Header<R> {
    /// Reads the header; returns the size of its page decompressed and in the file.
    fn sizes(&mut self) -> Result<(u64, u64), ParquetError> {
        let (mut whole, mut compressed) = (None, None);
        let mut field = 0;
        loop {
            let Some((number, kind)) = self.field(field)? else { break };
            field = number;
            match (number, kind) {
                (2, 5) => whole = Some(self.number()?),
                (3, 5) => compressed = Some(self.number()?),
                _ => self.skip(kind, 0)?,
            }
        }
        // Zigzag: an odd number is negative.
        let size = |zigzag: Option<u64>| zigzag.filter(|n| n % 2 == 0).map(|n| n / 2);
        size(whole).zip(size(compressed)).ok_or_else(|| metadata_error("a page without a size"))
    }

    fn byte(&mut self) -> Result<u8, ParquetError> {
        let mut byte = [0];
        self.read += 1;
        if self.read > HEADER_BYTES_MAX {
            return Err(metadata_error("a page's header has no end"));
        }
        self.source.read_exact(&mut byte).map_err(|error| metadata_error(&error.to_string()))?;
        Ok(byte[0])
    }

    /// A variable-length number, as it is stored.
    fn number(&mut self) -> Result<u64, ParquetError> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(metadata_error("a number of a page's header has no end"))
    }

    /// The number and type of the next field; `None` at the end of the struct.
    fn field(&mut self, before: u64) -> Result<Option<(u64, u8)>, ParquetError> {
        let byte = self.byte()?;
        Ok(match (byte >> 4, byte & 0xf) {
            (_, 0) => None,
            (0, kind) => Some((self.number()? / 2, kind)),
            (more, kind) => Some((before + u64::from(more), kind)),
        })
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Result<(), ParquetError> {
        if depth > DEPTH_MAX {
            return Err(metadata_error("a page's header is nested too deeply"));
        }
        match kind {
            // A boolean is its type.
            1 | 2 => Ok(()),
            3 => self.byte().map(drop),
            4..=6 => self.number().map(drop),
            7 => (0..8).try_for_each(|_| self.byte().map(drop)),
            8 => {
                let bytes = self.number()?;
                (0..bytes).try_for_each(|_| self.byte().map(drop))
            }
            9 | 10 => {
                let byte = self.byte()?;
                let count = if byte >> 4 == 15 { self.number()? } else { u64::from(byte >> 4) };
                // In a list, a boolean has a byte.
                let kind = if matches!(byte & 0xf, 1 | 2) { 3 } else { byte & 0xf };
                (0..count).try_for_each(|_| self.skip(kind, depth + 1))
            }
            12 => {
                let mut field = 0;
                while let Some((number, kind)) = self.field(field)? {
                    field = number;
                    self.skip(kind, depth + 1)?;
                }
                Ok(())
            }
            _ => Err(metadata_error("a page's header has a field of an unknown type")),
        }
    }
}
