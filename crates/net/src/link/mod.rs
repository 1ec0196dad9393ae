//! An emulated link: delay, rate, cost of a packet, loss, jitter and a queue between two network namespaces, for kernels
//! without netem and for everybody who wants to know how late each packet was.
//!
//! - [`spec`]: what a link is like, and the presets;
//! - [`schedule`]: when which packet leaves, a pure struct: no clock, no I/O, no thread;
//! - [`loss`]: which packets are lost, from a seed;
//! - [`packet`]: what a TUN device hands over, read without believing it;
//! - [`arrival`]: when a packet can have come, and how long before an instant to wake; pure too;
//! - [`lateness`]: how late packets were written; [`effect`]: what that did to a result, and whether it counts;
//! - [`engine`]: the loop that reads, waits and writes;
//! - [`linked`]: what the link did, beside what was measured over it;
//! - [`test_bed`]: two namespaces with the link between them;
//! - [`trial`]: a run from one namespace to the other;
//! - [`between`]: two devices with the link between them.

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
