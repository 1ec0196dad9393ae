//! The handshake: the negotiation of server and client before the first request.
//!
//! Pure: [`Handshake::step`] takes the received bytes and appends the bytes to send; the caller reads and writes. A step
//! handles one option, so that a client that sends everything at once is served like one that waits for each reply.
//!
//! Encryption begins during the handshake. Everything negotiated before is discarded then, and plaintext bytes after the
//! client's STARTTLS are a violation: a man in the middle could have inserted them.

use crate::export::{Export, Exports, Info, PAYLOAD_BYTES_MAX};
use crate::wire::{self, handshake as greeting, info, option, reply, transmission};
use bytes::{Buf, BufMut, BytesMut};

/// The maximum length of an option. Names have at most 4,096 bytes; a list of queries consists of a few names.
const OPTION_BYTES_MAX: u32 = 64 << 10;
/// The maximum length of a name in the protocol.
const NAME_BYTES_MAX: usize = 4096;
/// The only metadata context.
const CONTEXT_NAME: &str = "base:allocation";
/// Its number on the wire.
pub const CONTEXT_ID: u32 = 1;

/// The encryption policy of a session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Encryption {
    /// STARTTLS is not supported.
    #[default]
    Off,
    /// A client may request it.
    Offered,
    /// Nothing else is negotiated before it.
    Required,
}

/// A violation of the protocol; the session ends without a reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Unknown flags in the client's greeting.
    #[error("the client sent unknown handshake flags {0:#x}")]
    Flags(u32),
    /// An option with the wrong magic number.
    #[error("an option does not begin with IHAVEOPT")]
    Option,
    /// A request with the wrong magic number.
    #[error("a request does not begin with its magic number")]
    Request,
    /// Plaintext after STARTTLS.
    #[error("the client sent clear text after STARTTLS")]
    ClearText,
    /// An export selected by EXPORT_NAME, which has no error reply, does not exist or is not allowed.
    #[error("the client requested the unknown export {0:?}")]
    NoExport(String),
    /// The connection ended within an option or request.
    #[error("the connection ended in the middle of a message")]
    Truncated,
}

/// The result of the negotiation.
#[derive(Debug)]
pub struct Agreement<'e, E> {
    pub export: &'e E,
    pub structured: bool,
    /// Whether BLOCK_STATUS is allowed.
    pub block_status: bool,
}

/// The next step.
#[derive(Debug)]
pub enum Step<'e, E> {
    /// Read more bytes.
    More,
    /// An option was answered; there may be another in the input.
    Answered,
    /// Send pending output, then encrypt, then call [`Handshake::encrypted`].
    StartTls,
    /// Requests follow.
    Begin(Agreement<'e, E>),
    /// The client ended the session.
    End,
}

/// The state of a handshake.
#[derive(Debug)]
pub struct Handshake {
    encryption: Encryption,
    encrypted: bool,
    greeted: bool,
    no_zeroes: bool,
    structured: bool,
    /// The export for which the metadata context was selected.
    context_export: Option<String>,
    /// Bytes of a refused option still to be received.
    skip_bytes: u64,
}

impl Handshake {
    /// Begins a handshake, with the greeting in `out`.
    pub fn new(encryption: Encryption, out: &mut BytesMut) -> Self {
        out.put_u64(wire::GREETING_MAGIC);
        out.put_u64(wire::OPTION_MAGIC);
        out.put_u16(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES);
        Self {
            encryption,
            encrypted: false,
            greeted: false,
            no_zeroes: false,
            structured: false,
            context_export: None,
            skip_bytes: 0,
        }
    }

    /// Records that the session is now encrypted.
    #[cfg(feature = "tls")]
    pub fn encrypted(&mut self) {
        self.encrypted = true;
        self.structured = false;
        self.context_export = None;
    }

