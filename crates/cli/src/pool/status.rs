//! `fathom pool status`: asks a coordinator for the state of its nodes.

use crate::args::PoolStatus;
use anyhow::{Context as _, Result};
use pool::http;
use pool::show::status::table;
use pool::status::{Status, default_socket};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// The place of a coordinator's status: next to its NBD socket, or as given.
pub fn status_address(given: &str) -> String {
    let given = given.strip_prefix("unix:").unwrap_or(given);
    let beside = default_socket(Path::new(given));
    if beside.exists() { beside.to_string_lossy().into_owned() } else { given.into() }
}

/// The status of the coordinator at `address`, and its text.
pub fn fetch_status(address: &str) -> Result<(Status, String)> {
    let text = http::get(address, "/status")?;
    let status = serde_json::from_str(&text).with_context(|| {
        format!("the coordinator at {address} is of another release, with a different status format")
    })?;
    Ok((status, text))
}

pub fn run(args: &PoolStatus) -> Result<ExitCode> {
    let address = status_address(&args.address);
    let mut answered = false;
    loop {
        let mut healthy = false;
        match fetch_status(&address) {
            Ok((status, text)) => healthy = print_status(args, &status, &text),
            // The coordinator may be restarted.
            Err(error) if args.watch && answered => eprintln!("fathom: {}; retrying", crate::error_sentence(&error)),
            Err(error) => return Err(error),
        }
        answered = true;
        if !args.watch || crate::output::stdout_is_closed() {
            return Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE });
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

/// Whether all is well.
fn print_status(args: &PoolStatus, status: &Status, text: &str) -> bool {
    if args.json {
        println!("{text}");
        return status.is_healthy();
    }
    // A terminal shows only the latest status.
    if args.watch && std::io::stdout().is_terminal() {
        crate::output::clear();
    }
    print!("{}", table(status));
    status.is_healthy()
}
