//! The SQLite in a library's file: version, source and build options (ctime.c stores them as texts, in alphabetical order).
//! Read from the texts between zeroes; no code of it is run, and it may be for any processor.
//!
//! Uncertain: the options exist only if SQLITE_OMIT_COMPILEOPTION_DIAGS was not set, and an unrelated text may look like one. So only
//! options that change how much is written or waited for are used.

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Library {
    /// Such as `3.40.1`.
    pub version: String,
    /// The check-in: its date, time and hash.
    pub source: String,
    /// Options that decide what a transaction costs, as `NAME` or `NAME=VALUE`.
    pub options: Vec<String>,
}

/// PRAGMA synchronous by its number.
const SYNCHRONOUS_NAMES: [&str; 4] = ["off", "normal", "full", "extra"];
/// Pages are 4096 bytes long since this version, and 1024 before.
const PAGES_OF_4096_SINCE: (u32, u32) = (3, 12);

impl Library {
    /// Returns the settings of a database opened by it until they are changed, as PRAGMAs; `None` if it does not list its options. A
    /// framework above, such as Android's, sets its own when it opens one.
    pub fn defaults(&self) -> Option<Vec<(&'static str, String)>> {
        // The options about locking are in every list.
        if self.options.is_empty() {
            return None;
        }
        let option = |name: &str| self.options.iter().find_map(|o| o.strip_prefix(name)?.strip_prefix('='));
        let level = |text: &str| text.parse::<usize>().ok().and_then(|n| SYNCHRONOUS_NAMES.get(n)).copied();
        let synchronous = option("DEFAULT_SYNCHRONOUS").map_or(Some("full"), level)?;
        let in_wal = option("DEFAULT_WAL_SYNCHRONOUS").map_or(Some(synchronous), level)?;
        let mut numbers = self.version.split('.').map(|n| n.parse::<u32>().unwrap_or(0));
        let version = (numbers.next()?, numbers.next()?);
        let page = option("DEFAULT_PAGE_SIZE").unwrap_or(if version < PAGES_OF_4096_SINCE { "1024" } else { "4096" });
        Some(vec![
            ("journal_mode", "delete".into()),
            ("synchronous", synchronous.into()),
            ("synchronous in WAL", in_wal.into()),
            ("page_size", page.into()),
            ("wal_autocheckpoint", option("DEFAULT_WAL_AUTOCHECKPOINT").unwrap_or("1000").into()),
            ("journal_size_limit", option("DEFAULT_JOURNAL_SIZE_LIMIT").unwrap_or("-1").into()),
        ])
    }
}

const OPTION_NAMES: &[&str] = &[
    "ATOMIC_INTRINSICS",
    "DEFAULT_AUTOVACUUM",
    "DEFAULT_CACHE_SIZE",
    "DEFAULT_FILE_PERMISSIONS",
    "DEFAULT_JOURNAL_SIZE_LIMIT",
    "DEFAULT_MMAP_SIZE",
    "DEFAULT_PAGE_SIZE",
    "DEFAULT_SECTOR_SIZE",
    "DEFAULT_SYNCHRONOUS",
    "DEFAULT_WAL_AUTOCHECKPOINT",
    "DEFAULT_WAL_SYNCHRONOUS",
    "ENABLE_ATOMIC_WRITE",
    "ENABLE_BATCH_ATOMIC_WRITE",
    "POWERSAFE_OVERWRITE",
    "SECURE_DELETE",
    "TEMP_STORE",
    "THREADSAFE",
    "USE_PREAD",
    "USE_PREAD64",
];
/// Maximum length of an option's text.
const OPTION_BYTES_MAX: usize = 64;

