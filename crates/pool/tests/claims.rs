//! A new pool is created with all its nodes or none: wherever the first claims stop, they can be repeated.
//!
//! The nodes are real ones, over streams in memory. Connections are counted, and one of them fails: before it is
//! established, or after the node has done what was requested and its reply is lost.

use pool::bench::Load;
use pool::connect::{Connect, Stream};
use pool::coordinator::{LOAD_COUNT, measure_trial};
use pool::layout::Arrangement;
use pool::link::{Control, Health, Options};
use pool::node::Node;
use pool::store::Store;
use pool::volume::{AssemblyError, Volume};
use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf};
use tokio::sync::Notify;

const NODE_COUNT: usize = 3;

/// How the failing connection ends.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ConnectionFault {
    NotOpened,
    ReplyLost,
}

/// A stream whose reply is lost when it arrives.
struct LostReplyStream(DuplexStream);

impl AsyncRead for LostReplyStream {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match Pin::new(&mut self.0).poll_read(cx, buf) {
            Poll::Ready(_) => Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncWrite for LostReplyStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

struct World {
    nodes: Vec<Arc<Node>>,
    connection_count: Rc<Cell<usize>>,
}

fn address(node: usize) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], node as u16 + 1))
}

impl World {
    fn new() -> Self {
        let node =
            |nth: usize| Node::new(Arc::new(Store::memory(1 << 20, format!("node{nth}")).expect("memory")), true);
        Self { nodes: (0..NODE_COUNT).map(node).collect(), connection_count: Rc::default() }
    }

    /// The connection with the number `stop` fails in this way.
    fn connect(&self, stop: Option<(usize, ConnectionFault)>) -> Connect {
        let (nodes, made) = (self.nodes.clone(), self.connection_count.clone());
        made.set(0);
        Rc::new(move |to| {
            let (node, nth) = (nodes[usize::from(to.port()) - 1].clone(), made.get());
            made.set(nth + 1);
            let how = stop.and_then(|(when, how)| (when == nth).then_some(how));
            Box::pin(async move {
                if how == Some(ConnectionFault::NotOpened) {
                    return Err(io::ErrorKind::ConnectionRefused.into());
                }
                let (here, there) = tokio::io::duplex(64 << 10);
                tokio::task::spawn_local(async move { drop(node.serve_connection(there).await) });
                Ok(if how.is_some() { Box::new(LostReplyStream(here)) as Box<dyn Stream> } else { Box::new(here) })
            })
        })
    }

    /// Its nodes notice late that a connection was closed.
    fn connect_with_late_close(&self) -> Connect {
        let nodes = self.nodes.clone();
        Rc::new(move |to| {
            let node = nodes[usize::from(to.port()) - 1].clone();
            Box::pin(async move {
                let [(here, between), (beyond, there)] = [(); 2].map(|()| tokio::io::duplex(64 << 10));
                let ((mut from_here, mut to_here), (mut from_there, mut to_there)) =
                    (tokio::io::split(between), tokio::io::split(beyond));
                tokio::task::spawn_local(async move { drop(node.serve_connection(there).await) });
                tokio::task::spawn_local(async move { tokio::io::copy(&mut from_there, &mut to_here).await });
                tokio::task::spawn_local(async move {
                    let _ = tokio::io::copy(&mut from_here, &mut to_there).await;
                    // A fixed wait: the end of the connection is in transit.
                    tokio::time::sleep(Duration::from_millis(30)).await;
                    let _ = to_there.shutdown().await;
                });
                Ok(Box::new(here) as Box<dyn Stream>)
            })
        })
    }

    /// Waits before its connection with the number `stop`.
    fn connect_through_gate(&self, stop: usize, gate: &Rc<Gate>) -> Connect {
        let (connect, gate, made) = (self.connect(None), gate.clone(), Cell::new(0));
        Rc::new(move |to| {
            let (connect, gate, nth) = (connect.clone(), gate.clone(), made.replace(made.get() + 1));
            Box::pin(async move {
                if nth == stop {
                    gate.arrived.notify_one();
                    gate.open.notified().await;
                }
                connect(to).await
            })
        })
    }

