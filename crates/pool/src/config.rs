//! A configuration file for a pool, used by its coordinator and its nodes.
//!
//! ```toml
//! key = "pool.key"                                  # for all; relative to the file's directory
//!
//! [serve]                                           # for `fathom pool serve --config`
//! nodes = ["192.0.2.11:7001", "192.0.2.12:7001"]    # in the disk's order
//! pool = "photos"                                   # its name; "default" if it is not given
//! layout = "concat"                                 # or "stripe", or "mirror"
//! # with "mirror": copies = 2 or 3, and nodes as { address = "192.0.2.11:7001", group = "shelf-1" }
//! connections = 1                                   # to each node
//! node_timeout = "30s"                              # requests fail if a node is silent for this time
//! wait = "2m"                                       # for nodes that do not answer at the start
//! nbd = "unix:/run/pool.sock"                       # or "tcp:ADDR:PORT"
//! tls = "certificates"                              # directory; NBD clients must encrypt then
//! verify_clients = false                            # require a client certificate too
//! metrics = "127.0.0.1:9107"                        # for Prometheus
//! status = "/run/pool.status"                       # for `fathom pool status`
//!
//! [node]                                            # for `fathom pool node --config`
//! store = "store.img"                               # or backend = "memory:SIZE"
//! listen = "0.0.0.0:7001"
//! metrics = "127.0.0.1:9108"
//! ```
//!
//! The file cannot allow insecure operation: that requires an option on the command line.

use crate::layout::Arrangement;
use model::quantity::Choices;
use model::text::ShownPath as _;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The maximum size of the file.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The contents of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The key for all.
    pub key: Option<PathBuf>,
    /// For the coordinator.
    pub serve: Option<Serve>,
    /// For a node.
    pub node: Option<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// In the disk's order.
    pub nodes: Vec<ServeNode>,
    pub pool: Option<String>,
    /// The arrangement of the nodes' space.
    #[serde(default)]
    pub layout: Layout,
    /// Of a mirror: 2 or 3.
    pub copies: Option<u32>,
    pub connections: Option<u16>,
    /// A time such as `30s`: requests fail if a node is silent for it.
    pub node_timeout: Option<String>,
    /// A time such as `2m`: nodes that do not answer at the start are waited for.
    pub wait: Option<String>,
    /// `unix:PATH` or `tcp:ADDR:PORT`.
    pub nbd: String,
    /// Directory of the certificates for NBD clients.
    pub tls: Option<PathBuf>,
    /// Whether NBD clients must present a certificate.
    #[serde(default)]
    pub verify_clients: bool,
    /// Address for Prometheus.
    pub metrics: Option<String>,
    /// Socket for `pool status`.
    pub status: Option<PathBuf>,
}

/// A node: its address with port, or a table with its failure group too.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum ServeNode {
    Address(String),
    InGroup {
        address: String,
        /// No two copies are in one group.
        group: Option<String>,
    },
}

impl ServeNode {
    pub fn address(&self) -> &str {
        match self {
            Self::Address(address) | Self::InGroup { address, .. } => address,
        }
    }

    pub fn group(&self) -> Option<&str> {
        match self {
            Self::Address(_) => None,
            Self::InGroup { group, .. } => group.as_deref(),
        }
    }
}

/// The arrangement, as on the command line.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One node after the other.
    #[default]
    Concat,
    Stripe,
    /// Copies of each chunk on several nodes.
    Mirror,
}

const STRIPE_BYTES: u64 = 64 << 10;

impl Layout {
    /// The values of `--layout`.
    pub const FLAG_VALUES: Choices<Self, 3> = [
        ("concat", "One node after the other, as in the paper", Self::Concat),
        ("stripe", "Striped, in units of 64 KiB", Self::Stripe),
        ("mirror", "Two or three copies of each chunk, on different nodes (--copies)", Self::Mirror),
    ];

