//! Attaches a pool as a disk of this machine's kernel, with its NBD client (`drivers/block/nbd.c`), over netlink.
//!
//! The kernel expects sockets after their handshake, and runs the protocol on them itself. The options that `nbd-client`
//! leaves at their defaults matter here: when a connection dies, the kernel fails new requests at once unless it was told
//! to wait for another (`NBD_ATTR_DEAD_CONN_TIMEOUT`), and resends outstanding requests only if it has a timeout
//! (`NBD_ATTR_TIMEOUT`, Linux 5.12); without one, requests outstanding when a server died are waited for without end, even
//! after a reconnect (seen with nbd-client 3.24 and Linux 6.1). So both are set, and [`AttachedDisk::step`] reconnects after a
//! failure.
//!
//! Uncertainty: the timeout is per request, not per connection, so it must be longer than a pool takes to fail one at a node
//! that is silent (30 s); after a restart of the coordinator outstanding requests wait for it. A request may take longer at a
//! slow node, such as a flush of minutes: then the kernel sends it again over a new connection, as often as necessary. The
//! node goes on with the first one meanwhile, so that the last is soon answered.

use crate::nbd_bench::{Error, Session, Socket, Uri};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::net::netlink::{GENERIC, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::pin;
use std::time::Duration;

/// Seconds after which a request is resent.
const REQUEST_TIMEOUT_S: u64 = 40;
/// Seconds that requests wait for a new connection before they fail.
const DEAD_CONNECTION_TIMEOUT_S: u64 = 24 * 3600;
/// Bytes of a block: the unit of the pool's checksums.
const BLOCK_BYTES: u64 = 4096;

/// How often the connection is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Constants of `linux/nbd-netlink.h`.
mod number {
    pub const INDEX: u16 = 1;
    pub const SIZE_BYTES: u16 = 2;
    pub const BLOCK_SIZE_BYTES: u16 = 3;
    pub const TIMEOUT: u16 = 4;
    pub const SERVER_FLAGS: u16 = 5;
    pub const SOCKETS: u16 = 7;
    pub const DEAD_CONN_TIMEOUT: u16 = 8;
    pub const SOCK_ITEM: u16 = 1;
    pub const SOCK_FD: u16 = 1;
    pub const CONNECT: u8 = 1;
    pub const DISCONNECT: u8 = 2;
    pub const RECONFIGURE: u8 = 3;
}

/// Constants of `linux/netlink.h` and `linux/genetlink.h`.
mod generic {
    pub const HEADER_BYTES: usize = 16;
    pub const REQUEST: u16 = 1;
    pub const ACK: u16 = 4;
    pub const ERROR: u16 = 2;
    pub const NESTED: u16 = 1 << 15;
    pub const CONTROL: u16 = 0x10;
    pub const GET_FAMILY: u8 = 3;
    pub const FAMILY_ID: u16 = 1;
    pub const FAMILY_NAME: u16 = 2;
}

/// Why attaching a pool failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error(transparent)]
    Server(#[from] Error),
    #[error("the kernel's NBD client {what}: {error}")]
    Kernel { what: &'static str, error: io::Error },
}

/// The number of an NBD device such as `/dev/nbd0`.
pub fn device_index(device: &str) -> Option<u32> {
    device.strip_prefix("/dev/nbd")?.parse().ok()
}

fn kernel_failure(what: &'static str) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::Kernel { what, error }
}

/// Appends an attribute in netlink format: length, kind, value, padded to a multiple of four.
fn put_attribute(out: &mut Vec<u8>, kind: u16, value: &[u8]) {
    out.extend((value.len() as u16 + 4).to_ne_bytes());
    out.extend(kind.to_ne_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Finds the value of an attribute.
fn attribute_value(mut attributes: &[u8], wanted: u16) -> Option<&[u8]> {
    loop {
        let (length, kind) = (u16_at(attributes, 0)? as usize, u16_at(attributes, 2)?);
        if kind & !generic::NESTED == wanted {
            return attributes.get(4..length);
        }
        attributes = attributes.get(length.max(4).next_multiple_of(4)..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    Some(i32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Iterates over the messages of a datagram: kind and content.
fn messages(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = i32_at(bytes, 0).and_then(|length| usize::try_from(length).ok())?;
        let (kind, content) = (u16_at(bytes, 4)?, bytes.get(generic::HEADER_BYTES..length)?);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, content))
    })
}

/// A netlink socket to the kernel's NBD client.
struct Netlink {
    socket: OwnedFd,
    family: u16,
}

impl Netlink {
    fn open() -> io::Result<Self> {
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, Some(GENERIC))?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        let mut netlink = Self { socket, family: generic::CONTROL };
        let mut name = Vec::new();
        put_attribute(&mut name, generic::FAMILY_NAME, b"nbd\0");
        let answer = netlink.request(generic::GET_FAMILY, &name)?;
        let id = answer.get(4..).and_then(|attributes| attribute_value(attributes, generic::FAMILY_ID));
        netlink.family = id.and_then(|id| u16_at(id, 0)).ok_or_else(|| io::Error::other("it has no number"))?;
        Ok(netlink)
    }

    /// Sends a command and waits until the kernel acknowledges it; returns any other response.
    fn request(&self, command: u8, attributes: &[u8]) -> io::Result<Vec<u8>> {
        let length = generic::HEADER_BYTES + 4 + attributes.len();
        let mut out = (length as u32).to_ne_bytes().to_vec();
        out.extend(self.family.to_ne_bytes());
        out.extend((generic::REQUEST | generic::ACK).to_ne_bytes());
        // Sequence number and port id are 0: there is one request at a time, and the kernel identifies the sender.
        out.extend([0; 8]);
        out.extend([command, 1, 0, 0]);
        out.extend(attributes);
        send(&self.socket, &out, SendFlags::empty())?;
        let mut answer = Vec::new();
        loop {
            let mut input = vec![0; 16 << 10];
            let (count, _) = recv(&self.socket, &mut input[..], RecvFlags::empty())?;
            for (kind, content) in messages(&input[..count]) {
                if kind == generic::ERROR {
                    return match i32_at(content, 0).unwrap_or(-22) {
                        0 => Ok(answer),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    };
                }
                answer = content.to_vec();
            }
        }
    }
}

pub struct AttachedDisk {
    netlink: Netlink,
    place: Uri,
    index: u32,
    size_bytes: u64,
    /// Our copy of the socket, to detect when the connection dies; the kernel uses it.
    socket: Option<Socket>,
}

/// The state of an attached pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It has a connection.
    Connected,
    /// Requests wait for a connection.
    Away,
    /// It was detached by another process.
    Detached,
}

impl AttachedDisk {
    /// Attaches the export at `place` as the disk `/dev/nbdINDEX`.
    pub fn new(place: &Uri, index: u32) -> Result<Self, Failure> {
        let netlink = Netlink::open().map_err(kernel_failure("is not available (`modprobe nbd`)"))?;
        let socket = Session::open_for_kernel(place)?;
        let size_bytes = socket.size_bytes;
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, number::INDEX, &index.to_ne_bytes());
        for (kind, value) in [
            (number::SIZE_BYTES, size_bytes),
            (number::BLOCK_SIZE_BYTES, BLOCK_BYTES),
            (number::SERVER_FLAGS, u64::from(socket.flags)),
            (number::TIMEOUT, REQUEST_TIMEOUT_S),
            (number::DEAD_CONN_TIMEOUT, DEAD_CONNECTION_TIMEOUT_S),
        ] {
            put_attribute(&mut attributes, kind, &value.to_ne_bytes());
        }
        put_socket(&mut attributes, &socket);
        netlink
            .request(number::CONNECT, &attributes)
            .map_err(kernel_failure("refused the disk (this needs root and a free device)"))?;
        Ok(Self { netlink, place: place.clone(), index, size_bytes, socket: Some(socket) })
    }

    /// Maintains the connection, without blocking except for a server's handshake. Called a few times a second.
    ///
    /// # Errors
    /// [`Failure`]: the server now has another disk, or the kernel rejects the connection. Requests to the disk wait.
    pub fn step(&mut self) -> Result<State, Failure> {
        if let Some(socket) = &self.socket {
            let mut polled = [PollFd::new(&socket.socket, PollFlags::RDHUP)];
            let now = rustix::time::Timespec::default();
            let count =
                poll(&mut polled, Some(&now)).map_err(|error| kernel_failure("cannot be watched")(error.into()))?;
            if count == 0 {
                return Ok(State::Connected);
            }
            self.socket = None;
        }
        // The server is not running, or not yet.
        let Ok(socket) = Session::open_for_kernel(&self.place) else { return Ok(self.unless_detached(State::Away)) };
        if socket.size_bytes != self.size_bytes {
            let error =
                io::Error::other(format!("its size changed from {} to {} bytes", self.size_bytes, socket.size_bytes));
            return Err(kernel_failure("has another disk")(error));
        }
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, number::INDEX, &self.index.to_ne_bytes());
        put_socket(&mut attributes, &socket);
        match self.netlink.request(number::RECONFIGURE, &attributes) {
            Ok(_) => {
                self.socket = Some(socket);
                Ok(State::Connected)
            }
            // The kernel has not noticed yet that the old connection is dead.
            Err(error) if error.raw_os_error() == Some(28) => Ok(State::Away),
            Err(error) => match self.unless_detached(State::Away) {
                State::Detached => Ok(State::Detached),
                _ => Err(kernel_failure("refused the new connection")(error)),
            },
        }
    }

    /// Maintains the connection until `ended` completes, which detaches the disk, or until it is detached. `changed` is
    /// called when the state changes.
    ///
    /// # Errors
    /// As [`AttachedDisk::step`] and [`AttachedDisk::detach`].
    pub async fn maintain(
        mut self,
        ended: impl Future<Output = ()>,
        mut changed: impl FnMut(State),
    ) -> Result<(), Failure> {
        let mut ended = pin!(ended);
        let mut before = State::Connected;
        while before != State::Detached {
            tokio::select! {
                () = &mut ended => return self.detach(),
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
            }
            let now = self.step()?;
            if now != before {
                changed(now);
            }
            before = now;
        }
        Ok(())
    }

    /// Returns `state`, unless the disk was detached.
    fn unless_detached(&self, state: State) -> State {
        let size = std::fs::read_to_string(format!("/sys/block/nbd{}/size", self.index));
        if size.is_ok_and(|size| size.trim() == "0") { State::Detached } else { state }
    }

    /// Detaches the disk; the kernel must have written everything before (`umount`).
    pub fn detach(self) -> Result<(), Failure> {
        let mut attributes = Vec::new();
        put_attribute(&mut attributes, number::INDEX, &self.index.to_ne_bytes());
        self.netlink
            .request(number::DISCONNECT, &attributes)
            .map_err(kernel_failure("cannot disconnect the disk"))
            .map(drop)
    }
}

