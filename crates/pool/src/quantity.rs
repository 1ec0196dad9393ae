//! Sizes and times specific to a pool, as on the command line and in its file.

use model::quantity::{self, bytes, long_time};
use std::time::Duration;

/// Why a text is not a valid quantity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// Not a memory size.
    #[error("expected memory:SIZE, such as memory:512M")]
    Memory,
    /// No node responds sooner, and no client waits longer.
    #[error("must be from 1s to 24h")]
    NodeTimeout,
    /// Nobody waits longer.
    #[error("must be from 0s to 24h")]
    NodeWait,
    #[error(transparent)]
    Number(#[from] quantity::QuantityError),
}

/// Parses `memory:SIZE`; returns the bytes.
///
/// # Errors
/// The accepted syntax.
pub fn memory(text: &str) -> Result<u64, QuantityError> {
    let size = text.strip_prefix("memory:").ok_or(QuantityError::Memory)?;
    Ok(bytes(size)?)
}

/// Parses a node timeout: below its minimum a busy network would make a working node look dead.
///
/// # Errors
/// The accepted syntax.
pub fn node_timeout(text: &str) -> Result<Duration, QuantityError> {
    let time = long_time(text)?;
    let sensible = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
    sensible.contains(&time).then_some(time).ok_or(QuantityError::NodeTimeout)
}

/// Parses how long nodes are waited for at the start.
///
/// # Errors
/// The accepted syntax.
pub fn node_wait(text: &str) -> Result<Duration, QuantityError> {
    let time = if text.trim() == "0" || text.trim() == "0s" { Duration::ZERO } else { long_time(text)? };
    (time <= Duration::from_secs(24 * 3600)).then_some(time).ok_or(QuantityError::NodeWait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_timeouts_are_parsed() {
        assert_eq!(memory("memory:512M"), Ok(512 << 20));
        assert!(memory("512M").is_err() && memory("memory:1").is_err());
        assert_eq!(node_timeout("1.5"), Ok(Duration::from_millis(1500)));
        assert!(["0", "0.9s", "25h", "soon"].iter().all(|text| node_timeout(text).is_err()));
        assert_eq!(["0", "0s", "2m", "24h"].map(|t| node_wait(t).map(|t| t.as_secs())), [0, 0, 120, 86_400].map(Ok));
        assert!(["25h", "-1s", "soon"].iter().all(|text| node_wait(text).is_err()));
    }
}
