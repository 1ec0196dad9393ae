//! A workload in Java: this process becomes the JVM, so that a replicate remains one fresh process.
//!
//! The jar is built into this program. It is passed as an anonymous file (memfd) that vanishes with the process, so that
//! nothing is left behind, however the JVM ends.

use crate::Error;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// The jar of `java/`; empty if there was no `javac` when this program was built.
pub const EMBEDDED_JAR: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/fathom.jar"));

/// The modes of a JVM, with the options that set them.
pub const MODES: [(&str, &[&str]); 4] = [
    ("jvm-int", &["-Xint"]),
    ("jvm-c1", &["-XX:+TieredCompilation", "-XX:TieredStopAtLevel=1"]),
    ("jvm-c2", &["-XX:-TieredCompilation"]),
    ("jvm-tiered", &["-XX:+TieredCompilation"]),
];

/// Variables that pass options to a JVM unnoticed.
const OPTION_VARIABLES: [&str; 3] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// Becomes a JVM in `mode` with a heap of `heap` bytes, which runs the workload requested by `words`. Returns only with
/// an error.
///
/// # Errors
/// There is no such JVM, or this program has no jar.
pub fn become_jvm(java: &str, mode: &str, heap: u64, words: &[String], out: &mut dyn Write) -> Result<(), Error> {
    let (mut command, _jar) = command(java, mode, heap, words)?;
    out.flush()?;
    let error = command.exec();
    Err(start_error(java, &error))
}

/// Returns the command of such a JVM, and the jar that it inherits: to be kept until it has started.
///
/// # Errors
/// This program has no jar.
pub fn command(java: &str, mode: &str, heap: u64, words: &[String]) -> Result<(Command, File), Error> {
    if EMBEDDED_JAR.is_empty() {
        return Err(Error::Failed(
            "this build of Fathom has no Java workloads, since no JDK was installed; install one (apt install \
             default-jdk-headless) and build again, or choose a native --mode"
                .into(),
        ));
    }
    let jar = create_memfd(EMBEDDED_JAR)?;
    let mut command = Command::new(java);
    command.args(jvm_options(mode, heap)).arg("-cp").arg(format!("/proc/self/fd/{}", jar.as_raw_fd()));
    command.arg("fathom.Main").args(words);
    command.args(["--mode", mode, "--boottime-offset-ns", &boottime_offset_ns().to_string()]);
    for name in OPTION_VARIABLES {
        command.env_remove(name);
    }
    Ok((command, jar))
}

/// Why there is no JVM.
pub fn start_error(java: &str, error: &std::io::Error) -> Error {
    Error::Failed(match error.kind() {
        std::io::ErrorKind::NotFound => {
            format!(
                "{java} does not exist; install a Java runtime (apt install default-jre-headless), or give its path \
                 with --java"
            )
        }
        _ => format!("cannot run {java}: {error}"),
    })
}

/// The JVM's options: the mode, a heap that never grows, and the collector without threads of its own.
fn jvm_options(mode: &str, heap: u64) -> Vec<OsString> {
    let flags = MODES.iter().find(|m| m.0 == mode).map_or(&[][..], |m| m.1);
    let heap = heap.div_ceil(1 << 20).max(64);
    let mut options: Vec<OsString> = flags.iter().map(Into::into).collect();
    options.extend([format!("-Xms{heap}m").into(), format!("-Xmx{heap}m").into(), "-XX:+UseSerialGC".into()]);
    // By default half of the heap or more would be reserved for the young generation; all of our data is old.
    options.extend(["-XX:NewSize=16m", "-XX:MaxNewSize=16m", "-Djava.awt.headless=true"].map(Into::into));
    options
}

/// Creates an anonymous file that the JVM inherits.
fn create_memfd(content: &[u8]) -> Result<File, Error> {
    // SAFETY: a constant name; without MFD_CLOEXEC, so that it survives exec.
    let fd = unsafe { libc::memfd_create(c"fathom.jar".as_ptr(), 0) };
    if fd < 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    // SAFETY: a descriptor with no other owner.
    let mut file = unsafe { File::from_raw_fd(fd) };
    file.write_all(content)?;
    if !Path::new("/proc/self/fd").exists() {
        return Err(Error::Failed("/proc is not mounted; the JVM needs it to load its classes".into()));
    }
    Ok(file)
}

/// How far CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC, the clock of a JVM.
pub(crate) fn boottime_offset_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let boottime = crate::clock::now_ns();
    // SAFETY: the pointer is to a timespec of ours.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    boottime.saturating_sub(t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heap_has_exactly_the_needed_size() {
        let words: Vec<String> =
            jvm_options("jvm-c1", (100 << 20) + 1).into_iter().map(|w| w.to_string_lossy().into_owned()).collect();
        assert!(words.contains(&"-Xms101m".to_string()) && words.contains(&"-Xmx101m".to_string()));
        assert!(words.contains(&"-XX:TieredStopAtLevel=1".to_string()));
    }

    #[test]
    fn missing_java_is_reported_with_remedy() {
        if EMBEDDED_JAR.is_empty() {
            return;
        }
        let error = become_jvm("/no/such/java", "jvm-int", 1, &[], &mut Vec::new()).unwrap_err();
        assert!(error.to_string().contains("default-jre-headless"), "{error}");
    }
}
