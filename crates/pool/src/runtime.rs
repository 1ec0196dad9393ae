//! The thread that runs a node or a coordinator, and the signals that end it.

use crate::scheduling::restore_original_mask;
use std::future::Future;
use std::io;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::LocalSet;

/// Runs `work` on one thread, with `workers` additional threads for files.
///
/// # Errors
/// Those of the work, or the thread cannot start.
pub fn run_local<T, E: From<io::Error>>(workers: usize, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(workers)
        .on_thread_start(restore_original_mask)
        .build()?;
    LocalSet::new().block_on(&runtime, work)
}

/// Installs handlers of Ctrl-C and SIGTERM; completes when one arrives. Called before the program announces that it is
/// ready: a signal right after that must end it in order.
///
/// # Errors
/// The signals cannot be handled.
pub fn end_signal() -> io::Result<impl Future<Output = ()>> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupted.recv() => (),
            _ = terminated.recv() => (),
        }
    })
}
