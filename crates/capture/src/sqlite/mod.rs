//! Locates SQLite's functions in a file, so that they can be probed without its co-operation.
//!
//! SQLite has no static probes, but every program that uses it calls `sqlite3_prepare…`, `sqlite3_step`, `sqlite3_reset`
//! and `sqlite3_finalize`, and these are in a symbol table of the library, or of the program that has SQLite built in:
//! first the full symbol table (it has the local ones too), then the dynamic one (a library keeps it when stripped), then
//! the debug file with the same build id. The results are offsets within the file, which is what a uprobe takes.
//!
//! The text of a statement is at an offset of `sqlite3_stmt` that the code of `sqlite3_sql` contains, and its state at one
//! that `sqlite3_stmt_busy` contains; see [`decode`].
//!
//! Not searched: `.gnu_debugdata` (an xz stream), files without section headers, 32-bit programs, and SQLites with renamed
//! functions (Chromium's). They are reported as [`FindError`] with what is known, and the layers below see them all the same.

pub mod decode;
mod elf;
pub mod entry;
pub mod find;
mod libraries;

use elf::{Elf, ElfError, Symbol, SymbolTable};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where a symbol was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolSource {
    /// `.symtab` of the file itself.
    Symtab,
    /// `.dynsym` of the file itself.
    Dynsym,
    /// `.symtab` of the debug file with the same build id.
    DebugFile,
}

impl fmt::Display for SymbolSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Symtab => ".symtab",
            Self::Dynsym => ".dynsym",
            Self::DebugFile => "debug file",
        })
    }
}

/// A function that compiles SQL into a statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prepare {
    pub name: &'static str,
    /// Offset in the file.
    pub offset: u64,
    /// Index of the argument, from 0, with the address at which it stores the statement (`ppStmt`).
    pub stmt_arg: u32,
    /// Index of the argument with the SQL; [`Self::length_arg`] counts its bytes, negative: up to its zero.
    pub sql_arg: u32,
    /// Index of the argument with the length of the SQL.
    pub length_arg: u32,
    /// Whether that SQL is UTF-16; the statement's own copy is always UTF-8.
    pub utf16: bool,
}

/// The functions that return SQLite's own counters. All are addresses in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counters {
    /// `sqlite3_stmt_status(stmt, op, resetFlg)`.
    pub stmt_status: u64,
    /// Number of its counters, from FULLSCAN_STEP on: older versions read beyond the last.
    pub counted: u8,
    /// `sqlite3_db_handle`, `_db_status`, `_db_mutex`, `_mutex_try` and `_mutex_leave`, if all were found.
    pub cache: Option<[u64; 5]>,
}

/// SQLite's functions in one file. All offsets are file offsets, in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteSymbols {
    /// `sqlite3_step(stmt)`.
    pub step: u64,
    /// `sqlite3_reset(stmt)`.
    pub reset: Option<u64>,
    /// `sqlite3_finalize(stmt)`.
    pub finalize: Option<u64>,
    /// The functions that prepare statements; none calls another one of them.
    pub prepares: Vec<Prepare>,
    /// Offset of the address of its text (UTF-8, zero-terminated) in `sqlite3_stmt`, in bytes.
    pub sql_offset: Option<u32>,
    /// Where it stores whether it is running.
    pub running: Option<decode::RunningByte>,
    /// The functions that return its counters; addresses in the file.
    pub counters: Option<Counters>,
    /// Version, such as `3.40.1`.
    pub version: Option<String>,
    /// The result of `sqlite3_sourceid`: date, time and hash of the source.
    pub source_id: Option<String>,
    /// Where `sqlite3_step` was found.
    pub source: SymbolSource,
}

