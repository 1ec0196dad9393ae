//! Shows how far a run is and when it will end; [`experiment::eta`] estimates it.

use crate::progress;
use experiment::eta::Eta;
use experiment::eta_text::{LineTimer, time_left};
use model::Context;
use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Returns a context that shows what runs now, how much of it is done and the finishing time (a bar on a terminal, else a
/// line every ten seconds), and a handle to set which design runs.
pub fn context(quiet: bool, eta: Eta) -> (Context, Arc<Mutex<Eta>>) {
    let inner = progress::context(quiet);
    let eta = Arc::new(Mutex::new(eta));
    let (shared, begun) = (eta.clone(), Instant::now());
    let lines = (!quiet && !std::io::stderr().is_terminal()).then(|| Mutex::new(LineTimer::default()));
    let context = Context::new(Arc::new(move |what: &str, done, total| {
        if what.is_empty() || total == 0 {
            return inner.progress(what, done, total);
        }
        let now = begun.elapsed();
        // A poisoned lock only means that some thread panicked; the estimate is as good as before.
        let left = shared.lock().unwrap_or_else(PoisonError::into_inner).remaining(now, done, total);
        let status_line = format!("{what} ({}/{total}){}", done + 1, left.map_or(String::new(), time_left));
        if let Some(lines) = &lines
            && lines.lock().unwrap_or_else(PoisonError::into_inner).due(now, done)
        {
            eprintln!("fathom: {status_line}");
        }
        let ms = |d: Duration| u64::try_from(d.as_millis()).unwrap_or(u64::MAX);
        match left {
            Some((_, most)) => inner.progress(&status_line, ms(now), ms(now + most).max(1)),
            None => inner.progress(&status_line, done, total),
        }
    }));
    (context, eta)
}
