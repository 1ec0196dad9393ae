//! Messages of the host while it works on a device: values, so that the caller can select among them; the sentences are made here.

use super::{DeviceAddress, Unreachable};
use std::fmt;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    Booting(DeviceAddress),
    Copying {
        place: DeviceAddress,
        /// The program's size.
        bytes: u64,
    },
    /// Fetched results could not be removed from the device.
    NotDiscarded {
        place: DeviceAddress,
        why: String,
    },
    /// The agent did not confirm that it has cleaned up.
    NotCleaned(DeviceAddress),
    /// The device is lost, and is waited for.
    Waiting {
        /// Why it is lost.
        why: Unreachable,
        /// The maximum wait.
        patience: Duration,
    },
    Back {
        place: DeviceAddress,
        /// How long it was lost.
        after: Duration,
    },
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Booting(place) => write!(f, "{place}: booting"),
            Self::Copying { place, bytes } => write!(f, "{place}: copying Fathom ({:.1} MB)", *bytes as f64 / 1e6),
            Self::NotDiscarded { place, why } => write!(
                f,
                "{place}: the fetched results are still there, too ({why}); `fathom device stop {place}` removes them"
            ),
            Self::NotCleaned(place) => write!(
                f,
                "{place} did not confirm its clean-up; what was started there exits by itself within a minute"
            ),
            Self::Waiting { why, patience } => {
                write!(f, "{why}; waiting {} s for it to come back", patience.as_secs())
            }
            Self::Back { place, after } => write!(f, "{place} is back after {:.0} s", after.as_secs_f64()),
        }
    }
}
