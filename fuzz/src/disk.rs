//! What a coordinator reads from NBD clients, and a node from a store that anybody may have changed.

use crc32c::crc32c;
use nbd::memory::Memory;
use nbd::{Single, Tls, wire};
use pool::frame::Status;
use pool::protocol::{Claim, StorePosition};
use pool::store::{BLOCK_BYTES, Store};
use std::io::{Seek, Write};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes of the disk that is served.
const DISK_BYTES: u64 = 1 << 20;

pub fn push_option(out: &mut Vec<u8>, option: u32, data: &[u8]) {
    out.extend(wire::OPTION_MAGIC.to_be_bytes());
    out.extend(option.to_be_bytes());
    out.extend((data.len() as u32).to_be_bytes());
    out.extend(data);
}

pub fn push_request(out: &mut Vec<u8>, command: u16, flags: u16, offset: u64, length: u32, payload: &[u8]) {
    out.extend(wire::REQUEST_MAGIC.to_be_bytes());
    out.extend(flags.to_be_bytes());
    out.extend(command.to_be_bytes());
    out.extend(7_u64.to_be_bytes());
    out.extend(offset.to_be_bytes());
    out.extend(length.to_be_bytes());
    out.extend(payload);
}

/// Whole sessions: the old way and the new one, with every command.
pub fn session_seeds() -> Vec<Vec<u8>> {
    let mut commands = Vec::new();
    push_request(&mut commands, wire::command::WRITE, wire::flag::FUA, 4096, 600, &[5; 600]);
    push_request(&mut commands, wire::command::READ, wire::flag::DF, 4000, 1000, &[]);
    for command in [wire::command::TRIM, wire::command::CACHE, wire::command::WRITE_ZEROES, wire::command::BLOCK_STATUS]
    {
        push_request(&mut commands, command, 0, 0, 1 << 19, &[]);
    }
    push_request(&mut commands, wire::command::FLUSH, 0, 0, 0, &[]);
    push_request(&mut commands, wire::command::DISCONNECT, 0, 0, 0, &[]);
    let flags = 3_u32.to_be_bytes().to_vec();
    let (mut old, mut new) = (flags.clone(), flags);
    push_option(&mut old, wire::option::EXPORT_NAME, b"disk");
    old.extend(&commands);
    push_option(&mut new, wire::option::LIST, &[]);
    push_option(&mut new, wire::option::STRUCTURED_REPLY, &[]);
    let context = [&4_u32.to_be_bytes()[..], b"disk", &1_u32.to_be_bytes(), &15_u32.to_be_bytes(), b"base:allocation"];
    push_option(&mut new, wire::option::SET_META_CONTEXT, &context.concat());
    push_option(&mut new, wire::option::GO, &[&4_u32.to_be_bytes()[..], b"disk", &[0, 1, 0, 3]].concat());
    new.extend(commands);
    vec![old, new]
}

/// A client that has sent everything, and keeps what it receives.
#[derive(Default)]
pub struct ScriptedStream<'b> {
    pub says: &'b [u8],
    pub received: Vec<u8>,
}

