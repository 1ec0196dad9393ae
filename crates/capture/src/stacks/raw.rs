//! What the kernel side provides for a stack (`bpf/stacks.h`): registers, the kernel's functions, a copy of the program's
//! stack.
//!
//! The copy contains whatever the program keeps there. It is unwound at once and never stored.

/// Size of a copied piece, and maximum number of pieces; as in `stacks.h`.
const PIECE: usize = 1024;
const PIECES: usize = 17;
const FRAMES: usize = 64;
const RETURNS: usize = 16;
const HEAD: usize = 80;

const ASLEEP: u32 = 1;
const OF_CALL: u32 = 2;
const MOVED: u32 = 3;

/// Whether the program's part follows a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comes {
    /// When the thread leaves its system call.
    Later,
    /// It was a page fault, after which nothing is taken.
    PageFault,
    /// The stack of a 32-bit program is not read.
    Foreign,
}

/// The registers of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    /// The frame pointer, if the code has any.
    pub fp: u64,
    /// The return address, if a register holds it (arm64).
    pub lr: u64,
}

/// A sleep of a thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asleep {
    /// Process and thread.
    pub thread: (u32, u32),
    /// When it fell asleep and when it ran again.
    pub slept_ns: (u64, u64),
    /// Bit set of `model::event::flags`.
    pub ctx: u16,
    /// Whether its program's part follows.
    pub comes: Comes,
    /// The registers with which the program entered the kernel.
    pub at: Registers,
    /// The kernel's functions, the innermost first: return addresses.
    pub kernel: Vec<u64>,
}

/// A program's stack, copied when a thread left the system call in which it had slept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfCall {
    /// Process and thread.
    pub thread: (u32, u32),
    /// When the copy was made.
    pub time_ns: u64,
    pub at: Registers,
    /// Start of the stubs (0: none): return addresses there stand for others, which the program's memory contains.
    pub stubs: u64,
    /// Return addresses that a probe replaced: their place and original value.
    pub returns: Vec<(u64, u64)>,
    /// Start address of the copy.
    pub from: u64,
    /// Whether more may follow.
    pub cut: bool,
    pub bytes: Vec<u8>,
}

impl OfCall {
    /// Returns a word of the copy.
    pub fn word(&self, at: u64) -> Option<u64> {
        let place = usize::try_from(at.checked_sub(self.from)?).ok()?;
        let word = self.bytes.get(place..place.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// Whether a place lies beyond the copied part of a longer stack.
    pub fn is_beyond(&self, at: u64) -> bool {
        self.cut && at.saturating_add(8) > self.from + self.bytes.len() as u64
    }
}

/// An item in the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Raw {
    Asleep(Asleep),
    /// The stack to which it and the thread's other sleeps in that call belong.
    OfCall(OfCall),
    /// A process has code elsewhere now.
    Moved {
        tgid: u32,
        /// Its parent, if it was forked.
        parent: Option<u32>,
    },
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl Raw {
    /// Parses an item of the ring; `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = |at: usize| half(bytes, at);
        let (what, thread, count) = (head(0)?, (head(4)?, head(8)?), head(12)? as usize);
        let (out_ns, time_ns) = (word(bytes, 16)?, word(bytes, 24)?);
        let at = Registers { ip: word(bytes, 32)?, sp: word(bytes, 40)?, fp: word(bytes, 48)?, lr: word(bytes, 56)? };
        let (stubs, ctx, comes) = (word(bytes, 64)?, head(72)? as u16, head(76)?);
        match what {
            MOVED => Some(Self::Moved { tgid: thread.0, parent: Some(thread.1).filter(|parent| *parent != 0) }),
            ASLEEP => {
                let kernel = (0..count.min(FRAMES)).map_while(|i| word(bytes, HEAD + 8 * i)).collect();
                let comes = match comes {
                    0 => Comes::Later,
                    1 => Comes::PageFault,
                    _ => Comes::Foreign,
                };
                Some(Self::Asleep(Asleep { thread, slept_ns: (out_ns, time_ns), ctx, comes, at, kernel }))
            }
            OF_CALL => {
                let pair = |i: usize| Some((word(bytes, HEAD + 16 * i)?, word(bytes, HEAD + 16 * i + 8)?));
                let returns = (0..RETURNS).map_while(pair).filter(|(place, _)| *place != 0).collect();
                let memory = bytes.get(HEAD + 16 * RETURNS..)?;
                let count = count.min(PIECES);
                let copied = memory.get(..count * PIECE)?.to_vec();
                let from = at.sp & !(PIECE as u64 - 1);
                // A copy that would wrap around the end of the address space is invalid.
                from.checked_add((PIECES * PIECE) as u64)?;
                let cut = count == PIECES;
                Some(Self::OfCall(OfCall { thread, time_ns, at, stubs, returns, from, cut, bytes: copied }))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(what: u32, count: u32, sp: u64) -> Vec<u8> {
        let halves = [what, 7, 8, count];
        let words = [100, 200, 0x40_1000, sp, 0x7ffc_0010, 0, 0x50_0000];
        let mut bytes: Vec<u8> = halves.iter().flat_map(|half| half.to_le_bytes()).collect();
        bytes.extend(words.iter().flat_map(|word: &u64| word.to_le_bytes()));
        bytes.extend([3u32, 1].iter().flat_map(|half| half.to_le_bytes()));
        assert_eq!(bytes.len(), HEAD);
        bytes
    }

    #[test]
    fn sleep_is_read_with_kernel_functions() {
        let mut bytes = head(ASLEEP, 2, 0x7ffc_0000);
        bytes.extend([11u64, 12, 13].iter().flat_map(|frame| frame.to_le_bytes()));
        let Some(Raw::Asleep(asleep)) = Raw::parse(&bytes) else { panic!("{:?}", Raw::parse(&bytes)) };
        assert_eq!((asleep.thread, asleep.slept_ns, asleep.ctx), ((7, 8), (100, 200), 3));
        assert_eq!((asleep.kernel, asleep.comes, asleep.at.ip), (vec![11, 12], Comes::PageFault, 0x40_1000));
        assert_eq!(Raw::parse(&bytes[..HEAD - 1]), None);
        assert_eq!(Raw::parse(&head(MOVED, 0, 0)), Some(Raw::Moved { tgid: 7, parent: Some(8) }));
        assert_eq!(Raw::parse(&head(MOVED + 1, 0, 0)), None);
    }

    #[test]
    fn copied_stack_begins_at_whole_piece() {
        let mut bytes = head(OF_CALL, 2, 0x7ffc_0458);
        bytes.extend([0x7ffc_0460u64, 77, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(HEAD + 16 * RETURNS, 0);
        bytes.extend((0..2 * PIECE / 8).flat_map(|i| (i as u64).to_le_bytes()));
        let Some(Raw::OfCall(call)) = Raw::parse(&bytes) else { panic!("{:?}", Raw::parse(&bytes)) };
        assert_eq!((call.from, call.cut, call.returns.as_slice()), (0x7ffc_0400, false, &[(0x7ffc_0460, 77)][..]));
        assert_eq!((call.word(0x7ffc_0458), call.word(0x7ffc_0bf8)), (Some(11), Some(255)));
        assert_eq!((call.word(0x7ffc_0bf9), call.word(0x7ffc_03f8)), (None, None));
        assert!(!call.is_beyond(0x7ffc_0c00), "the stack ends there");
        // A copy that is shorter than it claims.
        assert_eq!(Raw::parse(&bytes[..bytes.len() - 1]), None);
    }
}
