//! Hooks for functions on aarch64, where a jump is one instruction and reaches 128 MiB. So two instructions are in the trampoline: the
//! first, which stays in place too, and the second, which the jump replaces.
//!
//! [`Recipe::undo`] is the number of units of 16 bytes by which the stack pointer is raised, or the authentication of the return address
//! that the first instruction signed. Addresses are in the trampoline as words ([`Fixup::absolute`]); other [`Fixup`]s are direct
//! branches (`b`), since a guarded page (BTI) does not permit an indirect one into the middle of a function.
//!
//! Instructions are decoded from their bits by the tables in chapter C4 of the Arm ARM. Unknown ones are not moved; nor are exclusive
//! accesses and the parts of memory copies (MOPS), which belong together.

use super::{Fixup, HookError, Recipe, SEARCHED_BYTES};
use crate::layout::{PLAN_CODE, PLAN_FIXUPS};

/// Size of an instruction in bytes.
const INSTRUCTION_BYTES: usize = 4;
/// As in `object/layout.h`: unit in bytes for raising the stack pointer, and the undoing of `paciasp` and `pacibsp`.
pub const UNDO_UNIT: i64 = 16;
pub const UNDO_AUTIASP: u8 = 255;
pub const UNDO_AUTIBSP: u8 = 254;

const BTI_INSTRUCTIONS: [u32; 4] = [0xd503_241f, 0xd503_245f, 0xd503_249f, 0xd503_24df];
const PACIASP: u32 = 0xd503_233f;
const PACIBSP: u32 = 0xd503_237f;
/// `nop`, `autiasp`, `autibsp`, `xpaclri`: hints that mean the same at any address.
const HINT_INSTRUCTIONS: [u32; 4] = [0xd503_201f, 0xd503_23bf, 0xd503_23ff, 0xd503_20ff];
const SVC_0: u32 = 0xd400_0001;

/// The position-dependent part of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InstructionKind {
    /// None. Execution continues after it.
    Plain,
    /// None. Execution does not continue after it.
    Leaves,
    /// `adr`, `adrp`: an address.
    Address { to: u32, target: i64 },
    /// A load of a constant, with the constant's address. Its register if it is a general one; a prefetch has none.
    Literal { load: ConstantLoad, to: u32, target: i64 },
    /// `b`.
    Jump { target: i64 },
    /// `b.cond`, `cbz`, `cbnz`, `tbz`, `tbnz`: the same instruction with a displacement of 8.
    Branch { skip: u32, target: i64 },
    /// `bl`.
    Call { target: i64 },
    /// `blr`.
    IndirectCall { register: u32 },
}

/// The instruction that loads a constant once its address is in a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConstantLoad {
    /// Into a general register: the instruction with an address and a register of 0.
    General(u32),
    /// Into another register, or none: a linker register holds the address.
    Other(u32),
}

/// Returns the lowest `bits` of `word >> shift`, sign-extended.
fn sign_extend(word: u32, shift: u32, bits: u32) -> i64 {
    i64::from(((word >> shift) << (32 - bits)).cast_signed() >> (32 - bits))
}

fn bit_field(word: u32, shift: u32, bits: u32) -> u32 {
    word >> shift & ((1 << bits) - 1)
}

