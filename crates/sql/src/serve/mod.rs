//! `fathom serve FLEET`: the fleet's page, archives' own pages, and metrics for Prometheus; read-only.
//!
//! Written by hand instead of with an HTTP server crate: three pages, one GET per connection.

mod metrics;
mod request;

use crate::archive_page;
use crate::engine::{Engine, Settings};
use crate::fleets::log::Fleet;
use crate::otlp;
use anyhow::{Context as _, Result, anyhow, bail};
use request::{Key, Request};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, Semaphore};

/// Longest request head.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a client may take to send a request, and to accept a piece of the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(5);
/// A page younger than this is reused.
const PAGE_FRESH_DURATION: Duration = Duration::from_secs(30);
/// Clients at once; more wait.
const CLIENTS_MAX: usize = 64;
/// Archives' pages that are cached.
const CACHED_PAGES_MAX: usize = 16;

/// A fleet's page may have its own style and an empty icon, and nothing else.
const FLEET_PAGE_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'";
/// An archive's page is drawn by its own script, and loads nothing.
const ARCHIVE_PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                     base-uri 'none'; form-action 'none'";

struct SharedState {
    place: String,
    key: Option<Key>,
    page: Mutex<Option<(Instant, Arc<String>)>>,
    archives: Mutex<BTreeMap<String, (Instant, Arc<String>)>>,
    exporter: Option<Arc<otlp::Exporter>>,
}

/// Serves until Ctrl-C.
///
/// # Errors
/// The address is reachable by others and there is no key, or it is in use; the fleet cannot be opened.
pub async fn run(args: &fleet::args::Serve, print: fn(&str) -> Result<()>) -> Result<()> {
    let (place, listen) = (&args.fleet, args.listen);
    let key = match &args.key_file {
        Some(path) => {
            let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            Some(Key::parse(&text).map_err(|why| anyhow!("{}: {why}", path.display()))?)
        }
        None if listen.ip().is_loopback() => None,
        None => bail!(
            "{listen} can be reached from other machines, and whoever reaches it reads the fleet: give a key with --key-file, or listen \
             on 127.0.0.1"
        ),
    };
    Fleet::open(place).await?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    let exporter = args.otlp.as_deref().map(otlp::Exporter::new).transpose()?.map(Arc::new);
    print(&format!("http://{}/ and /metrics; Ctrl-C stops the server\n", listener.local_addr()?))?;
    if let Some(exporter) = exporter.clone() {
        let place = place.clone();
        tokio::spawn(async move { exporter.run(&place, print).await });
    }
    let shared = Arc::new(SharedState {
        place: place.clone(),
        key,
        page: Mutex::default(),
        archives: Mutex::default(),
        exporter,
    });
    let room = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        let place = room.clone().acquire_owned().await.context("waiting for a place")?;
        let client = match listener.accept().await {
            Ok((client, _)) => client,
            // The client has gone, or there are too many open files: the next one may succeed.
            Err(_) => {
                // A fixed wait: no event signals that descriptors are available again.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let shared = shared.clone();
        tokio::spawn(async move {
            if let Err(error) = serve_client(client, &shared).await {
                let _ = print(&format!("{}\n", model::text::shown(&format!("{error:#}"))));
            }
            drop(place);
        });
    }
}

/// The response.
struct Answer {
    status: &'static str,
    kind: &'static str,
    policy: &'static str,
    body: Arc<String>,
}

impl Answer {
    fn text(status: &'static str, body: String) -> Self {
        Self { status, kind: "text/plain; charset=utf-8", policy: FLEET_PAGE_POLICY, body: Arc::new(body) }
    }
}

async fn serve_client(mut client: TcpStream, shared: &SharedState) -> Result<()> {
    let mut head = Vec::new();
    let read = tokio::time::timeout(CLIENT_TIMEOUT, async {
        while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if client.read_buf(&mut head).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(())
    });
    if !matches!(read.await, Ok(Ok(()))) {
        return Ok(());
    }
    let request = request::parse(&String::from_utf8_lossy(&head), shared.key.as_ref());
    let (answer, failed) = match make_answer(request, shared).await {
        Ok(answer) => (answer, None),
        // The reason is printed here, and not sent to the client.
        Err(error) => {
            (Answer::text("503 Service Unavailable", "the fleet cannot be read at the moment\n".into()), Some(error))
        }
    };
    let Answer { status, kind, policy, body } = answer;
    let challenge = if status.starts_with("401") { "WWW-Authenticate: Basic realm=\"fathom\"\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: {policy}\r\nReferrer-Policy: no-referrer\r\nCache-Control: no-store\r\n{challenge}\r\n",
        body.len()
    );
    // A client that has gone or reads nothing is dropped.
    for piece in [head.as_bytes()].into_iter().chain(body.as_bytes().chunks(1 << 16)) {
        if !matches!(tokio::time::timeout(CLIENT_TIMEOUT, client.write_all(piece)).await, Ok(Ok(()))) {
            return failed.map_or(Ok(()), Err);
        }
    }
    let _ = client.shutdown().await;
    failed.map_or(Ok(()), Err)
}

async fn make_answer(request: Request, shared: &SharedState) -> Result<Answer> {
    let html = "text/html; charset=utf-8";
    Ok(match request {
        Request::Refused(status) => Answer::text(status, format!("{status}\n")),
        Request::Metrics => {
            let fleet = Fleet::open(&shared.place).await?;
            let sent = shared.exporter.as_ref().map(|exporter| exporter.sent());
            Answer { kind: "text/plain; version=0.0.4", ..Answer::text("200 OK", metrics::text(&fleet, sent)) }
        }
        Request::Page => {
            // Locked while it is made: a page takes one scan of the fleet, and all waiting clients get the same one.
            let mut page = shared.page.lock().await;
            let fresh =
                page.as_ref().filter(|(made, _)| made.elapsed() < PAGE_FRESH_DURATION).map(|(_, page)| page.clone());
            let body = match fresh {
                Some(body) => body,
                None => {
                    let fleet = Fleet::open(&shared.place).await?;
                    let engine = Engine::over_fleet(&fleet, Settings::default())?;
                    let gathered = crate::report::gather_data(&engine).await?;
                    let link = |run: &str| fleet.info.keep_raw.then(|| format!("/archive/{run}"));
                    let made = Arc::new(crate::report::draw_page(&format!("Fleet {}", shared.place), &gathered, &link));
                    *page = Some((Instant::now(), made.clone()));
                    made
                }
            };
            Answer { status: "200 OK", kind: html, policy: FLEET_PAGE_POLICY, body }
        }
        Request::Archive(run) => {
            let mut pages = shared.archives.lock().await;
            let body = match pages.get(&run) {
                Some((_, page)) => page.clone(),
                None => {
                    let fleet = Fleet::open(&shared.place).await?;
                    if let Err(why) = archive_page::possible(&fleet, &run) {
                        return Ok(Answer::text("404 Not Found", format!("{why}\n")));
                    }
                    let made = Arc::new(archive_page::make(&fleet, &run).await?);
                    if pages.len() >= CACHED_PAGES_MAX
                        && let Some(oldest) = pages.iter().min_by_key(|one| one.1.0).map(|one| one.0.clone())
                    {
                        pages.remove(&oldest);
                    }
                    pages.insert(run, (Instant::now(), made.clone()));
                    made
                }
            };
            Answer { status: "200 OK", kind: html, policy: ARCHIVE_PAGE_POLICY, body }
        }
    })
}
