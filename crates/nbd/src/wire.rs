//! The wire format, byte by byte: constants of the protocol, parsing of requests, encoding of replies.
//!
//! Pure: slices in, bytes out. Source: `doc/proto.md` of the NetworkBlockDevice project (all numbers are big-endian).

use crate::{Error, Extent};
use bytes::{BufMut, BytesMut};

/// First word of the server's greeting, `NBDMAGIC`.
pub const GREETING_MAGIC: u64 = 0x4e42_444d_4147_4943;
/// Second word of the greeting, and first of every option, `IHAVEOPT`.
pub const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054;
/// First word of a reply to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// First word of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// First word of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// First word of a chunk of a structured reply.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Bytes of a request without its payload.
pub const REQUEST_BYTES: usize = 28;
/// The maximum length of a text in the protocol.
const TEXT_BYTES_MAX: usize = 4096;
/// The assumed size at the store of the map of a range with very many holes, which prevents a client from requesting a
/// thousand of them.
const MAP_ESTIMATE_BYTES: usize = 4 << 20;

/// Flags of the greeting and of the client's response (the same bits).
pub mod handshake {
    /// Options may be refused individually.
    pub const FIXED_NEWSTYLE: u16 = 1;
    /// No 124 zeroes after the old way of selecting an export.
    pub const NO_ZEROES: u16 = 2;
}

/// Options of a client during the handshake.
pub mod option {
    /// Select an export, the old way: there is no error reply.
    pub const EXPORT_NAME: u32 = 1;
    pub const ABORT: u32 = 2;
    pub const LIST: u32 = 3;
    pub const STARTTLS: u32 = 5;
    /// Request information about an export.
    pub const INFO: u32 = 6;
    /// Request information about an export and begin.
    pub const GO: u32 = 7;
    pub const STRUCTURED_REPLY: u32 = 8;
    pub const LIST_META_CONTEXT: u32 = 9;
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Replies of a server to an option.
pub mod reply {
    pub const ACK: u32 = 1;
    /// An export's name.
    pub const SERVER: u32 = 2;
    /// Information about an export.
    pub const INFO: u32 = 3;
    /// A metadata context.
    pub const META_CONTEXT: u32 = 4;
    const ERROR_BIT: u32 = 1 << 31;
    /// The option is unknown.
    pub const UNSUPPORTED: u32 = ERROR_BIT | 1;
    /// The option's data is invalid.
    pub const INVALID: u32 = ERROR_BIT | 3;
    /// Only permitted after STARTTLS.
    pub const TLS_REQUIRED: u32 = ERROR_BIT | 5;
    /// There is no such export.
    pub const UNKNOWN: u32 = ERROR_BIT | 6;
    /// The option is too long.
    pub const TOO_BIG: u32 = ERROR_BIT | 9;
}

/// Types of information about an export.
pub mod info {
    /// Size and flags.
    pub const EXPORT: u16 = 0;
    pub const NAME: u16 = 1;
    pub const DESCRIPTION: u16 = 2;
    pub const BLOCK_SIZE: u16 = 3;
}

/// Capabilities of an export.
pub mod transmission {
    /// The other bits are valid.
    pub const HAS_FLAGS: u16 = 1;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// FLUSH is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// FUA is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Seeks are expensive.
    pub const ROTATIONAL: u16 = 1 << 4;
    /// TRIM is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// WRITE_ZEROES is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// A read may be requested in a single chunk.
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush covers all connections.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// CACHE is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// WRITE_ZEROES may be requested to fail if it would be slow.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

pub mod command {
    pub const READ: u16 = 0;
    pub const WRITE: u16 = 1;
    /// End, without a reply.
    pub const DISCONNECT: u16 = 2;
    /// Make acknowledged writes durable.
    pub const FLUSH: u16 = 3;
    /// The range's content is no longer needed.
    pub const TRIM: u16 = 4;
    /// The range will be read soon.
    pub const CACHE: u16 = 5;
    pub const WRITE_ZEROES: u16 = 6;
    /// Report the allocation.
    pub const BLOCK_STATUS: u16 = 7;
}

/// Flags of a command.
pub mod flag {
    /// Make durable before replying.
    pub const FUA: u16 = 1;
    /// Zeroes must occupy space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// Reply to a read in a single chunk.
    pub const DF: u16 = 1 << 2;
    /// Only one extent is needed.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than be slow.
    pub const FAST_ZERO: u16 = 1 << 4;
}

mod chunk {
    pub const DONE: u16 = 1;
    pub const NONE: u16 = 0;
    pub const OFFSET_DATA: u16 = 1;
    pub const BLOCK_STATUS: u16 = 5;
    pub const ERROR: u16 = (1 << 15) | 1;
}

/// A request without its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Flags of the command.
    pub flags: u16,
    pub command: u16,
    /// The client's identifier of the request.
    pub cookie: u64,
    pub offset: u64,
    /// Bytes.
    pub length: u32,
}

impl Request {
    /// Parses a request; `None` if the magic number is wrong.
    pub fn parse(bytes: &[u8; REQUEST_BYTES]) -> Option<Self> {
        let mut bytes = &bytes[..];
        if take_number::<4>(&mut bytes) != u64::from(REQUEST_MAGIC) {
            return None;
        }
        Some(Self {
            flags: take_number::<2>(&mut bytes) as u16,
            command: take_number::<2>(&mut bytes) as u16,
            cookie: take_number::<8>(&mut bytes),
            offset: take_number::<8>(&mut bytes),
            length: take_number::<4>(&mut bytes) as u32,
        })
    }

