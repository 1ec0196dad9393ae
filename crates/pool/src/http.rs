//! A server for two pages, `/metrics` and `/status`, over TCP or a Unix socket; and a client that reads them.
//!
//! Over a Unix socket, whose permissions control access, `POST /scrub` starts a scrub. Over TCP, which is open to everyone,
//! pages can only be read.
//!
//! Each connection is closed after one request: Prometheus, curl and `pool status` need nothing more, so no HTTP library is used.

use crate::listener::Listener;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The maximum size of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// The time limit for a request and its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum number of clients; beyond it the oldest are closed.
const CLIENTS_MAX: usize = 64;

/// The contents of the pages.
pub trait Pages {
    /// In Prometheus' text format.
    fn metrics(&self) -> String;
    /// As JSON, if there is one.
    fn status(&self) -> Option<String>;
    /// Starts a scrub, whose state is in the status; false if there is nothing to scrub.
    fn scrub(&self) -> bool {
        false
    }
}

/// Why reading a page failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The place is not an address.
    #[error(
        "{0} is neither a socket nor an address with a port; give the coordinator's socket (--nbd unix:PATH) or \
         --metrics ADDR:PORT"
    )]
    NoPlace(String),
    /// There is no server.
    #[error("no coordinator answers at {0}: {1}")]
    Silent(String, io::Error),
    /// The server speaks another protocol, or closed the connection early.
    #[error("the server at {0} is not a coordinator")]
    Foreign(String),
    /// The same, with the reason.
    #[error("the server at {0} is not a coordinator: {1}")]
    Broken(String, io::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The server returned an error.
    #[error("{0}: {1}")]
    Refused(String, String),
}

/// Serves all connections, without end; `report` receives errors. Must run in a `LocalSet`.
pub async fn serve(listener: Listener, pages: Rc<dyn Pages>, report: Rc<dyn Fn(String)>) {
    let pending = wire::PendingConnections::new(CLIENTS_MAX, REQUEST_TIMEOUT);
    let is_local = listener.endpoint().is_ok_and(|endpoint| endpoint.address().is_none());
    loop {
        match listener.accept().await {
            Ok(stream) => {
                let (pages, mut connection) = (pages.clone(), pending.add());
                if let Some(overflow) = connection.overflow_message() {
                    report(format!("status: {overflow}"));
                }
                tokio::task::spawn_local(async move {
                    // Errors of a client are not reported.
                    let _ = connection.authenticate(answer_request(stream.boxed(), &*pages, is_local)).await;
                });
            }
            Err(error) => {
                report(format!("cannot accept a client: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn answer_request(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    pages: &dyn Pages,
    is_local: bool,
) -> io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") && request.len() < REQUEST_BYTES_MAX {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, kind, body) = response_to(&request, pages, is_local);
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

fn response_to(request: &[u8], pages: &dyn Pages, is_local: bool) -> (&'static str, &'static str, String) {
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let mut words = line.split(|byte| *byte == b' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let text = "text/plain; charset=utf-8";
    match (method, path) {
        (b"GET", b"/metrics") => ("200 OK", "text/plain; version=0.0.4; charset=utf-8", pages.metrics()),
        (b"GET", b"/status") => match pages.status() {
            Some(status) => ("200 OK", "application/json", status),
            None => ("404 Not Found", text, "this is a node; the coordinator has the status\n".into()),
        },
        (b"GET", _) => ("404 Not Found", text, supported_requests(is_local).into()),
        (b"POST", b"/scrub") if !is_local => {
            ("403 Forbidden", text, "a scrub is started at the coordinator's socket, not at its metrics\n".into())
        }
        (b"POST", b"/scrub") => {
            if pages.scrub() {
                ("202 Accepted", text, "started\n".into())
            } else {
                ("404 Not Found", text, "there is nothing to scrub here\n".into())
            }
        }
        _ => ("400 Bad Request", text, supported_requests(is_local).into()),
    }
}

/// What [`response_to`] has an answer to.
fn supported_requests(is_local: bool) -> &'static str {
    if is_local {
        "available: GET /metrics, GET /status, POST /scrub\n"
    } else {
        "available: GET /metrics, GET /status\n"
    }
}

/// Reads a page from the server at `place`: the path of a socket, or an address with a port.
///
/// # Errors
/// No server responds there, or not with a page.
pub fn get(place: &str, page: &str) -> Result<String, Error> {
    request_page(place, "GET", page)
}

/// Sends a command to the server at `place`, as [`get`].
///
/// # Errors
/// As [`get`].
pub fn post(place: &str, page: &str) -> Result<String, Error> {
    request_page(place, "POST", page)
}

fn request_page(place: &str, method: &str, page: &str) -> Result<String, Error> {
    let silent = |place: &str| {
        let place = place.to_string();
        move |error| Error::Silent(place, error)
    };
    let path = Path::new(place);
    if place.contains('/') || path.exists() {
        let stream = UnixStream::connect(path).map_err(silent(place))?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        return exchange(stream, place, method, page);
    }
    let place = place.strip_prefix("http://").unwrap_or(place);
    let address = place.to_socket_addrs().ok().and_then(|mut found| found.next());
    let address = address.ok_or_else(|| Error::NoPlace(place.into()))?;
    let stream = TcpStream::connect_timeout(&address, REQUEST_TIMEOUT).map_err(silent(place))?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    exchange(stream, place, method, page)
}

fn exchange(mut stream: impl Read + Write, place: &str, method: &str, page: &str) -> Result<String, Error> {
    let foreign = || Error::Foreign(place.into());
    stream.write_all(format!("{method} {page} HTTP/1.1\r\nHost: fathom\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut answer = Vec::new();
    let read = stream.take(16 << 20).read_to_end(&mut answer);
    read.map_err(|error| Error::Broken(place.into(), error))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(foreign)?;
    if !head.starts_with("HTTP/1.1 ") {
        return Err(foreign());
    }
    if !head.starts_with("HTTP/1.1 2") {
        return Err(Error::Refused(place.into(), body.trim().into()));
    }
    Ok(body.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestPages;

    impl Pages for TestPages {
        fn metrics(&self) -> String {
            "m 1\n".into()
        }

        fn status(&self) -> Option<String> {
            None
        }
    }

    #[test]
    fn malformed_requests_get_4xx() {
        let status = |request: &[u8]| response_to(request, &TestPages, true).0;
        assert_eq!(status(b"GET /metrics HTTP/1.1\r\n\r\n"), "200 OK");
        assert_eq!(status(b"GET /metrics?x HTTP/1.1\r\n\r\n"), "404 Not Found");
        assert_eq!(status(b"GET /status HTTP/1.1\r\n\r\n"), "404 Not Found");
        for bad in [&b""[..], b"\r\n\r\n", b"POST /metrics HTTP/1.1\r\n\r\n", b"\xff\xfe \x00", b"GET"] {
            assert!(status(bad).starts_with('4'));
        }
        let answer = |method: &str, is_local| {
            response_to(format!("{method} /other HTTP/1.1\r\n\r\n").as_bytes(), &TestPages, is_local).2
        };
        for method in ["GET", "POST", "PUT"] {
            for (word, is_there) in [("GET /metrics", true), ("GET /status", true), ("POST /scrub", false)] {
                assert!(answer(method, true).contains(word), "{method}");
                assert_eq!(answer(method, false).contains(word), is_there, "{method}");
            }
        }
        let scrub = b"POST /scrub HTTP/1.1\r\n\r\n";
        assert_eq!(
            [true, false].map(|is_local| response_to(scrub, &TestPages, is_local).0),
            ["404 Not Found", "403 Forbidden"]
        );
    }
}
