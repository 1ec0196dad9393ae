//! Archives on devices: which exist, and which of them are already in the fleet, found with tools that every device has (sh, find, grep,
//! sha256sum).
//!
//! A device may be a phone without Fathom. So shell commands are made here, and their output is parsed here. A device's output is untrusted:
//! it only decides which archives are fetched.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

/// Hashes requested by one line: it is one argument of `ssh`, which the kernel limits to 128 KiB.
const HASHES_PER_COMMAND: usize = 100;

/// A directory on a device, as given on the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// The device: `ssh:HOST`, `adb:SERIAL`.
    pub device: String,
    /// The directory, absolute.
    pub directory: String,
}

impl Source {
    /// Parses a word; `None` if it names no device.
    ///
    /// # Errors
    /// It names a device, but no directory on it.
    pub fn parse(word: &str) -> Result<Option<Self>, String> {
        let kind = word.split(':').next().unwrap_or_default();
        if !["ssh", "adb"].contains(&kind) || (word == kind) || Path::new(word).exists() {
            return Ok(None);
        }
        let missing = || format!("{word} names no directory on the device; expected {kind}:NAME:/DIRECTORY");
        let (device, directory) = word.split_once(":/").ok_or_else(missing)?;
        if device == "ssh" || (device != "adb" && device.len() <= 4) {
            return Err(missing());
        }
        Ok(Some(Self { device: device.into(), directory: format!("/{directory}") }))
    }

    /// An archive in it, as it would be given on the command line.
    pub fn name(&self, found: &FoundArchive) -> String {
        format!("{}:{}", self.device, self.path(found).to_string_lossy())
    }

    /// Path of an archive on the device; never above the directory.
    pub fn path(&self, found: &FoundArchive) -> PathBuf {
        let below = Path::new(&found.path).components().filter(|part| matches!(part, Component::Normal(_)));
        Path::new(&self.directory).join(below.collect::<PathBuf>())
    }
}

/// An archive on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundArchive {
    /// Relative to the directory.
    pub path: String,
    /// When it was made, ns since 1970, if known.
    pub created_unix_ns: Option<u64>,
    /// The file whose hash is its identity.
    pub log: String,
}

/// Returns a shell command that lists the archives below a directory; `quoted` quotes a text as one word.
pub fn listing_command(directory: &str, quoted: impl Fn(&str) -> String) -> String {
    format!(
        "cd {} && find . \\( -name meta.json -o -name events.log \\) -type f | while IFS= read -r m; do d=${{m%/*}}; \
         for l in events.log runs.jsonl tables/index.json; do if [ -f \"$d/$l\" ]; then break; fi; done; \
         c=$(grep -o '\"created_unix_ns\": *[0-9]*' \"$d/meta.json\" 2>/dev/null | head -n 1); \
         printf '%s\\t%s\\t%s\\n' \"${{c##*[!0-9]}}\" \"$l\" \"$d\"; done",
        quoted(directory)
    )
}

