//! The sockets of a coordinator, and its NBD side: one disk, for whoever connects.

use crate::args::Front;
use anyhow::{Context as _, Result, bail, ensure};
use nbd::{Export, Exports, Tls};
use pool::connect::Stream;
use pool::nbd_bench::escaped;
use std::fs::Metadata;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use wire::{Lobby, Unmet, Visitor};

/// NBD connections at once. Each may keep some 100 MiB, and no client that is known has use for more.
const CLIENTS: usize = 256;
/// Those besides that are not past their handshake, which keep some KiB each.
const VISITORS: usize = 256;
/// How long that may take.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// The export's name, which is also the default.
const NAME: &str = "pool";

/// One disk under one name.
struct One<E>(Rc<E>);

impl<E: Export> Exports for One<E> {
    type Export = E;

    fn find(&self, name: &str) -> Option<&E> {
        (name.is_empty() || name == NAME).then_some(&*self.0)
    }

    fn names(&self) -> Vec<String> {
        vec![NAME.into()]
    }
}

/// A socket that clients connect to; one in the file system is removed when it is dropped.
pub struct Door {
    socket: Socket,
    tls: Tls,
}

enum Socket {
    Unix(UnixListener, PathBuf, Inode),
    Tcp(TcpListener),
}

/// What a name in the file system stands for: device and inode. No other file gets that of a socket while it listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Inode(u64, u64);

impl Inode {
    fn of(file: &Metadata) -> Self {
        Self(file.dev(), file.ino())
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Socket::Unix(_, path, own) = &self.socket {
            // It may be gone already, and another program's may have its name.
            if std::fs::symlink_metadata(path).is_ok_and(|there| Inode::of(&there) == *own) {
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

impl Door {
    /// Listens; `tls` is for NBD clients.
    pub async fn open(front: &Front, tls: Tls) -> Result<Self> {
        let socket = match front {
            Front::Unix(path) => {
                let cannot = || format!("cannot listen on {}", path.display());
                let listener = unix(path).with_context(cannot)?;
                let own = std::fs::symlink_metadata(path).with_context(cannot)?;
                Socket::Unix(listener, path.clone(), Inode::of(&own))
            }
            Front::Tcp(address) => {
                let listener = TcpListener::bind(address).await;
                Socket::Tcp(listener.with_context(|| format!("cannot listen on {address}"))?)
            }
        };
        Ok(Self { socket, tls })
    }

    /// As NBD clients name it.
    pub fn uri(&self) -> Result<String> {
        let scheme = if matches!(self.tls, Tls::Off) { "nbd" } else { "nbds" };
        Ok(match &self.socket {
            Socket::Unix(_, path, _) => {
                format!("{scheme}+unix:///{NAME}?socket={}", escaped(&std::path::absolute(path)?))
            }
            Socket::Tcp(listener) => format!("{scheme}://{}/{NAME}", listener.local_addr()?),
        })
    }

    /// Where it listens, if that is an address.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Unix(..) => None,
            Socket::Tcp(listener) => listener.local_addr().ok(),
        }
    }

    /// The next that connects.
    pub async fn accept(&self) -> std::io::Result<Box<dyn Stream>> {
        Ok(match &self.socket {
            Socket::Unix(listener, ..) => Box::new(listener.accept().await?.0),
            Socket::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }

    /// Serves NBD to whoever connects. Runs in a `LocalSet`, without end.
    pub async fn serve<E: Export + 'static>(&self, disk: Rc<E>) {
        let exports = Rc::new(One(disk));
        // Each client holds one until it ends, from when it is past its handshake.
        let place = Rc::new(());
        let lobby = Lobby::new(VISITORS, HANDSHAKE);
        loop {
            let stream = match self.next().await {
                Ok(stream) => stream,
                Err(error) => {
                    eprintln!("fathom: cannot accept a client: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let visitor = lobby.enter();
            if let Some(crowd) = visitor.crowd() {
                eprintln!("fathom: {crowd}");
            }
            let (exports, tls, place) = (exports.clone(), self.tls.clone(), Rc::downgrade(&place));
            tokio::task::spawn_local(async move {
                match stream {
                    Accepted::Unix(stream) => client(stream, visitor, &*exports, &tls, place).await,
                    Accepted::Tcp(stream) => client(stream, visitor, &*exports, &tls, place).await,
                }
            });
        }
    }

    async fn next(&self) -> std::io::Result<Accepted> {
        Ok(match &self.socket {
            Socket::Unix(listener, ..) => Accepted::Unix(listener.accept().await?.0),
            Socket::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                // Without it, it is slower, or is kept for longer than it should be, and nothing else.
                let _ = pool::connect::prepare(&stream);
                Accepted::Tcp(stream)
            }
        })
    }
}

/// Serves one connection, which has a place among the clients from when it is past its handshake.
async fn client<S: Stream, X: Exports>(stream: S, mut visitor: Visitor, exports: &X, tls: &Tls, place: Weak<()>) {
    let admitted = match visitor.meanwhile(nbd::handshake(stream, exports, tls)).await {
        Ok(Ok(Some(admitted))) => admitted,
        // It was told of once for all of them.
        Ok(Ok(None)) | Err(Unmet::Crowded(_)) => return,
        Ok(Err(failure)) => return told(&failure),
        Err(slow @ Unmet::Slow(_)) => return told(&slow),
    };
    drop(visitor);
    let place = place.upgrade();
    if place.as_ref().is_none_or(|place| Rc::strong_count(place) > CLIENTS + 1) {
        // The protocol has no word for it; the client sees its connection closed.
        eprintln!("fathom: an NBD client is turned away: {CLIENTS} are connected");
        return;
    }
    if let Err(failure) = admitted.serve().await {
        told(&failure);
    }
}

/// A client's stream; of its own kind, so that a request costs no call by a table.
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream),
}

fn told(failure: &dyn std::fmt::Display) {
    eprintln!("fathom: an NBD client: {failure}");
}

/// A socket that nobody listens on any more, left by a coordinator that was killed, gives way; nothing else does.
fn unix(path: &Path) -> Result<UnixListener> {
    let in_use = match UnixListener::bind(path) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => error,
        other => return Ok(other?),
    };
    // Of the name itself: where a link leads to says nothing of what would be removed.
    let there = std::fs::symlink_metadata(path)?;
    // To connect to a file of any other kind is refused too.
    ensure!(there.file_type().is_socket(), "there is a file of that name that is no socket");
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => bail!("another program serves it already"),
        Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {}
        Err(_) => return Err(in_use.into()),
    }
    // Another that found the same may have put its own there meanwhile.
    ensure!(Inode::of(&std::fs::symlink_metadata(path)?) == Inode::of(&there), "another program serves it already");
    std::fs::remove_file(path)?;
    Ok(UnixListener::bind(path)?)
}
