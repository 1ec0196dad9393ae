//! Follows a growing directory on the device: sends the contents of its files as they grow, so that the measurements have
//! already reached the host when the cable is pulled.
//!
//! A file is identified by its inode. One that was replaced, or became shorter, is sent again. Changes in the middle of a
//! file are not detected: logs of archives only grow, and everything else in an archive is replaced as a whole.

use super::frame::{FRAME_BYTES_MAX, Frame};
use super::read::read_some;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const DEPTH_MAX: usize = 6;
/// The maximum part of a file per frame.
const PIECE_BYTES_MAX: usize = FRAME_BYTES_MAX / 4;

/// A directory, and the parts of it that were sent.
pub struct Follower {
    base: PathBuf,
    directory: String,
    excluded: Vec<String>,
    sent: BTreeMap<String, (u64, u64)>,
}

impl Follower {
    /// `words`: the directory's name below `base`, then prefixes or suffixes of names to skip.
    pub fn new(base: &Path, words: &[String]) -> Option<Self> {
        let (directory, leave) = words.split_first()?;
        super::frame::path_below(base, directory)?;
        Some(Self { base: base.into(), directory: directory.clone(), excluded: leave.to_vec(), sent: BTreeMap::new() })
    }

    /// Marks files that the host already has: name, length, SHA-256. They are not sent again, if they are unchanged here.
    pub fn skip_known(&mut self, files: &[(String, u64, String)]) {
        for (name, length, hash) in files {
            let inside = name.strip_prefix(self.directory.as_str()).is_some_and(|rest| rest.starts_with('/'));
            let Some(path) = super::frame::path_below(&self.base, name).filter(|_| inside) else { continue };
            let Ok(file) = File::open(path) else { continue };
            let Ok(about) = file.metadata() else { continue };
            if about.len() >= *length && hash_prefix(file, *length).is_ok_and(|ours| ours == *hash) {
                self.sent.insert(name.clone(), (about.ino(), *length));
            }
        }
    }

    /// Sends new data; false if the connection is closed.
    pub fn send_new(&mut self, say: &mut dyn FnMut(&Frame) -> bool) -> bool {
        let mut names = Vec::new();
        self.list(&self.directory.clone(), 0, &mut names);
        // A file that vanishes or becomes unreadable meanwhile is being replaced; the next call sends the new one.
        names.iter().all(|name| self.file(name, say).unwrap_or(true))
    }

    fn list(&self, directory: &str, depth: usize, names: &mut Vec<String>) {
        let Ok(entries) = fs::read_dir(self.base.join(directory)) else { return };
        let mut entries_here: Vec<(String, bool)> = entries
            .flatten()
            .filter_map(|entry| {
                let (name, kind) = (entry.file_name().into_string().ok()?, entry.file_type().ok()?);
                let left =
                    self.excluded.iter().any(|word| name.starts_with(word.as_str()) || name.ends_with(word.as_str()));
                (!left && (kind.is_dir() || kind.is_file())).then(|| (format!("{directory}/{name}"), kind.is_dir()))
            })
            .collect();
        entries_here.sort();
        for (name, is_directory) in entries_here {
            if !is_directory {
                names.push(name);
            } else if depth < DEPTH_MAX {
                self.list(&name, depth + 1, names);
            }
        }
    }

    fn file(&mut self, name: &str, say: &mut dyn FnMut(&Frame) -> bool) -> io::Result<bool> {
        let mut file = File::open(self.base.join(name))?;
        let about = file.metadata()?;
        let known = self.sent.get(name).filter(|(inode, at)| *inode == about.ino() && *at <= about.len());
        let (fresh, mut at) = known.map_or((true, 0), |(_, at)| (false, *at));
        file.seek(SeekFrom::Start(at))?;
        let mut left = about.len() - at;
        // An empty file is sent too.
        let mut first = fresh;
        while left > 0 || first {
            let mut bytes = Vec::new();
            (&mut file).take(left.min(PIECE_BYTES_MAX as u64)).read_to_end(&mut bytes)?;
            if bytes.is_empty() && !first {
                break;
            }
            first = false;
            let got = bytes.len() as u64;
            if !say(&Frame::Piece(name.into(), at, bytes)) {
                return Ok(false);
            }
            at += got;
            left = left.saturating_sub(got);
            self.sent.insert(name.into(), (about.ino(), at));
        }
        Ok(true)
    }
}

