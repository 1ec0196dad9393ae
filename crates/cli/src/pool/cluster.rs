//! Nodes that are started for a measurement, with or without an emulated medium in between, and the measurement among them.
//!
//! The coordinator is a process of its own, since it must be inside the medium's namespace. All processes end with this
//! one, however it ends, and the namespaces go with their last process.

use super::node_process::NodeProcess;
use crate::args::{self, PoolBench};
use anyhow::{Context as _, Result, bail};
use lab::medium::{Kind, Medium, Rate};
use lab::process::end_with_us;
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};

/// Where nodes listen inside a medium, in which nobody else is.
const PORT: u16 = 7001;

/// Nodes that run, and what is between them and the coordinator.
pub struct Cluster {
    // In this order they end: first the nodes, then the medium.
    nodes: Vec<NodeProcess>,
    medium: Option<Medium>,
}

/// What the nodes are.
pub struct Wanted<'a> {
    /// How many, and what they are.
    pub count: u32,
    /// The bench's options.
    pub args: &'a args::PaperBench,
}

impl Cluster {
    /// Starts them.
    ///
    /// # Errors
    /// The medium cannot be made here, or a node does not start.
    pub fn start(wanted: &Wanted) -> Result<Self> {
        let paper = wanted.args;
        if paper.paper == Some(args::Paper::Cluster) {
            // Before a node fills its memory with what nobody could ask for.
            pool::paper::coordinator::addressable(u64::from(wanted.count), paper.size)?;
        }
        let kind = paper.link.map(|link| match link {
            args::LinkTopology::Shared => Kind::Shared,
            args::LinkTopology::PerNode => Kind::PerNode,
        });
        let rate = Rate { packets_per_s: paper.packets_per_s, queue_packets: paper.queue_packets };
        let medium = kind.map(|kind| Medium::create(kind, wanted.count as usize, rate)).transpose();
        let medium = medium.context("the emulated link (omit --link to use loopback)")?;
        let mut cluster = Self { nodes: Vec::new(), medium };
        for nth in 0..wanted.count {
            let node = cluster.node(wanted, nth)?;
            cluster.nodes.push(node);
        }
        Ok(cluster)
    }

    fn node(&self, wanted: &Wanted, nth: u32) -> Result<NodeProcess> {
        let paper = wanted.args;
        let own = std::env::current_exe()?;
        let (mut command, listen) = match &self.medium {
            Some(medium) => (medium.nodes().command(own), format!("{}:{PORT}", medium.addresses()[nth as usize])),
            None => (Command::new(own), "127.0.0.1:0".into()),
        };
        command.args(["pool", "node", "--insecure", "--insecure", "--listen", &listen]);
        command.arg(format!("--backend=memory:{}", paper.size));
        if paper.paper == Some(args::Paper::Cluster) {
            command.args(["--paper", "--first", &(u64::from(nth) * paper.size).to_string()]);
        }
        // A node that reads nothing is the paper's; today's then reads from memory.
        if paper.no_io && paper.paper == Some(args::Paper::Cluster) {
            command.arg("--no-io");
        }
        if let Some(flash) = paper.flash {
            command.arg(format!("--flash={flash}"));
        }
        // What it says is passed on: it is why a measurement fails.
        NodeProcess::start(command, move |line| {
            if !line.ends_with("Ctrl-C to stop") {
                eprintln!("node {nth}: {line}");
            }
        })
    }

    /// Where the nodes are.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.nodes.iter().map(|node| node.address)
    }

    /// `fathom pool bench` where the coordinator is, on these nodes; what else it shall do, the caller adds.
    pub fn bench(&self) -> Result<Command> {
        let own = std::env::current_exe()?;
        let mut command = match &self.medium {
            Some(medium) => medium.coordinator().command(own),
            None => Command::new(own),
        };
        // The coordinator of the measurement before may not have been missed yet.
        command.args(["pool", "bench", "--insecure", "--insecure", "--take-over"]);
        for address in self.addresses() {
            command.arg(format!("--node={address}"));
        }
        end_with_us(&mut command).stdin(Stdio::null());
        Ok(command)
    }
}

/// Measures nodes that are started for it; the coordinator prints.
pub fn run(args: &PoolBench, count: u32) -> Result<ExitCode> {
    let cluster = Cluster::start(&Wanted { count, args: &args.paper })?;
    let mut command = cluster.bench()?;
    command.args(forwarded(args, count));
    let status = command.status().context("cannot start the coordinator")?;
    Ok(match status.code() {
        Some(code) => ExitCode::from(code as u8),
        None => bail!("the coordinator ended: {status}"),
    })
}

/// What the coordinator has to know.
pub fn forwarded(args: &PoolBench, count: u32) -> Vec<String> {
    let (paper, load, control) = (&args.paper, &args.load, &args.control);
    let mut words = vec![format!("--duration={}", load.duration.as_secs_f64()), format!("--seed={}", load.seed)];
    match paper.paper {
        Some(args::Paper::Cluster) => {
            words.extend(["--paper=cluster".into(), format!("--threads={}", load.transfer_threads())]);
            words.extend([format!("--batch={}", control.batch), format!("--ahead={}", paper.ahead)]);
            words.push(format!("--size={}", paper.size));
            words.extend((!paper.no_io).then(|| "--check".to_string()));
        }
        Some(args::Paper::Load) => {
            let requesters = u64::from(count) * u64::from(load.transfer_threads()) * u64::from(control.batch);
            words.extend(["--block=1".into(), format!("--threads={requesters}")]);
        }
        None => {
            words.extend([format!("--block={}", load.block), format!("--threads={}", load.requesters())]);
            words.extend(args.disk.connections.map(|count| format!("--connections={count}")));
            words.extend(control.window.map(|window| format!("--window={window}")));
            words.extend(control.window.map(|_| format!("--batch={}", control.batch)));
            words.extend(args.write.then(|| "--write".to_string()));
        }
    }
    words.extend(load.json.then(|| "--json".to_string()));
    words.extend(paper.lines.then(|| "--lines".to_string()));
    words
}
