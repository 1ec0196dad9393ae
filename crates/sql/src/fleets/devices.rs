//! Fetches archives from devices, except those already in the fleet: the device lists them, computes their identities and sends each as a
//! tar stream, which is untrusted input here. Fetched archives are kept only until they are added.

use super::progress::Progress;
use crate::scratch::{HeldDirectory, Purpose};
use anyhow::{Context as _, Result, bail, ensure};
use device::remote::DeviceAddress;
use device::remote::output::{look_up, quoted, stream};
use fleet::devices::{FoundArchive, Source, hash_commands, listing_command, parse_hashes, parse_listing};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// Limit of a list, in bytes: more than a million archives need.
const LIST_BYTES_MAX: u64 = 256 << 20;
/// Limits of an archive, in bytes and files.
const ARCHIVE_BYTES_MAX: u64 = 64 << 30;
const ARCHIVE_FILES_MAX: usize = 10_000;
/// A stream that is not a tar archive, or is truncated.
#[derive(Debug, Clone, Copy)]
struct DamagedStream;

impl fmt::Display for DamagedStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tar stream of the device is damaged")
    }
}

/// Archives of a device.
pub struct FetchedArchives {
    source: Source,
    /// The directory with the archives; removed when this is dropped.
    directory: HeldDirectory,
    /// Archives that the fleet has.
    pub known: usize,
    /// Archives that could not be fetched, and why.
    pub failed: Vec<(String, String)>,
    /// Number of fetched archives.
    pub count: usize,
}

impl FetchedArchives {
    /// The directory with the archives.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The name of a fetched archive on the device.
    pub fn name(&self, dir: &Path) -> Option<String> {
        let path = dir.strip_prefix(self.directory.path()).ok()?;
        Some(format!("{}:/{}", self.source.device, path.display()))
    }
}

/// Fetches the archives of a device that are not among these runs.
///
/// # Errors
/// The device cannot be reached, or has no such directory or no archives in it.
pub fn fetch(source: &Source, have: &BTreeSet<String>) -> Result<FetchedArchives> {
    let place: DeviceAddress = source.device.parse()?;
    let place = look_up(&place)?;
    let mut progress = Progress::default();
    progress.step(&format!("looking for archives on {place}"), 0, 0);
    let all = parse_listing(&run_shell(&place, &listing_command(&source.directory, quoted))?);
    ensure!(!all.is_empty(), "{}:{} has no archives in it", source.device, source.directory);
    let mut known = BTreeSet::new();
    for line in hash_commands(&source.directory, &all, quoted) {
        // A device without sha256sum prints nothing: then all are fetched.
        let output_lines = run_shell(&place, &line).unwrap_or_default();
        known.extend(
            parse_hashes(&output_lines)
                .into_iter()
                .filter(|(at, run)| *at < all.len() && have.contains(run))
                .map(|(at, _)| at),
        );
    }
    let directory = HeldDirectory::new(Purpose::Device).context("creating a directory for fetched archives")?;
    let mut fetched =
        FetchedArchives { source: source.clone(), directory, known: known.len(), failed: Vec::new(), count: 0 };
    let new: Vec<&FoundArchive> =
        all.iter().enumerate().filter(|(at, _)| !known.contains(at)).map(|(_, found)| found).collect();
    for (at, found) in new.iter().enumerate() {
        progress.step(&format!("fetching archives from {place}"), at, new.len());
        let there = source.path(found);
        let below: PathBuf = there.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        let into = fetched.directory.path().join(below);
        match fetch_one(&place, &there, &into) {
            Ok(()) => fetched.count += 1,
            Err(error) => {
                // A partial archive is useless.
                let _ = fs::remove_dir_all(&into);
                fetched.failed.push((source.name(found), format!("{error:#}")));
            }
        }
    }
    Ok(fetched)
}