    /// Handles one message of `input`, if it is complete.
    ///
    /// # Errors
    /// [`Violation`]: the session must end.
    pub fn step<'e, X: Exports>(
        &mut self,
        input: &mut BytesMut,
        out: &mut BytesMut,
        exports: &'e X,
    ) -> Result<Step<'e, X::Export>, Violation> {
        if !self.greeted {
            if input.len() < 4 {
                return Ok(Step::More);
            }
            let flags = input.get_u32();
            if flags & !u32::from(greeting::FIXED_NEWSTYLE | greeting::NO_ZEROES) != 0 {
                return Err(Violation::Flags(flags));
            }
            self.no_zeroes = flags & u32::from(greeting::NO_ZEROES) != 0;
            self.greeted = true;
        }
        if self.skip_bytes > 0 {
            let now = self.skip_bytes.min(input.len() as u64);
            input.advance(now as usize);
            self.skip_bytes -= now;
            if self.skip_bytes > 0 {
                return Ok(Step::More);
            }
        }
        if input.len() < 16 {
            return Ok(Step::More);
        }
        let mut head = &input[..16];
        let (magic, code, length) = (head.get_u64(), head.get_u32(), head.get_u32());
        if magic != wire::OPTION_MAGIC {
            return Err(Violation::Option);
        }
        if length > OPTION_BYTES_MAX {
            input.advance(16);
            self.skip_bytes = u64::from(length);
            put_error(out, code, reply::TOO_BIG, "the option is too long");
            return Ok(Step::Answered);
        }
        if input.len() < 16 + length as usize {
            return Ok(Step::More);
        }
        input.advance(16);
        let data = input.split_to(length as usize);
        self.answer_option(code, &data, input, out, exports)
    }

    fn answer_option<'e, X: Exports>(
        &mut self,
        code: u32,
        data: &[u8],
        input: &BytesMut,
        out: &mut BytesMut,
        exports: &'e X,
    ) -> Result<Step<'e, X::Export>, Violation> {
        let needs_tls = self.encryption == Encryption::Required && !self.encrypted;
        match code {
            option::ABORT => {
                put_ack(out, code);
                return Ok(Step::End);
            }
            option::STARTTLS if self.encryption == Encryption::Off => {
                put_error(out, code, reply::UNSUPPORTED, "this server does not support TLS");
            }
            option::STARTTLS if self.encrypted || !data.is_empty() => {
                put_error(out, code, reply::INVALID, "the session is encrypted, or the option has data");
            }
            option::STARTTLS => {
                put_ack(out, code);
                return if input.is_empty() { Ok(Step::StartTls) } else { Err(Violation::ClearText) };
            }
            option::EXPORT_NAME => {
                let name = String::from_utf8_lossy(data).into_owned();
                let found = if needs_tls { None } else { exports.find(&name) };
                let Some(export) = found else { return Err(Violation::NoExport(name)) };
                out.put_u64(export.info().size_bytes);
                out.put_u16(self.flags(export.info()));
                out.put_bytes(0, if self.no_zeroes { 0 } else { 124 });
                return Ok(Step::Begin(self.agreement(export, &name)));
            }
            _ if needs_tls => put_error(out, code, reply::TLS_REQUIRED, "this server requires STARTTLS"),
            option::LIST if data.is_empty() => {
                for name in exports.names() {
                    put_reply(out, code, reply::SERVER, |out| {
                        out.put_u32(name.len() as u32);
                        out.put_slice(name.as_bytes());
                    });
                }
                put_ack(out, code);
            }
            option::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                put_ack(out, code);
            }
            option::INFO | option::GO => {
                let Some((name, wanted)) = parse_info_request(data) else {
                    put_error(out, code, reply::INVALID, "the option's data is invalid");
                    return Ok(Step::Answered);
                };
                let Some(export) = exports.find(&name) else {
                    put_error(out, code, reply::UNKNOWN, "no export of that name");
                    return Ok(Step::Answered);
                };
                self.describe_export(out, code, &name, export.info(), &wanted);
                put_ack(out, code);
                if code == option::GO {
                    return Ok(Step::Begin(self.agreement(export, &name)));
                }
            }
            option::LIST_META_CONTEXT | option::SET_META_CONTEXT => self.answer_contexts(code, data, out, exports),
            option::LIST | option::STRUCTURED_REPLY => {
                put_error(out, code, reply::INVALID, "the option has no data");
            }
            _ => put_error(out, code, reply::UNSUPPORTED, "unknown option"),
        }
        Ok(Step::Answered)
    }

    fn agreement<'e, E>(&self, export: &'e E, name: &str) -> Agreement<'e, E> {
        let block_status = self.structured && self.context_export.as_deref() == Some(name);
        Agreement { export, structured: self.structured, block_status }
    }

    fn describe_export(&self, out: &mut BytesMut, code: u32, name: &str, export: &Info, wanted: &[u16]) {
        put_reply(out, code, reply::INFO, |out| {
            out.put_u16(info::EXPORT);
            out.put_u64(export.size_bytes);
            out.put_u16(self.flags(export));
        });
        // Sent without a request: a client that does not know the limits may send requests that are refused.
        put_reply(out, code, reply::INFO, |out| {
            out.put_u16(info::BLOCK_SIZE);
            out.put_u32(export.block_min_bytes);
            out.put_u32(export.block_preferred_bytes);
            out.put_u32(PAYLOAD_BYTES_MAX);
        });
        for (kind, text) in [(info::NAME, name), (info::DESCRIPTION, &export.description)] {
            if wanted.contains(&kind) {
                put_reply(out, code, reply::INFO, |out| {
                    out.put_u16(kind);
                    out.put_slice(text.as_bytes());
                });
            }
        }
    }

    fn answer_contexts<X: Exports>(&mut self, code: u32, data: &[u8], out: &mut BytesMut, exports: &X) {
        let set = code == option::SET_META_CONTEXT;
        if set {
            self.context_export = None;
            if !self.structured {
                return put_error(out, code, reply::INVALID, "metadata contexts need structured replies");
            }
        }
        let Some((name, queries)) = parse_context_request(data) else {
            return put_error(out, code, reply::INVALID, "the option's data is invalid");
        };
        if exports.find(&name).is_none() {
            return put_error(out, code, reply::UNKNOWN, "no export of that name");
        }
        let is_wanted = |query: &String| query == CONTEXT_NAME || (!set && query == "base:");
        if queries.iter().any(is_wanted) || (!set && queries.is_empty()) {
            put_reply(out, code, reply::META_CONTEXT, |out| {
                out.put_u32(if set { CONTEXT_ID } else { 0 });
                out.put_slice(CONTEXT_NAME.as_bytes());
            });
            if set {
                self.context_export = Some(name);
            }
        }
        put_ack(out, code);
    }

    fn flags(&self, export: &Info) -> u16 {
        use transmission as t;
        let mut flags = t::HAS_FLAGS | t::SEND_FLUSH | t::SEND_FUA | t::SEND_CACHE;
        for (is, flag) in [
            (export.read_only, t::READ_ONLY),
            (export.rotational, t::ROTATIONAL),
            (export.multi_connection, t::CAN_MULTI_CONN),
            (export.trim && !export.read_only, t::SEND_TRIM),
            (!export.read_only, t::SEND_WRITE_ZEROES),
            (export.fast_zero && !export.read_only, t::SEND_FAST_ZERO),
            (self.structured, t::SEND_DF),
        ] {
            flags |= if is { flag } else { 0 };
        }
        flags
    }
}

