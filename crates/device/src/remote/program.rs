//! This program on a device: its own static file, under a name that contains its hash, in a directory of the user. It is
//! copied there once, and verified before it is used: one with other content is replaced, those of other versions are
//! removed. A phone hashes it for a second, so the hash of a file that did not change since is taken from the last time.

use super::adb::{AdbServer, AdbSync};
use super::patience::run_in_thread;
use super::transport;
use super::{DeviceAddress, Remark, Unreachable};
use child::quoted;
use model::Context;
use model::program::{Build, find_build};
use model::text::ShownPath as _;
use sha2::{Digest as _, Sha256};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The deployed program on a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// The device's full name.
    pub place: DeviceAddress,
    /// The path of the program.
    pub program: String,
    /// The directory in which agents create theirs.
    pub directory: String,
}

/// A program file that could be copied to a device.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Binary {
    path: PathBuf,
    bytes: u64,
    hash: String,
    machine: &'static str,
    /// Whether it is dynamically linked.
    linked: bool,
}

/// ELF machine numbers, and the corresponding output of `uname -m`. A 64-bit kernel may have a 32-bit user space.
const MACHINE_NAMES: &[(u16, &str)] =
    &[(62, "x86_64"), (183, "aarch64"), (243, "riscv64"), (40, "armv7l"), (3, "i686"), (22, "s390x"), (21, "ppc64le")];

/// A shell's commands that print the hashes of the programs in the directory `$d`.
const HASH_SCRIPT: &str = include_str!("hashes.sh");

/// Why there is no program for a device.
#[derive(Debug, thiserror::Error)]
enum BinaryError {
    #[error("{}: {}", .0.shown(), .1)]
    Unreadable(PathBuf, io::Error),
    #[error("{} is not a Linux program for a supported architecture", .0.shown())]
    Foreign(PathBuf),
    #[error(
        "its architecture is {machine}, and this binary is for {have}: put Fathom for {machine} beside it as fathom-{machine}, or give it \
         with --binary FILE (in the source tree, `make aarch64` builds one for aarch64, which is found there)"
    )]
    OtherMachine { machine: String, have: String },
    #[error(
        "its architecture is {1}, and {path} was built from other sources than this program: `make {1}` in the source tree rebuilds it; \
         elsewhere put the {1} program of the same release in its place, or give one with --binary FILE", path = .0.shown()
    )]
    OtherSources(PathBuf, String),
    #[error(
        "{} is dynamically linked, and its libraries may be missing there: give a static binary with --binary \
         FILE (`make build` makes one)", .0.shown()
    )]
    Linked(PathBuf),
}

impl Binary {
    fn read(path: &Path) -> Result<Self, BinaryError> {
        let bytes = std::fs::read(path).map_err(|e| BinaryError::Unreadable(path.into(), e))?;
        let number = |at: usize, length: usize| {
            let part = bytes.get(at..at.checked_add(length)?)?;
            Some(part.iter().rev().fold(0_u64, |sum, b| sum << 8 | u64::from(*b)))
        };
        let elf = bytes.starts_with(b"\x7fELF") && bytes.get(5) == Some(&1);
        let machine = number(18, 2).and_then(|m| MACHINE_NAMES.iter().find(|(n, _)| u64::from(*n) == m));
        let Some((_, machine)) = machine.filter(|_| elf) else {
            return Err(BinaryError::Foreign(path.into()));
        };
        // Program headers of 64-bit files: offset, size, count; type 3 is the dynamic linker.
        let headers = || Some((number(32, 8)? as usize, number(54, 2)? as usize, number(56, 2)? as usize));
        let linked = bytes.get(4) == Some(&2)
            && headers().is_some_and(|(at, size, count)| {
                (0..count).any(|i| at.checked_add(i * size).and_then(|at| number(at, 4)) == Some(3))
            });
        let hash = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
        Ok(Self { path: path.into(), bytes: bytes.len() as u64, hash, machine, linked })
    }

