//! The server: answers every GET with the same few bytes, as the papers' Web server did.
//!
//! For a network under test, not for the Internet: HTTP/1.1 without TLS, no files, no logs. Every limit is stated here,
//! and a client that exceeds one is disconnected, so that a stranger costs a descriptor and nothing else.

use super::connection::POLL_INTERVAL;
use super::request::{Request, RequestKind, Requests};
use crate::Error;
use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags, sockopt};
use std::collections::HashMap;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::time::Duration;

const CONNECTIONS_PER_THREAD_MAX: usize = 10_000;
/// Largest body it serves.
pub const BODY_BYTES_MAX: usize = 64 << 20;
/// The listener's key among a thread's sockets.
const LISTENER_KEY: u64 = u64::MAX;

#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    answers: Responses,
}

/// Complete responses: to GET and to HEAD, with keep-alive or without.
#[derive(Debug)]
struct Responses {
    bytes: usize,
    keep: Vec<u8>,
    close: Vec<u8>,
}

impl Server {
    /// Listens on `listen` (ADDRESS:PORT; port 0 takes a free one) to serve `bytes` bytes per response.
    ///
    /// # Errors
    /// The address is not available; the message has the reason and the remedy.
    pub fn bind(listen: &str, bytes: usize) -> Result<Self, Error> {
        if bytes > BODY_BYTES_MAX {
            return Err(Error::Usage(format!("--bytes must be at most {BODY_BYTES_MAX}")));
        }
        let io_error = |e: std::io::Error| {
            let advice = match e.kind() {
                std::io::ErrorKind::AddrInUse => "the address is in use; choose another port, or 0 for a free one",
                std::io::ErrorKind::AddrNotAvailable => {
                    "this machine has no such address; 0.0.0.0 means all of its \
                    addresses"
                }
                std::io::ErrorKind::PermissionDenied => "ports below 1024 need root",
                _ => "expected ADDRESS:PORT, such as 0.0.0.0:8080",
            };
            Error::Failed(format!("cannot listen on {listen}: {e}: {advice}"))
        };
        let addresses: Vec<SocketAddr> = listen.to_socket_addrs().map_err(io_error)?.collect();
        let listener = TcpListener::bind(addresses.as_slice()).map_err(io_error)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let answer = |connection: &str| {
            let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n{connection}\r\n").into_bytes();
            answer.resize(answer.len() + bytes, b'x');
            answer
        };
        let answers = Responses { bytes, keep: answer(""), close: answer("Connection: close\r\n") };
        Ok(Self { listener, address, answers })
    }

    /// The address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves with `threads` threads until `stop` returns true; connections are then closed.
    ///
    /// # Errors
    /// The system refused a resource.
    pub fn serve(&self, threads: usize, stop: &(dyn Fn() -> bool + Sync)) -> Result<(), Error> {
        let results: Vec<Result<(), Errno>> = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads.max(1)).map(|_| scope.spawn(|| self.serve_connections(stop))).collect();
            workers.into_iter().map(|w| w.join().unwrap_or(Err(Errno::CANCELED))).collect()
        });
        let io_error = |e: Errno| Error::Failed(format!("the HTTP server ended: {}", std::io::Error::from(e)));
        results.into_iter().collect::<Result<(), Errno>>().map_err(io_error)
    }

    fn serve_connections(&self, stop: &dyn Fn() -> bool) -> Result<(), Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        // Exclusive: a new connection wakes one thread, not all.
        epoll::add(&epoll, &self.listener, EventData::new_u64(LISTENER_KEY), EventFlags::IN | EventFlags::EXCLUSIVE)?;
        let mut connections: HashMap<u64, Connection> = HashMap::new();
        let (mut next, mut events, mut scratch) = (0_u64, Vec::with_capacity(256), vec![0; 64 << 10]);
        let limit = Timespec { tv_sec: 0, tv_nsec: POLL_INTERVAL.as_nanos() as _ };
        while !stop() {
            match epoll::wait(&epoll, spare_capacity(&mut events), Some(&limit)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(e) => return Err(e),
            }
            for event in events.drain(..) {
                let id = event.data.u64();
                if id == LISTENER_KEY {
                    while let Some(connection) = self.accept(connections.len())? {
                        epoll::add(&epoll, &connection.socket, EventData::new_u64(next), EventFlags::IN)?;
                        connections.insert(next, connection);
                        next += 1;
                    }
                } else if let Some(connection) = connections.get_mut(&id) {
                    match connection.advance(&self.answers, &mut scratch) {
                        Some(flags) if flags == connection.waits_for => {}
                        Some(flags) => {
                            connection.waits_for = flags;
                            epoll::modify(&epoll, &connection.socket, event.data, flags)?;
                        }
                        None => {
                            connections.remove(&id);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn accept(&self, open_connections: usize) -> Result<Option<Connection>, Errno> {
        loop {
            match rustix::net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) if open_connections < CONNECTIONS_PER_THREAD_MAX => {
                    let _ = sockopt::set_tcp_nodelay(&socket, true);
                    return Ok(Some(Connection::new(socket)));
                }
                // Too many: dropping it closes it.
                Ok(_) => {}
                Err(Errno::AGAIN) => return Ok(None),
                // The peer may have gone meanwhile.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The client stays in the listener's queue until a descriptor is free; this must not busy-loop.
                Err(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) => {
                    std::thread::sleep(Duration::from_millis(1));
                    return Ok(None);
                }
                Err(e) => return Err(e),
            }
        }
    }
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    requests: Requests,
    /// Responses not yet sent.
    unsent: Vec<u8>,
    sent: usize,
    /// Whether to close the connection once those are sent.
    last: bool,
    waits_for: EventFlags,
}

impl Connection {
    fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            requests: Requests::default(),
            unsent: Vec::new(),
            sent: 0,
            last: false,
            waits_for: EventFlags::IN,
        }
    }

    /// Sends due responses, or reads requests and answers them. Returns the event to wait for; none when the connection
    /// is over.
    fn advance(&mut self, answers: &Responses, scratch: &mut [u8]) -> Option<EventFlags> {
        if self.unsent.is_empty() {
            match rustix::io::read(&self.socket, &mut *scratch) {
                Ok(0) => return None,
                Ok(n) => self.requests.push(&scratch[..n]),
                Err(Errno::INTR | Errno::AGAIN) => return Some(EventFlags::IN),
                Err(_) => return None,
            }
            self.answer(answers);
        }
        while !self.unsent.is_empty() {
            while self.sent < self.unsent.len() {
                match rustix::net::send(&self.socket, &self.unsent[self.sent..], SendFlags::NOSIGNAL) {
                    Ok(n) => self.sent += n,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Some(EventFlags::OUT),
                    Err(_) => return None,
                }
            }
            self.unsent.clear();
            self.sent = 0;
            // Requests that arrived together with these, for whose responses there was no room.
            self.answer(answers);
        }
        (!self.last).then_some(EventFlags::IN)
    }

    /// Answers the complete requests received, as far as there is room.
    fn answer(&mut self, answers: &Responses) {
        while self.unsent.len() <= BODY_BYTES_MAX {
            let Some(Request { kind: asked, last }) = self.requests.take() else { return };
            self.last = last;
            let answer = if last { &answers.close } else { &answers.keep };
            match asked {
                RequestKind::Get => self.unsent.extend_from_slice(answer),
                RequestKind::Head => self.unsent.extend_from_slice(&answer[..answer.len() - answers.bytes]),
                RequestKind::Refused(status) => {
                    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                    self.unsent.extend_from_slice(answer.as_bytes());
                }
            }
        }
    }
}
