//! What a pool's node and coordinator read from the other end.

use bytes::{Buf, Bytes, BytesMut};
use pool::config::Config;
use pool::frame::{self, Frame, FrameHeader, Operation, Reply, Report, Request, Status, Stretch};
use pool::hello::{self, Answer, Hello, Wait, Welcome};
use pool::protocol::{Claim, DiskPosition, Loss, LossCause, StorePosition};
use std::slice::from_ref;

const FRAME_DATA: &[u8] = &[7; 600];

pub fn frame_seeds() -> Vec<Vec<u8>> {
    let head = FrameHeader { epoch: 3, sequence: 9, granted: 64, queued: 2, service_us: 15 };
    let request = |operation, tag| Request {
        operation,
        durable: tag == 2,
        unchecked: tag == 1,
        extent_count: 0,
        tag,
        length: FRAME_DATA.len() as u32,
        offset: 4096,
    };
    let operations =
        [Operation::Read, Operation::Write, Operation::Flush, Operation::Trim, Operation::Map, Operation::Verify];
    let requests: Vec<Request> = operations.into_iter().zip(0..).map(|(o, tag)| request(o, tag)).collect();
    let reply = |status, tag, length| Reply { status, placed: false, tag, length, checksum: 5 };
    let replies = [reply(Status::Done, 0, FRAME_DATA.len() as u32), reply(Status::Damaged, 1, 0)];
    let (mut asked, mut replied) = (BytesMut::new(), BytesMut::new());
    let data = [Bytes::from_static(FRAME_DATA)];
    frame::put_requests(&mut asked, &head, &requests, |_| &data);
    frame::put_replies(&mut replied, &head, &replies, FRAME_DATA, &[]);
    let mut reported = BytesMut::new();
    frame::put_report(&mut reported, &head, &Report { progress: 7, writes_wait: true, ..Report::default() });
    vec![asked.to_vec(), replied.to_vec(), reported.to_vec()]
}

/// A frame that is taken is one that could have been written: written again it is the same. Checksums would hide all that is
/// behind them from broken inputs, so they are made right first.
pub fn check_frame(bytes: &[u8]) {
    for mended in [false, true] {
        let mut input = BytesMut::from(bytes);
        if mended {
            mend_sums(&mut input);
        }
        let whole = input.clone();
        let mut again = BytesMut::new();
        match frame::take(&mut input) {
            Ok(Some(Frame::Requests(head, requests))) => {
                let entries: Vec<Request> = requests.iter().map(|(request, _)| *request).collect();
                frame::put_requests(&mut again, &head, &entries, |nth| from_ref(&requests[nth].1));
            }
            Ok(Some(Frame::Replies(head, replies))) => {
                let entries: Vec<Reply> = replies.iter().map(|(reply, _)| *reply).collect();
                let data: Vec<u8> = replies.iter().flat_map(|(_, data)| data.to_vec()).collect();
                frame::put_replies(&mut again, &head, &entries, &data, &[]);
            }
            Ok(Some(Frame::Report(head, report))) => frame::put_report(&mut again, &head, &report),
            Ok(None) => assert_eq!(input, whole, "a frame that is not whole stays"),
            Err(_) => {}
        }
        assert!(again.len() + input.len() == whole.len() || again.is_empty());
        // Bits that mean nothing are not kept, so it is what is read that is compared.
        if !again.is_empty() {
            let (mut first, mut second) = (whole, again);
            assert_eq!(frame::take(&mut first), frame::take(&mut second));
        }
    }
}

pub fn config_seeds() -> Vec<Vec<u8>> {
    let serve = "[serve]\nnodes = [\"a:1\", \"b:2\"]\nlayout = \"stripe\"\nnbd = \"unix:/p\"\ntls = \"t\"\nverify_clients = true\n";
    let node = "key = \"k\"\n[node]\nstore = \"s\"\nlisten = \"a:1\"\nmetrics = \"b:1\"\n";
    vec![serve.into(), node.into(), format!("{node}{serve}").into_bytes()]
}

/// A configuration that is taken has something to do, each node once, and no path that begins elsewhere than it says.
pub fn check_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(config) = Config::parse(text, std::path::Path::new("/directory")) {
        assert!(config.serve.is_some() || config.node.is_some());
        assert!(config.key.is_none_or(|key| key.is_absolute()));
        if let Some(serve) = config.serve {
            let each: std::collections::HashSet<&str> = serve.nodes.iter().map(|node| node.address()).collect();
            assert!(!each.is_empty() && each.len() == serve.nodes.len());
        }
    }
}