    /// Whether it runs on the machine with this `uname -m`.
    fn runs_on(&self, machine: &str) -> bool {
        match machine {
            "armv8l" | "armv6l" => self.machine == "armv7l",
            "i386" | "i486" | "i586" => self.machine == "i686",
            other => self.machine == other,
        }
    }
}

/// This program for another architecture, if none was given: next to this one as `fathom-MACHINE`, or built in the source tree.
fn find_beside(ours: &Path, machine: &str) -> Result<Option<Binary>, BinaryError> {
    // The device's machine name becomes a part of paths, so it is validated.
    let Some((_, machine)) = MACHINE_NAMES.iter().find(|(_, name)| *name == machine) else { return Ok(None) };
    let runs = |path: &Path| Binary::read(path).is_ok_and(|binary| binary.runs_on(machine));
    match find_build(ours, machine, runs, |path| std::fs::read(path).ok()) {
        Some(Build::Same(path)) => Binary::read(&path).map(Some),
        Some(Build::Other(path)) => Err(BinaryError::OtherSources(path, (*machine).into())),
        None => Ok(None),
    }
}

/// Makes sure that the program is on the device: `ours`, or the one of `others` for its architecture. `notify` receives a
/// remark when it is copied.
///
/// # Errors
/// A sentence that suggests a remedy.
pub fn deploy(
    place: &DeviceAddress,
    ours: &Path,
    others: &[PathBuf],
    context: &Context,
    notify: &dyn Fn(Remark),
) -> Result<Deployment, Unreachable> {
    let place = &transport::look_up(place, context)?;
    if matches!(place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        let program = ours.to_string_lossy().into_owned();
        // The measurement uses this directory's storage, as without a device: /tmp is in memory on many systems.
        let here = std::env::current_dir().ok().filter(|d| *place == DeviceAddress::Local && writable(d));
        let directory = here.unwrap_or_else(std::env::temp_dir).to_string_lossy().into_owned();
        return Ok(Deployment { place: place.clone(), program, directory });
    }
    if let DeviceAddress::Lab(_) = place {
        // The guest's image contains the program; its own directory is in memory, so that the disk only contains the measured data.
        notify(Remark::Booting(place.clone()));
        return Ok(Deployment { place: place.clone(), program: "/bin/fathom".into(), directory: "/tmp".into() });
    }
    let fail = |why: String| Unreachable::new(place, why);
    let all = others.iter().map(PathBuf::as_path).chain([ours]).map(Binary::read).collect::<Result<Vec<_>, _>>();
    let mut all = all.map_err(|e| fail(e.to_string()))?;
    let home = directory(place);
    // A failing tool's message replaces its line.
    let look = format!("echo fathom-look; s=$(uname -sm 2>&1); echo $s; d={home}; echo \"$d\"\n{HASH_SCRIPT}");
    let seen = transport::run(place, &look, None, context, "tell its system and its directory")?;
    let seen = String::from_utf8_lossy(&seen).replace('\r', "");
    // A login shell may have printed a greeting first.
    let mut lines = seen.split_once("fathom-look\n").map_or("", |(_, answer)| answer).lines();
    let (system, directory) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let machine = match system.split_once(' ') {
        Some(("Linux", machine)) if directory.starts_with('/') => machine,
        _ => {
            return Err(fail(format!(
                "its system is `{}`; Fathom runs on Linux and Android",
                transport::printable(system)
            )));
        }
    };
    if !all.iter().any(|binary| binary.runs_on(machine)) {
        all.extend(find_beside(ours, machine).map_err(|e| fail(e.to_string()))?);
    }
    let binary = choose(&all, machine).map_err(|e| fail(e.to_string()))?;
    let name = format!("{directory}/fathom-{}", binary.hash.get(..16).unwrap_or(&binary.hash));
    let there = lines.any(|l| l.split_once(' ').is_some_and(|(hash, file)| hash == binary.hash && file.trim() == name));
    if !there {
        notify(Remark::Copying { place: place.clone(), bytes: binary.bytes });
        copy_program(place, binary, directory, &name, context)?;
    }
    Ok(Deployment { place: place.clone(), program: name, directory: directory.into() })
}