/// Parses the archives of a listing, in order; of nested directories the outer one, as in a local directory.
pub fn parse_listing(text: &str) -> Vec<FoundArchive> {
    let mut all: Vec<FoundArchive> = text
        .lines()
        .filter_map(|line| {
            let mut parts = line.splitn(3, '\t');
            let (created, log, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = if path == "." { "" } else { path.strip_prefix("./")? };
            let normal = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
            let known = ["events.log", "runs.jsonl", "tables/index.json"].contains(&log);
            (normal && known).then(|| FoundArchive {
                path: path.into(),
                created_unix_ns: created.parse().ok(),
                log: log.into(),
            })
        })
        .collect();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    let directories: BTreeSet<PathBuf> = all.iter().map(|found| PathBuf::from(&found.path)).collect();
    all.dedup_by(|a, b| a.path == b.path);
    all.retain(|found| Path::new(&found.path).ancestors().skip(1).all(|above| !directories.contains(above)));
    all
}

/// Returns shell commands that print the identities of these archives, at most 100 per command.
pub fn hash_commands(directory: &str, found: &[FoundArchive], quoted: impl Fn(&str) -> String) -> Vec<String> {
    let known: Vec<(usize, &FoundArchive, u64)> =
        found.iter().enumerate().filter_map(|(at, one)| Some((at, one, one.created_unix_ns?))).collect();
    known
        .chunks(HASHES_PER_COMMAND)
        .map(|some| {
            let mut line = format!("cd {} && {{ ", quoted(directory));
            for (at, one, created) in some {
                let octal = created.to_le_bytes().iter().fold(String::new(), |mut out, byte| {
                    let _ = write!(out, "\\{byte:03o}");
                    out
                });
                let log = quoted(&format!("./{}/{}", one.path, one.log));
                // As in `Identity::from_archive`: the time first, since two empty recordings must differ.
                let _ = write!(line, "echo {at} $( {{ printf '{octal}'; cat {log}; }} | sha256sum ); ");
            }
            line.push('}');
            line
        })
        .collect()
}

/// The run of each archive for which the commands printed one; none on a device without `sha256sum`.
pub fn parse_hashes(text: &str) -> Vec<(usize, String)> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let (at, hash) = (words.next()?.parse().ok()?, words.next()?);
        let whole = hash.len() == 64 && hash.bytes().all(|c| c.is_ascii_hexdigit());
        whole.then(|| (at, hash[..16].to_lowercase()))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    fn quoted(word: &str) -> String {
        format!("'{}'", word.replace('\'', r"'\''"))
    }

    fn run_shell(line: &str) -> String {
        let output = Command::new("sh").args(["-c", line]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn word_names_a_device_and_a_directory_or_neither() {
        let source =
            |device: &str, directory: &str| Ok(Some(Source { device: device.into(), directory: directory.into() }));
        assert_eq!(Source::parse("ssh:root@board:/var/log"), source("ssh:root@board", "/var/log"));
        assert_eq!(Source::parse("ssh:board:2222:/x"), source("ssh:board:2222", "/x"));
        assert_eq!(Source::parse("ssh:[fe80::1]:/x"), source("ssh:[fe80::1]", "/x"));
        assert_eq!(Source::parse("adb:/data/local/tmp"), source("adb", "/data/local/tmp"));
        assert_eq!(Source::parse("adb:192.168.1.2:5555:/data"), source("adb:192.168.1.2:5555", "/data"));
        for other in ["runs/", "/x:/y", "adb", "a.fathom", "s3://b/x", "ssh"] {
            assert_eq!(Source::parse(other), Ok(None), "{other}");
        }
        for wrong in ["ssh:board", "ssh:/x", "ssh::/x", "adb:0a38", "adb::/x"] {
            assert!(Source::parse(wrong).is_err_and(|why| why.contains(":NAME:/DIRECTORY")), "{wrong}");
        }
    }

    #[test]
    fn shell_computes_the_same_identity_as_the_archive() {
        let directory = tempfile::tempdir().unwrap();
        let make = |name: &str, created: u64, log: &str| {
            let dir = directory.path().join(name);
            std::fs::create_dir_all(dir.parent().unwrap()).unwrap();
            let meta = archive::Meta::new(archive::ArchiveKind::Bench, created, vec!["x".into()]);
            archive::Archive::create(&dir, &meta, false).unwrap();
            std::fs::write(archive::runs::path(&dir), log).unwrap();
            archive::TablesWriter::create(&dir).unwrap().finish().unwrap();
            crate::Identity::from_archive(&archive::Archive::open(&dir).unwrap(), None).unwrap().run
        };
        let odd = "x y/it's \"$(a)\".fathom";
        let expected = [
            ("a.fathom".to_string(), make("a.fathom", 1_795_456_989_402_286_832, "1\n")),
            (odd.to_string(), make(odd, 1, "")),
        ];
        std::fs::create_dir_all(directory.path().join("a.fathom/inner")).unwrap();
        std::fs::write(directory.path().join("a.fathom/inner/meta.json"), "{}").unwrap();
        let at = directory.path().to_str().unwrap();
        let found = parse_listing(&run_shell(&listing_command(at, quoted)));
        let told: Vec<(usize, String)> =
            hash_commands(at, &found, quoted).iter().flat_map(|line| parse_hashes(&run_shell(line))).collect();
        let told: Vec<(String, String)> = told.into_iter().map(|(at, run)| (found[at].path.clone(), run)).collect();
        assert_eq!(told, expected);
    }

    #[test]
    fn output_of_a_device_cannot_leave_the_directory() {
        let text = "1\tevents.log\t./../../etc\n1\tevents.log\t/etc\n1\t../x\t./a\nnothing\n\tevents.log\t./b\n";
        let found = parse_listing(text);
        assert_eq!(found, [FoundArchive { path: "b".into(), created_unix_ns: None, log: "events.log".into() }]);
        assert!(hash_commands("/x", &found, quoted).is_empty());
        assert_eq!(parse_hashes("0 abc\nx y\n\n7\n"), []);
        assert_eq!(parse_hashes(&format!("3 {} -\n", "A1".repeat(32))), [(3, "a1".repeat(8))]);
    }
}
