//! Values as people write them: sizes, times, and one setting of a scenario.

use serde::{Deserialize, Serialize};

/// A text that is not a value of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a {kind}; expected {expected}")]
pub struct ValueError {
    pub(super) text: String,
    pub(super) kind: &'static str,
    pub(super) expected: &'static str,
}

/// A size; written with a suffix K, M or G, or as a number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Written", into = "String")]
pub struct Bytes(pub u64);

/// The TOML forms `"256M"` and `268435456`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a size such as \"512K\", \"256M\" or \"2G\"")]
enum Written {
    Text(String),
    Number(i64),
}

impl TryFrom<Written> for Bytes {
    type Error = ValueError;

    fn try_from(written: Written) -> Result<Self, ValueError> {
        let text = match written {
            Written::Text(text) => text,
            Written::Number(number) => number.to_string(),
        };
        let number = |digits: &str, shift: u32| digits.parse::<u64>().ok()?.checked_mul(1 << shift);
        let bytes = match text.chars().last() {
            Some('K') => number(&text[..text.len() - 1], 10),
            Some('M') => number(&text[..text.len() - 1], 20),
            Some('G') => number(&text[..text.len() - 1], 30),
            _ => number(&text, 0),
        };
        bytes.map(Self).ok_or(ValueError { text, kind: "size", expected: "e.g. \"512K\", \"256M\" or \"2G\"" })
    }
}

impl From<Bytes> for String {
    fn from(Bytes(bytes): Bytes) -> Self {
        for (suffix, shift) in [("G", 30), ("M", 20), ("K", 10)] {
            if bytes > 0 && bytes % (1 << shift) == 0 {
                return format!("{}{suffix}", bytes >> shift);
            }
        }
        bytes.to_string()
    }
}

/// A time in seconds; written with a suffix s, m or h.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span(pub u64);

impl Span {
    /// The value as a standard library duration.
    pub fn duration(self) -> std::time::Duration {
        std::time::Duration::from_secs(self.0)
    }
}

impl TryFrom<String> for Span {
    type Error = ValueError;

    fn try_from(text: String) -> Result<Self, ValueError> {
        let number = |digits: &str, unit: u64| digits.parse::<u64>().ok()?.checked_mul(unit);
        let seconds = match text.chars().last() {
            Some('s') => number(&text[..text.len() - 1], 1),
            Some('m') => number(&text[..text.len() - 1], 60),
            Some('h') => number(&text[..text.len() - 1], 3600),
            _ => None,
        };
        seconds.map(Self).ok_or(ValueError { text, kind: "duration", expected: "e.g. \"90s\", \"5m\" or \"1h\"" })
    }
}

impl From<Span> for String {
    fn from(Span(seconds): Span) -> Self {
        match seconds {
            s if s > 0 && s % 3600 == 0 => format!("{}h", s / 3600),
            s if s > 0 && s % 60 == 0 => format!("{}m", s / 60),
            s => format!("{s}s"),
        }
    }
}

/// Keys that may omit their table. A disk's keys refer to the disk that the file system is on.
const SHORT_KEYS: &[(&str, &[&str])] = &[
    ("disk", &["bus", "size", "scheduler", "parameters", "map"]),
    ("filesystem", &["type", "mkfs", "mount"]),
    ("sqlite", &["journal_mode", "page_size", "synchronous"]),
    ("workload", &["commands", "rows", "programs", "limit", "may_fail"]),
    ("record", &["backend", "arguments"]),
    ("machine", &["arch", "memory", "cpus", "accelerator", "silence", "forward"]),
];

