//! `fathom pool status`: asks a coordinator for the state of its nodes.

use crate::args::PoolStatus;
use anyhow::{Context as _, Result};
use pool::http;
use pool::show::status::table;
use pool::status::{Status, socket};
use std::io::IsTerminal as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub fn run(args: &PoolStatus) -> Result<ExitCode> {
    let given = args.address.strip_prefix("unix:").unwrap_or(&args.address);
    let beside = socket(Path::new(given));
    let address = if beside.exists() { beside.to_string_lossy().into_owned() } else { given.into() };
    let mut answered = false;
    loop {
        match http::get(&address, "/status") {
            Ok(text) => show(args, &address, &text)?,
            // The coordinator may be restarted.
            Err(error) if args.watch && answered => {
                eprintln!("fathom: {}; retrying", crate::sentence(&error.into()))
            }
            Err(error) => return Err(error.into()),
        }
        answered = true;
        if !args.watch || crate::output::nobody_reads() {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn show(args: &PoolStatus, address: &str, text: &str) -> Result<()> {
    let status: Status = serde_json::from_str(text).with_context(|| {
        format!("the coordinator at {address} is of another release, with a different status format")
    })?;
    if args.json {
        println!("{text}");
        return Ok(());
    }
    // A terminal shows only the latest status.
    if args.watch && std::io::stdout().is_terminal() {
        crate::output::clear();
    }
    print!("{}", table(&status));
    Ok(())
}
