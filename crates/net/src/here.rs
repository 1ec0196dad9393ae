//! A run of this process: on one thread, in addition to the traffic threads, until it ends or is interrupted.

use crate::Result;
use crate::error::Doing as _;
use crate::measure::{Measured, RunRequest};
use crate::progress::Progress;
use crate::run::Session;
use crate::spec::Spec;
use crate::traffic::LiveCounters;
use model::context::SAME_SIGNAL;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// Threads that still send notice the end of the run and exit within this time.
const END: Duration = Duration::from_secs(3);
/// How often progress of a run is printed.
const EVERY: Duration = Duration::from_secs(1);

/// Runs `work` on this thread. SIGTERM and the Ctrl-C number `interrupts_max` end it: `None`. The work handles any
/// earlier Ctrl-C.
///
/// # Errors
/// Those of the work, or signal handlers cannot be installed.
pub fn local<T>(last: u32, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().doing("start")?;
    let done = LocalSet::new().block_on(&runtime, async {
        let mut terminated = signal(SignalKind::terminate()).doing("wait for SIGTERM")?;
        let interrupted = async {
            for _ in 0..last {
                ctrl_c().await?;
                tokio::time::sleep(SAME_SIGNAL).await;
            }
            std::io::Result::Ok(())
        };
        tokio::select! {
            done = work => done.map(Some),
            result = interrupted => result.map(|()| None).doing("wait for Ctrl-C"),
            _ = terminated.recv() => Ok(None),
        }
    });
    runtime.shutdown_timeout(END);
    done
}

/// Measures. The first Ctrl-C ends the run and keeps its results; the second ends everything: `None`. `tell` receives
/// progress lines, if requested.
pub fn measure(asked: &RunRequest, tell: fn(&str)) -> Result<Option<Measured>> {
    local(2, async {
        let mut beside: Vec<JoinHandle<()>> = Vec::new();
        let begun = |session: &Session| {
            let interrupter = session.interrupter();
            beside.push(spawn_local(async move {
                if ctrl_c().await.is_ok() {
                    interrupter.store(true, Ordering::Relaxed);
                }
            }));
            // The steps of a search are printed instead: the counters restart at each step.
            if asked.progress && !asked.highest {
                beside.push(spawn_local(live(session.live(), asked.spec.clone(), tell)));
            }
        };
        let mut step = |line: String| {
            if asked.progress {
                tell(&line);
            }
        };
        let measured = asked.measure(begun, &mut step).await;
        beside.iter().for_each(JoinHandle::abort);
        measured
    })
}

/// Prints a line every second during a run.
async fn live(live: Arc<LiveCounters>, spec: Spec, tell: fn(&str)) {
    let mut ticks = tokio::time::interval(EVERY);
    let (mut progress, origin) = (Progress::default(), Instant::now());
    loop {
        ticks.tick().await;
        let now = spec.directions.iter().map(|d| live.amount(*d)).collect();
        if let Some(line) = progress.line(&spec, origin.elapsed().as_secs_f64(), live.under_way(), now) {
            tell(&line);
        }
    }
}
