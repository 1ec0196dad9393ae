//! An emulated link: delay, rate, cost per packet, loss, jitter and a queue between two network namespaces, for kernels
//! without netem and for anyone who needs to know how late each packet was.
//!
//! - [`spec`]: the parameters of a link, and the presets;
//! - [`schedule`]: when each packet leaves, a pure struct: no clock, no I/O, no thread;
//! - [`loss`]: which packets are lost, from a seed;
//! - [`packet`]: parses the frames of a TUN device without trusting them;
//! - [`arrival`]: when a packet can have arrived, and how long before a deadline to wake; pure too;
//! - [`lateness`]: how late packets were written; [`effect`]: how that affected a result, and whether it is valid;
//! - [`engine`]: the loop that reads, waits and writes;
//! - [`report`]: reports what the link did, in addition to the measurement over it;
//! - [`test_bed`]: two namespaces with the link between them;
//! - [`trial`]: a run from one namespace to the other;
//! - [`routed`]: two devices with the link between them.

pub mod arrival;
pub mod effect;
pub mod engine;
pub mod lateness;
pub mod loss;
pub mod packet;
pub mod report;
pub mod routed;
pub mod schedule;
pub mod spec;
mod spec_error;
pub mod test_bed;
pub mod trial;

pub use engine::Outcome;
pub use report::LinkReport;
pub use routed::RoutedLink;
pub use spec::{DirectionSpec, Spec};
pub use test_bed::TestBed;
