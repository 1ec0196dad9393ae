//! A pool on a simulated network: eight nodes and a coordinator in one thread, in virtual time, with a seed.
//!
//! Link, node, store and volume are the real ones; only the streams between them are turmoil's. A node's store survives its
//! node, as a file survives a killed process. A segment dropped by the network is not retransmitted, so that a connection
//! with a gap stays half-open until one side closes it: harsher than TCP.

use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use pool::connect::{Connect, Stream};
use pool::layout::Arrangement;
use pool::link::{Control, Failure, Options};
use pool::node::Node;
use pool::store::Store;
use pool::volume::{AssemblyError, Volume};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// As many as in the paper.
pub const NODE_COUNT: usize = 8;
/// Bytes of each: small, so that requests overlap at the nodes' borders and in the same blocks.
pub const NODE_BYTES: u64 = 64 << 10;
pub const STRIPE_BYTES: u64 = 8 << 10;
const NODE_PORT: u16 = 7;
/// The first coordinator; faults affect its connections.
const COORDINATOR_HOST: &str = "coordinator";
const RIVAL_HOST: &str = "rival";

/// A fault, injected by the next step of the simulation.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// The node's process is killed and restarted, after this many ms.
    Restart(usize, u64),
    /// No segments pass between node and coordinator.
    Cut(usize),
    /// No segments pass to the node, but from it.
    CutOneWay(usize),
    /// Segments are delayed until the cut is mended, and arrive then.
    Hold(usize),
    /// Ends all of these faults of a node.
    Mend(usize),
    /// The one-way delay is up to this many ms from now on.
    Slow(usize, u64),
}

/// The simulated world of a scenario.
#[derive(Clone, Default)]
pub struct World {
    /// Progress, for scenarios that wait for each other.
    pub stage: Rc<Cell<u32>>,
    faults: Rc<RefCell<Vec<Fault>>>,
    /// The reports of links.
    pub reports: Rc<RefCell<Vec<String>>>,
    /// Connections of a coordinator to each node: one to three, by the seed.
    connections: u16,
}

fn name(node: usize) -> String {
    format!("node{node}")
}

/// Streams of the simulated network.
fn simulated_connector() -> Connect {
    Rc::new(|address| {
        Box::pin(async move {
            let stream = turmoil::net::TcpStream::connect(address).await?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        })
    })
}

impl World {
    /// Injects a fault at the next tick.
    pub fn inject_fault(&self, fault: Fault) {
        self.faults.borrow_mut().push(fault);
    }