pub fn map_seeds() -> Vec<Vec<u8>> {
    let mut data = Vec::new();
    for (length, hole) in [(4096, true), (100, false), (1 << 30, true)] {
        Stretch { length, hole }.put(&mut data);
    }
    vec![data]
}

/// The stretches of an answer never exceed what was asked, and are written again the same but for bits without meaning.
pub fn check_map(bytes: &[u8]) {
    for length in [1 << 20, u32::MAX] {
        if let Some(stretches) = Stretch::parse_all(bytes, length) {
            let mut again = Vec::new();
            stretches.iter().for_each(|stretch| stretch.put(&mut again));
            assert_eq!(Stretch::parse_all(&again, length), Some(stretches.clone()));
            assert!(stretches.iter().map(|stretch| u64::from(stretch.length)).sum::<u64>() <= u64::from(length));
        }
    }
}

fn mend_sums(bytes: &mut BytesMut) {
    if bytes.len() < frame::HEADER_BYTES + 4 {
        return;
    }
    let (kind, count) = (bytes[5], usize::from((&bytes[6..8]).get_u16_le()));
    let body = bytes.len() - frame::HEADER_BYTES;
    bytes[8..12].copy_from_slice(&(body as u32).to_le_bytes());
    let sum = crc32c::crc32c(&bytes[..36]);
    bytes[36..40].copy_from_slice(&sum.to_le_bytes());
    let end = bytes.len() - 4;
    let summed = match kind {
        1 => end,
        3 => end.min(frame::HEADER_BYTES + count * frame::REPORT_BYTES),
        _ => end.min(frame::HEADER_BYTES + count * frame::REPLY_BYTES),
    };
    let sum = crc32c::crc32c(&bytes[frame::HEADER_BYTES..summed]);
    bytes[end..].copy_from_slice(&sum.to_le_bytes());
}

pub fn hello_seeds() -> Vec<Vec<u8>> {
    let place = StorePosition { index: 1, count: 3, stripe_bytes: 65_536, mirror: None };
    let (node, pool) = ("n".to_string(), "p".to_string());
    let claim = Claim {
        epoch: 7,
        coordinator: "c".into(),
        node: node.clone(),
        size_bytes: 1 << 30,
        place: place.clone(),
        joins: Some(3),
        also: Default::default(),
    };
    let welcome = Welcome {
        files: None,
        node,
        pool: pool.clone(),
        place: Some(place),
        epoch: 6,
        size_bytes: 1,
        granted: 9,
        boot: "b".into(),
        session: 5,
        served: false,
        reserved: true,
        unflushed: true,
        loss: Loss { ranges: vec![(4096, 8192)], causes: vec![LossCause::FlushFailed], id: "i".into() },
        sequence: 8,
        instance: "s".into(),
        store: "/dev/sdx".into(),
        disk: Some(DiskPosition { begin_bytes: 4096, disk_bytes: 1 << 20 }),
        empty: false,
        durable: Some(true),
        memory: true,
    };
    let mut messages = [BytesMut::new(), BytesMut::new(), BytesMut::new(), BytesMut::new()];
    let put = [
        hello::put_message(&mut messages[0], &Hello { protocol: 1, pool, claim: Some(claim) }),
        hello::put_message(&mut messages[1], &Answer::Welcome(Box::new(welcome))),
        hello::put_message(&mut messages[2], &Answer::Refused("no".into())),
        hello::put_message(&mut messages[3], &Answer::Wait(Wait { progress: 3 })),
    ];
    // Without seeds a target would test nothing, so this must be loud.
    assert!(put.iter().all(Result::is_ok), "the seeds cannot be made");
    messages.iter().map(|message| message.to_vec()).collect()
}

/// What is understood is understood the same when it is said again.
pub fn check_hello(bytes: &[u8]) {
    if let Ok(Some(message)) = hello::take_message::<Hello>(&mut BytesMut::from(bytes)) {
        let mut again = BytesMut::new();
        if hello::put_message(&mut again, &message).is_ok() {
            assert_eq!(hello::take_message::<Hello>(&mut again).ok().flatten(), Some(message));
        }
    }
    if let Ok(Some(message)) = hello::take_message::<Answer>(&mut BytesMut::from(bytes)) {
        let mut again = BytesMut::new();
        if hello::put_message(&mut again, &message).is_ok() {
            assert_eq!(hello::take_message::<Answer>(&mut again).ok().flatten(), Some(message));
        }
    }
}
