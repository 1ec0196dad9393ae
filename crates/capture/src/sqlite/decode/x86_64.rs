//! The few instructions of 64-bit x86 that compilers use for `return p ? p->field : 0`.

use super::{Flow, State, Value};

/// `rdi`.
pub(super) const ARGUMENT_REGISTER: usize = 7;
/// `rsp`.
pub(super) const STACK_REGISTER: usize = 4;
/// `rax`.
pub(super) const RESULT_REGISTER: usize = 0;
const RBP: usize = 5;

/// Reads the code; every read is checked against its end.
struct Cursor<'a> {
    code: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.code.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn i8(&mut self) -> Option<i64> {
        self.byte().map(|b| i64::from(b as i8))
    }

    fn i32(&mut self) -> Option<i64> {
        let bytes = self.code.get(self.at..)?.first_chunk::<4>()?;
        self.at += 4;
        Some(i64::from(i32::from_le_bytes(*bytes)))
    }

    fn target(&self, distance: i64) -> Option<usize> {
        usize::try_from(i64::try_from(self.at).ok()?.checked_add(distance)?).ok()
    }
}

/// The second operand of an instruction: a register, or memory.
#[derive(Clone, Copy)]
enum Operand {
    Register(usize),
    /// A value and a displacement; `Other` if the address does not matter.
    Memory(Value, i64),
}

struct Prefixes {
    /// Another segment: the thread's own memory, which holds the stack protector's secret.
    segment: bool,
    rex: u8,
}

impl Prefixes {
    fn wide(&self) -> bool {
        self.rex & 8 != 0
    }
}

/// Decodes the ModRM byte and what follows it: (register field, operand).
fn decode_operands(cursor: &mut Cursor<'_>, prefixes: &Prefixes, state: &State) -> Option<(usize, Operand)> {
    let modrm = cursor.byte()?;
    let (mode, low) = (modrm >> 6, usize::from(modrm & 7));
    let register = usize::from(modrm >> 3 & 7) | usize::from(prefixes.rex & 4) << 1;
    if mode == 3 {
        return Some((register, Operand::Register(low | usize::from(prefixes.rex & 1) << 3)));
    }
    let mut base = Some(low | usize::from(prefixes.rex & 1) << 3);
    let mut indexed = false;
    if low == 4 {
        let sib = cursor.byte()?;
        indexed = sib >> 3 & 7 != 4 || prefixes.rex & 2 != 0;
        base = Some(usize::from(sib & 7) | usize::from(prefixes.rex & 1) << 3);
        if mode == 0 && sib & 7 == 5 {
            base = None;
        }
    } else if mode == 0 && low == 5 {
        base = None; // relative to the instruction pointer
    }
    let displacement = match mode {
        0 if base.is_none() => cursor.i32()?,
        0 => 0,
        1 => cursor.i8()?,
        _ => cursor.i32()?,
    };
    let value = match base {
        Some(base) if !indexed && !prefixes.segment => state.registers[base],
        _ => Value::Other,
    };
    Some((register, Operand::Memory(value, displacement)))
}

fn get(state: &State, place: Operand, wide: bool) -> Value {
    match place {
        _ if !wide => Value::Other,
        Operand::Register(register) => state.registers[register],
        Operand::Memory(base, displacement) => state.load(base, displacement),
    }
}

fn put(state: &mut State, place: Operand, value: Value, wide: bool) {
    let value = if wide { value } else { Value::Other };
    match place {
        Operand::Register(register) => state.registers[register] = value,
        Operand::Memory(base, displacement) => state.store(base, displacement, value),
    }
}

fn push(state: &mut State, value: Value) {
    state.add(STACK_REGISTER, state.registers[STACK_REGISTER], -8);
    state.store(state.registers[STACK_REGISTER], 0, value);
}

fn pop(state: &mut State, into: usize) {
    let value = state.load(state.registers[STACK_REGISTER], 0);
    state.add(STACK_REGISTER, state.registers[STACK_REGISTER], 8);
    state.registers[into] = value;
}

/// Executes one instruction.
pub(super) fn step(state: &mut State, code: &[u8]) -> Option<Flow> {
    let mut cursor = Cursor { code, at: state.at };
    let mut prefixes = Prefixes { segment: false, rex: 0 };
    let mut op = cursor.byte()?;
    while matches!(op, 0x64 | 0x65 | 0x66 | 0x2e | 0xf2 | 0xf3) {
        prefixes.segment |= matches!(op, 0x64 | 0x65);
        op = cursor.byte()?;
    }
    if op & 0xf0 == 0x40 {
        prefixes.rex = op;
        op = cursor.byte()?;
    }
    let flow = execute(op, &mut cursor, &prefixes, state)?;
    state.at = cursor.at;
    Some(flow)
}

