//! Access control: with a key, only peers that have it too; without one, everyone who can reach an address, which the user
//! must have allowed.

use std::net::SocketAddr;
use std::path::Path;
use wire::{Key, KeyError};

/// Why serving or joining is refused.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Anyone could connect, and the user did not allow that.
    #[error("{0}")]
    Insecure(String),
    /// The key cannot be read.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// Reads the key from a file. Without a key, anyone who can reach these addresses can connect, which must be allowed once
/// for loopback addresses, and twice for others: `insecure` is how often it was.
///
/// # Errors
/// It was not allowed, or the key cannot be read.
pub fn read_key(
    file: Option<&Path>,
    insecure: u8,
    addresses: impl IntoIterator<Item = SocketAddr>,
) -> Result<Option<Key>, Error> {
    match file {
        Some(path) => Ok(Some(Key::read(path)?)),
        None => {
            let way = "give --key FILE (`fathom pool keygen FILE` makes a key; every node and the coordinator need the \
                 same)";
            check_insecure(insecure, way, addresses)?;
            Ok(None)
        }
    }
}

/// Checks whether unauthenticated connections are allowed on these addresses. `way`: the suggested alternative.
pub fn check_insecure(insecure: u8, way: &str, addresses: impl IntoIterator<Item = SocketAddr>) -> Result<(), Error> {
    let mut first = None;
    for address in addresses {
        if !address.ip().is_loopback() && insecure < 2 {
            let say = "or pass --insecure twice to let everyone who can reach it read and change the data";
            return Err(Error::Insecure(format!("{address} is not a loopback address: {way}, {say}")));
        }
        first = first.or(Some(address));
    }
    match first {
        Some(address) if insecure == 0 => {
            let say = "or --insecure to let everyone on this machine read and change the data";
            Err(Error::Insecure(format!("no authentication at {address}: {way}, {say}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn insecure_once_allows_loopback_and_twice_any_address() {
        let (here, there): (SocketAddr, SocketAddr) = (([127, 0, 0, 1], 1).into(), ([192, 0, 2, 1], 1).into());
        let allowed =
            |insecure, addresses: &[SocketAddr]| check_insecure(insecure, "do", addresses.iter().copied()).is_ok();
        assert!(allowed(0, &[]));
        assert!(!allowed(0, &[here]) && allowed(1, &[here]));
        assert!(!allowed(1, &[here, there]) && allowed(2, &[here, there]));
        let any: SocketAddr = "[::]:1".parse().expect("an address");
        assert!(!allowed(1, &[any]), "every address is not loopback");
        let error = check_insecure(1, "do", [there]).expect_err("refused").to_string();
        assert!(error.contains("192.0.2.1:1 is not a loopback address") && error.contains("twice"), "{error}");
    }
}
