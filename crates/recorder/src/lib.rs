//! The pipeline from a request to a linked archive: events from the kernel into an archive's log, and from there through
//! the linker into its tables.
//!
//! A crate of its own because it joins crates that must not depend on each other (`capture`, `archive`, `causal`), and so that an
//! archive can be linked without the program. It prints nothing: what a user should know meanwhile is a [`Notice`].
//!
//! | file | purpose |
//! |---|---|
//! | `request` | what to record |
//! | [`cgroup`] | the processes of a cgroup |
//! | `backend` | which backend records, eBPF or ftrace |
//! | `record` | a recording by eBPF, from start to finish |
//! | `drain` | the loop that takes the records while they are made |
//! | [`watch`] | a recording that keeps only slow operations |
//! | `setup` | the command, held before it runs, and the probes on it |
//! | `libraries`, `functions` | where SQLite and named functions are probed, including files that are mapped late |
//! | `inside` | which processes record SQLite themselves, and which do not |
//! | `stop` | when the recording ends |
//! | `new_archive` | the archive while it is being recorded |
//! | `event_log`, `log_writer` | the processing of a record before it is stored, and the thread that stores it |
//! | `observed` | what is learned from passing records |
//! | `collect`, `disk_counters`, `sqlite_facts`, `sqlite_version` | facts about the machine in addition to the events |
//! | `ftrace` | a recording without BPF |
//! | `import` | a trace made by another tool |
//! | [`incoming`] | an archive that is made on a device |
//! | [`metadata`] | how an archive stores these facts |
//! | [`link`] | from the log to the tables |
//! | [`output`] | the place and owner of a new archive |
//! | [`sample`] | the recording that comes with the program |
//! | `error`, `notice` | what is returned, and what is reported meanwhile |

mod backend;
pub mod cgroup;
mod collect;
pub mod control;
mod disk_counters;
mod drain;
mod error;
mod event_log;
mod foreign;
mod ftrace;
mod functions;
mod import;
pub mod incoming;
mod inside;
pub mod left_running;
mod libraries;
pub mod link;
mod log_disks;
mod log_writer;
pub mod metadata;
mod new_archive;
mod notice;
mod observed;
pub mod output;
pub mod presets;
mod record;
mod request;
pub mod sample;
mod setup;
mod sqlite_facts;
mod sqlite_version;
mod stop;
pub mod watch;

pub use backend::{Backend, record_by};
pub(crate) use error::ErrorContext;
pub use error::{Error, Result};
pub use import::{Import, ImportResult, by_number, import};
pub use metadata::Metadata;
pub use notice::{Notice, Notify};
pub use record::{RecordResult, record};
pub use request::{Probes, Request, Target};
