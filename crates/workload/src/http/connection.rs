//! One connection of the client: at most one request in flight, its response checked byte for byte.
//!
//! Never waits: every step continues until the socket would block, and reports that. With a blocking socket (a thread with
//! a single connection saves the call that finds ready ones) "would block" is the socket's own timeout.

use super::failure::{Failure, SocketOperation as At};
use super::response::{MalformedResponse, Response};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sockopt};
use std::net::SocketAddr;
use std::time::Duration;

/// How long a blocking socket waits before timeouts and Ctrl-C are checked.
pub const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest body that is kept for comparison with later ones.
const BODY_BYTES_MAX: usize = 64 << 20;
/// Bytes per read.
const READ_BYTES: usize = 64 << 10;

/// State common to all connections.
#[derive(Debug)]
pub struct Plan {
    pub address: SocketAddr,
    pub request: Vec<u8>,
    /// Whether a connection serves more than one request.
    pub keep_alive: bool,
    /// The status that every response must have.
    pub status: u16,
    /// The body that every response must have; `None` accepts any (and keeps it).
    pub body: Option<Vec<u8>>,
    /// A response that is not complete by then is an error, ns.
    pub timeout_ns: u64,
    /// Whether sockets block, for at most [`POLL_INTERVAL`].
    pub blocking: bool,
}

/// The progress of a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// It waits for the network.
    Waiting,
    /// Its response is complete and correct.
    Done,
    Failed(Failure),
}

/// A connection, open or not.
#[derive(Debug)]
pub struct Connection {
    socket: Option<OwnedFd>,
    /// Whether the socket was created since the caller last asked.
    fresh: bool,
    /// Responses received over this socket.
    served: u64,
    sent: usize,
    response: Response,
    /// Bytes read and not yet consumed by the response.
    unconsumed: Vec<u8>,
    /// Bytes of this response, head and body.
    response_bytes: u64,
    body: Vec<u8>,
    body_length: usize,
    body_differs: bool,
    scratch: Vec<u8>,
    /// The deadline of the current request.
    pub deadline_ns: u64,
    /// When the current request began, for its latency.
    pub begun_ns: u64,
    /// Bytes received in all.
    pub received: u64,
    /// Connections opened to replace those that the server had closed.
    pub reopened: u64,
}

impl Connection {
    /// Creates a closed connection.
    pub fn new() -> Self {
        Self {
            socket: None,
            fresh: false,
            served: 0,
            sent: 0,
            response: Response::default(),
            unconsumed: Vec::new(),
            response_bytes: 0,
            body: Vec::new(),
            body_length: 0,
            body_differs: false,
            scratch: vec![0; READ_BYTES],
            deadline_ns: 0,
            begun_ns: 0,
            received: 0,
            reopened: 0,
        }
    }

    /// Returns the socket if it was opened since the last call, for registration with epoll.
    pub fn take_fresh(&mut self) -> Option<&OwnedFd> {
        std::mem::take(&mut self.fresh).then_some(self.socket.as_ref()).flatten()
    }

    /// The body of the last response, if none was expected.
    pub fn into_body(self) -> Vec<u8> {
        self.body
    }