    /// The arrangement of the nodes' space; `None` for a mirror, which places chunks.
    pub fn arrangement(self) -> Option<Arrangement> {
        match self {
            Self::Concat => Some(Arrangement::Concatenated),
            Self::Stripe => Some(Arrangement::Striped { stripe_bytes: STRIPE_BYTES }),
            Self::Mirror => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// The path of a file or device.
    pub store: Option<PathBuf>,
    /// `memory:SIZE`.
    pub backend: Option<String>,
    /// Address with port.
    pub listen: String,
    /// Address for Prometheus.
    pub metrics: Option<String>,
}

/// Why a file cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It cannot be read.
    #[error("cannot read {}", .0.shown())]
    Unreadable(PathBuf, #[source] io::Error),
    /// It is not a valid configuration.
    #[error("{}: {why}", .0.shown(), why = .1)]
    Config(PathBuf, ConfigError),
    /// A required section is missing.
    #[error("{} has no [{section}] section", .0.shown(), section = .1)]
    NoSection(PathBuf, &'static str),
    #[error("{}: {name} = {text:?}: {why}", .path.shown())]
    Value {
        path: PathBuf,
        /// The name of the value.
        name: &'static str,
        text: String,
        /// The accepted syntax.
        why: String,
    },
}

/// A section of a file, whose values have the same syntax as on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section<T> {
    path: PathBuf,
    /// The key for all.
    pub key: Option<PathBuf>,
    /// The contents of the section.
    pub content: T,
}

impl<T> Section<T> {
    /// Parses a value with `read`.
    pub fn parse_value<V, E: Display>(
        &self,
        name: &'static str,
        text: &str,
        read: impl Fn(&str) -> Result<V, E>,
    ) -> Result<V, FileError> {
        let wrong =
            |why: E| FileError::Value { path: self.path.clone(), name, text: text.into(), why: why.to_string() };
        read(text).map_err(wrong)
    }
}

/// Reads a coordinator's configuration from a file.
pub fn read_serve(path: &Path) -> Result<Section<Serve>, FileError> {
    let config = Config::read(path)?;
    let says = config.serve.ok_or_else(|| FileError::NoSection(path.into(), "serve"))?;
    Ok(Section { path: path.into(), key: config.key, content: says })
}

/// Reads a node's configuration from a file.
pub fn read_node(path: &Path) -> Result<Section<Node>, FileError> {
    let config = Config::read(path)?;
    let says = config.node.ok_or_else(|| FileError::NoSection(path.into(), "node"))?;
    Ok(Section { path: path.into(), key: config.key, content: says })
}

/// Why a file is not a valid configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It does not parse; the text has the line.
    #[error("{}", .0.to_string().trim_end())]
    Toml(#[from] toml::de::Error),
    #[error("[serve] nodes is empty; a pool needs at least one node")]
    NoNodes,
    /// A node is listed twice.
    #[error("[serve] nodes has {0:?} twice; list each node once")]
    TwiceNode(String),
    /// The number of connections is out of range.
    #[error("[serve] connections must be from 1 to {}", crate::protocol::CONNECTIONS_MAX)]
    Connections,
    #[error("[serve] copies needs layout = \"mirror\"")]
    CopiesWithoutMirror,
    /// Only TLS can verify clients.
    #[error("[serve] verify_clients needs tls, the directory of the certificates")]
    VerifyWithoutTls,
    /// A node needs exactly one place to store data.
    #[error("[node] needs either a store or a backend")]
    StoreOrBackend,
    /// The file has no section.
    #[error("it has neither a [serve] nor a [node] section")]
    Empty,
}

impl Config {
    fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |error| FileError::Unreadable(path.into(), error);
        let mut text = String::new();
        File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text)).map_err(unreadable)?;
        let directory = std::path::absolute(path).map_err(unreadable)?;
        let directory = directory.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, directory).map_err(|error| FileError::Config(path.into(), error))
    }

    /// Parses the text of a file in `directory`, which relative paths are resolved against.
    ///
    /// # Errors
    /// What is wrong, with its line where there is one.
    pub fn parse(text: &str, directory: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text)?;
        if let Some(serve) = &config.serve {
            if serve.nodes.is_empty() {
                return Err(ConfigError::NoNodes);
            }
            let mut seen = HashSet::new();
            if let Some(twice) = serve.nodes.iter().find(|node| !seen.insert(node.address())) {
                return Err(ConfigError::TwiceNode(twice.address().into()));
            }
            let most = crate::protocol::CONNECTIONS_MAX;
            if serve.connections.is_some_and(|count| !(1..=most).contains(&count)) {
                return Err(ConfigError::Connections);
            }
            if serve.copies.is_some() && serve.layout != Layout::Mirror {
                return Err(ConfigError::CopiesWithoutMirror);
            }
            if serve.verify_clients && serve.tls.is_none() {
                return Err(ConfigError::VerifyWithoutTls);
            }
        }
        if let Some(node) = &config.node
            && node.store.is_some() == node.backend.is_some()
        {
            return Err(ConfigError::StoreOrBackend);
        }
        if config.serve.is_none() && config.node.is_none() {
            return Err(ConfigError::Empty);
        }
        let serve = config.serve.as_mut().map(|serve| [&mut serve.tls, &mut serve.status]);
        let node = config.node.as_mut().map(|node| &mut node.store);
        for path in serve.into_iter().flatten().chain(node).chain([&mut config.key]).flatten() {
            *path = directory.join(&path);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMPLETE_CONFIG: &str = r#"
        key = "pool.key"
        [serve]
        nodes = ["192.0.2.11:7001", "192.0.2.12:7001"]
        layout = "stripe"
        nbd = "unix:/run/pool.sock"
        status = "/run/status"
        [node]
        store = "store.img"
        listen = "0.0.0.0:7001"
    "#;

    #[test]
    fn paths_are_relative_to_the_config_file() {
        let config = Config::parse(COMPLETE_CONFIG, Path::new("/etc/pool")).expect("it is right");
        assert_eq!(config.key.as_deref(), Some(Path::new("/etc/pool/pool.key")));
        let (serve, node) = (config.serve.expect("it is there"), config.node.expect("it is there"));
        assert_eq!((serve.layout, serve.nodes.len()), (Layout::Stripe, 2));
        assert_eq!(serve.status.as_deref(), Some(Path::new("/run/status")), "an absolute path stays");
        assert_eq!(node.store.as_deref(), Some(Path::new("/etc/pool/store.img")));
    }

    #[test]
    fn errors_of_sections_and_values_name_the_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pool.toml");
        let missing = read_serve(&path).expect_err("it is not there");
        assert!(matches!(&missing, FileError::Unreadable(named, _) if *named == path), "{missing}");
        std::fs::write(&path, "[node]\nstore = \"s\"\nlisten = \"x\"").expect("it is written");
        let named = |why: FileError, words: &str| {
            let why = why.to_string();
            assert!(why.contains("pool.toml") && why.contains(words), "{why}");
        };
        named(read_serve(&path).expect_err("it has none"), "has no [serve] section");
        let section = read_node(&path).expect("it has one");
        assert_eq!(section.content.store.as_deref(), Some(directory.path().join("s").as_path()));
        named(
            section.parse_value("listen", &section.content.listen, wire::address).expect_err("no address"),
            "listen = \"x\": ",
        );
    }

    #[test]
    fn config_errors_name_the_line_and_the_key() {
        let why = |text: &str| Config::parse(text, Path::new("/")).expect_err("it is wrong").to_string();
        for (from, to, words) in [
            ("layout =", "latout =", "unknown field `latout`"),
            ("\"stripe\"", "\"raid5\"", "unknown variant `raid5`"),
            ("\"0.0.0.0:7001\"", "7001", "line 10"),
            ("192.0.2.12", "192.0.2.11", "twice"),
            ("[\"192.0.2.11:7001\", \"192.0.2.12:7001\"]", "[]", "is empty"),
            ("status =", "connections = 0\nstatus =", "from 1 to 64"),
            ("status =", "copies = 2\nstatus =", "needs layout"),
            ("status =", "verify_clients = true\nstatus =", "needs tls"),
            ("store = \"store.img\"", "", "either a store or a backend"),
            ("nbd = \"unix:/run/pool.sock\"", "", "missing field `nbd`"),
            ("[serve]", "[serve", "line 3"),
        ] {
            assert!(COMPLETE_CONFIG.contains(from));
            let error = why(&COMPLETE_CONFIG.replace(from, to));
            assert!(error.contains(words), "{words:?} is not in {error:?}");
        }
        assert!(why("").contains("neither a [serve] nor a [node]"));
        assert!(why("insecure = true").contains("unknown field `insecure`"));
    }
}
