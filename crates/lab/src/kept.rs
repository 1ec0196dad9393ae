//! A mount, or a loop device over an existing file, for as long as its owner lives: for tests, so that it does not outlive a
//! kill.
//!
//! As with a [`LoopDisk`](crate::loopdisk::LoopDisk), one shell makes it, waits for the end of its standard input, and undoes it: that end
//! comes when the owner drops it, and by any signal that kills the owner. Not covered: a SIGKILL to the shell itself.

use crate::loopdisk::end_keeper;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Error, Result};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The limits of write rates of the root group.
const THROTTLE_PATH: &str = "/sys/fs/cgroup/blkio/blkio.throttle.write_bps_device";

/// `make` prints a line; `undo` runs once, also if `make` failed half-way.
const KEEPER_SCRIPT: &str = r#"
PATH="$PATH:/usr/sbin:/sbin"
trap '' HUP INT TERM QUIT PIPE
set -e
make=$1 undo=$2
shift 2
trap 'set +e; eval "$undo"' EXIT
eval "$make"
exec >/dev/null
cat >/dev/null
"#;

/// Waits for processes that use the mount a moment longer; after that the mount disappears with its last user. A mount that a test
/// unmounted itself is gone already, and anything that the test mounted over it is removed too.
const UNMOUNT_SCRIPT: &str = r#"
for i in 1 2 3 4 5 6 7 8 9 10; do
    mountpoint -q "$1" || exit 0
    umount "$1" 2>/dev/null || sleep 0.05
done
while mountpoint -q "$1"; do umount -l "$1" || exit; done
"#;

/// Something that is undone when this is dropped, or when this process ends.
#[derive(Debug)]
pub struct UndoGuard {
    keeper: Child,
    answer: String,
}

impl UndoGuard {
    fn new(make: &str, undo: &str, arguments: &[&OsStr]) -> Result<Self> {
        let mut keeper = Command::new("/bin/sh")
            .args(["-c", KEEPER_SCRIPT, "fathom-kept", make, undo])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own process group: Ctrl-C on the terminal must not reach the commands that it runs.
            .process_group(0)
            .spawn()?;
        let mut answers = keeper.stdout.take().map(BufReader::new).into_iter().flat_map(BufReader::lines);
        match answers.next() {
            Some(Ok(answer)) => Ok(Self { keeper, answer }),
            _ => Err(Error::other(end_keeper(&mut keeper)?.1)),
        }
    }

    /// Mounts a file system of this kind, such as `tmpfs`, at a directory.
    ///
    /// # Errors
    /// The error message of `mount`.
    pub fn mount(kind: &str, options: &str, at: &Path) -> Result<Self> {
        let make = r#"mount -t "$2" -o "$3" fathom-test "$1" && echo mounted"#;
        Self::new(make, UNMOUNT_SCRIPT, &[at.as_os_str(), kind.as_ref(), options.as_ref()])
    }