/// Decodes `cmp byte [argument + offset], constant`, if that is the current instruction: (offset, constant).
pub(super) fn compared_byte(state: &State, code: &[u8]) -> Option<(u32, u8)> {
    let mut cursor = Cursor { code, at: state.at };
    if cursor.byte()? != 0x80 {
        return None;
    }
    match decode_operands(&mut cursor, &Prefixes { segment: false, rex: 0 }, state)? {
        (7, Operand::Memory(Value::Argument, offset)) => Some((u32::try_from(offset).ok()?, cursor.byte()?)),
        _ => None,
    }
}

fn execute(op: u8, cursor: &mut Cursor<'_>, prefixes: &Prefixes, state: &mut State) -> Option<Flow> {
    let wide = prefixes.wide();
    let low = usize::from(op & 7) | usize::from(prefixes.rex & 1) << 3;
    match op {
        0x50..=0x57 => push(state, state.registers[low]),
        0x58..=0x5f => pop(state, low),
        // mov, both ways
        0x89 => {
            let (register, place) = decode_operands(cursor, prefixes, state)?;
            put(state, place, state.registers[register], wide);
        }
        0x8b => {
            let (register, place) = decode_operands(cursor, prefixes, state)?;
            put(state, Operand::Register(register), get(state, place, wide), wide);
        }
        // test
        0x85 => {
            let (register, place) = decode_operands(cursor, prefixes, state)?;
            let both = (state.registers[register], get(state, place, wide));
            state.compared_argument = both == (Value::Argument, Value::Argument);
        }
        // cmp of two values: never the argument with null, which needs no register
        0x39 | 0x3b => {
            decode_operands(cursor, prefixes, state)?;
            state.compared_argument = false;
        }
        // sub, xor: the result is irrelevant
        0x29 | 0x31 => {
            let (_, place) = decode_operands(cursor, prefixes, state)?;
            put(state, place, Value::Other, wide);
            state.compared_argument = false;
        }
        0x2b | 0x33 => {
            let (register, _) = decode_operands(cursor, prefixes, state)?;
            state.registers[register] = Value::Other;
            state.compared_argument = false;
        }
        // add, sub, cmp with a constant
        0x81 | 0x83 => {
            let (kind, place) = decode_operands(cursor, prefixes, state)?;
            let constant = if op == 0x83 { cursor.i8()? } else { cursor.i32()? };
            state.compared_argument = false;
            match (kind & 7, place) {
                (0, Operand::Register(to)) if wide => state.add(to, state.registers[to], constant),
                (5, Operand::Register(to)) if wide => state.add(to, state.registers[to], -constant),
                (7, place) => {
                    state.compared_argument = constant == 0 && get(state, place, wide) == Value::Argument;
                }
                _ => return None,
            }
        }
        0xb8..=0xbf => {
            cursor.i32()?;
            if wide {
                cursor.i32()?;
            }
            state.registers[low] = Value::Other;
        }
        0xc7 => {
            let (_, place) = decode_operands(cursor, prefixes, state)?;
            cursor.i32()?;
            put(state, place, Value::Other, wide);
        }
        0x90 => {}
        0x74 | 0x75 => {
            let distance = cursor.i8()?;
            return Some(Flow::Branch { target: cursor.target(distance)?, if_equal: op == 0x74 });
        }
        0xeb => {
            let distance = cursor.i8()?;
            return Some(Flow::Jump(cursor.target(distance)?));
        }
        0xe9 => {
            let distance = cursor.i32()?;
            return Some(Flow::Jump(cursor.target(distance)?));
        }
        0xe8 => return Some(Flow::Call),
        0xc9 => {
            state.registers[STACK_REGISTER] = state.registers[RBP];
            pop(state, RBP);
        }
        0xc3 => return Some(Flow::Return),
        0x0f => match cursor.byte()? {
            second @ (0x84 | 0x85) => {
                let distance = cursor.i32()?;
                return Some(Flow::Branch { target: cursor.target(distance)?, if_equal: second == 0x84 });
            }
            // endbr64 and the long nops
            0x1e | 0x1f => {
                decode_operands(cursor, prefixes, state)?;
            }
            _ => return None,
        },
        _ => return None,
    }
    Some(Flow::Next)
}