    async fn join(
        &self,
        stop: Option<(usize, ConnectionFault)>,
        pool: &str,
        order: &[usize],
        stripe: bool,
    ) -> Result<Volume, AssemblyError> {
        let arrangement = if stripe { Arrangement::Striped { stripe_bytes: 4096 } } else { Arrangement::Concatenated };
        join_in_order(self.connect(stop), pool, order, arrangement).await
    }
}

/// A point where a coordinator waits.
#[derive(Default)]
struct Gate {
    /// Notified when it arrives.
    arrived: Notify,
    /// Notified when it may continue.
    open: Notify,
}

async fn join_in_order(
    connect: Connect,
    pool: &str,
    order: &[usize],
    arrangement: Arrangement,
) -> Result<Volume, AssemblyError> {
    let addresses: Vec<SocketAddr> = order.iter().map(|node| address(*node)).collect();
    let (options, report) = (Options::default(), Rc::new(drop));
    Volume::join(&connect, &addresses, pool, arrangement, &options, &Control::Tuned, report).await
}

fn local(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work);
}

async fn check_read_back(volume: &Volume) {
    volume.write_range(0, vec![7; 8192].into(), true).await.expect("it is a disk");
    assert_eq!(volume.read_range(0, 8192).await.expect("it is a disk"), vec![7; 8192]);
}

/// Loads are measured one after the other, and each uses the nodes exclusively: there is no coordinator to take them from.
#[test]
fn trial_takes_over_nodes_from_nobody() {
    local(async {
        let world = World::new();
        let addresses: Vec<SocketAddr> = (0..NODE_COUNT).map(address).collect();
        let (duration, threads) = (Duration::from_millis(200), 2);
        let load = Load { block_bytes: 512, threads, duration, write: false, checked: true, seed: 1 };
        let (said, measured) = (Rc::new(RefCell::new(Vec::new())), Cell::new(0));
        let report = said.clone();
        let report: Rc<dyn Fn(String)> = Rc::new(move |line| report.borrow_mut().push(line));
        let mut count = |_, _| measured.set(measured.get() + 1);
        measure_trial(&world.connect_with_late_close(), &addresses, load, report, &mut count)
            .await
            .expect("nodes that answer");
        assert_eq!((measured.get(), said.borrow().as_slice()), (LOAD_COUNT, &[] as &[String]));
    });
}

#[test]
fn interrupted_first_claim_can_be_repeated() {
    local(async {
        // Count the connections of a join.
        let world = World::new();
        check_read_back(&world.join(None, "p", &[0, 1, 2], false).await.expect("a pool")).await;
        let all = world.connection_count.get();
        assert!(all >= 2 * NODE_COUNT, "each is read and claimed");
        for (stop, how) in
            (0..all).flat_map(|stop| [(stop, ConnectionFault::NotOpened), (stop, ConnectionFault::ReplyLost)])
        {
            let world = World::new();
            let stopped = world.join(Some((stop, how)), "p", &[0, 1, 2], false).await;
            assert!(stopped.is_err(), "{stop} {how:?}");
            let again = world.join(None, "p", &[0, 1, 2], false).await;
            check_read_back(&again.unwrap_or_else(|why| panic!("{stop} {how:?}: {why}"))).await;
        }
    });
}

#[test]
fn unclaimed_nodes_may_join_other_pool() {
    local(async {
        for stop in NODE_COUNT..2 * NODE_COUNT {
            let world = World::new();
            let stopped = world.join(Some((stop, ConnectionFault::ReplyLost)), "p", &[0, 1, 2], false).await;
            assert!(stopped.is_err(), "{stop}");
            let other = world.join(None, "q", &[2, 0], true).await;
            check_read_back(&other.unwrap_or_else(|why| panic!("{stop}: {why}"))).await;
        }
    });
}

