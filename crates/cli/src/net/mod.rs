//! `fathom net`: a file a verb.

mod cc;
mod keep;
mod link;
mod measure;
mod run;
mod serve;
mod trial;

use crate::args::{Net, NetVerb};
use anyhow::{Context as _, Result};
use std::future::Future;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &Net) -> Result<ExitCode> {
    match &args.verb {
        NetVerb::Serve(args) => serve::run(args),
        NetVerb::Run(args) => run::run(args),
        NetVerb::Measure(args) => measure::run(args),
        NetVerb::Cc(args) => cc::run(args),
        NetVerb::Link(args) => link::run(args),
        NetVerb::Sweep(args) => crate::bench::sweep(&args.as_bench()),
        NetVerb::Trial(args) => trial::run(args),
    }
}

fn key(path: Option<&Path>) -> Result<Option<wire::Key>> {
    Ok(path.map(wire::Key::read).transpose()?)
}

/// Runs on one thread; traffic has threads of its own. SIGTERM and the `last` Ctrl-C end it: `None`. Those before are for
/// the work to hear.
fn local<T>(last: u32, work: impl Future<Output = Result<T>>) -> Result<Option<T>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    let done = tokio::task::LocalSet::new().block_on(&runtime, async {
        let mut terminated = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
        let interrupted = async {
            for _ in 0..last {
                tokio::signal::ctrl_c().await?;
                tokio::time::sleep(crate::progress::SAME_SIGNAL).await;
            }
            std::io::Result::Ok(())
        };
        tokio::select! {
            done = work => done.map(Some),
            result = interrupted => result.map(|()| None).context("cannot wait for Ctrl-C"),
            _ = terminated.recv() => Ok(None),
        }
    });
    // Threads that still send see that the run is over, and end by themselves.
    runtime.shutdown_timeout(std::time::Duration::from_secs(3));
    done
}
