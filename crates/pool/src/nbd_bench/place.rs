//! Where an NBD server is, as its clients write it (`doc/uri.md` of the NetworkBlockDevice project), without encryption.

use std::path::PathBuf;
use std::str::FromStr;

/// A server and one of its exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The export's name; the empty one is the default.
    pub export: String,
    /// How to get there.
    pub to: To,
}

/// How to get to a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// The port that NBD has by custom.
const PORT: u16 = 10_809;

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let advice = "give nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH";
        if text.contains('%') {
            return Err(format!("escapes by % are not understood; {advice}"));
        }
        match text.split_once("://") {
            Some(("nbd", rest)) => {
                let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
                let port = |port: &str| port.parse().map_err(|_| format!("{port:?} is no port; {advice}"));
                // The colons of an IPv6 address stand in brackets.
                let (host, port) = match authority.rsplit_once(':') {
                    Some((host, digits)) if !digits.ends_with(']') => (host, port(digits)?),
                    _ => (authority, PORT),
                };
                let host = host.trim_start_matches('[').trim_end_matches(']');
                if host.is_empty() {
                    return Err(format!("there is no host; {advice}"));
                }
                Ok(Self { export: export.into(), to: To::Tcp(host.into(), port) })
            }
            Some(("nbd+unix", rest)) => {
                let (export, socket) = rest.split_once("?socket=").ok_or(advice)?;
                let export = export.strip_prefix('/').ok_or(advice)?;
                Ok(Self { export: export.into(), to: To::Unix(socket.into()) })
            }
            Some(("nbds" | "nbds+unix", _)) => Err("this client does not encrypt".into()),
            _ => Err(advice.into()),
        }
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.to {
            To::Tcp(host, port) if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{}", self.export),
            To::Tcp(host, port) => write!(f, "nbd://{host}:{port}/{}", self.export),
            To::Unix(path) => write!(f, "nbd+unix:///{}?socket={}", self.export, path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_clients_write_it() {
        for text in ["nbd://127.0.0.1:10809/pool", "nbd://[::1]:7/", "nbd+unix:///pool?socket=/tmp/a b"] {
            assert_eq!(text.parse::<Place>().map(|place| place.to_string()), Ok(text.into()));
        }
        let default = Place { export: String::new(), to: To::Tcp("host".into(), PORT) };
        assert_eq!("nbd://host".parse(), Ok(default.clone()));
        assert_eq!("nbd://host/".parse(), Ok(default));
        for text in ["", "host:1", "nbd://:1/", "nbd://host:x/", "nbds://host", "nbd+unix:///a", "nbd://h/%41"] {
            assert!(text.parse::<Place>().is_err(), "{text}");
        }
    }
}