/// The SHA-256 of the first `length` bytes of a file.
///
/// # Errors
/// It cannot be read, or is shorter.
pub fn hash_prefix(file: impl io::Read, length: u64) -> io::Result<String> {
    let (mut hash, mut left) = (Sha256::new(), length);
    let mut from = file.take(length);
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let n = read_some(&mut from, &mut buffer)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        hash.update(&buffer[..n]);
        left -= n as u64;
    }
    Ok(hash.finalize().iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect_pieces(follower: &mut Follower) -> Vec<(String, u64, Vec<u8>)> {
        let mut all = Vec::new();
        assert!(follower.send_new(&mut |frame| {
            if let Frame::Piece(name, at, bytes) = frame {
                all.push((name.clone(), *at, bytes.clone()));
            }
            true
        }));
        all
    }

    fn piece(name: &str, at: u64, bytes: &[u8]) -> (String, u64, Vec<u8>) {
        (name.into(), at, bytes.to_vec())
    }

    #[test]
    fn growth_and_replacement_are_sent_once() {
        let base = tempfile::tempdir().unwrap();
        let at = |name: &str| base.path().join(name);
        let words: Vec<String> = ["run", "tables", ".tmp"].map(Into::into).to_vec();
        let mut follower = Follower::new(base.path(), &words).unwrap();
        assert_eq!(collect_pieces(&mut follower), [], "it is not there yet");
        fs::create_dir_all(at("run/why/a")).unwrap();
        fs::create_dir_all(at("run/tables")).unwrap();
        for (name, text) in
            [("run/log", "one"), ("run/empty", ""), ("run/why/a/log", "x"), ("run/tables/t", "no"), ("run/m.tmp", "no")]
        {
            fs::write(at(name), text).unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", at("run/link")).unwrap();
        assert_eq!(
            collect_pieces(&mut follower),
            [piece("run/empty", 0, b""), piece("run/log", 0, b"one"), piece("run/why/a/log", 0, b"x")]
        );
        assert_eq!(collect_pieces(&mut follower), []);
        fs::write(at("run/log"), "one two").unwrap();
        assert_eq!(collect_pieces(&mut follower), [piece("run/log", 3, b" two")]);
        fs::write(at("run/other"), "another one").unwrap();
        fs::rename(at("run/other"), at("run/log")).unwrap();
        assert_eq!(collect_pieces(&mut follower), [piece("run/log", 0, b"another one")]);
        fs::write(at("run/log"), "s").unwrap();
        assert_eq!(collect_pieces(&mut follower), [piece("run/log", 0, b"s")], "shorter is anew");
    }

    #[test]
    fn received_bytes_are_not_sent_again() {
        let base = tempfile::tempdir().unwrap();
        fs::create_dir(base.path().join("run")).unwrap();
        for (name, text) in [("grown", "one two"), ("replaced", "xyz two"), ("shorter", "o"), ("same", "one")] {
            fs::write(base.path().join("run").join(name), text).unwrap();
        }
        let one = hash_prefix(&b"one"[..], 3).unwrap();
        let mut follower = Follower::new(base.path(), &["run".into()]).unwrap();
        let has = ["grown", "replaced", "shorter", "same", "none"].map(|name| (format!("run/{name}"), 3, one.clone()));
        follower.skip_known(&has);
        follower.skip_known(&[("../etc/passwd".into(), 0, hash_prefix(&b""[..], 0).unwrap())]);
        let all = collect_pieces(&mut follower);
        assert_eq!(
            all,
            [piece("run/grown", 3, b" two"), piece("run/replaced", 0, b"xyz two"), piece("run/shorter", 0, b"o")]
        );
    }

    #[test]
    fn long_file_is_sent_in_pieces() {
        let base = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..2 * PIECE_BYTES_MAX + 5).map(|i| (i % 251) as u8).collect();
        fs::create_dir(base.path().join("run")).unwrap();
        fs::write(base.path().join("run/log"), &bytes).unwrap();
        let mut follower = Follower::new(base.path(), &["run".into()]).unwrap();
        let all = collect_pieces(&mut follower);
        assert_eq!(
            all.iter().map(|p| p.1).collect::<Vec<_>>(),
            [0, PIECE_BYTES_MAX as u64, 2 * PIECE_BYTES_MAX as u64]
        );
        assert!(all.iter().flat_map(|p| &p.2).eq(&bytes));
        assert!(Follower::new(base.path(), &["../x".into()]).is_none());
    }
}
