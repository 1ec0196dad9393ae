//! The command line of `fathom sql`, `fathom fleet` and `fathom serve`, declared once for two programs: `fathom-sql`, which runs these
//! verbs, and `fathom`, which starts it and has them in its help, completions and manual pages.

use crate::privacy::Treatment;
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// Keep archives of many devices and days in one place, as files that any query engine can read.
///
/// A fleet is a directory, or a bucket in any S3-compatible store (s3://BUCKET/PATH; credentials and endpoint from AWS_ACCESS_KEY_ID,
/// AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for a store without TLS). Its tables are Parquet files
/// in TABLE/date=DAY/, which `fathom sql FLEET` and any other engine can query.
#[derive(Debug, Args)]
pub struct Fleet {
    /// What to do.
    #[command(subcommand)]
    pub verb: FleetVerb,
}

/// The verbs of `fathom fleet`; their help is at their arguments too.
#[derive(Debug, Subcommand)]
pub enum FleetVerb {
    Init(Init),
    Add(Add),
    Ls(Ls),
    Gc(Gc),
    Report(Report),
}

/// Serve a fleet's page, and its metrics for Prometheus.
///
/// `/` is the page of `fathom fleet report`, regenerated when it is older than 30 seconds; `/archive/RUN` is the page of one archive, if
/// the fleet keeps archives (`fleet init --keep-raw`); `/metrics` is for Prometheus. The fleet is never modified.
///
/// Listens on loopback unless --listen gives another address. Any other address needs a key (--key-file), which clients send as
/// `Authorization: Bearer KEY`, and browsers as the password of any user. There is no TLS: on untrusted networks, use a reverse proxy
/// or an ssh tunnel.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom serve /srv/fleet
  openssl rand -base64 24 > key; fathom serve /srv/fleet --listen 0.0.0.0:8765 --key-file key
  fathom serve /srv/fleet --otlp http://127.0.0.1:4318   operations as spans")]
pub struct Serve {
    /// The fleet
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// Address to listen on; any but loopback needs --key-file
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8765")]
    pub listen: std::net::SocketAddr,
    /// File whose first line is the key that clients must send, 16 characters or more
    #[arg(long, value_name = "FILE")]
    pub key_file: Option<PathBuf>,
    /// Send operations with a trace context (`traceparent` in an SQL comment) to this collector, as spans over OTLP/HTTP: first those
    /// already in the fleet, then new ones as they are added
    #[arg(long, value_name = "URL", value_parser = http_url)]
    pub otlp: Option<String>,
}

/// The URL of an HTTP server, without query, fragment or final slash.
pub fn http_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|rest| rest.split('/').next().unwrap_or_default());
    match host.filter(|host| !host.is_empty() && !text.contains(['?', '#', ' '])) {
        Some(_) => Ok(text.trim_end_matches('/').to_string()),
        None => Err("expected http://HOST:PORT, such as http://127.0.0.1:4318".into()),
    }
}

/// What a fleet does with texts of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Private {
    /// Stored unchanged.
    Keep,
    /// Replaced by hashes salted for this fleet: they can be counted and joined, but not read.
    Hash,
    /// Left out.
    Drop,
}

impl From<Private> for Treatment {
    fn from(private: Private) -> Self {
        match private {
            Private::Keep => Self::Keep,
            Private::Hash => Self::Hash,
            Private::Drop => Self::Drop,
        }
    }
}

/// Create an empty fleet, with its privacy rules.
///
/// The rules apply to everything that is added. They cannot be changed later, since dropped data is gone.
#[derive(Debug, Args)]
pub struct Init {
    /// The fleet: a directory, or s3://BUCKET/PATH
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// How to store command lines, process names and process output
    #[arg(long, value_enum, default_value_t = Private::Keep)]
    pub commands: Private,
    /// How to store file paths
    #[arg(long, value_enum, default_value_t = Private::Keep)]
    pub paths: Private,
    /// How to store SQL text (it has no literals unless recorded with --keep-sql)
    #[arg(long, value_enum, default_value_t = Private::Keep)]
    pub sql: Private,
    /// Also keep the archives themselves, without their tables
    #[arg(long)]
    pub keep_raw: bool,
    /// Target size of a data file (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "128M", value_parser = bytes)]
    pub file_size: u64,
}

/// Add archives to a fleet.
///
/// Archives that are already in the fleet are skipped, even under another name, so an interrupted `add` can simply be repeated. An
/// archive that cannot be read is reported and skipped, with exit status 1; all others are added. Several writers may add at the same
/// time.
///
/// Archives on a device are fetched first, except those already in the fleet: `ssh:HOST:/DIRECTORY` with the system's ssh, `adb:SERIAL:/DIRECTORY`
/// (or `adb:/DIRECTORY`, if there is only one device) through the adb server. The device needs sh, find and tar, but not Fathom.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom fleet add /srv/fleet runs/ --device shelf-7
  fathom fleet add /srv/fleet ssh:root@board:/var/log/fathom --device board-3
  fathom fleet add s3://lab/fleet adb:0a388e93:/data/local/tmp --device phone-1")]
pub struct Add {
    /// The fleet
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// Archives, or directories with archives; on a device: ssh:HOST:/DIRECTORY, adb:SERIAL:/DIRECTORY
    #[arg(value_name = "T.fathom", required = true)]
    pub archives: Vec<PathBuf>,
    /// The device's name [default: NAME of a parent directory device=NAME, else vendor and model]
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub device: Option<String>,
}

