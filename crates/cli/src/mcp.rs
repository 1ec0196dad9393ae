//! `fathom mcp`: an assistant's questions about archives, on stdin and stdout.

use crate::{args, output};
use anyhow::{Context as _, Result};
use std::path::PathBuf;

pub fn run(args: &args::Mcp) -> Result<()> {
    let roots = if args.roots.is_empty() { vec![PathBuf::from(".")] } else { args.roots.clone() };
    let own = std::env::current_exe().context("cannot find Fathom's own binary")?;
    let left = || ::mcp::inbox::is_unread(std::io::stdout());
    let server = ::mcp::Server::new(own, &roots, args.budget)?;
    match server.serve(std::io::BufReader::new(std::io::stdin()), output::Stdout, &left) {
        // Nobody is left to report to.
        Err(error) if output::reader_has_gone(&error) => Ok(()),
        served => Ok(served?),
    }
}
