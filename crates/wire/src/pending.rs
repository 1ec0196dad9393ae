//! Connections that nobody has let in yet.
//!
//! Whoever listens has room for so many that it serves, and must not let strangers take it: one that connects and says nothing
//! would keep out those who have the key. So a connection counts among the served only when it has shown who it is, and until then
//! it is **pending**. Pending connections have a bound of their own. When it is reached the one that has waited longest is closed:
//! a peer that knows what to say needs some round trips, so who has been here for long is idle, and who comes now may not be.
//! And none stays for longer than a timeout.
//!
//! What it cannot do: somebody who opens connections faster than that bound in the time of a handshake keeps everybody out.
//! That takes a thousand connections a second and more, without an end, which is for a firewall.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// More than there may be are reported once in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// Why a pending connection was closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotAdmitted {
    /// Too many came after it.
    #[error("closed to make room for {0} newer unauthenticated connections")]
    Overflow(usize),
    /// It took too long.
    #[error("not authenticated within {} s", .0.as_secs())]
    Slow(Duration),
}

/// Those who have connected and were not let in yet. Copies share one; they may be in several threads.
#[derive(Debug, Clone)]
pub struct PendingConnections {
    inner: Arc<Mutex<Inner>>,
    most: usize,
    timeout: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they came, and how each is closed.
    connections: VecDeque<(u64, oneshot::Sender<()>)>,
    next: u64,
    reported: Option<Instant>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct PendingConnection {
    pending: PendingConnections,
    number: u64,
    until: Instant,
    go: oneshot::Receiver<()>,
    overflow: bool,
}

impl PendingConnections {
    /// For so many (at least one), none of whom may take longer than `timeout`.
    pub fn new(most: usize, timeout: Duration) -> Self {
        Self { inner: Arc::default(), most: most.max(1), timeout }
    }

    /// Somebody has connected. If there are as many as there may be, the one that has waited longest is closed.
    pub fn add(&self) -> PendingConnection {
        let (close, go) = oneshot::channel();
        let now = Instant::now();
        let mut inner = self.lock();
        let mut overflow = false;
        while inner.connections.len() >= self.most
            && let Some((_, close)) = inner.connections.pop_front()
        {
            // It may be going by itself.
            let _ = close.send(());
            overflow |= inner.reported.is_none_or(|reported| now.saturating_duration_since(reported) > REPORT_INTERVAL);
            inner.reported = if overflow { Some(now) } else { inner.reported };
        }
        let number = inner.next;
        inner.next += 1;
        inner.connections.push_back((number, close));
        PendingConnection { pending: self.clone(), number, until: now + self.timeout, go, overflow }
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PendingConnection {
    /// What is worth a line on the terminal: others had to go for this one, for the first time in a minute.
    pub fn overflow(&self) -> Option<String> {
        let most = self.pending.most;
        self.overflow.then(|| format!("more than {most} unauthenticated connections; closing the oldest"))
    }

    /// Does what shows who it is, unless it has to go before.
    ///
    /// # Errors
    /// [`NotAdmitted`]; `work` was given up.
    pub async fn authenticate<T>(&mut self, work: impl Future<Output = T>) -> Result<T, NotAdmitted> {
        let (mut work, mut late) = (pin!(work), pin!(sleep_until(self.until)));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if Pin::new(&mut self.go).poll(cx).is_ready() {
                return Poll::Ready(Err(NotAdmitted::Overflow(self.pending.most)));
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

    const TIMEOUT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn longest_waiting_connection_is_closed_first() {
        let waiting = PendingConnections::new(3, TIMEOUT);
        let mut first: Vec<PendingConnection> = (0..3).map(|_| waiting.add()).collect();
        assert_eq!(first[1].authenticate(ready(7)).await, Ok(7));
        // It is let in.
        drop(first.remove(1));
        let mut fourth = waiting.add();
        assert!(fourth.overflow().is_none() && waiting.len() == 3);
        let mut fifth = waiting.add();
        assert!(fifth.overflow().is_some_and(|reported| reported.contains("more than 3")));
        let sixth = waiting.add();
        assert!(sixth.overflow().is_none(), "it was reported already");
        for mut gone in first {
            assert_eq!(gone.authenticate(pending::<()>()).await, Err(NotAdmitted::Overflow(3)));
        }
        assert_eq!((fourth.authenticate(ready(())).await, fifth.authenticate(ready(())).await), (Ok(()), Ok(())));
        drop((fourth, fifth, sixth));
        assert!(waiting.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_connections_are_closed_after_timeout() {
        let waiting = PendingConnections::new(3, TIMEOUT);
        let mut connection = waiting.add();
        let entered = Instant::now();
        assert_eq!(connection.authenticate(tokio::time::sleep(TIMEOUT / 2)).await, Ok(()));
        assert_eq!(connection.authenticate(pending::<()>()).await, Err(NotAdmitted::Slow(TIMEOUT)));
        assert_eq!(entered.elapsed(), TIMEOUT);
    }
}
