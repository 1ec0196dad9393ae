//! What the kernel side provides for a stack (`bpf/stacks.h`): registers, the kernel's functions, a copy of the program's
//! stack.
//!
//! The copy contains whatever the program keeps there. It is unwound at once and never stored.

/// Size of a copied piece, and maximum number of pieces; as in `stacks.h`.
const STACK_PIECE: usize = 1024;
const STACK_PIECES: usize = 17;
const STACK_FRAMES: usize = 64;
const STACK_RETURNS: usize = 16;
const HEAD_BYTES: usize = 80;

const STACK_ASLEEP: u32 = 1;
const STACK_OF_CALL: u32 = 2;
const STACK_MOVED: u32 = 3;

/// Whether the program's part follows a sleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramPart {
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
pub struct Sleep {
    /// Process and thread.
    pub thread: (u32, u32),
    /// When it fell asleep and when it ran again.
    pub slept_ns: (u64, u64),
    /// Bit set of `model::event::flags`.
    pub ctx: u16,
    /// Whether its program's part follows.
    pub program_part: ProgramPart,
    /// The registers with which the program entered the kernel.
    pub at: Registers,
    /// The kernel's functions, the innermost first: return addresses.
    pub kernel: Vec<u64>,
}

/// A program's stack, copied when a thread left the system call in which it had slept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallStack {
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
    pub is_cut: bool,
    pub bytes: Vec<u8>,
}

impl CallStack {
    /// Returns a word of the copy.
    pub fn word(&self, at: u64) -> Option<u64> {
        let place = usize::try_from(at.checked_sub(self.from)?).ok()?;
        let word = self.bytes.get(place..place.checked_add(8)?)?;
        Some(u64::from_le_bytes(word.try_into().ok()?))
    }

    /// Whether a place lies beyond the copied part of a longer stack.
    pub fn is_beyond(&self, at: u64) -> bool {
        self.is_cut && at.saturating_add(8) > self.from + self.bytes.len() as u64
    }
}

/// An item in the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RingItem {
    Asleep(Sleep),
    /// The stack to which it and the thread's other sleeps in that call belong.
    OfCall(CallStack),
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

impl RingItem {
    /// Parses an item of the ring; `None` if it is invalid.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let head = |at: usize| half(bytes, at);
        let (what, thread, count) = (head(0)?, (head(4)?, head(8)?), head(12)? as usize);
        let (out_ns, time_ns) = (word(bytes, 16)?, word(bytes, 24)?);
        let at = Registers { ip: word(bytes, 32)?, sp: word(bytes, 40)?, fp: word(bytes, 48)?, lr: word(bytes, 56)? };
        let (stubs, ctx, comes) = (word(bytes, 64)?, head(72)? as u16, head(76)?);
        match what {
            STACK_MOVED => Some(Self::Moved { tgid: thread.0, parent: Some(thread.1).filter(|parent| *parent != 0) }),
            STACK_ASLEEP => {
                let kernel = (0..count.min(STACK_FRAMES)).map_while(|i| word(bytes, HEAD_BYTES + 8 * i)).collect();
                let comes = match comes {
                    0 => ProgramPart::Later,
                    1 => ProgramPart::PageFault,
                    _ => ProgramPart::Foreign,
                };
                Some(Self::Asleep(Sleep { thread, slept_ns: (out_ns, time_ns), ctx, program_part: comes, at, kernel }))
            }
            STACK_OF_CALL => {
                let pair = |i: usize| Some((word(bytes, HEAD_BYTES + 16 * i)?, word(bytes, HEAD_BYTES + 16 * i + 8)?));
                let returns = (0..STACK_RETURNS).map_while(pair).filter(|(place, _)| *place != 0).collect();
                let memory = bytes.get(HEAD_BYTES + 16 * STACK_RETURNS..)?;
                let count = count.min(STACK_PIECES);
                let copied = memory.get(..count * STACK_PIECE)?.to_vec();
                let from = at.sp & !(STACK_PIECE as u64 - 1);
                // A copy that would wrap around the end of the address space is invalid.
                from.checked_add((STACK_PIECES * STACK_PIECE) as u64)?;
                let cut = count == STACK_PIECES;
                Some(Self::OfCall(CallStack { thread, time_ns, at, stubs, returns, from, is_cut: cut, bytes: copied }))
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
        assert_eq!(bytes.len(), HEAD_BYTES);
        bytes
    }

    #[test]
    fn sleep_is_read_with_kernel_functions() {
        let mut bytes = head(STACK_ASLEEP, 2, 0x7ffc_0000);
        bytes.extend([11u64, 12, 13].iter().flat_map(|frame| frame.to_le_bytes()));
        let Some(RingItem::Asleep(asleep)) = RingItem::parse(&bytes) else { panic!("{:?}", RingItem::parse(&bytes)) };
        assert_eq!((asleep.thread, asleep.slept_ns, asleep.ctx), ((7, 8), (100, 200), 3));
        assert_eq!(
            (asleep.kernel, asleep.program_part, asleep.at.ip),
            (vec![11, 12], ProgramPart::PageFault, 0x40_1000)
        );
        assert_eq!(RingItem::parse(&bytes[..HEAD_BYTES - 1]), None);
        assert_eq!(RingItem::parse(&head(STACK_MOVED, 0, 0)), Some(RingItem::Moved { tgid: 7, parent: Some(8) }));
        assert_eq!(RingItem::parse(&head(STACK_MOVED + 1, 0, 0)), None);
    }

    #[test]
    fn copied_stack_begins_at_whole_piece() {
        let mut bytes = head(STACK_OF_CALL, 2, 0x7ffc_0458);
        bytes.extend([0x7ffc_0460u64, 77, 0, 0].iter().flat_map(|word| word.to_le_bytes()));
        bytes.resize(HEAD_BYTES + 16 * STACK_RETURNS, 0);
        bytes.extend((0..2 * STACK_PIECE / 8).flat_map(|i| (i as u64).to_le_bytes()));
        let Some(RingItem::OfCall(call)) = RingItem::parse(&bytes) else { panic!("{:?}", RingItem::parse(&bytes)) };
        assert_eq!((call.from, call.is_cut, call.returns.as_slice()), (0x7ffc_0400, false, &[(0x7ffc_0460, 77)][..]));
        assert_eq!((call.word(0x7ffc_0458), call.word(0x7ffc_0bf8)), (Some(11), Some(255)));
        assert_eq!((call.word(0x7ffc_0bf9), call.word(0x7ffc_03f8)), (None, None));
        assert!(!call.is_beyond(0x7ffc_0c00), "the stack ends there");
        // A copy that is shorter than it claims.
        assert_eq!(RingItem::parse(&bytes[..bytes.len() - 1]), None);
    }
}
