//! What SQL statements and SQLite's files mean, inferred from texts, names, offsets and lengths alone.
//!
//! A separate room because the linker, the recorder and the analysis all need it and must not know each other. It opens no
//! file. Where SQLite's functions are in a binary is `capture`'s; running SQLite is `workload`'s.
//!
//! | file | what |
//! |---|---|
//! | `shape` | a statement's text without its literals |
//! | `context` | the trace context that came with a statement |
//! | `pragma` | the settings that explain a recording |
//! | `names` | which file is the database, the journal, the WAL |
//! | `header` | the header in the first bytes of a database |
//! | `parts` | what is at an offset of a file |
//! | [`library`] | the SQLite in a library's file |

mod context;
mod header;
pub mod library;
mod names;
mod parts;
mod pragma;
mod shape;

pub use context::{Told, is_traceparent, traceparent, with_traceparent, without_traceparent};
pub use header::DatabaseHeader;
pub use names::{Companions, FileClass, class, database_in, database_of};
pub use parts::{JOURNAL_HEADER, PageGrid, Part, WAL_HEADER, part, reads_database_header};
pub use pragma::{PRAGMAS, Pragma, pragma};
pub use shape::normalise;
