//! Output of a run: as JSON, as a benchmark's lines, as text. Each function returns a text or a value made of the
//! measurement and of the emulated link that it used; nothing here prints.

pub mod cc;
pub mod flows;
pub mod json;
pub mod lines;
pub mod text;

use crate::link::LinkReport;
use crate::measure::Measurement;

/// A run to show.
#[derive(Debug, Clone, Copy)]
pub struct RunView<'a> {
    pub measured: &'a Measurement,
    /// The names of the client and, if Fathom started it, of the server, where both were started from here.
    pub ends: Option<(&'a str, Option<&'a str>)>,
    /// The emulated link that it used.
    pub link: Option<LinkReport<'a>>,
}
