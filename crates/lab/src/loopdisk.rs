//! A disk of our own for as long as something needs it: a file, a loop device on it, a file system, a mount.
//!
//! Tests need a disk whose every write is theirs, and benchmarks need one whose speed is that of the software above it.
//! Both must leave nothing behind, not even when the program is killed. So the whole life of the disk is one shell
//! script ([`DISK_SCRIPT`]) in a process of its own: it makes the disk, reports it, and waits for the end of its standard
//! input. That end comes when the owner drops the [`LoopDisk`] and just as surely when the owner dies, by any signal,
//! because the kernel then closes the pipe. So creation and removal are next to each other, and there is only one way
//! of removal, which every test exercises.
//!
//! The disk is quiet when it is handed over: mkfs writes ext4's tables, not a kernel thread later, and the file system
//! is synced, so that `/sys/block/*/stat` counts only what follows.
//!
//! Not covered: a SIGKILL to the script itself. It has no name by which it would be killed.

use model::text::ShownPath as _;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Error, Read, Result};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What this machine lacks for a loop disk: a sentence for the user, and a test's reason to be skipped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequirement {
    /// The privilege to create one.
    #[error("a loop disk {0}")]
    Privilege(#[from] crate::privilege::MissingPrivilege),
    /// Kernel support.
    #[error("this kernel has no loop devices (/dev/loop-control is missing; try `modprobe loop`)")]
    LoopDevices,
    #[error("a loop disk needs {0}, which is not installed")]
    Tool(String),
}

/// Where the bytes of the disk are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Backing {
    /// In memory: a file on a tmpfs of its own (as large as the disk, filled as the disk is).
    Ram,
    /// In a sparse file in this directory, removed with the disk.
    Directory(PathBuf),
}

/// The file system on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext4 with a journal.
    Ext4,
    /// XFS (at least 300 MiB).
    Xfs,
    Btrfs,
    /// F2FS.
    F2fs,
    /// None: only the block device.
    None,
}

impl FileSystem {
    /// Its name as `mount -t` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
            Self::F2fs => "f2fs",
            Self::None => "none",
        }
    }

    /// Options of mkfs that keep the disk quiet after it is mounted.
    fn mkfs_options(self) -> &'static [&'static str] {
        match self {
            // Without these, ext4lazyinit writes the inode tables in the background after the mount.
            Self::Ext4 => &["-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0,nodiscard"],
            Self::Xfs => &["-q", "-f", "-K"],
            Self::Btrfs => &["-q", "-f", "-K"],
            Self::F2fs => &["-q", "-f", "-t", "0"],
            Self::None => &[],
        }
    }
}

/// Further options of the disk. By default there are none.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Further arguments of mkfs, such as `-O ^has_journal`.
    pub mkfs: Vec<String>,
    /// Mount options, such as `data=journal` (empty: the kernel's).
    pub mount: String,
    /// Further arguments of losetup, such as `--direct-io=on` or `--sector-size=4096`.
    pub losetup: Vec<String>,
}

/// A loop disk, removed when dropped.
#[derive(Debug)]
pub struct LoopDisk {
    keeper: Child,
    device: PathBuf,
    mount: PathBuf,
}

/// Arguments: $1 file system, $2 bytes, $3 mount options or -, $4 parent directory of the private directory, $5 directory of the
/// backing file or -, $6 number of arguments for losetup that follow; then these, then those for mkfs.
///
/// `settle` retries because a process that just ended, or udev probing the new device, may hold a mount or a device for
/// a moment longer. A mount that stays busy is detached lazily, and a busy loop device clears itself at its last close
/// (LO_FLAGS_AUTOCLEAR, which `losetup -d` then sets), so that nothing outlives its last user.
const DISK_SCRIPT: &str = r#"
PATH="$PATH:/usr/sbin:/sbin"
trap '' HUP INT TERM QUIT PIPE
set -eu
fs=$1 bytes=$2 options=$3 parent=$4 directory=$5 n=$6
shift 6
root= ram= file= device= mounted=
settle() { for i in 1 2 3 4 5 6 7 8 9 10; do "$@" 2>/dev/null && return; sleep 0.05; done; "$@"; }
remove() {
    status=$?
    set +e
    if [ -n "$mounted" ]; then settle umount "$root/mnt" || umount -l "$root/mnt" || status=1; fi
    if [ -n "$device" ]; then settle losetup -d "$device" || status=1; fi
    if [ -n "$file" ]; then rm -f "$file" || status=1; fi
    if [ -n "$ram" ]; then settle umount "$root/ram" || umount -l "$root/ram" || status=1; fi
    if [ -n "$root" ]; then rmdir "$root/mnt" "$root/ram" "$root" || status=1; fi
    exit $status
}
trap remove EXIT
root=$(mktemp -d "$parent/fathom-disk.XXXXXX")
chmod 755 "$root"
mkdir "$root/mnt" "$root/ram"
if [ "$directory" = - ]; then
    mount -t tmpfs -o "size=$bytes,mode=700" fathom-disk "$root/ram"
    ram=1
    directory=$root/ram
