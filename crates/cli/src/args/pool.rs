//! What the user may say to `fathom pool`.

use super::nbd::NbdBench;
use super::paper::{PaperBench, PaperNode};
use super::{bytes, seconds};
use clap::{ArgAction, Args, Subcommand, ValueEnum};
use pool::listener::Endpoint;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::PathBuf;
use std::time::Duration;

/// Many devices as one fast random-access disk that any Linux tool can use.
///
/// Each device serves a store (a file, a disk, or memory) as a node. A coordinator joins the nodes into one disk and serves
/// it by NBD, which Linux, QEMU, fio, nbdcopy and others know as a disk. How many requests are under way at each node, and how
/// many share a packet, it finds out by itself.
#[derive(Debug, Args)]
#[command(
    arg_required_else_help = true,
    after_help = "\
Start here:
  fathom pool try                                           eight nodes on this machine, measured
  fathom pool keygen pool.key                               make a key, and copy it to every device
  fathom pool node --init --store a.img --size 1G           make a store on each
  fathom pool node --store a.img --listen 0.0.0.0:7001 --key pool.key
  fathom pool serve --node 192.0.2.11:7001 --node 192.0.2.12:7001 \\
    --nbd unix:/tmp/pool.sock --key pool.key
  nbdinfo 'nbd+unix:///?socket=/tmp/pool.sock'

Nodes and coordinator let in only those who have the same key, and encrypt. Without a key, pass --insecure \
(twice for addresses other than loopback)."
)]
pub struct Pool {
    /// What to do.
    #[command(subcommand)]
    pub verb: PoolVerb,
}

/// What `pool` can do, told at the arguments of each.
#[derive(Debug, Subcommand)]
pub enum PoolVerb {
    Keygen(PoolKeygen),
    Node(PoolNode),
    Serve(PoolServe),
    Forget(PoolForget),
    Status(PoolStatus),
    Attach(PoolAttach),
    Bench(PoolBench),
    Try(PoolTry),
}

/// Make a key that nodes and coordinator share.
///
/// Whoever has it is let in. The file is readable for its owner alone, and one that is there is never overwritten. What is
/// printed is the key's fingerprint, which is no secret: two ends whose keys differ tell each other's.
#[derive(Debug, Args)]
pub struct PoolKeygen {
    /// Where
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}

/// Whom to trust.
#[derive(Debug, Clone, Default, Args)]
pub struct Trust {
    /// The key that nodes and coordinator share: who has it is let in, and all is encrypted
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Go without encryption and authentication: said once, on loopback; said twice, on any address
    #[arg(long, action = ArgAction::Count)]
    pub insecure: u8,
}

/// Make a store, or serve one as a node.
///
/// A store keeps a checksum for each 4 KiB: damage is an error, never wrong data.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("medium").required(true).args(["store", "backend", "config"])))]
pub struct PoolNode {
    /// Make the store first; without --listen, that is all
    #[arg(long, requires = "store")]
    pub init: bool,
    /// The file or block device
    #[arg(long, value_name = "FILE|DEV")]
    pub store: Option<PathBuf>,
    /// A store in memory, made empty at each start
    #[arg(long, value_name = "memory:SIZE", value_parser = memory)]
    pub backend: Option<u64>,
    /// Bytes of data (suffixes K, M, G, T); a device gives all it has
    #[arg(long, value_name = "SIZE", value_parser = bytes, requires = "init")]
    pub size: Option<u64>,
    /// Take in what the file or device holds as the store's data
    #[arg(long, requires = "init")]
    pub import: bool,
    /// Where coordinators connect; port 0 takes a free one, which is printed
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, required_unless_present_any = ["init", "config"])]
    pub listen: Option<SocketAddr>,
    /// Do what the [node] of this TOML file says; an option given beside it is stronger
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where Prometheus may read how the node is (/metrics), open to whoever can reach it
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub metrics: Option<SocketAddr>,
    /// Whom to trust.
    #[command(flatten)]
    pub trust: Trust,
    /// The paper's.
    #[command(flatten)]
    pub paper: PaperNode,
}

