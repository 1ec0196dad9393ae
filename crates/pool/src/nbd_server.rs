//! A coordinator's NBD side: one disk, for whoever connects.

use crate::connect::{Stream, prepare};
use crate::listener::{Accepted, Endpoint, Listener};
use crate::nbd_bench::escaped;
use nbd::{Export, Exports, Tls};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::{NotAdmitted, PendingConnection, PendingConnections};

/// NBD connections at once. Each may keep some 100 MiB, and no client that is known has use for more.
const CLIENTS: usize = 256;
/// Those besides that are not past their handshake, which keep some KiB each.
const PENDING: usize = 256;
/// How long that may take.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// What may wait in a Unix socket for its client; the kernel makes it less where its limit is lower (`net.core.wmem_max`). Its own choice, 208
/// KiB, is less than a large answer, each of which would be written in pieces, with a wait for the client between them. (A TCP socket's grows
/// by itself.)
const SEND_BYTES: usize = 1 << 20;

/// The export's name, which is also the default.
pub const EXPORT: &str = "pool";

/// One disk under one name.
struct SingleExport<E>(Rc<E>);

impl<E: Export> Exports for SingleExport<E> {
    type Export = E;

    fn find(&self, name: &str) -> Option<&E> {
        (name.is_empty() || name == EXPORT).then_some(&*self.0)
    }

    fn names(&self) -> Vec<String> {
        vec![EXPORT.into()]
    }
}

/// The disk that is served at `endpoint`, as NBD clients name it.
pub fn uri(endpoint: &Endpoint, encrypted: bool) -> String {
    let scheme = if encrypted { "nbds" } else { "nbd" };
    match endpoint {
        Endpoint::Unix(path) => format!("{scheme}+unix:///{EXPORT}?socket={}", escaped(path)),
        Endpoint::Tcp(address) => format!("{scheme}://{address}/{EXPORT}"),
    }
}

/// Where NBD clients connect, and whether they encrypt.
pub struct Server {
    listener: Listener,
    tls: Tls,
    /// Called with errors that do not end the server.
    report: Rc<dyn Fn(String)>,
}

impl Server {
    /// Serves whoever connects there, from [`Server::serve`] on.
    pub fn new(listener: Listener, tls: Tls, report: Rc<dyn Fn(String)>) -> Self {
        Self { listener, tls, report }
    }

    /// As NBD clients name it.
    ///
    /// # Errors
    /// The address that it listens on is unknown.
    pub fn uri(&self) -> io::Result<String> {
        Ok(uri(&self.listener.endpoint()?, !matches!(self.tls, Tls::Off)))
    }

    /// Serves a disk. Runs in a `LocalSet`, without end.
    pub async fn serve<E: Export + 'static>(&self, disk: Rc<E>) {
        let exports = Rc::new(SingleExport(disk));
        // Each client holds one until it ends, from when it is past its handshake.
        let place = Rc::new(());
        let pending = PendingConnections::new(PENDING, HANDSHAKE);
        loop {
            let stream = match self.listener.accept().await {
                Ok(stream) => stream,
                Err(error) => {
                    (self.report)(format!("cannot accept a client: {error}"));
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            let connection = pending.add();
            if let Some(overflow) = connection.overflow() {
                (self.report)(overflow);
            }
            let (exports, tls, place) = (exports.clone(), self.tls.clone(), Rc::downgrade(&place));
            let report = self.report.clone();
            tokio::task::spawn_local(async move {
                match stream {
                    Accepted::Unix(stream) => {
                        // Without it, it is slower, and nothing else.
                        let _ = set_socket_send_buffer_size(&stream, SEND_BYTES);
                        client(stream, connection, &*exports, &tls, place, &*report).await;
                    }
                    Accepted::Tcp(stream) => {
                        // Without it, it is slower, or is kept for longer than it should be, and nothing else.
                        let _ = prepare(&stream);
                        client(stream, connection, &*exports, &tls, place, &*report).await;
                    }
                }
            });
        }
    }
}

/// Serves one connection, which has a place among the clients from when it is past its handshake. What goes wrong with it is
/// reported before the client sees that it is closed.
async fn client<S: Stream, X: Exports>(
    stream: S,
    mut connection: PendingConnection,
    exports: &X,
    tls: &Tls,
    place: Weak<()>,
    report: &dyn Fn(String),
) {
    let failed = |failure: &dyn std::fmt::Display| report(format!("an NBD client: {failure}"));
    let admitted = match connection.authenticate(nbd::handshake(stream, exports, tls)).await {
        Ok(Ok(Some(admitted))) => admitted,
        // It was reported once for all of them.
        Ok(Ok(None)) | Err(NotAdmitted::Overflow(_)) => return,
        Ok(Err(failure)) => return failed(&failure),
        Err(slow @ NotAdmitted::Slow(_)) => return failed(&slow),
    };
    drop(connection);
    let place = place.upgrade();
    if place.as_ref().is_none_or(|place| Rc::strong_count(place) > CLIENTS + 1) {
        // The protocol has no word for it; the client sees its connection closed.
        report(format!("refused an NBD client: {CLIENTS} are connected"));
        return;
    }
    if let Err(failure) = admitted.serve().await {
        failed(&failure);
    }
}
