//! Silent connections, more than a listener keeps.

use anyhow::{Context as _, Result};
use std::net::{SocketAddr, TcpStream};
use std::process::Command;
use std::time::Duration;

/// More than twice as many as any listener keeps unauthenticated (256).
pub const CONNECTION_COUNT: usize = 600;

/// Opens that many silent connections. They stay open until dropped or closed by the peer.
///
/// # Errors
/// The listener accepts no more, or this process may not open that many.
pub fn open(address: &str) -> Result<Vec<TcpStream>> {
    let (own, room) = (std::process::id().to_string(), format!("--nofile={}:", 5 * CONNECTION_COUNT));
    crate::run(Command::new("prlimit").args(["--pid", &own, &room])).context("room for so many connections")?;
    let address: SocketAddr = address.parse().with_context(|| format!("{address:?} is no address"))?;
    let connect = |nth| {
        TcpStream::connect_timeout(&address, Duration::from_secs(20)).with_context(|| format!("connection {nth}"))
    };
    (0..CONNECTION_COUNT).map(connect).collect()
}
