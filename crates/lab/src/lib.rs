//! Temporary loop disks, virtual machines, network namespaces and scripts: created, used and removed. A crate of its own because the tests
//! of capture and of the program both need it, and neither may use the other.

pub mod accelerator;
pub mod arch;
pub mod debian;
pub mod directory;
mod error;
pub mod exec;
pub mod guest;
pub mod initramfs;
pub mod kept;
pub mod kernel;
pub mod loopdisk;
pub mod medium;
pub mod netns;
mod patience;
pub mod privilege;
pub mod router;
pub mod run;
pub mod scenario;
pub mod script;
pub mod show;
pub mod terminal;
mod wake;

pub use error::Error;
pub(crate) use error::find_program;
