//! Parses a response as its bytes arrive: head, then a body by length, in chunks, or until the end of the connection.
//!
//! Pure: bytes in, progress out; however the network splits them, the same body results. Heads are parsed by
//! `httparse`.

/// Largest head: a larger one is not a response to a GET of a byte.
const HEAD_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 96;
/// Longest line of a chunk's size or of a trailer.
const LINE_BYTES_MAX: usize = 4096;

/// Why bytes are not a response, or not a complete one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedResponse {
    /// The connection ended before the head.
    #[error("the server closed the connection before it answered")]
    NoAnswer,
    /// The connection ended within the body.
    #[error("the server closed the connection in the middle of a body")]
    Truncated,
    /// The head cannot be parsed.
    #[error("not an HTTP response: {0}")]
    NotHttp(httparse::Error),
    /// The head does not end within [`HEAD_BYTES_MAX`] bytes.
    #[error("the head of the response is too long")]
    LongHead,
    /// The length is not a number.
    #[error("invalid Content-Length")]
    ContentLength,
    /// Two lengths contradict each other.
    #[error("it has two Content-Lengths")]
    TwoContentLengths,
    /// A coding other than chunked.
    #[error("unsupported Transfer-Encoding {0:?}")]
    TransferEncoding(String),
    /// A chunk's size is not a number.
    #[error("invalid chunk size")]
    ChunkSize,
    /// No line break follows a chunk's last byte.
    #[error("a chunk is longer than its size")]
    LongChunk,
    /// A trailer does not end within [`LINE_BYTES_MAX`] bytes.
    #[error("a trailer is too long")]
    LongTrailer,
    /// Bytes follow the response.
    #[error("{0} bytes more than Content-Length")]
    Surplus(usize),
}

/// What remains to be read.
#[derive(Default, Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    Length(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    UntilEnd,
    Done,
}

#[derive(Debug, Clone, Default)]
pub struct Response {
    state: State,
    /// The status, once the head is complete.
    pub status: u16,
    /// Whether the connection cannot be reused.
    pub close: bool,
}

impl Response {
    pub fn is_complete(&self) -> bool {
        self.state == State::Done
    }

    /// The connection ended: this completes some bodies, and is too early for all others.
    pub fn end(&mut self) -> Result<(), MalformedResponse> {
        match self.state {
            State::Done => Ok(()),
            State::UntilEnd => {
                self.state = State::Done;
                Ok(())
            }
            State::Head => Err(MalformedResponse::NoAnswer),
            _ => Err(MalformedResponse::Truncated),
        }
    }

    /// Consumes as much of `input` as possible, passes pieces of the body to `body`, and returns the number of bytes
    /// consumed; the caller passes the rest again with what follows it.
    pub fn take(&mut self, input: &[u8], body: &mut dyn FnMut(&[u8])) -> Result<usize, MalformedResponse> {
        let mut at = 0;
        while at < input.len() && self.state != State::Done {
            let taken = self.step(&input[at..], body)?;
            if taken == 0 {
                break;
            }
            at += taken;
        }
        Ok(at)
    }

    fn step(&mut self, input: &[u8], body: &mut dyn FnMut(&[u8])) -> Result<usize, MalformedResponse> {
        let some = |left: u64| input.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match self.state {
            State::Head => self.head(input),
            State::Length(left) => {
                let n = some(left);
                body(&input[..n]);
                self.state = if left == n as u64 { State::Done } else { State::Length(left - n as u64) };
                Ok(n)
            }
            State::UntilEnd => {
                body(input);
                Ok(input.len())
            }
            State::ChunkSize => match httparse::parse_chunk_size(input) {
                Ok(httparse::Status::Complete((n, 0))) => {
                    self.state = State::Trailer;
                    Ok(n)
                }
                Ok(httparse::Status::Complete((n, size))) => {
                    self.state = State::Chunk(size);
                    Ok(n)
                }
                Ok(httparse::Status::Partial) if input.len() < LINE_BYTES_MAX => Ok(0),
                _ => Err(MalformedResponse::ChunkSize),
            },
            State::Chunk(left) => {
                let n = some(left);
                body(&input[..n]);
                self.state = if left == n as u64 { State::ChunkEnd } else { State::Chunk(left - n as u64) };
                Ok(n)
            }
            State::ChunkEnd => match input {
                [b'\r', b'\n', ..] => {
                    self.state = State::ChunkSize;
                    Ok(2)
                }
                [b'\r'] => Ok(0),
                _ => Err(MalformedResponse::LongChunk),
            },
            State::Trailer => match input.windows(2).position(|w| w == b"\r\n") {
                Some(0) => {
                    self.state = State::Done;
                    Ok(2)
                }
                Some(n) => Ok(n + 2),
                None if input.len() < LINE_BYTES_MAX => Ok(0),
                None => Err(MalformedResponse::LongTrailer),
            },
            State::Done => Ok(0),
        }
    }

