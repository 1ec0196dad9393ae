//! Parses a client's requests: bytes in, in pieces of any size; requests out. Pure, so that hostile bytes can be tested.
//!
//! A head is at most [`HEAD_BYTES_MAX`] bytes with [`HEADERS_MAX`] lines. Anything larger or invalid is refused, and nothing after it is
//! read; so is a request with a body, since finding the end of a body is a matter of its own. How the bytes are split into
//! pieces does not change the result.

/// Largest head of a request, including empty lines before it.
pub const HEAD_BYTES_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 96;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    Get,
    Head,
    /// Something that is not served: the end of the status line.
    Refused(&'static str),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    pub kind: RequestKind,
    /// Whether the connection is closed after its response.
    pub last: bool,
}

/// Bytes from a client that are not yet answered.
#[derive(Debug, Default)]
pub struct Requests {
    received: Vec<u8>,
    /// The first byte of `received` that does not belong to a request already returned.
    at: usize,
    /// Whether the last request was returned.
    ended: bool,
}

impl Requests {
    pub fn push(&mut self, bytes: &[u8]) {
        if !self.ended {
            self.received.extend_from_slice(bytes);
        }
    }

    /// Bytes of an incomplete request: at most [`HEAD_BYTES_MAX`], once [`Self::take`] has returned nothing.
    pub fn pending_bytes(&self) -> usize {
        self.received.len() - self.at
    }

    /// Returns the next complete request; nothing until more is received, and nothing after the last.
    pub fn take(&mut self) -> Option<Request> {
        let rest = self.received.get(self.at..).unwrap_or_default();
        if self.ended || rest.is_empty() {
            self.compact();
            return None;
        }
        // At most the size of a head is parsed, so that a larger one is refused whether it came at once or in pieces.
        let head = &rest[..rest.len().min(HEAD_BYTES_MAX)];
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut headers);
        let found = match request.parse(head) {
            Ok(httparse::Status::Complete(length)) => {
                self.at += length;
                match request.method {
                    Some("GET") => Request { kind: RequestKind::Get, last: closes(&request) },
                    Some("HEAD") => Request { kind: RequestKind::Head, last: closes(&request) },
                    _ => Request { kind: RequestKind::Refused("405 Method Not Allowed"), last: true },
                }
            }
            Ok(httparse::Status::Partial) if head.len() < HEAD_BYTES_MAX => {
                self.compact();
                return None;
            }
            Ok(httparse::Status::Partial) => {
                Request { kind: RequestKind::Refused("431 Request Header Fields Too Large"), last: true }
            }
            Err(_) => Request { kind: RequestKind::Refused("400 Bad Request"), last: true },
        };
        self.ended = found.last;
        Some(found)
    }

    /// Discards returned requests, and everything after the last request.
    fn compact(&mut self) {
        let done = if self.ended { self.received.len() } else { self.at };
        self.received.drain(..done);
        self.at = 0;
    }
}

/// Whether the connection ends after this request: it requests that, is of an older HTTP, or has a body, which is not
/// read.
fn closes(request: &httparse::Request<'_, '_>) -> bool {
    // Several lines with the same name form one list.
    let values =
        |name: &'static str| request.headers.iter().filter(move |h| h.name.eq_ignore_ascii_case(name)).map(|h| h.value);
    let close = values("connection")
        .flat_map(|v| v.split(|b| *b == b','))
        .any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"));
    let body = values("content-length").any(|v| v != b"0") || values("transfer-encoding").next().is_some();
    close || body || request.version != Some(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_all(pieces: &[&[u8]]) -> (Vec<Request>, usize) {
        let (mut requests, mut found) = (Requests::default(), Vec::new());
        for piece in pieces {
            requests.push(piece);
            found.extend(std::iter::from_fn(|| requests.take()));
        }
        (found, requests.pending_bytes())
    }

    const GET_REQUEST: Request = Request { kind: RequestKind::Get, last: false };

    #[test]
    fn large_head_is_refused_in_any_fragmentation() {
        let large = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX], b"\r\n\r\n"].concat();
        let pieces: Vec<&[u8]> = large.chunks(1000).collect();
        let refused = Request { kind: RequestKind::Refused("431 Request Header Fields Too Large"), last: true };
        assert_eq!(parse_all(&[&large]).0, [refused]);
        assert_eq!(parse_all(&pieces).0, [refused]);
        let fits = [b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX - 23], b"\r\n\r\n"].concat();
        assert_eq!((fits.len(), parse_all(&[&fits, &fits]).0), (HEAD_BYTES_MAX, vec![GET_REQUEST, GET_REQUEST]));
    }

    #[test]
    fn repeated_header_lines_form_one_list() {
        let two = b"GET / HTTP/1.1\r\nConnection: keep-alive\r\nConnection: te, Close\r\n\r\n";
        let body = b"GET / HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        assert_eq!(parse_all(&[two]).0, [Request { last: true, ..GET_REQUEST }]);
        assert_eq!(
            parse_all(&[body]),
            (vec![Request { last: true, ..GET_REQUEST }], 0),
            "what follows may be the body"
        );
    }

    #[test]
    fn incomplete_request_is_kept() {
        let text = b"GET / HTTP/1.1\r\n\r\nHEAD /x HTTP/1.1\r\n";
        assert_eq!(parse_all(&[text]), (vec![GET_REQUEST], 18));
        assert_eq!(
            parse_all(&[text, b"\r\n"]),
            (vec![GET_REQUEST, Request { kind: RequestKind::Head, last: false }], 0)
        );
    }
}
