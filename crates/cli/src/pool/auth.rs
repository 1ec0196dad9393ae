//! Authentication as requested on the command line: what it does not allow is wrong usage.

use crate::Usage;
use crate::args::Trust;
use anyhow::Result;
use pool::auth::{self, Error};
use std::net::SocketAddr;
use wire::Key;

/// [`pool::auth::read_key`].
pub fn key(trust: &Trust, addresses: impl IntoIterator<Item = SocketAddr>) -> Result<Option<Key>> {
    as_usage(auth::read_key(trust.key.as_deref(), trust.insecure, addresses))
}

/// [`pool::auth::check_insecure`].
pub fn allow(insecure: u8, way: &str, addresses: impl IntoIterator<Item = SocketAddr>) -> Result<()> {
    as_usage(auth::check_insecure(insecure, way, addresses))
}

fn as_usage<T>(settled: Result<T, Error>) -> Result<T> {
    settled.map_err(|error| match error {
        Error::Insecure(why) => Usage(why).into(),
        Error::Key(error) => error.into(),
    })
}
