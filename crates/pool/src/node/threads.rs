//! The threads that serve a node's connections: at most one per CPU, each with its own runtime.
//!
//! A connection goes to the thread with the fewest connections, and stays there. The first thread is the listening one, and
//! no other is started until there are two connections at once. So a coordinator with one connection is served as by a
//! single-threaded program, and the connections of one with several do not wait for each other.

use super::Node;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{JoinHandle, available_parallelism};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::{LocalSet, spawn_local};

/// A coordinator has few connections, so more threads are useless.
const THREADS_MAX: usize = 16;

/// All threads of a node.
pub(super) struct Threads {
    node: Arc<Node>,
    /// Errors, for the listening thread.
    log: mpsc::UnboundedSender<String>,
    /// The number of its own connections.
    own_connections: Arc<AtomicUsize>,
    others: Vec<OtherThread>,
    threads_max: usize,
}

struct OtherThread {
    connections: Arc<AtomicUsize>,
    streams: mpsc::UnboundedSender<std::net::TcpStream>,
    thread: JoinHandle<()>,
}

/// Counts as a connection of a thread, until it is dropped.
struct ConnectionGuard(Arc<AtomicUsize>);

impl ConnectionGuard {
    fn new(has: &Arc<AtomicUsize>) -> Self {
        has.fetch_add(1, Ordering::Relaxed);
        Self(has.clone())
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Threads {
    pub fn new(node: Arc<Node>, log: mpsc::UnboundedSender<String>) -> Self {
        let most = available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        Self { node, log, own_connections: Arc::default(), others: Vec::new(), threads_max: most }
    }

    /// Assigns the connection to a thread.
    ///
    /// # Errors
    /// A thread cannot be started, or the connection cannot be handed over.
    pub fn serve(&mut self, stream: TcpStream) -> io::Result<()> {
        let fewest = self.others.iter().min_by_key(|other| other.connections.load(Ordering::Relaxed));
        let (here, there) = (
            self.own_connections.load(Ordering::Relaxed),
            fewest.map(|other| other.connections.load(Ordering::Relaxed)),
        );
        if here == 0 || (there.is_none_or(|there| here <= there) && self.others.len() + 1 >= self.threads_max) {
            spawn_local(serve_connection(
                self.node.clone(),
                stream,
                ConnectionGuard::new(&self.own_connections),
                self.log.clone(),
            ));
            return Ok(());
        }
        match fewest {
            Some(other) if there == Some(0) || self.others.len() + 1 >= self.threads_max => {
                other.hand_over(stream.into_std()?)
            }
            _ => {
                let other = OtherThread::start(self.node.clone(), self.log.clone(), self.others.len() + 1)?;
                other.hand_over(stream.into_std()?);
                self.others.push(other);
            }
        }
        Ok(())
    }

    /// Waits for the other threads to end; their tasks end at the next wait.
    pub fn end(self) {
        for OtherThread { streams: give, thread, .. } in self.others {
            drop(give);
            // A panic was reported already.
            let _ = thread.join();
        }
    }
}

impl OtherThread {
    fn start(node: Arc<Node>, log: mpsc::UnboundedSender<String>, nth: usize) -> io::Result<Self> {
        let (give, taken) = mpsc::unbounded_channel();
        let has = Arc::<AtomicUsize>::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let counted = has.clone();
        let work = move || {
            crate::scheduling::restore_original_mask();
            LocalSet::new().block_on(&runtime, serve_streams(node, taken, counted, log));
        };
        let thread = std::thread::Builder::new().name(format!("node-{nth}")).spawn(work)?;
        Ok(Self { connections: has, streams: give, thread })
    }

    fn hand_over(&self, stream: std::net::TcpStream) {
        // The thread receives until it is stopped.
        let _ = self.streams.send(stream);
    }
}

async fn serve_streams(
    node: Arc<Node>,
    mut taken: mpsc::UnboundedReceiver<std::net::TcpStream>,
    has: Arc<AtomicUsize>,
    log: mpsc::UnboundedSender<String>,
) {
    while let Some(stream) = taken.recv().await {
        match TcpStream::from_std(stream) {
            Ok(stream) => {
                drop(spawn_local(serve_connection(node.clone(), stream, ConnectionGuard::new(&has), log.clone())))
            }
            // There is no receiver when the node is ending.
            Err(error) => drop(log.send(format!("cannot serve a connection: {error}"))),
        }
    }
}

async fn serve_connection(
    node: Arc<Node>,
    stream: TcpStream,
    counted: ConnectionGuard,
    log: mpsc::UnboundedSender<String>,
) {
    let peer = stream.peer_addr();
    // A failure only makes the connection slower, or closes it later than necessary.
    let _ = crate::connect::set_tcp_options(&stream);
    let connection = node.pending.add();
    if let Some(overflow) = connection.overflow_message() {
        // There is no receiver when the node is ending.
        let _ = log.send(overflow);
    }
    if let Err(error) = node.admit_stream(stream, connection).await {
        node.update_counts(|counts| counts.failed += 1);
        let peer = peer.map_or_else(|_| "a connection".into(), |peer| peer.to_string());
        // There is no receiver when the node is ending.
        let _ = log.send(format!("{peer}: {error}"));
    }
    drop(counted);
}
