//! Connections that are not authenticated yet.
//!
//! A server has a limited number of connections to serve, and must not let strangers use them up: an idle connection would
//! lock out peers with a key. So a connection counts as served only after it is authenticated, and until then it is
//! **pending**. Pending connections have a separate limit. When it is reached the oldest one is closed: a legitimate peer
//! needs only a few round trips, so the oldest is idle, while the newest may not be. In addition, each has a timeout.
//!
//! Limitation: an attacker who opens more connections than that limit within the duration of a handshake locks out
//! everyone. That takes a thousand or more connections per second, continuously, which is a task for a firewall.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// Exceeding the limit is reported at most once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Why a pending connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Too many newer connections arrived.
    #[error("closed to make room for {0} newer unauthenticated connections")]
    Overflow(usize),
    #[error("not authenticated within {} s", .0.as_secs())]
    Slow(Duration),
}

/// The unauthenticated connections. Clones share them, also across threads.
#[derive(Debug, Clone)]
pub struct PendingConnections {
    inner: Arc<Mutex<Inner>>,
    connections_max: usize,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    /// In order of arrival, with the channel that closes each.
    connections: VecDeque<(u64, oneshot::Sender<()>)>,
    next: u64,
    reported: Option<Instant>,
}

/// One pending connection, until it is dropped.
#[derive(Debug)]
pub struct PendingConnection {
    pending: PendingConnections,
    number: u64,
    deadline: Instant,
    close_signal: oneshot::Receiver<()>,
    is_first_overflow: bool,
}

impl PendingConnections {
    /// Creates a set of at most `most` connections (at least one), each with this timeout.
    pub fn new(most: usize, timeout: Duration) -> Self {
        Self { inner: Arc::default(), connections_max: most.max(1), timeout }
    }

    /// Adds a new connection. If the limit is reached, the oldest one is closed.
    pub fn add(&self) -> PendingConnection {
        let (close, go) = oneshot::channel();
        let now = Instant::now();
        let mut inner = self.lock();
        let mut overflow = false;
        while inner.connections.len() >= self.connections_max
            && let Some((_, close)) = inner.connections.pop_front()
        {
            // It may be closing by itself.
            let _ = close.send(());
            overflow |= inner.reported.is_none_or(|reported| now.saturating_duration_since(reported) > REPORT_INTERVAL);
            inner.reported = if overflow { Some(now) } else { inner.reported };
        }
        let number = inner.next;
        inner.next += 1;
        inner.connections.push_back((number, close));
        assert!(inner.connections.len() <= self.connections_max, "more connections are pending than permitted");
        PendingConnection {
            pending: self.clone(),
            number,
            deadline: now + self.timeout,
            close_signal: go,
            is_first_overflow: overflow,
        }
    }

    /// The number of pending connections.
    pub fn len(&self) -> usize {
        self.lock().connections.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingConnection {
    /// A message to report: others were closed for this one, for the first time in a minute.
    pub fn overflow_message(&self) -> Option<String> {
        let most = self.pending.connections_max;
        self.is_first_overflow.then(|| format!("more than {most} unauthenticated connections; closing the oldest"))
    }

    /// Runs `work`, which authenticates the connection, unless it is closed before.
    ///
    /// # Errors
    /// [`NotAdmitted`]; `work` was cancelled.
    pub async fn authenticate<T>(&mut self, work: impl Future<Output = T>) -> Result<T, NotAdmitted> {
        let (mut work, mut late) = (pin!(work), pin!(sleep_until(self.deadline)));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if Pin::new(&mut self.close_signal).poll(cx).is_ready() {
                return Poll::Ready(Err(NotAdmitted::Overflow(self.pending.connections_max)));
            }
            late.as_mut().poll(cx).map(|()| Err(NotAdmitted::Slow(self.pending.timeout)))
        })
        .await
    }
}

impl Drop for PendingConnection {
    fn drop(&mut self) {
        self.pending.lock().connections.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn longest_waiting_connection_is_closed_first() {
        let waiting = PendingConnections::new(3, TEST_TIMEOUT);
        let mut first: Vec<PendingConnection> = (0..3).map(|_| waiting.add()).collect();
        assert_eq!(first[1].authenticate(ready(7)).await, Ok(7));
        // It is authenticated.
        drop(first.remove(1));
        let mut fourth = waiting.add();
        assert!(fourth.overflow_message().is_none() && waiting.len() == 3);
        let mut fifth = waiting.add();
        assert!(fifth.overflow_message().is_some_and(|reported| reported.contains("more than 3")));
        let sixth = waiting.add();
        assert!(sixth.overflow_message().is_none(), "it was reported already");
        for mut gone in first {
            assert_eq!(gone.authenticate(pending::<()>()).await, Err(NotAdmitted::Overflow(3)));
        }
        assert_eq!((fourth.authenticate(ready(())).await, fifth.authenticate(ready(())).await), (Ok(()), Ok(())));
        drop((fourth, fifth, sixth));
        assert!(waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_connections_are_closed_after_timeout() {
        let waiting = PendingConnections::new(3, TEST_TIMEOUT);
        let mut connection = waiting.add();
        let entered = Instant::now();
        assert_eq!(connection.authenticate(tokio::time::sleep(TEST_TIMEOUT / 2)).await, Ok(()));
        assert_eq!(connection.authenticate(pending::<()>()).await, Err(NotAdmitted::Slow(TEST_TIMEOUT)));
        assert_eq!(entered.elapsed(), TEST_TIMEOUT);
    }
}