/// Returns the kind of an instruction at `here`; `None`: not known.
fn instruction_kind(word: u32, here: i64) -> Option<InstructionKind> {
    let to = bit_field(word, 0, 5);
    let words = |n: i64| here + n * 4;
    // Bits 28 to 25 distinguish the groups.
    match bit_field(word, 25, 4) {
        // Constants.
        0b1000 | 0b1001 => match bit_field(word, 23, 3) {
            0b000 | 0b001 => {
                let distance = sign_extend(word, 5, 19) << 2 | i64::from(bit_field(word, 29, 2));
                let page = word >> 31 == 1;
                let target = if page { (here & !0xfff) + (distance << 12) } else { here + distance };
                Some(InstructionKind::Address { to, target })
            }
            0b010 | 0b100 | 0b101 | 0b110 => Some(InstructionKind::Plain),
            // extr; the rest of this group includes an instruction that reads the program counter (FEAT_PAuth_LR)
            _ if word & 0x7fa0_0000 == 0x1380_0000 => Some(InstructionKind::Plain),
            _ => None,
        },
        0b1010 | 0b1011 => branch_or_system(word, &words),
        // Registers; among those with one source, pointer authentication reads the program counter.
        0b0101 | 0b1101 if word & 0xffff_0000 != 0xdac1_0000 => Some(InstructionKind::Plain),
        // Floating point and vectors.
        0b0111 | 0b1111 => Some(InstructionKind::Plain),
        // Loads and stores.
        0b0100 | 0b0110 | 0b1100 | 0b1110 => match word & 0x3b00_0000 {
            0x1800_0000 => {
                let target = words(sign_extend(word, 5, 19));
                let vector = word >> 26 & 1 == 1;
                let load = match (vector, word >> 30) {
                    (false, 0) => ConstantLoad::General(0xb940_0000),
                    (false, 1) => ConstantLoad::General(0xf940_0000),
                    (false, 2) => ConstantLoad::General(0xb980_0000),
                    // prfm
                    (false, _) => ConstantLoad::Other(0xf980_0000),
                    (true, 0) => ConstantLoad::Other(0xbd40_0000),
                    (true, 1) => ConstantLoad::Other(0xfd40_0000),
                    (true, 2) => ConstantLoad::Other(0x3dc0_0000),
                    (true, _) => return None,
                };
                Some(InstructionKind::Literal { load, to, target })
            }
            // One register, in several forms; and atomic operations.
            0x3800_0000 | 0x3900_0000 => Some(InstructionKind::Plain),
            // Two.
            0x2800_0000 | 0x2900_0000 => Some(InstructionKind::Plain),
            _ => None,
        },
        _ => None,
    }
}

fn branch_or_system(word: u32, words: &impl Fn(i64) -> i64) -> Option<InstructionKind> {
    let register = bit_field(word, 5, 5);
    Some(match word {
        _ if word & 0xfc00_0000 == 0x1400_0000 => InstructionKind::Jump { target: words(sign_extend(word, 0, 26)) },
        _ if word & 0xfc00_0000 == 0x9400_0000 => InstructionKind::Call { target: words(sign_extend(word, 0, 26)) },
        // b.cond, cbz and cbnz
        _ if word & 0xff00_0010 == 0x5400_0000 || word & 0x7e00_0000 == 0x3400_0000 => {
            InstructionKind::Branch { skip: word & !(0x7ffff << 5) | 2 << 5, target: words(sign_extend(word, 5, 19)) }
        }
        // tbz and tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => {
            InstructionKind::Branch { skip: word & !(0x3fff << 5) | 2 << 5, target: words(sign_extend(word, 5, 14)) }
        }
        // br, ret
        _ if word & 0xffff_fc1f == 0xd61f_0000 || word & 0xffff_fc1f == 0xd65f_0000 => InstructionKind::Leaves,
        // retaa, retab
        0xd65f_0bff | 0xd65f_0fff => InstructionKind::Leaves,
        _ if word & 0xffff_fc1f == 0xd63f_0000 => InstructionKind::IndirectCall { register },
        SVC_0 | PACIASP | PACIBSP => InstructionKind::Plain,
        _ if BTI_INSTRUCTIONS.contains(&word) || HINT_INSTRUCTIONS.contains(&word) => InstructionKind::Plain,
        // mrs of the thread pointer
        _ if word & 0xffff_ffe0 == 0xd53b_d040 => InstructionKind::Plain,
        _ => return None,
    })
}

