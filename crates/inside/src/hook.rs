//! Makes room for a jump in a function's code.
//!
//! The jump is placed after the function's first instruction, not on it. There the kernel puts the breakpoint of a uprobe (ours for
//! another process, or another tool's): it executes the file's instruction elsewhere and resumes after it, which would be the middle of a
//! jump placed there, or would skip a jump of a single instruction. So the first instruction runs, the stub behind the jump undoes it,
//! and the trampoline, which is the function as the hook calls it, executes it again and then the instructions that the jump replaced.
//!
//! Only known cases are moved: a first instruction that can be undone or executed twice, and after it instructions whose meaning does not
//! depend on their address, or does so in a way that can be recomputed. A call must be the last of them, and returns to the function's
//! own code. And nothing in the function may jump into the moved part.

pub mod aarch64;
pub mod x86_64;

/// How many bytes of a function are searched for jumps back into it.
pub const SEARCHED_BYTES: usize = 8192;

/// A displacement within a trampoline that points out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fixup {
    /// Its offset.
    pub at: u8,
    /// The offset that it is relative to: its instruction's end (x86-64) or begin (aarch64).
    pub end: u8,
    /// Its target, relative to the function's begin.
    pub target: i32,
    /// Whether the address itself is stored there, in eight bytes.
    pub absolute: bool,
}

/// How a function is hooked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Size of its first instruction; the jump follows it.
    pub first: u8,
    /// How it is undone: see the processor's module.
    pub undo: u8,
    /// The function's bytes up to where the trampoline returns to.
    pub original: Vec<u8>,
    /// The trampoline, except for the jump at its end.
    pub code: Vec<u8>,
    /// Its position-dependent parts.
    pub fixups: Vec<Fixup>,
}

/// Why a function cannot be hooked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HookError {
    /// Its first instruction can neither be undone nor repeated.
    FirstInstruction,
    /// Its code ends before there is room for a jump.
    Truncated,
    /// It ends before there is room for a jump.
    TooShort,
    /// What must be moved does not fit into the plan.
    TooLong,
    /// A branch within what must be moved.
    InnerJump,
    /// A branch from later code into what must be moved.
    JumpBack,
    /// A target further away than 2 GiB.
    FarBranch,
    /// A branch in an encoding that is not rewritten.
    Branch,
    /// A call before the end of what must be moved, or one that is not direct.
    Call,
    /// An instruction that cannot be moved.
    Immovable(String),
    /// Its second instruction is a landing pad for indirect branches.
    Landing,
    /// A memory operand relative to the instruction, with a displacement whose size is not 4.
    MemoryOperand,
}

impl std::fmt::Display for HookError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::FirstInstruction => "its first instruction can neither be undone nor repeated",
            Self::Truncated => "its code ends too soon",
            Self::TooShort => "it is too short for a jump",
            Self::TooLong => "its first instructions are too long",
            Self::InnerJump => "its first instructions jump among themselves",
            Self::JumpBack => "it jumps back into its first instructions",
            Self::FarBranch => "a branch target is too far away",
            Self::Branch => "it has an unsupported branch",
            Self::Call => "its first instructions contain a call",
            Self::Immovable(mnemonic) => return write!(f, "{mnemonic} among its first instructions cannot be moved"),
            Self::Landing => "its second instruction may be an indirect branch's target",
            Self::MemoryOperand => "it has an unsupported memory operand",
        })
    }
}

impl std::error::Error for HookError {}
