//! Ctrl-C while something is asked: heard at once, also while the engine plans or an archive is opened, which wait for nothing.
//!
//! So what is asked runs on a thread of its own, which is told to stop and given a moment to let go of its files. One that does not
//! hear it ends with the process; the folder of older tables ([`Scratch`]) is removed, whoever still writes into it.

use crate::scratch::{Held, Purpose};
use anyhow::{Context as _, Result, anyhow, bail};
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Of a thread that plans. Plans are as deep as the statement that they are of, which may be anybody's; what is not touched costs nothing.
pub const STACK: usize = 1 << 30;

/// How long a query that was cancelled may take to end.
const MOMENT: Duration = Duration::from_secs(1);

/// Ctrl-C, SIGTERM, or the end of the terminal, unless whoever started us has it ignored (nohup).
pub async fn stopped() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return std::future::pending().await };
    let hangup = async {
        match (ignored(SignalKind::hangup()), signal(SignalKind::hangup())) {
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
fn ignored(kind: SignalKind) -> bool {
    static MASK: LazyLock<u64> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
    });
    *MASK >> (kind.as_raw_value() - 1) & 1 == 1
}

/// Does something on a thread of its own; `None` if it was stopped before it was done.
///
/// # Errors
/// There is no thread to be had, or it panicked.
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
        // Nobody waits any more.
        let _ = tell.send(done);
    };
    let started = std::thread::Builder::new().stack_size(STACK).spawn(work);
    started.context("starting a thread with a stack of 1 GB (is there a limit on address space?)")?;
    runtime.block_on(async {
        tokio::select! {
            done = &mut told => done.map_err(|_| anyhow!("the engine failed; please report this statement")),
            () = stopped() => {
                drop(stop);
                // It may have been done just then.
                Ok(tokio::time::timeout(MOMENT, told).await.ok().and_then(Result::ok).flatten())
            }
        }
    })
}

/// A folder for the tables of older archives as this version has them, made when the first needs it.
#[derive(Clone, Default)]
pub struct Scratch(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    None,
    Made(Held),
    Removed,
}

impl Scratch {
    /// A new folder in it.
    ///
    /// # Errors
    /// It cannot be made, or was removed.
    pub fn folder(&self, name: &str) -> Result<PathBuf> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::None = *state {
            *state = State::Made(Held::new(Purpose::Query).context("creating a folder for older tables")?);
        }
        let State::Made(whole) = &*state else { bail!("stopped") };
        let folder = whole.path().join(name);
        std::fs::create_dir(&folder).with_context(|| format!("creating {}", folder.display()))?;
        Ok(folder)
    }

    /// Removes it, whoever still writes into it, who makes no other.
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
        let folder = scratch.folder("0").unwrap();
        let whole = folder.parent().unwrap().to_path_buf();
        let writer = std::thread::spawn(move || {
            let mut written = 0;
            while std::fs::write(folder.join(format!("{written}.parquet")), "x").is_ok() {
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
        // Who goes on after that makes no other.
        assert!(scratch.folder("1").is_err());
        Scratch::default().remove();
    }

    #[test]
    fn result_comes_back_from_thread() {
        let runtime = crate::ask::runtime(1).unwrap();
        assert_eq!(until_stopped(&runtime, || async { 7 }).unwrap(), Some(7));
        let failed = until_stopped(&runtime, || async { panic!("on purpose") });
        assert!(failed.map(|done: Option<()>| done).is_err());
    }
}