/// Returns how the first instruction is undone; `None` if it can be neither undone nor executed twice. `read`: the indices of the
/// arguments that the hook reads. `null`: whether a call with a first argument of 0 may bypass the hook.
fn undo_of_first(word: u32, read: &[u32], null: bool) -> Option<u8> {
    let (d, n, m) = (bit_field(word, 0, 5), bit_field(word, 5, 5), bit_field(word, 16, 5));
    let raise =
        |bytes: i64| (bytes > 0 && bytes % UNDO_UNIT == 0 && bytes / UNDO_UNIT < 250).then_some(bytes / UNDO_UNIT);
    let raise = |bytes: i64| raise(bytes).map(|units| units as u8);
    const SP: u32 = 31;
    match word {
        PACIASP => return Some(UNDO_AUTIASP),
        PACIBSP => return Some(UNDO_AUTIBSP),
        _ if BTI_INSTRUCTIONS.contains(&word) || word == HINT_INSTRUCTIONS[0] => return Some(0),
        // cbz x0
        _ if null && word & 0xff00_001f == 0xb400_0000 => return Some(0),
        // stp of two general registers, then of two vector ones, with the stack pointer lowered before
        _ if word & 0xffc0_0000 == 0xa980_0000 && n == SP => return raise(-sign_extend(word, 15, 7) * 8),
        _ if word & 0xffc0_0000 == 0x6d80_0000 && n == SP => return raise(-sign_extend(word, 15, 7) * 8),
        // str of one
        _ if word & 0xffe0_0c00 == 0xf800_0c00 && n == SP => return raise(-sign_extend(word, 12, 9)),
        // sub sp, sp, #...
        _ if word & 0xffc0_03ff == 0xd100_03ff => return raise(i64::from(bit_field(word, 10, 12))),
        _ => {}
    }
    // From here on: instructions with the same result when executed twice. The hook must find its arguments unchanged.
    let spoils = |register: u32| register < 8 && read.contains(&register);
    let fresh = |sources: &[u32]| !spoils(d) && !sources.contains(&d);
    let same = match word {
        // adr, adrp
        _ if word & 0x1f00_0000 == 0x1000_0000 => d != SP && fresh(&[]),
        // movn, movz, movk
        _ if word & 0x1f80_0000 == 0x1280_0000 => fresh(&[]),
        // cmp and cmn; add and sub, of a constant
        _ if word & 0x3f80_001f == 0x3100_001f => true,
        _ if word & 0x1f80_0000 == 0x1100_0000 => d != SP && fresh(&[n]),
        // tst; and, orr and eor, of a constant; the first two may have a single register
        _ if word & 0x7f80_001f == 0x7200_001f => true,
        _ if word & 0x1f80_0000 == 0x1200_0000 => {
            let repeatable = matches!(bit_field(word, 29, 2), 0b00 | 0b01 | 0b11) && d == n && !spoils(d);
            d != SP && (repeatable || fresh(&[n]))
        }
        // sbfm, ubfm
        _ if word & 0x7f80_0000 == 0x1300_0000 || word & 0x7f80_0000 == 0x5300_0000 => fresh(&[n]),
        // mov, and other logical operations between registers; tst
        _ if word & 0x7f00_001f == 0x6a00_001f => true,
        _ if word & 0x1f00_0000 == 0x0a00_0000 => fresh(&[n, m]),
        // cmp; add and sub between registers (not the extended ones, which may use the stack pointer)
        _ if word & 0x7f20_001f == 0x6b00_001f => true,
        _ if word & 0x1f20_0000 == 0x0b00_0000 => fresh(&[n, m]),
        // A load of one general register, or two. Code that relies on a single read of the value reads it again.
        _ if word & 0x3f00_0000 == 0x3900_0000 && bit_field(word, 22, 2) != 0 => {
            let prefetch = word & 0xffc0_0000 == 0xf980_0000;
            !prefetch && fresh(&[n])
        }
        _ if word & 0x7fc0_0000 == 0x2940_0000 => {
            let second = bit_field(word, 10, 5);
            fresh(&[n]) && second != n && !spoils(second)
        }
        _ => false,
    };
    same.then_some(0)
}

/// The register that holds the address for a load into a vector register.
const ADDRESS_REGISTER: u32 = 17;

/// Whether an instruction may involve that register.
fn names_address_register(word: u32) -> bool {
    [0, 5, 10, 16].iter().any(|shift| bit_field(word, *shift, 5) == ADDRESS_REGISTER)
}

/// The trampoline under construction.
#[derive(Default)]
struct Trampoline {
    code: Vec<u8>,
    fixups: Vec<Fixup>,
    /// Words after the code: the instruction that loads each, and its value.
    words: Vec<(usize, i32)>,
}

impl Trampoline {
    fn push_word(&mut self, word: u32) {
        self.code.extend(word.to_le_bytes());
    }