impl SqliteSymbols {
    /// Returns what cannot be seen of this SQLite, in words for the coverage; empty if nothing is missing.
    pub fn blind_to(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        if self.sql_offset.is_none() {
            all.push("the SQL text (sqlite3_sql was not found or could not be decoded)");
        }
        if self.prepares.is_empty() {
            all.push("the time to prepare (no sqlite3_prepare function was found)");
        }
        if self.reset.is_none() {
            all.push("the end of a statement that is reset before it is done (sqlite3_reset was not found)");
        }
        if self.finalize.is_none() {
            all.push("the end of a statement that is finalised before it is done (sqlite3_finalize was not found)");
        }
        all
    }
}

/// Why a file has nothing to probe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FindError {
    /// It is a script or data.
    #[error("not a program (not an ELF file)")]
    NotElf,
    /// It is a program that cannot be read here.
    #[error("{0}")]
    Foreign(String),
    /// It could not be opened or read.
    #[error("{0}")]
    Unreadable(String),
    #[error("contains no SQLite")]
    NoSqlite,
    /// It contains SQLite, without a name to find it by.
    #[error("contains SQLite ({source_id}) without symbols (stripped): transactions are inferred from its files")]
    Stripped {
        /// Date, time and hash of its source.
        source_id: String,
    },
}

/// The functions of interest. Every name begins with [`NAME_PREFIX`].
const FUNCTION_NAMES: &[&str] = &[
    "sqlite3_step",
    "sqlite3_reset",
    "sqlite3_finalize",
    "sqlite3_sql",
    "sqlite3_stmt_busy",
    "sqlite3_version",
    "sqlite3_stmt_status",
    "sqlite3_db_handle",
    "sqlite3_db_status",
    "sqlite3_db_mutex",
    "sqlite3_mutex_try",
    "sqlite3_mutex_leave",
    "sqlite3_prepare",
    "sqlite3_prepare_v2",
    "sqlite3_prepare_v3",
    "sqlite3_prepare16",
    "sqlite3_prepare16_v2",
    "sqlite3_prepare16_v3",
    "sqlite3LockAndPrepare",
    "sqlite3Prepare",
];
const NAME_PREFIX: &str = "sqlite3";
/// Location of debug files, by build id.
const DEBUG_FILES_DIRECTORY: &str = "/usr/lib/debug/.build-id";

/// Public functions first: (name, index of `ppStmt`, UTF-16).
const PUBLIC_PREPARES: &[(&str, u32, bool)] = &[
    ("sqlite3_prepare", 3, false),
    ("sqlite3_prepare_v2", 3, false),
    ("sqlite3_prepare_v3", 4, false),
    ("sqlite3_prepare16", 3, true),
    ("sqlite3_prepare16_v2", 3, true),
    ("sqlite3_prepare16_v3", 4, true),
];
/// Internal functions called by all of them. Useful when link-time optimisation has removed the public ones; the first
/// existing one is used, since one calls the other. `ppStmt` is the sixth argument: (db, zSql, nBytes, prepFlags,
/// pReprepare, ppStmt, pzTail).
const LOCAL_PREPARES: &[(&str, u32, bool)] = &[("sqlite3LockAndPrepare", 5, false), ("sqlite3Prepare", 5, false)];

/// Finds SQLite's functions in a file.
pub fn find(path: &Path) -> Result<SqliteSymbols, FindError> {
    find_with_debug_files(path, Path::new(DEBUG_FILES_DIRECTORY))
}

/// Does the same as [`find`], with the directory in which debug files are searched by build id.
pub fn find_with_debug_files(path: &Path, debug_files: &Path) -> Result<SqliteSymbols, FindError> {
    let elf = Elf::open(path)?;
    let tables = [(SymbolSource::Symtab, SymbolTable::Full), (SymbolSource::Dynsym, SymbolTable::Dynamic)];
    let mut tables: Vec<_> =
        tables.into_iter().map(|(s, t)| (s, elf.symbols(t, NAME_PREFIX, FUNCTION_NAMES))).collect();
    if tables.iter().all(|(_, symbols)| !symbols.contains_key("sqlite3_step")) {
        // The `sqlite3` shell contains the source's stamp too, but uses SQLite from the library.
        let source_id = find_source_id(&elf).filter(|_| !elf.imports("sqlite3_step"));
        let debug = debug_file(&elf, path, debug_files).filter(|_| source_id.is_some());
        match (debug.and_then(|path| Elf::open(&path).ok()), source_id) {
            (Some(debug), _) => {
                tables.push((SymbolSource::DebugFile, debug.symbols(SymbolTable::Full, NAME_PREFIX, FUNCTION_NAMES)))
            }
            (None, Some(source_id)) => return Err(FindError::Stripped { source_id }),
            (None, None) => return Err(FindError::NoSqlite),
        }
    }
    collect_symbols(&elf, &tables)
}

