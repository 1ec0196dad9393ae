//! An archive that is made on a device ([`recorder::incoming`]), and what is said meanwhile.

use crate::{notices, output};
use anyhow::Result;
use device::remote::{Done, Ended, Note};
use model::{Context, Lines};
use recorder::incoming::{Incoming, NotBrought};
use std::path::Path;

/// What is said of it.
#[derive(Clone, Copy, Default)]
pub struct Telling<'a> {
    /// Whether warnings alone are told.
    pub quiet: bool,
    /// Whether what it prints is printed here; results are printed by this side.
    pub prints: bool,
    /// Before each line that the device says, if there are several.
    pub prefix: &'a str,
}

/// Runs it until it ends; how, and whether anything was brought.
pub fn bring(incoming: &Incoming<'_>, telling: Telling<'_>, context: &Context) -> Result<(Done, bool)> {
    let Telling { quiet, prints, prefix } = telling;
    let mut aside = Lines::new(|text| text.lines().for_each(|line| eprintln!("{prefix}{}", line.trim_end())));
    let notify = |notice| {
        if !quiet {
            notices::print(notice)
        }
    };
    let brought = recorder::incoming::bring(incoming, context, &notify, &mut |note| match note {
        Note::Said(line) if !quiet || !line.contains("copying Fathom") => eprintln!("fathom: {line}"),
        Note::Out(bytes) if prints => output::out(format_args!("{}", String::from_utf8_lossy(bytes))),
        Note::Err(bytes) => aside.take(bytes),
        Note::Said(_) | Note::Out(_) | Note::Brought(_) => {}
    });
    drop(aside);
    brought.map_err(|error| match error {
        NotBrought::Interrupted => crate::Interrupted.into(),
        other => other.into(),
    })
}

/// What is told of a device that was lost.
pub fn lost(done: &Done, kept: bool, output: &Path) -> bool {
    let Ended::Lost(why) = &done.ended else { return false };
    eprintln!("fathom: {why}");
    match kept {
        true => eprintln!("fathom: what was measured until then is in {}", crate::output::word(output)),
        false => eprintln!("fathom: nothing was measured until then"),
    }
    true
}
