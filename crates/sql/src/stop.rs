//! Ctrl-C during a query: handled at once, even while the engine plans or an archive is opened, neither of which yields.
//!
//! So the query runs on a thread of its own, which is told to stop and given a moment to release its files. A thread that does not
//! notice ends with the process; the directory of older tables ([`Scratch`]) is removed, even if it is still written to.

use crate::scratch::{HeldDirectory, Purpose};
use anyhow::{Context as _, Result, anyhow, bail};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Stack size of a thread that plans. Plans are as deep as their statement, which is untrusted; untouched pages cost nothing.
pub const STACK_BYTES: usize = 1 << 30;

/// How long a cancelled query may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for Ctrl-C, SIGTERM, or the end of the terminal, unless the parent process had it ignored (nohup).
pub async fn wait_for_stop() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    let hangup = async {
        match (is_ignored(SignalKind::hangup()), signal(SignalKind::hangup())) {
            (false, Ok(mut hangup)) => hangup.recv().await,
            _ => std::future::pending().await,
        }
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hangup => {}
    }
}

/// Whether a signal was ignored when this process began.
fn is_ignored(kind: SignalKind) -> bool {
    static IGNORED_SIGNALS: LazyLock<u64> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    });
    *IGNORED_SIGNALS >> (kind.as_raw_value() - 1) & 1 == 1
}

/// Runs something on a thread of its own; `None` if it was stopped before it was done.
///
/// # Errors
/// No thread is available, or it panicked.
pub fn until_stopped<T: Send + 'static, F: Future<Output = T>>(
    runtime: &Runtime,
    ask: impl FnOnce() -> F + Send + 'static,
) -> Result<Option<T>> {
    let handle = runtime.handle().clone();
    let ((tell, mut told), (stop, stopping)) = (oneshot::channel(), oneshot::channel::<()>());
    let work = move || {
        let done = handle.block_on(async {
            tokio::select! {
                done = ask() => Some(done),
                _ = stopping => None,
            }
        });
        // The receiver may have stopped waiting.
        let _ = tell.send(done);
    };
    let started = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(work);
    started.context("starting a thread with a stack of 1 GB (is there a limit on address space?)")?;
    runtime.block_on(async {
        tokio::select! {
            done = &mut told => done.map_err(|_| anyhow!("the engine failed; please report this statement")),
            () = wait_for_stop() => {
                drop(stop);
                // It may have finished just then.
                Ok(tokio::time::timeout(CANCEL_TIMEOUT, told).await.ok().and_then(Result::ok).flatten())
            }
        }
    })
}

/// A directory for rewritten tables of older archives, created when first needed.
#[derive(Clone, Default)]
pub struct Scratch(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    None,
    Made(HeldDirectory),
    Removed,
}

impl Scratch {
    /// Creates a directory in it.
    ///
    /// # Errors
    /// It cannot be created, or was removed.
    pub fn directory(&self, name: &str) -> Result<PathBuf> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::None = *state {
            *state = State::Made(HeldDirectory::new(Purpose::Query).context("creating a directory for older tables")?);
        }
        let State::Made(whole) = &*state else { bail!("stopped") };
        let directory = whole.path().join(name);
        std::fs::create_dir(&directory).with_context(|| format!("creating {}", directory.display()))?;
        Ok(directory)
    }

    /// Removes the directory, even if it is still written to; no new one is created after that.
    pub fn remove(&self) {
        let state = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), State::Removed);
        drop(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_is_removed_while_somebody_writes() {
        let scratch = Scratch::default();
        let directory = scratch.directory("0").unwrap();
        let whole = directory.parent().unwrap().to_path_buf();
        let writer = std::thread::spawn(move || {
            let mut written = 0;
            while std::fs::write(directory.join(format!("{written}.parquet")), "x").is_ok() {
                written += 1;
            }
            written
        });
        while std::fs::read_dir(whole.join("0")).is_ok_and(|entries| entries.count() < 100) {
            std::thread::yield_now();
        }
        scratch.remove();
        assert!(writer.join().unwrap() >= 100);
        assert!(!whole.exists());
        // A later request creates no other directory.
        assert!(scratch.directory("1").is_err());
        Scratch::default().remove();
    }

    #[test]
    fn result_is_returned_from_the_thread() {
        let runtime = crate::ask::runtime(1).unwrap();
        assert_eq!(until_stopped(&runtime, || async { 7 }).unwrap(), Some(7));
        let failed = until_stopped(&runtime, || async { panic!("on purpose") });
        assert!(failed.map(|done: Option<()>| done).is_err());
    }
}
