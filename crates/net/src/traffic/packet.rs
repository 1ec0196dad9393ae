//! The header of a UDP packet: its run, its number, and when it was sent.
//!
//! ```text
//! 0   "FATHOMud"
//! 8   the first half of the run's token
//! 16  number, from 0
//! 24  when it was passed to the kernel, CLOCK_BOOTTIME of the sender, ns
//! ```
//! All numbers big-endian; anything may follow.

use crate::control::Token;

/// Bytes of the header.
pub use crate::spec::PACKET_HEADER_BYTES as HEADER;
const MAGIC: &[u8; 8] = b"FATHOMud";

/// A packet's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketHeader {
    pub number: u64,
    /// When it was sent.
    pub sent_ns: u64,
}

impl PacketHeader {
    /// Writes the header over the first [`HEADER`] bytes.
    pub fn write(&self, run: u64, to: &mut [u8]) {
        if let Some(to) = to.get_mut(..HEADER) {
            to[..8].copy_from_slice(MAGIC);
            to[8..16].copy_from_slice(&run.to_be_bytes());
            to[16..24].copy_from_slice(&self.number.to_be_bytes());
            to[24..32].copy_from_slice(&self.sent_ns.to_be_bytes());
        }
    }

    /// Parses the header; `None` if the packet is not of this run.
    pub fn read(run: u64, from: &[u8]) -> Option<Self> {
        let from: &[u8; HEADER] = from.get(..HEADER)?.try_into().ok()?;
        let number = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| from[at + i]));
        // The highest number would leave none for the next packet.
        (&from[..8] == MAGIC && number(8) == run && number(16) < u64::MAX)
            .then(|| Self { number: number(16), sent_ns: number(24) })
    }
}

/// The identifier of a run in its packets.
pub fn run_id(token: &Token) -> u64 {
    u64::from_be_bytes(std::array::from_fn(|i| token[i]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packet_of_other_run_is_ignored() {
        let packet = PacketHeader { number: 3, sent_ns: u64::MAX };
        let mut bytes = vec![9; 40];
        packet.write(77, &mut bytes);
        assert_eq!(PacketHeader::read(77, &bytes), Some(packet));
        assert_eq!(PacketHeader::read(78, &bytes), None);
        assert_eq!(PacketHeader::read(77, &bytes[..31]), None);
        bytes[16..24].fill(0xff);
        assert_eq!(PacketHeader::read(77, &bytes), None);
    }
}
