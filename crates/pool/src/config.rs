//! A pool in one file, for its coordinator and its nodes alike.
//!
//! ```toml
//! key = "pool.key"                                  # of all; a path is seen from the file's folder
//!
//! [serve]                                           # what `fathom pool serve --config` does
//! nodes = ["192.0.2.11:7001", "192.0.2.12:7001"]    # in the disk's order
//! pool = "photos"                                   # its name; "default" if it is not given
//! layout = "concat"                                 # or "stripe"
//! connections = 1                                   # to each node
//! node_timeout = "30s"                              # requests that find no answer fail after it
//! nbd = "unix:/run/pool.sock"                       # or "tcp:ADDR:PORT"
//! tls = "certificates"                              # folder; NBD clients must encrypt then
//! verify_clients = false                            # they must show a certificate too
//! metrics = "127.0.0.1:9107"                        # for Prometheus
//! status = "/run/pool.status"                       # where `fathom pool status` asks
//!
//! [node]                                            # what `fathom pool node --config` does
//! store = "store.img"                               # or backend = "memory:SIZE"
//! listen = "0.0.0.0:7001"
//! metrics = "127.0.0.1:9108"
//! ```
//!
//! That something is to be insecure it cannot say: whoever starts it must say that himself.

use crate::layout::Arrangement;
use model::quantity::Choices;
use model::text::ShownPath as _;
use serde::Deserialize;
use std::collections::HashSet;
use std::fmt::Display;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// The longest file.
const MAX_BYTES: u64 = 1 << 20;

/// The file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The key of all.
    pub key: Option<PathBuf>,
    /// For the coordinator.
    pub serve: Option<Serve>,
    /// For a node.
    pub node: Option<Node>,
}

/// What the coordinator does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Serve {
    /// Addresses with ports, in the disk's order.
    pub nodes: Vec<String>,
    /// The pool's name.
    pub pool: Option<String>,
    /// How the nodes' space is put together.
    #[serde(default)]
    pub layout: Layout,
    /// Connections to each node.
    pub connections: Option<u16>,
    /// Such as `30s`: requests that find no answer fail after it.
    pub node_timeout: Option<String>,
    /// `unix:PATH` or `tcp:ADDR:PORT`.
    pub nbd: String,
    /// Folder of the certificates for NBD clients.
    pub tls: Option<PathBuf>,
    /// NBD clients must show a certificate.
    #[serde(default)]
    pub verify_clients: bool,
    /// Address for Prometheus.
    pub metrics: Option<String>,
    /// Socket for `pool status`.
    pub status: Option<PathBuf>,
}

/// As the command line's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layout {
    /// One node after the other.
    #[default]
    Concat,
    /// In turn.
    Stripe,
}

/// Bytes of a stripe.
const STRIPE_BYTES: u64 = 64 << 10;

impl Layout {
    /// As `--layout` takes them.
    pub const CHOICES: Choices<Self, 2> = [
        ("concat", "One node after the other, as in the paper", Self::Concat),
        ("stripe", "Striped, in units of 64 KiB", Self::Stripe),
    ];

    /// How the nodes' space is put together.
    pub fn arrangement(self) -> Arrangement {
        match self {
            Self::Concat => Arrangement::Concatenated,
            Self::Stripe => Arrangement::Striped { stripe_bytes: STRIPE_BYTES },
        }
    }
}

/// What a node does.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// A file or device.
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
    /// It is no pool's.
    #[error("{}: {why}", .0.shown(), why = .1)]
    Config(PathBuf, ConfigError),
    /// It does not say what is asked of it.
    #[error("{} has no [{section}] section", .0.shown(), section = .1)]
    NoSection(PathBuf, &'static str),
    /// A value is none.
    #[error("{}: {name} = {text:?}: {why}", .path.shown())]
    Value {
        /// The file.
        path: PathBuf,
        /// Its name there.
        name: &'static str,
        /// As it is written.
        text: String,
        /// What would be understood.
        why: String,
    },
}

/// A section of a file, whose values are read as the command line's are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section<T> {
    /// The file.
    path: PathBuf,
    /// The key of all.
    pub key: Option<PathBuf>,
    /// What it says.
    pub says: T,
}

