//! Determines the file that a library's name denotes: the one that the dynamic loader would open.
//!
//! Follows the loader's order as far as it matters here: the directories that the file itself names (RUNPATH, RPATH),
//! `LD_LIBRARY_PATH`, the loader's cache, the usual directories. A wrong guess costs a probe on a file that is not executed, no
//! more.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The libraries of a system.
#[derive(Debug, Clone, Default)]
pub struct Libraries {
    cache: Vec<(String, PathBuf)>,
    directories: Vec<PathBuf>,
}

/// The default directories of libraries: Debian's multiarch, Fedora's and Arch's, musl's, Android's.
const DEFAULT_DIRECTORIES: &[&str] = &[
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
    "/system/lib64",
    "/apex/com.android.art/lib64",
    "/apex/com.android.i18n/lib64",
];

impl Libraries {
    /// Finds those of this system.
    pub fn system() -> Self {
        Self::below_root(Path::new("/"))
    }

    /// Finds those of the system below a directory.
    pub fn below_root(root: &Path) -> Self {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        let cache =
            std::fs::read(below("/etc/ld.so.cache")).map_or_else(|_| Vec::new(), |bytes| Self::parse_cache(&bytes));
        Self {
            cache: cache.into_iter().map(|(name, path)| (name, below(&path))).collect(),
            directories: DEFAULT_DIRECTORIES.iter().map(|f| below(f)).collect(),
        }
    }

    /// Parses the cache of glibc's loader (`glibc-ld.so.cache1.1`, its `sysdeps/generic/dl-cache.h`): a header of 48 bytes,
    /// entries of 24, whose second and third words are the positions of the name and the path, counted from the header. An
    /// older format may precede it. Returns (name, path) of every valid entry.
    pub fn parse_cache(bytes: &[u8]) -> Vec<(String, String)> {
        const TEXT_BYTES_MAX: usize = 4096;
        const CACHE_MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
        let Some(start) = bytes.windows(CACHE_MAGIC.len()).position(|w| w == CACHE_MAGIC) else { return Vec::new() };
        let bytes = &bytes[start..];
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?) as usize);
        // Every entry may refer to the same long text.
        let text = |at: usize| {
            let rest = bytes.get(at..)?;
            let end = rest.iter().take(TEXT_BYTES_MAX).position(|b| *b == 0)?;
            std::str::from_utf8(&rest[..end]).ok().map(str::to_owned)
        };
        let count = word(CACHE_MAGIC.len()).unwrap_or(0).min(bytes.len() / 24);
        (0..count).filter_map(|i| Some((text(word(48 + i * 24 + 4)?)?, text(word(48 + i * 24 + 8)?)?))).collect()
    }

    /// Returns the file of a library, searching `first` before everything else.
    pub fn resolve(&self, name: &str, first: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(PathBuf::from(name));
        }
        let in_first = first.iter().map(|f| f.join(name)).find(|p| is_loadable(p));
        let in_cache = || self.cache.iter().find(|(n, p)| n == name && is_loadable(p)).map(|(_, p)| p.clone());
        let in_directories = || self.directories.iter().map(|f| f.join(name)).find(|p| is_loadable(p));
        in_first.or_else(in_cache).or_else(in_directories)
    }

    /// Returns every file whose name has this prefix, such as `libsqlite3.so`. A file may appear under several names.
    pub fn with_prefix(&self, prefix: &str) -> impl Iterator<Item = PathBuf> {
        let in_cache = self.cache.iter().filter(|(name, _)| name.starts_with(prefix)).map(|(_, path)| path.clone());
        let in_directories = self.directories.iter().filter_map(|f| std::fs::read_dir(f).ok()).flatten().flatten();
        let in_directories =
            in_directories.filter(|e| e.file_name().to_str().is_some_and(|n| n.starts_with(prefix))).map(|e| e.path());
        in_cache.chain(in_directories).collect::<Vec<_>>().into_iter()
    }
}

/// Whether a 64-bit program would load a file: the loader skips 32-bit files, which are next to them where programs of both kinds
/// run.
fn is_loadable(path: &Path) -> bool {
    let mut options = std::fs::File::options();
    let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let mut start = [0; 5];
    path.exists() && !file.is_ok_and(|mut file| file.read_exact(&mut start).is_ok() && start == *b"\x7fELF\x01")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn cache(entries: &[(&str, &str)]) -> Vec<u8> {
        let mut out = b"glibc-ld.so.cache1.1".to_vec();
        out.extend((entries.len() as u32).to_le_bytes());
        out.resize(48, 0);
        let (mut strings, base) = (Vec::new(), 48 + entries.len() * 24);
        for (name, path) in entries {
            let mut entry = [0; 24];
            for (place, text) in [(4, name), (8, path)] {
                entry[place..place + 4].copy_from_slice(&((base + strings.len()) as u32).to_le_bytes());
                strings.extend(text.bytes().chain([0]));
            }
            out.extend(entry);
        }
        [out, strings].concat()
    }

    #[test]
    fn ld_cache_is_read_with_and_without_old_format() {
        let entries = [("libsqlite3.so.0", "/opt/lib/libsqlite3.so.0"), ("libz.so.1", "/lib/libz.so.1")];
        let want: Vec<_> = entries.iter().map(|(n, p)| (n.to_string(), p.to_string())).collect();
        assert_eq!(Libraries::parse_cache(&cache(&entries)), want);
        let both = [b"ld.so-1.7.0 old entries".to_vec(), cache(&entries)].concat();
        assert_eq!(Libraries::parse_cache(&both), want);
        assert_eq!(Libraries::parse_cache(b"nothing"), []);
    }

    #[test]
    fn own_directories_precede_ld_cache() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let (own, cached, usual) = (make("app/liba.so"), make("opt/liba.so"), make("usr/lib/liba.so"));
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        std::fs::write(root.path().join("etc/ld.so.cache"), cache(&[("liba.so", "/opt/liba.so")])).unwrap();
        let libraries = Libraries::below_root(root.path());
        assert_eq!(libraries.resolve("liba.so", &[root.path().join("app")]), Some(own));
        assert_eq!(libraries.resolve("liba.so", &[]), Some(cached.clone()));
        assert_eq!(libraries.with_prefix("liba").collect::<Vec<_>>(), [cached.clone(), usual.clone()]);
        std::fs::remove_file(cached).unwrap();
        assert_eq!(libraries.resolve("liba.so", &[]), Some(usual));
        assert_eq!(libraries.resolve("libb.so", &[]), None);
    }

    #[test]
    fn libraries_of_32_bits_are_skipped() {
        let root = tempfile::tempdir().unwrap();
        let make = |path: &str, text: &[u8]| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            path
        };
        make("lib32/libc.so.6", b"\x7fELF\x01\x01");
        let wanted = make("lib64/libc.so.6", b"\x7fELF\x02\x01");
        let both = cache(&[("libc.so.6", "/lib32/libc.so.6"), ("libc.so.6", "/lib64/libc.so.6")]);
        make("etc/ld.so.cache", &both);
        let libraries = Libraries::below_root(root.path());
        assert_eq!(libraries.resolve("libc.so.6", &[root.path().join("lib32")]), Some(wanted));
    }

    proptest! {
        #[test]
        fn arbitrary_caches_do_not_panic(mut noise in proptest::collection::vec(any::<u8>(), 0..200)) {
            Libraries::parse_cache(&noise);
            noise.splice(0..0, *b"glibc-ld.so.cache1.1");
            Libraries::parse_cache(&noise);
        }
    }
}
