//! The object's own record of its changes in a running process (`struct attached` of `object/layout.h`). The program can write
//! anything there: it is read as untrusted, and used only on the memory of that process.

use crate::layout::{ATTACHED_MAGIC, JUMP_BYTES, JUMPS, MAPPINGS};

/// Outcomes of the object's begin function that matter here.
pub const ATTACH_DONE: u64 = 1;
pub const ATTACH_BUSY: u64 = 3;

const JUMP_ENTRY_BYTES: usize = 64;
const MAPPING_ENTRY_BYTES: usize = 16;
const MAPPINGS_AT: usize = 64;
const JUMPS_AT: usize = MAPPINGS_AT + MAPPINGS * MAPPING_ENTRY_BYTES;
/// Its size in bytes.
pub const ACCOUNT_BYTES: usize = JUMPS_AT + JUMPS * JUMP_ENTRY_BYTES;

/// Code that was changed, or is to be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jump {
    /// Its start address.
    pub at: u64,
    /// The library's place in the plan.
    pub library: u32,
    /// Number of bytes before the jump that stay unchanged.
    pub first: usize,
    /// All bytes, with the jump.
    pub now: Vec<u8>,
    /// All original bytes.
    pub original: Vec<u8>,
}

impl Jump {
    /// Returns the addresses in the middle of the jump, at which no thread may be when it is written.
    pub fn middle(&self) -> std::ops::Range<u64> {
        let end = self.at.saturating_add(self.now.len() as u64);
        self.at.saturating_add(self.first as u64 + 1)..end
    }
}

/// Everything known about a process.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Account {
    /// The process; others are its children, with copies.
    pub pid: u64,
    pub outcome: u64,
    /// Address of its arena.
    pub arena: u64,
    /// Number of calls under way that are not counted in the arena.
    pub preparing: u64,
    /// Number of mappings that are not listed.
    pub untold: u64,
    pub jumps: Vec<Jump>,
    /// The mappings: address and size.
    pub mappings: Vec<(u64, u64)>,
}

impl Account {
    /// Parses it from its bytes. `None`: it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        let half = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?));
        if bytes.len() < ACCOUNT_BYTES || word(0)? != ATTACHED_MAGIC {
            return None;
        }
        let (jumps, mappings) = (half(56)? as usize, half(60)? as usize);
        if jumps > JUMPS || mappings > MAPPINGS {
            return None;
        }
        let mapping = |i: usize| {
            Some((word(MAPPINGS_AT + i * MAPPING_ENTRY_BYTES)?, word(MAPPINGS_AT + i * MAPPING_ENTRY_BYTES + 8)?))
        };
        let jump = |i: usize| {
            let at = JUMPS_AT + i * JUMP_ENTRY_BYTES;
            let (first, size) = (usize::from(*bytes.get(at + 12)?), usize::from(*bytes.get(at + 13)?));
            if size > JUMP_BYTES || first >= size {
                return None;
            }
            let code = |from: usize| bytes.get(from..from + size).map(<[u8]>::to_vec);
            let (now, original) = (code(at + 16)?, code(at + 16 + JUMP_BYTES)?);
            Some(Jump { at: word(at)?, library: half(at + 8)?, first, now, original })
        };
        Some(Self {
            pid: word(8)?,
            outcome: word(24)?,
            arena: word(32)?,
            preparing: word(40)?,
            untold: word(48)?,
            jumps: (0..jumps).map(jump).collect::<Option<_>>()?,
            mappings: (0..mappings).map(mapping).collect::<Option<_>>()?,
        })
    }

    /// Returns its first words, before the object begins.
    pub fn initial_bytes(pid: u64, thread_at: u64) -> Vec<u8> {
        [ATTACHED_MAGIC, pid, thread_at, 0].map(u64::to_le_bytes).concat()
    }

    /// Describes why the object could not begin.
    pub fn describe_failure(&self) -> &'static str {
        match self.outcome {
            0 => "its code in the process did not finish",
            2 => "the kernel or the program's loader lacks something it needs",
            ATTACH_BUSY => "the process's loader is busy",
            4 => "the functions of its C library cannot be hooked",
            5 => "it cannot create the memory for its records",
            6 => "it has no memory left",
            _ => "there is too much in it to keep track of",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn account_is_parsed_as_written() {
        let mut bytes = Account::initial_bytes(7, 0x2d0);
        bytes.resize(ACCOUNT_BYTES, 0);
        bytes[24] = 1;
        bytes[56] = 1;
        bytes[60] = 1;
        bytes[MAPPINGS_AT..MAPPINGS_AT + 16]
            .copy_from_slice(&[0x1000u64.to_le_bytes(), 0x2000u64.to_le_bytes()].concat());
        let jump = &mut bytes[JUMPS_AT..JUMPS_AT + JUMP_ENTRY_BYTES];
        jump[..16].copy_from_slice(&[&0x4000u64.to_le_bytes()[..], &3u32.to_le_bytes(), &[2, 7, 0, 0]].concat());
        jump[16..23].copy_from_slice(&[1, 2, 0xe9, 0, 0, 0, 0]);
        jump[40..47].copy_from_slice(&[1, 2, 3, 4, 5, 6, 7]);
        let account = Account::parse(&bytes).unwrap();
        assert_eq!((account.pid, account.outcome, &account.mappings[..]), (7, ATTACH_DONE, &[(0x1000, 0x2000)][..]));
        let [jump] = &account.jumps[..] else { panic!("{account:?}") };
        assert_eq!((jump.library, jump.first, jump.middle()), (3, 2, 0x4003..0x4007));
        assert_eq!((jump.now[2], &jump.original[..]), (0xe9, &[1, 2, 3, 4, 5, 6, 7][..]));
        bytes[JUMPS_AT + 13] = 25;
        assert_eq!(Account::parse(&bytes), None, "longer than there is room for");
    }

    proptest! {
        #[test]
        fn any_bytes_can_be_read(mut bytes in proptest::collection::vec(any::<u8>(), ACCOUNT_BYTES..ACCOUNT_BYTES + 1), jumps in 0u8..=255) {
            bytes[..8].copy_from_slice(&ATTACHED_MAGIC.to_le_bytes());
            bytes[56..60].copy_from_slice(&[jumps, 0, 0, 0]);
            bytes[60..64].copy_from_slice(&[1, 0, 0, 0]);
            if let Some(account) = Account::parse(&bytes) {
                prop_assert!(account.jumps.iter().all(|j| j.now.len() <= JUMP_BYTES && j.first < j.now.len()));
                prop_assert!(account.jumps.iter().all(|j| j.middle().count() <= JUMP_BYTES));
            }
        }
    }
}
