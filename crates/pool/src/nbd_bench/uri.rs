//! The URI of an NBD server (`doc/uri.md` of the NetworkBlockDevice project), without encryption.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// A server and one of its exports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uri {
    /// The export's name; the empty one is the default.
    pub export: String,
    /// The server's address.
    pub server: ServerAddress,
}

/// The address of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerAddress {
    /// A host and a port.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

/// Why a text is not a valid URI.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The scheme or form is not supported.
    #[error("{URI_SYNTAX}")]
    Form,
    /// The name of an export or host is percent-encoded, which is not supported.
    #[error("percent-encoding is supported in the socket path only; {URI_SYNTAX}")]
    Encoded,
    #[error("{0:?} is not a port; {URI_SYNTAX}")]
    Port(String),
    #[error("no host; {URI_SYNTAX}")]
    NoHost,
    /// The path of the socket is not properly encoded.
    #[error("{0:?} has a % without two digits; {URI_SYNTAX}")]
    Socket(String),
    /// It requires encryption.
    #[error("this client does not support TLS")]
    Tls,
}

const URI_SYNTAX: &str = "expected nbd://HOST:PORT/EXPORT or nbd+unix:///EXPORT?socket=PATH";

/// The default port of NBD.
const DEFAULT_PORT: u16 = 10_809;

impl FromStr for Uri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        match text.split_once("://") {
            Some(("nbd", rest)) if rest.contains('%') => Err(UriError::Encoded),
            Some(("nbd", rest)) => {
                let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
                let port = |port: &str| port.parse().map_err(|_| UriError::Port(port.into()));
                // The colons of an IPv6 address are in brackets.
                let (host, port) = match authority.rsplit_once(':') {
                    Some((host, digits)) if !digits.ends_with(']') => (host, port(digits)?),
                    _ => (authority, DEFAULT_PORT),
                };
                let host = host.trim_start_matches('[').trim_end_matches(']');
                if host.is_empty() {
                    return Err(UriError::NoHost);
                }
                Ok(Self { export: export.into(), server: ServerAddress::Tcp(host.into(), port) })
            }
            Some(("nbd+unix", rest)) => {
                let (export, socket) = rest.split_once("?socket=").ok_or(UriError::Form)?;
                let export = export.strip_prefix('/').ok_or(UriError::Form)?;
                if export.contains('%') {
                    return Err(UriError::Encoded);
                }
                let socket = unescape_path(socket).ok_or_else(|| UriError::Socket(socket.into()))?;
                Ok(Self { export: export.into(), server: ServerAddress::Unix(socket) })
            }
            Some(("nbds" | "nbds+unix", _)) => Err(UriError::Tls),
            _ => Err(UriError::Form),
        }
    }
}

impl std::fmt::Display for Uri {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.server {
            ServerAddress::Tcp(host, port) if host.contains(':') => write!(f, "nbd://[{host}]:{port}/{}", self.export),
            ServerAddress::Tcp(host, port) => write!(f, "nbd://{host}:{port}/{}", self.export),
            ServerAddress::Unix(path) => write!(f, "nbd+unix:///{}?socket={}", self.export, escape_path(path)),
        }
    }
}

/// Encodes a path for a URI: reserved bytes become `%` and two digits.
pub fn escape_path(path: &Path) -> String {
    let mut text = String::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => text.push(char::from(*byte)),
            other => text.push_str(&format!("%{other:02X}")),
        }
    }
    text
}

fn unescape_path(text: &str) -> Option<PathBuf> {
    let mut parts = text.split('%');
    let mut path = parts.next()?.as_bytes().to_vec();
    for part in parts {
        let digits = part.get(..2).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
        path.push(u8::from_str_radix(digits, 16).ok()?);
        path.extend_from_slice(&part.as_bytes()[2..]);
    }
    Some(OsString::from_vec(path).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_uri_round_trips() {
        for text in ["nbd://127.0.0.1:10809/pool", "nbd://[::1]:7/", "nbd+unix:///pool?socket=/tmp/a%20b"] {
            assert_eq!(text.parse::<Uri>().map(|place| place.to_string()), Ok(text.into()));
        }
        let odd = Uri { export: "pool".into(), server: ServerAddress::Unix("/a b/%?&#é".into()) };
        assert_eq!(odd.to_string(), "nbd+unix:///pool?socket=/a%20b/%25%3F%26%23%C3%A9");
        assert_eq!(odd.to_string().parse(), Ok(odd.clone()));
        assert_eq!("nbd+unix:///pool?socket=/a b/%25?&#é".parse(), Ok(odd));
        let default = Uri { export: String::new(), server: ServerAddress::Tcp("host".into(), DEFAULT_PORT) };
        assert_eq!("nbd://host".parse(), Ok(default.clone()));
        assert_eq!("nbd://host/".parse(), Ok(default));
        for text in [
            "",
            "host:1",
            "nbd://:1/",
            "nbd://host:x/",
            "nbds://host",
            "nbd+unix:///a",
            "nbd://h/%41",
            "nbd+unix:///a?socket=/%4",
            "nbd+unix:///%41?socket=/a",
        ] {
            assert!(text.parse::<Uri>().is_err(), "{text}");
        }
    }
}