/// Searches a file's bytes; `None` if no SQLite identifies itself there.
pub fn identify(bytes: &[u8]) -> Option<Library> {
    let (mut source, mut versions, mut options) = (None, Vec::new(), Vec::new());
    for text in bytes.split(|b| *b == 0).filter(|t| (5..=100).contains(&t.len())) {
        let Ok(text) = std::str::from_utf8(text) else { continue };
        if is_source_id(text) {
            source.get_or_insert_with(|| text.to_owned());
        } else if is_version(text) {
            versions.push(text);
        } else if is_option(text) {
            options.push(text.to_owned());
        }
    }
    // Other libraries in the same file have versions, too; SQLite's begins with 3.
    let version = versions.iter().find(|v| v.starts_with("3."))?;
    let version = (*version).to_owned();
    options.sort();
    options.dedup();
    Some(Library { version, source: source?, options })
}

/// Whether it is `2022-12-28 14:03:47 ` and a hash.
fn is_source_id(text: &str) -> bool {
    let (date, rest) = text.split_at_checked(20).unwrap_or_default();
    let pattern = |(c, p): (char, char)| if p == '0' { c.is_ascii_digit() } else { c == p };
    let dated = date.len() == 20 && date.chars().zip("0000-00-00 00:00:00 ".chars()).all(pattern);
    dated && rest.len() >= 40 && rest.bytes().all(|b| b.is_ascii_alphanumeric())
}

fn is_version(text: &str) -> bool {
    let parts: Vec<&str> = text.split('.').collect();
    (3..=4).contains(&parts.len())
        && parts.iter().all(|p| (1..=3).contains(&p.len()) && p.bytes().all(|b| b.is_ascii_digit()))
}

fn is_option(text: &str) -> bool {
    let name = text.split('=').next().unwrap_or_default();
    text.len() <= OPTION_BYTES_MAX && OPTION_NAMES.contains(&name) && text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SOURCE_ID: &str = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f3alt1";

    #[test]
    fn version_source_and_options_are_found() {
        let bytes = format!(
            "\x7fELF\0\01.2.13\0TEMP_STORE=3\0THREADSAFE=2\0ENABLE_FTS3\0DEFAULT_SYNCHRONOUS=2\0x\0{SOURCE_ID}\03.40.1\0"
        );
        let found = identify(bytes.as_bytes()).unwrap();
        assert_eq!((found.version.as_str(), found.source.as_str()), ("3.40.1", SOURCE_ID));
        assert_eq!(found.options, ["DEFAULT_SYNCHRONOUS=2", "TEMP_STORE=3", "THREADSAFE=2"]);
        assert_eq!(identify(b"\x7fELF\x003.40.1\x00"), None, "a version alone proves nothing");
        assert_eq!(identify(SOURCE_ID.as_bytes()), None);
    }

    #[test]
    fn defaults_follow_options_and_version() {
        let of = |version: &str, options: &[&str]| {
            let options = options.iter().map(ToString::to_string).collect();
            let all = Library { version: version.into(), source: SOURCE_ID.into(), options }.defaults()?;
            Some(all.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "))
        };
        let usual = "journal_mode=delete synchronous=full synchronous in WAL=full page_size=4096 wal_autocheckpoint=1000 \
                     journal_size_limit=-1";
        assert_eq!(of("3.40.1", &["THREADSAFE=1"]).as_deref(), Some(usual));
        // Android's (external/sqlite/dist/Android.bp).
        let android = ["DEFAULT_JOURNAL_SIZE_LIMIT=1048576", "DEFAULT_SYNCHRONOUS=2", "DEFAULT_WAL_SYNCHRONOUS=1"];
        let text = of("3.39.2", &android).unwrap();
        assert!(text.contains("in WAL=normal") && text.contains("journal_size_limit=1048576"), "{text}");
        assert!(of("3.8.4.3", &["THREADSAFE=2"]).unwrap().contains("page_size=1024"));
        assert_eq!((of("3.40.1", &[]), of("3.40.1", &["DEFAULT_SYNCHRONOUS=9"])), (None, None));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "[0-9: -]{0,30}ü?") {
            if let Some(library) = identify(&bytes) {
                library.defaults();
            }
            is_source_id(&text);
            is_version(&text);
        }
    }
}