impl<T> Section<T> {
    /// A value's text, read by `read`.
    ///
    /// # Errors
    /// It is none.
    pub fn value<V, E: Display>(
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

/// What a file says to a coordinator.
///
/// # Errors
/// What is wrong with the file.
pub fn serve(path: &Path) -> Result<Section<Serve>, FileError> {
    let config = Config::read(path)?;
    let says = config.serve.ok_or_else(|| FileError::NoSection(path.into(), "serve"))?;
    Ok(Section { path: path.into(), key: config.key, says })
}

/// What a file says to a node.
///
/// # Errors
/// What is wrong with the file.
pub fn node(path: &Path) -> Result<Section<Node>, FileError> {
    let config = Config::read(path)?;
    let says = config.node.ok_or_else(|| FileError::NoSection(path.into(), "node"))?;
    Ok(Section { path: path.into(), key: config.key, says })
}

/// Why a file is no pool's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// It is not written as one; the text has the line.
    #[error("{}", .0.to_string().trim_end())]
    Toml(#[from] toml::de::Error),
    /// A pool of nothing.
    #[error("[serve] nodes is empty; a pool needs at least one node")]
    NoNodes,
    /// A node would have two places in the disk.
    #[error("[serve] nodes has {0:?} twice; list each node once")]
    TwiceNode(String),
    /// Too few or too many.
    #[error("[serve] connections must be from 1 to {}", crate::protocol::MOST_CONNECTIONS)]
    Connections,
    /// Only TLS knows clients.
    #[error("[serve] verify_clients needs tls, the folder of the certificates")]
    VerifyWithoutTls,
    /// A node has one place to store.
    #[error("[node] needs either a store or a backend")]
    StoreOrBackend,
    /// It has no user.
    #[error("it has neither a [serve] nor a [node] section")]
    Empty,
}

impl Config {
    fn read(path: &Path) -> Result<Self, FileError> {
        let unreadable = |error| FileError::Unreadable(path.into(), error);
        let mut text = String::new();
        File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text)).map_err(unreadable)?;
        let folder = std::path::absolute(path).map_err(unreadable)?;
        let folder = folder.parent().unwrap_or(Path::new("/"));
        Self::parse(&text, folder).map_err(|error| FileError::Config(path.into(), error))
    }

    /// Reads the text of a file that lies in `folder`; relative paths are made to begin there.
    ///
    /// # Errors
    /// What is wrong, with its line where it has one.
    pub fn parse(text: &str, folder: &Path) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text)?;
        if let Some(serve) = &config.serve {
            if serve.nodes.is_empty() {
                return Err(ConfigError::NoNodes);
            }
            let mut seen = HashSet::new();
            if let Some(twice) = serve.nodes.iter().find(|node| !seen.insert(*node)) {
                return Err(ConfigError::TwiceNode(twice.clone()));
            }
            let most = crate::protocol::MOST_CONNECTIONS;
            if serve.connections.is_some_and(|count| !(1..=most).contains(&count)) {
                return Err(ConfigError::Connections);
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
            *path = folder.join(&path);
        }
        Ok(config)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = r#"
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
    fn paths_are_relative_to_config_file() {
        let config = Config::parse(WHOLE, Path::new("/etc/pool")).expect("it is right");
        assert_eq!(config.key.as_deref(), Some(Path::new("/etc/pool/pool.key")));
        let (serve, node) = (config.serve.expect("it is there"), config.node.expect("it is there"));
        assert_eq!((serve.layout, serve.nodes.len()), (Layout::Stripe, 2));
        assert_eq!(serve.status.as_deref(), Some(Path::new("/run/status")), "an absolute path stays");
        assert_eq!(node.store.as_deref(), Some(Path::new("/etc/pool/store.img")));
    }

    #[test]
    fn file_without_section_and_wrong_value_name_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pool.toml");
        let missing = serve(&path).expect_err("it is not there");
        assert!(matches!(&missing, FileError::Unreadable(named, _) if *named == path), "{missing}");
        std::fs::write(&path, "[node]\nstore = \"s\"\nlisten = \"x\"").expect("it is written");
        let named = |why: FileError, words: &str| {
            let why = why.to_string();
            assert!(why.contains("pool.toml") && why.contains(words), "{why}");
        };
        named(serve(&path).expect_err("it has none"), "has no [serve] section");
        let section = node(&path).expect("it has one");
        assert_eq!(section.says.store.as_deref(), Some(folder.path().join("s").as_path()));
        named(
            section.value("listen", &section.says.listen, wire::address).expect_err("no address"),
            "listen = \"x\": ",
        );
    }

    #[test]
    fn config_errors_name_line_and_key() {
        let why = |text: &str| Config::parse(text, Path::new("/")).expect_err("it is wrong").to_string();
        for (from, to, words) in [
            ("layout =", "latout =", "unknown field `latout`"),
            ("\"stripe\"", "\"raid5\"", "unknown variant `raid5`"),
            ("\"0.0.0.0:7001\"", "7001", "line 10"),
            ("192.0.2.12", "192.0.2.11", "twice"),
            ("[\"192.0.2.11:7001\", \"192.0.2.12:7001\"]", "[]", "is empty"),
            ("status =", "connections = 0\nstatus =", "from 1 to 64"),
            ("status =", "verify_clients = true\nstatus =", "needs tls"),
            ("store = \"store.img\"", "", "either a store or a backend"),
            ("nbd = \"unix:/run/pool.sock\"", "", "missing field `nbd`"),
            ("[serve]", "[serve", "line 3"),
        ] {
            assert!(WHOLE.contains(from));
            let error = why(&WHOLE.replace(from, to));
            assert!(error.contains(words), "{words:?} is not in {error:?}");
        }
        assert!(why("").contains("neither a [serve] nor a [node]"));
        assert!(why("insecure = true").contains("unknown field `insecure`"));
    }
}
