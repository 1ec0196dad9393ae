//! Socket options: set as requested, and read back as granted.
//!
//! The kernel doubles a buffer size that is set, limits it to net.core.{w,r}mem_max, and stops tuning it. So the requested
//! size is not the actual one: both are reported.

use crate::error::{Error, Result};
use crate::outcome::SocketSettings;
use crate::spec::SocketOptions;
use socket2::{Domain, Protocol, SockRef, Socket, Type};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd as _, RawFd};

/// Creates a socket, configured but not connected. `interface` binds it to a network interface.
///
/// # Errors
/// [`Error::Setting`] with the option that was rejected.
pub fn create(to: SocketAddr, options: &SocketOptions, interface: Option<&str>, udp: bool) -> Result<Socket> {
    let (kind, protocol) = if udp { (Type::DGRAM, Protocol::UDP) } else { (Type::STREAM, Protocol::TCP) };
    let socket = Socket::new(Domain::for_address(to), kind, Some(protocol))
        .map_err(|source| Error::Io { doing: "create a socket", source })?;
    if let Some(name) = interface {
        bind_to_interface(&socket, name)?;
    }
    set_options(&SockRef::from(&socket), options, !udp)?;
    Ok(socket)
}

fn bind_to_interface(socket: &Socket, interface: &str) -> Result<()> {
    socket.bind_device(Some(interface.as_bytes())).map_err(|source| Error::Setting {
        remedy: match source.raw_os_error() {
            Some(libc::ENODEV) => "; `ip link` lists this machine's interfaces",
            Some(libc::EPERM) => "; this needs root or CAP_NET_RAW",
            _ => "",
        },
        what: format!("the interface {interface}"),
        source,
    })
}

/// Sets the requested options.
///
/// # Errors
/// [`Error::Setting`].
pub fn set_options(socket: &SockRef<'_>, options: &SocketOptions, tcp: bool) -> Result<()> {
    let setting_error = |what: String, remedy: &'static str| move |source| Error::Setting { what, source, remedy };
    if let Some(bytes) = options.send_buffer {
        socket
            .set_send_buffer_size(bytes as usize)
            .map_err(setting_error(format!("a send buffer of {bytes} bytes"), ""))?;
    }
    if let Some(bytes) = options.receive_buffer {
        socket
            .set_recv_buffer_size(bytes as usize)
            .map_err(setting_error(format!("a receive buffer of {bytes} bytes"), ""))?;
    }
    if let Some(bps) = options.pacing_bps {
        set_pacing_rate(socket.as_raw_fd(), bps / 8)
            .map_err(setting_error(format!("a pacing rate of {bps} bit/s"), ""))?;
    }
    if !tcp {
        return Ok(());
    }
    socket.set_tcp_nodelay(options.nodelay).map_err(setting_error("TCP_NODELAY".into(), ""))?;
    if let Some(mss) = options.mss {
        socket
            .set_tcp_mss(mss)
            .map_err(setting_error(format!("an MSS of {mss} bytes"), "; it can be 88 to 32767 bytes"))?;
    }
    if let Some(name) = &options.congestion {
        socket.set_tcp_congestion(name.as_bytes()).map_err(|source| Error::Setting {
            what: format!("the congestion control {name}"),
            remedy: match source.raw_os_error() {
                Some(libc::ENOENT) => {
                    "; net.ipv4.tcp_available_congestion_control lists the kernel's, `modprobe tcp_NAME` may add one"
                }
                Some(libc::EPERM) => {
                    "; without root, only those in net.ipv4.tcp_allowed_congestion_control are permitted"
                }
                _ => "",
            },
            source,
        })?;
    }
    Ok(())
}

fn set_pacing_rate(fd: RawFd, bytes_per_s: u64) -> std::io::Result<()> {
    // SAFETY: the value is a u64 of ours, and its size is given.
    let failed = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const bytes_per_s).cast(),
            size_of::<u64>() as libc::socklen_t,
        )
    };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Reads back what the kernel granted. Values that cannot be read are 0 or empty.
