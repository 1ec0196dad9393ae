//! The settings of SQLite that explain a recording, as PRAGMA statements set them.

/// A setting worth knowing about each recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pragma {
    /// SQLite's spelling.
    pub name: &'static str,
    /// Whether a database's file stores its value; if not, each connection has its own.
    pub in_file: bool,
}

pub const PRAGMAS: [Pragma; 9] = [
    Pragma { name: "journal_mode", in_file: true },
    Pragma { name: "page_size", in_file: true },
    Pragma { name: "encoding", in_file: true },
    Pragma { name: "schema_format", in_file: true },
    Pragma { name: "synchronous", in_file: false },
    Pragma { name: "cache_size", in_file: false },
    Pragma { name: "locking_mode", in_file: false },
    Pragma { name: "mmap_size", in_file: false },
    Pragma { name: "wal_autocheckpoint", in_file: false },
];

/// Returns name and value of `PRAGMA name = value`; private values are already `?`.
pub fn parse_pragma(shape: &str) -> Option<(String, String)> {
    let rest = shape.get(..7).filter(|w| w.eq_ignore_ascii_case("pragma ")).map(|_| &shape[7..])?;
    let (name, value) = rest.split_once('=').or_else(|| rest.strip_suffix(')')?.split_once('('))?;
    let value = value.trim().trim_end_matches(';').trim();
    let quotes = |q: char| Some(value.strip_prefix(q)?.strip_suffix(q)?.trim());
    let value = ['\'', '"', '`'].into_iter().find_map(quotes).unwrap_or(value);
    (value != "?").then(|| (name.trim().to_ascii_lowercase(), value.to_ascii_lowercase()))
}

#[cfg(test)]
mod tests {
    use super::parse_pragma;

    #[test]
    fn only_setting_pragmas_are_recognised() {
        assert_eq!(parse_pragma("PRAGMA journal_mode = WAL"), Some(("journal_mode".into(), "wal".into())));
        assert_eq!(parse_pragma("pragma synchronous(off)"), Some(("synchronous".into(), "off".into())));
        assert_eq!(parse_pragma("PRAGMA page_size = '4096';"), Some(("page_size".into(), "4096".into())));
        assert_eq!(parse_pragma("PRAGMA synchronous(\"FULL\")"), Some(("synchronous".into(), "full".into())));
        assert_eq!(parse_pragma("PRAGMA journal_mode"), None);
        assert_eq!(parse_pragma("PRAGMA key = ?"), None);
        assert_eq!(parse_pragma("SELECT a = b"), None);
    }
}
