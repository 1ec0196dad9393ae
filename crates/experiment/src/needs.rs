//! What a cell needs of the machine, and whether it is available. A design uses these words:
//!
//! - `root`: the effective user is root;
//! - `drop_caches`: the kernel lets this user drop its caches;
//! - `o_direct`: the file system under test opens files with O_DIRECT;
//! - `io_uring`: the kernel creates an io_uring for this process;
//! - `art`: Android's runtime can be started from the shell;
//! - `app_process`: the same with the native methods of its framework, which drawing needs;
//! - any other word: a program of that name, on PATH or in Debian's directories for administrators.

use model::text::ShownPath as _;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Programs that start Android's runtime; the last two register its framework's native methods.
const ANDROID_LAUNCHERS: [&str; 4] = ["dalvikvm64", "dalvikvm", "app_process64", "app_process"];

/// Returns why `need` is not met here, or `None`. `dir` is a directory on the storage under test.
pub fn unmet(need: &str, dir: &Path) -> Option<String> {
    match need {
        // SAFETY: geteuid has no arguments and cannot fail.
        "root" => (unsafe { libc::geteuid() } != 0).then(|| "it needs root".into()),
        "drop_caches" => (!may_drop_caches()).then(|| "it needs root, to drop the kernel's caches".into()),
        "o_direct" => check_direct_io(dir).err(),
        "io_uring" => check_io_uring().err(),
        "art" => why_no_android(&ANDROID_LAUNCHERS),
        "app_process" => why_no_android(&ANDROID_LAUNCHERS[2..]),
        program => (!is_installed(program)).then(|| format!("{program} is not installed")),
    }
}

fn why_no_android(launchers: &[&str]) -> Option<String> {
    (!launchers.iter().any(|name| is_installed(name))).then(|| {
        format!(
            "no Android runtime: this needs the shell of an Android device, with one of {} on PATH and the dexed \
             classes that java/dex makes",
            launchers.join(", ")
        )
    })
}

fn may_drop_caches() -> bool {
    is_accessible(c"/proc/sys/vm/drop_caches", libc::W_OK)
}

fn is_accessible(path: &CStr, how: libc::c_int) -> bool {
    // SAFETY: the path is a C string; access only asks.
    unsafe { libc::access(path.as_ptr(), how) == 0 }
}

/// Whether a program can be found like by a shell, or in Debian's directories for administrators.
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let seen: BTreeSet<PathBuf> = std::env::split_paths(&path).chain(admin).collect();
    seen.iter().any(|directory| {
        let file = directory.join(program);
        file.is_file() && CString::new(file.as_os_str().as_bytes()).is_ok_and(|path| is_accessible(&path, libc::X_OK))
    })
}

/// Tests this with a file of our own, which is removed again.
fn check_direct_io(dir: &Path) -> Result<(), String> {
    let path = dir.join(format!("fathom-o-direct-{}", std::process::id()));
    let opened = std::fs::OpenOptions::new().write(true).create_new(true).custom_flags(libc::O_DIRECT).open(&path);
    // EINVAL is returned after the file was created.
    let _ = std::fs::remove_file(&path);
    match opened {
        Ok(_) => Ok(()),
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
            Err(format!("the file system of {} does not support O_DIRECT", dir.shown()))
        }
        Err(e) => Err(format!("cannot create a file in {}: {e}", dir.shown())),
    }
}

fn check_io_uring() -> Result<(), String> {
    // struct io_uring_params: 120 bytes, all zero for the simplest ring.
    let mut parameters = [0_u64; 15];
    // SAFETY: the kernel reads and writes the 120 bytes of the pointer, which are ours.
    let ring = unsafe { libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    if ring < 0 {
        return Err(format!("io_uring is not available: {}", std::io::Error::last_os_error()));
    }
    // SAFETY: the descriptor is the one just made.
    unsafe { libc::close(ring as libc::c_int) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_and_missing_ones_named() {
        let here = Path::new(".");
        assert_eq!(unmet("sh", here), None);
        assert_eq!(unmet("no-such-program", here).unwrap(), "no-such-program is not installed");
    }

    #[test]
    fn o_direct_check_names_the_directory_and_leaves_nothing() {
        assert!(unmet("o_direct", Path::new("/nonexistent")).unwrap().contains("/nonexistent"));
        let directory = std::env::temp_dir().join(format!("fathom-needs-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let _ = unmet("o_direct", &directory);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
        std::fs::remove_dir(&directory).unwrap();
        // No files can be created in /proc.
        assert!(unmet("o_direct", Path::new("/proc")).is_some());
    }
}
