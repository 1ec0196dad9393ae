//! Android's fixed-performance mode: clocks at a level that the vendor regards as sustainable, so that a benchmark does not
//! depend on the temperature (PowerManager.setPowerMode, Mode.FIXED_PERFORMANCE; since Android 11, where the vendor's Power
//! HAL supports it).
//!
//! It is set by `cmd power` and reset in every case: when the guard is dropped, or by the notes of [`crate::knobs`] when it
//! is killed. Android does not report its previous state; it is off after a boot, and is switched off.

use crate::knobs::{CommandError, Knob, SavedSettings, command};
use std::path::Path;

const SET_MODE_COMMAND: [&str; 3] = ["cmd", "power", "set-fixed-performance-mode-enabled"];

/// Why it was not set.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The note for resetting it cannot be written; so nothing is changed.
    #[error("fixed-performance mode is not set, since the note to reset it later cannot be written: {0}")]
    Notes(#[from] std::io::Error),
    #[error("fixed-performance mode cannot be set (it needs Android 11 and a Power HAL that supports it): {0}")]
    Refused(CommandError),
}

/// Sets it until the result is dropped; notes are stored below `notes`.
///
/// # Errors
/// It cannot be set; then nothing is changed.
pub fn enable_fixed(notes: &Path) -> Result<SavedSettings, Error> {
    let words = |value: &str| SET_MODE_COMMAND.into_iter().chain([value]).map(String::from).collect::<Vec<_>>();
    let kept = SavedSettings::save(notes, vec![Knob::Command(words("false"))])?;
    match command(&words("true")) {
        Ok(()) => Ok(kept),
        Err(why) => {
            // It was not set, so there is nothing to reset.
            let _ = kept.restore();
            Err(Error::Refused(why))
        }
    }
}
