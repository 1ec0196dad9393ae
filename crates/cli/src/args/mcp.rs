//! Arguments of `fathom mcp`.

use clap::Args;
use std::path::PathBuf;

/// Serve archives to an AI assistant over the Model Context Protocol, on stdin and stdout.
///
/// Tools: list, summary, explain, diff, sql. All are read-only and limited to archives below the given directories. Answers are limited to
/// --budget tokens and list what they leave out. Conclusions that an archive does not support (because of losses, blind layers, too few
/// executions or high tracer overhead) come first, under `cannot_claim`.
#[derive(Debug, Args)]
#[command(after_help = "\
Configure the assistant to run the command:
  { \"mcpServers\": { \"fathom\": { \"command\": \"fathom\", \"args\": [\"mcp\", \"/srv/runs\"] } } }")]
pub struct Mcp {
    /// Directories (or fleets) whose archives may be read [default: the current directory]
    #[arg(value_name = "DIR")]
    pub roots: Vec<PathBuf>,
    /// Maximum tokens of an answer, at four characters per token
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u64).range(500..=1_000_000))]
    pub budget: u64,
}
