//! What the two ends of a run say to each other beside the run: what the client is told of both, and what it tells of its
//! result to the process that conducts them.

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

/// What the client is told of both.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunEnds {
    /// The client.
    pub client: Endpoint,
    /// The server, if it was started too.
    pub server: Option<Endpoint>,
    /// How far the clock of the client is ahead of this machine's, and the bound of the error, ns.
    pub skew_ns: Option<(i64, u64)>,
    /// The boot whose clock this machine's is.
    pub boot: Option<String>,
    /// Whether the client is to append a [`Trailer`] to what it prints.
    #[serde(default)]
    pub trailer: bool,
    /// Where the archive will be.
    pub archive: Option<std::path::PathBuf>,
}

/// What is known of an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The device's name.
    pub name: String,
    /// Facts about it.
    pub facts: model::Environment,
}

impl RunEnds {
    /// From the file that went with the agent.
    pub fn read(path: &std::path::Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} does not describe the ends of a run", path.display()))
    }
}

/// What the client says of its result, whatever form it prints that in: a last line of its own.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Trailer {
    /// How far its interval reaches to either side, as a share ([`net::result::Summary::within`]).
    pub within: Option<f64>,
}

/// Before a trailer's JSON.
const TRAILER: &str = "fathom-run-trailer ";

impl Trailer {
    /// The line.
    pub fn line(self) -> Result<String> {
        Ok(format!("{TRAILER}{}\n", serde_json::to_string(&self)?))
    }

    /// Cuts it off what was said; without one nothing is known.
    pub fn cut(said: &str) -> (&str, Self) {
        let (before, last) =
            said.trim_end_matches('\n').rsplit_once('\n').map_or(("", said), |(b, _)| said.split_at(b.len() + 1));
        match last.strip_prefix(TRAILER).and_then(|json| serde_json::from_str(json).ok()) {
            Some(trailer) => (before, trailer),
            None => (said, Self::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailer_round_trips() {
        for within in [None, Some(0.1)] {
            for said in ["", "up  1 Mb/s\n", "{\n  \"a\": 1\n}\n"] {
                let whole = format!("{said}{}", Trailer { within }.line().unwrap());
                assert_eq!(Trailer::cut(&whole), (said, Trailer { within }));
                assert_eq!(Trailer::cut(said), (said, Trailer::default()));
            }
        }
    }
}
