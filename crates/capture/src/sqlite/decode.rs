//! Determines where a prepared statement keeps its SQL text and its state, from the machine code of `sqlite3_sql` and
//! `sqlite3_stmt_busy`.
//!
//! `sqlite3_stmt` is opaque and its layout differs between versions and build options, but every SQLite has a function that
//! knows it: `sqlite3_sql` is `return p ? p->zSql : 0`. So the question "at which offset is the text's address?" is the
//! question "what does this function return when its argument is not null?", and that is answered by symbolic execution:
//! values are symbols (the argument, a field of it, a place on the stack, anything else), branches on the argument are
//! taken as for a non-null one, and branches on anything else (a stack protector's check) are tried both ways. The return
//! value must be one field of the argument, else there is no answer.
//!
//! Following values rather than matching bytes makes one implementation work for every compiler, optimisation level, frame
//! pointer and hardening option that was examined. An unknown instruction ends the attempt; a wrong offset would need code
//! that loads a field of its argument, returns it, and is called `sqlite3_sql` without being it.
//!
//! Likewise `sqlite3_stmt_busy` is `return p && p->eVdbeState == VDBE_RUN_STATE` (in SQLites from before 2022 it compares a
//! word, which is not decoded): followed until it compares a byte of its argument with a constant.

mod aarch64;
mod x86_64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    /// 64-bit x86.
    X86_64,
    /// 64-bit ARM, little-endian.
    Aarch64,
}

impl Machine {
    /// That of this machine.
    pub const OWN: Option<Self> = if cfg!(target_arch = "x86_64") {
        Some(Self::X86_64)
    } else if cfg!(target_arch = "aarch64") {
        Some(Self::Aarch64)
    } else {
        None
    };
}

/// Returns the offset in bytes of `zSql` within `sqlite3_stmt`, from the bytes of `sqlite3_sql` (they may extend into the
/// next function). `None` if the code is not understood.
pub fn text_offset(machine: Machine, code: &[u8]) -> Option<u32> {
    let step: Step = match machine {
        Machine::X86_64 => x86_64::step,
        Machine::Aarch64 => aarch64::step,
    };
    let start = match machine {
        Machine::X86_64 => State::new(x86_64::ARGUMENT_REGISTER, x86_64::STACK_REGISTER, x86_64::RESULT_REGISTER),
        Machine::Aarch64 => State::new(aarch64::ARGUMENT_REGISTER, aarch64::STACK_REGISTER, aarch64::RESULT_REGISTER),
    };
    let mut budget = STEPS_MAX;
    let offset = trace_to_return(step, code, start, &mut budget).ok()??;
    // A pointer is aligned, and the structure has never been nearly as large as this.
    (offset % 8 == 0 && offset < 4096).then_some(offset)
}

/// The byte of a statement that shows whether it is running: begun, and neither done nor reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunningByte {
    /// Its offset within `sqlite3_stmt`.
    pub offset: u16,
    /// Its value while the statement is running.
    pub value: u8,
}

/// Decodes the bytes of `sqlite3_stmt_busy`, as in [`text_offset`]. Only x86 is supported, and only if the comparison is
/// one instruction, which it is in optimised code.
pub fn decode_running(machine: Machine, code: &[u8]) -> Option<RunningByte> {
    if machine != Machine::X86_64 {
        return None;
    }
    let mut state = State::new(x86_64::ARGUMENT_REGISTER, x86_64::STACK_REGISTER, x86_64::RESULT_REGISTER);
    for _ in 0..STEPS_MAX {
        if let Some((offset, value)) = x86_64::compared_byte(&state, code) {
            return (offset < 4096).then_some(RunningByte { offset: offset as u16, value });
        }
        match x86_64::step(&mut state, code)? {
            Flow::Next => {}
            Flow::Jump(target) => state.at = target,
            Flow::Branch { target, if_equal } if state.compared_argument => {
                if !if_equal {
                    state.at = target;
                }
            }
            _ => return None,
        }
    }
    None
}

/// Maximum number of instructions followed, counting both sides of every branch. The longest version seen has 30.
const STEPS_MAX: u32 = 200;

/// The contents of a register or a place on the stack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Value {
    /// The statement.
    Argument,
    /// The value at this offset of the statement.
    Field(u32),
    /// An address on the stack, relative to the stack pointer at entry.
    Stack(i64),
    /// Anything else.
    Other,
}

