//! The client side of NBD, limited to what a load needs: GO, then simple replies.

use super::uri::{ServerAddress, Uri};
use super::{Error, REPLY_HEADER_BYTES, SILENCE_TIMEOUT};
use nbd::wire::{self, command, handshake, info, option, reply};
use rustix::net::sockopt::Timeout;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

/// The maximum accepted length of a reply to an option.
const OPTION_REPLY_BYTES_MAX: u32 = 64 << 10;

/// A stream with alternating reads and writes.
pub trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

/// A connection after its handshake.
pub struct Session {
    stream: Box<dyn Stream>,
    place: String,
    size_bytes: u64,
    flags: u16,
}

/// A connection after its handshake, to be used by another component.
pub struct Socket {
    pub socket: OwnedFd,
    pub size_bytes: u64,
    /// The capabilities of the export: [`wire::transmission`].
    pub flags: u16,
}

fn connect(place: &Uri) -> Result<(Box<dyn Stream>, OwnedFd), Error> {
    let connected = || -> io::Result<(Box<dyn Stream>, OwnedFd)> {
        Ok(match &place.server {
            ServerAddress::Tcp(host, port) => {
                let stream = TcpStream::connect((host.as_str(), *port))?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
                let socket = stream.try_clone()?.into();
                (Box::new(stream), socket)
            }
            ServerAddress::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(SILENCE_TIMEOUT))?;
                let socket = stream.try_clone()?.into();
                (Box::new(stream), socket)
            }
        })
    };
    connected().map_err(|error| Error::Connection { place: place.to_string(), error })
}

pub fn put_request(out: &mut Vec<u8>, command: u16, cookie: u64, offset: u64, length: u32) {
    let mut head = [0; wire::REQUEST_BYTES];
    head[..4].copy_from_slice(&wire::REQUEST_MAGIC.to_be_bytes());
    head[6..8].copy_from_slice(&command.to_be_bytes());
    head[8..16].copy_from_slice(&cookie.to_be_bytes());
    head[16..24].copy_from_slice(&offset.to_be_bytes());
    head[24..].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&head);
}

/// Parses a simple reply: error and cookie.
pub fn parse_reply(head: &[u8; REPLY_HEADER_BYTES]) -> Option<(u32, u64)> {
    let number = |range: std::ops::Range<usize>| head[range].iter().fold(0, |n: u64, byte| n << 8 | u64::from(*byte));
    (number(0..4) == u64::from(wire::SIMPLE_REPLY_MAGIC)).then(|| (number(4..8) as u32, number(8..16)))
}

impl Session {
    /// Connects and selects the export.
    pub fn open(place: &Uri) -> Result<Self, Error> {
        Self::from_stream(connect(place)?.0, place)
    }

    /// As [`Session::open`], for use by the kernel.
    pub fn open_for_kernel(place: &Uri) -> Result<Socket, Error> {
        let (stream, socket) = connect(place)?;
        let session = Self::from_stream(stream, place)?;
        // The timeout would end the kernel's own reads.
        let forever = rustix::net::sockopt::set_socket_timeout(&socket, Timeout::Recv, None);
        forever.map_err(|error| session.connection_error(error.into()))?;
        Ok(Socket { socket, size_bytes: session.size_bytes, flags: session.flags })
    }

    /// Selects the export, over a stream to its server.
    pub fn from_stream(stream: Box<dyn Stream>, place: &Uri) -> Result<Self, Error> {
        let mut session = Self { stream, place: place.to_string(), size_bytes: 0, flags: 0 };
        session.greet(&place.export)?;
        Ok(session)
    }

    fn greet(&mut self, export: &str) -> Result<(), Error> {
        let greeting: [u8; 18] = self.read_exactly()?;
        let flags = u16::from_be_bytes([greeting[16], greeting[17]]);
        if greeting[..8] != wire::GREETING_MAGIC.to_be_bytes()
            || greeting[8..16] != wire::OPTION_MAGIC.to_be_bytes()
            || flags & handshake::FIXED_NEWSTYLE == 0
        {
            return Err(self.protocol_error("does not support NBD's fixed newstyle handshake".into()));
        }
        let mut out = u32::from(flags & (handshake::FIXED_NEWSTYLE | handshake::NO_ZEROES)).to_be_bytes().to_vec();
        out.extend(wire::OPTION_MAGIC.to_be_bytes());
        out.extend(option::GO.to_be_bytes());
        out.extend((export.len() as u32 + 6).to_be_bytes());
        out.extend((export.len() as u32).to_be_bytes());
        out.extend(export.as_bytes());
        // No information is requested; size and flags are sent anyway.
        out.extend([0, 0]);
        self.send(&out)?;
        loop {
            let head: [u8; 20] = self.read_exactly()?;
            let word = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
            let (kind, length) = (word(12), word(16));
            if head[..8] != wire::OPTION_REPLY_MAGIC.to_be_bytes()
                || word(8) != option::GO
                || length > OPTION_REPLY_BYTES_MAX
            {
                return Err(self.protocol_error("sent an invalid reply to NBD_OPT_GO".into()));
            }
            let mut data = vec![0; length as usize];
            self.stream.read_exact(&mut data).map_err(|error| self.connection_error(error))?;
            match kind {
                reply::ACK => return Ok(()),
                reply::INFO if data.len() >= 10 && data[..2] == info::EXPORT.to_be_bytes() => {
                    self.size_bytes = data[2..10].iter().fold(0, |n, byte| n << 8 | u64::from(*byte));
                    self.flags = data.get(10..12).map_or(0, |flags| u16::from_be_bytes([flags[0], flags[1]]));
                }
                reply::INFO => {}
                _ => {
                    let text = String::from_utf8_lossy(&data).into_owned();
                    return Err(self.protocol_error(format!("refused the export {export:?} (reply {kind:#x}): {text}")));
                }
            }
        }
    }

    fn read_exactly<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let mut bytes = [0; N];
        self.stream.read_exact(&mut bytes).map_err(|error| self.connection_error(error))?;
        Ok(bytes)
    }

    pub fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    pub fn stream(&mut self) -> &mut dyn Stream {
        &mut *self.stream
    }

    pub fn send(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|error| self.connection_error(error))
    }

    /// Receives the next reply, which has no data: error and cookie.
    pub fn reply(&mut self) -> Result<(u32, u64), Error> {
        let head = self.read_exactly()?;
        parse_reply(&head).ok_or_else(|| self.protocol_error("sent an invalid reply".into()))
    }

    pub fn disconnect(mut self) {
        let mut out = Vec::new();
        put_request(&mut out, command::DISCONNECT, 0, 0, 0);
        // The measurement is over; a server that is already gone needs no message.
        let _ = self.stream.write_all(&out);
    }

    /// The error for a violation of the protocol.
    pub fn protocol_error(&self, what: String) -> Error {
        Error::Server { place: self.place.clone(), what }
    }

    /// The error for a broken connection.
    pub fn connection_error(&self, error: io::Error) -> Error {
        let error = match error.kind() {
            io::ErrorKind::WouldBlock => io::Error::other(format!("no answer for {} s", SILENCE_TIMEOUT.as_secs())),
            _ => error,
        };
        Error::Connection { place: self.place.clone(), error }
    }
}
