//! Android's fixed-performance mode: the vendor's clocks at a level that can be held for long, so that a benchmark is not of the weather
//! (PowerManager.setPowerMode, Mode.FIXED_PERFORMANCE; since Android 11, where the vendor's Power HAL has it).
//!
//! It is set by `cmd power` and reset in every case: when the holder is dropped, or by the notes of [`crate::knobs`] when it is killed.
//! Android does not say how it was before; it is off after a boot, and is left off.

use crate::knobs::{CommandFailed, Kept, Knob, command};
use std::path::Path;

const SET: [&str; 3] = ["cmd", "power", "set-fixed-performance-mode-enabled"];

/// Why it was not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// What would reset it cannot be noted; so nothing is changed.
    #[error("fixed-performance mode is not set, since the note to reset it later cannot be written: {0}")]
    Notes(#[from] std::io::Error),
    /// The device says no.
    #[error("fixed-performance mode cannot be set (it needs Android 11 and a Power HAL that supports it): {0}")]
    Refused(CommandFailed),
}

/// Sets it until the result is dropped; notes go below `notes`.
///
/// # Errors
/// It cannot be set; then nothing is changed.
pub fn fixed(notes: &Path) -> Result<Kept, Error> {
    let words = |value: &str| SET.into_iter().chain([value]).map(String::from).collect::<Vec<_>>();
    let kept = Kept::take(notes, vec![Knob::Command(words("false"))])?;
    match command(&words("true")) {
        Ok(()) => Ok(kept),
        Err(why) => {
            // What the notes would reset was not set.
            let _ = kept.put_back();
            Err(Error::Refused(why))
        }
    }
}
