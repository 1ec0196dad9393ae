//! The address of a device.

use std::fmt;
use std::str::FromStr;

/// A text that is not a device address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not a device: {SYNTAX_HELP}")]
pub struct AddressError(pub String);

/// A place where something can run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum DeviceAddress {
    /// This machine.
    #[default]
    Local,
    /// A network namespace of this machine, as `ip netns` lists it.
    Netns(String),
    /// A host reached by ssh: user, host in ssh's syntax, port.
    Ssh(Option<String>, String, Option<u16>),
    /// A device listed by adb, by its serial number; if omitted, the only device.
    Adb(Option<String>),
    /// A guest of the lab, booted for a task: a scenario's name or file, followed by settings (`scsi-ext4,fs=f2fs`), which
    /// the lab parses.
    Lab(String),
}

impl DeviceAddress {
    /// Splits a list at commas. A comma within a guest's name separates its settings, unless a device follows.
    pub fn split_list(list: &str) -> Vec<&str> {
        let (mut names, mut from) = (Vec::new(), 0);
        for (at, _) in list.match_indices(',') {
            if !list[from..].starts_with("lab:") || begins_device(&list[at + 1..]) {
                names.push(&list[from..at]);
                from = at + 1;
            }
        }
        names.push(&list[from..]);
        names
    }
}

/// Whether a list continues with a device's name, or `all`.
fn begins_device(text: &str) -> bool {
    let word = text.split(',').next().unwrap_or_default();
    let kind = word.split_once(':').map(|(kind, _)| kind);
    ["local", "adb", "all"].contains(&word) || kind.is_some_and(|k| ["ssh", "adb", "lab", "netns"].contains(&k))
}

const SYNTAX_HELP: &str = "expected local, ssh:[USER@]HOST[:PORT], adb:SERIAL (or adb, if there is only one), \
    lab:SCENARIO[,KEY=VALUE…] (see `fathom lab list`), or netns:NAME";

impl FromStr for DeviceAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
        // A word with a leading dash would be parsed as an option of the program that receives it.
        let named = rest.filter(|r| !r.is_empty() && !r.starts_with('-') && r.chars().all(|c| c.is_ascii_graphic()));
        match (kind, rest, named) {
            ("local", None, _) => Ok(Self::Local),
            ("adb", None, _) => Ok(Self::Adb(None)),
            // A serial number with a comma could not be used in lists; here it means a list where one device is expected.
            ("adb", _, Some(serial)) if !serial.contains(',') => Ok(Self::Adb(Some(serial.into()))),
            ("lab", _, Some(name)) => Ok(Self::Lab(name.into())),
            ("netns", _, Some(name)) if !name.contains('/') && name != "." && name != ".." => {
                Ok(Self::Netns(name.into()))
            }
            ("ssh", _, Some(rest)) => parse_ssh(rest).ok_or_else(|| AddressError(text.into())),
            _ => Err(AddressError(text.into())),
        }
    }
}

impl DeviceAddress {
    /// The address as a file name.
    pub fn file_name(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '-' };
        self.to_string().chars().map(plain).collect()
    }
}

fn parse_ssh(rest: &str) -> Option<DeviceAddress> {
    let (user, rest) = rest.rsplit_once('@').map_or((None, rest), |(user, rest)| (Some(user), rest));
    let (host, port) = match rest.strip_prefix('[').and_then(|r| r.split_once(']')) {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':')?)),
        // More than one colon is an IPv6 address.
        None if rest.matches(':').count() == 1 => rest.split_once(':').map(|(host, port)| (host, Some(port)))?,
        None => (rest, None),
    };
    let port = port.map(|p| p.parse().ok().filter(|p| *p > 0)).map_or(Some(None), |p| p.map(Some))?;
    let good = |word: &str| !word.is_empty() && !word.starts_with('-') && !word.contains(['[', ']']);
    (good(host) && user.is_none_or(good)).then(|| DeviceAddress::Ssh(user.map(Into::into), host.into(), port))
}

