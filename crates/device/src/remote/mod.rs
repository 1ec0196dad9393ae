//! Remote devices, and what runs there.
//!
//! A device has a name ([`DeviceAddress`]): `local`, `netns:NAME`, `ssh:HOST`, `adb:SERIAL`, `lab:SCENARIO`. To work on it,
//! this program is copied there ([`program`]) and started as an agent ([`agent`]), which starts commands, forwards their
//! input and output, keeps their files in a directory that is removed with it, and serves a [`crate::Reader`]. It only
//! transports bytes: the measurement is done by the same program, in a separate process. Its transport is one pipe into the
//! system's own `ssh`, or one stream of the local adb server ([`transport`], [`adb`]); no port is opened.
//!
//! **Lifetime.** The agent ends all its child processes when its input ends, and when nothing was received for half a
//! minute. So nothing is left running on a device when this program is killed, a cable is pulled or a network is lost.
//! Commands that outlive the connection ([`detached`]: a benchmark for as long as its lease, a node until it is stopped)
//! can be listed there.

pub mod adb;
mod address;
pub mod agent;
pub mod ask;
mod choice;
pub mod detached;
mod follow;
pub mod frame;
mod held;
pub mod in_guest;
mod job;
mod link;
pub mod output;
mod patience;
pub mod perfetto;
mod pipe;
pub mod program;
mod read;
mod remark;
pub mod stop;
mod transport;
mod turns;

pub use address::{AddressError, DeviceAddress};
pub use choice::{DeviceNames, OneOrAll, Selection};
pub use held::{HeldCommand, HoldError};
pub use job::{
    CommandEnd, DetachedOptions, DetachedStart, Job, JobEvent, JobOutcome, PROGRAM_PLACEHOLDER, Service,
    StartedService, run, serve,
};
pub use link::{AgentLink, Event, RequestError, Skew};
pub use remark::Remark;
pub use transport::{UnusableState, check_usable};
pub use turns::Concurrency;

/// Why a device could not be used, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {why}")]
pub struct Unreachable {
    pub place: String,
    /// The reason, as a sentence.
    pub why: String,
}

/// A name for a run on a device that is unique across hosts: in containers all have the same few process numbers.
pub fn new_name(kind: &str) -> String {
    let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    format!("{kind}-{}-{:04x}", std::process::id(), time.subsec_nanos() >> 10 & 0xffff)
}

impl Unreachable {
    fn new(place: &DeviceAddress, why: impl Into<String>) -> Self {
        Self { place: place.to_string(), why: why.into() }
    }
}