fi
file=$(mktemp "$directory/fathom-disk.XXXXXX")
truncate -s "$bytes" "$file"
setup=
while [ "$n" -gt 0 ]; do setup="$setup $1"; shift; n=$((n - 1)); done
device=$(losetup $setup --find --show "$file")
if [ "$fs" != none ]; then
    "mkfs.$fs" "$@" "$device" >/dev/null
    if [ "$options" = - ]; then mount -t "$fs" "$device" "$root/mnt"
    else mount -t "$fs" -o "$options" "$device" "$root/mnt"; fi
    mounted=1
    chmod 1777 "$root/mnt"
    sync -f "$root/mnt"
fi
echo "$device"
echo "$root/mnt"
exec >/dev/null
cat >/dev/null
"#;

impl LoopDisk {
    /// Creates a disk of `bytes` (rounded up by losetup to its sector size) with `fs` on it.
    ///
    /// # Errors
    /// See [`LoopDisk::available`]; or the message of a failing command. Everything created so far is removed.
    pub fn create(bytes: u64, fs: FileSystem, backing: &Backing, options: &Options) -> Result<Self> {
        Self::available(fs).map_err(Error::other)?;
        let directory = match backing {
            Backing::Ram => OsString::from("-"),
            Backing::Directory(path) => path.canonicalize()?.into_os_string(),
        };
        let mount_options = if options.mount.is_empty() { "-" } else { &options.mount };
        let mut keeper = Command::new("/bin/sh")
            .args(["-c", DISK_SCRIPT, "fathom-disk", fs.name(), &bytes.to_string(), mount_options])
            .arg(std::env::temp_dir())
            .arg(directory)
            .arg(options.losetup.len().to_string())
            .args(&options.losetup)
            .args(fs.mkfs_options())
            .args(&options.mkfs)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Its own process group: Ctrl-C on the terminal must not reach the commands that it runs.
            .process_group(0)
            .spawn()?;
        let mut answers = keeper.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines);
        match (answers.next(), answers.next()) {
            (Some(Ok(device)), Some(Ok(mount))) => Ok(Self { keeper, device: device.into(), mount: mount.into() }),
            _ => Err(Error::other(format!("cannot create a loop disk: {}", end_keeper(&mut keeper)?.1))),
        }
    }

    /// Checks whether this machine can create such a disk: root, the tools, loop devices.
    ///
    /// # Errors
    /// Describes what is missing.
    pub fn available(fs: FileSystem) -> std::result::Result<(), MissingRequirement> {
        crate::privilege::mounts()?;
        if !Path::new("/dev/loop-control").exists() {
            return Err(MissingRequirement::LoopDevices);
        }
        let mkfs = format!("mkfs.{}", fs.name());
        let tools = ["losetup", "mount", "umount", &mkfs];
        let wanted = if fs == FileSystem::None { &tools[..3] } else { &tools[..] };
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories: Vec<PathBuf> =
            std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin"), PathBuf::from("/sbin")]).collect();
        match wanted.iter().find(|tool| !directories.iter().any(|f| f.join(tool).exists())) {
            Some(tool) => Err(MissingRequirement::Tool(tool.to_string())),
            None => Ok(()),
        }
    }

    /// The device, such as `/dev/loop0`.
    pub fn device(&self) -> &Path {
        &self.device
    }

    /// The device's name, such as `loop0`.
    pub fn name(&self) -> &str {
        self.device.file_name().and_then(|n| n.to_str()).unwrap_or_default()
    }

    /// Where it is mounted; anybody may write there. An empty directory if it has no file system.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Its device number.
    ///
    /// # Errors
    /// sysfs does not show it.
    pub fn dev(&self) -> Result<model::Dev> {
        let text = std::fs::read_to_string(self.sysfs("dev"))?;
        let numbers = text.trim().split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (major, minor) = numbers.ok_or_else(|| Error::other(format!("{text:?} is not a device number")))?;
        Ok(model::Dev::new(major, minor))
    }

    /// The file of its counters, the kernel's Documentation/block/stat.rst.
    pub fn stat_path(&self) -> PathBuf {
        self.sysfs("stat")
    }

    /// Its counters now, in the order of the kernel's Documentation/block/stat.rst. Sync the file system first for
    /// counts that are to be compared.
    ///
    /// # Errors
    /// sysfs does not show them.
    pub fn stat(&self) -> Result<Vec<u64>> {
        let text = std::fs::read_to_string(self.stat_path())?;
        text.split_whitespace().map(|w| w.parse().map_err(Error::other)).collect()
    }

    /// A file of its sysfs directory, such as `queue/scheduler`.
    pub fn sysfs(&self, file: &str) -> PathBuf {
        Path::new("/sys/block").join(self.name()).join(file)
    }

    /// Removes the disk now and returns whether that worked; dropping removes it too, but cannot report a failure.
    ///
    /// # Errors
    /// The message of the failing command.
    pub fn remove(mut self) -> Result<()> {
        let (success, answers) = end_keeper(&mut self.keeper)?;
        if success { Ok(()) } else { Err(Error::other(format!("cannot remove {}: {answers}", self.device.shown()))) }
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        let _ = end_keeper(&mut self.keeper);
    }
}

