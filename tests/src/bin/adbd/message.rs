//! adb's transport protocol (protocol.txt): messages of 24 bytes and their data.

use std::io::{self, Read, Write};

pub const CNXN: u32 = u32::from_le_bytes(*b"CNXN");
pub const AUTH: u32 = u32::from_le_bytes(*b"AUTH");
pub const OPEN: u32 = u32::from_le_bytes(*b"OPEN");
pub const OKAY: u32 = u32::from_le_bytes(*b"OKAY");
pub const WRTE: u32 = u32::from_le_bytes(*b"WRTE");
pub const CLSE: u32 = u32::from_le_bytes(*b"CLSE");

/// The version without checksums, which a host may still send.
pub const PROTOCOL_VERSION: u32 = 0x0100_0001;
/// The longest data of a message.
pub const DATA_BYTES_MAX: usize = 256 << 10;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    pub command: u32,
    pub a: u32,
    pub b: u32,
    pub data: Vec<u8>,
}

impl Message {
    pub fn new(command: u32, a: u32, b: u32, data: impl Into<Vec<u8>>) -> Self {
        Self { command, a, b, data: data.into() }
    }

    pub fn read(from: &mut impl Read) -> io::Result<Self> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let mut head = [0; 24];
        from.read_exact(&mut head)?;
        let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if word(20) != !word(0) {
            return Err(invalid("no message of adb's"));
        }
        let length = word(12) as usize;
        if length > 1 << 20 {
            return Err(invalid("a message that is too long"));
        }
        let mut data = vec![0; length];
        from.read_exact(&mut data)?;
        Ok(Self { command: word(0), a: word(4), b: word(8), data })
    }

    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let sum = self.data.iter().fold(0_u32, |sum, b| sum.wrapping_add(u32::from(*b)));
        let words = [self.command, self.a, self.b, self.data.len() as u32, sum, !self.command];
        let mut all: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        all.extend(&self.data);
        to.write_all(&all)?;
        to.flush()
    }
}
