//! The kernel's list of TCP sockets (NETLINK_SOCK_DIAG), with what each says of itself, and a last message of each socket
//! that is destroyed.
//!
//! One request returns all sockets of a family in this network namespace, in batches of a buffer; states and a port are
//! filtered by the kernel (inet_diag bytecode is not needed: the list is read anyway to find new sockets). Group
//! SKNLGRP_INET_TCP_DESTROY sends every destroyed socket's final `struct tcp_info` (net/core/sock_diag.c,
//! sock_diag_broadcast_destroy), so a connection that lived between two samples is counted with its totals. It needs
//! CAP_NET_ADMIN. Messages that did not fit into the socket's buffer are reported as lost by the kernel (ENOBUFS).
//!
//! Messages are parsed from the kernel's bytes without trust in their lengths.

use crate::tcp_info::{SAMPLE_BYTES_MAX, TCP_INFO_BYTES_MAX, TcpSample};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

const NETLINK_SOCK_DIAG: libc::c_int = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// As bits, all states (1 to 12) but TIME_WAIT, CLOSE, LISTEN and NEW_SYN_RECV, which have no data.
const STATES: u32 = 0x1ffe & !(1 << 6 | 1 << 7 | 1 << 10 | 1 << 12);
/// Attributes of include/uapi/linux/inet_diag.h.
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CONG: u16 = 4;
const INET_DIAG_SKMEMINFO: u16 = 7;
const INET_DIAG_PROTOCOL: u16 = 10;
const INET_DIAG_CGROUP_ID: u16 = 21;
/// The length of `struct inet_diag_msg`.
const DIAG_MSG_BYTES: usize = 72;
const HEADER_BYTES: usize = 16;
const BATCH_BYTES: usize = 256 << 10;
/// Room for messages of destroyed sockets: about 10,000 of them.
const DESTROYED_BUFFER_BYTES: libc::c_int = 8 << 20;
/// Groups of destroyed sockets (include/uapi/linux/sock_diag.h).
const GROUP_TCP_DESTROY: libc::c_int = 1;
const GROUP_TCP6_DESTROY: libc::c_int = 3;

/// One socket, as the kernel reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiagSocket {
    /// Unique among all sockets since boot.
    pub cookie: u64,
    pub state: u8,
    pub local: SocketAddr,
    pub peer: SocketAddr,
    /// Of the interface that it is bound to; 0: none.
    pub interface: u32,
    pub uid: u32,
    /// Of its file; 0 if no process has it open.
    pub inode: u32,
    /// Of cgroup v2; `None` before Linux 5.7.
    pub cgroup: Option<u64>,
    pub congestion: Option<String>,
    /// Its state; without a time.
    pub sample: TcpSample,
}

/// A netlink socket for requests.
#[derive(Debug)]
pub struct Diag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl Diag {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel has no NETLINK_SOCK_DIAG, or a policy denies it.
    pub fn open() -> io::Result<Self> {
        Ok(Self { socket: netlink()?, buffer: vec![0; BATCH_BYTES] })
    }

    /// Calls `each` for every TCP socket with a connection, of both families.
    ///
    /// # Errors
    /// What the kernel answers, such as ENOENT where it lacks `tcp_diag`.
    pub fn list(&mut self, mut each: impl FnMut(DiagSocket)) -> io::Result<()> {
        for family in [libc::AF_INET, libc::AF_INET6] {
            send(&self.socket, &request(family as u8))?;
            loop {
                let length = receive(&self.socket, &mut self.buffer, 0)?;
                match parse_batch(&self.buffer[..length], &mut each) {
                    Batch::More => (),
                    Batch::Done => break,
                    Batch::Error(code) => return Err(io::Error::from_raw_os_error(code)),
                }
            }
        }
        Ok(())
    }
}

/// The last messages of sockets that are destroyed.
#[derive(Debug)]
pub struct Destroyed {
    socket: OwnedFd,
    buffer: Vec<u8>,
    /// How often the kernel had no room for messages.
    pub overruns: u64,
}