    /// Appends a direct branch out of it.
    fn push_branch(&mut self, target: i64) -> Result<(), HookError> {
        let at = self.code.len() as u8;
        self.fixups.push(Fixup { at, end: at, target: near_target(target)?, absolute: false });
        self.push_word(0x1400_0000);
        Ok(())
    }

    /// Appends a load of an address.
    fn push_load(&mut self, register: u32, target: i64) -> Result<(), HookError> {
        self.words.push((self.code.len(), near_target(target)?));
        self.push_word(0x5800_0000 | register);
        Ok(())
    }

    /// Appends the words after all code. Code that continues to the end jumps over them.
    fn finish(mut self, runs_on: bool) -> (Vec<u8>, Vec<Fixup>) {
        if self.words.is_empty() {
            return (self.code, self.fixups);
        }
        let size = self.words.len() as u32 * 8;
        // The jump back comes after the words.
        if runs_on {
            self.push_word(0x1400_0000 | ((size + 4) / 4));
        }
        for (load, target) in std::mem::take(&mut self.words) {
            let at = self.code.len();
            if let Some(word) = self.code.get_mut(load..).and_then(|rest| rest.first_chunk_mut()) {
                let distance = (at - load) as u32 / 4;
                *word = (u32::from_le_bytes(*word) | distance << 5).to_le_bytes();
            }
            self.fixups.push(Fixup { at: at as u8, end: at as u8, target, absolute: true });
            self.code.extend([0; 8]);
        }
        (self.code, self.fixups)
    }
}

fn near_target(target: i64) -> Result<i32, HookError> {
    i32::try_from(target).map_err(|_| HookError::FarBranch)
}

/// Returns how to hook a function with this code (which may extend into others), at this address of its file. `read` and `null`: the
/// indices of the arguments that the hook reads, and whether a call with a first argument of 0 may bypass it.
pub fn recipe(code: &[u8], address: u64, read: &[u32], null: bool) -> Result<Recipe, HookError> {
    let mut words = code[..code.len().min(SEARCHED_BYTES)]
        .chunks_exact(INSTRUCTION_BYTES)
        .map(|b| u32::from_le_bytes(b.first_chunk().copied().unwrap_or_default()));
    let (Some(first), Some(second)) = (words.next(), words.next()) else { return Err(HookError::Truncated) };
    // Addresses are relative to the function's begin; pages are those of the file's own addresses.
    let in_page = (address & 0xfff).cast_signed();
    let kind_at =
        |word: u32, at: i64| instruction_kind(word, in_page + at).map(|kind| relative_to_begin(kind, in_page));
    let undo = undo_of_first(first, read, null).ok_or(HookError::FirstInstruction)?;
    if BTI_INSTRUCTIONS.contains(&second) {
        return Err(HookError::Landing);
    }
    let unknown = |word: u32| HookError::Immovable(format!("{word:08x}"));
    let mut trampoline = Trampoline::default();
    let mut runs_on = true;
    for (n, word) in [first, second].into_iter().enumerate() {
        let kind = kind_at(word, (n * INSTRUCTION_BYTES) as i64).ok_or_else(|| unknown(word))?;
        match kind {
            InstructionKind::Plain => trampoline.push_word(word),
            InstructionKind::Leaves => {
                trampoline.push_word(word);
                runs_on = false;
            }
            InstructionKind::Address { to: 31, .. } => return Err(unknown(word)),
            InstructionKind::Address { to, target } => trampoline.push_load(to, target)?,
            InstructionKind::Literal { load: ConstantLoad::General(_), to: 31, .. } => return Err(unknown(word)),
            InstructionKind::Literal { load: ConstantLoad::General(load), to, target } => {
                trampoline.push_load(to, target)?;
                trampoline.push_word(load | to << 5 | to);
            }
            InstructionKind::Literal { load: ConstantLoad::Other(load), to, target } => {
                // The first instruction's own use of that register would be disturbed.
                if names_address_register(first) {
                    return Err(unknown(word));
                }
                trampoline.push_load(ADDRESS_REGISTER, target)?;
                trampoline.push_word(load | ADDRESS_REGISTER << 5 | to);
            }
            InstructionKind::Jump { target } => {
                trampoline.push_branch(target)?;
                runs_on = false;
            }
            InstructionKind::Branch { skip, target } => {
                trampoline.push_word(skip);
                trampoline.push_word(0x1400_0002);
                trampoline.push_branch(target)?;
            }
            InstructionKind::Call { target } => {
                trampoline.push_load(30, 2 * INSTRUCTION_BYTES as i64)?;
                trampoline.push_branch(target)?;
                runs_on = false;
            }
            // The register would be overwritten.
            InstructionKind::IndirectCall { register: 30 } => return Err(unknown(word)),
            InstructionKind::IndirectCall { register } => {
                trampoline.push_load(30, 2 * INSTRUCTION_BYTES as i64)?;
                trampoline.push_word(0xd61f_0000 | register << 5);
                runs_on = false;
            }
        }
    }
    let (trampoline, fixups) = trampoline.finish(runs_on);
    // Two instructions become at most three words of code or two and an address each, and a jump.
    assert!(trampoline.len() <= PLAN_CODE && fixups.len() <= PLAN_FIXUPS);
    let taken = INSTRUCTION_BYTES as i64;
    if fixups.iter().any(|fixup| i64::from(fixup.target) == taken) {
        return Err(HookError::InnerJump);
    }
    for (n, word) in words.enumerate() {
        let here = ((n + 2) * INSTRUCTION_BYTES) as i64;
        let target = match kind_at(word, here) {
            Some(
                InstructionKind::Jump { target }
                | InstructionKind::Branch { target, .. }
                | InstructionKind::Call { target }
                | InstructionKind::Address { target, .. },
            ) => target,
            _ => continue,
        };
        if target == taken {
            return Err(HookError::JumpBack);
        }
    }
    Ok(Recipe {
        first: INSTRUCTION_BYTES as u8,
        undo,
        original: code[..2 * INSTRUCTION_BYTES].to_vec(),
        code: trampoline,
        fixups,
    })
}

