//! `fathom pool serve`.

use super::auth;
use crate::args::PoolServe;
use anyhow::{Context as _, Result, bail};
use nbd::memory::Memory;
use nbd::{Export, Tls};
use pool::config::Layout;
use pool::coordinator::last_flush;
use pool::link::Options;
use pool::listener::{Endpoint, Listener};
use pool::mirror::Mirroring;
use pool::nbd_server::Server;
use pool::status::{MirrorWatch, Watch, default_socket};
use pool::{http, memory};
use std::future::Future;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

/// How long nodes are waited for: a phone starts in less.
const NODES_TIMEOUT: Duration = Duration::from_secs(120);

pub fn run(args: &PoolServe) -> Result<ExitCode> {
    let args = super::config::serve(args)?;
    let front = args.nbd.as_ref().context("no address for NBD clients; give --nbd")?;
    let key = auth::key(&args.disk.trust, args.node.iter().copied())?;
    let tls = match &args.tls {
        Some(directory) => {
            let acceptor = nbd::certificates::from_directory(directory, args.verify_clients);
            Tls::Required(acceptor.context("cannot set up TLS for NBD clients")?)
        }
        None => Tls::Off,
    };
    if !args.verify_clients {
        let way = "use a Unix socket, or --tls DIRECTORY --verify-clients";
        auth::allow(args.disk.trust.insecure, way, front.address())?;
    }
    super::local(1, async {
        if let Some(size) = args.backend {
            memory::check_fits(size)?;
        }
        let mut ended = pin!(super::end_signal()?);
        // Joining ends the previous coordinator, which must not be for nothing: so everything that this machine may refuse comes
        // first. Clients that connect meanwhile wait.
        let server = Server::new(Listener::bind(front).await?, tls, super::reporter());
        match args.backend {
            Some(size) => {
                let disk = Rc::new(Memory::new(size));
                let alone = std::future::pending();
                serve_disk(ended, &server, disk.clone(), (None, alone), async move || disk.flush().await, || None).await
            }
            None => {
                let status = args.status.clone().or(match front {
                    Endpoint::Unix(path) => Some(default_socket(path)),
                    Endpoint::Tcp(_) => None,
                });
                let (mut listeners, mut metrics) = (Vec::new(), None);
                for endpoint in status.map(Endpoint::Unix).into_iter().chain(args.metrics.map(Endpoint::Tcp)) {
                    let listener = Listener::bind(&endpoint).await?;
                    metrics = listener.endpoint()?.address();
                    listeners.push(listener);
                }
                let wait = args.wait.unwrap_or(if args.degraded { Duration::ZERO } else { NODES_TIMEOUT });
                let (accept_loss, shared_memory) = (args.accept_loss, !args.no_shared_memory);
                let with = Options { accept_loss, wait, degraded: args.degraded, shared_memory, ..Options::default() };
                if args.disk.layout == Some(Layout::Mirror) {
                    anyhow::ensure!(
                        !args.degraded,
                        "a mirrored pool is served without some nodes anyway; leave out --degraded"
                    );
                    let mirroring = Mirroring { copies: args.copies, groups: args.group.clone() };
                    let disk = tokio::select! {
                        joined = super::join_mirror(&args.node, &args.disk, &mirroring, key, with) => joined?,
                        () = &mut ended => bail!("stopped before the nodes were joined"),
                    };
                    let watch = Rc::new(MirrorWatch::new(disk.clone()));
                    for listener in listeners {
                        tokio::task::spawn_local(http::serve(listener, watch.clone(), super::reporter()));
                    }
                    let (own, fenced) = (disk.clone(), disk.wait_until_fenced());
                    let flush = async move || own.flush().await;
                    let lost = || disk.unusable_reason();
                    return serve_disk(ended, &server, disk.clone(), (metrics, fenced), flush, lost).await;
                }
                anyhow::ensure!(args.copies.is_none(), "--copies needs --layout mirror");
                let control = pool::link::Control::Tuned;
                let volume = tokio::select! {
                    joined = super::join_volume(&args.node, &args.disk, key, &control, with) => joined?,
                    () = &mut ended => bail!("stopped before all nodes were joined"),
                };
                for missing in volume.missing() {
                    eprintln!("fathom: degraded, so read-only: {missing}");
                }
                let watch = Rc::new(Watch::new(volume.clone()));
                for listener in listeners {
                    tokio::task::spawn_local(http::serve(listener, watch.clone(), super::reporter()));
                }
                tokio::task::spawn_local(async move { watch.run().await });
                let (own, fenced) = (volume.clone(), volume.wait_until_fenced());
                let flush =
                    async move || own.flush_rest().await.map_err(|failure| nbd::Error::Because(failure.to_string()));
                serve_disk(ended, &server, volume.clone(), (metrics, fenced), flush, || volume.unusable_reason()).await
            }
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

/// `metrics`: the address that serves them. `fenced` completes, with the reason, when another coordinator has taken over. `flush` is the
/// last one. `lost`: why the disk is not completely usable.
async fn serve_disk<E: Export + 'static>(
    ended: Pin<&mut impl Future<Output = ()>>,
    server: &Server,
    disk: Rc<E>,
    (metrics, fenced): (Option<SocketAddr>, impl Future<Output = String>),
    flush: impl AsyncFnOnce() -> Result<(), nbd::Error>,
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
        why = fenced => bail!(why),
        () = ended => {
            let slow = || eprintln!("fathom: the nodes are flushing; Ctrl-C again to stop without waiting");
            Ok(last_flush(flush(), lost, slow, super::end_signal()?).await?)
        }
    }
}
