//! The NBD server of a coordinator: one disk for all clients.

use crate::connect::{Stream, set_tcp_options};
use crate::listener::{ClientStream, Endpoint, Listener};
use crate::nbd_bench::escape_path;
use nbd::budget::Budget;
use nbd::{Export, Exports, Tls};
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::io;
use std::rc::{Rc, Weak};
use std::time::Duration;
use wire::{NotAdmitted, PendingConnection, PendingConnections};

/// The maximum number of NBD connections. Each may use some 100 MiB, and no known client needs more.
const CLIENTS_MAX: usize = 256;
/// The maximum that all of them may hold together, in addition to 1 MiB for each.
const CLIENTS_BYTES_MAX: usize = 256 << 20;
/// The maximum number of additional connections before the end of their handshake, which use some KiB each.
const PENDING_CONNECTIONS_MAX: usize = 256;
/// The timeout of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// The send buffer of a Unix socket; the kernel reduces it to its limit (`net.core.wmem_max`). The default, 208 KiB, is
/// less than a large reply, which would be written in pieces, with a wait for the client between them. (A TCP socket's
/// buffer grows by itself.)
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// The export's name, which is also the default.
pub const EXPORT_NAME: &str = "pool";

/// Exports one disk under one name.
struct SingleExport<E>(Rc<E>);

impl<E: Export> Exports for SingleExport<E> {
    type Export = E;

    fn find(&self, name: &str) -> Option<&E> {
        (name.is_empty() || name == EXPORT_NAME).then_some(&*self.0)
    }

    fn names(&self) -> Vec<String> {
        vec![EXPORT_NAME.into()]
    }
}

/// The URI of the disk served at `endpoint`.
pub fn uri(endpoint: &Endpoint, encrypted: bool) -> String {
    let scheme = if encrypted { "nbds" } else { "nbd" };
    match endpoint {
        Endpoint::Unix(path) => format!("{scheme}+unix:///{EXPORT_NAME}?socket={}", escape_path(path)),
        Endpoint::Tcp(address) => format!("{scheme}://{address}/{EXPORT_NAME}"),
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
        let pending = PendingConnections::new(PENDING_CONNECTIONS_MAX, HANDSHAKE_TIMEOUT);
        let budget = Budget::new(CLIENTS_BYTES_MAX);
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
            if let Some(overflow) = connection.overflow_message() {
                (self.report)(overflow);
            }
            let (exports, tls, place) = (exports.clone(), self.tls.clone(), Rc::downgrade(&place));
            let (report, budget) = (self.report.clone(), budget.clone());
            tokio::task::spawn_local(async move {
                let peer = stream.peer();
                let report = |failure: String| report(format!("NBD client {peer}: {failure}"));
                match stream {
                    ClientStream::Unix(stream) => {
                        // A failure only makes the connection slower.
                        let _ = set_socket_send_buffer_size(&stream, SEND_BUFFER_BYTES);
                        serve_client(stream, connection, &*exports, &tls, (place, &budget), &report).await;
                    }
                    ClientStream::Tcp(stream) => {
                        // A failure only makes the connection slower, or closes it later than necessary.
                        let _ = set_tcp_options(&stream);
                        serve_client(stream, connection, &*exports, &tls, (place, &budget), &report).await;
                    }
                }
            });
        }
    }
}

/// Serves one connection, which counts as a client from the end of its handshake. Errors are reported before the client
/// sees the connection closed.
async fn serve_client<S: Stream, X: Exports>(
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
    if place.as_ref().is_none_or(|place| Rc::strong_count(place) > CLIENTS_MAX + 1) {
        // The protocol has no message for this; the client sees its connection closed.
        report(format!("refused: {CLIENTS_MAX} are connected"));
        return;
    }
    if let Err(failure) = admitted.serve_within(budget).await {
        failed(&failure);
    }
}