impl Destroyed {
    /// Subscribes.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN.
    pub fn subscribe() -> io::Result<Self> {
        let socket = netlink()?;
        // Beyond net.core.rmem_max with CAP_NET_ADMIN; without it, what the limit allows.
        if set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, DESTROYED_BUFFER_BYTES).is_err() {
            let _ = set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, DESTROYED_BUFFER_BYTES);
        }
        for group in [GROUP_TCP_DESTROY, GROUP_TCP6_DESTROY] {
            set(&socket, libc::SOL_NETLINK, libc::NETLINK_ADD_MEMBERSHIP, group)?;
        }
        Ok(Self { socket, buffer: vec![0; BATCH_BYTES], overruns: 0 })
    }

    /// Calls `each` for every socket destroyed since the last call, without waiting.
    ///
    /// # Errors
    /// The socket's.
    pub fn drain(&mut self, mut each: impl FnMut(DiagSocket)) -> io::Result<()> {
        loop {
            match receive(&self.socket, &mut self.buffer, libc::MSG_DONTWAIT) {
                Ok(length) => drop(parse_batch(&self.buffer[..length], &mut each)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => self.overruns += 1,
                Err(error) => return Err(error),
            }
        }
    }
}

enum Batch {
    More,
    Done,
    Error(i32),
}

