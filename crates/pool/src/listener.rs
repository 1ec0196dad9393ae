//! The sockets that a coordinator or a node listens on, in the file system or at an address.

use crate::connect::Stream;
use model::text::ShownPath as _;
use std::fmt::{self, Display, Formatter};
use std::fs::Metadata;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// The maximum length of a socket's path: `sun_path` of unix(7) has 108 bytes, the last of which is a NUL.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where clients connect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A socket in the file system.
    Unix(PathBuf),
    Tcp(SocketAddr),
}

impl Endpoint {
    /// Its network address, if it has one.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }
}

/// The syntax of the command line.
impl Display for Endpoint {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.to_string_lossy()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Why a text is not an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum EndpointError {
    /// It is neither kind.
    #[error("expected unix:PATH or tcp:ADDR:PORT, such as tcp:127.0.0.1:10809")]
    Neither,
    /// Its address is invalid.
    #[error(transparent)]
    Address(#[from] wire::AddressError),
}

/// `unix:PATH` or `tcp:ADDRESS:PORT`.
impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Ok(Self::Unix(path.into())),
            Some(("tcp", rest)) => Ok(Self::Tcp(wire::address(rest)?)),
            _ => Err(EndpointError::Neither),
        }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {place}: {error}")]
pub struct Error {
    place: String,
    error: io::Error,
}

/// A listening socket; one in the file system is removed when it is dropped.
#[derive(Debug)]
pub struct Listener(Socket);

#[derive(Debug)]
enum Socket {
    Unix(UnixListener, PathBuf, Inode),
    Tcp(TcpListener),
}

/// The identity of a file: device and inode. No other file gets that of a socket while it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

impl Inode {
    fn from_metadata(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }
}

/// A client's stream; an enum, so that a request needs no dynamic dispatch.
#[derive(Debug)]
pub enum ClientStream {
    /// From a socket in the file system.
    Unix(UnixStream),
    /// From an address.
    Tcp(TcpStream),
}

impl ClientStream {
    /// Who is at the other end, for messages: an address, or a process of this machine with its program.
    pub fn peer(&self) -> String {
        let process = |stream: &UnixStream| {
            let pid = stream.peer_cred().ok()?.pid().filter(|pid| *pid > 0)?;
            // Its name may be anything; it is unknown if the process has ended, or is in another namespace.
            let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
            let name = String::from_utf8_lossy(name.trim_ascii_end()).escape_debug().to_string();
            Some(if name.is_empty() { format!("process {pid}") } else { format!("process {pid} ({name})") })
        };
        match self {
            Self::Unix(stream) => process(stream).unwrap_or_else(|| "of a process of another namespace".into()),
            Self::Tcp(stream) => {
                stream.peer_addr().map_or_else(|_| "that is gone".into(), |address| address.to_string())
            }
        }
    }

