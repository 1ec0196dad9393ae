//! What a stopped thread is made to do: system calls, and calls of functions of the object, before it resumes where it was. The code is
//! `fathom_piece` of `object/attach.h`; this is its data. It runs independently: the process that started it may end.

/// The registers with which a thread resumes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ResumeState {
    /// The next instruction, and the flags.
    pub ip: u64,
    pub flags: u64,
    /// r15 to r8, rbp, rdi, rsi, rdx, rcx, rax, rbx. The stack pointer stays unchanged.
    pub registers: [u64; 15],
    /// Blocked signals.
    pub mask: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// A system call: its number, and arguments.
    Call(u64, [u64; 6]),
    /// A function, by its address, without arguments.
    Function(u64),
}

impl Task {
    /// Creates a system call that does not use its last argument, marked as the object's own: it is not recorded.
    pub fn own_call(number: u64, a: [u64; 5]) -> Self {
        Self::Call(number, [a[0], a[1], a[2], a[3], a[4], OWN_CALL])
    }
}

/// Placeholder for a descriptor: that of the opened file, which is closed at the end.
pub const OPENED_FD: u64 = u64::MAX - 1;
/// Number of bytes used below the stack pointer: the red zone (System V ABI), and two words.
pub const BELOW_STACK_BYTES: u64 = 144;

const HEADER_BYTES: usize = 176;
const TASK_BYTES: usize = 56;
/// As `OWN_CALL` of `object/system.h`.
const OWN_CALL: u64 = 0x6c6c_6143_6e77_6f46;

/// Returns the size of the code's data in bytes, for this number of tasks and this text.
pub fn data_bytes(tasks: usize, text: &[u8]) -> usize {
    HEADER_BYTES + TASK_BYTES * tasks + text.len()
}

/// Returns the code's data, whose address is in rbx. `stack`: the end of the stack for functions. `text` is at the end.
pub fn build_data(state: &ResumeState, stack: u64, tasks: &[Task], text: &[u8]) -> Vec<u8> {
    let mut words = vec![state.mask, u64::MAX, stack, tasks.len() as u64, OWN_CALL, state.ip, state.flags];
    words.extend(state.registers);
    for task in tasks {
        match task {
            Task::Call(number, arguments) => {
                words.push(*number);
                words.extend(arguments);
            }
            Task::Function(address) => words.extend([u64::MAX, *address, 0, 0, 0, 0, 0]),
        }
    }
    let mut bytes: Vec<u8> = words.into_iter().flat_map(u64::to_le_bytes).collect();
    bytes.extend(text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_stands_where_code_looks_for_it() {
        let state =
            ResumeState { ip: 0x1234, flags: 0x246, registers: std::array::from_fn(|i| 100 + i as u64), mask: 7 };
        let tasks = [Task::Call(9, [1, 2, 3, 4, OPENED_FD, 6]), Task::Function(0x55)];
        let bytes = build_data(&state, 0x9000, &tasks, b"/x\0");
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().unwrap());
        assert_eq!([word(0), word(8), word(16), word(24), word(32)], [7, u64::MAX, 0x9000, 2, OWN_CALL]);
        assert_eq!([word(40), word(48), word(56), word(168)], [0x1234, 0x246, 100, 114]);
        assert_eq!(
            [word(HEADER_BYTES), word(HEADER_BYTES + 40), word(HEADER_BYTES + TASK_BYTES)],
            [9, OPENED_FD, u64::MAX]
        );
        assert_eq!((word(HEADER_BYTES + TASK_BYTES + 8), bytes.len()), (0x55, data_bytes(2, b"/x\0")));
        assert_eq!(bytes[HEADER_BYTES + 2 * TASK_BYTES..], *b"/x\0");
    }
}
