//! The head of a request: its target and its authorization. Pure.
//!
//! Without a key the server listens on loopback, and the Host header must be one of its names: this stops DNS rebinding, by which a
//! website could read a fleet through its visitor. With a key any Host is accepted, since a foreign page does not know the key. Keys are
//! compared by their hashes, in constant time.

use sha2::{Digest, Sha256};

/// A request.
#[derive(Debug, PartialEq, Eq, Clone)]
pub enum Request {
    /// The fleet's page.
    Page,
    /// Metrics for Prometheus.
    Metrics,
    /// An archive's own page.
    Archive(String),
    /// An error status with its reason phrase.
    Refused(&'static str),
}

/// What clients must send.
pub struct Key([u8; 32]);

/// Minimum length of a key.
pub const KEY_CHARS_MIN: usize = 16;

impl Key {
    /// The key in a file: its first line.
    ///
    /// # Errors
    /// It is too short to be one.
    pub fn parse(file: &str) -> Result<Self, String> {
        let key = file.lines().next().unwrap_or_default().trim();
        if key.len() < KEY_CHARS_MIN {
            return Err(format!(
                "its first line, the key, has {} characters; at least {KEY_CHARS_MIN} are needed",
                key.len()
            ));
        }
        Ok(Self(sha256(key.as_bytes())))
    }

    fn is(&self, sent: &[u8]) -> bool {
        sha256(sent).iter().zip(self.0).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
    }
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Parses and authorizes the head of a request.
pub fn parse(head: &str, key: Option<&Key>) -> Request {
    let mut lines = head.split("\r\n");
    let mut words = lines.next().unwrap_or_default().split(' ');
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let headers: Vec<(&str, &str)> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.trim())).collect();
    let headers_of = |wanted: &str| -> Vec<&str> {
        headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|one| one.1).collect()
    };
    match key {
        Some(key) if !headers_of("authorization").first().is_some_and(|sent| is_authorized(sent, key)) => {
            return Request::Refused("401 Unauthorized");
        }
        // A second one could be forged (RFC 9112: a request has one).
        None if !matches!(headers_of("host")[..], [host] if own_name(host)) => {
            return Request::Refused("403 Forbidden");
        }
        _ => {}
    }
    // No page takes parameters, and a scraper may be configured to send some.
    let path = path.split('?').next().unwrap_or_default();
    match (method, path) {
        ("GET", "/") => Request::Page,
        ("GET", "/metrics") => Request::Metrics,
        ("GET", path) => match path.strip_prefix("/archive/") {
            Some(run) if is_run(run) => Request::Archive(run.into()),
            _ => Request::Refused("404 Not Found"),
        },
        _ => Request::Refused("405 Method Not Allowed"),
    }
}

/// Whether a text is a run's name.
pub fn is_run(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|c| matches!(c, b'0'..=b'9' | b'a'..=b'f'))
}

/// Whether a Host header names this machine.
fn own_name(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    ["localhost", "127.0.0.1", "[::1]"].contains(&name)
}

fn is_authorized(sent: &str, key: &Key) -> bool {
    let (scheme, rest) = sent.split_once(' ').unwrap_or((sent, ""));
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return key.is(rest.as_bytes());
    }
    // From a browser: the key is the password, the user name is ignored.
    let Some(pair) = scheme.eq_ignore_ascii_case("basic").then(|| base64_decoded(rest)).flatten() else { return false };
    pair.iter().position(|&c| c == b':').is_some_and(|at| key.is(&pair[at + 1..]))
}

/// Base64 (RFC 4648), with or without its padding.
fn base64_decoded(text: &str) -> Option<Vec<u8>> {
    const BASE64_ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut have, mut out) = (0_u32, 0, Vec::new());
    for c in text.trim_end_matches('=').bytes() {
        let value = BASE64_ALPHABET.iter().position(|&known| known == c)?;
        bits = bits << 6 | value as u32;
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
            bits &= (1 << have) - 1;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(line: &str, headers: &str) -> String {
        format!("{line} HTTP/1.1\r\n{headers}\r\n\r\n")
    }

    #[test]
    fn only_pages_of_this_machine_are_served() {
        let of = |line: &str, host: &str| parse(&head(line, &format!("Host: {host}")), None);
        assert_eq!(of("GET /", "127.0.0.1:8080"), Request::Page);
        assert_eq!(of("GET /metrics", "localhost"), Request::Metrics);
        assert_eq!(of("GET /metrics?module=a", "localhost"), Request::Metrics);
        assert_eq!(of("GET /", "[::1]:80"), Request::Page);
        assert_eq!(of("GET /archive/0123456789abcdef", "localhost"), Request::Archive("0123456789abcdef".into()));
        for (line, host, status) in [
            ("GET /../etc/passwd", "localhost", "404 Not Found"),
            ("GET /archive/../../etc/pass", "localhost", "404 Not Found"),
            ("GET /archive/0123456789ABCDEF", "localhost", "404 Not Found"),
            ("POST /", "localhost", "405 Method Not Allowed"),
            ("GET /", "evil.example", "403 Forbidden"),
            ("GET /", "localhost.evil.example:80", "403 Forbidden"),
        ] {
            assert_eq!(of(line, host), Request::Refused(status), "{line} {host}");
        }
        assert_eq!(parse("GET / HTTP/1.0\r\n\r\n", None), Request::Refused("403 Forbidden"));
        assert_eq!(parse("", None), Request::Refused("403 Forbidden"));
        for hosts in ["Host: localhost\r\nHost: evil.example", "Host: evil.example\r\nhost: localhost"] {
            assert_eq!(parse(&head("GET /", hosts), None), Request::Refused("403 Forbidden"), "{hosts}");
        }
    }

    #[test]
    fn only_clients_with_the_key_are_answered() {
        let key = Key::parse("correct horse battery\nrest\n").unwrap();
        let with = |authorization: &str| parse(&head("GET /", authorization), Some(&key));
        assert_eq!(with("authorization: Bearer correct horse battery"), Request::Page);
        // Of `x:correct horse battery`.
        assert_eq!(with("Authorization: Basic eDpjb3JyZWN0IGhvcnNlIGJhdHRlcnk="), Request::Page);
        for wrong in [
            "Host: localhost",
            "Authorization: Bearer",
            "Authorization: Bearer correct horse batter",
            "Authorization: Bearer correct horse battery2",
            "Authorization: Basic !!!",
            "Authorization: Basic eDpjb3JyZWN0IGhvcnNlIGJhdHRlcnky",
            "Authorization: Basic Y29ycmVjdCBob3JzZSBiYXR0ZXJ5",
            "Authorization: Digest correct horse battery",
            "X: y",
        ] {
            assert_eq!(with(wrong), Request::Refused("401 Unauthorized"), "{wrong}");
        }
        assert_eq!(parse(&head("GET /x", ""), Some(&key)), Request::Refused("401 Unauthorized"), "paths are not told");
        assert!(Key::parse("short\n").is_err() && Key::parse("").is_err());
    }
}