/// The state of the machine while the function runs.
#[derive(Debug, Clone)]
struct State {
    at: usize,
    registers: [Value; 32],
    result: usize,
    memory: Vec<(i64, Value)>,
    /// The last comparison was of the argument with null, so its outcome is known: not equal.
    compared_argument: bool,
}

impl State {
    fn new(argument: usize, stack: usize, result: usize) -> Self {
        let mut registers = [Value::Other; 32];
        registers[argument] = Value::Argument;
        registers[stack] = Value::Stack(0);
        Self { at: 0, registers, result, memory: Vec::new(), compared_argument: false }
    }

    fn load(&self, base: Value, displacement: i64) -> Value {
        match base {
            Value::Argument => u32::try_from(displacement).map_or(Value::Other, Value::Field),
            Value::Stack(at) => {
                let at = at.wrapping_add(displacement);
                self.memory.iter().rev().find(|(place, _)| *place == at).map_or(Value::Other, |(_, value)| *value)
            }
            Value::Field(_) | Value::Other => Value::Other,
        }
    }

    /// Stores a value; a store outside the stack cannot change the result.
    fn store(&mut self, base: Value, displacement: i64, value: Value) {
        if let Value::Stack(at) = base {
            self.memory.push((at.wrapping_add(displacement), value));
        }
    }

    fn add(&mut self, to: usize, from: Value, amount: i64) {
        self.registers[to] = match from {
            Value::Stack(at) => Value::Stack(at.wrapping_add(amount)),
            _ => Value::Other,
        };
    }
}

/// The effect of an instruction on control flow.
enum Flow {
    Next,
    /// To this byte.
    Jump(usize),
    /// To this byte if the last comparison was equal (or unequal).
    Branch {
        target: usize,
        if_equal: bool,
    },
    Return,
    /// A call: the only one in such a function is the stack protector's, which does not return.
    Call,
}

/// Executes one instruction; moves `state.at` past it. `None` if it is not known.
type Step = fn(&mut State, &[u8]) -> Option<Flow>;

/// Not understood, or two paths that return different things.
struct UnclearCode;

