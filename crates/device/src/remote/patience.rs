//! Waiting for a device: slowness is allowed, silence has a limit, Ctrl-C ends it, and a message says what is waited for.
//!
//! A cable that is half out, a stopped sshd or a frozen phone accepts a request and never answers. No read of a device may therefore wait
//! without a limit, and none may keep a signal from being seen: whatever blocks does so in another thread, and the caller looks at the
//! result, at the signal, and at how much was transferred. A thread that is given up ends when its connection is closed.

use super::{DeviceAddress, Unreachable};
use model::Context;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// How long a device may be silent before it is regarded as lost.
pub(super) const SILENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same after data was sent to it: what the sockets between have buffered may take this long over a slow link.
pub(super) const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);
/// How often to check for an interrupt.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// How long an interrupted wait still takes an answer that is on its way.
const INTERRUPT_GRACE: Duration = Duration::from_secs(1);
/// After how long it is shown what is waited for.
const SHOWN_AFTER: Duration = Duration::from_secs(2);

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAnswer {
    Interrupted,
    /// Nothing was transferred for this long.
    Silent(Duration),
    /// The answering thread ended without one.
    Gone,
}

impl NoAnswer {
    /// Names the device and what was waited for.
    pub fn into_unreachable(self, place: &DeviceAddress, what: &str) -> Unreachable {
        match self {
            Self::Interrupted => Unreachable::new(place, format!("interrupted while waiting for {what}")),
            Self::Silent(limit) => {
                let seconds = limit.as_secs();
                let why = format!("it does not answer: nothing came within {seconds} s while waiting for {what}");
                Unreachable::new(place, format!("{why}; check that it is on, unlocked and connected"))
            }
            Self::Gone => Unreachable::new(place, format!("no answer: {what}")),
        }
    }
}

/// Waits for a message, at most `silence` after the last transfer that `moved` counts.
pub(super) fn receive<T>(
    from: &Receiver<T>,
    silence: Duration,
    moved: &TransferCount,
    context: &Context,
    what: &str,
) -> Result<T, NoAnswer> {
    let (mut last, mut since, mut shown) = (moved.bytes(), Instant::now(), false);
    let answer = loop {
        match from.recv_timeout(POLL_INTERVAL) {
            Ok(answer) => break Ok(answer),
            Err(RecvTimeoutError::Disconnected) => break Err(NoAnswer::Gone),
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = moved.bytes();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let quiet = since.elapsed();
        if context.cancelled() && quiet > INTERRUPT_GRACE {
            break Err(NoAnswer::Interrupted);
        }
        if quiet > silence {
            break Err(NoAnswer::Silent(silence));
        }
        if quiet > SHOWN_AFTER {
            shown = true;
            context.progress(&format!("waiting for {what}"), quiet.as_secs(), silence.as_secs());
        }
    };
    if shown {
        context.clear_progress();
    }
    answer
}

/// Runs in another thread what may block, such as a connection; gives up when `context` is cancelled, or after `limit`.
pub(super) fn run_in_thread<T: Send + 'static>(
    place: &DeviceAddress,
    limit: Duration,
    context: &Context,
    what: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unreachable> {
    let (sender, answer) = channel();
    std::thread::spawn(move || drop(sender.send(work())));
    receive(&answer, limit, &TransferCount::default(), context, what).map_err(|why| why.into_unreachable(place, what))
}

/// Counts what is transferred.
#[derive(Debug, Clone, Default)]
pub(super) struct TransferCount(Arc<AtomicU64>);

impl TransferCount {
    fn bytes(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Counts what is read from this.
    pub fn counting<R: Read>(&self, from: R) -> CountingReader<R> {
        CountingReader { from, moved: self.clone() }
    }
}

/// A stream whose bytes are counted.
#[derive(Debug)]
pub(super) struct CountingReader<R> {
    from: R,
    moved: TransferCount,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let got = self.from.read(bytes)?;
        self.moved.0.fetch_add(got as u64, Ordering::Relaxed);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT_SILENCE: Duration = Duration::from_millis(300);

    #[test]
    fn silence_ends_and_progress_does_not() {
        let (sender, from) = channel::<u8>();
        let silent = receive(&from, SHORT_SILENCE, &TransferCount::default(), &Context::silent(), "it");
        assert_eq!(silent, Err(NoAnswer::Silent(SHORT_SILENCE)));
        let moved = TransferCount::default();
        std::thread::spawn({
            let moved = moved.clone();
            move || {
                // A fixed wait: a slow device, which takes several times the limit but is never silent.
                for _ in 0..20 {
                    std::thread::sleep(SHORT_SILENCE / 6);
                    let _ = moved.counting(&b"x"[..]).read(&mut [0]);
                }
                sender.send(7)
            }
        });
        assert_eq!(receive(&from, SHORT_SILENCE, &moved, &Context::silent(), "it"), Ok(7));
    }

    #[test]
    fn interrupt_ends_blocked_work() {
        let context = Context::silent();
        let place = DeviceAddress::Local;
        context.cancel_flag().store(true, Ordering::Relaxed);
        let (_never, blocked) = channel::<()>();
        let error = run_in_thread(&place, SILENCE_TIMEOUT, &context, "its list", move || blocked.recv()).unwrap_err();
        assert_eq!(error.to_string(), "local: interrupted while waiting for its list");
    }
}
