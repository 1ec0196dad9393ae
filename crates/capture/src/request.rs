//! What to record.

use model::Dev;
use std::path::PathBuf;

/// The processes whose operations and calls are recorded. Block events are recorded for all processes, so that every
/// command of a disk is accounted for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    All,
    /// These processes, with all their threads, and their descendants.
    Pids(Vec<u32>),
    /// Every process with this name (the kernel's, cut at 15 bytes), including later ones, and their descendants.
    Comm(String),
    /// A command that the caller starts and passes to [`crate::Session::track`] before it releases it.
    Command,
}

#[derive(Debug, Clone)]
pub struct Request {
    /// The processes whose operations are requested.
    pub scope: Scope,
    /// Also records all other processes, without counting them as requested.
    pub also_all: bool,
    /// Functions whose executions are operations. The number in
    /// an operation's `key` is the index in this list.
    pub functions: Vec<Function>,
    /// Whether to sample the cost of each probe (5 ms of every 250, during which probes cost about 50 ns more).
    pub price: bool,
    /// Whether Fathom's object is in the recorded processes: their system calls with its mark are then the object's own, and are
    /// skipped.
    pub inside: bool,
    /// Leaves the uprobes of functions out, until [`crate::Session::attach_functions`] is called.
    pub functions_later: bool,
    /// Attaches every probe and records nothing: each program returns at once. Shows the minimum cost of tracing.
    pub hollow: bool,
    /// The memory in which the command marks its own intervals ([`crate::marks::Marks::identity`]): once a process maps it, all sleeps
    /// of recorded threads are recorded, since a mark becomes known only afterwards.
    pub marks: Option<(u64, Dev)>,
    /// Takes the stacks of the longest sleeps, under a budget.
    pub stacks: bool,
    /// Kernel probes that are left out, to show their cost.
    pub without: Vec<String>,
}

impl Request {
    /// Creates a request for that scope with default settings.
    pub fn new(scope: Scope) -> Self {
        Self {
            scope,
            also_all: false,
            functions: Vec::new(),
            price: true,
            inside: false,
            functions_later: false,
            hollow: false,
            marks: None,
            stacks: true,
            without: Vec::new(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The program or library.
    pub path: PathBuf,
    /// Its name in the symbol table.
    pub name: String,
    /// Its file's place in the plan of what is probed inside, if any; the uprobe is then for processes that do not have the
    /// object.
    pub inside: Option<usize>,
}