/// Runs until the function returns: the field that it returned, or nothing if it does not return.
fn trace_to_return(step: Step, code: &[u8], mut state: State, budget: &mut u32) -> Result<Option<u32>, UnclearCode> {
    loop {
        *budget = budget.checked_sub(1).ok_or(UnclearCode)?;
        match step(&mut state, code).ok_or(UnclearCode)? {
            Flow::Next => {}
            Flow::Jump(target) => state.at = target,
            Flow::Branch { target, if_equal } if state.compared_argument => {
                if !if_equal {
                    state.at = target;
                }
            }
            Flow::Branch { target, .. } => {
                let mut taken = state.clone();
                taken.at = target;
                let ways = (trace_to_return(step, code, taken, budget)?, trace_to_return(step, code, state, budget)?);
                return match ways {
                    (Some(a), Some(b)) if a != b => Err(UnclearCode),
                    (a, b) => Ok(a.or(b)),
                };
            }
            Flow::Return => {
                return match state.registers[state.result] {
                    Value::Field(offset) => Ok(Some(offset)),
                    _ => Err(UnclearCode),
                };
            }
            Flow::Call => return Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes(hex: &str) -> Vec<u8> {
        hex.split_whitespace().map(|b| u8::from_str_radix(b, 16).unwrap()).collect()
    }

    /// `char *f(void *s) { V *p = s; return p ? p->z : 0; }` with `z` at 0xf8, as compiled by various compilers.
    const X86_FUNCTIONS: &[(&str, &str)] = &[
        ("Debian 12, SQLite 3.40.1", "48 85 ff 74 0b 48 8b 87 f8 00 00 00 c3 0f 1f 00 31 c0 c3"),
        ("gcc -O1", "48 85 ff 74 08 48 8b 87 f8 00 00 00 c3 48 89 f8 c3"),
        ("gcc -Os -fcf-protection", "f3 0f 1e fa 48 89 f8 48 85 ff 74 07 48 8b 87 f8 00 00 00 c3"),
        ("clang -O2 -fno-omit-frame-pointer", "48 85 ff 74 0d 55 48 89 e5 48 8b 87 f8 00 00 00 5d c3 31 c0 c3"),
        (
            "gcc -O0 -fcf-protection",
            "f3 0f 1e fa 55 48 89 e5 48 89 7d e8 48 8b 45 e8 48 89 45 f8 48 83 7d f8 00 74 0d 48 8b 45 f8 \
             48 8b 80 f8 00 00 00 eb 05 b8 00 00 00 00 5d c3",
        ),
        (
            "clang -O0",
            "55 48 89 e5 48 89 7d f8 48 8b 45 f8 48 89 45 f0 48 83 7d f0 00 0f 84 14 00 00 00 48 8b 45 f0 \
             48 8b 80 f8 00 00 00 48 89 45 e8 e9 0b 00 00 00 31 c0 48 89 45 e8 e9 00 00 00 00 48 8b 45 e8 5d c3",
        ),
        (
            "gcc -O0 -fstack-protector-all",
            "55 48 89 e5 48 83 ec 20 48 89 7d e8 64 48 8b 04 25 28 00 00 00 48 89 45 f8 31 c0 48 8b 45 e8 \
             48 89 45 f0 48 83 7d f0 00 74 0d 48 8b 45 f0 48 8b 80 f8 00 00 00 eb 05 b8 00 00 00 00 \
             48 8b 55 f8 64 48 2b 14 25 28 00 00 00 74 05 e8 00 00 00 00 c9 c3",
        ),
        (
            "clang -O3 -fstack-protector-all",
            "55 48 89 e5 48 83 ec 10 64 48 8b 04 25 28 00 00 00 48 89 45 f8 48 85 ff 74 1c 48 8b 87 f8 00 00 00 \
             64 48 8b 0c 25 28 00 00 00 48 3b 4d f8 75 17 48 83 c4 10 5d c3 31 c0 64 48 8b 0c 25 28 00 00 00 \
             48 3b 4d f8 74 e9 e8 00 00 00 00",
        ),
        ("inverted branch", "48 85 ff 75 03 31 c0 c3 48 8b 87 f8 00 00 00 c3"),
    ];

    const ARM_FUNCTIONS: &[(&str, &str)] = &[
        ("clang -O2", "40 00 00 b4 00 7c 40 f9 c0 03 5f d6"),
        ("clang -O2 -mbranch-protection=standard", "5f 24 03 d5 40 00 00 b4 00 7c 40 f9 c0 03 5f d6"),
        (
            "clang -O0",
            "ff 83 00 d1 e0 0f 00 f9 e8 0f 40 f9 e8 0b 00 f9 e8 0b 40 f9 c8 00 00 b4 01 00 00 14 e8 0b 40 f9 \
             08 7d 40 f9 e8 07 00 f9 04 00 00 14 e8 03 1f aa e8 07 00 f9 01 00 00 14 e0 07 40 f9 ff 83 00 91 c0 03 5f d6",
        ),
    ];

    #[test]
    fn code_of_every_known_compiler_is_decoded() {
        for (name, code) in X86_FUNCTIONS {
            assert_eq!(text_offset(Machine::X86_64, &bytes(code)), Some(0xf8), "{name}");
        }
        for (name, code) in ARM_FUNCTIONS {
            assert_eq!(text_offset(Machine::Aarch64, &bytes(code)), Some(0xf8), "{name}");
        }
    }

    #[test]
    fn other_offsets_and_widths_are_read() {
        // An offset that fits into one byte is encoded in one.
        assert_eq!(text_offset(Machine::X86_64, &bytes("48 85 ff 74 05 48 8b 47 70 c3 31 c0 c3")), Some(0x70));
        // ldr x0, [x0, #272]: SQLite 3.50.1 for arm64.
        assert_eq!(text_offset(Machine::Aarch64, &bytes("40 00 00 b4 00 88 40 f9 c0 03 5f d6")), Some(272));
    }

    #[test]
    fn other_functions_are_not_decoded() {
        let x86 = |code| text_offset(Machine::X86_64, &bytes(code));
        assert_eq!(x86("48 89 f8 c3"), None, "returns its argument");
        assert_eq!(x86("31 c0 c3"), None, "returns null");
        assert_eq!(x86("48 85 ff 74 06 8b 87 f8 00 00 00 c3 31 c0 c3"), None, "a field of 32 bits");
        assert_eq!(x86("48 85 ff 74 08 48 8b 87 f9 00 00 00 c3 31 c0 c3"), None, "no aligned pointer");
        assert_eq!(x86("48 8b 87 f8 00 00 00 48 8b 40 08 c3"), None, "a field of a field");
        assert_eq!(x86("e8 00 00 00 00 c3"), None, "calls a function");
        assert_eq!(x86("48 85 f6 74 08 48 8b 87 f8 00 00 00 c3 48 8b 47 10 c3"), None, "two answers");
        assert_eq!(x86("eb fe"), None, "never ends");
        assert_eq!(text_offset(Machine::Aarch64, &bytes("00 00 00 14")), None, "never ends");
        // Truncated code gives the same answer or none.
        for (name, code) in X86_FUNCTIONS {
            let code = bytes(code);
            for cut in 0..code.len() {
                assert!(matches!(text_offset(Machine::X86_64, &code[..cut]), None | Some(0xf8)), "{name} cut at {cut}");
            }
        }
    }

    /// `int f(void *s) { V *v = s; return v != 0 && v->state == 2; }` with `state` at 0xc5.
    const BUSY_FUNCTIONS: &[(&str, &str)] = &[
        ("Debian 12, SQLite 3.40.1", "31 c0 48 85 ff 74 0c 31 c0 80 bf c5 00 00 00 02 0f 94 c0 c3"),
        ("gcc -Os -fcf-protection", "f3 0f 1e fa 31 c0 48 85 ff 74 0a 80 bf c5 00 00 00 02 0f 94 c0 c3"),
        ("clang -O2", "48 85 ff 74 0b 31 c0 80 bf c5 00 00 00 02 0f 94 c0 c3 31 c0 c3"),
        ("clang -O2 -fno-omit-frame-pointer", "55 48 89 e5 48 85 ff 74 0c 31 c0 80 bf c5 00 00 00 02 0f 94 c0 5d c3"),
    ];

    #[test]
    fn busy_flag_of_statement_is_decoded() {
        let x86 = |code| decode_running(Machine::X86_64, &bytes(code));
        for (name, code) in BUSY_FUNCTIONS {
            assert_eq!(x86(code), Some(RunningByte { offset: 0xc5, value: 2 }), "{name}");
        }
        assert_eq!(x86("48 85 ff 74 07 80 7f 60 03 0f 94 c0 c3"), Some(RunningByte { offset: 0x60, value: 3 }));
        assert_eq!(x86("48 85 ff 74 08 81 bf c4 00 00 00 90 6b 4d 2d c3"), None, "SQLite before 3.38: a word");
        assert_eq!(x86("48 8b 07 80 78 10 02 0f 94 c0 c3"), None, "a byte of a field");
        assert_eq!(x86("80 bf 00 10 00 00 02 c3"), None, "too far off");
        assert_eq!(x86("eb fe"), None, "never ends");
    }

    proptest! {
        #[test]
        fn arbitrary_code_does_not_panic(code in proptest::collection::vec(any::<u8>(), 0..96)) {
            prop_assert!(decode_running(Machine::X86_64, &code).is_none_or(|r| r.offset < 4096));
            for machine in [Machine::X86_64, Machine::Aarch64] {
                if let Some(offset) = text_offset(machine, &code) {
                    prop_assert!(offset % 8 == 0 && offset < 4096);
                }
            }
        }

        /// Corrupted real functions reach deeper than random bytes.
        #[test]
        fn damaged_code_does_not_panic(which in 0..X86_FUNCTIONS.len() + ARM_FUNCTIONS.len(), at in any::<usize>(), byte in any::<u8>()) {
            let (machine, text) = match X86_FUNCTIONS.get(which) {
                Some((_, code)) => (Machine::X86_64, code),
                None => (Machine::Aarch64, &ARM_FUNCTIONS[which - X86_FUNCTIONS.len()].1),
            };
            let mut code = bytes(text);
            let at = at % code.len();
            code[at] = byte;
            if let Some(offset) = text_offset(machine, &code) {
                prop_assert!(offset % 8 == 0 && offset < 4096);
            }
        }

        #[test]
        fn every_offset_is_decoded(field in 0u32..512) {
            let offset = field * 8;
            let mut code = bytes("48 85 ff 74 08 48 8b 87");
            code.extend(offset.to_le_bytes());
            code.extend(bytes("c3 31 c0 c3"));
            prop_assert_eq!(text_offset(Machine::X86_64, &code), Some(offset));
            let mut code = bytes("40 00 00 b4");
            code.extend((0xf940_0000_u32 | field << 10).to_le_bytes());
            code.extend(bytes("c0 03 5f d6"));
            prop_assert_eq!(text_offset(Machine::Aarch64, &code), Some(offset));
        }
    }
}
