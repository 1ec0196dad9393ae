//! When a recording ends: with its command, with its processes, after its duration, or on request, by a signal or a command.

use crate::control::Control;
use crate::request::{Request, Target};
use crate::{ErrorContext, Notice, Notify, Result};
use capture::launch::Child;
use model::Context;
use std::path::Path;
use std::time::{Duration, Instant};

/// Time for a command to end after Ctrl-C, which its terminal sent to it as well.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);

/// A shell's status for a command that Ctrl-C ended.
const INTERRUPTED_STATUS: i32 = 128 + libc::SIGINT;

/// The conditions, and the status of a command that ended.
pub struct StopCondition<'a> {
    context: &'a Context,
    notify: Notify<'a>,
    deadline: Option<Instant>,
    control: Option<Control>,
    /// The processes with whose end the recording ends.
    processes: Option<Vec<child::ForeignProcess>>,
    /// Whether the command `stop` was received.
    stopped: bool,
    /// When the command was first asked to end.
    asked: Option<Instant>,
    /// Status of the command, 0 until it ended; [`INTERRUPTED_STATUS`] if a signal ended the recording and not the command.
    pub status: i32,
}

impl<'a> StopCondition<'a> {
    pub fn new(duration: Option<Duration>, context: &'a Context, notify: Notify<'a>) -> Self {
        let deadline = duration.map(|d| Instant::now() + d);
        Self { context, notify, deadline, control: None, processes: None, stopped: false, asked: None, status: 0 }
    }

    /// Returns the conditions of a recording whose probes are attached.
    pub fn for_request(request: &Request, context: &'a Context, notify: Notify<'a>) -> Self {
        let of_processes = matches!(request.target, Target::Pids(_)) && !request.also_all;
        let processes = of_processes.then(|| watch_processes(request.pids())).flatten();
        Self { control: request.control.clone(), processes, ..Self::new(request.duration, context, notify) }
    }

    /// Whether its duration is over, its processes have ended, or it was stopped.
    fn is_over(&mut self) -> bool {
        if let Some(control) = &self.control {
            let commands = control.take();
            self.stopped |= commands.stop;
            commands.unknown.into_iter().for_each(|line| (self.notify)(Notice::UnknownCommand { line }));
        }
        let gone = self.processes.as_ref().is_some_and(|all| all.iter().all(child::ForeignProcess::has_ended));
        self.stopped || gone || self.deadline.is_some_and(|d| Instant::now() >= d)
    }

    /// Whether the recording continues.
    pub fn keep_running(&mut self, child: Option<&mut Child>) -> Result<bool> {
        let over = self.is_over();
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
            if asked.elapsed() > INTERRUPT_TIMEOUT {
                (self.notify)(Notice::CommandGoesOn);
                // A caller that waits for `record` must not assume that the command ended successfully.
                if self.context.cancelled() {
                    self.status = INTERRUPTED_STATUS;
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Returns these processes, without those that have ended. `None`: the kernel has no process descriptors (before Linux
/// 5.3).
fn watch_processes(pids: &[u32]) -> Option<Vec<child::ForeignProcess>> {
    let is_there = |pid: u32| Path::new(&format!("/proc/{pid}")).exists();
    let known = |pid| child::ForeignProcess::from_pid(pid).map(Some).or_else(|| (!is_there(pid)).then_some(None));
    let all: Vec<Option<child::ForeignProcess>> = pids.iter().copied().map(known).collect::<Option<_>>()?;
    Some(all.into_iter().flatten().collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use capture::launch::Command;
    use std::sync::atomic::Ordering;

    /// Requests the end of a command that does not end, until the grace period is over.
    fn status_after_grace(context: &Context, duration: Option<Duration>) -> i32 {
        let words = ["sh", "-c", "trap '' TERM; exec sleep 600"].map(Into::into);
        let mut child = Command::new(&words).unwrap().spawn().unwrap();
        child.release().unwrap();
        let mut stop =
            StopCondition::new(duration, context, &|notice| assert!(matches!(notice, Notice::CommandGoesOn)));
        stop.asked = Instant::now().checked_sub(INTERRUPT_TIMEOUT * 2);
        let goes_on = stop.keep_running(Some(&mut child)).unwrap();
        child.signal(libc::SIGKILL).unwrap();
        child.wait().unwrap();
        assert!(!goes_on);
        stop.status
    }

    #[test]
    fn recording_of_processes_ends_with_the_last_of_them() {
        let context = Context::silent();
        let mut sleepers = [0; 2].map(|_| std::process::Command::new("sleep").arg("600").spawn().unwrap());
        let pids = sleepers.iter().map(std::process::Child::id).collect();
        let request = Request::new("t.fathom".into(), Target::Pids(pids));
        let mut stop = StopCondition::for_request(&request, &context, &|_| ());
        for sleeper in &mut sleepers {
            assert!(stop.keep_running(None).unwrap());
            sleeper.kill().unwrap();
            sleeper.wait().unwrap();
        }
        assert!(!stop.keep_running(None).unwrap());
        assert!(
            !StopCondition::for_request(&request, &context, &|_| ()).keep_running(None).unwrap(),
            "they have ended before"
        );
        let request = Request { also_all: true, ..request };
        assert!(StopCondition::for_request(&request, &context, &|_| ()).keep_running(None).unwrap());
    }

    #[test]
    fn interrupted_recording_of_a_command_has_status_130() {
        let context = Context::silent();
        assert_eq!(status_after_grace(&context, Some(Duration::ZERO)), 0, "its time was over, as requested");
        context.cancel_flag().store(true, Ordering::Relaxed);
        assert_eq!(status_after_grace(&context, None), 130);
    }
}