/// List a fleet's tables, or its files.
#[derive(Debug, Args)]
pub struct Ls {
    /// The fleet
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// Print JSON (format: docs/reference/json.md)
    #[arg(long, conflicts_with = "files")]
    pub json: bool,
    /// Read every file, and report those that are missing or damaged (exit status 1)
    #[arg(long, conflicts_with_all = ["json", "files"])]
    pub check: bool,
    /// List the files that belong to the fleet, of one table or of all
    #[arg(long, value_name = "TABLE", num_args = 0..=1, default_missing_value = "")]
    pub files: Option<String>,
}

/// Write an HTML page: statements by device and day, and when their medians changed.
///
/// Shows each day's latencies as their median and the range from the 10th to the 90th percentile. A change is a day from which on the
/// median differs by more than chance, given that consecutive days are correlated, in a series of at least ten days; the page states
/// how many series were tested and how many showed a change. With --pages, the archives of a change's first day and of the day before
/// link to pages of their own.
#[derive(Debug, Args)]
pub struct Report {
    /// The fleet
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// File to write; `-` for stdout
    #[arg(short, long, value_name = "x.html", default_value = "fleet.html")]
    pub output: PathBuf,
    /// Also write a page for each archive at a change, to a directory next to FILE (x.archives/), if the fleet keeps archives
    #[arg(long)]
    pub pages: bool,
}

/// Merge a fleet's small files, and remove obsolete ones.
#[derive(Debug, Args)]
pub struct Gc {
    /// The fleet
    #[arg(value_name = "FLEET")]
    pub fleet: String,
    /// Keep replaced and uncommitted files for this many seconds, since queries and writers may still need them
    #[arg(long, value_name = "S", default_value_t = 3600)]
    pub grace: u64,
}

/// Query archives and fleets with SQL.
///
/// Every table documented in docs/reference/tables.md is available, with the additional columns `device`, `run`, `date` and `archive`.
/// Ids are unique within a `run`, so join on both. The table `archives` has a row for each archive. Archives without a table add no
/// rows to it.
///
/// Without SQL, opens a shell with history and completion on a terminal, otherwise reads statements from stdin. Only queries are
/// allowed, and they cannot read files outside the archives.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom sql trace.fathom 'SELECT \"layer\", \"kind\", count(*) FROM spans GROUP BY 1, 2'
  fathom sql a.fathom b.fathom                  a shell over both
  fathom sql runs/ --example 1                  one of twenty queries; --examples lists them
  fathom sql runs/ -o slow.parquet 'SELECT …'   the result as a file (format by its extension)")]
pub struct Sql {
    /// Archives, directories with archives, or one fleet (a directory or s3://BUCKET/PATH); then the SQL, unless it is given by an option
    #[arg(value_name = "T.fathom… SQL")]
    pub words: Vec<String>,
    /// Output format [default: by the extension of -o, else table]
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// File to write, `-` for stdout; an existing one is replaced only by a complete result
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// SQL to run, even if it looks like a file name
    #[arg(short, long, value_name = "SQL", allow_hyphen_values = true)]
    pub query: Option<String>,
    /// Read the SQL from this file
    #[arg(short, long, value_name = "FILE", conflicts_with = "query")]
    pub file: Option<PathBuf>,
    /// Show the plan of a statement without running it
    #[arg(long)]
    pub explain: bool,
    /// List the example queries; with archives, run all of them
    #[arg(long)]
    pub examples: bool,
    /// Run one example query, by its number or name
    #[arg(long, value_name = "N", conflicts_with_all = ["examples", "file", "query"])]
    pub example: Option<String>,
    /// Memory that a query may use before it spills to temporary files (suffixes K, M, G)
    #[arg(long, value_name = "BYTES", default_value = "1G", value_parser = bytes)]
    pub memory: u64,
    /// Threads that a query may use [default: the number of CPUs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// Follow no links and build no tables, for callers that must not read or write outside the given archives
    #[arg(long, hide = true)]
    pub read_only: bool,
}

/// Format of a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    Table,
    /// RFC 4180.
    Csv,
    /// One object with the columns and the rows (docs/reference/json.md).
    Json,
    /// A Parquet file for other engines; needs -o.
    Parquet,
}

/// Accepts a name that is not blank.
fn name(text: &str) -> Result<String, String> {
    let there = text.chars().any(|c| !c.is_whitespace());
    there.then(|| text.to_string()).ok_or_else(|| "expected a name, such as shelf-7".into())
}

/// A size with a suffix K, M or G (powers of 1024).
pub fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = match text.chars().last() {
        Some('K' | 'k') => (&text[..text.len() - 1], 1 << 10),
        Some('M' | 'm') => (&text[..text.len() - 1], 1 << 20),
        Some('G' | 'g') => (&text[..text.len() - 1], 1 << 30),
        _ => (text, 1),
    };
    let number: Option<u64> = number.parse().ok();
    number
        .and_then(|number| number.checked_mul(unit))
        .filter(|&bytes| bytes > 0)
        .ok_or_else(|| "expected a size, such as 512M or 2G".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_has_suffix_and_limits() {
        assert_eq!(bytes("2M"), Ok(2 << 20));
        for wrong in ["", "0", "-1", "M", "1T", "99999999999G"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn device_has_name() {
        assert_eq!(name("shelf 7").as_deref(), Ok("shelf 7"));
        assert!(name("").is_err() && name(" \t").is_err());
    }

    #[test]
    fn collector_is_address_of_http() {
        assert_eq!(http_url("http://127.0.0.1:4318/").as_deref(), Ok("http://127.0.0.1:4318"));
        assert_eq!(http_url("https://c.example/otlp").as_deref(), Ok("https://c.example/otlp"));
        for wrong in ["", "127.0.0.1:4318", "http://", "http:///x", "ftp://x", "http://x/?a", "grpc://x:4317"] {
            assert!(http_url(wrong).is_err(), "{wrong}");
        }
    }
}
