//! Sizes, places and numbers that the object and the recorder share: as in `object/layout.h`, which describes them.

/// A plan's and an arena's first word.
pub const PLAN_MAGIC: u64 = 0x316e_616c_5068_7446;
pub const ARENA_MAGIC: u64 = 0x3161_6e65_7241_6846;

/// Limits: libraries in a plan, functions of a library, and sizes for a function.
pub const PLAN_LIBRARIES: usize = 26;
pub const PLAN_FUNCTIONS: usize = 12;
pub const PLAN_ORIGINAL: usize = 32;
pub const PLAN_CODE: usize = 48;
pub const PLAN_FIXUPS: usize = 4;

/// Number of rings of a process.
pub const RINGS: usize = 128;
/// Size of a ring in words.
pub const RING_WORDS: u64 = 524_288;
/// Offset of the first ring in an arena, in bytes.
pub const RINGS_AT: u64 = 16_384;
/// Size of an arena's file in bytes, most of it never used.
pub const ARENA_BYTES: u64 = RINGS_AT + RINGS as u64 * RING_WORDS * 8;
/// Size of an arena's header before its rings, in bytes.
pub const ARENA_HEADER_BYTES: usize = CONTROLS_AT + RINGS * CONTROL_BYTES;

/// Offsets in an arena's header.
pub const CLOSED_AT: u64 = 16;
pub const NO_RING_AT: usize = 24;
pub const TGID_AT: usize = 32;
pub const LIBRARY_AT: usize = 40;
pub const STEP_PRICES_AT: usize = 144;
pub const STATEMENT_PRICES_AT: usize = 164;
pub const CONTROLS_AT: usize = 4096;
/// Number of batches in which the object measures the cost of recording, and their sizes.
pub const PRICE_BATCHES: usize = 5;
pub const PRICE_STEPS: u32 = 256;
pub const PRICE_STATEMENTS: u32 = 16;
/// Size of a ring's control block in bytes, and offsets in it.
pub const CONTROL_BYTES: usize = 64;
pub const HEAD_AT: usize = 0;
pub const TAIL_AT: usize = 8;
pub const DROPPED_AT: usize = 16;

/// Offset of the thread's state in a ring's control block, and the mask of its steps under way.
pub const STATE_AT: usize = 24;
pub const STEPS_MASK: u64 = 0xffff_ffff;

/// `struct attached`: its first word, when it is in use.
pub const ATTACHED_MAGIC: u64 = 0x3161_6863_7441_6846;
/// Maximum numbers of jumps and mappings, and of bytes of a jump's code.
pub const JUMPS: usize = 160;
pub const MAPPINGS: usize = 80;
pub const JUMP_BYTES: usize = 24;
/// Size in bytes of a mapping with the code that jumps lead to. No other mapping has this size.
pub const ROOM: u64 = 8192;

/// Number of stubs of return addresses, and the size of each in bytes.
pub const STUBS: usize = 2048;
pub const STUB_SIZE: u64 = 8;

/// Number of SQLite's counters in a record, and the words of an execution's end without and with them.
pub const COUNTS: usize = 10;
pub const OP_END_WORDS: usize = 8;
pub const COUNTED_END_WORDS: usize = OP_END_WORDS + 1 + COUNTS / 2;

/// Maximum length of a record's text, in bytes.
pub const LONGEST_TEXT: u64 = 4095;

/// Size in bytes of a question before its path, and of the longest path including its terminating zero.
pub const QUESTION_HEADER_BYTES: usize = 24;
pub const ASK_PATH: usize = 1024;

/// The status of a library in a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LibraryStatus {
    /// It was not seen.
    Unseen,
    /// Its functions are hooked.
    Hooked,
    /// They could not be hooked, for this reason.
    Refused(&'static str),
}

