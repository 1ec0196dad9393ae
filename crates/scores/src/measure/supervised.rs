//! Processes that end when the user interrupts, so that what they use can be removed.

use crate::measure::error::IoContext as _;
use crate::measure::{Error, Result};
use model::Context;
use std::process::{Command, Output};

/// Runs a command to its end.
///
/// # Errors
/// It cannot be started, or `context` was cancelled: the command has ended then.
pub fn output(command: &mut Command, context: &Context, doing: impl FnOnce() -> String) -> Result<Output> {
    child::output(command, || context.cancelled()).doing(doing())?.ok_or(Error::Cancelled)
}
