//! Ready-made operations: the functions of known databases that are a transaction, a write or a commit, found by their
//! symbols.
//!
//! A preset names the files that may contain the functions (the recorded program first, which may be linked statically) and the
//! prefixes of their symbols: what follows is the C++ mangling of arguments, which differs between versions. The first file that
//! defines any of them is used.

use crate::functions;
use model::text::ShownPath as _;
use object::{Object as _, ObjectSymbol as _};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Ready-made operations of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// The name given to `--op`.
    pub name: &'static str,
    /// A description of its operations.
    pub about: &'static str,
    /// Programs and libraries, by name or path; a `*` in a path stands for one directory.
    files: &'static [&'static str],
    /// The functions' symbols, or their prefixes.
    symbols: &'static [&'static str],
    /// Those of callers, for files in which its own are hidden.
    otherwise: &'static [&'static str],
}

pub const PRESETS: &[Preset] = &[
    Preset {
        name: "postgres",
        about: "PostgreSQL: the end of a command or transaction (CommitTransactionCommand), and in it waiting for its WAL (XLogFlush)",
        files: &["postgres", "/usr/lib/postgresql/*/bin/postgres", "/usr/pgsql-*/bin/postgres"],
        symbols: &["CommitTransactionCommand", "XLogFlush"],
        otherwise: &[],
    },
    Preset {
        name: "innodb",
        about: "MySQL and MariaDB: the commit of an InnoDB transaction, and in it writing the redo log; of Debian's, which hides these, ha_commit_trans",
        files: &["mysqld", "mariadbd", "/usr/sbin/mysqld", "/usr/sbin/mariadbd"],
        symbols: &["_Z20trx_commit_for_mysql", "_Z15log_write_up_to"],
        otherwise: &["_Z15ha_commit_trans"],
    },
    Preset {
        name: "rocksdb",
        about: "RocksDB: a write batch (DBImpl::WriteImpl) and a get (DBImpl::GetImpl)",
        files: &["librocksdb.so", "librocksdb.so.9", "librocksdb.so.8", "librocksdb.so.7.8"],
        symbols: &["_ZN7rocksdb6DBImpl9WriteImplE", "_ZN7rocksdb6DBImpl7GetImplE"],
        otherwise: &[],
    },
    Preset {
        name: "leveldb",
        about: "LevelDB: a write batch (DBImpl::Write) and a get (DBImpl::Get); of Debian's, which hides these, Put, Delete and leveldb_write",
        files: &["libleveldb.so.1d", "libleveldb.so.1", "libleveldb.so"],
        symbols: &["_ZN7leveldb6DBImpl5WriteE", "_ZN7leveldb6DBImpl3GetE"],
        otherwise: &["_ZN7leveldb2DB3PutE", "_ZN7leveldb2DB6DeleteE", "leveldb_write"],
    },
    Preset {
        name: "lmdb",
        about: "LMDB: the commit of a transaction (mdb_txn_commit)",
        files: &["liblmdb.so.0", "liblmdb.so"],
        symbols: &["mdb_txn_commit"],
        otherwise: &[],
    },
];

/// Functions in which one commit syncs for all waiters, as [`readable`] names them: for those that wait for WALWriteLock (PostgreSQL's
/// XLogFlush), for a write group (LevelDB's and RocksDB's writers' queue), for those that wait for the redo log (InnoDB). Where a
/// database's own functions are hidden, their callers.
const GROUP_COMMIT_FUNCTIONS: &[&str] = &[
    "XLogFlush",
    "leveldb::DBImpl::Write",
    "leveldb::DB::Put",
    "leveldb::DB::Delete",
    "leveldb_write",
    "rocksdb::DBImpl::WriteImpl",
    "log_write_up_to",
    "ha_commit_trans",
];

/// Whether a function with that readable name commits in groups.
pub fn commits_in_groups(readable: &str) -> bool {
    GROUP_COMMIT_FUNCTIONS.contains(&readable)
}

/// Returns the preset of that name.
pub fn find(name: &str) -> Option<&'static Preset> {
    PRESETS.iter().find(|preset| preset.name == name)
}

/// The value of `--op`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// A function of a program or library.
    Function(PathBuf, String),
    Preset(&'static Preset),
}

