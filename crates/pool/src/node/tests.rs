use super::*;
use crate::frame::{self, Frame, FrameHeader, Operation};
use crate::protocol::StorePosition;
use tokio::io::AsyncReadExt as _;

fn hello(epoch: u64, coordinator: &str) -> Hello {
    let place = StorePosition { index: 0, count: 1, stripe_bytes: 0, mirror: None };
    let claim = Claim {
        epoch,
        coordinator: coordinator.into(),
        node: "n".into(),
        size_bytes: 4096,
        place,
        joins: None,
        also: crate::protocol::ClaimExtensions::default(),
    };
    Hello { protocol: crate::frame::VERSION, pool: "p".into(), claim: Some(claim) }
}

#[tokio::test(flavor = "current_thread")]
async fn returning_older_coordinator_is_fenced_off() {
    let node = Node::new(Arc::new(Store::memory(1 << 20, "n".into()).expect("memory")), true);
    node.enter(&hello(1, "old")).await.expect("it is free");
    // A request of the old session is still being served, so the new one has to wait.
    let working = BusyGuard::new(&node.busy);
    let newer = hello(2, "new");
    let mut entering = std::pin::pin!(node.enter(&newer));
    tokio::time::timeout(Duration::ZERO, &mut entering).await.expect_err("it waits");
    let older = hello(1, "old");
    let refused = tokio::time::timeout(Duration::ZERO, node.enter(&older)).await.expect("it is refused at once");
    let refused = refused.expect_err("it is fenced off");
    assert!(refused.to_string().contains("another coordinator has taken over"), "{refused}");
    drop(working);
    assert_eq!(entering.await.expect("no newer one came").map(|(session, _)| session.epoch), Some(2));
}

#[tokio::test(flavor = "current_thread")]
async fn further_connection_joins_only_the_current_session() {
    let node = Node::new(Arc::new(Store::memory(1 << 20, "n".into()).expect("memory")), true);
    let further = |epoch, coordinator: &str, session| {
        let mut hello = hello(epoch, coordinator);
        hello.claim.iter_mut().for_each(|claim| claim.joins = Some(session));
        hello
    };
    let refused = |answer: Result<Option<(Session, OpenGuard<'_>)>, Refusal>| {
        assert!(answer.is_err_and(|why| why == Refusal::TakenOver), "it must not be let in");
    };
    refused(node.enter(&further(1, "a", *node.current_session.borrow())).await);
    let (first, open) = node.enter(&hello(1, "a")).await.expect("it is free").expect("it claims");
    let (joined, _) = node.enter(&further(1, "a", first.number)).await.expect("it is let in").expect("it claims");
    assert_eq!(joined, first);
    assert_eq!(*node.current_session.borrow(), first.number, "the first goes on");
    refused(node.enter(&further(1, "b", first.number)).await);
    refused(node.enter(&further(2, "a", first.number)).await);
    refused(node.enter(&further(1, "a", first.number + 1)).await);
    // Accepted connections count at once, before they are answered.
    let mut all = vec![open];
    while all.len() < usize::from(CONNECTIONS_MAX) {
        let further = node.enter(&further(1, "a", first.number)).await.expect("there is room").expect("it claims");
        all.push(further.1);
    }
    let one_more = node.enter(&further(1, "a", first.number)).await.expect_err("there are enough");
    assert_eq!(one_more, Refusal::TooManyConnections);
    drop(all);
    assert_eq!(node.open_connections.load(Ordering::Acquire), 0);
    // The coordinator starts again: late connections of its old session are refused.
    let (second, _) = node.enter(&hello(1, "a")).await.expect("it is the same").expect("it claims");
    refused(node.enter(&further(1, "a", first.number)).await);
    let (joined, _) = node.enter(&further(1, "a", second.number)).await.expect("it is let in").expect("it claims");
    assert_eq!(joined, second);
    // Requests read from an old session's connection are not served.
    let mut served = ServedReplies::default();
    let request = Request {
        operation: Operation::Trim,
        durable: false,
        unchecked: false,
        extent_count: 0,
        tag: 0,
        length: 1,
        offset: 0,
    };
    let requests = || Batch::new(vec![(request, Bytes::new())].into_iter());
    assert!(matches!(node.serve_now(first.number, &mut requests(), &mut served), Err(ConnectionEnd::TakenOver)));
    assert!(matches!(node.serve_now(second.number, &mut requests(), &mut served), Ok(true)));
}