    /// Mounts a block device at a directory.
    ///
    /// # Errors
    /// The error message of `mount`.
    pub fn mount_device(device: &Path, at: &Path) -> Result<Self> {
        Self::new(r#"mount "$2" "$1" && echo mounted"#, UNMOUNT_SCRIPT, &[at.as_os_str(), device.as_os_str()])
    }

    /// Attaches a loop device to a file; [`answer`](Self::answer) names it.
    ///
    /// # Errors
    /// The error message of `losetup`.
    pub fn attach(file: &Path) -> Result<Self> {
        let make = r#"device=$(losetup --find --show "$1"); echo "$device""#;
        Self::new(make, r#"[ -z "$device" ] || losetup --detach "$device""#, &[file.as_os_str()])
    }

    /// Limits the rate at which a block device is written, for everybody: by the root of cgroup v1's blkio controller
    /// (block/blk-throttle.c), which alone sees what the kernel writes back.
    ///
    /// # Errors
    /// [`Self::can_throttle`] has the reason, or the error message of the shell.
    pub fn throttle(device: &Path, write_bytes_per_s: u64) -> Result<Self> {
        let make = r#"number=$(cat "/sys/class/block/${1##*/}/dev"); echo "$number $2" > "$3"; echo "$number""#;
        let undo = r#"echo "$(cat "/sys/class/block/${1##*/}/dev") 0" > "$3""#;
        Self::new(make, undo, &[device.as_os_str(), write_bytes_per_s.to_string().as_ref(), THROTTLE_PATH.as_ref()])
    }

    /// Changes the rate of [`Self::throttle`] in one step: what waits is subject to the new one, and nothing passes
    /// between.
    ///
    /// # Errors
    /// The kernel refuses it.
    pub fn set_throttle(&self, write_bytes_per_s: u64) -> Result<()> {
        std::fs::write(THROTTLE_PATH, format!("{} {write_bytes_per_s}", self.answer()))
    }

    /// Whether [`Self::throttle`] works here.
    ///
    /// # Errors
    /// What is missing.
    pub fn can_throttle() -> std::result::Result<(), String> {
        let is_there = Path::new(THROTTLE_PATH).exists();
        is_there.then_some(()).ok_or_else(|| format!("{THROTTLE_PATH} is missing (cgroup v1's blkio with throttling)"))
    }

    /// The output when it was made.
    pub fn answer(&self) -> &str {
        &self.answer
    }
}

impl Drop for UndoGuard {
    fn drop(&mut self) {
        let _ = end_keeper(&mut self.keeper);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn is_mounted(at: &Path) -> bool {
        std::fs::read_to_string("/proc/self/mounts").unwrap().contains(&format!(" {} ", at.display()))
    }

    fn is_attached(device: &str) -> bool {
        Path::new("/sys/block").join(device.trim_start_matches("/dev/")).join("loop/backing_file").exists()
    }

    fn becomes_true(mut holds: impl FnMut() -> bool) -> bool {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !holds() {
            if Instant::now() > deadline {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    #[test]
    #[ignore = "root: mounts a tmpfs and attaches a loop device"]
    fn mounts_and_loop_devices_go_when_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (at, image) = (directory.path().join("mount"), directory.path().join("image"));
        std::fs::create_dir(&at).unwrap();
        std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
        let (mounted, attached) =
            (UndoGuard::mount("tmpfs", "size=1m", &at).unwrap(), UndoGuard::attach(&image).unwrap());
        let device = attached.answer().to_owned();
        assert!(is_mounted(&at) && is_attached(&device));
        // A second mount over it, as by a test that swaps a card, goes too; so does one that is in use.
        assert!(Command::new("mount").args(["-t", "ramfs", "ramfs"]).arg(&at).status().unwrap().success());
        let used = std::fs::File::create(at.join("file")).unwrap();
        drop((mounted, attached));
        assert!(!is_mounted(&at) && becomes_true(|| !is_attached(&device)));
        drop(used);
        let why = UndoGuard::mount("tmpfs", "no-such-option", &at).unwrap_err().to_string();
        assert!(why.contains("mount") && !is_mounted(&at), "{why}");
        assert!(UndoGuard::attach(&directory.path().join("none")).unwrap_err().to_string().contains("losetup"));
    }

    /// The name of the test below, which runs itself as the owner that is killed.
    const OWNER_TEST: &str = "kept::tests::killed_owner_leaves_neither_mount_nor_loop_device";

    #[test]
    #[ignore = "root: mounts a tmpfs and attaches a loop device"]
    fn killed_owner_leaves_neither_mount_nor_loop_device() {
        if let Some(directory) = std::env::var_os("FATHOM_TEST_OWNER") {
            let directory = Path::new(&directory);
            let _mounted = UndoGuard::mount("tmpfs", "size=1m", &directory.join("mount")).unwrap();
            let attached = UndoGuard::attach(&directory.join("image")).unwrap();
            std::fs::write(directory.join("device"), attached.answer()).unwrap();
            loop {
                std::thread::park();
            }
        }
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let directory = tempfile::tempdir().unwrap();
            let at = directory.path().join("mount");
            std::fs::create_dir(&at).unwrap();
            std::fs::File::create(directory.path().join("image")).unwrap().set_len(1 << 20).unwrap();
            let mut owner = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", OWNER_TEST, "--include-ignored"])
                .env("FATHOM_TEST_OWNER", directory.path())
                .stdout(Stdio::null())
                .spawn()
                .unwrap();
            let device = || std::fs::read_to_string(directory.path().join("device")).unwrap_or_default();
            assert!(becomes_true(|| !device().is_empty()) && is_mounted(&at) && is_attached(&device()));
            // SAFETY: a plain signal to a child that was not waited for.
            unsafe { libc::kill(owner.id().cast_signed(), signal) };
            assert!(!owner.wait().unwrap().success());
            assert!(becomes_true(|| !is_mounted(&at) && !is_attached(&device())), "signal {signal}");
        }
    }
}
