//! Connections that nobody has let in yet.
//!
//! Whoever listens has room for so many that it serves, and must not let strangers take it: one that connects and says nothing
//! would keep out those who have the key. So a connection counts among the served only when it has shown who it is, and until then
//! it is a **visitor** of the lobby. The lobby has its own bound. When it is full the visitor that has waited longest has to go:
//! a peer that knows what to say needs some round trips, so who has been here for long is idle, and who comes now may not be.
//! And nobody stays for longer than the lobby's patience.
//!
//! What it cannot do: somebody who opens connections faster than the lobby's size in the time of a handshake keeps everybody out.
//! That takes a thousand connections a second and more, without an end, which is for a firewall.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

/// A crowd is told of once in this time.
const TOLD_AGAIN: Duration = Duration::from_secs(60);

/// Why a visitor had to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unmet {
    /// Too many came after it.
    #[error("closed to make room for {0} newer unauthenticated connections")]
    Crowded(usize),
    /// It took too long.
    #[error("not authenticated within {} s", .0.as_secs())]
    Slow(Duration),
}

/// Those who have connected and were not let in yet. Copies share one; they may be in several threads.
#[derive(Debug, Clone)]
pub struct Lobby {
    inner: Arc<Mutex<Inner>>,
    most: usize,
    patience: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    /// In the order in which they came, and how each is told to go.
    visitors: VecDeque<(u64, oneshot::Sender<()>)>,
    next: u64,
    reported: Option<Instant>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub struct Visitor {
    lobby: Lobby,
    number: u64,
    until: Instant,
    go: oneshot::Receiver<()>,
    crowd: bool,
}

impl Lobby {
    /// For so many (at least one), none of whom may take longer than `patience`.
    pub fn new(most: usize, patience: Duration) -> Self {
        Self { inner: Arc::default(), most: most.max(1), patience }
    }

    /// Somebody has connected. If the lobby is full, the one who has waited longest has to go.
    pub fn enter(&self) -> Visitor {
        let (tell, go) = oneshot::channel();
        let now = Instant::now();
        let mut inner = self.lock();
        let mut crowd = false;
        while inner.visitors.len() >= self.most
            && let Some((_, tell)) = inner.visitors.pop_front()
        {
            // It may be going by itself.
            let _ = tell.send(());
            crowd |= inner.reported.is_none_or(|reported| now.saturating_duration_since(reported) > TOLD_AGAIN);
            inner.reported = if crowd { Some(now) } else { inner.reported };
        }
        let number = inner.next;
        inner.next += 1;
        inner.visitors.push_back((number, tell));
        Visitor { lobby: self.clone(), number, until: now + self.patience, go, crowd }
    }

    /// How many are there.
    pub fn len(&self) -> usize {
        self.lock().visitors.len()
    }

    /// Whether nobody is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Visitor {
    /// What is worth a line on the terminal: others had to go for this one, for the first time in a minute.
    pub fn crowd(&self) -> Option<String> {
        let most = self.lobby.most;
        self.crowd.then(|| format!("more than {most} unauthenticated connections; closing the oldest"))
    }

    /// Does what shows who it is, unless it has to go before.
    ///
    /// # Errors
    /// [`Unmet`]; `work` was given up.
    pub async fn meanwhile<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Unmet> {
        let (mut work, mut late) = (pin!(work), pin!(sleep_until(self.until)));
        poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                return Poll::Ready(Ok(done));
            }
            if Pin::new(&mut self.go).poll(cx).is_ready() {
                return Poll::Ready(Err(Unmet::Crowded(self.lobby.most)));
            }
            late.as_mut().poll(cx).map(|()| Err(Unmet::Slow(self.lobby.patience)))
        })
        .await
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.lobby.lock().visitors.retain(|(number, _)| *number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    const PATIENCE: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn longest_waiting_connection_is_closed_first() {
        let lobby = Lobby::new(3, PATIENCE);
        let mut first: Vec<Visitor> = (0..3).map(|_| lobby.enter()).collect();
        assert_eq!(first[1].meanwhile(ready(7)).await, Ok(7));
        // It is let in.
        drop(first.remove(1));
        let mut fourth = lobby.enter();
        assert!(fourth.crowd().is_none() && lobby.len() == 3);
        let mut fifth = lobby.enter();
        assert!(fifth.crowd().is_some_and(|reported| reported.contains("more than 3")));
        let sixth = lobby.enter();
        assert!(sixth.crowd().is_none(), "it was told of already");
        for mut gone in first {
            assert_eq!(gone.meanwhile(pending::<()>()).await, Err(Unmet::Crowded(3)));
        }
        assert_eq!((fourth.meanwhile(ready(())).await, fifth.meanwhile(ready(())).await), (Ok(()), Ok(())));
        drop((fourth, fifth, sixth));
        assert!(lobby.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn unauthenticated_connections_are_closed_after_timeout() {
        let lobby = Lobby::new(3, PATIENCE);
        let mut visitor = lobby.enter();
        let entered = Instant::now();
        assert_eq!(visitor.meanwhile(tokio::time::sleep(PATIENCE / 2)).await, Ok(()));
        assert_eq!(visitor.meanwhile(pending::<()>()).await, Err(Unmet::Slow(PATIENCE)));
        assert_eq!(entered.elapsed(), PATIENCE);
    }
}