fn put_reply(out: &mut BytesMut, option: u32, kind: u32, data: impl FnOnce(&mut BytesMut)) {
    out.put_u64(wire::OPTION_REPLY_MAGIC);
    out.put_u32(option);
    out.put_u32(kind);
    let at = out.len();
    out.put_u32(0);
    data(out);
    let length = (out.len() - at - 4) as u32;
    out[at..at + 4].copy_from_slice(&length.to_be_bytes());
}

fn put_ack(out: &mut BytesMut, option: u32) {
    put_reply(out, option, reply::ACK, |_| {});
}

fn put_error(out: &mut BytesMut, option: u32, why: u32, text: &str) {
    put_reply(out, option, why, |out| out.put_slice(text.as_bytes()));
}

/// Takes a number of four bytes, if available.
fn take_u32(data: &mut &[u8]) -> Option<u32> {
    let (first, rest) = data.split_first_chunk::<4>()?;
    *data = rest;
    Some(u32::from_be_bytes(*first))
}

fn take_u16(data: &mut &[u8]) -> Option<u16> {
    let (first, rest) = data.split_first_chunk::<2>()?;
    *data = rest;
    Some(u16::from_be_bytes(*first))
}

/// Takes a length and a text of that length.
fn take_text(data: &mut &[u8]) -> Option<String> {
    let length = take_u32(data)? as usize;
    let (text, rest) = data.split_at_checked(length).filter(|_| length <= NAME_BYTES_MAX)?;
    *data = rest;
    Some(std::str::from_utf8(text).ok()?.to_owned())
}

/// Parses the data of INFO and GO: a name, and the requested items.
fn parse_info_request(mut data: &[u8]) -> Option<(String, Vec<u16>)> {
    let name = take_text(&mut data)?;
    let count = take_u16(&mut data)?;
    let wanted = (0..count).map(|_| take_u16(&mut data)).collect::<Option<Vec<_>>>()?;
    data.is_empty().then_some((name, wanted))
}

