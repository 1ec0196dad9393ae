//! When a recording ends: with its command, with its time, or when somebody asks for it.

use crate::{Doing, Notice, Notify, Result};
use capture::launch::Child;
use model::Context;
use std::time::{Duration, Instant};

/// How long a command has to end after Ctrl-C, which its terminal sent to it as well.
const GRACE: Duration = Duration::from_secs(3);

/// The conditions, and the status of a command that ended.
pub struct StopCondition<'a> {
    context: &'a Context,
    notify: Notify<'a>,
    deadline: Option<Instant>,
    /// Since when the command is asked to end.
    asked: Option<Instant>,
    /// Status of the command, 0 until it ended.
    pub status: i32,
}

impl<'a> StopCondition<'a> {
    pub fn new(duration: Option<Duration>, context: &'a Context, notify: Notify<'a>) -> Self {
        Self { context, notify, deadline: duration.map(|d| Instant::now() + d), asked: None, status: 0 }
    }

    /// Whether it goes on.
    pub fn keep_running(&mut self, child: Option<&mut Child>) -> Result<bool> {
        let over = self.deadline.is_some_and(|d| Instant::now() >= d);
        let Some(child) = child else { return Ok(!over && !self.context.cancelled()) };
        if let Some(exit) = child.try_wait().doing(|| "waiting for the command".into())? {
            self.status = exit.status();
            return Ok(false);
        }
        if over && self.asked.is_none() {
            child.signal(libc::SIGTERM).doing(|| "ending the command".into())?;
        }
        if over || self.context.cancelled() {
            let asked = *self.asked.get_or_insert_with(Instant::now);
            if asked.elapsed() > GRACE {
                (self.notify)(Notice::CommandGoesOn);
                return Ok(false);
            }
        }
        Ok(true)
    }
}