    /// Bytes that it carries or requests; for a map of holes, an estimate for very many holes.
    pub fn data_bytes(&self) -> usize {
        match self.command {
            command::READ | command::WRITE => self.length as usize,
            command::BLOCK_STATUS => MAP_ESTIMATE_BYTES,
            _ => 0,
        }
    }

    /// Whether a payload of `length` bytes follows it.
    pub fn has_payload(&self) -> bool {
        self.command == command::WRITE
    }
}

/// Takes a number of `N` bytes. The caller has checked the length.
fn take_number<const N: usize>(bytes: &mut &[u8]) -> u64 {
    let (first, rest) = bytes.split_at(N);
    *bytes = rest;
    first.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Encodes the header of a successful reply to a read; the `length` bytes of data follow it.
pub fn put_read_header(out: &mut BytesMut, structured: bool, request: &Request) {
    if structured {
        put_chunk_header(out, chunk::DONE, chunk::OFFSET_DATA, request.cookie, 8 + request.length);
        out.put_u64(request.offset);
    } else {
        put_simple_reply(out, 0, request.cookie);
    }
}

/// Encodes a reply without data: success, or the error.
pub fn put_outcome(out: &mut BytesMut, structured: bool, request: &Request, result: Result<(), Error>) {
    match (structured, result) {
        (false, result) => put_simple_reply(out, result.err().map_or(0, |error| error.number()), request.cookie),
        (true, Ok(())) => put_chunk_header(out, chunk::DONE, chunk::NONE, request.cookie, 0),
        (true, Err(error)) => {
            let mut text = error.to_string();
            text.truncate(text.floor_char_boundary(TEXT_BYTES_MAX));
            put_chunk_header(out, chunk::DONE, chunk::ERROR, request.cookie, 6 + text.len() as u32);
            out.put_u32(error.number());
            out.put_u16(text.len() as u16);
            out.put_slice(text.as_bytes());
        }
    }
}

/// Encodes the reply to BLOCK_STATUS: `extents` are contiguous from the request's offset on.
pub fn put_block_status(out: &mut BytesMut, request: &Request, context: u32, extents: &[Extent]) {
    put_chunk_header(out, chunk::DONE, chunk::BLOCK_STATUS, request.cookie, 4 + 8 * extents.len() as u32);
    out.put_u32(context);
    for extent in extents {
        out.put_u32(extent.length);
        out.put_u32(extent.flags());
    }
}

fn put_simple_reply(out: &mut BytesMut, error: u32, cookie: u64) {
    out.put_u32(SIMPLE_REPLY_MAGIC);
    out.put_u32(error);
    out.put_u64(cookie);
}

fn put_chunk_header(out: &mut BytesMut, flags: u16, kind: u16, cookie: u64, length: u32) {
    out.put_u32(STRUCTURED_REPLY_MAGIC);
    out.put_u16(flags);
    out.put_u16(kind);
    out.put_u64(cookie);
    out.put_u32(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_is_parsed_as_the_protocol_defines() {
        let mut bytes = Vec::new();
        bytes.extend(0x2560_9513_u32.to_be_bytes());
        bytes.extend(1_u16.to_be_bytes());
        bytes.extend(1_u16.to_be_bytes());
        bytes.extend(7_u64.to_be_bytes());
        bytes.extend(4096_u64.to_be_bytes());
        bytes.extend(512_u32.to_be_bytes());
        let bytes: [u8; REQUEST_BYTES] = bytes.try_into().expect("28 bytes");
        let request = Request { flags: flag::FUA, command: command::WRITE, cookie: 7, offset: 4096, length: 512 };
        assert_eq!(Request::parse(&bytes), Some(request));
        assert!(request.has_payload());
        assert_eq!(Request::parse(&[0; REQUEST_BYTES]), None);
    }

    #[test]
    fn reply_headers_have_the_announced_length() {
        let request = Request { flags: 0, command: 0, cookie: 1, offset: 2, length: 3 };
        for (structured, bytes) in [(false, 16), (true, 28)] {
            let mut out = BytesMut::new();
            put_read_header(&mut out, structured, &request);
            assert_eq!(out.len(), bytes);
        }
    }

    #[test]
    fn error_reply_has_a_number_and_if_structured_a_reason() {
        let request = Request { flags: 0, command: 0, cookie: 0x0102_0304_0506_0708, offset: 0, length: 0 };
        let mut out = BytesMut::new();
        put_outcome(&mut out, false, &request, Err(Error::NoSpace));
        assert_eq!(&out[..], [0x67, 0x44, 0x66, 0x98, 0, 0, 0, 28, 1, 2, 3, 4, 5, 6, 7, 8]);
        out.clear();
        put_outcome(&mut out, true, &request, Err(Error::NoSpace));
        let text = Error::NoSpace.to_string();
        assert_eq!(&out[..8], [0x66, 0x8e, 0x33, 0xef, 0, 1, 0x80, 1]);
        assert_eq!(&out[20..26], [0, 0, 0, 28, 0, text.len() as u8]);
        assert_eq!(&out[26..], text.as_bytes());
    }
}