/// Why a text is not an operation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OperationError {
    /// A part of it is missing.
    #[error("expected BINARY:FUNCTION, such as ./server:handle_request")]
    Half,
    /// It is not the name of a preset.
    #[error(
        "expected BINARY:FUNCTION, such as ./server:handle_request, or one of {}",
        PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", ")
    )]
    Unknown,
}

/// No file that was found defines any of a preset's functions.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("--op {name}: found no file with its functions{looked}; name the file that has them: --op BINARY:{symbol}")]
pub struct PresetNotFound {
    name: &'static str,
    looked: String,
    symbol: &'static str,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(binary, name) => write!(f, "{}:{name}", binary.to_string_lossy()),
            Self::Preset(preset) => f.write_str(preset.name),
        }
    }
}

impl FromStr for Operation {
    type Err = OperationError;

    fn from_str(text: &str) -> Result<Self, OperationError> {
        match text.rsplit_once(':') {
            Some((binary, name)) if !binary.is_empty() && !name.is_empty() => {
                Ok(Self::Function(binary.into(), name.into()))
            }
            Some(_) => Err(OperationError::Half),
            None => find(text).map(Self::Preset).ok_or(OperationError::Unknown),
        }
    }
}

impl Operation {
    /// Returns its functions, each with its file; those of a preset are searched first in `program`, the recorded command's.
    ///
    /// # Errors
    /// No file that was found defines any.
    pub fn functions(&self, program: Option<&OsStr>) -> Result<Vec<(PathBuf, String)>, PresetNotFound> {
        match self {
            Self::Function(binary, name) => Ok(vec![(binary.clone(), name.clone())]),
            Self::Preset(preset) => preset.functions(program),
        }
    }
}

impl Preset {
    /// Returns the functions, each with its file; `program` is the recorded command's.
    ///
    /// # Errors
    /// No file that was found defines any.
    pub fn functions(&self, program: Option<&OsStr>) -> Result<Vec<(PathBuf, String)>, PresetNotFound> {
        let (path, libraries) = (std::env::var_os("PATH"), std::env::var_os("LD_LIBRARY_PATH"));
        let find = |name: &Path| functions::find_file(name, path.as_deref(), libraries.as_deref()).ok();
        let own = program.and_then(|program| find(Path::new(program)));
        let mut looked = Vec::new();
        for file in
            own.into_iter().chain(self.files.iter().flat_map(|name| expand_path(name)).filter_map(|name| find(&name)))
        {
            let own = find_symbols(&file, self.symbols);
            let symbols = if own.is_empty() { find_symbols(&file, self.otherwise) } else { own };
            if !symbols.is_empty() {
                return Ok(symbols.into_iter().map(|symbol| (file.clone(), symbol)).collect());
            }
            looked.push(file.shown().to_string());
        }
        let looked = if looked.is_empty() { String::new() } else { format!(" (looked in {})", looked.join(", ")) };
        Err(PresetNotFound { name: self.name, looked, symbol: self.symbols[0] })
    }
}

/// Expands a path with a `*` in one of its directories to the existing paths.
fn expand_path(path: &str) -> Vec<PathBuf> {
    let Some((before, after)) = path.split_once('*') else { return vec![path.into()] };
    let (directory, prefix) = before.rsplit_once('/').unwrap_or(("", before));
    let entries = std::fs::read_dir(format!("{directory}/")).into_iter().flatten().flatten();
    let mut all: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(prefix))
        .map(|entry| entry.path().join(after.trim_start_matches('/')))
        .filter(|path| path.exists())
        .collect();
    // The newest version first, as far as names show it.
    all.sort_by(|a, b| b.cmp(a));
    all
}

/// Returns the defined functions of a file with one of these names or, for C++, one of these prefixes.
fn find_symbols(path: &Path, wanted: &[&str]) -> Vec<String> {
    let Some(bytes) = functions::read_program(path) else { return Vec::new() };
    let Ok(file) = object::File::parse(&*bytes) else { return Vec::new() };
    let mut found: Vec<(usize, String)> = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()).filter(|symbol| symbol.is_definition()) {
        let Ok(name) = symbol.name() else { continue };
        let is = |wanted: &str| name == wanted || wanted.starts_with("_Z") && name.starts_with(wanted);
        // The name of a function's cold part has a suffix.
        if let Some(rank) = wanted.iter().position(|wanted| is(wanted)).filter(|_| !name.contains('.')) {
            found.push((rank, name.to_string()));
        }
    }
    found.sort_unstable();
    found.dedup();
    found.into_iter().map(|(_, name)| name).collect()
}

