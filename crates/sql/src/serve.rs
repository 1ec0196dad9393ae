//! `fathom serve FLEET`: the fleet's page and its numbers for Prometheus, on this machine only, read-only.
//!
//! By hand and not by an HTTP server's crate: two pages, one GET a connection. A browser that was led here by another site's name is
//! refused by the Host header, so that no site can read a fleet through its visitor.

use crate::engine::{Engine, Settings};
use crate::fleets::log::Fleet;
use anyhow::{Context as _, Result, bail};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// Longest head of a request.
const HEAD: usize = 8 << 10;
/// How long a client may take to send one.
const PATIENCE: Duration = Duration::from_secs(5);
/// A page younger than this is sent again.
const FRESH: Duration = Duration::from_secs(30);

/// What a request asks for.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Asked {
    Page,
    Metrics,
    /// A status and its words.
    Refused(&'static str),
}

/// What the head of a request asks for.
fn asked(head: &str) -> Asked {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let host = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("host").then(|| value.trim())
    });
    let name = host.map(|host| {
        host.rsplit_once(':').map_or(
            host,
            |(name, port)| {
                if port.chars().all(|c| c.is_ascii_digit()) { name } else { host }
            },
        )
    });
    if !name.is_some_and(|name| ["localhost", "127.0.0.1", "[::1]"].contains(&name)) {
        return Asked::Refused("403 Forbidden");
    }
    match (method, path) {
        ("GET", "/") => Asked::Page,
        ("GET", "/metrics") => Asked::Metrics,
        ("GET", _) => Asked::Refused("404 Not Found"),
        _ => Asked::Refused("405 Method Not Allowed"),
    }
}

/// The fleet's numbers in Prometheus' text format.
fn metrics(fleet: &Fleet) -> String {
    let mut out = String::new();
    let mut gauge = |name: &str, help: &str, values: &[(String, u64)]| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} gauge");
        for (labels, value) in values {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    };
    gauge("fathom_fleet_archives", "Archives in the fleet.", &[(String::new(), fleet.state.runs.len() as u64)]);
    gauge("fathom_fleet_commits", "Commits so far.", &[(String::new(), fleet.state.last)]);
    let mut tables: std::collections::BTreeMap<&str, [u64; 3]> = std::collections::BTreeMap::new();
    for file in fleet.state.files.values() {
        let sums = tables.entry(&file.table).or_default();
        for (sum, one) in sums.iter_mut().zip([1, file.rows, file.bytes]) {
            *sum += one;
        }
    }
    for (at, (name, help)) in [
        ("fathom_fleet_files", "Files of a table."),
        ("fathom_fleet_rows", "Rows of a table."),
        ("fathom_fleet_size_bytes", "Bytes of a table's files."),
    ]
    .into_iter()
    .enumerate()
    {
        let values: Vec<_> = tables.iter().map(|(table, sums)| (format!("{{table=\"{table}\"}}"), sums[at])).collect();
        gauge(name, help, &values);
    }
    out
}

/// Serves until Ctrl-C.
///
/// # Errors
/// The address is not this machine's own, or taken; the fleet cannot be opened.
pub async fn run(place: &str, listen: SocketAddr, say: impl Fn(&str) -> Result<()>) -> Result<()> {
    if !listen.ip().is_loopback() {
        bail!(
            "{listen} can be reached from other machines, and whoever reaches it reads the fleet: listen on 127.0.0.1"
        );
    }
    Fleet::open(place).await?;
    let listener = TcpListener::bind(listen).await.with_context(|| format!("listening on {listen}"))?;
    say(&format!("http://{}/ and /metrics; Ctrl-C ends it\n", listener.local_addr()?))?;
    let mut page: Option<(Instant, String)> = None;
    loop {
        let (client, _) = listener.accept().await.context("accepting a connection")?;
        // One after the other: a page is one scan of the fleet, and there is one reader.
        if let Err(error) = serve(client, place, &mut page).await {
            say(&format!("{error:#}\n"))?;
        }
    }
}

async fn serve(mut client: TcpStream, place: &str, page: &mut Option<(Instant, String)>) -> Result<()> {
    let mut head = Vec::new();
    let read = tokio::time::timeout(PATIENCE, async {
        while head.len() < HEAD && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            if client.read_buf(&mut head).await? == 0 {
                break;
            }
        }
        Ok::<_, std::io::Error>(())
    });
    if !matches!(read.await, Ok(Ok(()))) {
        return Ok(());
    }
    let (status, kind, body) = match asked(&String::from_utf8_lossy(&head)) {
        Asked::Refused(status) => (status, "text/plain", format!("{status}\n")),
        Asked::Metrics => ("200 OK", "text/plain; version=0.0.4", metrics(&Fleet::open(place).await?)),
        Asked::Page => {
            if page.as_ref().is_none_or(|(made, _)| made.elapsed() > FRESH) {
                let fleet = Fleet::open(place).await?;
                let engine = Engine::over_fleet(&fleet, Settings::default())?;
                *page = Some((Instant::now(), crate::report::page(&engine, &format!("Fleet {place}")).await?));
            }
            ("200 OK", "text/html; charset=utf-8", page.as_ref().map(|(_, page)| page.clone()).unwrap_or_default())
        }
    };
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\nX-Content-Type-Options: nosniff\r\n\
         Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nCache-Control: no-store\r\n\r\n{body}",
        body.len()
    );
    // A client that has gone wants nothing.
    let _ = client.write_all(answer.as_bytes()).await;
    let _ = client.shutdown().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_two_pages_of_this_machine_are_served() {
        let head = |line: &str, host: &str| asked(&format!("{line} HTTP/1.1\r\nHost: {host}\r\n\r\n"));
        assert_eq!(head("GET /", "127.0.0.1:8080"), Asked::Page);
        assert_eq!(head("GET /metrics", "localhost"), Asked::Metrics);
        assert_eq!(head("GET /", "[::1]:80"), Asked::Page);
        for (line, host, status) in [
            ("GET /../etc/passwd", "localhost", "404 Not Found"),
            ("POST /", "localhost", "405 Method Not Allowed"),
            ("GET /", "evil.example", "403 Forbidden"),
            ("GET /", "localhost.evil.example:80", "403 Forbidden"),
        ] {
            assert_eq!(head(line, host), Asked::Refused(status), "{line} {host}");
        }
        assert_eq!(asked("GET / HTTP/1.0\r\n\r\n"), Asked::Refused("403 Forbidden"));
        assert_eq!(asked(""), Asked::Refused("403 Forbidden"));
    }
}