    /// Converts to a trait object, where dynamic dispatch does not matter.
    pub fn boxed(self) -> Box<dyn Stream> {
        match self {
            Self::Unix(stream) => Box::new(stream),
            Self::Tcp(stream) => Box::new(stream),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Socket::Unix(_, path, own) = &self.0 {
            // It may be gone already, or its name may belong to another program's socket.
            if std::fs::symlink_metadata(path).is_ok_and(|there| Inode::from_metadata(&there) == *own) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Listener {
    /// Listens on `endpoint`.
    ///
    /// # Errors
    /// The system denies it, or another program listens there.
    pub async fn bind(endpoint: &Endpoint) -> Result<Self, Error> {
        let (place, socket) = match endpoint {
            Endpoint::Unix(path) => (path.shown().to_string(), bind_unix(path)),
            Endpoint::Tcp(address) => (address.to_string(), TcpListener::bind(address).await.map(Socket::Tcp)),
        };
        socket.map(Self).map_err(|error| Error { place, error: explain_error(error, endpoint) })
    }

    /// Where it listens: a relative path is made absolute, and port 0 is replaced by the actual port.
    ///
    /// # Errors
    /// The address is unknown.
    pub fn endpoint(&self) -> io::Result<Endpoint> {
        Ok(match &self.0 {
            Socket::Unix(_, path, _) => Endpoint::Unix(std::path::absolute(path)?),
            Socket::Tcp(listener) => Endpoint::Tcp(listener.local_addr()?),
        })
    }

    /// Accepts the next connection.
    ///
    /// # Errors
    /// A system error, such as too many open files; the next call may succeed.
    pub async fn accept(&self) -> io::Result<ClientStream> {
        Ok(match &self.0 {
            Socket::Unix(listener, ..) => ClientStream::Unix(listener.accept().await?.0),
            Socket::Tcp(listener) => ClientStream::Tcp(listener.accept().await?.0),
        })
    }
}

/// Replaces the system's message for a path that is too long, which names a C type.
fn explain_error(error: io::Error, endpoint: &Endpoint) -> io::Error {
    match endpoint {
        Endpoint::Unix(path) if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX => io::Error::other(format!(
            "the path of a socket has at most {SOCKET_PATH_BYTES_MAX} bytes; use a shorter one"
        )),
        _ => error,
    }
}

/// Binds a socket in the file system; replaces a stale socket of a killed coordinator, but nothing else.
fn bind_unix(path: &Path) -> io::Result<Socket> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => replace_stale(path, error),
        other => other,
    }?;
    let own = std::fs::symlink_metadata(path)?;
    Ok(Socket::Unix(listener, path.into(), Inode::from_metadata(&own)))
}

fn replace_stale(path: &Path, in_use: io::Error) -> io::Result<UnixListener> {
    let taken = || io::Error::other("another program is serving it");
    // Of the name itself: the target of a link is not what would be removed.
    let there = std::fs::symlink_metadata(path)?;
    // Connecting to any other kind of file is refused too.
    if !there.file_type().is_socket() {
        return Err(io::Error::other("a file of this name exists and is not a socket"));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => return Err(taken()),
        Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {}
        Err(_) => return Err(in_use),
    }
    // Another process that found the same may have bound its own socket meanwhile.
    if Inode::from_metadata(&std::fs::symlink_metadata(path)?) != Inode::from_metadata(&there) {
        return Err(taken());
    }
    std::fs::remove_file(path)?;
    UnixListener::bind(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoint_is_a_socket_or_an_address() {
        let of = |text: &str| text.parse::<Endpoint>().ok();
        assert_eq!(of("unix:/tmp/a"), Some(Endpoint::Unix("/tmp/a".into())));
        assert_eq!(of("tcp:127.0.0.1:10809"), Some(Endpoint::Tcp(([127, 0, 0, 1], 10809).into())));
        assert!(["/tmp/a", "unix:", "tcp:1", "udp:127.0.0.1:1"].iter().all(|text| of(text).is_none()));
    }

    #[tokio::test]
    async fn error_of_a_too_long_socket_path_gives_the_limit() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x".repeat(SOCKET_PATH_BYTES_MAX));
        let error = Listener::bind(&Endpoint::Unix(path)).await.unwrap_err().to_string();
        assert!(error.contains("at most 107 bytes"), "{error}");
    }

    #[tokio::test]
    async fn only_a_stale_socket_is_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pool.sock");
        let endpoint = Endpoint::Unix(path.clone());
        let refusal = async || Listener::bind(&endpoint).await.unwrap_err().to_string();
        std::fs::write(&path, "mine").unwrap();
        assert!(refusal().await.ends_with("pool.sock: a file of this name exists and is not a socket"));
        std::fs::remove_file(&path).unwrap();
        // Dropping it leaves the socket file behind, as a killed coordinator does.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let first = Listener::bind(&endpoint).await.unwrap();
        assert!(refusal().await.ends_with("pool.sock: another program is serving it"));
        drop(first);
        assert!(!path.exists());
    }
}