impl fmt::Display for DeviceAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Netns(name) => write!(f, "netns:{name}"),
            Self::Lab(name) => write!(f, "lab:{name}"),
            Self::Adb(None) => f.write_str("adb"),
            Self::Adb(Some(serial)) => write!(f, "adb:{serial}"),
            Self::Ssh(user, host, port) => {
                f.write_str("ssh:")?;
                if let Some(user) = user {
                    write!(f, "{user}@")?;
                }
                match port {
                    Some(port) if host.contains(':') => write!(f, "[{host}]:{port}"),
                    Some(port) => write!(f, "{host}:{port}"),
                    // Its last part would be parsed as a port.
                    None if host.matches(':').count() == 1 => write!(f, "[{host}]"),
                    None => f.write_str(host),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip() {
        let ssh = |user: Option<&str>, host: &str, port| DeviceAddress::Ssh(user.map(Into::into), host.into(), port);
        for (text, place) in [
            ("local", DeviceAddress::Local),
            ("adb", DeviceAddress::Adb(None)),
            ("adb:192.0.2.3:5555", DeviceAddress::Adb(Some("192.0.2.3:5555".into()))),
            ("lab:my/own.toml", DeviceAddress::Lab("my/own.toml".into())),
            ("lab:scsi-ext4,fs=f2fs,size=1G", DeviceAddress::Lab("scsi-ext4,fs=f2fs,size=1G".into())),
            ("netns:blue", DeviceAddress::Netns("blue".into())),
            ("ssh:phone", ssh(None, "phone", None)),
            ("ssh:me@phone:8022", ssh(Some("me"), "phone", Some(8022))),
            ("ssh:me@2001:db8::1", ssh(Some("me"), "2001:db8::1", None)),
            ("ssh:[2001:db8::1]:22", ssh(None, "2001:db8::1", Some(22))),
            ("ssh:me@[a:b]", ssh(Some("me"), "a:b", None)),
        ] {
            assert_eq!(text.parse(), Ok(place.clone()));
            assert_eq!(place.to_string(), text);
        }
    }

    #[test]
    fn file_name_has_plain_characters_only() {
        assert_eq!(DeviceAddress::Adb(Some("192.0.2.3:5555".into())).file_name(), "adb-192.0.2.3-5555");
        assert_eq!(DeviceAddress::Lab("my/own.toml".into()).file_name(), "lab-my-own.toml");
    }

    #[test]
    fn comma_in_a_guests_name_separates_settings() {
        let names = DeviceAddress::split_list;
        assert_eq!(names("adb:R58,ssh:phone"), ["adb:R58", "ssh:phone"]);
        assert_eq!(
            names("lab:x,fs=f2fs,mount='a,b=1',lab:y,cpus=1,adb"),
            ["lab:x,fs=f2fs,mount='a,b=1'", "lab:y,cpus=1", "adb"]
        );
        assert_eq!(names("adb:R58,fs=f2fs"), ["adb:R58", "fs=f2fs"]);
        assert_eq!(names("lab:x,all"), ["lab:x", "all"]);
        assert_eq!(names(""), [""]);
    }

    #[test]
    fn names_that_look_like_options_or_paths_are_refused() {
        for bad in [
            "",
            "adb:R58,local",
            "phone",
            "local:x",
            "ssh",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:me@-x",
            "ssh:host:0",
            "ssh:host:70000",
            "ssh:host:x",
            "ssh:[::1",
            "ssh:a b",
            "adb:",
            "adb:-s",
            "lab",
            "lab:--set",
            "netns:",
            "netns:../x",
            "netns:..",
        ] {
            let why = bad.parse::<DeviceAddress>();
            assert!(why.as_ref().is_err_and(|w| w.to_string().contains("ssh:[USER@]HOST")), "{bad}: {why:?}");
        }
    }
}