#[test]
fn partly_claimed_pool_keeps_its_layout_and_nodes() {
    local(async {
        let world = World::new();
        // Looked at and reserved on all, and one of them claimed.
        assert!(
            world.join(Some((2 * NODE_COUNT + 1, ConnectionFault::NotOpened)), "p", &[0, 1, 2], false).await.is_err()
        );
        let other = world.join(None, "p", &[1, 0, 2], false).await.expect_err("another disk").to_string();
        assert!(other.contains("in their original order"), "{other}");
        let fewer = world.join(None, "p", &[0, 1], false).await.expect_err("another disk").to_string();
        assert!(fewer.contains("node 1 of 3"), "{fewer}");
        check_read_back(&world.join(None, "p", &[0, 1, 2], false).await.expect("what it was to be")).await;
    });
}

/// Two coordinators claim the same nodes, in different orders and for different pools; each waits once, before each of its
/// connections in turn.
async fn claim_concurrently(pools: [&'static str; 2], stops: [usize; 2]) {
    const NODE_ORDERS: [[usize; NODE_COUNT]; 2] = [[0, 1, 2], [1, 2, 0]];
    let world = World::new();
    let gates = [Rc::new(Gate::default()), Rc::new(Gate::default())];
    let mut tasks = Vec::new();
    for (nth, gate) in gates.iter().enumerate() {
        let connect = world.connect_through_gate(stops[nth], gate);
        let join =
            async move { join_in_order(connect, pools[nth], &NODE_ORDERS[nth], Arrangement::Concatenated).await };
        let mut task = tokio::task::spawn_local(join);
        // Until it waits, or has finished without waiting.
        let done = tokio::select! {
            () = gate.arrived.notified() => None,
            done = &mut task => Some(done.expect("it does not panic")),
        };
        tasks.push((task, done));
    }
    let mut volumes = Vec::new();
    for (gate, (task, done)) in gates.iter().zip(tasks) {
        gate.open.notify_one();
        volumes.push(match done {
            Some(done) => done,
            None => task.await.expect("it does not panic"),
        });
    }
    // The later one may have taken over from one that had all of them.
    drop(volumes);
    let first = world.join(None, pools[0], &NODE_ORDERS[0], false).await;
    let volume = match first {
        Ok(volume) => volume,
        Err(one) => {
            let second = world.join(None, pools[1], &NODE_ORDERS[1], false).await;
            second.unwrap_or_else(|other| panic!("{stops:?}: neither got the nodes: {one}; {other}"))
        }
    };
    check_read_back(&volume).await;
}

#[test]
fn one_of_two_concurrent_claims_succeeds() {
    local(async {
        for pools in [["p", "p"], ["p", "q"]] {
            for first in 0..=3 * NODE_COUNT {
                for second in 0..=3 * NODE_COUNT {
                    claim_concurrently(pools, [first, second]).await;
                }
            }
        }
    });
}

#[test]
fn data_of_another_pool_is_refused() {
    local(async {
        let (mut world, mut other) = (World::new(), World::new());
        check_read_back(&world.join(None, "p", &[0, 1, 2], false).await.expect("a pool")).await;
        // Its second node has been replaced by one reserved for another pool.
        assert!(other.join(Some((2 * NODE_COUNT, ConnectionFault::NotOpened)), "q", &[0, 1, 2], false).await.is_err());
        std::mem::swap(&mut world.nodes[1], &mut other.nodes[1]);
        let why = world.join(None, "p", &[0, 1, 2], false).await.expect_err("its data are gone").to_string();
        assert!(why.contains("belongs to the pool \"q\""), "{why}");
        std::mem::swap(&mut world.nodes[1], &mut other.nodes[1]);
        check_read_back(&world.join(None, "p", &[0, 1, 2], false).await.expect("the same nodes")).await;
    });
}

#[test]
fn outdated_copy_of_a_store_is_refused() {
    local(async {
        let node = || Node::new(Arc::new(Store::memory(1 << 20, "node0".into()).expect("memory")), true);
        let (own, copy) = (node(), node());
        let right = own.clone();
        let (current, served) = (Rc::new(RefCell::new(copy.clone())), Rc::new(RefCell::new(Vec::new())));
        let (at, by) = (current.clone(), served.clone());
        let connect: Connect = Rc::new(move |_| {
            let (node, by) = (at.borrow().clone(), by.clone());
            Box::pin(async move {
                let (here, there) = tokio::io::duplex(64 << 10);
                by.borrow_mut().push(tokio::task::spawn_local(async move { drop(node.serve_connection(there).await) }));
                Ok(Box::new(here) as Box<dyn Stream>)
            })
        });
        let cut = || served.borrow_mut().drain(..).for_each(|task| task.abort());
        let join = || join_in_order(connect.clone(), "p", &[0], Arrangement::Concatenated);
        // The copy knows the pool's first coordinator, as the store did when it was copied.
        drop(join().await.expect("a pool"));
        current.replace(own);
        drop(join().await.expect("a pool"));
        let volume = join().await.expect("the second");
        check_read_back(&volume).await;
        cut();
        check_read_back(&volume).await;
        current.replace(copy);
        cut();
        let is_older = |why: &str| why.contains("its store is older than this coordinator's writes");
        while !matches!(volume.links()[0].health(), Health::Connecting(why) if is_older(&why)) {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        // The right node is back, and all requests wait for it.
        current.replace(right);
        check_read_back(&volume).await;
    });
}

/// A copy that was made while the coordinator used the store has the same epoch.
#[test]
fn copy_of_store_under_running_coordinator_is_refused() {
    local(async {
        let directory = tempfile::tempdir().expect("a directory");
        let paths = ["own", "copy"].map(|name| directory.path().join(name));
        drop(Store::format(&paths[0], Some(8 << 20), "node0".into(), false).expect("a store"));
        let node = |path: &std::path::Path| Node::new(Arc::new(Store::open(path).expect("a store")), false);
        let (current, served) = (Rc::new(RefCell::new(node(&paths[0]))), Rc::new(RefCell::new(Vec::new())));
        let (at, by) = (current.clone(), served.clone());
        let connect: Connect = Rc::new(move |_| {
            let (node, by) = (at.borrow().clone(), by.clone());
            Box::pin(async move {
                let (here, there) = tokio::io::duplex(64 << 10);
                by.borrow_mut().push(tokio::task::spawn_local(async move { drop(node.serve_connection(there).await) }));
                Ok(Box::new(here) as Box<dyn Stream>)
            })
        });
        let cut = || served.borrow_mut().drain(..).for_each(|task| task.abort());
        let volume = join_in_order(connect, "p", &[0], Arrangement::Concatenated).await.expect("a pool");
        check_read_back(&volume).await;
        std::fs::copy(&paths[0], &paths[1]).expect("a copy");
        // Another region, which is marked first; and the coordinator is told.
        volume.write_range(6 << 20, vec![8; 4096].into(), false).await.expect("it is a disk");
        volume.flush_all().await.expect("it is a disk");
        let own = current.replace(node(&paths[1]));
        cut();
        let is_older = |why: &str| why.contains("sequence number of its header");
        let refused = async {
            while !matches!(volume.links()[0].health(), Health::Connecting(why) if is_older(&why)) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        // The limit only ends a test that hangs.
        tokio::time::timeout(Duration::from_secs(60), refused).await.expect("the copy is refused");
        current.replace(own);
        check_read_back(&volume).await;
        assert_eq!(volume.read_range(6 << 20, 1).await.expect("it is a disk"), vec![8]);
    });
}

#[test]
fn node_without_data_or_of_another_pool_is_refused() {
    local(async {
        let (mut world, other) = (World::new(), World::new());
        let volume = world.join(None, "p", &[0, 1, 2], false).await.expect("a pool");
        check_read_back(&volume).await;
        drop(other.join(None, "q", &[0, 1, 2], false).await.expect("a pool"));
        let own = world.nodes[1].clone();
        world.nodes[1] = other.nodes[1].clone();
        let why = world.join(None, "p", &[0, 1, 2], false).await.expect_err("it is another's").to_string();
        assert!(why.contains("belongs to the pool \"q\""), "{why}");
        check_read_back(&volume).await;
        world.nodes[1] = World::new().nodes[1].clone();
        let why = world.join(None, "p", &[0, 1, 2], false).await.expect_err("its data are gone").to_string();
        assert!(why.contains("is new, but") && why.contains("pool forget"), "{why}");
        world.nodes[1] = own;
        check_read_back(&world.join(None, "p", &[0, 1, 2], false).await.expect("the same nodes")).await;
    });
}
