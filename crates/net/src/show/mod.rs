//! A run as it is shown: as JSON, as a benchmark's lines, for people. Each makes a text or a value of what was measured, and of the emulated
//! link that it went over; nothing here prints.

pub mod cc;
pub mod json;
pub mod lines;
pub mod text;

use crate::link::LinkReport;
use crate::measure::Measured;

/// What is shown.
#[derive(Debug, Clone, Copy)]
pub struct RunView<'a> {
    /// The run.
    pub measured: &'a Measured,
    /// The names of the client and, if it was started too, of the server, where both were started from here.
    pub ends: Option<(&'a str, Option<&'a str>)>,
    /// The emulated link that it went over.
    pub link: Option<LinkReport<'a>>,
}
