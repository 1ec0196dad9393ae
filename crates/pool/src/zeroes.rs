//! Zeroes written as data, where they must occupy space: a hole does not, and its first write may find the medium full.

use crate::frame::DATA_BYTES_MAX;
use bytes::Bytes;
use nbd::{Error, Export};

/// The zeroes of one write, shared by all callers.
pub(crate) struct Zeroes(Bytes);

impl Zeroes {
    pub fn new() -> Self {
        Self(Bytes::from(vec![0; DATA_BYTES_MAX]))
    }

    /// Writes them to a range, which may be longer than one write.
    pub async fn write_to(&self, disk: &impl Export, offset: u64, length: u32, durable: bool) -> Result<(), Error> {
        let mut done = 0;
        while done < length {
            let now = (length - done).min(DATA_BYTES_MAX as u32);
            disk.write(offset + u64::from(done), self.0.slice(..now as usize), durable).await?;
            done += now;
        }
        Ok(())
    }
}