/// Take a store out of its pool, so that it can be used in another one.
///
/// For a store whose pool was never completed, or whose other nodes are gone. The node must have been ended. Data stay in the store, and
/// are those of whatever pool uses it next.
#[derive(Debug, Args)]
pub struct PoolForget {
    /// The file or block device
    #[arg(long, value_name = "FILE|DEV")]
    pub store: PathBuf,
    /// Also if it has data
    #[arg(long)]
    pub with_data: bool,
}

/// Which nodes, and how.
#[derive(Debug, Clone, Args)]
pub struct Disk {
    /// The pool's name ("default" if it is not given); a store belongs to the first pool that used it
    #[arg(long, value_name = "NAME")]
    pub pool: Option<String>,
    /// One node after the other (if it is not given), or in turn by stripes of 64 KiB; a pool keeps what it was made with
    #[arg(long, value_enum)]
    pub layout: Option<Order>,
    /// Connections to each node, which serves each on a processor of its own (1 if it is not given); window and batch stay
    /// those of the node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=i64::from(pool::link::MOST_CONNECTIONS)))]
    pub connections: Option<u16>,
    /// A request that a node does not answer fails with EIO after this time (30s if it is not given), and what is asked of a node
    /// that has answered nothing for so long fails at once, until it is back; no less than 1s, and longer than a node takes to flush
    #[arg(long, value_name = "TIME", value_parser = node_timeout)]
    pub node_timeout: Option<Duration>,
    /// Whom to trust.
    #[command(flatten)]
    pub trust: Trust,
}

/// How the nodes' space is put together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Order {
    /// One node after the other, as in the paper.
    Concat,
    /// In turn, by stripes of 64 KiB.
    Stripe,
}

/// Join nodes into one disk and serve it by NBD.
///
/// A coordinator that served the nodes before is fenced off. What is asked of a node that cannot be reached waits for --node-timeout (30 s),
/// then fails with EIO, and fails at once from then on until the node is back. FLUSH fails too then; which node it was is told on
/// stderr, by `pool status`, and to clients that take structured replies.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("disk").required(true).args(["node", "backend", "config"])))]
pub struct PoolServe {
    /// A node (give it again for each); the order is the disk's, and must stay
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub node: Vec<SocketAddr>,
    /// Serve memory of this process, without nodes
    #[arg(long, value_name = "memory:SIZE", value_parser = memory)]
    pub backend: Option<u64>,
    /// Which nodes, and how.
    #[command(flatten)]
    pub disk: Disk,
    /// Do what the [serve] of this TOML file says; an option given beside it is stronger
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where NBD clients connect
    #[arg(long, value_name = "unix:PATH|tcp:ADDR:PORT", value_parser = endpoint, required_unless_present = "config")]
    pub nbd: Option<Endpoint>,
    /// NBD clients must encrypt; the folder has server-cert.pem and server-key.pem, as for nbdkit
    #[arg(long, value_name = "FOLDER")]
    pub tls: Option<PathBuf>,
    /// And they must show a certificate that the folder's ca-cert.pem vouches for
    #[arg(long, requires = "tls")]
    pub verify_clients: bool,
    /// Go on although nodes may have lost writes that they had answered, because their machines were started anew before those were
    /// flushed. Without it writes and flushes are refused then, and the ranges are told
    #[arg(long, conflicts_with = "backend")]
    pub accept_loss: bool,
    /// Send all data over the connections, also to nodes on this machine; else large data go through memory that both see
    #[arg(long, conflicts_with = "backend")]
    pub no_shared_memory: bool,
    /// The socket that `pool status` asks; beside a Unix front, PATH.status, if it is not given
    #[arg(long, value_name = "PATH", conflicts_with = "backend")]
    pub status: Option<PathBuf>,
    /// Where Prometheus may read how the pool is (/metrics, /status), open to whoever can reach it
    #[arg(long, value_name = "ADDR:PORT", value_parser = address, conflicts_with = "backend")]
    pub metrics: Option<SocketAddr>,
}