    /// Waits until the other scenario has reached this stage.
    pub async fn wait_for_stage(&self, stage: u32) {
        while self.stage.get() < stage {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Joins all nodes as a new coordinator; earlier ones are fenced off.
    pub async fn join(&self, arrangement: Arrangement) -> Result<Volume, AssemblyError> {
        let addresses: Vec<SocketAddr> =
            (0..NODE_COUNT).map(|node| SocketAddr::new(turmoil::lookup(name(node)), NODE_PORT)).collect();
        let reports = self.reports.clone();
        let report = Rc::new(move |line| reports.borrow_mut().push(line));
        let options = Options { connections: self.connections, ..Options::default() };
        Volume::join(&simulated_connector(), &addresses, "p", arrangement, &options, &Control::Tuned, report).await
    }
}

/// A scenario on one host.
pub type Story = Box<dyn FnOnce(World) -> LocalBoxFuture<'static, Result<(), String>>>;

/// Runs a scenario on a network with this seed; `lose` is the share of dropped segments.
pub fn run<F>(seed: u64, lose: f64, story: impl FnOnce(World) -> F + 'static) -> Result<(), String>
where
    F: Future<Output = Result<(), String>> + 'static,
{
    run_both(seed, lose, Box::new(|world| Box::pin(story(world))), Box::new(|_| Box::pin(async { Ok(()) })))
}

/// Runs two scenarios, each on its own host, until both are over.
pub fn run_both(seed: u64, lose: f64, story: Story, rival: Story) -> Result<(), String> {
    let mut builder = turmoil::Builder::new();
    builder.rng_seed(seed).fail_rate(lose).repair_rate(1.0).tcp_capacity(4096).tick_duration(Duration::from_millis(3));
    builder.min_message_latency(Duration::from_millis(1)).max_message_latency(Duration::from_millis(20));
    let mut sim = builder.simulation_duration(Duration::from_secs(24 * 3600)).build();
    for node in 0..NODE_COUNT {
        let store = Arc::new(Store::memory(NODE_BYTES, name(node)).map_err(|e| e.to_string())?);
        sim.host(name(node), move || {
            let store = store.clone();
            async move {
                let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                let listener = turmoil::net::TcpListener::bind(SocketAddr::new(any, NODE_PORT)).await?;
                let node = Node::new(store, true);
                loop {
                    let (stream, _) = listener.accept().await?;
                    let node = node.clone();
                    // The coordinator's side reports why the connection ended.
                    tokio::task::spawn_local(async move { drop(node.serve_connection(stream).await) });
                }
            }
        });
    }
    let world = World { connections: 1 + (seed % 3) as u16, ..World::default() };
    let ended = Rc::new(RefCell::new(Vec::new()));
    let faults = world.faults.clone();
    for (host, story) in [(COORDINATOR_HOST, story), (RIVAL_HOST, rival)] {
        let (world, ended) = (world.clone(), ended.clone());
        sim.client(host, async move {
            let result = story(world).await;
            ended.borrow_mut().push(result);
            Ok(())
        });
    }
    let mut down: Vec<(usize, Duration)> = Vec::new();
    loop {
        let over = sim.step().map_err(|e| e.to_string())?;
        let failed = ended.borrow().iter().find(|result| result.is_err()).cloned();
        if failed.is_some() || ended.borrow().len() == 2 {
            return failed.unwrap_or(Ok(()));
        }
        if over {
            return Err("the simulation ended before the story".into());
        }
        let now = sim.elapsed();
        for fault in faults.borrow_mut().drain(..) {
            match fault {
                Fault::Restart(node, ms) => {
                    if down.iter().all(|(other, _)| *other != node) {
                        sim.crash(name(node));
                        down.push((node, now + Duration::from_millis(ms)));
                    }
                }
                Fault::Cut(node) => sim.partition(COORDINATOR_HOST, name(node)),
                Fault::CutOneWay(node) => sim.partition_oneway(COORDINATOR_HOST, name(node)),
                Fault::Hold(node) => sim.hold(COORDINATOR_HOST, name(node)),
                Fault::Mend(node) => {
                    sim.release(COORDINATOR_HOST, name(node));
                    sim.repair(COORDINATOR_HOST, name(node));
                }
                Fault::Slow(node, ms) => {
                    sim.set_link_max_message_latency(COORDINATOR_HOST, name(node), Duration::from_millis(ms.max(2)));
                }
            }
        }
        let (up, still) = down.into_iter().partition(|(_, when)| *when <= now);
        down = still;
        let up: Vec<(usize, Duration)> = up;
        up.into_iter().for_each(|(node, _)| sim.bounce(name(node)));
    }
}

/// The possible values of each byte of the disk: bit v for the value v. Writes with unknown outcome add a value, an
/// acknowledged one leaves only its own, and a read determines the value.
pub struct Oracle {
    possible_values: Vec<u64>,
}

impl Oracle {
    /// A disk of zeroes.
    pub fn new(size_bytes: u64) -> Self {
        Self { possible_values: vec![1; size_bytes as usize] }
    }

    /// Records that a write of `value` begins.
    pub fn record_begin(&mut self, offset: u64, length: u32, value: u8) {
        self.range(offset, length).iter_mut().for_each(|may| *may |= 1 << value);
    }

    /// Records that it was acknowledged, without a concurrent write to its range.
    pub fn record_write(&mut self, offset: u64, length: u32, value: u8) {
        self.range(offset, length).fill(1 << value);
    }

    /// Checks whether this data may be read now.
    pub fn check_read(&self, offset: u64, data: &[u8]) -> Result<(), String> {
        let may = &self.possible_values[offset as usize..];
        match data.iter().zip(may).position(|(value, may)| *value > 63 || may >> value & 1 == 0) {
            None => Ok(()),
            Some(at) => Err(format!("byte {} is {}, of {:#x}", offset as usize + at, data[at], may[at])),
        }
    }

    /// Records data that was read while nothing was written there.
    pub fn record_read(&mut self, offset: u64, data: &[u8]) {
        for (may, value) in self.range(offset, data.len() as u32).iter_mut().zip(data) {
            *may = 1 << value;
        }
    }

    fn range(&mut self, offset: u64, length: u32) -> &mut [u64] {
        &mut self.possible_values[offset as usize..offset as usize + length as usize]
    }
}

/// Checks all of the disk against the oracle.
pub async fn check_disk(volume: &Volume, oracle: &mut Oracle) -> Result<(), String> {
    for offset in (0..volume.size_bytes()).step_by(32 << 10) {
        let data: Bytes = volume.read_range(offset, 32 << 10).await.map_err(|e: Failure| format!("{offset}: {e}"))?;
        oracle.check_read(offset, &data)?;
        oracle.record_read(offset, &data);
    }
    Ok(())
}
