//! What this side says while it works on a device: values, so that whoever shows them can choose among them; the sentences are made here.

use super::{DeviceAddress, Unreachable};
use std::fmt;
use std::time::Duration;

/// It.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Remark {
    /// A guest boots.
    Booting(DeviceAddress),
    /// This program is sent.
    Copying {
        /// The device.
        place: DeviceAddress,
        /// The program's size.
        bytes: u64,
    },
    /// What was fetched could not be removed there.
    NotDiscarded {
        /// The device.
        place: DeviceAddress,
        /// Why.
        why: String,
    },
    /// The agent did not say that it has cleaned up.
    NotCleaned(DeviceAddress),
    /// The device is gone, and is waited for.
    Waiting {
        /// Why it is gone.
        why: Unreachable,
        /// How long.
        patience: Duration,
    },
    /// It is back.
    Back {
        /// The device.
        place: DeviceAddress,
        /// How long it was gone.
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
                "{place}: what was fetched is still there, too ({why}); `fathom device stop {place}` removes it"
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
