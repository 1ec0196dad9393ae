//! Reads numbers and texts in sequence, and fails at the end.

use super::{Error, Result};

/// A position in bytes.
#[derive(Debug, Clone)]
pub struct Cursor<'a> {
    rest: &'a [u8],
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
}

impl<'a> Cursor<'a> {
    /// At the start of the bytes.
    pub fn new(bytes: &'a [u8], big_endian: bool) -> Self {
        Self { rest: bytes, big_endian }
    }

    /// Bytes that are left.
    pub fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// Takes `size` bytes. `what` names them for the error.
    pub fn take(&mut self, size: usize, what: &'static str) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(Error::Damaged(what))?;
        self.rest = rest;
        Ok(taken)
    }

    fn number(&mut self, size: usize, what: &'static str) -> Result<u64> {
        let bytes = self.take(size, what)?;
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        Ok(if self.big_endian { bytes.iter().fold(0, add) } else { bytes.iter().rev().fold(0, add) })
    }

    /// Two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16> {
        Ok(self.number(2, what)? as u16)
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32> {
        Ok(self.number(4, what)? as u32)
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.number(8, what)
    }

    /// A text that ends with NUL.
    pub fn text(&mut self, what: &'static str) -> Result<String> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(Error::Damaged(what))?;
        let text = String::from_utf8_lossy(&self.rest[..end]).into_owned();
        self.rest = &self.rest[end + 1..];
        Ok(text)
    }
}