impl LibraryStatus {
    /// Converts the number from an arena; unassigned numbers have no meaning.
    pub fn from_number(number: u32) -> Self {
        match number {
            1 => Self::Hooked,
            2 => Self::Refused("its code in memory differs from its file: something else patched it"),
            3 => Self::Refused("no free memory is within reach of a jump"),
            4 => Self::Refused("the kernel does not permit patching its code"),
            5 => Self::Refused("the processor compares its returns with a shadow stack"),
            6 => Self::Refused("a jump would lie across two pages, which cannot be written at once"),
            _ => Self::Unseen,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    const LAYOUT_H: &str = include_str!("../object/layout.h");

    /// Constants defined by the C header.
    fn defined_constants() -> BTreeMap<&'static str, u64> {
        let define = |line: &'static str| {
            let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
            let value = value.split_once("/*").map_or(value, |(value, _)| value).trim().trim_end_matches("UL");
            let number = value.strip_prefix("0x").map_or_else(|| value.parse(), |hex| u64::from_str_radix(hex, 16));
            Some((name, number.ok()?))
        };
        LAYOUT_H.lines().filter_map(define).collect()
    }

    /// Returns the offsets of the members of a struct in the header, by the rules of C, and its size.
    fn struct_members(name: &str) -> (BTreeMap<String, usize>, usize) {
        let numbers = defined_constants();
        let start = LAYOUT_H.find(&format!("struct {name} {{\n")).unwrap();
        let body = &LAYOUT_H[start..start + LAYOUT_H[start..].find("\n};").unwrap()];
        let (mut places, mut at, mut widest) = (BTreeMap::new(), 0usize, 1);
        for line in body.lines().skip(1) {
            let line = line.split_once("/*").map_or(line, |(code, _)| code).trim().trim_end_matches(';');
            let Some((kind, member)) = line.rsplit_once(' ') else { continue };
            let (size, align) = match kind {
                "u8" => (1, 1),
                "u16" => (2, 2),
                "u32" | "s32" => (4, 4),
                "u64" => (8, 8),
                _ => (struct_members(kind.strip_prefix("struct ").unwrap()).1, 8),
            };
            let (member, count) = match member.split_once('[') {
                Some((member, count)) => {
                    let count = count.trim_end_matches(']');
                    let count = numbers.get(count).copied().or_else(|| count.parse().ok());
                    (member, count.unwrap() as usize)
                }
                None => (member, 1),
            };
            at = at.next_multiple_of(align);
            places.insert(member.to_owned(), at);
            at += size * count;
            widest = widest.max(align);
        }
        (places, at.next_multiple_of(widest.min(8)))
    }

