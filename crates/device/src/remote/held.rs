//! A command of this program on a device that serves until it is dropped here: it prints a line when it is ready, and ends,
//! with all its child processes, when it is dropped, when this program dies, or when the connection breaks.

use super::{AgentLink, DeviceAddress, Event, Remark, Unreachable, program};
use model::Context;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often to check for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The timeout for being ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum length of a line, or of the error output, that is kept, bytes.
const OUTPUT_BYTES_MAX: usize = 1 << 16;

/// Why the command is not running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The device, or the connection to it, failed.
    #[error(transparent)]
    Device(#[from] Unreachable),
    /// This program's own file is missing, or the connection to the agent failed.
    #[error("{place}: {source}")]
    Io { place: DeviceAddress, source: std::io::Error },
    /// The command ended before it was ready.
    #[error("{place}: it ended with status {status}: {said}")]
    Ended {
        place: DeviceAddress,
        /// Its exit status, or a negated signal number.
        status: i32,
        /// Its error output.
        said: String,
    },
    /// It does not report that it is ready.
    #[error("{0}: the program started there does not report that it is ready")]
    Silent(DeviceAddress),
    #[error("interrupted")]
    Interrupted,
}

/// A command running there. Dropping it ends it.
#[derive(Debug)]
pub struct HeldCommand {
    link: AgentLink,
    events: Receiver<Event>,
    ready: String,
}

impl HeldCommand {
    /// Starts `fathom WORDS…` there, and waits for its first line; `tell` receives messages of the host.
    pub fn start(
        place: &DeviceAddress,
        binaries: &[PathBuf],
        words: &[String],
        context: &Context,
        tell: &dyn Fn(Remark),
    ) -> Result<Self, HoldError> {
        let failed = |source| HoldError::Io { place: place.clone(), source };
        let ours = std::env::current_exe().map_err(failed)?;
        let deployment = program::deploy(place, &ours, binaries, context, tell)?;
        let (sender, events) = channel();
        let link = AgentLink::open(&deployment, context, move |event| drop(sender.send(event)))?;
        let argv: Vec<String> = std::iter::once(&deployment.program).chain(words).cloned().collect();
        link.start(&argv).map_err(failed)?;
        let ready = wait_for_line(&deployment.place, &events, context)?;
        Ok(Self { link, events, ready })
    }

    /// The line that it printed when it was ready.
    pub fn ready(&self) -> &str {
        &self.ready
    }

    /// Why it has ended by itself, or was lost; `None` if neither. Called when no further events are expected.
    pub fn trouble(&self) -> Option<String> {
        self.events.try_iter().find_map(|event| match event {
            Event::Gone(why) => Some(why.to_string()),
            Event::Exit(status) => Some(format!("{}: it ended with status {status}", self.link.deployment().place)),
            _ => None,
        })
    }

    /// Ends it, and waits until the agent has cleaned up; returns whether it has.
    pub fn close(self) -> bool {
        self.link.close()
    }
}

fn wait_for_line(place: &DeviceAddress, events: &Receiver<Event>, context: &Context) -> Result<String, HoldError> {
    let (begun, mut said, mut complaints) = (Instant::now(), Vec::new(), Vec::new());
    loop {
        if context.cancelled() {
            return Err(HoldError::Interrupted);
        }
        if begun.elapsed() > READY_TIMEOUT || said.len() > OUTPUT_BYTES_MAX {
            return Err(HoldError::Silent(place.clone()));
        }
        match events.recv_timeout(POLL_INTERVAL) {
            Ok(Event::Out(bytes)) => {
                said.extend(bytes);
                if let Some(end) = said.iter().position(|b| *b == b'\n') {
                    return Ok(String::from_utf8_lossy(&said[..end]).trim().to_owned());
                }
            }
            Ok(Event::Err(bytes)) if complaints.len() < OUTPUT_BYTES_MAX => complaints.extend(bytes),
            Ok(Event::Exit(status)) => {
                let said = String::from_utf8_lossy(&complaints).trim().trim_start_matches("fathom: ").to_owned();
                return Err(HoldError::Ended { place: place.clone(), status, said });
            }
            Ok(Event::Gone(why)) => return Err(why.into()),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(HoldError::Silent(place.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line_of_events(all: Vec<Event>) -> Result<String, HoldError> {
        let (sender, events) = channel();
        all.into_iter().for_each(|event| sender.send(event).unwrap());
        drop(sender);
        wait_for_line(&DeviceAddress::Local, &events, &Context::silent())
    }

    #[test]
    fn first_line_is_assembled_from_pieces() {
        let out = |text: &str| Event::Out(text.as_bytes().to_vec());
        assert_eq!(line_of_events(vec![out("127.0."), out("0.1:7\nmore")]).unwrap(), "127.0.0.1:7");
    }

    #[test]
    fn early_end_is_reported_with_the_error_output() {
        let said = Event::Err(b"fathom: no interface wlan9\n".to_vec());
        let error = line_of_events(vec![said, Event::Exit(1)]).unwrap_err().to_string();
        assert_eq!(error, "local: it ended with status 1: no interface wlan9");
        assert!(matches!(line_of_events(vec![]), Err(HoldError::Silent(_))));
        assert!(
            matches!(line_of_events(vec![Event::Out(vec![b'x'; OUTPUT_BYTES_MAX + 1])]), Err(HoldError::Silent(_))),
            "no line ever"
        );
    }
}
