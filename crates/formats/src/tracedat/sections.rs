//! The sections of version 7 of trace.dat, and their compression.
//!
//! A section has a header of 16 bytes: number, flags (1: compressed), offset of its name, size. Compressed content is
//! one chunk or, for the pages of a CPU, the number of chunks and the chunks: compressed and uncompressed size, and the
//! data.

use super::cursor::Cursor;
use super::{Error, Result};
use std::borrow::Cow;

/// Uncompressed bytes of one chunk; trace-cmd makes chunks of ten pages.
const CHUNK_BYTES_MAX: u32 = 256 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    None,
    Zstd,
    Zlib,
}

impl Compression {
    /// Returns the algorithm of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        match name {
            "none" | "" => Ok(Self::None),
            "zstd" => Ok(Self::Zstd),
            "zlib" => Ok(Self::Zlib),
            other => Err(Error::Unsupported(format!(
                "compression by {other} is not supported; `trace-cmd convert --compression none` decompresses it"
            ))),
        }
    }

    fn decompress(self, data: &[u8], size: usize) -> Result<Vec<u8>> {
        const BROKEN_CHUNK: Error = Error::Damaged("a compressed chunk cannot be decompressed");
        let open = match self {
            Self::None => return Err(BROKEN_CHUNK),
            Self::Zstd => zstd::bulk::decompress(data, size).map_err(|_| BROKEN_CHUNK)?,
            Self::Zlib => {
                miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(data, size).map_err(|_| BROKEN_CHUNK)?
            }
        };
        if open.len() == size { Ok(open) } else { Err(BROKEN_CHUNK) }
    }
}

/// The file, and what is needed to read its sections.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    pub bytes: &'a [u8],
    pub big_endian: bool,
    pub compression: Compression,
}

impl<'a> Reader<'a> {
    fn cursor_at(&self, offset: u64) -> Result<Cursor<'a>> {
        let from = usize::try_from(offset).ok().and_then(|o| self.bytes.get(o..));
        Ok(Cursor::new(from.ok_or(Error::Damaged("a section is beyond its end"))?, self.big_endian))
    }

    fn read_header(&self, offset: u64) -> Result<(bool, u64, Cursor<'a>)> {
        let mut at = self.cursor_at(offset)?;
        let (_, flags, _) = (at.u16("a section")?, at.u16("a section")?, at.u32("a section")?);
        Ok((flags & 1 != 0, at.u64("a section")?, at))
    }

    /// Whether the section at `offset` is compressed.
    pub fn is_compressed(&self, offset: u64) -> Result<bool> {
        Ok(self.read_header(offset)?.0)
    }

    /// The data of the section at `offset`.
    pub fn read_section(&self, offset: u64, budget: &mut u64) -> Result<Cow<'a, [u8]>> {
        let (compressed, size, mut at) = self.read_header(offset)?;
        if compressed {
            return self.read_chunk(&mut at, budget).map(Cow::Owned);
        }
        Ok(Cow::Borrowed(at.take(usize::try_from(size).unwrap_or(usize::MAX), "a section")?))
    }

    fn read_chunk(&self, at: &mut Cursor<'_>, budget: &mut u64) -> Result<Vec<u8>> {
        let (compressed, size) = (at.u32("a compressed chunk")?, at.u32("a compressed chunk")?);
        let data = at.take(compressed as usize, "a compressed chunk")?;
        // Only a malicious file compresses data to less than a ten-thousandth of its size.
        let sound = size <= CHUNK_BYTES_MAX && u64::from(size) <= u64::from(compressed).saturating_mul(100_000);
        *budget = budget
            .checked_sub(size.into())
            .filter(|_| sound)
            .ok_or(Error::Damaged("a compressed chunk is larger than trace-cmd makes"))?;
        self.compression.decompress(data, size as usize)
    }

    /// The pages of a CPU.
    pub fn read_pages(&self, offset: u64, size: u64, compressed: bool, budget: &mut u64) -> Result<Cow<'a, [u8]>> {
        if size == 0 {
            return Ok(Cow::Borrowed(&[]));
        }
        let mut at = self.cursor_at(offset)?;
        if !compressed {
            // Of a truncated recording, what is there is kept.
            let size = usize::try_from(size).unwrap_or(usize::MAX).min(at.remaining());
            return Ok(Cow::Borrowed(at.take(size, "a CPU's pages")?));
        }
        let mut all = Vec::new();
        for _ in 0..at.u32("a CPU's pages")? {
            all.extend(self.read_chunk(&mut at, budget)?);
        }
        Ok(Cow::Owned(all))
    }
}