    #[test]
    fn constants_match_c_header() {
        let numbers = defined_constants();
        let ours = [
            ("PLAN_MAGIC", PLAN_MAGIC),
            ("ARENA_MAGIC", ARENA_MAGIC),
            ("PLAN_LIBRARIES", PLAN_LIBRARIES as u64),
            ("PLAN_FUNCTIONS", PLAN_FUNCTIONS as u64),
            ("PLAN_ORIGINAL", PLAN_ORIGINAL as u64),
            ("PLAN_CODE", PLAN_CODE as u64),
            ("PLAN_FIXUPS", PLAN_FIXUPS as u64),
            ("RINGS", RINGS as u64),
            ("RING_WORDS", RING_WORDS),
            ("RINGS_AT", RINGS_AT),
            ("LONGEST_TEXT", LONGEST_TEXT),
            ("COUNTS", COUNTS as u64),
            ("OP_END_WORDS", OP_END_WORDS as u64),
            ("COUNTED_END_WORDS", COUNTED_END_WORDS as u64),
            ("UNDO_UNIT_AARCH64", crate::hook::aarch64::UNDO_UNIT as u64),
            ("UNDO_AUTIASP", crate::hook::aarch64::UNDO_AUTIASP.into()),
            ("UNDO_AUTIBSP", crate::hook::aarch64::UNDO_AUTIBSP.into()),
            ("PRICE_BATCHES", PRICE_BATCHES as u64),
            ("PRICE_STEPS", PRICE_STEPS.into()),
            ("PRICE_STATEMENTS", PRICE_STATEMENTS.into()),
            ("ASK_PATH", ASK_PATH as u64),
            ("ASK_EXECUTES", crate::question::ASK_EXECUTES.into()),
            ("ASK_LOADED", crate::question::ASK_LOADED.into()),
            ("ANSWER_NOTHING", crate::question::Answer::Nothing.byte().into()),
            ("ANSWER_PLANNED", crate::question::Answer::Planned.byte().into()),
            ("LIBRARY_HOOKED", 1),
            ("LIBRARY_CHANGED", 2),
            ("LIBRARY_NO_ROOM", 3),
            ("LIBRARY_FORBIDDEN", 4),
            ("LIBRARY_SHADOWED", 5),
            ("LIBRARY_ACROSS", 6),
            ("ATTACHED_MAGIC", ATTACHED_MAGIC),
            ("ROOM", ROOM),
            ("STUBS", STUBS as u64),
            ("STUB_SIZE", STUB_SIZE),
            ("JUMPS", JUMPS as u64),
            ("MAPPINGS", MAPPINGS as u64),
            ("JUMP_BYTES", JUMP_BYTES as u64),
            ("ATTACH_DONE", crate::account::ATTACH_DONE),
            ("ATTACH_UNFIT", 2),
            ("ATTACH_BUSY", crate::account::ATTACH_BUSY),
            ("ATTACH_NO_LIBC", 4),
            ("ATTACH_NO_ARENA", 5),
            ("ATTACH_NO_MEMORY", 6),
            ("ATTACH_FULL", 7),
            ("RECORD_KIND_SHIFT", crate::ring::KIND_SHIFT.into()),
            ("RECORD_FLAGS_SHIFT", crate::ring::FLAGS_SHIFT.into()),
            ("RECORD_CPU_SHIFT", crate::ring::CPU_SHIFT.into()),
            ("RECORD_TID_SHIFT", crate::ring::TID_SHIFT.into()),
            ("RECORD_STATEMENT", model::event::Statement::INFO.kind.into()),
            ("RECORD_OP_BEGIN", model::event::OpBegin::INFO.kind.into()),
            ("RECORD_OP_END", model::event::OpEnd::INFO.kind.into()),
            ("RECORD_BETWEEN_ROWS", model::event::header_flags::BETWEEN_ROWS.into()),
        ];
        for (name, value) in ours {
            assert_eq!(numbers.get(name), Some(&value), "{name}");
        }
    }

    #[test]
    fn field_offsets_match_c_structs() {
        let (arena, size) = struct_members("arena");
        let places = [
            ("closed", CLOSED_AT as usize),
            ("no_ring", NO_RING_AT),
            ("tgid", TGID_AT),
            ("library", LIBRARY_AT),
            ("step_ns", STEP_PRICES_AT),
            ("statement_ns", STATEMENT_PRICES_AT),
            ("ring", CONTROLS_AT),
        ];
        for (name, at) in places {
            assert_eq!(arena[name], at, "arena.{name}");
        }
        assert!(size == ARENA_HEADER_BYTES && size as u64 <= RINGS_AT);
        let (control, size) = struct_members("ring_control");
        for (name, at) in [("head", HEAD_AT), ("tail", TAIL_AT), ("dropped", DROPPED_AT), ("state", STATE_AT)] {
            assert_eq!(control[name], at, "ring_control.{name}");
        }
        assert_eq!(size, CONTROL_BYTES);
        let (question, size) = struct_members("question");
        assert_eq!((question["path"], size), (QUESTION_HEADER_BYTES, crate::question::QUESTION_BYTES));
        let (attached, size) = struct_members("attached");
        assert_eq!(
            [attached["thread_at"], attached["outcome"], attached["jumps"], attached["mapping"]],
            [16, 24, 56, 64]
        );
        assert_eq!(size, crate::account::ACCOUNT_BYTES);
        let (jump, _) = struct_members("jump");
        assert_eq!([jump["library"], jump["first"], jump["bytes"], jump["now"], jump["original"]], [8, 12, 13, 16, 40]);
        let (_, size) = struct_members("plan");
        assert_eq!(size, crate::plan::PLAN_BYTES);
    }
}
