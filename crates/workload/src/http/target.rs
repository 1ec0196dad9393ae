//! A URL: where to connect, and the bytes of the request.

use std::net::{SocketAddr, ToSocketAddrs};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Url {
    /// Host as written, without brackets.
    pub host: String,
    /// 80 unless given.
    pub port: u16,
    /// Path and query, from the first slash.
    pub path: String,
}

/// A URL that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum UrlError {
    /// It is invalid or unsupported; `why` says what is expected.
    #[error("--url {text:?}: {why}")]
    Syntax {
        text: String,
        /// The error in it.
        why: &'static str,
    },
    #[error("cannot resolve {host}: {source}")]
    Resolver { host: String, source: std::io::Error },
    /// The name has no address.
    #[error("cannot resolve {0}: no address found")]
    NoAddress(String),
}

impl Url {
    /// Parses `text`.
    ///
    /// # Errors
    /// [`UrlError::Syntax`].
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let wrong = |why| Err(UrlError::Syntax { text: text.into(), why });
        if text.get(..8).is_some_and(|s| s.eq_ignore_ascii_case("https://")) {
            return wrong("only http is supported; TLS would dominate the time measured");
        }
        let Some(rest) = text.get(..7).filter(|s| s.eq_ignore_ascii_case("http://")).map(|_| &text[7..]) else {
            return wrong("expected a URL such as http://192.0.2.1:8080/");
        };
        if text.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return wrong("a URL contains no spaces and no control characters");
        }
        let rest = rest.split('#').next().unwrap_or_default();
        let cut = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(cut);
        if authority.contains('@') {
            return wrong("user names and passwords are not supported");
        }
        let (host, port) = match authority.strip_prefix('[').map(|a| a.split_once(']')) {
            Some(Some((host, port))) => (host, port),
            Some(None) => return wrong("a bracket is not closed"),
            None => authority.split_at(authority.find(':').unwrap_or(authority.len())),
        };
        let port = match port.strip_prefix(':') {
            None if port.is_empty() => Ok(80),
            None => return wrong("after the address comes :PORT or /"),
            Some(digits) => digits.parse().map_err(|_| ()),
        };
        match port {
            Ok(port) if port > 0 && !host.is_empty() => {
                let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
                Ok(Self { host: host.into(), port, path })
            }
            Ok(0) | Err(()) => wrong("the port is a number from 1 to 65535"),
            Ok(_) => wrong("no host"),
        }
    }

    /// Returns the first address of the host name.
    ///
    /// # Errors
    /// [`UrlError::Resolver`] or [`UrlError::NoAddress`].
    pub fn resolve(&self) -> Result<SocketAddr, UrlError> {
        let host = || self.host.clone();
        let found = (self.host.as_str(), self.port).to_socket_addrs();
        let mut found = found.map_err(|source| UrlError::Resolver { host: host(), source })?;
        found.next().ok_or_else(|| UrlError::NoAddress(host()))
    }

    /// The request, always the same.
    pub fn request(&self, keep_alive: bool) -> Vec<u8> {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        let port = if self.port == 80 { String::new() } else { format!(":{}", self.port) };
        let connection = if keep_alive { "" } else { "Connection: close\r\n" };
        format!("GET {} HTTP/1.1\r\nHost: {host}{port}\r\n{connection}\r\n", self.path).into_bytes()
    }
}

impl std::fmt::Display for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.host.contains(':') {
            write!(f, "http://[{}]:{}{}", self.host, self.port, self.path)
        } else {
            write!(f, "http://{}:{}{}", self.host, self.port, self.path)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_parsed() {
        for (text, host, port, path) in [
            ("http://a", "a", 80, "/"),
            ("HTTP://a:8080/x?y=1#z", "a", 8080, "/x?y=1"),
            ("http://[::1]:9/", "::1", 9, "/"),
            ("http://192.0.2.1?q", "192.0.2.1", 80, "/?q"),
        ] {
            let url = Url::parse(text).unwrap();
            assert_eq!((url.host.as_str(), url.port, url.path.as_str()), (host, port, path), "{text}");
        }
        let request = String::from_utf8(Url::parse("http://[::1]:9/x").unwrap().request(false)).unwrap();
        assert_eq!(request, "GET /x HTTP/1.1\r\nHost: [::1]:9\r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn unsupported_urls_are_refused_with_reason() {
        for (text, part) in [
            ("https://a/", "only http"),
            ("a:80", "such as http://"),
            ("", "such as http://"),
            ("http://", "no host"),
            ("http://:80/", "no host"),
            ("http://a:0/", "1 to 65535"),
            ("http://a:x/", "1 to 65535"),
            ("http://[::1", "bracket"),
            ("http://[::1]80", "after the address"),
            ("http://u@a/", "passwords"),
            ("http://a/ HTTP/1.1\r\nX: y", "spaces"),
            ("hütte://x", "such as http://"),
        ] {
            let error = Url::parse(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
