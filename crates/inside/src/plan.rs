//! The object's instructions: which functions of which files to hook, and how. The bytes are `struct plan` of `object/layout.h`.

use crate::hook::Recipe;
use crate::layout::{PLAN_CODE, PLAN_FIXUPS, PLAN_FUNCTIONS, PLAN_LIBRARIES, PLAN_MAGIC, PLAN_ORIGINAL};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// `sqlite3_step`.
    Step,
    /// `sqlite3_reset`.
    Reset,
    /// `sqlite3_finalize`.
    Finalize,
    /// Compiles SQL into a statement.
    Prepare {
        /// Index of the argument `ppStmt`.
        stmt: u8,
        /// Index of the argument with the SQL.
        sql: u8,
        /// Index of the argument with its length.
        length: u8,
        /// Whether that SQL is UTF-16.
        utf16: bool,
    },
    /// The C library's `execve`, which passes on the environment.
    Execve,
    /// Its `prctl`, which may forbid system calls.
    Prctl,
    /// Its `syscall`, which may do so too.
    Syscall,
    /// The unwinder's `_Unwind_Find_FDE`, which finds the description of code.
    FindFde,
    /// A function that `--op` names.
    Named {
        /// Its index in that list.
        key: u16,
        /// Whether a child of `vfork` may call it, on the memory of its parent.
        shared: bool,
    },
}

impl Role {
    /// Returns the indices of the arguments that its hook reads.
    pub fn reads(self) -> Vec<u32> {
        match self {
            Self::Step | Self::Reset | Self::Finalize => vec![0],
            Self::Prepare { stmt, sql, length, .. } => [stmt, sql, length].map(u32::from).to_vec(),
            Self::Execve => vec![0, 1, 2],
            Self::Prctl => vec![0],
            Self::Syscall | Self::FindFde => vec![0, 1],
            // The hook preserves all registers.
            Self::Named { .. } => Vec::new(),
        }
    }

    /// Whether calls with a first argument of 0 are not recorded.
    pub fn ignores_null(self) -> bool {
        matches!(self, Self::Step | Self::Reset | Self::Finalize)
    }

    /// Returns the bytes of `struct plan_function`: its kind, three arguments and the encoding.
    fn bytes(self) -> [u8; 5] {
        match self {
            Self::Step => [1, 0, 0, 0, 0],
            Self::Reset => [2, 0, 0, 0, 0],
            Self::Finalize => [3, 0, 0, 0, 0],
            Self::Prepare { stmt, sql, length, utf16 } => [4, stmt, sql, length, utf16.into()],
            Self::Execve => [5, 0, 0, 0, 0],
            Self::Prctl => [6, 0, 0, 0, 0],
            Self::Syscall => [7, 0, 0, 0, 0],
            Self::Named { .. } => [8, 0, 0, 0, 0],
            Self::FindFde => [9, 0, 0, 0, 0],
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// Its address, in its file's own addresses.
    pub address: u64,
    pub role: Role,
    /// How it is hooked.
    pub recipe: Recipe,
}

/// A file with SQLite in it, or with functions that `--op` names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Library {
    /// Its identity, as stat returns it.
    pub dev: u64,
    pub ino: u64,
    /// Offset of the pointer to its text in a statement.
    pub text_at: Option<u32>,
    /// Offset of its running state, and the value while it is running.
    pub running: Option<(u16, u8)>,
    /// How its counters are read, if they are.
    pub counters: Option<Counters>,
    /// Its functions, at most [`PLAN_FUNCTIONS`].
    pub functions: Vec<Function>,
}

/// Where SQLite has the functions that return its counters, in its file's own addresses.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Number of a statement's counters that this version has, from FULLSCAN_STEP on: 3, 4 or 6.
    pub counted: u8,
    /// `sqlite3_stmt_status`.
    pub stmt_status: u64,
    /// Those for the cache, if all were found: `sqlite3_db_handle`, `sqlite3_db_status`, `sqlite3_db_mutex`, `sqlite3_mutex_try`,
    /// `sqlite3_mutex_leave`.
    pub cache: Option<[u64; 5]>,
}

impl Counters {
    /// Returns the addresses of all functions that the object calls.
    pub fn addresses(self) -> impl Iterator<Item = u64> {
        [self.stmt_status].into_iter().chain(self.cache.into_iter().flatten())
    }
}

