//! Writes a script that can be run at once.
//!
//! A process that writes a program's file and starts it can fail with "Text file busy": another of its threads may have
//! forked meanwhile, and until that child has executed its own program it too holds the file open for writing. So a
//! child writes the file here, and this process never has it open.

use crate::Error;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Makes `path` a file with `text` that everyone may run; an existing file is replaced.
pub fn write(path: impl AsRef<Path>, text: &str) -> Result<(), Error> {
    let path = path.as_ref();
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let wrote = install.spawn().and_then(|mut child| {
        let written = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(text.as_bytes()));
        child.wait().and_then(|status| written.map(|()| status))
    });
    match wrote {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::io("write", path, std::io::Error::other(format!("install: {status}")))),
        Err(error) => Err(Error::io("write", path, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four threads write scripts and fork concurrently; with `fs::write` a third of the runs failed with ETXTBSY.
    #[test]
    fn written_script_can_always_be_run_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let path = directory.path().join(format!("script-{thread}"));
                scope.spawn(move || {
                    for code in 1..50 {
                        write(&path, &format!("#!/bin/sh\nexit {code}\n")).expect("written");
                        let status = Command::new(&path).status().expect("started");
                        assert_eq!(status.code(), Some(code));
                    }
                });
            }
        });
    }

    #[test]
    fn unwritable_path_is_named() {
        let error = write("/no/such/directory/x", "").expect_err("there is no such directory").to_string();
        assert!(error.contains("/no/such/directory/x"), "{error}");
    }
}