impl AsyncRead for ScriptedStream<'_> {
    fn poll_read(mut self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let (now, rest) = self.says.split_at(self.says.len().min(into.remaining()));
        into.put_slice(now);
        self.says = rest;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScriptedStream<'_> {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        self.received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

thread_local! {
    static TOKIO_RUNTIME: tokio::runtime::Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime needs only memory");
}

/// Whatever a client says, the session ends when it has said it, and does not panic.
pub fn check_session(bytes: &[u8]) {
    // How it ends is the client's affair.
    drop(serve_client(bytes));
}

/// How the session of a client ends, and what it received.
pub fn serve_client(says: &[u8]) -> (Result<(), nbd::Failure>, Vec<u8>) {
    let exports = Single { name: "disk".into(), export: Memory::new(DISK_BYTES) };
    let mut client = ScriptedStream { says, received: Vec::new() };
    let ended = TOKIO_RUNTIME.with(|runtime| runtime.block_on(nbd::serve(&mut client, &exports, &Tls::Off)));
    (ended, client.received)
}

/// Blocks of the stores that are changed.
const BLOCK_COUNT: u64 = 8;

/// A store that was closed in order, and one that was not.
pub fn store_seeds() -> Vec<Vec<u8>> {
    let directory = tempfile::tempdir().expect("a directory");
    [true, false]
        .into_iter()
        .map(|close| {
            let path = directory.path().join(close.to_string());
            let store =
                Store::format(&path, Some(BLOCK_COUNT * BLOCK_BYTES), "n".into(), false).expect("there is room");
            let place = StorePosition { index: 0, count: 1, stripe_bytes: 0, mirror: None };
            let claim = Claim {
                epoch: 1,
                coordinator: "c".into(),
                node: "n".into(),
                size_bytes: BLOCK_BYTES,
                place,
                joins: None,
                also: Default::default(),
            };
            store.claim("p", &claim).expect("it is free");
            for round in 1..4 {
                store.write(round * 3000, &[round as u8; 9000], true).expect("there is room");
            }
            if close {
                store.close().expect("it closes");
            }
            std::fs::read(path).expect("it is there")
        })
        .collect()
}

/// A store that opens, whatever was done to it, gives only blocks that its table vouches for, and takes new ones.
pub fn check_store(bytes: &[u8]) {
    thread_local! {
        static IMAGE_FILE: tempfile::NamedTempFile = tempfile::NamedTempFile::new().expect("a file");
    }
    IMAGE_FILE.with(|file| {
        for mended in [false, true] {
            let mut image = bytes.to_vec();
            if mended {
                mend_sums(&mut image);
            }
            let mut to = file.as_file();
            let written = to.set_len(0).and_then(|()| to.rewind()).and_then(|()| to.write_all(&image));
            assert!(written.is_ok(), "the file cannot be written");
            check_store_content(file.path(), &image);
        }
    });
}

/// Makes the headers' sums right, for else they would hide all that is behind them.
fn mend_sums(image: &mut [u8]) {
    const HEADER_BYTES: usize = BLOCK_BYTES as usize;
    for nth in [1, 2] {
        let Some(begin) = image.len().checked_sub(nth * HEADER_BYTES) else { return };
        let (text, sum) = image[begin..begin + HEADER_BYTES].split_at_mut(HEADER_BYTES - 4);
        sum.copy_from_slice(&crc32c(text).to_le_bytes());
    }
}

fn check_store_content(path: &Path, image: &[u8]) {
    let Ok(store) = Store::open(path) else { return };
    let size = store.size_bytes();
    // After an unclean end the data of marked regions count, and so do those where a machine that was started anew may have lost something.
    let header = store.header();
    for block in 0..size / BLOCK_BYTES {
        let mut data = Vec::new();
        let at = (size + block * 8) as usize;
        match store.read(block * BLOCK_BYTES, BLOCK_BYTES as u32, &mut data) {
            Ok(sum) => {
                assert_eq!(sum, crc32c(&data));
                let vouched = |sum: &[u8]| match u32::from_le_bytes(sum.try_into().unwrap_or_default()) {
                    0 => data.iter().all(|byte| *byte == 0),
                    known => known == sum_of(&data),
                };
                let begin = block * BLOCK_BYTES;
                let lost = header.lost.iter().any(|(first, bytes)| (*first..first + bytes).contains(&begin));
                let summed_anew = lost || header.is_marked_at(begin);
                assert!(
                    summed_anew || vouched(&image[at..at + 4]) || vouched(&image[at + 4..at + 8]),
                    "block {block} is no one's"
                );
            }
            Err(status) => assert_eq!(status, Status::Damaged),
        }
        let new = vec![0xa5; BLOCK_BYTES as usize];
        let mut again = Vec::new();
        assert_eq!(store.write(block * BLOCK_BYTES, &new, false), Ok(()));
        assert!(store.read(block * BLOCK_BYTES, BLOCK_BYTES as u32, &mut again).is_ok() && again == new);
    }
}

/// As the store sums a block.
fn sum_of(block: &[u8]) -> u32 {
    crc32c(block).max(1)
}
