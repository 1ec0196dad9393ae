//! The few instructions of 64-bit ARM that compilers use for `return p ? p->field : 0`.

use super::{Flow, State, Value};

/// `x0`.
pub(super) const ARGUMENT_REGISTER: usize = 0;
/// `sp`; as a data operand the same number is the zero register.
pub(super) const STACK_REGISTER: usize = 31;
/// `x0`.
pub(super) const RESULT_REGISTER: usize = 0;

const ZERO_REGISTER: usize = 31;

fn get(state: &State, register: usize) -> Value {
    if register == ZERO_REGISTER { Value::Other } else { state.registers[register] }
}

fn put(state: &mut State, register: usize, value: Value) {
    if register != ZERO_REGISTER {
        state.registers[register] = value;
    }
}

/// Returns the lowest `bits` of `word >> shift`, sign-extended.
fn sign_extend(word: u32, shift: u32, bits: u32) -> i64 {
    i64::from(((word >> shift) << (32 - bits)) as i32 >> (32 - bits))
}

/// Executes one instruction.
pub(super) fn step(state: &mut State, code: &[u8]) -> Option<Flow> {
    let word = u32::from_le_bytes(*code.get(state.at..)?.first_chunk::<4>()?);
    let here = i64::try_from(state.at).ok()?;
    let target = |words: i64| usize::try_from(here + words * 4).ok();
    state.at += 4;
    let (d, n, m) = (word as usize & 31, word as usize >> 5 & 31, word as usize >> 16 & 31);

    // Loads and stores of one or two 64-bit registers.
    let unsigned = i64::from(word >> 10 & 0xfff) * 8;
    let unscaled = sign_extend(word, 12, 9);
    let pair = sign_extend(word, 15, 7) * 8;
    let second = word as usize >> 10 & 31;
    match word & 0xffc0_0000 {
        0xf940_0000 => {
            put(state, d, state.load(state.registers[n], unsigned));
            return Some(Flow::Next);
        }
        0xf900_0000 => {
            state.store(state.registers[n], unsigned, get(state, d));
            return Some(Flow::Next);
        }
        // stp: offset, then pre-index
        kind @ (0xa900_0000 | 0xa980_0000) => {
            let base = state.registers[n];
            state.store(base, pair, get(state, d));
            state.store(base, pair + 8, get(state, second));
            if kind == 0xa980_0000 {
                state.add(n, base, pair);
            }
            return Some(Flow::Next);
        }
        // ldp: offset, then post-index
        kind @ (0xa940_0000 | 0xa8c0_0000) => {
            let base = state.registers[n];
            let from = if kind == 0xa940_0000 { pair } else { 0 };
            put(state, d, state.load(base, from));
            put(state, second, state.load(base, from + 8));
            if kind == 0xa8c0_0000 {
                state.add(n, base, pair);
            }
            return Some(Flow::Next);
        }
        _ => {}
    }
    match word & 0xffe0_0c00 {
        0xf840_0000 => {
            put(state, d, state.load(state.registers[n], unscaled));
            return Some(Flow::Next);
        }
        0xf800_0000 => {
            state.store(state.registers[n], unscaled, get(state, d));
            return Some(Flow::Next);
        }
        // str with pre-index, ldr with post-index: a register saved alone
        0xf800_0c00 => {
            let base = state.registers[n];
            state.store(base, unscaled, get(state, d));
            state.add(n, base, unscaled);
            return Some(Flow::Next);
        }
        0xf840_0400 => {
            let base = state.registers[n];
            put(state, d, state.load(base, 0));
            state.add(n, base, unscaled);
            return Some(Flow::Next);
        }
        _ => {}
    }

    // Branches. cbz and cbnz include the comparison.
    if word & 0x7e00_0000 == 0x3400_0000 {
        state.compared_argument = word >> 31 == 1 && get(state, d) == Value::Argument;
        return Some(Flow::Branch { target: target(sign_extend(word, 5, 19))?, if_equal: word & 1 << 24 == 0 });
    }
    if word & 0xff00_001e == 0x5400_0000 {
        return Some(Flow::Branch { target: target(sign_extend(word, 5, 19))?, if_equal: word & 1 == 0 });
    }
    match word >> 26 {
        0b00_0101 => return Some(Flow::Jump(target(sign_extend(word, 0, 26))?)),
        0b10_0101 => return Some(Flow::Call),
        _ => {}
    }
    // ret, retaa, retab
    if matches!(word, 0xd65f_03c0 | 0xd65f_0bff | 0xd65f_0fff) {
        return Some(Flow::Return);
    }

    let constant = i64::from(word >> 10 & 0xfff) << if word & 1 << 22 == 0 { 0 } else { 12 };
    match word {
        // hint: nop, bti, paciasp, autiasp
        _ if word & 0xffff_f01f == 0xd503_201f => {}
        // add and sub of a constant, the only arithmetic that may move the stack pointer
        _ if word & 0xff80_0000 == 0x9100_0000 => state.add(d, state.registers[n], constant),
        _ if word & 0xff80_0000 == 0xd100_0000 => state.add(d, state.registers[n], -constant),
        // cmp with a constant
        _ if word & 0xff80_001f == 0xf100_001f => {
            state.compared_argument = constant == 0 && state.registers[n] == Value::Argument;
        }
        // mov between registers
        _ if word & 0xffe0_ffe0 == 0xaa00_03e0 => put(state, d, get(state, m)),
        // cmp and sub of two registers (the stack protector's check)
        _ if word & 0xff20_0000 == 0xeb00_0000 => {
            put(state, d, Value::Other);
            state.compared_argument = false;
        }
        // movz, adrp, mrs: irrelevant values
        _ if word & 0x7f80_0000 == 0x5280_0000
            || word & 0x9f00_0000 == 0x9000_0000
            || word & 0xfff0_0000 == 0xd530_0000 =>
        {
            put(state, d, Value::Other);
        }
        _ => return None,
    }
    Some(Flow::Next)
}