/// Returns the processor of a file, and for an offset in it the address and the machine code, up to `size` bytes.
pub(crate) fn code_at(path: &Path, offset: u64, size: usize) -> Option<(decode::Machine, u64, Vec<u8>)> {
    let elf = Elf::open(path).ok()?;
    Some((elf.machine, elf.code_address(offset)?, elf.code(offset, size)))
}

/// Returns the loader that a program requests; `None` if it needs none, or is not a program.
pub fn program_loader(path: &Path) -> Option<String> {
    Elf::open(path).ok()?.interpreter
}

fn collect_symbols(
    elf: &Elf,
    tables: &[(SymbolSource, BTreeMap<&'static str, Symbol>)],
) -> Result<SqliteSymbols, FindError> {
    let symbol = |name: &str| tables.iter().find_map(|(source, all)| all.get(name).map(|s| (*source, *s)));
    // What is no function must not be probed: see `entry`.
    let code = |name: &str| elf.code_offset(symbol(name).filter(|(_, s)| s.is_function())?.1.address);
    let source_id = find_source_id(elf);
    let (Some((source, _)), Some(step)) = (symbol("sqlite3_step"), code("sqlite3_step")) else {
        return Err(source_id.map_or(FindError::NoSqlite, |source_id| FindError::Stripped { source_id }));
    };
    let prepare = |&(name, stmt_arg, utf16): &(&'static str, u32, bool)| {
        Some(Prepare { name, offset: code(name)?, stmt_arg, sql_arg: 1, length_arg: 2, utf16 })
    };
    let mut prepares: Vec<Prepare> = PUBLIC_PREPARES.iter().filter_map(prepare).collect();
    if prepares.is_empty() {
        prepares.extend(LOCAL_PREPARES.iter().find_map(prepare));
    }
    let body = |name: &str| {
        // The size of a symbol may be 0; the functions themselves are never longer than this.
        let size = symbol(name)?.1.size as usize;
        Some(elf.code(code(name)?, if size == 0 { 256 } else { size.min(256) }))
    };
    let sql_offset = body("sqlite3_sql").and_then(|code| decode::text_offset(elf.machine, &code));
    let running = body("sqlite3_stmt_busy").and_then(|code| decode::decode_running(elf.machine, &code));
    let version = symbol("sqlite3_version").and_then(|(_, s)| elf.text_at(s.address));
    let version = version.filter(|v| v.starts_with("3.") && v.len() < 16);
    let function = |name: &str| {
        let address = symbol(name).filter(|(_, s)| s.is_function())?.1.address;
        elf.code_offset(address).map(|_| address)
    };
    let cache_functions = ["db_handle", "db_status", "db_mutex", "mutex_try", "mutex_leave"];
    let cache: Vec<u64> = cache_functions.iter().filter_map(|name| function(&format!("sqlite3_{name}"))).collect();
    let counters = function("sqlite3_stmt_status").zip(counted(version.as_deref(), source_id.as_deref()));
    let counters =
        counters.map(|(stmt_status, counted)| Counters { stmt_status, counted, cache: cache.try_into().ok() });
    Ok(SqliteSymbols {
        step,
        reset: code("sqlite3_reset"),
        finalize: code("sqlite3_finalize"),
        prepares,
        sql_offset,
        running,
        counters,
        version,
        source_id,
        source,
    })
}

/// Returns how many counters a statement has in a version: `sqlite3_stmt_status` does not check its argument. 3.7.0 added AUTOINDEX as
/// the third, 3.8.0 VM_STEP, and 3.20.0 REPREPARE and RUN. `None` if the version is unknown, or older.
fn counted(version: Option<&str>, source_id: Option<&str>) -> Option<u8> {
    let number = |version: &str| {
        let mut parts = version.split('.').map(str::parse);
        Some((parts.next()?.ok()?, parts.next()?.ok()?, parts.next().unwrap_or(Ok(0)).ok()?))
    };
    let known: (u32, u32, u32) = match (version.and_then(number), source_id) {
        (Some(known), _) => known,
        // By the dates of these versions.
        (None, Some(id)) if id >= "2017-08-01 13:24:15" => (3, 20, 0),
        (None, Some(id)) if id >= "2013-08-26 04:50:08" => (3, 8, 0),
        (None, _) => return None,
    };
    match known {
        (3, 20.., _) => Some(6),
        (3, 8.., _) => Some(4),
        (3, 7, _) => Some(3),
        _ => None,
    }
}

/// Returns the file with the symbols of `elf`, whose path is `path`: by its build id, else the one that it names, in its directory.
fn debug_file(elf: &Elf, path: &Path, debug_files: &Path) -> Option<PathBuf> {
    let id = elf.build_id();
    let by_id = id.as_ref().map(|id| debug_files.join(&id[..2]).join(format!("{}.debug", &id[2..])));
    by_id.filter(|path| path.exists()).or_else(|| {
        let beside = path.parent()?.join(elf.debug_link()?);
        let other = Elf::open_any(&beside).ok()?.build_id();
        (id.is_none() || other.is_none() || id == other).then_some(beside)
    })
}

/// Returns `2022-12-28 14:03:47 df5c253c…`, from the constants. Other programs contain such stamps too, so it counts only
/// together with the first bytes of every SQLite database.
fn find_source_id(elf: &Elf) -> Option<String> {
    let (mut id, mut magic) = (None, false);
    elf.search_constants(128, |block| {
        magic = magic || elf::find_all(block, b"SQLite format 3\0").next().is_some();
        if id.is_none() {
            id = elf::find_all(block, b"20").find_map(|at| parse_source_id(&block[at..]));
        }
        magic && id.is_some()
    });
    id.filter(|_| magic)
}

fn parse_source_id(bytes: &[u8]) -> Option<String> {
    const DATE_PATTERN: &[u8] = b"dddd-dd-dd dd:dd:dd ";
    let date = bytes.get(..DATE_PATTERN.len())?;
    let fits = |(have, want): (&u8, &u8)| if *want == b'd' { have.is_ascii_digit() } else { have == want };
    if !date.iter().zip(DATE_PATTERN).all(fits) {
        return None;
    }
    // A hash of 40 (before 2017) or 64 digits. Modified sources are marked: Debian's ends in `alt1`.
    let hash = &bytes[DATE_PATTERN.len()..];
    let length = hash.iter().take_while(|b| b.is_ascii_alphanumeric()).count();
    let hexadecimal = hash.iter().take_while(|b| b.is_ascii_hexdigit()).count();
    let whole = (40..=64).contains(&length) && hexadecimal >= 36 && hash.get(length) == Some(&0);
    whole.then(|| String::from_utf8_lossy(&bytes[..DATE_PATTERN.len() + length]).into_owned())
}

impl From<ElfError> for FindError {
    fn from(refusal: ElfError) -> Self {
        match refusal {
            ElfError::NotElf => Self::NotElf,
            ElfError::Foreign(why) => Self::Foreign(why),
            ElfError::Unreadable(e) => Self::Unreadable(e.to_string()),
        }
    }
}

#[cfg(test)]
mod tests;
