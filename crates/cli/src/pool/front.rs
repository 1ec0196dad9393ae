//! The sockets of a coordinator, and its NBD side: one disk, for whoever connects.

use crate::args::Front;
use anyhow::{Context as _, Result, bail};
use nbd::{Export, Exports, Tls};
use pool::connect::Stream;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use tokio::net::{TcpListener, UnixListener};

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
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Socket::Unix(_, path) = &self.socket {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Door {
    /// Listens; `tls` is for NBD clients.
    pub async fn open(front: &Front, tls: Tls) -> Result<Self> {
        let socket = match front {
            Front::Unix(path) => Socket::Unix(unix(path)?, path.clone()),
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
            Socket::Unix(_, path) => {
                format!("{scheme}+unix:///{NAME}?socket={}", std::path::absolute(path)?.display())
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
            Socket::Unix(listener, _) => Box::new(listener.accept().await?.0),
            Socket::Tcp(listener) => Box::new(listener.accept().await?.0),
        })
    }

    /// Serves NBD to whoever connects. Runs in a `LocalSet`, without end.
    pub async fn serve<E: Export + 'static>(&self, disk: Rc<E>) {
        let exports = Rc::new(One(disk));
        loop {
            let (exports, tls) = (exports.clone(), self.tls.clone());
            let accepted = match &self.socket {
                Socket::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    tokio::task::spawn_local(async move { nbd::serve(stream, &*exports, &tls).await.map_err(told) });
                }),
                Socket::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    tokio::task::spawn_local(async move {
                        // Without it, it is slower, or is kept for longer than it should be, and nothing else.
                        let _ = pool::connect::prepare(&stream);
                        nbd::serve(stream, &*exports, &tls).await.map_err(told)
                    });
                }),
            };
            if let Err(error) = accepted {
                eprintln!("fathom: cannot accept a client: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            }
        }
    }
}

fn told(failure: nbd::Failure) {
    eprintln!("fathom: an NBD client: {failure}");
}

/// A socket that nobody listens on any more, left by a coordinator that was killed, gives way.
fn unix(path: &Path) -> Result<UnixListener> {
    let bind = || UnixListener::bind(path);
    let listener = match bind() {
        Err(error) if error.kind() == ErrorKind::AddrInUse => match std::os::unix::net::UnixStream::connect(path) {
            Err(refused) if refused.kind() == ErrorKind::ConnectionRefused => {
                std::fs::remove_file(path).and_then(|()| bind())
            }
            Ok(_) => bail!("another program serves {} already", path.display()),
            Err(_) => Err(error),
        },
        other => other,
    };
    listener.with_context(|| format!("cannot listen on {}", path.display()))
}