/// Closes the keeper's standard input, lets it finish, and returns whether it succeeded, with its output.
pub(crate) fn end_keeper(keeper: &mut Child) -> Result<(bool, String)> {
    drop(keeper.stdin.take());
    let mut answers = String::new();
    if let Some(mut stderr) = keeper.stderr.take() {
        stderr.read_to_string(&mut answers)?;
    }
    Ok((keeper.wait()?.success(), answers.trim().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK_BYTES: u64 = 64 << 20;

    fn attached(device: &Path) -> bool {
        Path::new("/sys/block").join(device.file_name().unwrap()).join("loop/backing_file").exists()
    }

    fn mounted(path: &Path) -> bool {
        std::fs::read_to_string("/proc/self/mounts").unwrap().contains(path.to_str().unwrap())
    }

    fn gone(device: &Path, mount: &Path) -> bool {
        !attached(device) && !mounted(mount) && !mount.parent().unwrap().exists()
    }

    #[test]
    #[ignore = "root: makes a loop device and mounts it"]
    fn disk_counts_writes_and_leaves_nothing_behind() {
        let disk = LoopDisk::create(DISK_BYTES, FileSystem::Ext4, &Backing::Ram, &Options::default()).unwrap();
        let (device, mount) = (disk.device().to_path_buf(), disk.path().to_path_buf());
        assert!(attached(&device) && mounted(&mount));
        assert_eq!(disk.dev().unwrap().major(), 7);
        let before = disk.stat().unwrap();
        let file = std::fs::File::create(mount.join("x")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &[1; 65536], 0).unwrap();
        file.sync_all().unwrap();
        let after = disk.stat().unwrap();
        assert!(after[6] - before[6] >= 128, "64 KiB are 128 sectors: {before:?} {after:?}");
        // The file is still open: removal must not fail because of a late user.
        disk.remove().unwrap();
        drop(file);
        assert!(!mounted(&mount));
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !gone(&device, &mount) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(gone(&device, &mount));
    }

    #[test]
    #[ignore = "root: makes a loop device and mounts it"]
    fn options_are_applied_and_file_is_removed() {
        let directory = std::env::temp_dir().join(format!("fathom-test-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let options = Options {
            mkfs: vec!["-b".into(), "1024".into()],
            mount: "data=journal".into(),
            losetup: vec!["--sector-size=512".into()],
        };
        let disk =
            LoopDisk::create(DISK_BYTES, FileSystem::Ext4, &Backing::Directory(directory.clone()), &options).unwrap();
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains(disk.path().to_str().unwrap())).unwrap();
        assert!(line.contains("data=journal"), "{line}");
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 1);
        disk.remove().unwrap();
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir(directory).unwrap();
    }

    #[test]
    #[ignore = "root: makes a loop device"]
    fn partial_failure_is_reported_and_undone() {
        let directory = std::env::temp_dir().join(format!("fathom-test-half-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let options = Options { mount: "no-such-option".into(), ..Options::default() };
        let error = LoopDisk::create(DISK_BYTES, FileSystem::Ext4, &Backing::Directory(directory.clone()), &options)
            .map(|_| ())
            .unwrap_err()
            .to_string();
        assert!(error.contains("mount"), "{error}");
        std::fs::remove_dir(&directory).unwrap();
        for disk in std::fs::read_dir("/sys/block").unwrap() {
            let file = std::fs::read_to_string(disk.unwrap().path().join("loop/backing_file")).unwrap_or_default();
            assert!(!file.starts_with(directory.to_str().unwrap()), "{file}");
        }
    }

    #[test]
    #[ignore = "root: makes a loop device and mounts it"]
    fn killed_owner_leaves_no_disk() {
        // The owner is a shell that runs the same script and is then killed with SIGKILL.
        let owner = "sleep 1000 | /bin/sh -c \"$1\" fathom-disk ext4 67108864 - /tmp - 0 -q -F & echo $!; wait";
        let mut shell = Command::new("/bin/sh")
            .args(["-c", owner, "owner", DISK_SCRIPT])
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(shell.stdout.take().unwrap()).lines().map_while(std::result::Result::ok);
        let answers: Vec<String> = lines.by_ref().take(3).collect();
        let (device, mount) = (PathBuf::from(&answers[1]), PathBuf::from(&answers[2]));
        assert!(attached(&device) && mounted(&mount));
        let group = i32::try_from(shell.id()).unwrap();
        // SAFETY: plain signals to a process group that this test made. The script ignores the first, as it must
        // ignore the terminal's Ctrl-C; `sleep`, which holds the other end of its standard input, dies of it.
        unsafe { libc::kill(-group, libc::SIGTERM) };
        shell.wait().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
        while !gone(&device, &mount) && std::time::Instant::now() < deadline {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        assert!(gone(&device, &mount));
    }
}
