//! A port of this machine forwarded to a guest.

use super::value::ValueError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// Forwards this address and port of the host, over TCP and UDP, to that port of the guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Forward {
    /// Where the host listens.
    pub address: Ipv4Addr,
    /// Its port.
    pub host: u16,
    /// The guest's.
    pub guest: u16,
}

/// One or several of them, in TOML.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected ports such as 7100, \"8080:80\" or \"192.0.2.1:8080:80\"")]
enum Written {
    Text(String),
    Number(u16),
}

/// A list that may be written as its only element.
pub(super) fn one_or_several<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<Forward>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "expected ports such as 7100, \"8080:80\" or \"192.0.2.1:8080:80\"")]
    enum List {
        One(Forward),
        All(Vec<Forward>),
    }
    Ok(match List::deserialize(from)? {
        List::One(one) => vec![one],
        List::All(all) => all,
    })
}

impl FromStr for Forward {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let parts: Vec<&str> = text.split(':').collect();
        let (address, ports) = match parts.split_first() {
            Some((first, rest)) if first.contains('.') => (first.parse().ok(), rest),
            _ => (Some(Ipv4Addr::LOCALHOST), parts.as_slice()),
        };
        let port = |word: &str| word.parse::<u16>().ok().filter(|port| *port > 0);
        let ports = match ports {
            [both] => port(both).map(|p| (p, p)),
            [host, guest] => port(host).zip(port(guest)),
            _ => None,
        };
        match (address, ports) {
            (Some(address), Some((host, guest))) => Ok(Self { address, host, guest }),
            _ => Err(ValueError {
                text: text.into(),
                kind: "forwarding",
                expected: "[ADDR:]PORT[:GUEST_PORT], such as 7100 or 8080:80",
            }),
        }
    }
}

impl TryFrom<Written> for Forward {
    type Error = ValueError;

    fn try_from(written: Written) -> Result<Self, ValueError> {
        match written {
            Written::Text(text) => text.parse(),
            Written::Number(number) => number.to_string().parse(),
        }
    }
}

impl From<Forward> for String {
    fn from(forward: Forward) -> Self {
        forward.to_string()
    }
}

impl fmt::Display for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, host, guest } = self;
        write!(f, "{address}:{host}:{guest}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwardings_round_trip() {
        for (text, full) in [
            ("7100", "127.0.0.1:7100:7100"),
            ("8080:80", "127.0.0.1:8080:80"),
            ("0.0.0.0:8080", "0.0.0.0:8080:8080"),
            ("192.0.2.1:8080:80", "192.0.2.1:8080:80"),
        ] {
            let forward: Forward = text.parse().unwrap();
            assert_eq!(forward.to_string(), full);
            assert_eq!(full.parse(), Ok(forward));
        }
        for bad in ["", "0", "70000", "1:2:3", "1.2.3:1", "::1", "x:80", "192.0.2.1"] {
            assert!(bad.parse::<Forward>().is_err_and(|why| why.to_string().contains("[ADDR:]PORT")), "{bad}");
        }
    }
}