    fn head(&mut self, input: &[u8]) -> Result<usize, MalformedResponse> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut parsed = httparse::Response::new(&mut headers);
        let length = match parsed.parse(input) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if input.len() < HEAD_BYTES_MAX => return Ok(0),
            Ok(httparse::Status::Partial) => return Err(MalformedResponse::LongHead),
            Err(error) => return Err(MalformedResponse::NotHttp(error)),
        };
        let status = parsed.code.unwrap_or(0);
        // 100 and 103 announce the actual response; 101 would switch to another protocol, which was not requested.
        if (100..200).contains(&status) && status != 101 {
            return Ok(length);
        }
        self.status = status;
        self.close = parsed.version != Some(1);
        let (mut size, mut chunked) = (None, false);
        for header in parsed.headers.iter() {
            let is = |name: &str| header.name.eq_ignore_ascii_case(name);
            let value = || std::str::from_utf8(header.value).unwrap_or_default().trim();
            if is("content-length") {
                let length: u64 = value().parse().map_err(|_| MalformedResponse::ContentLength)?;
                if size.is_some_and(|s| s != length) {
                    return Err(MalformedResponse::TwoContentLengths);
                }
                size = Some(length);
            } else if is("transfer-encoding") {
                chunked = value().eq_ignore_ascii_case("chunked");
                if !chunked {
                    return Err(MalformedResponse::TransferEncoding(value().into()));
                }
            } else if is("connection") {
                self.close = value().split(',').any(|word| word.trim().eq_ignore_ascii_case("close"))
                    || (self.close && !value().eq_ignore_ascii_case("keep-alive"));
            }
        }
        self.state = match size {
            _ if matches!(status, 204 | 304) => State::Done,
            _ if chunked => State::ChunkSize,
            Some(0) => State::Done,
            Some(size) => State::Length(size),
            None => {
                self.close = true;
                State::UntilEnd
            }
        };
        Ok(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Reads `bytes` in pieces that end at `cuts`; returns status, body, whether it closes, and how many bytes were
    /// left over.
    fn read(bytes: &[u8], cuts: &[usize]) -> Result<(u16, Vec<u8>, bool, usize), MalformedResponse> {
        let (mut response, mut body, mut waiting) = (Response::default(), Vec::new(), Vec::new());
        let mut begin = 0;
        for end in cuts.iter().copied().chain([bytes.len()]) {
            waiting.extend_from_slice(&bytes[begin..end]);
            begin = end;
            let taken = response.take(&waiting, &mut |piece| body.extend_from_slice(piece))?;
            waiting.drain(..taken);
        }
        response.end()?;
        Ok((response.status, body, response.close, waiting.len()))
    }

    const PLAIN_RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc";
    const CHUNKED_RESPONSE: &[u8] =
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nA: b\r\n\r\n";

    #[test]
    fn bodies_are_read_by_length_chunks_or_eof() {
        assert_eq!(read(PLAIN_RESPONSE, &[]), Ok((200, b"abc".to_vec(), false, 0)));
        assert_eq!(read(CHUNKED_RESPONSE, &[]), Ok((200, b"abc".to_vec(), false, 0)));
        assert_eq!(read(b"HTTP/1.0 200 OK\r\n\r\nabc", &[]), Ok((200, b"abc".to_vec(), true, 0)));
        assert_eq!(read(b"HTTP/1.1 204 No\r\n\r\n", &[]), Ok((204, vec![], false, 0)));
        assert_eq!(
            read(b"HTTP/1.1 404 No\r\nConnection: Close\r\ncontent-length:0\r\n\r\n", &[]),
            Ok((404, vec![], true, 0))
        );
        let hinted = [b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n".as_slice(), PLAIN_RESPONSE].concat();
        assert_eq!(read(&hinted, &[]), Ok((200, b"abc".to_vec(), false, 0)));
        let kept = b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx";
        assert_eq!(read(kept, &[]), Ok((200, b"x".to_vec(), false, 0)));
    }

    #[test]
    fn bytes_after_the_response_are_kept() {
        assert_eq!(read(&[PLAIN_RESPONSE, b"HTTP"].concat(), &[]), Ok((200, b"abc".to_vec(), false, 4)));
    }

    #[test]
    fn malformed_responses_are_errors() {
        for (bytes, why) in [
            (&b""[..], MalformedResponse::NoAnswer),
            (&PLAIN_RESPONSE[..PLAIN_RESPONSE.len() - 1], MalformedResponse::Truncated),
            (b"SSH-2.0-OpenSSH\r\n", MalformedResponse::NotHttp(httparse::Error::Version)),
            (b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", MalformedResponse::ContentLength),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
                MalformedResponse::TwoContentLengths,
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", MalformedResponse::TransferEncoding("gzip".into())),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", MalformedResponse::ChunkSize),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc", MalformedResponse::LongChunk),
        ] {
            assert_eq!(read(bytes, &[]), Err(why));
        }
        let endless = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX]].concat();
        assert_eq!(read(&endless, &[]), Err(MalformedResponse::LongHead));
    }

    proptest! {
        #[test]
        fn response_is_the_same_in_any_fragmentation(mut cuts in proptest::collection::vec(0..70_usize, 0..8)) {
            for whole in [PLAIN_RESPONSE, CHUNKED_RESPONSE] {
                cuts.iter_mut().for_each(|c| *c = (*c).min(whole.len()));
                cuts.sort_unstable();
                prop_assert_eq!(read(whole, &cuts), read(whole, &[]));
            }
        }

        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
            let bytes = [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".as_slice(), &bytes].concat();
            let _ = read(&bytes, &[cut.min(bytes.len())]);
        }
    }
}
