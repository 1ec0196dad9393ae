//! What is asked to be recorded.

use std::path::PathBuf;

/// Whose operations and calls are recorded. Block events are recorded of everyone, so that every command of a disk is
/// accounted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everyone.
    All,
    /// These processes, with all their threads, and what they start.
    Pids(Vec<u32>),
    /// Every process of this name (the kernel's, cut at 15 bytes), also one that begins later, and what it starts.
    Comm(String),
    /// A command that the caller starts and hands to [`crate::Session::track`] before it releases it.
    Command,
}

/// A recording to be made.
#[derive(Debug, Clone)]
pub struct Request {
    /// Whose operations are asked about.
    pub scope: Scope,
    /// Records everyone else's too, without counting them as what was asked for.
    pub also_all: bool,
    /// Functions whose executions are operations: the file and the offset of the function's first byte in it. The number
    /// in an operation's `key` is the place in this list.
    pub functions: Vec<Function>,
    /// Whether to sample what each probe costs (5 ms of every 250, in which probes cost about 50 ns more).
    pub price: bool,
    /// Whether Fathom's object is in the recorded processes: a system call of theirs with its mark is its own then, and is left out.
    pub inside: bool,
    /// Attaches every probe and records nothing: each program returns at once. What tracing costs at least.
    pub hollow: bool,
    /// Takes the stacks of the longest sleeps, under a budget.
    pub stacks: bool,
    /// Probes of the kernel that are left out, so that their price shows.
    pub without: Vec<String>,
}

impl Request {
    /// A request for that scope and nothing else.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            also_all: false,
            functions: Vec::new(),
            price: true,
            inside: false,
            hollow: false,
            stacks: true,
            without: Vec::new(),
        }
    }
}

/// A function to be recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The program or library.
    pub path: PathBuf,
    /// Its name, for the coverage.
    pub name: String,
    /// Where it begins, in bytes from the file's start; `None`: to be found by its name in the symbol table.
    pub offset: Option<u64>,
    /// Its file's place in the plan of what is probed inside, if it is; then the uprobe is for processes that do not have it.
    pub inside: Option<usize>,
}
