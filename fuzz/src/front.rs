//! Both sides of NBD past its handshake: what a server makes of any requests, and a client of any replies.

use crate::disk::{push_option, push_request, serve_client};
use nbd::wire;
use pool::nbd_bench::{self, Load, Uri};
use std::io::{Read, Write};
use std::time::Duration;

/// Takes `N` bytes as a number.
fn take_number<const N: usize>(bytes: &mut &[u8]) -> Option<u64> {
    let (first, rest) = bytes.split_first_chunk::<N>()?;
    *bytes = rest;
    Some(first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

fn skip_bytes(bytes: &mut &[u8], count: usize) -> Option<()> {
    *bytes = bytes.get(count..)?;
    Some(())
}

/// How a session begins: simple replies by EXPORT_NAME, or structured ones and `base:allocation` by GO.
fn session_start(structured: bool) -> Vec<u8> {
    let mut bytes = 3_u32.to_be_bytes().to_vec();
    if structured {
        push_option(&mut bytes, wire::option::STRUCTURED_REPLY, &[]);
        let context = [&[0; 4][..], &1_u32.to_be_bytes(), &15_u32.to_be_bytes(), b"base:allocation"].concat();
        push_option(&mut bytes, wire::option::SET_META_CONTEXT, &context);
        push_option(&mut bytes, wire::option::GO, &[0; 6]);
    } else {
        push_option(&mut bytes, wire::option::EXPORT_NAME, &[]);
    }
    bytes
}

/// The first byte says how the session begins; requests follow.
pub fn request_seeds() -> Vec<Vec<u8>> {
    [0, 1]
        .into_iter()
        .map(|way| {
            let mut bytes = vec![way];
            for command in 0..9 {
                let payload = [9; 600];
                let payload = if command == wire::command::WRITE { &payload[..] } else { &[] };
                if command != wire::command::DISCONNECT {
                    push_request(&mut bytes, command, 0, u64::from(command) * 512, 600, payload);
                }
            }
            bytes
        })
        .collect()
}

/// The cookies of the requests that a client said whole, up to what is none.
fn request_cookies(mut bytes: &[u8]) -> Vec<u64> {
    let mut cookies = Vec::new();
    let mut one = || -> Option<u64> {
        let magic = take_number::<4>(&mut bytes)?;
        let (_flags, command, cookie) =
            (take_number::<2>(&mut bytes)?, take_number::<2>(&mut bytes)?, take_number::<8>(&mut bytes)?);
        let (_offset, length) = (take_number::<8>(&mut bytes)?, take_number::<4>(&mut bytes)?);
        if magic != u64::from(wire::REQUEST_MAGIC) || command == u64::from(wire::command::DISCONNECT) {
            return None;
        }
        if command == u64::from(wire::command::WRITE) {
            // A write that is refused is answered before its data are there.
            let there = bytes.len().min(length as usize);
            skip_bytes(&mut bytes, there)?;
        }
        Some(cookie)
    };
    while let Some(cookie) = one() {
        cookies.push(cookie);
    }
    cookies
}

/// The cookies of the replies, each taken apart as the protocol says; `None` if they are not whole replies.
fn reply_cookies(mut bytes: &[u8], structured: bool, lengths: impl Fn(u64) -> Option<usize>) -> Option<Vec<u64>> {
    let mut cookies = Vec::new();
    while !bytes.is_empty() {
        let magic = take_number::<4>(&mut bytes)?;
        if structured {
            let (flags, kind) = (take_number::<2>(&mut bytes)?, take_number::<2>(&mut bytes)?);
            let (cookie, length) = (take_number::<8>(&mut bytes)?, take_number::<4>(&mut bytes)? as usize);
            let known = magic == u64::from(wire::STRUCTURED_REPLY_MAGIC) && flags == 1;
            if !known || ![0, 1, 5, 0x8001].contains(&kind) || (kind == 0) != (length == 0) {
                return None;
            }
            skip_bytes(&mut bytes, length)?;
            cookies.push(cookie);
        } else {
            let (error, cookie) = (take_number::<4>(&mut bytes)?, take_number::<8>(&mut bytes)?);
            if magic != u64::from(wire::SIMPLE_REPLY_MAGIC) {
                return None;
            }
            if error == 0 {
                skip_bytes(&mut bytes, lengths(cookie)?)?;
            }
            cookies.push(cookie);
        }
    }
    Some(cookies)
}

/// Every request is answered once, by its cookie, in replies that a client can take apart.
pub fn check_requests(bytes: &[u8]) {
    let Some((way, bytes)) = bytes.split_first() else { return };
    let structured = way % 2 == 1;
    // Data follow the simple reply to a read, and only its cookie says that it is one: each request gets a cookie of its own.
    let (bytes, reads) = number_requests(bytes);
    let (_, greeting) = serve_client(&session_start(structured));
    let (ended, all) = serve_client(&[session_start(structured), bytes.clone()].concat());
    let lengths = |cookie: u64| reads.get(cookie as usize).copied();
    let said = all.strip_prefix(&greeting[..]).unwrap_or_else(|| panic!("the handshake depends on what follows it"));
    let answered =
        reply_cookies(said, structured, lengths).unwrap_or_else(|| panic!("a reply is not whole: {said:02x?}"));
    let mut expected = request_cookies(&bytes);
    let mut sorted = answered;
    sorted.sort_unstable();
    if ended.is_ok() {
        assert_eq!(sorted, expected, "some are not answered, or twice");
    } else {
        expected.retain(|cookie| sorted.binary_search(cookie).is_ok());
        assert_eq!(sorted, expected, "an answer to nothing");
    }
}

/// The same requests with cookies 0, 1, 2 and so on, and the bytes that the success of each brings.
fn number_requests(bytes: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let (mut out, mut reads, mut at) = (bytes.to_vec(), Vec::new(), 0);
    while let Some(head) = bytes.get(at..at + wire::REQUEST_BYTES).and_then(|head| head.first_chunk()) {
        let Some(request) = wire::Request::parse(head) else { break };
        out[at + 8..at + 16].copy_from_slice(&(reads.len() as u64).to_be_bytes());
        reads.push(if request.command == wire::command::READ { request.length as usize } else { 0 });
        at += wire::REQUEST_BYTES + if request.has_payload() { request.length as usize } else { 0 };
    }
    (out, reads)
}

/// Requests under way of the client.
const REQUESTS_MAX: u32 = 4;
/// Bytes of each.
const BLOCK_BYTES: u32 = 512;

/// A server's whole side of a session: greeting, the export, and replies in another order than the requests.
pub fn reply_seeds() -> Vec<Vec<u8>> {
    let (_, mut bytes) = serve_client(&{
        let mut says = 3_u32.to_be_bytes().to_vec();
        push_option(&mut says, wire::option::GO, &[0; 6]);
        says
    });
    for cookie in [0x0_0000_u64, 0x3_0003, 0x2_0002, 0x1_0001] {
        bytes.extend(wire::SIMPLE_REPLY_MAGIC.to_be_bytes());
        bytes.extend([0; 4]);
        bytes.extend(cookie.to_be_bytes());
        bytes.extend([0; BLOCK_BYTES as usize]);
    }
    let mut refused = bytes.clone();
    refused.truncate(bytes.len() - BLOCK_BYTES as usize);
    let error = refused.len() - 12;
    refused[error + 3] = 5;
    vec![bytes, refused]
}

/// A server that has said all it will ever say.
struct Server(std::io::Cursor<Vec<u8>>);

impl Read for Server {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        self.0.read(into)
    }
}

impl Write for Server {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whatever a server says, the client ends when it has said it, with a reason.
pub fn check_replies(bytes: &[u8]) {
    let load = Load {
        block_bytes: BLOCK_BYTES,
        depth: REQUESTS_MAX,
        batch: 1,
        duration: Duration::from_secs(60),
        write: bytes.len() % 2 == 1,
        fill: false,
        compare: false,
        seed: 1,
        server: None,
    };
    let place: Uri = "nbd://nowhere/".parse().unwrap_or_else(|why| panic!("{why}"));
    let server = Box::new(Server(std::io::Cursor::new(bytes.to_vec())));
    assert!(nbd_bench::run_over(server, &place, &load).is_err(), "the server is gone before the time is over");
}
