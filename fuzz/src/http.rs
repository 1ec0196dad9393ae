//! What the HTTP server reads: requests of whoever reaches its address.

use workload::http::{HEAD_BYTES_MAX, Request, RequestKind, Requests};

pub fn request_seeds() -> Vec<Vec<u8>> {
    [
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /x HTTP/1.1\r\n\r\n\r\nGET / HTTP/1.1\nConnection: te, close\n\n",
        "GET /a?b HTTP/1.0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/1.1\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ]
    .iter()
    .map(|text| text.as_bytes().to_vec())
    .chain([[b"GET / HTTP/1.1\r\nA: ".as_slice(), &vec![b'a'; HEAD_BYTES_MAX - 23], b"\r\n\r\nGET / HTTP/1.1\r\n\r\n"]
        .concat()])
    .collect()
}

fn parsed_requests<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Vec<Request> {
    let (mut requests, mut found) = (Requests::default(), Vec::new());
    for piece in pieces {
        requests.push(piece);
        found.extend(std::iter::from_fn(|| requests.take()));
        assert!(requests.pending_bytes() < HEAD_BYTES_MAX, "what waits for more is bounded");
    }
    found
}

/// The same requests whether the bytes come at once, in pieces or one by one; nothing after the last; and no GET that
/// nobody wrote.
pub fn check_request(bytes: &[u8]) {
    let whole = parsed_requests(std::iter::once(bytes));
    // Each piece of a head is parsed from its begin: few of a long one.
    let size = bytes.len() / 7 + 1 + bytes.len() % 13;
    assert_eq!(whole, parsed_requests(bytes.chunks(size)), "in pieces of {size}");
    if bytes.len() <= 300 {
        assert_eq!(whole, parsed_requests(bytes.chunks(1)), "one by one");
    }
    let before = whole.split_last().map_or(&[][..], |(_, before)| before);
    assert!(before.iter().all(|r| !r.last), "nothing follows the last");
    let written = bytes.windows(4).filter(|w| w == b"GET ").count();
    assert!(whole.iter().filter(|r| r.kind == RequestKind::Get).count() <= written, "{written} were written");
}
