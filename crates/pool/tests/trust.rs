//! Authentication, and the errors of both ends: nodes and coordinators in one process, over TCP on loopback.

use bytes::Bytes;
use pool::connect::{Connect, tcp_with_key};
use pool::frame;
use pool::hello::Hello;
use pool::layout::Arrangement;
use pool::link::{Control, Options, greet};
use pool::node::Node;
use pool::protocol::{Claim, StorePosition};
use pool::store::Store;
use pool::unique_name::new_name;
use pool::volume::Volume;
use std::cell::RefCell;
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use wire::Key;

const STORE_BYTES: u64 = 1 << 20;

fn local(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, work);
}

fn key(seed: u8) -> Key {
    Key::from_seed([seed; 32]).expect("any seed is a key")
}

/// A node in memory, and its reports.
struct TestNode {
    address: SocketAddr,
    reports: Rc<RefCell<Vec<String>>>,
}

impl TestNode {
    async fn new(key: Option<Key>) -> Self {
        let store = Arc::new(Store::memory(STORE_BYTES, new_name()).expect("memory"));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("an address");
        let reports = Rc::<RefCell<Vec<String>>>::default();
        let (node, log) = (Node::with_key(store, true, key), reports.clone());
        tokio::task::spawn_local(async move {
            let report = Rc::new(move |line| log.borrow_mut().push(line));
            node.listen(listener, report, std::future::pending::<()>()).await;
        });
        Self { address, reports }
    }

    /// Waits until the node has reported this.
    async fn wait_for_report(&self, words: &str) {
        for _ in 0..6000 {
            if self.reports.borrow().iter().any(|line| line.contains(words)) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("the node reported {:?}, and not {words:?}", self.reports.borrow());
    }
}

async fn join(connect: &Connect, address: SocketAddr) -> Result<Volume, String> {
    let options = Options { connections: 3, ..Options::default() };
    let joined =
        Volume::join(connect, &[address], "p", Arrangement::Concatenated, &options, &Control::Tuned, Rc::new(drop))
            .await;
    joined.map_err(|error| error.to_string())
}

async fn check_refused(connect: &Connect, address: SocketAddr, words: &str) {
    let error = join(connect, address).await.map(drop).expect_err("it must not be let in");
    assert!(error.contains(words), "{error}, and not {words}");
}

/// The load is larger than any buffer on the path, in both directions at once, so that a stream that holds data back or
/// waits for the wrong end would hang.
#[test]
fn data_arrives_intact_with_a_shared_key() {
    local(async {
        let node = TestNode::new(Some(key(1))).await;
        let volume = Rc::new(join(&tcp_with_key(Some(key(1))), node.address).await.expect("one key"));
        let bytes = |nth: u64| Bytes::from((0..60_000).map(|at| (at as u64 * 7 + nth) as u8).collect::<Vec<u8>>());
        for round in 0..4_u64 {
            let tasks: Vec<_> = (0..16_u64)
                .map(|nth| {
                    let volume = volume.clone();
                    let data = bytes(nth + round);
                    tokio::task::spawn_local(async move {
                        let at = nth * 65_536;
                        volume.write_range(at, data.clone(), false).await.expect("written");
                        for small in 0..50 {
                            volume.read_range(at + small * 512, 512).await.expect("read");
                        }
                        assert!(volume.read_range(at, 60_000).await.expect("read") == data);
                    })
                })
                .collect();
            for task in tasks {
                task.await.expect("it ended");
            }
        }
        assert!(volume.read_range(1 << 19, 1).await.is_ok());
        for _ in 0..6000 {
            if volume.links()[0].counts().connections == 3 {
                break;
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        assert_eq!(volume.links()[0].counts().connections, 3, "each is encrypted");
        assert!(node.reports.borrow().is_empty(), "{:?}", node.reports.borrow());
    });
}

#[test]
fn wrong_key_is_refused_and_reported_at_both_ends() {
    local(async {
        let node = TestNode::new(Some(key(1))).await;
        check_refused(&tcp_with_key(Some(key(2))), node.address, &format!("peer's key ({})", key(1).fingerprint()))
            .await;
        node.wait_for_report(&format!("differs from this end's ({})", key(1).fingerprint())).await;
    });
}

#[test]
fn missing_key_is_refused_and_reported_at_both_ends() {
    local(async {
        let node = TestNode::new(Some(key(1))).await;
        check_refused(&tcp_with_key(None), node.address, "give --key FILE").await;
        node.wait_for_report("the peer was started without a key").await;
        let open = TestNode::new(None).await;
        check_refused(&tcp_with_key(Some(key(1))), open.address, "the peer was started without a key").await;
        open.wait_for_report("give --key FILE").await;
    });
}

#[test]
fn unauthenticated_peers_are_refused() {
    local(async {
        for (key, words) in [
            (Some(key(1)), "unknown protocol: the peer's first bytes are \"GET / HT\""),
            (None, "does not speak Fathom's pool protocol"),
        ] {
            let node = TestNode::new(key.clone()).await;
            let mut stranger = TcpStream::connect(node.address).await.expect("it listens");
            stranger.write_all(b"GET / HTTP/1.0\r\n\r\n").await.expect("it reads");
            let mut rest = Vec::new();
            // EOF and reset are both fine.
            let _ = stranger.read_to_end(&mut rest).await;
            node.wait_for_report(words).await;
            // And it continues to serve.
            assert!(join(&tcp_with_key(key), node.address).await.is_ok());
        }
    });
}

/// A server that is not a node.
#[test]
fn server_that_is_not_a_node_is_recognised() {
    local(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback");
        let address = listener.local_addr().expect("an address");
        tokio::task::spawn_local(async move {
            // The connections stay open: closing would cause another error.
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
                open.push(stream);
            }
        });
        check_refused(
            &tcp_with_key(Some(key(1))),
            address,
            "unknown protocol: the peer's first bytes are \"SSH-2.0-\"",
        )
        .await;
        check_refused(&tcp_with_key(None), address, "does not speak Fathom's pool protocol").await;
    });
}

#[test]
fn other_version_and_older_epoch_are_refused_with_a_reason() {
    local(async {
        let node = TestNode::new(Some(key(1))).await;
        let connect = tcp_with_key(Some(key(1)));
        let look = Hello { protocol: frame::VERSION - 1, pool: "p".into(), claim: None };
        let why = greet(&connect, node.address, &look).await.map(drop).expect_err("it is too old").to_string();
        assert!(why.contains(&format!("version {}", frame::VERSION - 1)) && why.contains("same release"), "{why}");
        node.wait_for_report("same release").await;

        let current = Hello { protocol: frame::VERSION, ..look };
        let (_, welcome) = greet(&connect, node.address, &current).await.expect("it may look");
        let place = StorePosition { index: 0, count: 1, stripe_bytes: 0, mirror: None };
        let claim = |epoch, coordinator: &str| Hello {
            claim: Some(Claim {
                epoch,
                coordinator: coordinator.into(),
                node: welcome.node.clone(),
                size_bytes: STORE_BYTES,
                place: place.clone(),
                joins: None,
                also: Default::default(),
            }),
            ..current.clone()
        };
        let held = greet(&connect, node.address, &claim(7, "first")).await.expect("it is free");
        for (epoch, coordinator) in [(6, "second"), (7, "third")] {
            let hello = claim(epoch, coordinator);
            let why = greet(&connect, node.address, &hello).await.map(drop).expect_err("it is taken").to_string();
            assert!(why.contains("another coordinator has taken over (epoch 7"), "{why}");
            node.wait_for_report(&format!("this one's is {epoch}")).await;
        }
        drop(held);
    });
}
