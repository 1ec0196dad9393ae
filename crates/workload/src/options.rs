//! Options of a workload: a table of name, default and meaning, from which both parsing and help are derived. It is
//! small because a workload's arguments are written by designs more often than by people; the real argument parser is
//! in `cli`.

use crate::Error;
use std::collections::BTreeMap;
use std::str::FromStr;

/// An option `--name VALUE` (or `--name=VALUE`).
#[derive(Debug, Clone, Copy)]
pub struct Spec {
    /// Name without dashes.
    pub name: &'static str,
    pub default: &'static str,
    /// Its meaning, with its possible values.
    pub help: &'static str,
}

#[derive(Debug)]
pub struct Options {
    values: BTreeMap<&'static str, String>,
}

impl Options {
    /// Parses `words` according to `specs`.
    pub fn parse(about: &str, specs: &[Spec], words: &[String]) -> Result<Self, Error> {
        let mut values: BTreeMap<&str, String> = specs.iter().map(|s| (s.name, s.default.to_string())).collect();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Err(Error::Help(help(about, specs)));
            }
            let (name, inline) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value.to_string())),
                None => (word.as_str(), None),
            };
            let spec = name.strip_prefix("--").and_then(|n| specs.iter().find(|s| s.name == n));
            let spec = spec.ok_or_else(|| Error::Usage(format!("unknown option {word:?}; --help lists them")))?;
            let value = inline.or_else(|| words.next().cloned());
            let value = value.ok_or_else(|| Error::Usage(format!("--{} needs a value", spec.name)))?;
            values.insert(spec.name, value);
        }
        Ok(Self { values })
    }

    /// The value of an option of the table.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// The value as a number or a similar type.
    pub fn get<T: FromStr>(&self, name: &str) -> Result<T, Error> {
        let text = self.text(name);
        text.parse().map_err(|_| Error::Usage(format!("--{name}: invalid value {text:?}")))
    }

    /// The value as a number of bytes: a whole number with an optional K, M or G (binary).
    pub fn bytes(&self, name: &str) -> Result<u64, Error> {
        let text = self.text(name);
        let (digits, shift) = match text.as_bytes().split_last() {
            Some((b'K' | b'k', rest)) => (&text[..rest.len()], 10),
            Some((b'M' | b'm', rest)) => (&text[..rest.len()], 20),
            Some((b'G' | b'g', rest)) => (&text[..rest.len()], 30),
            _ => (text, 0),
        };
        let number = digits.parse::<u64>().ok().filter(|_| digits.bytes().all(|b| b.is_ascii_digit()));
        let bytes = number.and_then(|n| n.checked_mul(1 << shift));
        bytes.ok_or_else(|| {
            Error::Usage(format!(
                "--{name}: invalid value {text:?}; expected bytes, such as 512, 4K, \
            1M or 10G"
            ))
        })
    }

    /// The value, which must be one of `allowed`, ignoring case.
    pub fn one_of(&self, name: &str, allowed: &[&'static str]) -> Result<&'static str, Error> {
        let text = self.text(name);
        let found = allowed.iter().find(|a| a.eq_ignore_ascii_case(text));
        found.copied().ok_or_else(|| Error::Usage(format!("--{name} must be one of {}", allowed.join(", "))))
    }
}

fn help(about: &str, specs: &[Spec]) -> String {
    let mut text = format!("{about}\n\nOptions:\n");
    for s in specs {
        let default = if s.default.is_empty() { String::new() } else { format!(" [{}]", s.default) };
        text.push_str(&format!("  --{:<18} {}{default}\n", s.name, s.help));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTION_SPECS: &[Spec] = &[
        Spec { name: "rows", default: "1000", help: "how many" },
        Spec { name: "mode", default: "a", help: "a or b" },
    ];

    fn parse(words: &[&str]) -> Result<Options, Error> {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        Options::parse("About.", OPTION_SPECS, &words)
    }

    #[test]
    fn options_are_parsed_with_defaults() {
        let options = parse(&["--mode=B", "--rows", "7"]).unwrap();
        assert_eq!(options.get::<u64>("rows").unwrap(), 7);
        assert_eq!(options.one_of("mode", &["a", "b"]).unwrap(), "b");
        assert_eq!(parse(&[]).unwrap().get::<u64>("rows").unwrap(), 1000);
    }

    #[test]
    fn bytes_have_binary_suffixes() {
        let bytes = |text: &str| parse(&["--rows", text]).unwrap().bytes("rows");
        assert_eq!((bytes("512").unwrap(), bytes("4k").unwrap(), bytes("10G").unwrap()), (512, 4096, 10 << 30));
        for text in ["", "K", "-1", "+1", "1.5M", "1KB", "17179869184G", "é"] {
            assert!(bytes(text).is_err(), "{text}");
        }
    }

    #[test]
    fn option_errors_name_the_option() {
        for (words, part) in
            [(&["--row", "7"][..], "\"--row\""), (&["rows", "7"], "\"rows\""), (&["--rows"], "needs a value")]
        {
            assert!(matches!(parse(words), Err(Error::Usage(text)) if text.contains(part)), "{words:?}");
        }
        let options = parse(&["--rows=-1", "--mode=c"]).unwrap();
        assert!(options.get::<u64>("rows").is_err() && options.one_of("mode", &["a", "b"]).is_err());
        assert!(matches!(parse(&["-h"]), Err(Error::Help(text)) if text.contains("--rows") && text.contains("[1000]")));
    }
}
