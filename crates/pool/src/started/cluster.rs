//! Nodes with or without an emulated medium, and the benchmark that uses them.
//!
//! The coordinator is a separate process, since it must be inside the medium's namespace. All processes end with this one,
//! however it ends, and the namespaces end with their last process.

use super::{Error, NodeProcess, Result};
use crate::flash::Speed;
use crate::paper::coordinator::check_addressable;
use child::kill_with_parent;
use lab::medium::{Kind, Medium, Rate};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The nodes' port inside a medium's namespace, which has no other processes.
const NODE_PORT: u16 = 7001;

/// The nodes to start.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// The program of the nodes.
    pub program: PathBuf,
    /// Their number.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Set for the paper's nodes, and whether those read.
    pub paper: Option<PaperNodes>,
    /// The flash that they emulate.
    pub flash: Option<Speed>,
    /// The medium between them and the coordinator.
    pub medium: Option<(Kind, Rate)>,
}

/// Nodes of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaperNodes {
    /// They read, as in the paper.
    Reading,
    /// They reply without reading.
    WithoutIo,
}

/// Running nodes, and the medium between them and the coordinator.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    // Dropped in this order: first the nodes, then the medium.
    nodes: Vec<NodeProcess>,
    medium: Option<Medium>,
}

impl Cluster {
    /// Starts the nodes. Later output of a node goes to `remarks`, a line at a time, with its number.
    ///
    /// # Errors
    /// The medium cannot be created here, or a node does not start.
    pub fn start(wanted: &ClusterSpec, remarks: fn(u32, &str)) -> Result<Self> {
        if wanted.paper.is_some() {
            // Checked before a node fills its memory in vain.
            check_addressable(u64::from(wanted.count), wanted.bytes)?;
        }
        let medium = wanted.medium.map(|(kind, rate)| Medium::create(kind, wanted.count as usize, rate)).transpose();
        let medium = medium.map_err(Error::Medium)?;
        let mut cluster = Self { program: wanted.program.clone(), nodes: Vec::new(), medium };
        for nth in 0..wanted.count {
            let node = NodeProcess::start(cluster.node_command(wanted, nth), move |line| remarks(nth, line))?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    fn node_command(&self, wanted: &ClusterSpec, nth: u32) -> Command {
        let (mut command, listen) = match &self.medium {
            Some(medium) => {
                (medium.nodes().command(&self.program), format!("{}:{NODE_PORT}", medium.addresses()[nth as usize]))
            }
            None => (Command::new(&self.program), "127.0.0.1:0".into()),
        };
        command.args(["pool", "node", "--hosted", "--insecure", "--insecure", "--listen", &listen]);
        command.arg(format!("--backend=memory:{}", wanted.bytes));
        if wanted.paper.is_some() {
            command.args(["--paper", "--first", &(u64::from(nth) * wanted.bytes).to_string()]);
        }
        if wanted.paper == Some(PaperNodes::WithoutIo) {
            command.arg("--no-io");
        }
        if let Some(flash) = wanted.flash {
            command.arg(format!("--flash={flash}"));
        }
        command
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The program of the nodes.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// The addresses of the nodes.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.address)
    }

    /// The command `fathom pool bench` in the coordinator's namespace, on these nodes; the caller adds further arguments.
    pub fn bench(&self) -> Command {
        let mut command = match &self.medium {
            Some(medium) => medium.coordinator().command(&self.program),
            None => Command::new(&self.program),
        };
        // The nodes may not have noticed yet that the coordinator of the previous measurement is gone.
        command.args(["pool", "bench", "--insecure", "--insecure", "--take-over"]);
        for address in self.addresses() {
            command.arg(format!("--node={address}"));
        }
        kill_with_parent(&mut command).stdin(Stdio::null());
        command
    }
}
