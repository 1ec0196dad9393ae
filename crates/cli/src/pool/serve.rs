//! `fathom pool serve`.

use super::auth;
use crate::args::PoolServe;
use anyhow::{Context as _, Result, anyhow, bail};
use nbd::memory::Memory;
use nbd::{Export, Tls};
use pool::listener::{Endpoint, Listener};
use pool::nbd_server::Server;
use pool::status::{Watch, socket};
use pool::{http, memory};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// A flush that takes longer is told of.
const SOON: Duration = Duration::from_secs(1);
/// When it did not succeed.
const UNSAVED: &str = "the last flush failed; unflushed writes may be lost";

pub fn run(args: &PoolServe) -> Result<ExitCode> {
    let args = super::config::serve(args)?;
    let front = args.nbd.as_ref().context("no address for NBD clients; give --nbd")?;
    let key = auth::key(&args.disk.trust, args.node.iter().copied())?;
    let tls = match &args.tls {
        Some(folder) => {
            let acceptor = nbd::certificates::from_folder(folder, args.verify_clients);
            Tls::Required(acceptor.context("cannot set up TLS for NBD clients")?)
        }
        None => Tls::Off,
    };
    if !args.verify_clients {
        let way = "use a Unix socket, or --tls FOLDER --verify-clients";
        auth::allow(args.disk.trust.insecure, way, front.address())?;
    }
    super::local(1, async {
        if let Some(size) = args.backend {
            memory::fits(size)?;
        }
        let mut ended = pin!(super::ended()?);
        // Whoever joins ends the coordinator before it, which must not be for nothing: so all that this machine may refuse comes
        // first. Who connects meanwhile waits.
        let server = Server::new(Listener::bind(front).await?, tls, super::report());
        match args.backend {
            Some(size) => serve(ended, &server, Rc::new(Memory::new(size)), None, || None).await,
            None => {
                let status = args.status.clone().or(match front {
                    Endpoint::Unix(path) => Some(socket(path)),
                    Endpoint::Tcp(_) => None,
                });
                let (mut listeners, mut metrics) = (Vec::new(), None);
                for endpoint in status.map(Endpoint::Unix).into_iter().chain(args.metrics.map(Endpoint::Tcp)) {
                    let listener = Listener::bind(&endpoint).await?;
                    metrics = listener.endpoint()?.address();
                    listeners.push(listener);
                }
                let (control, with) = (pool::link::Control::Tuned, (args.accept_loss, !args.no_shared_memory));
                let volume = tokio::select! {
                    joined = super::join(&args.node, &args.disk, key, &control, with) => joined?,
                    () = &mut ended => bail!("stopped before all nodes were joined"),
                };
                let watch = Rc::new(Watch::new(volume.clone()));
                for listener in listeners {
                    tokio::task::spawn_local(http::serve(listener, watch.clone(), super::report()));
                }
                tokio::task::spawn_local(async move { watch.run().await });
                serve(ended, &server, volume.clone(), metrics, || volume.unusable()).await
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `metrics`: where they can be had. `lost`: why the disk cannot be used whole.
async fn serve<E: Export + 'static>(
    ended: Pin<&mut impl Future<Output = ()>>,
    server: &Server,
    disk: Rc<E>,
    metrics: Option<SocketAddr>,
    lost: impl Fn() -> Option<String>,
) -> Result<()> {
    // Alone on stdout, for scripts.
    println!("{}", server.uri()?);
    eprintln!("fathom: a disk of {} bytes; Ctrl-C to stop", disk.info().size_bytes);
    if let Some(address) = metrics {
        eprintln!("fathom: metrics at http://{address}/metrics");
    }
    tokio::select! {
        () = server.serve(disk.clone()) => Ok(()),
        () = ended => {
            // What clients did not flush themselves is theirs to lose, but nothing is gained by losing it.
            let flushed = last_flush(&*disk, pin!(super::ended()?)).await?;
            flushed.map_err(|error| match lost() {
                Some(why) => anyhow!("{UNSAVED}: {why}"),
                None => anyhow!(error).context(UNSAVED),
            })
        }
    }
}

/// Flushes. A node that is away is waited for as long as requests are, unless the user does not want to.
///
/// # Errors
/// That he did not.
async fn last_flush<E: Export>(disk: &E, again: Pin<&mut impl Future<Output = ()>>) -> Result<Result<(), nbd::Error>> {
    let mut flush = pin!(disk.flush());
    if let Ok(flushed) = tokio::time::timeout(SOON, &mut flush).await {
        return Ok(flushed);
    }
    eprintln!("fathom: the nodes are flushing; Ctrl-C again to stop without waiting");
    tokio::select! {
        flushed = flush => Ok(flushed),
        () = again => bail!("{UNSAVED}: stopped before the flush completed"),
    }
}
