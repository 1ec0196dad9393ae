//! A command of this program on a device that serves until it is dropped here: it prints a line when it is ready, and ends,
//! with all its child processes, when it is dropped, when this program dies, or when the connection breaks.

use super::{AgentLink, DeviceAddress, Event, Remark, Unreachable, program};
use model::Context;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How often to check for an interrupt.
const LOOK: Duration = Duration::from_millis(100);
/// The timeout for being ready.
const READY: Duration = Duration::from_secs(30);
/// The maximum length of a line, or of the error output, that is kept, bytes.
const MOST: usize = 1 << 16;

/// Why the command is not running.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NotHeld {
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
pub struct Held {
    link: AgentLink,
    events: Receiver<Event>,
    ready: String,
}

impl Held {
    /// Starts `fathom WORDS…` there, and waits for its first line; `tell` receives messages of the host.
    pub fn start(
        place: &DeviceAddress,
        binaries: &[PathBuf],
        words: &[String],
        context: &Context,
        tell: &dyn Fn(Remark),
    ) -> Result<Self, NotHeld> {
        let failed = |source| NotHeld::Io { place: place.clone(), source };
        let ours = std::env::current_exe().map_err(failed)?;
        let deployment = program::put(place, &ours, binaries, context, tell)?;
        let (sender, events) = channel();
        let link = AgentLink::open(&deployment, context, move |event| drop(sender.send(event)))?;
        let argv: Vec<String> = std::iter::once(&deployment.program).chain(words).cloned().collect();
        link.start(&argv).map_err(failed)?;
        let ready = first_line(&deployment.place, &events, context)?;
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

fn first_line(place: &DeviceAddress, events: &Receiver<Event>, context: &Context) -> Result<String, NotHeld> {
    let (begun, mut said, mut complaints) = (Instant::now(), Vec::new(), Vec::new());
    loop {
        if context.cancelled() {
            return Err(NotHeld::Interrupted);
        }
        if begun.elapsed() > READY || said.len() > MOST {
            return Err(NotHeld::Silent(place.clone()));
        }
        match events.recv_timeout(LOOK) {
            Ok(Event::Out(bytes)) => {
                said.extend(bytes);
                if let Some(end) = said.iter().position(|b| *b == b'\n') {
                    return Ok(String::from_utf8_lossy(&said[..end]).trim().to_owned());
                }
            }
            Ok(Event::Err(bytes)) if complaints.len() < MOST => complaints.extend(bytes),
            Ok(Event::Exit(status)) => {
                let said = String::from_utf8_lossy(&complaints).trim().trim_start_matches("fathom: ").to_owned();
                return Err(NotHeld::Ended { place: place.clone(), status, said });
            }
            Ok(Event::Gone(why)) => return Err(why.into()),
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(NotHeld::Silent(place.clone())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(all: Vec<Event>) -> Result<String, NotHeld> {
        let (sender, events) = channel();
        all.into_iter().for_each(|event| sender.send(event).unwrap());
        drop(sender);
        first_line(&DeviceAddress::Local, &events, &Context::silent())
    }

    #[test]
    fn first_line_is_put_together_of_pieces() {
        let out = |text: &str| Event::Out(text.as_bytes().to_vec());
        assert_eq!(line(vec![out("127.0."), out("0.1:7\nmore")]).unwrap(), "127.0.0.1:7");
    }

    #[test]
    fn early_end_says_what_it_complained_of() {
        let said = Event::Err(b"fathom: no interface wlan9\n".to_vec());
        let error = line(vec![said, Event::Exit(1)]).unwrap_err().to_string();
        assert_eq!(error, "local: it ended with status 1: no interface wlan9");
        assert!(matches!(line(vec![]), Err(NotHeld::Silent(_))));
        assert!(matches!(line(vec![Event::Out(vec![b'x'; MOST + 1])]), Err(NotHeld::Silent(_))), "no line ever");
    }
}
