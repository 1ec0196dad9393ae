//! What a failed call on storage means to the user, and what to do.

use crate::Error;
use std::path::Path;

/// The error of `doing` (as in "cannot write") something to `path`.
pub(crate) fn failed(doing: &str, path: &Path, error: &std::io::Error) -> Error {
    let advice = match error.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full: free some of it, name another folder (--dir) or take less data",
        Some(libc::EDQUOT) => {
            "the user's quota is used up: free some of it, name another folder (--dir) or take less data"
        }
        Some(libc::EROFS) => {
            "the file system is read-only, as it is mounted or since its disk failed (dmesg tells): name another folder (--dir)"
        }
        Some(
            libc::EIO | libc::ENODEV | libc::ENXIO | libc::ENOTCONN | libc::ENOMEDIUM | libc::ESTALE | libc::EREMOTEIO,
        ) => "the storage failed or was taken away (dmesg tells more): attach it again, or name another folder (--dir)",
        Some(libc::EFBIG) => "the file system takes no file as large: take less data or name another folder (--dir)",
        Some(libc::EACCES | libc::EPERM) => "name a folder that you may write to (--dir)",
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "name a folder that is there (--dir); if it was there, its storage was unmounted meanwhile"
        }
        Some(libc::EMFILE | libc::ENFILE) => {
            "too many files are open: raise the limit (ulimit -n) or take fewer threads"
        }
        _ => return Error::Failed(format!("cannot {doing} {}: {error}", path.display())),
    };
    Error::Failed(format!("cannot {doing} {}: {error}; {advice}", path.display()))
}

/// As [`failed`], for `map_err`.
pub(crate) fn on<'a>(doing: &'a str, path: &'a Path) -> impl Fn(std::io::Error) -> Error + 'a {
    move |error| failed(doing, path, &error)
}

/// A byte that is not what it must be.
pub(crate) fn wrong(path: &Path, offset: u64) -> Error {
    Error::Wrong(format!(
        "the byte at {offset} of {} is not what was written there: storage, its driver or its cable lose or mix data",
        path.display()
    ))
}

/// A call that moved less than it should.
pub(crate) fn short(doing: &str, path: &Path, offset: u64, got: usize, block: usize) -> Error {
    Error::Failed(format!("cannot {doing} {}: {got} of {block} bytes at {offset}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_to_what_and_what_to_do() {
        for (errno, part) in [
            (libc::ENOSPC, "full"),
            (libc::EROFS, "read-only"),
            (libc::EIO, "taken away"),
            (libc::EACCES, "may write"),
            (libc::EINVAL, "Invalid"),
        ] {
            let error = failed("write", Path::new("/x/y"), &std::io::Error::from_raw_os_error(errno)).to_string();
            assert!(error.starts_with("cannot write /x/y: ") && error.contains(part), "{error}");
        }
    }
}
