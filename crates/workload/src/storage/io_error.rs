//! What a failed call on storage means to the user, and the remedy.

use crate::Error;
use model::text::ShownPath as _;
use std::path::Path;

/// The error of `doing` (as in "cannot write") something to `path`.
pub(crate) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    let advice = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full: free some space, choose another directory (--dir) or less data",
        Some(libc::EDQUOT) => {
            "the user's quota is exceeded: free some space, choose another directory (--dir) or less data"
        }
        Some(libc::EROFS) => {
            "the file system is mounted read-only, or became so when its disk failed (see dmesg): choose another \
             directory (--dir)"
        }
        Some(
            libc::EIO | libc::ENODEV | libc::ENXIO | libc::ENOTCONN | libc::ENOMEDIUM | libc::ESTALE | libc::EREMOTEIO,
        ) => "the storage failed or was removed (see dmesg): attach it again, or choose another directory (--dir)",
        Some(libc::EFBIG) => {
            "the file system does not support files this large: choose less data or another directory \
            (--dir)"
        }
        Some(libc::EACCES | libc::EPERM) => "choose a writable directory (--dir)",
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "choose an existing directory (--dir); if it existed, its storage was unmounted"
        }
        Some(libc::EMFILE | libc::ENFILE) => "too many open files: raise the limit (ulimit -n) or use fewer threads",
        _ => return Error::Failed(format!("cannot {doing} {}: {error}", path.shown())),
    };
    Error::Failed(format!("cannot {doing} {}: {error}; {advice}", path.shown()))
}

/// As [`failed`], for `map_err`.
pub(crate) fn on<'a>(doing: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |error| failed(doing, path, &error)
}

/// A wrong byte.
pub(crate) fn wrong_byte(path: &Path, offset: u64) -> Error {
    Error::Wrong(format!(
        "data corruption: the byte at {offset} of {} differs from what was written (storage, driver or cable)",
        path.shown()
    ))
}

/// A call that transferred fewer bytes than it should.
pub(crate) fn short_transfer(doing: &str, path: &Path, offset: u64, got: usize, block: usize) -> Error {
    Error::Failed(format!("cannot {doing} {}: {got} of {block} bytes at {offset}", path.shown()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_the_action_the_path_and_a_remedy() {
        for (errno, part) in [
            (libc::ENOSPC, "full"),
            (libc::EROFS, "read-only"),
            (libc::EIO, "was removed"),
            (libc::EACCES, "a writable directory"),
            (libc::EINVAL, "Invalid"),
        ] {
            let error = failed("write", Path::new("/x/y"), &std::io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.starts_with("cannot write /x/y: ") && error.contains(part), "{error}");
        }
    }
}
