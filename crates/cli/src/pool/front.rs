//! The NBD side of a coordinator: one disk, for whoever connects.

use crate::args::Front;
use anyhow::{Context as _, Result, bail};
use nbd::{Export, Exports, Tls};
use std::io::ErrorKind;
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
pub enum Door {
    Unix(UnixListener, PathBuf),
    Tcp(TcpListener),
}

impl Drop for Door {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may be gone already.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Door {
    pub async fn open(front: &Front) -> Result<Self> {
        match front {
            Front::Unix(path) => Ok(Self::Unix(unix(path)?, path.clone())),
            Front::Tcp(address) => {
                let listener = TcpListener::bind(address).await;
                Ok(Self::Tcp(listener.with_context(|| format!("cannot listen on {address}"))?))
            }
        }
    }

    /// As clients name it.
    pub fn uri(&self) -> Result<String> {
        Ok(match self {
            Self::Unix(_, path) => format!("nbd+unix:///{NAME}?socket={}", std::path::absolute(path)?.display()),
            Self::Tcp(listener) => format!("nbd://{}/{NAME}", listener.local_addr()?),
        })
    }

    /// Serves whoever connects. Runs in a `LocalSet`, without end.
    pub async fn serve<E: Export + 'static>(&self, disk: Rc<E>) {
        let exports = Rc::new(One(disk));
        loop {
            let exports = exports.clone();
            let accepted = match self {
                Self::Unix(listener, _) => listener.accept().await.map(|(stream, _)| {
                    tokio::task::spawn_local(
                        async move { nbd::serve(stream, &*exports, &Tls::Off).await.map_err(told) },
                    );
                }),
                Self::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                    tokio::task::spawn_local(async move {
                        // Without it, it is slower and nothing else.
                        let _ = stream.set_nodelay(true);
                        nbd::serve(stream, &*exports, &Tls::Off).await.map_err(told)
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