fn parse_batch(mut bytes: &[u8], each: &mut impl FnMut(DiagSocket)) -> Batch {
    while let Some(header) = bytes.first_chunk::<HEADER_BYTES>() {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let kind = u16::from_ne_bytes([header[4], header[5]]);
        let Some(body) = bytes.get(HEADER_BYTES..length) else { return Batch::Done };
        match kind {
            SOCK_DIAG_BY_FAMILY => {
                if let Some(socket) = parse_socket(body) {
                    each(socket);
                }
            }
            _ if kind == libc::NLMSG_DONE as u16 => return Batch::Done,
            _ if kind == libc::NLMSG_ERROR as u16 => {
                return match number(body, 0, 4) as i32 {
                    0 => Batch::Done,
                    code => Batch::Error(code.wrapping_neg()),
                };
            }
            _ => (),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Batch::More
}

/// Parses one `struct inet_diag_msg` and its attributes; `None` for what is not TCP, or too short.
pub fn parse_socket(body: &[u8]) -> Option<DiagSocket> {
    let message = body.get(..DIAG_MSG_BYTES)?;
    let family = i32::from(message[0]);
    let address = |at: usize| -> Option<IpAddr> {
        match family {
            libc::AF_INET => Some(Ipv4Addr::from(<[u8; 4]>::try_from(message.get(at..at + 4)?).ok()?).into()),
            libc::AF_INET6 => {
                Some(IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(message.get(at..at + 16)?).ok()?)).to_canonical())
            }
            _ => None,
        }
    };
    let port = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let mut found = DiagSocket {
        state: message[1],
        local: SocketAddr::new(address(8)?, port(4)),
        peer: SocketAddr::new(address(24)?, port(6)),
        interface: number(message, 40, 4) as u32,
        cookie: number(message, 44, 4) | number(message, 48, 4) << 32,
        uid: number(message, 64, 4) as u32,
        inode: number(message, 68, 4) as u32,
        cgroup: None,
        congestion: None,
        sample: TcpSample::default(),
    };
    let mut values = [0_u8; SAMPLE_BYTES_MAX];
    let mut rest = body.get(DIAG_MSG_BYTES..)?;
    while rest.len() >= 4 {
        let length = number(rest, 0, 2) as usize;
        let Some(value) = rest.get(4..length) else { break };
        let mut put = |at: usize, most: usize| {
            let taken = value.len().min(most);
            values[at..at + taken].copy_from_slice(&value[..taken]);
        };
        match number(rest, 2, 2) as u16 {
            INET_DIAG_INFO => put(0, TCP_INFO_BYTES_MAX),
            INET_DIAG_SKMEMINFO => put(TCP_INFO_BYTES_MAX, SAMPLE_BYTES_MAX - TCP_INFO_BYTES_MAX),
            INET_DIAG_CONG => {
                let name = value.split(|byte| *byte == 0).next().unwrap_or_default();
                found.congestion = Some(String::from_utf8_lossy(name).into_owned());
            }
            INET_DIAG_PROTOCOL if value.first() != Some(&(libc::IPPROTO_TCP as u8)) => return None,
            INET_DIAG_CGROUP_ID => found.cgroup = Some(number(value, 0, 8)),
            _ => (),
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found.sample = TcpSample::parse(&values);
    Some(found)
}

/// A number in native byte order; 0 beyond the end.
fn number(bytes: &[u8], at: usize, size: usize) -> u64 {
    let mut wide = [0; 8];
    if let Some(field) = bytes.get(at..at + size) {
        wide[..size].copy_from_slice(field);
    }
    u64::from_le_bytes(wide)
}

/// `struct nlmsghdr` and `struct inet_diag_req_v2` for all connections of a family.
fn request(family: u8) -> Vec<u8> {
    const EXTENSIONS: u8 = 1 << (INET_DIAG_INFO - 1) | 1 << (INET_DIAG_CONG - 1) | 1 << (INET_DIAG_SKMEMINFO - 1);
    let mut body = vec![family, libc::IPPROTO_TCP as u8, EXTENSIONS, 0];
    body.extend(STATES.to_ne_bytes());
    // struct inet_diag_sockid: any; its cookie is INET_DIAG_NOCOOKIE.
    body.extend([0; 40]);
    body.extend([0xff; 8]);
    let mut message = Vec::new();
    message.extend(((HEADER_BYTES + body.len()) as u32).to_ne_bytes());
    message.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    message.extend(((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    message.extend([0; 8]);
    message.extend(body);
    message
}

fn netlink() -> io::Result<OwnedFd> {
    // SAFETY: socket has integer arguments.
    let fd = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, NETLINK_SOCK_DIAG) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: zero is a valid sockaddr_nl: the kernel picks the port.
    let mut address: libc::sockaddr_nl = unsafe { std::mem::zeroed() };
    address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
    // A socket without a port gets no messages of a group: port 0 is the sender's, the kernel's (do_one_broadcast).
    // SAFETY: the address is a whole sockaddr_nl, whose length is given.
    let failed = unsafe {
        libc::bind(socket.as_raw_fd(), (&raw const address).cast(), size_of::<libc::sockaddr_nl>() as libc::socklen_t)
    };
    if failed == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
}

fn set(socket: &OwnedFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the value is an int, and its length is given.
    let failed = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn send(socket: &OwnedFd, message: &[u8]) -> io::Result<()> {
    // SAFETY: the message is `message.len()` bytes long.
    let sent = unsafe { libc::send(socket.as_raw_fd(), message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: &OwnedFd, buffer: &mut [u8], flags: libc::c_int) -> io::Result<usize> {
    loop {
        // SAFETY: the buffer is ours, and the kernel writes at most its length.
        let length = unsafe { libc::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), flags) };
        match usize::try_from(length) {
            Ok(length) => return Ok(length),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    fn pair(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn own_connections_are_listed_with_their_state() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            if TcpListener::bind(address).is_err() {
                continue;
            }
            let (mut client, mut server) = pair(address);
            client.write_all(&[1; 5000]).unwrap();
            server.read_exact(&mut [0; 5000]).unwrap();
            let mut found = Vec::new();
            Diag::open().unwrap().list(|socket| found.push(socket)).unwrap();
            let ours = found.iter().find(|s| s.local == client.local_addr().unwrap()).unwrap();
            assert_eq!(ours.peer, server.local_addr().unwrap());
            let read = crate::tcp_info::read(client.as_raw_fd()).unwrap();
            let fields = |s: &TcpSample| (s.bytes_sent, s.bytes_acked, s.cwnd, s.snd_mss, s.min_rtt_us, s.sndbuf);
            assert_eq!(fields(&ours.sample), fields(&read));
            assert!(ours.inode > 0 && ours.congestion.is_some() && ours.cookie > 0, "{ours:?}");
        }
    }

    #[test]
    fn truncated_message_is_no_panic() {
        let mut message = vec![0_u8; 400];
        message[0] = libc::AF_INET as u8;
        (message[72], message[74]) = (200, INET_DIAG_INFO as u8);
        for length in 0..message.len() {
            assert_eq!(parse_socket(&message[..length]).is_some(), length >= DIAG_MSG_BYTES);
            let _ = parse_batch(&message[..length], &mut |_| ());
        }
    }
}