/// The full key in the file: `fs` is `filesystem.type`, `bus` is that of the file system's disk.
fn full_key(key: &str, table: &toml::Table) -> Result<String, String> {
    if key.contains('.') || table.contains_key(key) {
        return Ok(key.to_string());
    }
    let name = if key == "fs" { "type" } else { key };
    match SHORT_KEYS.iter().find(|(_, names)| names.contains(&name)) {
        Some(("disk", _)) => {
            let disk = table.get("filesystem").and_then(|fs| fs.get("disk")).and_then(toml::Value::as_str);
            Ok(format!("disk.{}.{name}", disk.ok_or("the scenario has no filesystem.disk")?))
        }
        Some((table, _)) => Ok(format!("{table}.{name}")),
        None if SHORT_KEYS.iter().any(|(table, _)| *table == key) || key == "about" => Ok(key.to_string()),
        None => {
            let names: Vec<&str> = SHORT_KEYS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
            Err(format!(
                "no setting {key:?}; expected fs, {}, or a key of the file such as disk.data.bus. A value with commas is quoted: \
                 mount='noatime,commit=60'",
                names.join(", ")
            ))
        }
    }
}

/// Splits a scenario's name or file from the settings after it: `scsi-ext4,fs=f2fs,size=1G`. A comma within quotes or brackets belongs
/// to its value, one not followed by `KEY=` to the part before it.
pub(super) fn split_settings(word: &str) -> (&str, Vec<String>) {
    let (mut cuts, mut depth, mut quote) = (Vec::new(), 0_usize, None);
    let mut valued = false;
    for (at, byte) in word.bytes().enumerate() {
        match (byte, quote) {
            (_, Some(open)) => quote = quote.filter(|_| byte != open),
            // A name may contain such characters itself.
            (b'\'' | b'"', None) if valued => quote = Some(byte),
            (b'[' | b'{', None) if valued => depth += 1,
            (b']' | b'}', None) if valued => depth = depth.saturating_sub(1),
            (b',', None) if depth == 0 && is_setting(&word[at + 1..]) => {
                cuts.push(at);
                valued = true;
            }
            _ => {}
        }
    }
    let ends = cuts.iter().skip(1).copied().chain([word.len()]);
    let settings = cuts.iter().zip(ends).map(|(from, to)| word[from + 1..to].to_string()).collect();
    (&word[..cuts.first().copied().unwrap_or(word.len())], settings)
}

/// Whether this begins with `KEY=`.
fn is_setting(text: &str) -> bool {
    let key = text.split('=').next().unwrap_or_default();
    let letters = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '.';
    key.len() < text.len() && !key.is_empty() && key.chars().all(letters)
}

/// Puts `KEY=VALUE` into the table. A value that is not TOML is a string, so that a shell's quotes are enough; a string that TOML
/// would parse as a number (`"1"`) needs quotes of its own.
pub(super) fn set_value(table: &mut toml::Table, setting: &str) -> Result<(), String> {
    let (key, value) = setting.split_once('=').ok_or("expected KEY=VALUE, such as sqlite.journal_mode=wal")?;
    let key = full_key(key.trim(), table)?;
    let parts: Vec<&str> = key.split('.').map(str::trim).collect();
    if parts.iter().any(|part| part.is_empty()) {
        return Err("expected a key such as disk.data.bus".into());
    }
    let parsed = toml::from_str::<toml::Table>(&format!("x = {value}")).ok().and_then(|mut t| t.remove("x"));
    let value = parsed.unwrap_or_else(|| toml::Value::String(value.to_string()));
    let (last, above) = parts.split_last().ok_or("expected a key")?;
    if let ["disk", name] = above {
        // A partial disk would be a second one, with defaults, that nothing uses: more likely a mistyped name than
        // intended.
        let disks = table.get("disk").and_then(toml::Value::as_table);
        if disks.is_some_and(|disks| !disks.contains_key(*name)) {
            let known: Vec<&str> = disks.into_iter().flat_map(|disks| disks.keys().map(String::as_str)).collect();
            return Err(format!(
                "no disk {name:?}; there is {}. To add one: --set \"disk.{name}={{bus='nvme', size='256M'}}\"",
                known.join(", ")
            ));
        }
    }
    let mut at = table;
    for (depth, part) in above.iter().enumerate() {
        let next = at.entry(*part).or_insert_with(|| toml::Value::Table(toml::Table::new()));
        at = next.as_table_mut().ok_or_else(|| format!("{} is not a table", parts[..=depth].join(".")))?;
    }
    at.insert((*last).to_string(), value);
    Ok(())
}
