//! The NBD server of a coordinator: one disk for all clients.

use crate::connect::{Stream, prepare};
use crate::listener::{Accepted, Endpoint, Listener};
use crate::nbd_bench::escaped;
use nbd::budget::Budget;
use nbd::{Export, Exports, Tls};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::{NotAdmitted, PendingConnection, PendingConnections};

/// The maximum number of NBD connections. Each may use some 100 MiB, and no known client needs more.
const CLIENTS: usize = 256;
/// The maximum that all of them may hold together, in addition to 1 MiB for each.
const CLIENTS_BYTES: usize = 256 << 20;
/// The maximum number of additional connections before the end of their handshake, which use some KiB each.
const PENDING: usize = 256;
/// The timeout of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// The send buffer of a Unix socket; the kernel reduces it to its limit (`net.core.wmem_max`). The default, 208 KiB, is
/// less than a large reply, which would be written in pieces, with a wait for the client between them. (A TCP socket's
/// buffer grows by itself.)
const SEND_BYTES: usize = 1 << 20;

/// The export's name, which is also the default.
pub const EXPORT: &str = "pool";

/// Exports one disk under one name.
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

/// The URI of the disk served at `endpoint`.
pub fn uri(endpoint: &Endpoint, encrypted: bool) -> String {
    let scheme = if encrypted { "nbds" } else { "nbd" };
    match endpoint {
        Endpoint::Unix(path) => format!("{scheme}+unix:///{EXPORT}?socket={}", escaped(path)),
        Endpoint::Tcp(address) => format!("{scheme}://{address}/{EXPORT}"),
    }
}

/// The server's socket and encryption.
pub struct Server {
    listener: Listener,
    tls: Tls,
    /// Called with errors that do not end the server.
    report: Rc<dyn Fn(String)>,
}

impl Server {
    /// Creates a server for a listener; [`Server::serve`] runs it.
    pub fn new(listener: Listener, tls: Tls, report: Rc<dyn Fn(String)>) -> Self {
        Self { listener, tls, report }
    }

    /// The URI of the disk.
    ///
    /// # Errors
    /// The listening address is unknown.
    pub fn uri(&self) -> io::Result<String> {
        Ok(uri(&self.listener.endpoint()?, !matches!(self.tls, Tls::Off)))
    }

    /// Serves a disk, without end. Must run in a `LocalSet`.
    pub async fn serve<E: Export + 'static>(&self, disk: Rc<E>) {
        let exports = Rc::new(SingleExport(disk));
        // Each client holds a clone from the end of its handshake until it disconnects.
        let place = Rc::new(());
        let pending = PendingConnections::new(PENDING, HANDSHAKE);
        let budget = Budget::new(CLIENTS_BYTES);
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
            let (report, budget) = (self.report.clone(), budget.clone());
            tokio::task::spawn_local(async move {
                let peer = stream.peer();
                let report = |failure: String| report(format!("NBD client {peer}: {failure}"));
                match stream {
                    Accepted::Unix(stream) => {
                        // A failure only makes the connection slower.
                        let _ = set_socket_send_buffer_size(&stream, SEND_BYTES);
                        client(stream, connection, &*exports, &tls, (place, &budget), &report).await;
                    }
                    Accepted::Tcp(stream) => {
                        // A failure only makes the connection slower, or closes it later than necessary.
                        let _ = prepare(&stream);
                        client(stream, connection, &*exports, &tls, (place, &budget), &report).await;
                    }
                }
            });
        }
    }
}

/// Serves one connection, which counts as a client from the end of its handshake. Errors are reported before the client
/// sees the connection closed.
async fn client<S: Stream, X: Exports>(
    stream: S,
    mut connection: PendingConnection,
    exports: &X,
    tls: &Tls,
    (place, budget): (Weak<()>, &Budget),
    report: &dyn Fn(String),
) {
    let failed = |failure: &dyn std::fmt::Display| report(failure.to_string());
    let admitted = match connection.authenticate(nbd::handshake(stream, exports, tls)).await {
        Ok(Ok(Some(admitted))) => admitted,
        // It was reported once for all such connections.
        Ok(Ok(None)) | Err(NotAdmitted::Overflow(_)) => return,
        Ok(Err(failure)) => return failed(&failure),
        Err(slow @ NotAdmitted::Slow(_)) => return failed(&slow),
    };
    drop(connection);
    let place = place.upgrade();
    if place.as_ref().is_none_or(|place| Rc::strong_count(place) > CLIENTS + 1) {
        // The protocol has no message for this; the client sees its connection closed.
        report(format!("refused: {CLIENTS} are connected"));
        return;
    }
    if let Err(failure) = admitted.serve_within(budget).await {
        failed(&failure);
    }
}
