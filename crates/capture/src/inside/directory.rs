//! The directory from which recorded programs load the object and in which they create their arenas.
//!
//! It is in memory, so that records cause no I/O. Everyone may write to the arenas' directory, since the recorded programs may belong to
//! any user, but they can neither list nor clear it (sticky). Only the object's file outlives the recording, and only while a process
//! exists that has its path in its environment, since otherwise the loader would complain in the programs that it starts.

use super::error::InsideError;
use inside::plan::{Library, Plan};
use std::fs::{self, DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Places for files in memory. Many machines have only one of them.
const TMPFS_DIRECTORIES: [&str; 3] = ["/dev/shm", "/tmp", "/run"];
/// Prefix of its name; the recorder's process number follows.
const DIRECTORY_PREFIX: &str = "fathom-inside-";
const OBJECT_NAME: &str = "fathom-inside.so";
/// The link to it that is preloaded. AddressSanitizer ends a program whose first library is not its runtime, which it recognises by this
/// name, and a program with the runtime linked in if a file of this name is mapped: a mapping has the file's name, not the link's.
const PRELOADED_NAME: &str = "as-libasan.so";
/// `f_type` of statfs(2).
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// The inode of the machine's initial time namespace (`PROC_TIME_INIT_INO`).
const INITIAL_TIME_NAMESPACE_INO: u64 = 0xEFFF_FFFA;

/// The directory, removed when this is dropped.
#[derive(Debug)]
pub struct ObjectDirectory {
    path: PathBuf,
}

impl ObjectDirectory {
    /// Creates it, with the object in it. Removes those of recorders that no longer exist.
    ///
    /// # Errors
    /// [`InsideError::NoDirectory`] or [`InsideError::File`].
    pub fn create() -> Result<Self, InsideError> {
        let place = TMPFS_DIRECTORIES.map(Path::new).into_iter().find(|place| can_load_from(place));
        let place = place.ok_or(InsideError::NoDirectory)?;
        remove_abandoned(place);
        let failed = |path: &Path, source: std::io::Error| InsideError::File { path: path.into(), source };
        let path = place.join(format!("{DIRECTORY_PREFIX}{}-{:x}", std::process::id(), crate::boot_ns()));
        DirBuilder::new().mode(0o755).create(&path).map_err(|e| failed(&path, e))?;
        let directory = Self { path };
        let arenas = directory.arenas();
        DirBuilder::new().create(&arenas).map_err(|e| failed(&arenas, e))?;
        // Not by the mode at creation, from which the umask removes bits.
        for (path, mode) in [(&directory.path, 0o755), (&arenas, 0o1733)] {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(|e| failed(path, e))?;
        }
        directory.write(OBJECT_NAME, ::inside::OBJECT).map_err(|e| failed(&directory.object(), e))?;
        symlink(OBJECT_NAME, directory.preloaded()).map_err(|e| failed(&directory.preloaded(), e))?;
        Ok(directory)
    }

    /// Writes the plan that the object reads.
    ///
    /// # Errors
    /// [`InsideError::TimeNamespace`], or it cannot be written.
    pub fn write_plan(&self, libraries: Vec<Library>) -> Result<(), InsideError> {
        let namespace = |name: &str| fs::metadata(format!("/proc/self/ns/{name}")).map_or(0, |about| about.ino());
        let (pid_namespace, time_namespace) = (namespace("pid"), namespace("time"));
        if ![0, INITIAL_TIME_NAMESPACE_INO].contains(&time_namespace) {
            return Err(InsideError::TimeNamespace);
        }
        let plan = Plan { pid_namespace, time_namespace, libraries };
        self.write("plan", &plan.to_bytes())
            .map_err(|source| InsideError::File { path: self.path.join("plan"), source })
    }

    fn write(&self, name: &str, bytes: &[u8]) -> std::io::Result<()> {
        let new = self.path.join(format!("{name}.new"));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o644).open(&new)?;
        file.write_all(bytes)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        fs::rename(new, self.path.join(name))
    }

    /// Returns the object's file.
    pub fn object(&self) -> PathBuf {
        self.path.join(OBJECT_NAME)
    }

    /// Returns the path that the loader is told to load.
    pub fn preloaded(&self) -> PathBuf {
        self.path.join(PRELOADED_NAME)
    }

    /// Returns the path of the socket on which processes ask about files.
    pub fn question_socket(&self) -> PathBuf {
        self.path.join("ask")
    }

    /// Returns the directory in which processes create their arenas.
    pub fn arenas(&self) -> PathBuf {
        self.path.join("arenas")
    }
}

impl Drop for ObjectDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path.join("plan"));
        let _ = fs::remove_file(self.question_socket());
        let _ = fs::remove_dir_all(self.arenas());
        if !is_used(&self.path) {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Whether a directory is in memory and programs can be loaded from it.
fn can_load_from(place: &Path) -> bool {
    let Ok(path) = std::ffi::CString::new(place.as_os_str().as_encoded_bytes()) else { return false };
    // SAFETY: structures of numbers, for which zero is valid.
    let (mut kind, mut about): (libc::statfs, libc::statvfs) = unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
    // SAFETY: the path ends with a zero, and all live until the calls return.
    let done =
        unsafe { libc::statfs(path.as_ptr(), &raw mut kind) == 0 && libc::statvfs(path.as_ptr(), &raw mut about) == 0 };
    done && kind.f_type as u64 == TMPFS_MAGIC && about.f_flag & libc::ST_NOEXEC == 0 && is_writable(place)
}

fn is_writable(place: &Path) -> bool {
    let name = place.join(format!("{DIRECTORY_PREFIX}{}-try", std::process::id()));
    let made = File::create_new(&name).is_ok();
    made && fs::remove_file(name).is_ok()
}

/// Whether a process has the object in its memory, or in its environment.
fn is_used(directory: &Path) -> bool {
    let wanted = directory.as_os_str().as_encoded_bytes();
    let holds = |file: PathBuf| fs::read(file).is_ok_and(|text| text.windows(wanted.len()).any(|w| w == wanted));
    let own = std::process::id().to_string();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten().map(|entry| entry.path());
    let is_process =
        |p: &PathBuf| p.file_name().and_then(|n| n.to_str()).is_some_and(|n| n != own && n.parse::<u32>().is_ok());
    processes.filter(is_process).any(|p| holds(p.join("maps")) || holds(p.join("environ")))
}

/// Removes the directories of recorders that ended without doing so, and of those whose programs have ended since.
fn remove_abandoned(place: &Path) {
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner =
            name.to_str().and_then(|n| n.strip_prefix(DIRECTORY_PREFIX)?.split('-').next()?.parse::<u32>().ok());
        let Some(owner) = owner else { continue };
        let mine = entry.metadata().is_ok_and(|about| about.is_dir() && about.uid() == own_uid());
        // Its number may belong to another program by now; then it is removed another time.
        if mine && !Path::new(&format!("/proc/{owner}")).exists() && !is_used(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn own_uid() -> u32 {
    // SAFETY: takes no arguments and has no effect.
    unsafe { libc::geteuid() }
}