/// Returns a symbol in readable form: for a mangled C++ or Rust name its parts, without arguments.
pub fn readable(symbol: &str) -> String {
    let Some(nested) = symbol.strip_prefix("_Z") else { return symbol.into() };
    let (mut rest, inside) = match nested.strip_prefix('N') {
        // Member functions may be const or volatile.
        Some(rest) => (rest.trim_start_matches(['K', 'V', 'r']), true),
        None => (nested, false),
    };
    let mut parts: Vec<&str> = Vec::new();
    while let Some(digits) = rest.find(|c: char| !c.is_ascii_digit()).filter(|digits| *digits > 0) {
        let Some((part, after)) = rest[..digits].parse().ok().and_then(|n: usize| rest[digits..].split_at_checked(n))
        else {
            return symbol.into();
        };
        parts.push(part);
        rest = after;
        if !inside {
            break;
        }
    }
    // Rust's hash.
    if parts.len() > 1 && parts.last().is_some_and(|p| p.len() == 17 && p.starts_with('h')) {
        parts.pop();
    }
    if parts.is_empty() || inside && !rest.starts_with('E') { symbol.into() } else { parts.join("::") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn op_needs_binary_and_function() {
        let of = |text: &str| text.parse::<Operation>();
        assert_eq!(of("/usr/bin/a:b"), Ok(Operation::Function("/usr/bin/a".into(), "b".into())));
        assert_eq!((of("main"), of(":main")), (Err(OperationError::Unknown), Err(OperationError::Half)));
        assert!(OperationError::Unknown.to_string().contains("postgres"));
    }

    #[test]
    fn mangled_names_are_readable() {
        for (symbol, name) in [
            ("mdb_txn_commit", "mdb_txn_commit"),
            ("_ZN7leveldb6DBImpl5WriteERKNS_12WriteOptionsEPNS_10WriteBatchE", "leveldb::DBImpl::Write"),
            ("_ZNK7leveldb6DBImpl3GetEv", "leveldb::DBImpl::Get"),
            ("_Z20trx_commit_for_mysqlP5trx_t", "trx_commit_for_mysql"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_ZN3fooIiE3barEv", "_ZN3fooIiE3barEv"),
            ("_ZN99999999999999999999a", "_ZN99999999999999999999a"),
            ("_ZN9é", "_ZN9é"),
            ("_Z", "_Z"),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn group_commits_are_functions_of_presets() {
        let symbols: Vec<String> = PRESETS
            .iter()
            .flat_map(|preset| preset.symbols.iter().chain(preset.otherwise))
            .map(|symbol| readable(&format!("{}{}", symbol, if symbol.starts_with("_Z") { "v" } else { "" })))
            .collect();
        for name in GROUP_COMMIT_FUNCTIONS {
            assert!(commits_in_groups(name) && symbols.iter().any(|symbol| symbol == name), "{name}: {symbols:?}");
        }
        assert!(!commits_in_groups("mdb_txn_commit"), "LMDB has one writer");
    }

    #[test]
    fn missing_preset_file_error_lists_searched_files() {
        let preset = Preset { files: &["no-such-program"], ..PRESETS[0] };
        let error = preset.functions(Some(OsStr::new("/bin/sh"))).unwrap_err().to_string();
        assert!(
            error.contains("looked in /bin/sh") && error.contains("--op BINARY:CommitTransactionCommand"),
            "{error}"
        );
    }

    #[test]
    fn own_test_program_is_found_by_symbol_prefix() {
        let own = std::env::current_exe().unwrap();
        let preset = Preset { files: &[], symbols: &["_ZN8recorder7presets8readable"], ..PRESETS[0] };
        let found = preset.functions(Some(own.as_os_str())).unwrap_or_default();
        // Rust's new mangling has other names.
        assert!(found.is_empty() || readable(&found[0].1) == "recorder::presets::readable", "{found:?}");
    }
}
