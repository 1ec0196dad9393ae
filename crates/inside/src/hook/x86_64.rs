//! Hooks for functions on x86-64. A displacement in [`Fixup`]s has 4 bytes; [`Recipe::undo`] is the number of bytes by which the stack
//! pointer is raised.
//!
//! A moved call is made so that it returns to the function's own code, since an unwinder would otherwise find a return address in code
//! without unwind information.

use super::{Fixup, HookError, Recipe, SEARCHED_BYTES};
use crate::layout::{PLAN_CODE, PLAN_FIXUPS, PLAN_ORIGINAL};
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind, Register};

/// Size of a jump in bytes.
const NEAR_JUMP_BYTES: usize = 5;

/// The argument registers, in order.
const ARGUMENT_REGISTERS: [Register; 6] =
    [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];

/// Returns how to hook a function with this code (which may extend into others). `read`: the indices of the arguments that the hook
/// reads.
pub fn recipe(code: &[u8], read: &[u32]) -> Result<Recipe, HookError> {
    // Far from 0, so that what precedes the function has an address too.
    const CODE_ADDRESS: u64 = 1 << 40;
    let mut decoder = Decoder::with_ip(64, code, CODE_ADDRESS, DecoderOptions::NONE);
    let first = decoder.decode();
    let undo = undo_bytes(&first, read).ok_or(HookError::FirstInstruction)?;
    let first_size = first.len();
    let (mut trampoline, mut fixups) = (Vec::new(), Vec::new());
    append_relocated(&decoder, &first, &code[..first_size], CODE_ADDRESS, &mut trampoline, &mut fixups)?;
    let mut moved = first_size;
    while moved < first_size + NEAR_JUMP_BYTES {
        if !decoder.can_decode() {
            return Err(HookError::Truncated);
        }
        let instruction = decoder.decode();
        let bytes = &code[moved..moved + instruction.len()];
        moved += instruction.len();
        let last = append_relocated(&decoder, &instruction, bytes, CODE_ADDRESS, &mut trampoline, &mut fixups)?;
        if last && moved < first_size + NEAR_JUMP_BYTES {
            let called = instruction.flow_control() == FlowControl::Call;
            return Err(if called { HookError::Call } else { HookError::TooShort });
        }
    }
    let fits = moved <= PLAN_ORIGINAL && trampoline.len() <= PLAN_CODE && fixups.len() <= PLAN_FIXUPS;
    if !fits {
        return Err(HookError::TooLong);
    }
    let taken = CODE_ADDRESS + 1..CODE_ADDRESS + moved as u64;
    if fixups.iter().any(|fixup| taken.contains(&CODE_ADDRESS.wrapping_add_signed(fixup.target.into()))) {
        return Err(HookError::InnerJump);
    }
    for instruction in Decoder::with_ip(64, &code[..code.len().min(SEARCHED_BYTES)], CODE_ADDRESS, DecoderOptions::NONE)
    {
        if is_near_branch(&instruction) && taken.contains(&instruction.near_branch_target()) {
            return Err(HookError::JumpBack);
        }
    }
    Ok(Recipe { first: first_size as u8, undo, original: code[..moved].to_vec(), code: trampoline, fixups })
}

fn is_near_branch(instruction: &Instruction) -> bool {
    matches!(instruction.op0_kind(), OpKind::NearBranch64 | OpKind::NearBranch32 | OpKind::NearBranch16)
}

/// Returns the number of bytes by which the stack pointer is raised to undo a first instruction; `None` if the instruction
/// is not known here.
fn undo_bytes(instruction: &Instruction, read: &[u32]) -> Option<u8> {
    let register = |n| instruction.op_kind(n) == OpKind::Register;
    let immediate = |n| instruction.op_kind(n) != OpKind::Register && instruction.op_kind(n) != OpKind::Memory;
    let to = if instruction.op_count() > 0 && register(0) { instruction.op0_register() } else { Register::None };
    let full = to.full_register();
    // The hook must find its arguments, and the stack, unchanged.
    let spoils = full == Register::RSP || read.iter().any(|n| ARGUMENT_REGISTERS.get(*n as usize) == Some(&full));
    match instruction.mnemonic() {
        Mnemonic::Endbr64 => Some(0),
        Mnemonic::Push if register(0) && to.is_gpr64() && to != Register::RSP => Some(8),
        Mnemonic::Sub if to == Register::RSP && immediate(1) => u8::try_from(instruction.immediate(1)).ok(),
        // Registers and memory stay unchanged.
        Mnemonic::Test | Mnemonic::Cmp => Some(0),
        // These give the same result when executed twice.
        Mnemonic::Mov if register(0) && (register(1) || immediate(1)) && !spoils => Some(0),
        // So do reads of memory, unless they change their own address. Code that relies on a single read of the value reads
        // it again.
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Lea
            if register(0)
                && full.is_gpr64()
                && instruction.op_kind(1) == OpKind::Memory
                && instruction.memory_base().full_register() != full
                && instruction.memory_index().full_register() != full
                && !spoils =>
        {
            Some(0)
        }
        Mnemonic::And | Mnemonic::Or if register(0) && immediate(1) && !spoils => Some(0),
        Mnemonic::Xor if register(0) && register(1) && to == instruction.op1_register() && !spoils => Some(0),
        _ => None,
    }
}

