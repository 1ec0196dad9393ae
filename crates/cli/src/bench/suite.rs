//! What a word of the command line names to run: a name that nothing has is wrong usage.

use crate::Usage;
use anyhow::Result;
use experiment::catalog::{self, Error, Runnable};

/// [`catalog::find`].
pub fn find(word: &str) -> Result<Runnable> {
    usage(catalog::find(word))
}

/// [`catalog::find_sweep`].
pub fn find_sweep(word: &str) -> Result<Runnable> {
    usage(catalog::find_sweep(word))
}

fn usage<T>(found: Result<T, Error>) -> Result<T> {
    found.map_err(|error| match error {
        Error::Unknown { .. } => Usage(error.to_string()).into(),
        other => other.into(),
    })
}