fn writable(directory: &Path) -> bool {
    let name = std::ffi::CString::new(directory.as_os_str().as_encoded_bytes());
    // SAFETY: the name is a C string, and is only read.
    name.is_ok_and(|name| unsafe { libc::access(name.as_ptr(), libc::W_OK | libc::X_OK) } == 0)
}

/// Removes it from a device, unless something there still needs it; returns whether it is gone.
///
/// # Errors
/// The device is unreachable.
pub fn remove(place: &DeviceAddress, context: &Context) -> Result<bool, Unreachable> {
    let place = &transport::look_up(place, context)?;
    if matches!(place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        return Ok(true);
    }
    // A directory with other files is kept: it is the user's cache, where the lab also has its kernels.
    let line = format!(
        "d={}; ls -d \"$d\"/detached-*/* \"$d\"/fathom-run-* >/dev/null 2>&1 && exit 0; rm -f \"$d\"/fathom-?* \"$d\"/part-?* \"$d\"/verified*; rmdir \"$d\" 2>/dev/null; \
         ls -d \"$d\"/fathom-?* >/dev/null 2>&1 || echo gone",
        directory(place)
    );
    Ok(String::from_utf8_lossy(&transport::run(place, &line, None, context, "remove the program")?)
        .lines()
        .any(|l| l.trim() == "gone"))
}

/// The directory on the device, for its shell.
fn directory(place: &DeviceAddress) -> &'static str {
    match place {
        // A directory that a shell may write to and execute from on Android.
        DeviceAddress::Adb(_) => "/data/local/tmp/fathom",
        _ => "\"${XDG_CACHE_HOME:-$HOME/.cache}/fathom\"",
    }
}

fn choose<'a>(all: &'a [Binary], machine: &str) -> Result<&'a Binary, BinaryError> {
    let have: Vec<&str> = all.iter().map(|b| b.machine).collect();
    let Some(binary) = all.iter().find(|binary| binary.runs_on(machine)) else {
        return Err(BinaryError::OtherMachine { machine: machine.into(), have: have.join(" and ") });
    };
    if binary.linked {
        return Err(BinaryError::Linked(binary.path.clone()));
    }
    Ok(binary)
}

/// Copies it under a temporary name, and renames it when it is complete.
fn copy_program(
    place: &DeviceAddress,
    binary: &Binary,
    directory: &str,
    name: &str,
    context: &Context,
) -> Result<(), Unreachable> {
    let fail = |why: String| Unreachable::new(place, why);
    // A file of another host, in a container with the same process number, has another hash or the same bytes.
    let hash = binary.hash.get(..8).unwrap_or_default();
    let part = format!("{directory}/part-{hash}-{}", std::process::id());
    let run = |line: &str| transport::run(place, line, None, context, "keep the program");
    let make = format!("umask 077; mkdir -p {}", quoted(directory));
    let open = || {
        let file = File::open(&binary.path).map_err(|e| fail(format!("{}: {e}", binary.path.shown())))?;
        Ok(ProgressReader { file, sent: 0, total: binary.bytes, place: place.to_string(), context: context.clone() })
    };
    let sent = match place {
        DeviceAddress::Adb(serial) => run(&make).and_then(|_| {
            let (serial, part) = (serial.clone().unwrap_or_default(), part.clone());
            let mut file = open()?;
            let push = move || AdbSync::open(&AdbServer::from_environment(), &serial)?.push(&mut file, &part, 0o700);
            // Its own connection has a limit of silence.
            let what = format!("{place} to take the program");
            run_in_thread(place, Duration::MAX, context, &what, push)?.map_err(|e| transport::adb_error(place, &e))
        }),
        _ => transport::run(
            place,
            &format!("{make} && cat >{}", quoted(&part)),
            Some(Box::new(open()?)),
            context,
            "take the program",
        )
        .map(drop),
    };
    let kept = sent.and_then(|_| {
        // The own file is not deleted as old, though its time is this machine's, and the device's clock may differ.
        let (part, directory) = (quoted(&part), quoted(directory));
        run(
            &format!(
                "find {directory} -name 'part-?*' ! -path {part} -mmin +60 -exec rm -f {{}} + 2>/dev/null; [ $(wc -c <{part}) -eq {} ] || {{ echo 'incomplete transfer' >&2; exit 1; }}; chmod 700 {part} && {{ ls -d {directory}/detached-*/* >/dev/null 2>&1 || rm -f {directory}/fathom-?* 2>/dev/null; }}; mv -f {part} {}",
                binary.bytes,
                quoted(name)
            ),
        )
    });
    context.clear_progress();
    kept.map(|_| ()).map_err(|error| {
        // If the device is still reachable.
        let _ = run(&format!("rm -f {}", quoted(&part)));
        if context.cancelled() { fail("interrupted".into()) } else { error }
    })
}

