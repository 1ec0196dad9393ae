//! Parses network addresses.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};

/// Why a text is not an address.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is invalid, or its host name is unknown.
    #[error("{0}; expected ADDRESS:PORT, such as 192.0.2.7:7100 or [::1]:7100")]
    None(io::Error),
    /// The host name has no address.
    #[error("the host name has no address")]
    NoAddress,
}

/// Parses an address with a port; resolves host names.
pub fn address(text: &str) -> Result<SocketAddr, AddressError> {
    text.to_socket_addrs().map_err(AddressError::None)?.next().ok_or(AddressError::NoAddress)
}

#[cfg(test)]
mod tests {
    use super::address;

    #[test]
    fn address_needs_a_port() {
        assert!(address("[::1]:7100").is_ok() && address("127.0.0.1:0").is_ok());
        for bad in ["::1", "127.0.0.1", ""] {
            assert!(address(bad).unwrap_err().to_string().contains("ADDRESS:PORT"), "{bad}");
        }
    }
}
