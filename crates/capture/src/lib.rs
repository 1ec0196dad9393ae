//! Events from a kernel: eBPF probes, and the locations of SQLite's functions.
//!
//! A separate crate because it alone needs clang, a kernel that permits tracing, and root. The kernel side (`bpf/`) emits
//! packed records with raw pointers and keeps no state about I/O; [`Session`] loads it, follows tasks, drains the
//! records and accounts for what was lost or could not be seen. The `causal` crate interprets the records together.
//!
//! | file | purpose |
//! |---|---|
//! | [`request`] | what to record |
//! | [`session`] | a recording, from start to finish |
//! | `refusal` | what the kernel forbids |
//! | `probes` | the list of probes and how each is attached; every one may be missing |
//! | `kernel/` | what is read from the running kernel: types, symbols, numbers of system calls |
//! | `namespace` | process numbers, if this process runs in a container |
//! | `uprobes` | probes on SQLite and on functions |
//! | `multi` | how uprobes are attached from Linux 6.6 on |
//! | [`ftrace`] | a recording without BPF |
//! | `rings` | takes records from the kernel side's memory |
//! | `unpack` | expands packed records |
//! | [`inside`] | SQLite probed inside the command's processes |
//! | [`stacks`] | where threads with long sleeps were |
//! | [`located`] | where a command makes its calls, by ptrace: functions and lines of its source |
//! | `loss`, `price` | what was lost, and the cost of each probe |
//! | [`sqlite`] | where SQLite's functions are in a file |
//! | [`launch`], [`marks`] | the traced program, and the marks it makes itself |

mod error;
pub mod ftrace;
pub mod inside;
mod kernel;
pub mod launch;
pub mod located;
mod loss;
pub mod marks;
mod multi;
mod namespace;
mod price;
mod probes;
mod refusal;
pub mod request;
mod rings;
pub mod session;
pub mod sqlite;
pub mod stacks;
mod tasks;
pub mod trap;
mod unpack;
mod uprobes;

pub use error::Error;
pub use inside::Inside;
pub use kernel::clock::{boot_ns, process_cpu_ns};
pub use namespace::{in_pid_namespace, in_proc, tracer};
pub use price::Activity;
pub use probes::names as probe_names;
pub use request::{Request, Scope};
pub use session::{FinishedRecording, Session};
pub use tasks::{comm_of, cut_comm, is_kernel_thread, name_of};
