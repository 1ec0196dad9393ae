//! Where a program makes a call: the functions on its stack, with their lines in the source.

use serde::{Deserialize, Serialize};

/// A function on a program's stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its name, with that of its class or module.
    pub function: String,
    /// The file of its source; else of its code.
    pub file: String,
    /// The program or library that holds its code; of an interpreted function, the file of its source.
    pub code: String,
    /// The line of its source that is being executed; `None` if there is no such information.
    pub line: Option<u32>,
}

/// A system call that a program is about to make.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocatedCall {
    /// When, on the clock of recordings.
    pub time_ns: u64,
    /// The process, as numbered in recordings.
    pub tgid: u32,
    /// Its thread.
    pub tid: u32,
    /// The call's name.
    pub call: String,
    /// The stack, the innermost function first; empty if unknown.
    pub frames: Vec<Frame>,
}
