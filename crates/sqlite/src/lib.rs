//! The meaning of SQL statements and of SQLite's files, inferred from texts, names, offsets and lengths alone.
//!
//! A separate crate because the linker, the recorder and the analysis all need it and must not depend on each other. It
//! opens no files. Locating SQLite's functions in a binary is done in `capture`; running SQLite in `workload`.
//!
//! | file | purpose |
//! |---|---|
//! | `shape` | a statement's text without its literals |
//! | `context` | the trace context that came with a statement |
//! | `pragma` | the settings that explain a recording |
//! | `names` | which file is the database, the journal, the WAL |
//! | `header` | the header in the first bytes of a database |
//! | `parts` | the part of a file at an offset |
//! | [`library`] | the SQLite in a library's file |

mod context;
mod header;
pub mod library;
mod names;
mod parts;
mod pragma;
mod shape;

pub use context::{SqlAndContext, is_traceparent, traceparent, with_traceparent, without_traceparent};
pub use header::DatabaseHeader;
pub use names::{Companions, FileClass, classify_path, database_in, database_of};
pub use parts::{JOURNAL_HEADER_BYTES, PageGrid, Part, WAL_HEADER_BYTES, part_at, reads_database_header};
pub use pragma::{PRAGMAS, Pragma, parse_pragma};
pub use shape::normalise;
