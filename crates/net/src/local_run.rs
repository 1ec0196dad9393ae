//! A run of this process: on one thread, in addition to the traffic threads, until it ends or is interrupted.

use crate::Result;
use crate::error::OperationContext as _;
use crate::measure::{Measurement, RunRequest};
use crate::progress::Progress;
use crate::run::Session;
use crate::spec::Spec;
use crate::traffic::LiveCounters;
use model::context::SAME_SIGNAL_WINDOW;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::signal::ctrl_c;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, LocalSet, spawn_local};

/// Threads that still send notice the end of the run and exit within this time.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// How often progress of a run is printed.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Runs `work` on this thread. SIGTERM and the Ctrl-C number `interrupts_max` end it: `None`. The work handles any
/// earlier Ctrl-C.
///
/// # Errors
/// Those of the work, or signal handlers cannot be installed.
pub fn run_local<T>(interrupts_max: u32, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().doing("start")?;
    let done = LocalSet::new().block_on(&runtime, async {
        let mut terminated = signal(SignalKind::terminate()).doing("wait for SIGTERM")?;
        let interrupted = async {
            for _ in 0..interrupts_max {
                ctrl_c().await?;
                tokio::time::sleep(SAME_SIGNAL_WINDOW).await;
            }
            std::io::Result::Ok(())
        };
        tokio::select! {
            done = work => done.map(Some),
            result = interrupted => result.map(|()| None).doing("wait for Ctrl-C"),
            _ = terminated.recv() => Ok(None),
        }
    });
    runtime.shutdown_timeout(SHUTDOWN_TIMEOUT);
    done
}

/// Measures. The first Ctrl-C ends the run and keeps its results; the second ends everything: `None`. `tell` receives
/// progress lines, if requested.
pub fn measure(request: &RunRequest, tell: fn(&str)) -> Result<Option<Measurement>> {
    run_local(2, async {
        let mut tasks: Vec<JoinHandle<()>> = Vec::new();
        let begun = |session: &Session| {
            let interrupter = session.interrupter();
            tasks.push(spawn_local(async move {
                if ctrl_c().await.is_ok() {
                    interrupter.store(true, Ordering::Relaxed);
                }
            }));
            // The steps of a search are printed instead: the counters restart at each step.
            if request.progress && !request.highest {
                tasks.push(spawn_local(print_progress(session.live(), request.spec.clone(), tell)));
            }
        };
        let mut step = |line: String| {
            if request.progress {
                tell(&line);
            }
        };
        let measured = request.measure(begun, &mut step).await;
        tasks.iter().for_each(JoinHandle::abort);
        measured
    })
}

/// Prints a line every second during a run.
async fn print_progress(live: Arc<LiveCounters>, spec: Spec, tell: fn(&str)) {
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    let (mut progress, origin) = (Progress::default(), Instant::now());
    loop {
        ticks.tick().await;
        let now = spec.directions.iter().map(|d| live.amount(*d)).collect();
        if let Some(line) = progress.line(&spec, origin.elapsed().as_secs_f64(), live.is_running(), now) {
            tell(&line);
        }
    }
}