/// Show how a pool's nodes are: window, batch, round trip, queues, packets.
///
/// For each: window and batch in force, the time from a request's leaving to its answer, requests that wait in the coordinator
/// and at the node, the node's time in its store; and of the last second, answers, packets and bytes in a packet, both ways.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fathom pool status /tmp/pool.sock             the coordinator whose NBD clients connect there
  fathom pool status --watch /tmp/pool.sock     again each second
  fathom pool status --json 127.0.0.1:9107      through its --metrics address")]
pub struct PoolStatus {
    /// The coordinator's NBD or status socket, or the address of its --metrics
    #[arg(value_name = "PATH|ADDR:PORT")]
    pub place: String,
    /// Again each second, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
    /// Print JSON, a line each time
    #[arg(long)]
    pub json: bool,
}

/// Make a served pool a block device of this machine.
///
/// With nbdublk, by itself through the kernel's NBD client, or with nbd-client or qemu-nbd, whichever this machine and its kernel have;
/// what is missing is said. By itself (`--with kernel`) it stays until Ctrl-C, which detaches the disk: when the coordinator is
/// killed, requests wait until there is one again. Of other ways the command that is run is printed, and requests are lost then.
#[derive(Debug, Args)]
pub struct PoolAttach {
    /// Where the pool is served
    #[arg(value_name = "unix:PATH|tcp:ADDR:PORT", value_parser = endpoint)]
    pub nbd: Endpoint,
    /// The device to become; /dev/nbd0 or /dev/ublkb0 if it is not given
    #[arg(long, value_name = "DEV")]
    pub device: Option<PathBuf>,
    /// By which program
    #[arg(long, value_enum, value_name = "PROGRAM")]
    pub with: Option<AttachWith>,
    /// Print the commands that attach and detach, and do nothing
    #[arg(long)]
    pub dry_run: bool,
}

/// What attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AttachWith {
    /// libnbd's, by ublk.
    Nbdublk,
    /// None: this one, by the kernel's NBD client.
    Kernel,
    /// The kernel's NBD client.
    NbdClient,
    /// QEMU's, by the kernel's NBD client.
    QemuNbd,
}

/// Who decides on window and batch.
#[derive(Debug, Args)]
pub struct Control {
    /// Requests under way at each node; the tuner decides if it is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub window: Option<u32>,
    /// Requests that a packet waits for, with --window, or a write, with --nbd; requests in a write at most, with --paper
    #[arg(long, value_name = "N", default_value_t = 1, requires = "sets_batch", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub batch: u32,
}

/// The load.
#[derive(Debug, Args)]
pub struct PoolLoad {
    /// Bytes of a request
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub block: u32,
    /// Requesters, each with one request at a time (default 256; with --nbd 64); with --paper, transfer threads of each
    /// node (default 32)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub threads: Option<u32>,
    /// How long each measurement takes; its first quarter does not count
    #[arg(long, value_name = "S", default_value = "4", value_parser = seconds, allow_negative_numbers = true)]
    pub duration: Duration,
    /// Of the places that are asked for: the same again
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl PoolLoad {
    /// Requesters.
    pub fn requesters(&self) -> u32 {
        self.threads.unwrap_or(256)
    }

    /// Requests under way at an NBD server.
    pub fn depth(&self) -> u32 {
        self.threads.unwrap_or(64)
    }

    /// Transfer threads of each of the paper's nodes.
    pub fn transfer_threads(&self) -> u32 {
        self.threads.unwrap_or(32)
    }
}

/// Measure a pool from the coordinator's own process, or any NBD server.
///
/// Uniform random requests in a closed loop. Nodes that another coordinator is connected to are refused, unless --take-over is
/// said: a node has one coordinator, and the one before can use it no more until it is started anew.
///
/// With --nodes it starts nodes for the purpose, and a medium like Wi-Fi between them with --link; with --paper it is the
/// cluster of paper 001 that is measured; --paper-figures remakes that paper's figures 7 to 12. With --nbd it is a client of an
/// NBD server, whoever's: one connection, which costs so little that the server is the limit.
#[derive(Debug, Args)]
#[command(
    group(clap::ArgGroup::new("which").required(true).args(["node", "nodes", "paper_figures", "nbd"])),
    group(clap::ArgGroup::new("sets_batch").multiple(true).args(["window", "paper", "nbd"]))
)]
pub struct PoolBench {
    /// A node (give it again for each), in the disk's order
    #[arg(long, value_name = "ADDR:PORT", value_parser = address)]
    pub node: Vec<SocketAddr>,
    /// Which nodes, and how.
    #[command(flatten)]
    pub disk: Disk,
    /// The load.
    #[command(flatten)]
    pub load: PoolLoad,
    /// Take the nodes even from a coordinator that serves them now; its clients' requests fail from then on
    #[arg(long, requires = "node")]
    pub take_over: bool,
    /// Write instead of reading; what the disk holds is lost
    #[arg(long)]
    pub write: bool,
    /// Read without computing or comparing checksums, to see what they cost
    #[arg(long, conflicts_with = "write")]
    pub no_checksum: bool,
    /// Window and batch.
    #[command(flatten)]
    pub control: Control,
    /// An NBD server.
    #[command(flatten)]
    pub server: NbdBench,
    /// The paper's.
    #[command(flatten)]
    pub paper: PaperBench,
}