/// All instructions of the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The recorder's PID and time namespaces, by inode; 0: this kernel has none.
    pub pid_namespace: u64,
    pub time_namespace: u64,
    /// At most [`PLAN_LIBRARIES`].
    pub libraries: Vec<Library>,
}

const FUNCTION_BYTES: usize = 24 + PLAN_ORIGINAL + PLAN_CODE + 8 * PLAN_FIXUPS;
const LIBRARY_BYTES: usize = 80 + PLAN_FUNCTIONS * FUNCTION_BYTES;
const _: () = assert!(PLAN_ORIGINAL <= 255 && PLAN_CODE <= 255 && PLAN_FIXUPS <= 255);
/// Size of a plan in bytes.
pub const PLAN_BYTES: usize = 40 + PLAN_LIBRARIES * LIBRARY_BYTES;

impl Plan {
    /// Returns the bytes that the object reads. Anything beyond the limits is left out.
    pub fn to_bytes(&self) -> Vec<u8> {
        let libraries = &self.libraries[..self.libraries.len().min(PLAN_LIBRARIES)];
        let mut out = Vec::with_capacity(PLAN_BYTES);
        for word in [PLAN_MAGIC, PLAN_BYTES as u64, self.pid_namespace, self.time_namespace, libraries.len() as u64] {
            out.extend(word.to_le_bytes());
        }
        for library in libraries {
            library.write(&mut out);
        }
        assert!(out.len() <= PLAN_BYTES);
        out.resize(PLAN_BYTES, 0);
        out
    }
}

impl Library {
    fn write(&self, out: &mut Vec<u8>) {
        let end = out.len() + LIBRARY_BYTES;
        let functions = &self.functions[..self.functions.len().min(PLAN_FUNCTIONS)];
        out.extend(self.dev.to_le_bytes());
        out.extend(self.ino.to_le_bytes());
        out.extend((functions.len() as u32).to_le_bytes());
        let text_at = self.text_at.map_or(0, |at| at as u16 + 1);
        let (running_at, running) = self.running.map_or((0, 0), |(at, value)| (at + 1, value));
        out.extend(text_at.to_le_bytes());
        out.extend(running_at.to_le_bytes());
        let counters = self.counters.unwrap_or_default();
        out.extend([running, counters.counted, 0, 0, 0, 0, 0, 0]);
        for address in [counters.stmt_status].into_iter().chain(counters.cache.unwrap_or_default()) {
            out.extend(address.to_le_bytes());
        }
        for function in functions {
            function.write(out);
        }
        assert!(out.len() <= end);
        out.resize(end, 0);
    }
}

impl Function {
    fn write(&self, out: &mut Vec<u8>) {
        let end = out.len() + FUNCTION_BYTES;
        let Recipe { first, undo, original, code, fixups } = &self.recipe;
        // The lengths are stored in a byte each, and the object copies as many bytes as they say.
        assert!(original.len() <= PLAN_ORIGINAL && code.len() <= PLAN_CODE && fixups.len() <= PLAN_FIXUPS);
        assert!(usize::from(*first) <= original.len());
        for fixup in fixups {
            let bytes = if fixup.absolute { 8 } else { 4 };
            assert!(usize::from(fixup.at) + bytes <= code.len(), "{fixup:?} in {} bytes", code.len());
        }
        out.extend(self.address.to_le_bytes());
        out.extend(self.role.bytes());
        out.extend([*first, original.len() as u8, *undo, code.len() as u8, fixups.len() as u8]);
        let (key, shared) = if let Role::Named { key, shared } = self.role { (key, shared) } else { (0, false) };
        out.extend(key.to_le_bytes());
        out.extend([shared.into(), 0, 0, 0]);
        let mut padded = |bytes: &[u8], size: usize| {
            out.extend(bytes);
            out.resize(out.len() + size - bytes.len(), 0);
        };
        padded(original, PLAN_ORIGINAL);
        padded(code, PLAN_CODE);
        for fixup in fixups {
            out.extend([fixup.at, fixup.end, fixup.absolute.into(), 0]);
            out.extend(fixup.target.to_le_bytes());
        }
        assert!(out.len() <= end);
        out.resize(end, 0);
    }
}
