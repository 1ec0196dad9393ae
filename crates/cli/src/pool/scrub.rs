//! `fathom pool scrub`: has a coordinator read all of its nodes, and waits for the result.

use super::status::{fetch_status, status_address};
use crate::args::PoolScrub;
use crate::progress;
use anyhow::{Context as _, Result};
use pool::http;
use pool::show::scrub::{json, text};
use std::process::ExitCode;
use std::time::Duration;

/// How often the coordinator is asked.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

pub fn run(args: &PoolScrub) -> Result<ExitCode> {
    let address = status_address(&args.address);
    let context = progress::context(args.json);
    http::post(&address, "/scrub")?;
    let scrub = loop {
        let (status, _) = fetch_status(&address)?;
        let scrub = status.scrub.context("the coordinator was restarted, and its scrub ended with it")?;
        if !scrub.running {
            break scrub;
        }
        let (done, all) = scrub.progress();
        context.progress("verifying", done, all);
        std::thread::sleep(POLL_INTERVAL);
    };
    progress::clear(&context);
    if args.json {
        println!("{}", json(&scrub)?);
    } else {
        print!("{}", text(&scrub));
    }
    Ok(if scrub.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