/// A coordinator that joins later may then vouch for what is flushed, though the store still has marks.
#[test]
fn welcome_tells_what_is_unflushed_and_not_what_is_marked() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().join("store");
    let store = Store::format(&place, Some(64 << 20), "n".into(), false).expect("a store");
    let node = Node::new(Arc::new(store), false);
    let unflushed = |node: &Node| match node.welcome(0, 0, false) {
        Answer::Welcome(welcome) => welcome.unflushed,
        other => panic!("{other:?}"),
    };
    let (mut random, mut differs) = (stats::random::Random::new(3), 0);
    for step in 0..400 {
        let offset = random.bits() % (63 << 20);
        let (is_flush, is_durable) = (random.bits() % 3 == 0, random.bits() % 3 == 0);
        let done = if is_flush { node.store.flush() } else { node.store.write(offset, &[1; 5000], is_durable) };
        done.expect("it has room");
        let is_unflushed = !(is_flush || is_durable);
        assert_eq!(unflushed(&node), is_unflushed, "step {step}");
        differs += u32::from(node.store.header().is_marked() && !is_unflushed);
    }
    assert!(differs > 0, "marks went with the flush");
    // A process that was killed does not know.
    node.store.write(0, &[3; 5000], true).expect("it has room");
    drop(node);
    let node = Node::new(Arc::new(Store::open(&place).expect("it is whole")), false);
    assert!(unflushed(&node));
    node.store.flush().expect("it is on the medium");
    assert!(!unflushed(&node));
}

#[tokio::test(flavor = "current_thread")]
async fn requests_beyond_the_grant_are_refused_before_buffering() {
    let node = Node::new(Arc::new(Store::memory(1 << 20, "n".into()).expect("memory")), true);
    for (count, granted) in [(64, true), (65, false)] {
        let (here, mut there) = tokio::io::duplex(1 << 20);
        let asks = async {
            hello::send(&mut there, &hello(1, "a")).await.expect("it listens");
            hello::receive::<_, Answer>(&mut there, &mut BytesMut::new()).await.expect("it answers");
            let length = frame::DATA_BYTES_MAX as u32;
            let read = |tag| Request {
                operation: Operation::Read,
                durable: false,
                unchecked: false,
                extent_count: 0,
                tag,
                length,
                offset: 0,
            };
            let mut out = BytesMut::new();
            let all: Vec<Request> = (0..count).map(read).collect();
            frame::put_requests(&mut out, &FrameHeader { epoch: 1, ..FrameHeader::default() }, &all, |_| &[]);
            there.write_all(&out).await.expect("it reads");
            there.shutdown().await.expect("it is there");
            tokio::io::copy(&mut there, &mut tokio::io::sink()).await.expect("what it answers")
        };
        let (served, answered) = tokio::join!(node.serve_connection(here), asks);
        let why = served.err().map_or_else(String::new, |why| why.to_string());
        assert!(if granted { why.is_empty() } else { why.contains("more data in flight") }, "{count}: {why}");
        assert_eq!(answered > 64 << 20, granted);
    }
}

/// Otherwise merged frames would stay merged for ever, and leave the link idle although it could carry the next frame
/// while one is served.
#[tokio::test(flavor = "current_thread")]
async fn reply_frames_do_not_exceed_the_largest_request_frame() {
    let node = Node::new(Arc::new(Store::memory(1 << 20, "n".into()).expect("memory")), true);
    let (here, mut there) = tokio::io::duplex(1 << 20);
    let asks = async {
        hello::send(&mut there, &hello(1, "a")).await.expect("it listens");
        hello::receive::<_, Answer>(&mut there, &mut BytesMut::new()).await.expect("it answers");
        let mut out = BytesMut::new();
        let mut tags = 0..;
        for count in [2, 3, 1] {
            let read = |tag| Request {
                operation: Operation::Read,
                durable: false,
                unchecked: false,
                extent_count: 0,
                tag,
                length: 1,
                offset: u64::from(tag),
            };
            let requests: Vec<Request> = tags.by_ref().take(count).map(read).collect();
            let head = FrameHeader { epoch: 1, granted: GRANTED_REQUESTS_MAX, ..FrameHeader::default() };
            frame::put_requests(&mut out, &head, &requests, |_| &[]);
        }
        there.write_all(&out).await.expect("it reads");
        there.shutdown().await.expect("it is there");
        let mut input = BytesMut::new();
        while there.read_buf(&mut input).await.expect("it answers") > 0 {}
        let mut answered = Vec::new();
        while let Some(answer) = frame::take(&mut input).expect("whole frames") {
            match answer {
                Frame::Replies(_, replies) => answered.push(replies.len()),
                Frame::Report(..) => {}
                Frame::Requests(..) => panic!("not a request"),
            }
        }
        answered
    };
    let (served, answered) = tokio::join!(node.serve_connection(here), asks);
    served.expect("it ends well");
    assert_eq!(answered, [3, 3]);
}