fn run_shell(place: &DeviceAddress, line: &str) -> Result<String> {
    let mut output = stream(place, line)?;
    let mut text = Vec::new();
    output.by_ref().take(LIST_BYTES_MAX + 1).read_to_end(&mut text).with_context(|| format!("reading from {place}"))?;
    ensure!(text.len() as u64 <= LIST_BYTES_MAX, "{place} lists more than {LIST_BYTES_MAX} bytes of archives");
    output.finish()?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn fetch_one(place: &DeviceAddress, there: &Path, into: &Path) -> Result<()> {
    let line = format!("cd {} && tar -c -f - .", quoted(&there.to_string_lossy()));
    let mut output = stream(place, &line)?;
    let unpacked = unpack_archive(&mut output, into);
    let ended = output.finish();
    match unpacked {
        Ok(()) => Ok(ended?),
        // The exit of the device's tar explains why its stream ended.
        Err(error) if error.is::<DamagedStream>() => Err(ended.err().map_or(error, anyhow::Error::from)),
        Err(error) => Err(error),
    }
}

/// Unpacks regular files and directories, and refuses anything else.
fn unpack_archive(stream: &mut impl Read, into: &Path) -> Result<()> {
    fs::create_dir_all(into).with_context(|| format!("creating {}", into.display()))?;
    let (mut files, mut bytes) = (0, 0_u64);
    let mut archive = tar::Archive::new(&mut *stream);
    for entry in archive.entries().context(DamagedStream)? {
        let mut entry = entry.context(DamagedStream)?;
        let path = entry.path().context(DamagedStream)?.into_owned();
        let below: PathBuf = path.components().filter(|part| !matches!(part, Component::CurDir)).collect();
        ensure!(
            below.components().all(|part| matches!(part, Component::Normal(_))),
            "a path in the device's tar leads outside the archive: {}",
            model::text::shown(&path.to_string_lossy())
        );
        let (kind, to) = (entry.header().entry_type(), into.join(&below));
        files += 1;
        bytes = bytes.saturating_add(entry.size());
        ensure!(
            files <= ARCHIVE_FILES_MAX && bytes <= ARCHIVE_BYTES_MAX,
            "it is larger than any archive: {files} files, {bytes} bytes"
        );
        if kind.is_dir() {
            fs::create_dir_all(&to).with_context(|| format!("creating {}", to.display()))?;
        } else if kind.is_file() && below == Path::new("lock") {
            // Its holder is a process on the device.
        } else if kind.is_file() {
            let made = fs::File::create_new(&to).and_then(|mut file| std::io::copy(&mut entry, &mut file));
            let got = made.with_context(|| format!("writing {}", to.display()))?;
            ensure!(got == entry.size(), "the device's tar is cut short at {}", below.display());
        } else {
            bail!("{} is neither a file nor a directory", model::text::shown(&below.to_string_lossy()));
        }
    }
    // The rest of the stream is read, so that its writer ends by itself.
    std::io::copy(stream, &mut std::io::sink()).context(DamagedStream)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_BYTES: &[u8] = b"";
    const ONE_BYTE: &[u8] = b"1";

    fn packed(entries: &[(&str, tar::EntryType, &[u8])]) -> Vec<u8> {
        let mut out = tar::Builder::new(Vec::new());
        for (name, kind, data) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(data.len() as u64);
            header.set_mode(0o644);
            // The builder would refuse a path that leads elsewhere.
            header.as_gnu_mut().unwrap().name[..name.len()].copy_from_slice(name.as_bytes());
            header.set_cksum();
            out.append(&header, *data).unwrap();
        }
        out.into_inner().unwrap()
    }

    #[test]
    fn unpacking_stays_in_directory() {
        use tar::EntryType as Kind;
        let directory = tempfile::tempdir().unwrap();
        let into = directory.path().join("a");
        let good = packed(&[
            ("./", Kind::Directory, NO_BYTES),
            ("./meta.json", Kind::Regular, &b"{}"[..]),
            ("./tables/", Kind::Directory, NO_BYTES),
            ("./tables/x", Kind::Regular, ONE_BYTE),
            ("./lock", Kind::Regular, ONE_BYTE),
        ]);
        unpack_archive(&mut &good[..], &into).unwrap();
        assert_eq!(fs::read(into.join("tables/x")).unwrap(), b"1");
        assert!(!into.join("lock").exists());
        for (n, bad) in [
            packed(&[("../x", Kind::Regular, ONE_BYTE)]),
            packed(&[("/tmp/fathom-fleet-x", Kind::Regular, ONE_BYTE)]),
            packed(&[("x", Kind::Symlink, NO_BYTES)]),
            packed(&[("x", Kind::Fifo, NO_BYTES)]),
            packed(&[("x", Kind::Regular, ONE_BYTE), ("x", Kind::Regular, ONE_BYTE)]),
            good[..good.len() - 1800].to_vec(),
            vec![7; 600],
        ]
        .into_iter()
        .enumerate()
        {
            assert!(unpack_archive(&mut &bad[..], &directory.path().join(n.to_string())).is_err(), "{n}");
        }
        assert!(!directory.path().join("x").exists());
    }
}
