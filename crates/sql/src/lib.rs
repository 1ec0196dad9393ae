//! SQL over archives and fleets, by an engine in this process.
//!
//! A workspace of its own because it alone needs an SQL engine and an object store, which take longer to compile
//! than everything else together; a build without SQL never compiles them. `fathom sql` and `fathom fleet` start its program,
//! `fathom-sql`.
//!
//! The engine only reads; no query can write, or read a file that is not part of the given archives ([`engine`]).

pub mod archive_page;
pub mod args;
pub mod ask;
pub mod engine;
pub mod errors;
pub mod exact;
pub mod fleets;
pub mod generate;
pub mod open;
mod ordinals;
pub mod otlp;
pub mod output;
pub mod report;
pub mod scratch;
pub mod serve;
pub mod shell;
pub mod simulate;
pub mod stop;
pub mod tables;
