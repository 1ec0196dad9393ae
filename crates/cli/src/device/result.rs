//! An archive that is made on a device: it comes here while it is written, beside its place, and takes it when the device is done or
//! gone. What was measured until then is kept.

use crate::{notices, output};
use anyhow::{Context as _, Result};
use device::remote::{Detached, DeviceAddress, Done, Ended, Job, Note};
use model::Context;
use std::fs;
use std::path::{Path, PathBuf};

/// The archive's name in the agent's folder.
pub const THERE: &str = "run.fathom";
/// What is left there: tables are made here, locks are nobody's, and unfinished files are none.
const LEFT: &[&str] = &["tables", ".tmp", "lock"];

/// What is run there.
pub struct Remote<'a> {
    pub place: &'a DeviceAddress,
    pub binaries: &'a [PathBuf],
    /// Files that it reads, by their names there.
    pub files: &'a [(String, Vec<u8>)],
    pub words: &'a [String],
    /// The archive's place here.
    pub output: &'a Path,
    /// Whether warnings alone are told.
    pub quiet: bool,
    /// Whether what it prints is printed here; results are printed by this side.
    pub prints: bool,
    /// Before each line that the device says, if there are several.
    pub prefix: &'a str,
    /// Whether it outlives the connection.
    pub detached: Option<Detached<'a>>,
}

/// Runs it until it ends; how, and whether anything was brought.
pub fn bring(remote: &Remote<'_>, context: &Context) -> Result<(Done, bool)> {
    let mut name = remote.output.as_os_str().to_owned();
    name.push(format!(".incoming-{}", std::process::id()));
    let incoming = PathBuf::from(name);
    // Of a process of this number that was killed.
    let _ = fs::remove_dir_all(&incoming);
    let job = Job {
        place: remote.place,
        binaries: remote.binaries,
        files: remote.files,
        words: remote.words,
        brings: Some((THERE, LEFT)),
        into: &incoming,
        detached: remote.detached,
    };
    let mut told = Told { aside: Vec::new(), prefix: remote.prefix };
    let done = device::remote::run(&job, context, &mut |note| match note {
        Note::Said(line) if !remote.quiet || !line.contains("copying Fathom") => eprintln!("fathom: {line}"),
        Note::Said(_) => {}
        Note::Out(_) if !remote.prints => {}
        Note::Out(bytes) => output::out(format_args!("{}", String::from_utf8_lossy(bytes))),
        Note::Err(bytes) => told.take(bytes),
        Note::Brought(bytes) => context.progress(&format!("{}: {:.1} MB", remote.place, bytes as f64 / 1e6), 0, 0),
    });
    context.clear_progress();
    drop(told);
    let kept = keep(&incoming, remote);
    let done =
        done.map_err(|error| if context.cancelled() { anyhow::Error::new(crate::Interrupted) } else { error.into() })?;
    Ok((done, kept?))
}

/// Gives the archive its place, if there is one.
fn keep(incoming: &Path, remote: &Remote<'_>) -> Result<bool> {
    let has_log = archive::log::path(incoming).is_file() || archive::runs::path(incoming).is_file();
    if !has_log {
        let _ = fs::remove_dir_all(incoming);
        return Ok(false);
    }
    notices::keep_old(remote.output, remote.quiet)
        .and_then(|()| {
            let moved = fs::rename(incoming, remote.output);
            moved.with_context(|| format!("cannot move it to {}", remote.output.display()))
        })
        .with_context(|| format!("what came from {} is in {}", remote.place, incoming.display()))?;
    Ok(true)
}

/// Lines of a device, handed on whole.
struct Told<'a> {
    aside: Vec<u8>,
    prefix: &'a str,
}

impl Told<'_> {
    /// A line that has no end yet is not kept beyond this.
    const LONGEST: usize = 1 << 16;

    fn take(&mut self, bytes: &[u8]) {
        self.aside.extend_from_slice(bytes);
        while let Some(end) = self.aside.iter().position(|b| *b == b'\n') {
            let line: Vec<u8> = self.aside.drain(..=end).collect();
            self.say(&line);
        }
        if self.aside.len() > Self::LONGEST {
            let line = std::mem::take(&mut self.aside);
            self.say(&line);
        }
    }

    fn say(&self, line: &[u8]) {
        let line = String::from_utf8_lossy(line);
        eprintln!("{}{}", self.prefix, line.trim_end());
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        if !self.aside.is_empty() {
            let line = std::mem::take(&mut self.aside);
            self.say(&line);
        }
    }
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
