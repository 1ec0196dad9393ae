//! An export in memory, for demonstrations and tests: it only takes space for written ranges.

use crate::buffer::LARGE_BYTES;
use crate::export::{Error, Export, Extent, Info};
use bytes::{Bytes, BytesMut};
use std::sync::{Arc, PoisonError, RwLock};

/// Space is allocated in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// A piece may be shared with pending replies; writing to a shared one copies it first.
type Pieces = Vec<Option<Arc<Piece>>>;

#[derive(Debug, Clone)]
struct Piece([u8; PIECE_BYTES]);

/// A piece as the owner of a reply's bytes.
struct SharedPiece(Arc<Piece>);

impl AsRef<[u8]> for SharedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.0.0
    }
}

static ZERO_PIECE: [u8; PIECE_BYTES] = [0; PIECE_BYTES];

fn zero_piece() -> Arc<Piece> {
    Arc::new(Piece([0; PIECE_BYTES]))
}

/// A disk in memory that reads as zeroes where nothing was written.
#[derive(Debug)]
pub struct Memory {
    info: Info,
    pieces: RwLock<Pieces>,
}

impl Memory {
    /// A disk of `size_bytes` that reads as zeroes.
    pub fn new(size_bytes: u64) -> Self {
        let count = size_bytes.div_ceil(PIECE_BYTES as u64) as usize;
        let info = Info { description: "memory".into(), fast_zero: true, ..Info::disk(size_bytes) };
        Self { info, pieces: RwLock::new((0..count).map(|_| None).collect()) }
    }

    #[must_use]
    pub fn read_only(self) -> Self {
        Self { info: Info { read_only: true, ..self.info }, ..self }
    }

    /// Calls `each` for each piece in the range, with its index, the range in it and the number of preceding bytes.
    fn for_each_piece(offset: u64, length: usize, mut each: impl FnMut(usize, std::ops::Range<usize>, usize)) {
        let mut done = 0;
        while done < length {
            let at = offset as usize + done;
            let begin = at % PIECE_BYTES;
            let end = PIECE_BYTES.min(begin + length - done);
            each(at / PIECE_BYTES, begin..end, done);
            done += end - begin;
        }
    }

    fn append_range(&self, offset: u64, length: u32, out: &mut BytesMut) {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        Self::for_each_piece(offset, length as usize, |piece, range, _| match &pieces[piece] {
            Some(data) => out.extend_from_slice(&data.0[range]),
            None => out.resize(out.len() + range.len(), 0),
        });
    }

    fn write_range(&self, offset: u64, data: &[u8]) {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        Self::for_each_piece(offset, data.len(), |piece, range, done| {
            let target = Arc::make_mut(pieces[piece].get_or_insert_with(zero_piece));
            let count = range.len();
            target.0[range].copy_from_slice(&data[done..done + count]);
        });
    }

    /// Zeroes the range; whole pieces are deallocated unless `allocate` is set.
    fn zero_range(&self, offset: u64, length: u32, allocate: bool) {
        let size = self.info.size_bytes as usize;
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        Self::for_each_piece(offset, length as usize, |piece, range, _| {
            let whole = range.start == 0 && (range.end == PIECE_BYTES || piece * PIECE_BYTES + range.end == size);
            if whole && !allocate {
                pieces[piece] = None;
            } else if allocate {
                Arc::make_mut(pieces[piece].get_or_insert_with(zero_piece)).0[range].fill(0);
            } else if let Some(data) = &mut pieces[piece] {
                Arc::make_mut(data).0[range].fill(0);
            }
        });
    }
}

impl Export for Memory {
    fn info(&self) -> &Info {
        &self.info
    }

    fn read_now(&self, offset: u64, length: u32, out: &mut BytesMut) -> Option<Result<(), Error>> {
        if length as usize >= LARGE_BYTES {
            return None;
        }
        self.append_range(offset, length, out);
        Some(Ok(()))
    }

    fn write_now(&self, offset: u64, data: &[u8], _durable: bool) -> Option<Result<(), Error>> {
        self.write_range(offset, data);
        Some(Ok(()))
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let mut data = BytesMut::with_capacity(length as usize);
        self.append_range(offset, length, &mut data);
        Ok(data.freeze())
    }

    async fn read_parts(&self, offset: u64, length: u32) -> Result<Vec<Bytes>, Error> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mut parts = Vec::with_capacity(length as usize / PIECE_BYTES + 2);
        Self::for_each_piece(offset, length as usize, |piece, range, _| {
            parts.push(match &pieces[piece] {
                Some(data) => Bytes::from_owner(SharedPiece(data.clone())).slice(range),
                None => Bytes::from_static(&ZERO_PIECE[range]),
            });
        });
        Ok(parts)
    }

    async fn write(&self, offset: u64, data: Bytes, _durable: bool) -> Result<(), Error> {
        self.write_range(offset, &data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u32, _durable: bool) -> Result<(), Error> {
        self.zero_range(offset, length, false);
        Ok(())
    }

    async fn write_zeroes(
        &self,
        offset: u64,
        length: u32,
        _durable: bool,
        allocate: bool,
        _fast: bool,
    ) -> Result<(), Error> {
        self.zero_range(offset, length, allocate);
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u32) -> Result<Vec<Extent>, Error> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mut extents: Vec<Extent> = Vec::new();
        Self::for_each_piece(offset, length as usize, |piece, range, _| {
            let hole = pieces[piece].is_none();
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += range.len() as u32,
                _ => extents.push(Extent { length: range.len() as u32, hole, zero: hole }),
            }
        });
        Ok(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn pending_answer_keeps_its_data_during_a_write() {
        let disk = Memory::new(1 << 20);
        disk.write(10, Bytes::from(vec![7; 300_000]), false).await.expect("memory");
        let parts = disk.read_parts(0, 400_000).await.expect("memory");
        disk.write(0, Bytes::from(vec![9; 1 << 20]), false).await.expect("memory");
        disk.trim(100_000, 100_000, false).await.expect("memory");
        let data = parts.concat();
        let expected = |at: usize| if (10..300_010).contains(&at) { 7 } else { 0 };
        assert!(data.len() == 400_000 && data.iter().enumerate().all(|(at, byte)| *byte == expected(at)));
        let now = disk.read(0, 400_000).await.expect("memory");
        assert!(now.iter().enumerate().all(|(at, byte)| *byte == if (100_000..200_000).contains(&at) { 0 } else { 9 }));
    }
}
