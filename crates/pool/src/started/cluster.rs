//! Nodes with or without an emulated medium in between, and the measurement among them.
//!
//! The coordinator is a separate process, since it must be inside the medium's namespace. All processes end with this
//! one, however it ends, and the namespaces go with their last process.

use super::{Error, NodeProcess, Result};
use crate::flash::Speed;
use crate::paper::coordinator::addressable;
use child::end_with_us;
use lab::medium::{Kind, Medium, Rate};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where nodes listen inside a medium's namespace, which has no other processes.
const PORT: u16 = 7001;

/// What the nodes are.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// The program that they are.
    pub program: PathBuf,
    /// How many.
    pub count: u32,
    /// Bytes of each.
    pub bytes: u64,
    /// Whether they are the paper's, and then whether those read.
    pub paper: Option<PaperNodes>,
    /// The flash that they emulate.
    pub flash: Option<Speed>,
    /// What is between them and the coordinator.
    pub medium: Option<(Kind, Rate)>,
}

/// Nodes of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaperNodes {
    /// As in the paper.
    Reading,
    /// They answer without reading.
    WithoutIo,
}

/// Nodes that run, and what is between them and the coordinator.
#[derive(Debug)]
pub struct Cluster {
    program: PathBuf,
    // In this order they end: first the nodes, then the medium.
    nodes: Vec<NodeProcess>,
    medium: Option<Medium>,
}

impl Cluster {
    /// Starts them. What node n says later goes to `remarks`, a line at a time.
    ///
    /// # Errors
    /// The medium cannot be made here, or a node does not start.
    pub fn start(wanted: &Wanted, remarks: fn(u32, &str)) -> Result<Self> {
        if wanted.paper.is_some() {
            // Before a node fills its memory in vain.
            addressable(u64::from(wanted.count), wanted.bytes)?;
        }
        let medium = wanted.medium.map(|(kind, rate)| Medium::create(kind, wanted.count as usize, rate)).transpose();
        let medium = medium.map_err(Error::Medium)?;
        let mut cluster = Self { program: wanted.program.clone(), nodes: Vec::new(), medium };
        for nth in 0..wanted.count {
            let node = NodeProcess::start(cluster.node(wanted, nth), move |line| remarks(nth, line))?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    fn node(&self, wanted: &Wanted, nth: u32) -> Command {
        let (mut command, listen) = match &self.medium {
            Some(medium) => {
                (medium.nodes().command(&self.program), format!("{}:{PORT}", medium.addresses()[nth as usize]))
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

    /// How many nodes there are.
    pub(super) fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The program that they are.
    pub(super) fn program(&self) -> &Path {
        &self.program
    }

    /// Where the nodes are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.address)
    }

    /// `fathom pool bench` where the coordinator is, on these nodes; what else it shall do, the caller adds.
    pub fn bench(&self) -> Command {
        let mut command = match &self.medium {
            Some(medium) => medium.coordinator().command(&self.program),
            None => Command::new(&self.program),
        };
        // The coordinator of the measurement before may not have been missed yet.
        command.args(["pool", "bench", "--insecure", "--insecure", "--take-over"]);
        for address in self.addresses() {
            command.arg(format!("--node={address}"));
        }
        end_with_us(&mut command).stdin(Stdio::null());
        command
    }
}