/// The program's file while it is copied: reports progress, and stops when cancelled.
struct ProgressReader {
    file: File,
    sent: u64,
    total: u64,
    place: String,
    context: Context,
}

impl Read for ProgressReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.context.cancelled() {
            return Err(io::Error::other("interrupted"));
        }
        let got = self.file.read(buffer)?;
        self.sent += got as u64;
        self.context.progress(&format!("copying Fathom to {}", self.place), self.sent, self.total);
        Ok(got)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::program::SOURCES_PREFIX;

    fn binary(machine: &'static str, linked: bool) -> Binary {
        Binary { path: "f".into(), bytes: 1, hash: "h".into(), machine, linked }
    }

    #[test]
    fn binary_for_the_devices_architecture_is_chosen() {
        let all = [binary("aarch64", false), binary("x86_64", false)];
        assert_eq!(choose(&all, "x86_64").map(|b| b.machine).ok(), Some("x86_64"));
        let why = choose(&all[1..], "aarch64").unwrap_err().to_string();
        assert!(why.contains("its architecture is aarch64") && why.contains("--binary FILE"), "{why}");
        assert!(matches!(choose(&[binary("x86_64", true)], "x86_64"), Err(BinaryError::Linked(_))));
    }

    #[test]
    fn binary_beside_ours_is_found_by_architecture() {
        let directory = tempfile::tempdir().unwrap();
        let elf = |path: &str, machine: u8| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let head = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 11], &[machine, 0]].concat();
            std::fs::write(&path, head).unwrap();
            path
        };
        let ours = elf("target/release/fathom", 62);
        let beside = |machine: &str| find_beside(&ours, machine).map(|found| found.map(|binary| binary.path));
        assert_eq!(beside("aarch64").unwrap(), None);
        let built = elf("target/aarch64-unknown-linux-musl/release/fathom", 183);
        assert_eq!(beside("aarch64").unwrap(), Some(built.clone()));
        // A file for another architecture is skipped, whatever its name.
        elf("target/release/fathom-aarch64", 62);
        assert_eq!(beside("aarch64").unwrap(), Some(built));
        let named = elf("target/release/fathom-aarch64", 183);
        assert_eq!(beside("aarch64").unwrap(), Some(named.clone()));
        assert_eq!(beside("../../aarch64").unwrap(), None);
        // A program built of other sources would measure something else.
        let own = std::fs::read(&ours).unwrap();
        std::fs::write(&ours, [&own[..], SOURCES_PREFIX.as_bytes(), &[b'a'; 64]].concat()).unwrap();
        let why = beside("aarch64").unwrap_err().to_string();
        assert!(why.contains(&named.display().to_string()) && why.contains("other sources"), "{why}");
    }

    #[test]
    fn elf_header_identifies_the_program() {
        let own = Binary::read(&std::env::current_exe().unwrap()).unwrap();
        assert_eq!(own.machine, std::env::consts::ARCH);
        assert_eq!(own.hash.len(), 64);
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        for bytes in [&b""[..], b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01"] {
            std::fs::write(&file, bytes).unwrap();
            assert!(matches!(Binary::read(&file), Err(BinaryError::Foreign(path)) if path == file));
        }
        assert!(Binary::read(Path::new("/no/such")).unwrap_err().to_string().contains("/no/such"));
    }
}
