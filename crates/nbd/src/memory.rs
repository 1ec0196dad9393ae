//! An export in memory, for trials and tests: it takes space only where something was written.

use crate::export::{Error, Export, Extent, Info};
use bytes::{Bytes, BytesMut};
use std::sync::{PoisonError, RwLock};

/// Space is taken in pieces of this size.
const PIECE: usize = 64 << 10;

type Pieces = Vec<Option<Box<[u8; PIECE]>>>;

/// A disk in memory, zero where nothing was written.
#[derive(Debug)]
pub struct Memory {
    info: Info,
    pieces: RwLock<Pieces>,
}

impl Memory {
    /// A disk of `size_bytes` that reads as zeroes.
    pub fn new(size_bytes: u64) -> Self {
        let count = size_bytes.div_ceil(PIECE as u64) as usize;
        let info = Info { description: "memory".into(), fast_zero: true, ..Info::disk(size_bytes) };
        Self { info, pieces: RwLock::new((0..count).map(|_| None).collect()) }
    }

    /// Calls `each` with the piece, the range in it and how many bytes came before, for each piece that the range touches.
    fn walk(offset: u64, length: usize, mut each: impl FnMut(usize, std::ops::Range<usize>, usize)) {
        let mut done = 0;
        while done < length {
            let at = offset as usize + done;
            let begin = at % PIECE;
            let end = PIECE.min(begin + length - done);
            each(at / PIECE, begin..end, done);
            done += end - begin;
        }
    }

    fn append(&self, offset: u64, length: u32, out: &mut BytesMut) {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        Self::walk(offset, length as usize, |piece, range, _| match &pieces[piece] {
            Some(data) => out.extend_from_slice(&data[range]),
            None => out.resize(out.len() + range.len(), 0),
        });
    }

    fn store(&self, offset: u64, data: &[u8]) {
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        Self::walk(offset, data.len(), |piece, range, done| {
            let target = pieces[piece].get_or_insert_with(|| Box::new([0; PIECE]));
            let count = range.len();
            target[range].copy_from_slice(&data[done..done + count]);
        });
    }

    /// Zeroes the range; whole pieces give their space back unless it shall stay.
    fn clear(&self, offset: u64, length: u32, allocate: bool) {
        let size = self.info.size_bytes as usize;
        let mut pieces = self.pieces.write().unwrap_or_else(PoisonError::into_inner);
        Self::walk(offset, length as usize, |piece, range, _| {
            let whole = range.start == 0 && (range.end == PIECE || piece * PIECE + range.end == size);
            if whole && !allocate {
                pieces[piece] = None;
            } else if allocate {
                pieces[piece].get_or_insert_with(|| Box::new([0; PIECE]))[range].fill(0);
            } else if let Some(data) = &mut pieces[piece] {
                data[range].fill(0);
            }
        });
    }
}

impl Export for Memory {
    fn info(&self) -> &Info {
        &self.info
    }

    fn read_now(&self, offset: u64, length: u32, out: &mut BytesMut) -> Option<Result<(), Error>> {
        self.append(offset, length, out);
        Some(Ok(()))
    }

    fn write_now(&self, offset: u64, data: &[u8], _durable: bool) -> Option<Result<(), Error>> {
        self.store(offset, data);
        Some(Ok(()))
    }

    async fn read(&self, offset: u64, length: u32) -> Result<Bytes, Error> {
        let mut data = BytesMut::with_capacity(length as usize);
        self.append(offset, length, &mut data);
        Ok(data.freeze())
    }

    async fn write(&self, offset: u64, data: Bytes, _durable: bool) -> Result<(), Error> {
        self.store(offset, &data);
        Ok(())
    }

    async fn flush(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn trim(&self, offset: u64, length: u32, _durable: bool) -> Result<(), Error> {
        self.clear(offset, length, false);
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
        self.clear(offset, length, allocate);
        Ok(())
    }

    async fn extents(&self, offset: u64, length: u32) -> Result<Vec<Extent>, Error> {
        let pieces = self.pieces.read().unwrap_or_else(PoisonError::into_inner);
        let mut extents: Vec<Extent> = Vec::new();
        Self::walk(offset, length as usize, |piece, range, _| {
            let hole = pieces[piece].is_none();
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += range.len() as u32,
                _ => extents.push(Extent { length: range.len() as u32, hole, zero: hole }),
            }
        });
        Ok(extents)
    }
}