/// Parses the data of LIST_META_CONTEXT and SET_META_CONTEXT: a name, and queries.
fn parse_context_request(mut data: &[u8]) -> Option<(String, Vec<String>)> {
    let name = take_text(&mut data)?;
    let count = take_u32(&mut data)?;
    let mut queries = Vec::new();
    // Each takes at least four bytes, so a false count ends with the data rather than exhausting the memory.
    for _ in 0..count {
        queries.push(take_text(&mut data)?);
    }
    data.is_empty().then_some((name, queries))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::export::Single;
    use crate::memory::Memory;

    fn exports() -> Single<Memory> {
        Single { name: "disk".into(), export: Memory::new(1 << 20) }
    }

    fn option(code: u32, data: &[u8]) -> Vec<u8> {
        let mut bytes = wire::OPTION_MAGIC.to_be_bytes().to_vec();
        bytes.extend(code.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(data);
        bytes
    }

    fn with_name(name: &str, rest: &[u8]) -> Vec<u8> {
        [&(name.len() as u32).to_be_bytes(), name.as_bytes(), rest].concat()
    }

    /// Runs a handshake over `bytes`, in pieces of `piece`; returns the types of the replies and how it ended.
    fn run(encryption: Encryption, bytes: &[u8], piece: usize) -> (Vec<u32>, String) {
        let exports = exports();
        let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
        let mut state = Handshake::new(encryption, &mut out);
        out.clear();
        for part in bytes.chunks(piece) {
            input.extend_from_slice(part);
            loop {
                match state.step(&mut input, &mut out, &exports) {
                    Ok(Step::More) => break,
                    Ok(Step::Answered) => {}
                    Ok(Step::StartTls) => return (kinds(&out), "start tls".into()),
                    Ok(Step::Begin(a)) => {
                        let end = format!("begin structured={} block_status={}", a.structured, a.block_status);
                        return (kinds(&out), end);
                    }
                    Ok(Step::End) => return (kinds(&out), "end".into()),
                    Err(violation) => return (kinds(&out), violation.to_string()),
                }
            }
        }
        (kinds(&out), "more".into())
    }

    fn kinds(mut out: &[u8]) -> Vec<u32> {
        let mut kinds = Vec::new();
        while out.len() >= 20 && out.get_u64() == wire::OPTION_REPLY_MAGIC {
            out.advance(4);
            kinds.push(out.get_u32());
            let length = out.get_u32() as usize;
            out.advance(length);
        }
        kinds
    }

    fn greeted(options: &[Vec<u8>]) -> Vec<u8> {
        [3_u32.to_be_bytes().to_vec(), options.concat()].concat()
    }

    /// Each property that has a flag is offered where the export has it, and only there.
    #[test]
    fn flags_say_what_the_export_can_do() {
        use transmission as t;
        let state = Handshake::new(Encryption::Off, &mut BytesMut::new());
        let plain = Info { multi_connection: false, trim: false, ..Info::disk(1 << 20) };
        let changed = |info: Info| state.flags(&info) ^ state.flags(&plain);
        assert_eq!(changed(Info { rotational: true, ..plain.clone() }), t::ROTATIONAL);
        assert_eq!(changed(Info { multi_connection: true, ..plain.clone() }), t::CAN_MULTI_CONN);
        assert_eq!(changed(Info { trim: true, ..plain.clone() }), t::SEND_TRIM);
        assert_eq!(changed(Info { fast_zero: true, ..plain.clone() }), t::SEND_FAST_ZERO);
        let read_only = Info { read_only: true, trim: true, fast_zero: true, ..plain.clone() };
        assert_eq!(changed(read_only), t::READ_ONLY | t::SEND_WRITE_ZEROES);
    }

    #[test]
    fn go_starts_a_session_in_any_fragmentation() {
        let query = with_name("base:allocation", &[]);
        let session = greeted(&[
            option(option::STRUCTURED_REPLY, &[]),
            option(option::SET_META_CONTEXT, &with_name("disk", &[&1_u32.to_be_bytes(), &query[..]].concat())),
            option(option::GO, &with_name("disk", &[0, 1, 0, 1])),
        ]);
        let whole = run(Encryption::Off, &session, usize::MAX);
        let expected = [reply::ACK, reply::META_CONTEXT, reply::ACK, reply::INFO, reply::INFO, reply::INFO, reply::ACK];
        assert_eq!(whole.0, expected);
        assert_eq!(whole.1, "begin structured=true block_status=true");
        for piece in 1..40 {
            assert_eq!(run(Encryption::Off, &session, piece), whole, "pieces of {piece}");
        }
    }

    #[test]
    fn meta_context_of_another_export_is_ignored() {
        let query = with_name("base:allocation", &[]);
        let session = greeted(&[
            option(option::STRUCTURED_REPLY, &[]),
            option(option::SET_META_CONTEXT, &with_name("disk", &[&1_u32.to_be_bytes(), &query[..]].concat())),
            option(option::GO, &with_name("", &[0, 0])),
        ]);
        assert_eq!(run(Encryption::Off, &session, usize::MAX).1, "begin structured=true block_status=false");
    }

    #[test]
    fn required_tls_reveals_nothing_before_starttls() {
        let session = greeted(&[option(option::LIST, &[]), option(option::GO, &with_name("disk", &[0, 0]))]);
        let replies = run(Encryption::Required, &session, usize::MAX);
        assert_eq!(replies, (vec![reply::TLS_REQUIRED; 2], "more".into()));
        let old = greeted(&[option(option::EXPORT_NAME, b"disk")]);
        assert!(run(Encryption::Required, &old, usize::MAX).1.contains("unknown export"));
        assert_eq!(run(Encryption::Offered, &greeted(&[option(option::STARTTLS, &[])]), 64).1, "start tls");
        assert_eq!(run(Encryption::Off, &greeted(&[option(option::STARTTLS, &[])]), 64).0, [reply::UNSUPPORTED]);
    }

    #[test]
    fn clear_text_after_starttls_ends_the_session() {
        let session = greeted(&[option(option::STARTTLS, &[]), option(option::LIST, &[])]);
        assert_eq!(run(Encryption::Offered, &session, usize::MAX).1, Violation::ClearText.to_string());
    }

    #[test]
    fn bad_options_are_refused_and_the_session_continues() {
        let session = greeted(&[
            option(99, b"x"),
            option(option::INFO, b"\0\0"),
            option(option::INFO, &with_name("none", &[0, 0])),
            option(option::LIST, b"x"),
            option(option::SET_META_CONTEXT, &with_name("disk", &0_u32.to_be_bytes())),
            option(option::LIST_META_CONTEXT, &with_name("disk", &u32::MAX.to_be_bytes())),
            option(option::LIST, &vec![0; OPTION_BYTES_MAX as usize + 1]),
            option(option::ABORT, &[]),
        ]);
        let (kinds, end) = run(Encryption::Off, &session, 1000);
        let invalid = reply::INVALID;
        let expected =
            [reply::UNSUPPORTED, invalid, reply::UNKNOWN, invalid, invalid, invalid, reply::TOO_BIG, reply::ACK];
        assert_eq!((&kinds[..], &end[..]), (&expected[..], "end"));
    }

    #[test]
    fn export_name_sends_size_flags_and_optional_zeroes() {
        for (flags, bytes) in [(1_u32, 134), (3, 10)] {
            let exports = exports();
            let (mut input, mut out) = (BytesMut::new(), BytesMut::new());
            let mut state = Handshake::new(Encryption::Off, &mut out);
            out.clear();
            input.extend_from_slice(&flags.to_be_bytes());
            input.extend_from_slice(&option(option::EXPORT_NAME, b"disk"));
            assert!(matches!(state.step(&mut input, &mut out, &exports), Ok(Step::Begin(_))));
            assert_eq!(out.len(), bytes);
            assert_eq!(out.get_u64(), 1 << 20);
        }
    }

    proptest::proptest! {
        #[test]
        fn arbitrary_bytes_are_answered_or_end_the_session(bytes: Vec<u8>, options: Vec<(u8, Vec<u8>)>) {
            let made: Vec<Vec<u8>> = options.iter().map(|(code, data)| option(u32::from(*code % 12), data)).collect();
            for session in [bytes, greeted(&made)] {
                let whole = run(Encryption::Offered, &session, usize::MAX);
                let pieces = run(Encryption::Offered, &session, 7);
                // Plaintext after STARTTLS is only detected if it arrived together with it; otherwise the TLS library gets it.
                let noticed = whole.1 == "the client sent clear text after STARTTLS" && pieces.1 == "start tls";
                proptest::prop_assert_eq!(&whole.0, &pieces.0);
                proptest::prop_assert!(noticed || whole.1 == pieces.1, "{:?}, {:?}", whole.1, pieces.1);
            }
        }
    }
}