/// Adds the attributes for the connection that the kernel is to use.
fn put_socket(attributes: &mut Vec<u8>, socket: &Socket) {
    let (mut fd, mut item) = (Vec::new(), Vec::new());
    put_attribute(&mut fd, number::SOCK_FD, &socket.socket.as_raw_fd().to_ne_bytes());
    put_attribute(&mut item, number::SOCK_ITEM | generic::NESTED, &fd);
    put_attribute(attributes, number::SOCKETS | generic::NESTED, &item);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netlink_attribute_is_found_by_type() {
        let mut bytes = Vec::new();
        put_attribute(&mut bytes, 7, b"abc");
        put_attribute(&mut bytes, 9, &5_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 16);
        assert_eq!(attribute_value(&bytes, 7), Some(&b"abc"[..]));
        assert_eq!(attribute_value(&bytes, 9).and_then(|value| i32_at(value, 0)), Some(5));
        assert_eq!(attribute_value(&bytes, 8), None);
        // Invalid lengths only end the search.
        assert_eq!(attribute_value(&[255, 255, 7, 0], 7), None);
        assert_eq!(attribute_value(&[0, 0, 0, 0], 7), None);
    }

    #[test]
    fn only_an_nbd_device_has_an_index() {
        assert_eq!(
            ["/dev/nbd0", "/dev/nbd15", "/dev/nbd", "/dev/nbd0p1", "/dev/ublkb0"].map(device_index),
            [Some(0), Some(15), None, None, None]
        );
    }

    #[test]
    fn netlink_datagram_is_split_into_messages() {
        let message = |kind: u16, content: &[u8]| {
            let mut bytes = (16 + content.len() as u32).to_ne_bytes().to_vec();
            bytes.extend(kind.to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(content);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            bytes
        };
        let bytes = [message(3, b"abcde"), message(2, &[0; 4])].concat();
        assert_eq!(messages(&bytes).collect::<Vec<_>>(), [(3, &b"abcde"[..]), (2, &[0; 4][..])]);
        assert_eq!(messages(&[255; 20]).count(), 0);
        assert_eq!(messages(&bytes[..18]).count(), 0);
    }
}
