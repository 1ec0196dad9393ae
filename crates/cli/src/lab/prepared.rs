//! What `lab exec` and `lab shell` do before a guest boots and after it has ended: both hand the guest over to the
//! user.

use super::{as_usage, explain_missing, host_paths};
use crate::{args, progress};
use anyhow::{Context as _, Result};
use lab::run::{NotStarted, Options};
use lab::scenario::Scenario;
use model::Context;
use model::text::ShownPath as _;
use std::path::PathBuf;
use std::process::ExitCode;

/// The directories and the program of a guest.
pub struct PreparedGuest {
    cache: PathBuf,
    program: PathBuf,
    share: PathBuf,
    /// Removed when this is dropped.
    _temporary: tempfile::TempDir,
}

impl PreparedGuest {
    /// Checks the requirements and creates the directories.
    pub fn new(args: &args::GuestArgs, scenario: &Scenario) -> Result<Self> {
        let (cache, program) = host_paths(&args.host)?;
        lab::guest::check_available(scenario.machine.arch).map_err(explain_missing)?;
        let temporary = tempfile::tempdir().context("cannot create a directory")?;
        let share = args.output.clone().unwrap_or_else(|| temporary.path().into());
        std::fs::create_dir_all(&share).with_context(|| format!("cannot create {}", share.shown()))?;
        Ok(Self { cache, program, share, _temporary: temporary })
    }

    /// Boots the guest, and returns the exit status of what ran in it. Ctrl-C ends it.
    pub fn run(&self, boot: impl FnOnce(&Options<'_>, &Context) -> Result<ExitCode, NotStarted>) -> Result<ExitCode> {
        let context = progress::context(false);
        progress::end_on_signal(&context);
        let options = Options { cache: &self.cache, program: &self.program, directory: &self.share, keep: false };
        let ended = boot(&options, &context);
        progress::clear(&context);
        match ended {
            Ok(code) => Ok(code),
            Err(_) if context.cancelled() => Ok(ExitCode::from(crate::output::INTERRUPTED_STATUS)),
            Err(NotStarted::Wrong(error)) => Err(as_usage(error)),
            Err(NotStarted::Lab(error)) => Err(explain_missing(error)),
        }
    }
}