pub fn granted_settings(socket: &SockRef<'_>, tcp: bool) -> SocketSettings {
    let address = |a: std::io::Result<socket2::SockAddr>| {
        a.ok().and_then(|a| a.as_socket()).map(|a| a.to_string()).unwrap_or_default()
    };
    let congestion = |name: Vec<u8>| String::from_utf8_lossy(&name).trim_end_matches('\0').to_string();
    SocketSettings {
        local: address(socket.local_addr()),
        peer: address(socket.peer_addr()),
        send_buffer: socket.send_buffer_size().unwrap_or(0) as u64,
        receive_buffer: socket.recv_buffer_size().unwrap_or(0) as u64,
        mss: if tcp { socket.tcp_mss().unwrap_or(0).into() } else { 0 },
        congestion: if tcp { socket.tcp_congestion().ok().map(congestion) } else { None },
        cookie: socket.cookie().unwrap_or(0),
    }
}

/// Bytes received by a socket but not read yet.
pub fn unread_bytes(fd: RawFd) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which is ours.
    let failed = unsafe { libc::ioctl(fd, libc::FIONREAD, &raw mut bytes) };
    if failed == 0 { bytes.max(0) as u64 } else { 0 }
}

/// Whether a connection was reset, or shut down at this end; does not block.
pub fn has_ended(fd: RawFd) -> bool {
    // poll reports POLLERR and POLLHUP without being asked.
    let mut poll = libc::pollfd { fd, events: 0, revents: 0 };
    // SAFETY: one pollfd of ours is read and written.
    let ready = unsafe { libc::poll(&raw mut poll, 1, 0) };
    ready > 0 && poll.revents & (libc::POLLERR | libc::POLLHUP) != 0
}

/// The kernel's settings that limit buffers, and its congestion controls.
pub fn kernel_settings() -> std::collections::BTreeMap<String, String> {
    let names = [
        "net.ipv4.tcp_wmem",
        "net.ipv4.tcp_rmem",
        "net.core.wmem_max",
        "net.core.rmem_max",
        "net.ipv4.tcp_congestion_control",
        "net.ipv4.tcp_available_congestion_control",
    ];
    let read = |name: &str| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        let text = std::fs::read_to_string(path).ok()?;
        Some((name.to_string(), text.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    names.into_iter().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_and_granted_buffer_sizes_are_reported() {
        let options = SocketOptions {
            send_buffer: Some(16_384),
            receive_buffer: Some(8192),
            mss: Some(1000),
            congestion: Some("reno".into()),
            nodelay: true,
            pacing_bps: Some(8_000_000),
        };
        let socket = create("127.0.0.1:1".parse().unwrap(), &options, None, false).unwrap();
        let granted = granted_settings(&SockRef::from(&socket), true);
        // Linux doubles the size that is set (net/core/sock.c, SO_SNDBUF).
        assert_eq!((granted.send_buffer, granted.receive_buffer), (32_768, 16_384));
        assert_eq!(granted.congestion.as_deref(), Some("reno"));
        assert!(SockRef::from(&socket).tcp_nodelay().unwrap());
    }

    #[test]
    fn refused_socket_option_error_has_remedy() {
        let to = "127.0.0.1:1".parse().unwrap();
        let none = SocketOptions { congestion: Some("nosuch".into()), ..SocketOptions::default() };
        let refused = create(to, &none, None, false).unwrap_err().to_string();
        assert!(refused.contains("nosuch") && refused.contains("tcp_available_congestion_control"), "{refused}");
        let refused = create(to, &SocketOptions::default(), Some("nosuch0"), false).unwrap_err().to_string();
        assert!(refused.contains("nosuch0") && (refused.contains("ip link") || refused.contains("root")), "{refused}");
    }
}