/// Appends an instruction to the trampoline. Returns whether the code after it is unreachable from it.
fn append_relocated(
    decoder: &Decoder<'_>,
    instruction: &Instruction,
    bytes: &[u8],
    base: u64,
    code: &mut Vec<u8>,
    fixups: &mut Vec<Fixup>,
) -> Result<bool, HookError> {
    let from_begin =
        |target: u64| i32::try_from(target.wrapping_sub(base).cast_signed()).map_err(|_| HookError::FarBranch);
    let start = code.len();
    let place = |code: &Vec<u8>| u8::try_from(code.len()).map_err(|_| HookError::TooLong);
    let ends = match instruction.flow_control() {
        FlowControl::Next => false,
        FlowControl::ConditionalBranch if instruction.is_jcc_short_or_near() => {
            // Condition codes are the same in both encodings.
            let condition = if bytes.len() == 2 { bytes[0] & 0xf } else { bytes[1] & 0xf };
            if bytes.len() != 2 && (bytes.len() != 6 || bytes[0] != 0x0f) {
                return Err(HookError::Branch);
            }
            code.extend([0x0f, 0x80 | condition, 0, 0, 0, 0]);
            fixups.push(Fixup {
                at: place(code)? - 4,
                end: place(code)?,
                target: from_begin(instruction.near_branch_target())?,
                absolute: false,
            });
            return Ok(false);
        }
        FlowControl::UnconditionalBranch if matches!(instruction.code(), Code::Jmp_rel8_64 | Code::Jmp_rel32_64) => {
            code.extend([0xe9, 0, 0, 0, 0]);
            fixups.push(Fixup {
                at: place(code)? - 4,
                end: place(code)?,
                target: from_begin(instruction.near_branch_target())?,
                absolute: false,
            });
            return Ok(true);
        }
        FlowControl::Return | FlowControl::IndirectBranch => true,
        // The kernel returns to the instruction after it, wherever that is.
        FlowControl::Call if instruction.code() == Code::Syscall => false,
        FlowControl::Call if instruction.code() == Code::Call_rel32_64 => {
            // push [rip + 5]; jmp; the address of what follows the call
            code.extend([0xff, 0x35, 5, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
            let jump = place(code)?;
            let target = from_begin(instruction.near_branch_target())?;
            fixups.push(Fixup { at: jump - 4, end: jump, target, absolute: false });
            code.extend([0; 8]);
            let target = from_begin(instruction.next_ip())?;
            fixups.push(Fixup { at: jump, end: place(code)?, target, absolute: true });
            return Ok(true);
        }
        FlowControl::Call | FlowControl::IndirectCall => return Err(HookError::Call),
        _ => return Err(HookError::Immovable(format!("{:?}", instruction.mnemonic()))),
    };
    code.extend(bytes);
    if instruction.is_ip_rel_memory_operand() {
        let offsets = decoder.get_constant_offsets(instruction);
        if offsets.displacement_size() != 4 {
            return Err(HookError::MemoryOperand);
        }
        let at = u8::try_from(start + offsets.displacement_offset()).map_err(|_| HookError::TooLong)?;
        fixups.push(Fixup {
            at,
            end: place(code)?,
            target: from_begin(instruction.ip_rel_memory_address())?,
            absolute: false,
        });
    }
    Ok(ends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Appends padding to a function.
    fn padded(code: &[u8]) -> Vec<u8> {
        [code, &[0x90; 64]].concat()
    }

    #[test]
    fn hook_follows_first_register_push() {
        // push r15; push r14; push r13; sub rsp, 0x28; ret
        let code = padded(&[0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x48, 0x83, 0xec, 0x28, 0xc3]);
        let recipe = recipe(&code, &[0]).unwrap();
        assert_eq!((recipe.first, recipe.undo), (2, 8));
        // The jump needs five bytes: two pushes and the subtraction.
        assert_eq!(recipe.original, code[..10]);
        assert_eq!(recipe.code, code[..10]);
        assert!(recipe.fixups.is_empty());
    }

    #[test]
    fn moved_branches_keep_their_targets() {
        // test rdi, rdi; je +0x10; mov eax, 5; ret
        let code = padded(&[0x48, 0x85, 0xff, 0x74, 0x10, 0xb8, 5, 0, 0, 0, 0xc3]);
        let recipe = recipe(&code, &[0]).unwrap();
        assert_eq!((recipe.first, recipe.undo, recipe.original.len()), (3, 0, 10));
        assert_eq!(recipe.code, [0x48, 0x85, 0xff, 0x0f, 0x84, 0, 0, 0, 0, 0xb8, 5, 0, 0, 0]);
        assert_eq!(recipe.fixups, [Fixup { at: 5, end: 9, target: 5 + 0x10, absolute: false }]);
        // endbr64; lea rax, [rip + 0x100]; ret
        let code = padded(&[0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8d, 5, 0, 1, 0, 0, 0xc3]);
        let recipe = super::recipe(&code, &[0]).unwrap();
        assert_eq!(recipe.fixups, [Fixup { at: 7, end: 11, target: 11 + 0x100, absolute: false }]);
        // and ecx, 15; or cl, 0x80; jmp -0x100: a function that ends with a tail call
        let code = padded(&[0x83, 0xe1, 0x0f, 0x80, 0xc9, 0x80, 0xe9, 0, 0xff, 0xff, 0xff]);
        let recipe = super::recipe(&code, &[1, 2, 4]).unwrap();
        assert_eq!(recipe.fixups, [Fixup { at: 7, end: 11, target: 11 - 0x100, absolute: false }]);
        assert!(super::recipe(&code, &[3]).is_err(), "the hook would read what is spoilt");
        // mov rax, [rdi]; nop...
        let code = padded(&[0x48, 0x8b, 0x07]);
        assert_eq!(super::recipe(&code, &[0]).unwrap().first, 3);
    }

    #[test]
    fn moved_call_returns_to_original_code() {
        // sub rsp, 8; call +0x40
        let code = padded(&[0x48, 0x83, 0xec, 8, 0xe8, 0x40, 0, 0, 0]);
        let recipe = recipe(&code, &[0]).unwrap();
        assert_eq!((recipe.undo, recipe.original.len()), (8, 9));
        assert_eq!(recipe.code[4..15], [0xff, 0x35, 5, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
        let to = Fixup { at: 11, end: 15, target: 9 + 0x40, absolute: false };
        let back = Fixup { at: 15, end: 23, target: 9, absolute: true };
        assert_eq!((recipe.fixups, recipe.code.len()), (vec![to, back], 23));
    }

    #[test]
    fn code_that_cannot_be_moved_is_refused() {
        let refused: [(&str, &[u8]); 6] = [
            ("an early call", &[0x48, 0x83, 0xec, 8, 0xff, 0xd0, 0x90, 0x90, 0x90]),
            ("too short", &[0x55, 0xc3]),
            ("a jump back into what is moved", &[0x55, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0xeb, 0xfb]),
            ("a jump among them", &[0x55, 0x90, 0xeb, 0x00, 0x90, 0x90, 0x90]),
            ("a first instruction that cannot be undone", &[0x48, 0x8b, 0x00, 0x90, 0x90, 0x90, 0x90, 0x90]),
            ("a first instruction that spoils the argument", &[0x48, 0x89, 0xf7, 0x90, 0x90, 0x90, 0x90, 0x90]),
        ];
        for (what, code) in refused {
            assert!(recipe(&padded(code), &[0]).is_err(), "{what}");
        }
    }

    proptest! {
        /// Arbitrary code causes no panic, and every recipe is within the plan's limits.
        #[test]
        fn arbitrary_code_gives_bounded_recipe_or_error(code in prop::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(recipe) = recipe(&code, &[0]) {
                let jump_end = usize::from(recipe.first) + NEAR_JUMP_BYTES;
                prop_assert!(recipe.original.len() >= jump_end && recipe.original.len() <= PLAN_ORIGINAL);
                prop_assert!(recipe.code.len() <= PLAN_CODE && recipe.fixups.len() <= PLAN_FIXUPS);
                prop_assert_eq!(&recipe.original[..], &code[..recipe.original.len()]);
                for fixup in &recipe.fixups {
                    prop_assert!(fixup.at + 4 <= fixup.end && usize::from(fixup.end) <= recipe.code.len());
                }
            }
        }
    }
}