    /// Opens it. `ahead` of the first request the connection is awaited; as part of a request, the request is sent
    /// along with it.
    ///
    /// # Errors
    /// [`Failure::System`].
    pub fn open(&mut self, plan: &Plan, ahead: bool) -> Result<(), Failure> {
        let describe = |errno| Failure::System { at: At::Connect, address: plan.address, errno };
        let family = if plan.address.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
        let wait = plan.blocking || ahead;
        let flags = if wait { SocketFlags::CLOEXEC } else { SocketFlags::CLOEXEC | SocketFlags::NONBLOCK };
        let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None).map_err(describe)?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(describe)?;
        let limit = |which, time| sockopt::set_socket_timeout(&socket, which, Some(time)).map_err(describe);
        if wait {
            limit(sockopt::Timeout::Send, if ahead { Duration::from_nanos(plan.timeout_ns) } else { POLL_INTERVAL })?;
        }
        match rustix::net::connect(&socket, &plan.address) {
            Ok(()) => {}
            Err(Errno::INPROGRESS | Errno::AGAIN) if ahead => return Err(describe(Errno::TIMEDOUT)),
            // Not connected yet: the first send shows whether it will be.
            Err(Errno::INPROGRESS | Errno::AGAIN | Errno::INTR) => {}
            Err(e) => return Err(describe(e)),
        }
        if plan.blocking {
            limit(sockopt::Timeout::Recv, POLL_INTERVAL)?;
            limit(sockopt::Timeout::Send, POLL_INTERVAL)?;
        } else if ahead {
            rustix::io::ioctl_fionbio(&socket, true).map_err(describe)?;
        }
        (self.socket, self.fresh, self.served) = (Some(socket), true, 0);
        self.unconsumed.clear();
        Ok(())
    }

    /// Begins a request whose latency counts from `begun_ns`.
    pub fn begin_request(&mut self, plan: &Plan, begun_ns: u64, now_ns: u64) -> Step {
        (self.begun_ns, self.deadline_ns) = (begun_ns, now_ns.saturating_add(plan.timeout_ns));
        self.response_bytes = 0;
        self.reset_request();
        if self.socket.is_none()
            && let Err(why) = self.open(plan, false)
        {
            return Step::Failed(why);
        }
        self.advance(plan)
    }

    fn reset_request(&mut self) {
        (self.sent, self.response, self.body_length, self.body_differs) = (0, Response::default(), 0, false);
        self.body.clear();
    }

    /// Continues as far as the network allows.
    pub fn advance(&mut self, plan: &Plan) -> Step {
        match self.exchange(plan) {
            Ok(false) => Step::Waiting,
            Ok(true) => {
                self.served += 1;
                if self.response.close || !plan.keep_alive {
                    self.socket = None;
                }
                match self.check_response(plan) {
                    Ok(()) => Step::Done,
                    Err(why) => Step::Failed(why),
                }
            }
            Err(BrokenExchange { why, by_peer }) => {
                self.socket = None;
                // A server may close a long-kept connection just when we send. The request was not answered, so it is
                // sent once more, over a new connection; its time continues.
                if by_peer && self.served > 0 && self.response_bytes == 0 {
                    self.reopened += 1;
                    self.reset_request();
                    return match self.open(plan, false) {
                        Ok(()) => self.advance(plan),
                        Err(why) => Step::Failed(why),
                    };
                }
                Step::Failed(why)
            }
        }
    }

    /// The current request has timed out.
    pub fn give_up(&mut self, plan: &Plan) -> Failure {
        self.socket = None;
        Failure::Late { address: plan.address, timeout_ms: plan.timeout_ns / 1_000_000, received: self.response_bytes }
    }

    /// Sends and receives; returns whether the response is complete.
    fn exchange(&mut self, plan: &Plan) -> Result<bool, BrokenExchange> {
        let Some(socket) = &self.socket else {
            let why = Failure::System { at: At::Send, address: plan.address, errno: Errno::NOTCONN };
            return Err(BrokenExchange { why, by_peer: true });
        };
        let broken = |at, errno| BrokenExchange {
            why: Failure::System { at, address: plan.address, errno },
            by_peer: matches!(errno, Errno::CONNRESET | Errno::PIPE),
        };
        let malformed = |why: MalformedResponse, by_peer| BrokenExchange {
            why: Failure::Malformed { address: plan.address, why },
            by_peer,
        };
        let sending = self.sent < plan.request.len();
        while self.sent < plan.request.len() {
            match rustix::net::send(socket, &plan.request[self.sent..], SendFlags::NOSIGNAL) {
                Ok(n) => self.sent += n,
                Err(Errno::INTR) => {}
                // A blocking socket that is not connected yet returns ALREADY or NOTCONN.
                Err(Errno::AGAIN | Errno::INPROGRESS | Errno::ALREADY) => return Ok(false),
                Err(e) => return Err(broken(At::Send, e)),
            }
        }
        // The response cannot be there yet; checking would cost a call.
        if sending && !plan.blocking {
            return Ok(false);
        }
        loop {
            let n = match rustix::io::read(socket, &mut self.scratch[..]) {
                Ok(n) => n,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Ok(false),
                Err(e) => return Err(broken(At::Receive, e)),
            };
            self.received += n as u64;
            self.response_bytes += n as u64;
            if n == 0 {
                self.response.end().map_err(|why| malformed(why, true))?;
                return Ok(true);
            }
            let (body, length, wrong) = (&mut self.body, &mut self.body_length, &mut self.body_differs);
            let mut piece = |piece: &[u8]| {
                match &plan.body {
                    Some(expected) => *wrong |= expected.get(*length..*length + piece.len()) != Some(piece),
                    None if body.len() + piece.len() <= BODY_BYTES_MAX => body.extend_from_slice(piece),
                    None => *wrong = true,
                }
                *length += piece.len();
            };
            // The usual case: everything arrived at once and nothing has to be kept.
            if self.unconsumed.is_empty() {
                let taken = self.response.take(&self.scratch[..n], &mut piece).map_err(|why| malformed(why, false))?;
                self.unconsumed.extend_from_slice(&self.scratch[taken..n]);
            } else {
                self.unconsumed.extend_from_slice(&self.scratch[..n]);
                let taken = self.response.take(&self.unconsumed, &mut piece).map_err(|why| malformed(why, false))?;
                self.unconsumed.drain(..taken);
            }
            if self.response.is_complete() {
                return match self.unconsumed.len() {
                    0 => Ok(true),
                    more => Err(malformed(MalformedResponse::Surplus(more), false)),
                };
            }
        }
    }

    fn check_response(&self, plan: &Plan) -> Result<(), Failure> {
        let address = plan.address;
        if self.response.status != plan.status {
            return Err(Failure::Status { address, found: self.response.status, expected: plan.status });
        }
        match &plan.body {
            Some(expected) if self.body_differs || self.body_length != expected.len() => {
                Err(Failure::Body { address, found: self.body_length, expected: expected.len() })
            }
            None if self.body_differs => Err(Failure::LargeBody { address, most: BODY_BYTES_MAX }),
            _ => Ok(()),
        }
    }
}

struct BrokenExchange {
    why: Failure,
    /// The peer closed the connection, as it may between requests.
    by_peer: bool,
}
