//! The pipeline from a request to a linked archive: events off the kernel into an archive's log, and from there through the
//! linker into its tables.
//!
//! A room of its own because it joins rooms that must not know each other (`capture`, `archive`, `causal`), and so that an archive
//! can be linked without the program. It prints nothing: what a user should know meanwhile is a [`Notice`].
//!
//! | file | what |
//! |---|---|
//! | [`metadata`] | what an archive of a trace keeps beside its events |
//! | [`link`] | from the log to the tables |
//! | `error`, `notice` | what is returned, and what is reported meanwhile |

mod error;
pub mod link;
pub mod metadata;
mod notice;

pub use error::{Error, Result};
pub use metadata::Metadata;
pub use notice::{Notice, Notify};
