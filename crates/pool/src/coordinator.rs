//! The coordinator's tasks other than serving: the last flush, and measuring a pool under several loads, one after the other.

use crate::bench::{self, Figures, Load};
use crate::connect::Connect;
use crate::layout::Arrangement;
use crate::link::{Control, Options};
use crate::setting::Setting;
use crate::volume::{AssemblyError, Volume, check_free};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

/// A flush that takes longer than this is reported.
const SLOW_FLUSH_TIMEOUT: Duration = Duration::from_secs(1);
/// The message if it failed.
const LAST_FLUSH_FAILED: &str = "the last flush failed; unflushed writes may be lost";

/// Why the last flush failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LastFlushError {
    /// The user did not want to wait.
    #[error("{LAST_FLUSH_FAILED}: stopped before the flush completed")]
    Stopped,
    /// A node's part of the disk is lost: why.
    #[error("{LAST_FLUSH_FAILED}: {0}")]
    Lost(String),
    #[error("{LAST_FLUSH_FAILED}")]
    Failed(#[source] nbd::Error),
}

/// Awaits the `flush` of writes that clients did not flush themselves: losing them is allowed, but has no benefit. It ends
/// when `stopped` completes. `slow` is called if it takes longer than a moment; `lost` returns why the disk cannot be used
/// whole.
///
/// # Errors
/// Unflushed writes may be lost.
pub async fn last_flush(
    flush: impl Future<Output = Result<(), nbd::Error>>,
    lost: impl Fn() -> Option<String>,
    slow: impl FnOnce(),
    stopped: impl Future<Output = ()>,
) -> Result<(), LastFlushError> {
    let mut flush = pin!(flush);
    let flushed = match tokio::time::timeout(SLOW_FLUSH_TIMEOUT, &mut flush).await {
        Ok(flushed) => flushed,
        Err(_) => {
            slow();
            tokio::select! {
                flushed = flush => flushed,
                () = stopped => return Err(LastFlushError::Stopped),
            }
        }
    };
    flushed.map_err(|error| lost().map_or(LastFlushError::Failed(error), LastFlushError::Lost))
}

/// The name of a pool for a trial.
const TRIAL_POOL_NAME: &str = "try";

/// Why a trial has no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrialError {
    /// The nodes do not form a pool.
    #[error(transparent)]
    Join(#[from] AssemblyError),
    #[error(transparent)]
    Bench(#[from] bench::Error),
}

/// How long to wait for the nodes, and how often to query them.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);
const RELEASE_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Waits until the nodes have noticed that their last coordinator is gone: a node regards a closed connection as connected
/// until it has read it to its end, and would report the next coordinator as taking over.
async fn wait_for_release(connect: &Connect, nodes: &[SocketAddr]) {
    let began = tokio::time::Instant::now();
    // Any other error occurs again when the nodes are joined.
    while let Err(AssemblyError::Served { .. }) = check_free(connect, nodes, TRIAL_POOL_NAME).await
        && began.elapsed() < RELEASE_TIMEOUT
    {
        tokio::time::sleep(RELEASE_POLL_INTERVAL).await;
    }
}

/// The number of loads that [`measure_trial`] measures, one after the other.
pub const LOAD_COUNT: usize = 4;

/// Measures the nodes, which hold no data, under [`LOAD_COUNT`] loads: with the block size, duration and seed of `load`, and at
/// most its threads. `measured` receives each result. Returns the disk formed by the nodes.
pub async fn measure_trial(
    connect: &Connect,
    nodes: &[SocketAddr],
    load: Load,
    report: Rc<dyn Fn(String)>,
    measured: &mut dyn FnMut(&'static str, Figures),
) -> Result<Rc<Volume>, TrialError> {
    let alone = Control::Fixed(Setting::new(1, 1));
    let loads: [_; LOAD_COUNT] = [
        ("one read at a time", false, &alone, 1),
        ("reads, one in flight per node", false, &alone, load.threads),
        ("reads, tuned", false, &Control::Tuned, load.threads),
        ("writes, tuned", true, &Control::Tuned, load.threads),
    ];
    let options = Options::default();
    let mut last = None;
    for (what, write, control, threads) in loads {
        if let Some(before) = last.take() {
            drop(before);
            wait_for_release(connect, nodes).await;
        }
        let joined =
            Volume::join(connect, nodes, TRIAL_POOL_NAME, Arrangement::Concatenated, &options, control, report.clone())
                .await?;
        let volume = last.insert(Rc::new(joined));
        measured(what, bench::run(volume.clone(), Load { threads, write, checked: true, ..load }).await?);
    }
    // There is at least one load.
    last.ok_or(TrialError::Bench(bench::Error::Unanswered))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use nbd::{Export, Info};
    use std::cell::Cell;

    /// A disk whose flush never ends, or fails.
    struct FailingDisk {
        ends: bool,
    }

    impl Export for FailingDisk {
        fn info(&self) -> &Info {
            unreachable!("no request is made")
        }
        async fn read(&self, _: u64, _: u32) -> Result<Bytes, nbd::Error> {
            Err(nbd::Error::Io)
        }
        async fn write(&self, _: u64, _: Bytes, _: bool) -> Result<(), nbd::Error> {
            Err(nbd::Error::Io)
        }
        async fn flush(&self) -> Result<(), nbd::Error> {
            if !self.ends {
                std::future::pending::<()>().await;
            }
            Err(nbd::Error::Io)
        }
        async fn trim(&self, _: u64, _: u32, _: bool) -> Result<(), nbd::Error> {
            Err(nbd::Error::Io)
        }
        async fn write_zeroes(&self, _: u64, _: u32, _: bool, _: bool, _: bool) -> Result<(), nbd::Error> {
            Err(nbd::Error::Io)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn last_flush_reports_loss_and_may_be_stopped() {
        let slow = Cell::new(0);
        let flush = async |ends, lost: Option<&str>| {
            let lost = lost.map(String::from);
            last_flush(FailingDisk { ends }.flush(), || lost.clone(), || slow.set(slow.get() + 1), async {}).await
        };
        assert_eq!(flush(false, None).await, Err(LastFlushError::Stopped));
        assert_eq!(slow.get(), 1);
        assert_eq!(flush(true, Some("a node is gone")).await, Err(LastFlushError::Lost("a node is gone".into())));
        assert!(matches!(flush(true, None).await, Err(LastFlushError::Failed(_))));
        assert_eq!(slow.get(), 1, "one that fails at once is not slow");
    }
}
