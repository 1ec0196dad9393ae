//! A design: how a comparison is run so that its result is reliable.
//!
//! A [`Design`] names **cells** (the things compared, each a command line). It is run in **randomised complete blocks**:
//! every block runs every cell once, each in a fresh process, in an order drawn from a recorded seed. A machine that
//! becomes slow or hot affects all cells of a block alike; the rest is compared in pairs within blocks
//! ([`stats::ratio`]). A cell given twice under two names (A/A) shows which differences the method cannot resolve.
//!
//! A replicate is a process: argv in, lines of JSON out (`{"metric":…,"unit":…,"t":…,"v":…}`, `{"verified":true,…}`),
//! exit status. So a peer (strace, perf, fio) is one more command line, measured in the same way as ourselves. A peer
//! that is not installed, or fails, stays in the results under its name with the reason.
//!
//! This crate does not know how a disk is made: the caller passes a maker of disks ([`Setting::make_disk`]). Rows go to a
//! [`Sink`], such as the log of an archive ([`store::Store`]).

pub mod ab;
pub mod catalog;
mod design;
pub mod disturbed;
pub mod eta;
pub mod eta_text;
mod expand;
pub mod fix;
pub mod gate;
mod guard;
pub mod list;
pub mod machine;
mod markdown;
pub mod needs;
pub mod order;
pub mod page;
mod process;
mod results;
pub mod resume;
mod run;
mod scratch;
pub mod selection;
pub mod store;
pub mod suite;
pub mod tables;
mod template;
mod units;

pub use design::{Cell, Design, DiskLifetime, DiskRequest};
pub use expand::{Choices, against_itself, describe_substitutions, expand};
pub use markdown::markdown;
pub use results::{AbsentCell, Comparison, Results, StopReason, json};
pub use run::{Discard, Disk, HalfWidths, MakeDisk, PastResults, Setting, Sink, StoreResult, parents, run};
pub use scratch::{ScratchError, remove_leftovers};
pub use suite::{Better, ExtraScore, Workload};

/// Why a design could not be run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The design itself is invalid.
    #[error("design {name}: {what}")]
    Design {
        /// Its file or name.
        name: String,
        /// What is wrong, and where.
        what: String,
    },
    /// No directory for the run's files could be made.
    #[error(transparent)]
    Scratch(#[from] ScratchError),
    /// The disk requested by the design could not be made.
    #[error("{0}")]
    Disk(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The sink refused a row.
    #[error("cannot store a result: {0}")]
    Sink(#[source] Box<dyn std::error::Error + Send + Sync>),
}