/// Returns the same with a target relative to the function's begin.
fn relative_to_begin(kind: InstructionKind, begin: i64) -> InstructionKind {
    match kind {
        InstructionKind::Address { to, target } => InstructionKind::Address { to, target: target - begin },
        InstructionKind::Literal { load, to, target } => InstructionKind::Literal { load, to, target: target - begin },
        InstructionKind::Jump { target } => InstructionKind::Jump { target: target - begin },
        InstructionKind::Branch { skip, target } => InstructionKind::Branch { skip, target: target - begin },
        InstructionKind::Call { target } => InstructionKind::Call { target: target - begin },
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const NOP: u32 = 0xd503_201f;
    const STP: u32 = 0xa9be_7bfd;

    fn bytes(words: &[u32]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn recipe_of(first: u32, second: u32, address: u64) -> Result<Recipe, HookError> {
        recipe(&bytes(&[first, second, NOP, NOP, NOP, NOP]), address, &[0], true)
    }

    fn words(recipe: &Recipe) -> Vec<u32> {
        recipe.code.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn first_instruction_is_undone() {
        let undone = [
            ("stp x29, x30, [sp, #-32]!", STP, 2),
            ("sub sp, sp, #96", 0xd101_83ff, 6),
            ("str x30, [sp, #-16]!", 0xf81f_0ffe, 1),
            ("stp d8, d9, [sp, #-64]!", 0x6dbc_27e8, 4),
            ("paciasp", 0xd503_233f, UNDO_AUTIASP),
            ("pacibsp", 0xd503_237f, UNDO_AUTIBSP),
            ("bti c", 0xd503_245f, 0),
            ("mov x5, x3", 0xaa03_03e5, 0),
            ("and w3, w3, #0xf", 0x1200_0c63, 0),
            ("cmp x0, #0", 0xf100_001f, 0),
            ("ldr x9, [x0, #8]", 0xf940_0409, 0),
            ("cbz x0, +16", 0xb400_0080, 0),
        ];
        for (what, first, undo) in undone {
            let recipe = recipe_of(first, 0x9100_03fd, 0).unwrap_or_else(|why| panic!("{what}: {why}"));
            assert_eq!((recipe.undo, recipe.first, recipe.original.len()), (undo, 4, 8), "{what}");
        }
        // mov x29, sp stays unchanged, and so does the first.
        assert_eq!(words(&recipe_of(STP, 0x9100_03fd, 0).unwrap()), [STP, 0x9100_03fd]);
    }

    #[test]
    fn code_that_cannot_be_moved_is_refused() {
        let refused = [
            ("add x9, x9, #1: twice is not once", 0x9100_0529, NOP),
            ("mov x0, x1: the hook reads x0", 0xaa01_03e0, NOP),
            ("eor w3, w3, #0xf", 0x5200_0c63, NOP),
            ("ldr x0, [x1]", 0xf940_0020, NOP),
            ("str x1, [x0]: a store", 0xf900_0001, NOP),
            ("sub sp, sp, #8", 0xd100_23ff, NOP),
            ("cbz x1", 0xb400_0081, NOP),
            ("cbz w0", 0x3400_0080, NOP),
            ("bl", 0x9400_0010, NOP),
            ("ldxr", STP, 0xc85f_7c20),
            ("cpyfp", STP, 0x1901_0440),
            ("bti j second", STP, 0xd503_249f),
            ("udf", STP, 0),
            ("brk", STP, 0xd420_0000),
            ("blr x30", STP, 0xd63f_03c0),
            ("a branch to the second", STP, 0x1400_0000),
        ];
        for (what, first, second) in refused {
            assert!(recipe_of(first, second, 0).is_err(), "{what}");
        }
        let null = recipe(&bytes(&[0xb400_0080, NOP, NOP]), 0, &[0], false);
        assert_eq!(null, Err(HookError::FirstInstruction), "every call is of interest");
        // b.ne to the second, from later code.
        let back = bytes(&[STP, NOP, NOP, 0x54ff_ffc1]);
        assert_eq!(recipe(&back, 0, &[0], false), Err(HookError::JumpBack));
        assert_eq!(recipe(&back[..7], 0, &[0], false), Err(HookError::Truncated));
    }

    #[test]
    fn addresses_and_branches_are_recomputed() {
        // adrp x5, +2 pages, at 0xfc of a page: relative to the start of the page, so that many bytes before.
        let recipe = recipe_of(STP, 0xd000_0005, 0x1_20fc).unwrap();
        // ldr x5, the word behind the jump over it; b
        assert_eq!(words(&recipe), [STP, 0x5800_0045, 0x1400_0003, 0, 0]);
        assert_eq!(recipe.fixups, [Fixup { at: 12, end: 12, target: 0x2000 - 0xfc, absolute: true }]);
        // tbz w1, #3, -8
        let recipe = recipe_of(STP, 0x361f_ffc1, 0).unwrap();
        assert_eq!(words(&recipe), [STP, 0x3618_0041, 0x1400_0002, 0x1400_0000]);
        assert_eq!(recipe.fixups, [Fixup { at: 12, end: 12, target: 4 - 8, absolute: false }]);
        // bl +0x40: returns to the third instruction.
        let recipe = recipe_of(STP, 0x9400_0010, 0).unwrap();
        assert_eq!(words(&recipe), [STP, 0x5800_005e, 0x1400_0000, 0, 0]);
        let to = Fixup { at: 8, end: 8, target: 4 + 0x40, absolute: false };
        assert_eq!(recipe.fixups, [to, Fixup { at: 12, end: 12, target: 8, absolute: true }]);
        // ldr q0, +16
        let recipe = recipe_of(STP, 0x9c00_0080, 0).unwrap();
        assert_eq!(words(&recipe)[1..4], [0x5800_0071, 0x3dc0_0220, 0x1400_0003]);
    }

    proptest! {
        /// Arbitrary code causes no panic, and every recipe is within the plan's limits.
        #[test]
        fn arbitrary_code_gives_bounded_recipe_or_error(
            code in prop::collection::vec(any::<u8>(), 0..64),
            address in 0u64..1 << 40,
        ) {
            let address = address & !3;
            if let Ok(recipe) = recipe(&code, address, &[0], true) {
                prop_assert_eq!(&recipe.original[..], &code[..8]);
                prop_assert!(recipe.code.len() <= PLAN_CODE && recipe.fixups.len() <= PLAN_FIXUPS);
                for fixup in &recipe.fixups {
                    let size = if fixup.absolute { 8 } else { 4 };
                    prop_assert!(usize::from(fixup.at) + size <= recipe.code.len());
                }
            }
        }
    }
}
