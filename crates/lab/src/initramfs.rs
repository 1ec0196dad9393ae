//! An initramfs in memory: the `newc` format of cpio, as the kernel's `init/initramfs.c` reads it
//! (Documentation/driver-api/early-userspace/buffer-format.rst). Written by hand, because it takes 40 lines and the
//! `cpio` program would need the files laid out on disk first, owned by root.

use crate::Error;
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// Regular file, directory, symbolic link: the file-type bits of a mode.
const S_IFREG: u32 = 0o100_000;
const S_IFDIR: u32 = 0o040_000;
const S_IFLNK: u32 = 0o120_000;

/// A growing archive. Parents of a path are added as needed.
#[derive(Debug, Default)]
pub struct Initramfs {
    bytes: Vec<u8>,
    seen: BTreeSet<String>,
}

impl Initramfs {
    /// Adds a file. `path` has no leading slash. An existing path is left as it is.
    pub fn file(&mut self, path: &str, content: &[u8], executable: bool) {
        self.entry(path, S_IFREG | if executable { 0o755 } else { 0o644 }, content);
    }

    pub fn directory(&mut self, path: &str) {
        self.entry(path, S_IFDIR | 0o755, &[]);
    }

    /// Adds a symbolic link to `target`.
    pub fn link(&mut self, path: &str, target: &str) {
        self.entry(path, S_IFLNK | 0o777, target.as_bytes());
    }

    /// Adds a file of this machine.
    ///
    /// # Errors
    /// `Io` if it cannot be read.
    pub fn copy(&mut self, from: &Path, to: &str) -> Result<(), Error> {
        let content = std::fs::read(from).map_err(|e| Error::io("read", from, e))?;
        self.file(to, &content, true);
        Ok(())
    }

    /// Adds a program of this machine at the same path, with the shared libraries it needs.
    ///
    /// # Errors
    /// `Io` if one cannot be read.
    pub fn program(&mut self, path: &Path) -> Result<(), Error> {
        self.program_as(path, &path.to_string_lossy())
    }

    /// The same at another path.
    ///
    /// # Errors
    /// `Io` if one cannot be read.
    pub fn program_as(&mut self, path: &Path, to: &str) -> Result<(), Error> {
        self.copy(path, to)?;
        // ldd fails on a static program, which needs no libraries.
        let listed = Command::new("ldd").arg(path).output().map(|o| o.stdout).unwrap_or_default();
        for library in libraries(&String::from_utf8_lossy(&listed)) {
            self.copy(Path::new(&library), &library)?;
        }
        Ok(())
    }

    /// Completes and returns the archive.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let path = path.trim_matches('/');
        if let Some((parent, _)) = path.rsplit_once('/') {
            self.directory(parent);
        }
        if !self.seen.insert(path.to_string()) {
            return;
        }
        // Magic, then 13 numbers of 8 hexadecimal digits: inode, mode, uid, gid, links, time, size, four device
        // numbers, length of the name with its NUL, checksum (unused in this variant).
        let number = self.seen.len() as u32;
        let fields = [number, mode, 0, 0, 1, 0, content.len() as u32, 0, 0, 0, 0, path.len() as u32 + 1, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// Parses the output of ldd: `name => /path (address)` and `/path (address)`.
fn libraries(ldd: &str) -> Vec<String> {
    let paths = ldd.lines().filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')));
    paths.map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpio_entry_has_the_kernels_layout() {
        let mut archive = Initramfs::default();
        archive.file("a/b", b"hello", true);
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        // The parent comes first, each part is padded to 4 bytes, the trailer ends it.
        assert!(text.starts_with("07070100000001000041ed"));
        let file = text.find("000081ed").unwrap() - 14;
        assert_eq!(file % 4, 0);
        assert_eq!(&text[file + 54..file + 62], "00000005");
        assert_eq!(&text[file + 110..file + 114], "a/b\0");
        assert_eq!(&text[file + 116..file + 121], "hello");
        assert!(text.contains("TRAILER!!!") && bytes.len() % 4 == 0);
    }

    #[test]
    fn path_is_added_only_once() {
        let mut archive = Initramfs::default();
        archive.file("x", b"first", false);
        archive.file("/x", b"second", false);
        let text = String::from_utf8(archive.finish()).unwrap();
        assert!(text.contains("first") && !text.contains("second"));
    }

    #[test]
    fn libraries_are_parsed_from_ldd() {
        let ldd = "\tlinux-vdso.so.1 (0x7ff)\n\tlibc.so.6 => /lib/libc.so.6 (0x7fe)\n\t/lib64/ld.so.2 (0x7fd)\n";
        assert_eq!(libraries(ldd), ["/lib/libc.so.6", "/lib64/ld.so.2"]);
    }
}