/// Start nodes in memory on this machine, join them, measure, and end them.
#[derive(Debug, Args)]
pub struct PoolTry {
    /// Nodes, each a process
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    pub nodes: u32,
    /// Bytes of each (suffixes K, M, G)
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = bytes)]
    pub size: u64,
    /// The load.
    #[command(flatten)]
    pub load: PoolLoad,
    /// The key for nodes and coordinator; without it nothing is encrypted
    #[arg(long, value_name = "FILE")]
    pub key: Option<PathBuf>,
    /// Serve the disk by NBD too, until Ctrl-C
    #[arg(long, value_name = "unix:PATH|tcp:ADDR:PORT", value_parser = endpoint)]
    pub nbd: Option<Endpoint>,
}

/// An address with a port.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    let found =
        text.to_socket_addrs().map_err(|e| format!("give an address with a port, such as 127.0.0.1:7001: {e}"))?;
    found.into_iter().next().ok_or_else(|| "this name has no address".into())
}

/// The bytes of `memory:SIZE`.
pub fn memory(text: &str) -> Result<u64, String> {
    bytes(text.strip_prefix("memory:").ok_or("give memory:SIZE, such as memory:512M")?)
}

/// How long a node may take: what is shorter than a slow medium's flush would make a node that works look dead.
pub fn node_timeout(text: &str) -> Result<Duration, String> {
    let time = super::long(text)?;
    let sensible = Duration::from_secs(1)..=Duration::from_secs(24 * 3600);
    sensible.contains(&time).then_some(time).ok_or_else(|| "give 1s to 24h".into())
}

/// Where NBD clients connect.
pub fn endpoint(text: &str) -> Result<Endpoint, String> {
    match text.split_once(':') {
        Some(("unix", path)) if !path.is_empty() => Ok(Endpoint::Unix(path.into())),
        Some(("tcp", rest)) => address(rest).map(Endpoint::Tcp),
        _ => Err("give unix:PATH or tcp:ADDR:PORT, such as tcp:127.0.0.1:10809".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_and_memory_are_read_as_people_write_them() {
        assert_eq!(endpoint("unix:/tmp/a"), Ok(Endpoint::Unix("/tmp/a".into())));
        assert_eq!(endpoint("tcp:127.0.0.1:10809"), Ok(Endpoint::Tcp(([127, 0, 0, 1], 10809).into())));
        assert!(["/tmp/a", "unix:", "tcp:1", "udp:127.0.0.1:1"].iter().all(|text| endpoint(text).is_err()));
        assert_eq!(memory("memory:512M"), Ok(512 << 20));
        assert!(memory("512M").is_err() && memory("memory:1").is_err());
        assert!(address("127.0.0.1").is_err());
        assert_eq!(node_timeout("1.5"), Ok(Duration::from_millis(1500)));
        assert!(["0", "0.9s", "25h", "soon"].iter().all(|text| node_timeout(text).is_err()));
    }
}
