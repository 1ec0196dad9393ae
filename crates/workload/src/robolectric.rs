//! A workload on Robolectric: Android's framework classes on a JVM of this host, with Android's own Skia and SQLite compiled for it. It
//! shows that the Android side of a benchmark works, and what the framework's layers cost on top of the native engine; it says nothing
//! about a device: there is no ART, no bionic and no device's kernel.
//!
//! The directory is made by `java/robolectric`. The proof is as for Android's runtime: the process's own memory map, with HotSpot instead of
//! ART and Robolectric's native library, which is unpacked into a temporary directory.

use crate::options::Spec;
use crate::{Error, UnprovenMode, art, clock, jvm};
use model::Context;
use model::text::ShownPath as _;
use serde_json::json;
use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Its name among the modes.
pub const MODE: &str = "robolectric";
/// The path of the directory.
pub const DIRECTORY_OPTION: Spec =
    Spec { name: "robolectric", default: "target/robolectric", help: "what java/robolectric made, for robolectric" };
const MAIN_CLASS: &str = "fathom.robolectric.Host";
/// Variables that pass options to a JVM unnoticed.
const OPTION_VARIABLES: [&str; 3] = ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"];

/// A directory for its unpacked files, some hundred megabytes; removed when dropped, however the process ended.
#[derive(Debug)]
pub struct UnpackedFiles(PathBuf);

impl Drop for UnpackedFiles {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the command that runs the workload of `words`, and a directory to be kept as long as it runs.
///
/// # Errors
/// Robolectric is not installed.
pub fn command(java: &str, directory: &Path, words: &[String]) -> Result<(Command, UnpackedFiles), Error> {
    let jars = directory.join("jars");
    let Ok(entries) = std::fs::read_dir(&jars) else {
        return Err(Error::Failed(format!(
            "{} does not exist: scripts/setup android and java/robolectric make it (or give another directory with --robolectric)",
            directory.shown()
        )));
    };
    let version = entries.flatten().find_map(|entry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        Some(name.strip_prefix("robolectric-")?.strip_suffix(".jar")?.to_owned())
    });
    let unpacked = std::env::temp_dir().join(format!("fathom-robolectric-{}-{}", std::process::id(), clock::now_ns()));
    std::fs::create_dir(&unpacked).map_err(|e| Error::Failed(format!("cannot make {}: {e}", unpacked.shown())))?;
    let unpacked = UnpackedFiles(unpacked);
    let mut path = OsString::new();
    for (part, separator) in [("fathom.jar", ":"), ("classes", ":"), ("jars/*", "")] {
        path.push(directory.join(part));
        path.push(separator);
    }
    let with = |option: &str, value: &Path| {
        let mut word = OsString::from(option);
        word.push(value);
        word
    };
    let mut command = Command::new(java);
    command.args(["-XX:+UseSerialGC", "-Djava.awt.headless=true", "-Drobolectric.offline=true"]);
    command.arg(format!("-Dfathom.robolectric={}", version.as_deref().unwrap_or("of no version")));
    command.arg(with("-Drobolectric.dependency.dir=", &directory.join("instrumented")));
    command.arg(with("-Djava.io.tmpdir=", &unpacked.0));
    command.arg("-cp").arg(path).arg(MAIN_CLASS);
    let offset = jvm::boottime_offset_ns().to_string();
    let words = words.iter().map(String::as_str).chain(["--mode", MODE, "--boottime-offset-ns", &offset]);
    command.env("FATHOM_WORDS", words.collect::<Vec<_>>().join(" "));
    for name in OPTION_VARIABLES {
        command.env_remove(name);
    }
    Ok((command, unpacked))
}

/// Runs the workload and prints its lines if the mode is proven.
///
/// # Errors
/// It is not installed; it failed; its result is wrong; or the mode is not proven.
pub fn run(
    java: &str,
    directory: &Path,
    words: &[String],
    context: &Context,
    out: &mut dyn Write,
) -> Result<(), Error> {
    let (mut command, _unpacked) = command(java, directory, words)?;
    let printed = art::run_to_end(&mut command, Path::new(java), context)?;
    let (maps, lines) = art::parse_output(&printed);
    // The sandbox's own output is skipped.
    let lines: Vec<&str> = lines.into_iter().filter(|line| line.starts_with('{')).collect();
    if lines.iter().any(|line| line.starts_with("{\"verified\":false")) {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        return Err(Error::Failed(format!("{MODE}: wrong result")));
    }
    let proof = maps.and_then(|maps| judge(&maps));
    let proof = proof.map_err(|why| Error::Failed(format!("this is not Robolectric with its native code: {why}")))?;
    writeln!(out, "{}", json!({"mark": "mode", "text": format!("{MODE}: {proof}")}))?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()?;
    Ok(())
}

/// Judges a memory map.
///
/// # Errors
/// The native code is not mapped, or it is not a JVM.
pub fn judge(maps: &str) -> Result<String, UnprovenMode> {
    let mapped = art::executable_paths(maps);
    let executable = |so: &dyn Fn(&str) -> bool| mapped.iter().find(|path| so(path));
    // The library is unpacked into a directory of this name.
    let native = |path: &str| path.contains("/robolectric-nativeruntime") && path.ends_with(".so");
    match (executable(&|path| path.ends_with("/libjvm.so")), executable(&native)) {
        (Some(_), Some(native)) => {
            Ok(format!("in /proc/self/maps: HotSpot's libjvm.so and {native}, mapped executable; no device"))
        }
        (None, _) => Err("HotSpot's libjvm.so is not mapped".into()),
        (_, None) => Err("no native code of Robolectric's is mapped".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_needs_a_jvm_and_native_code() {
        let jvm = "7f00-7f10 r-xp 00000000 fe:00 12 /usr/lib/jvm/java-17/lib/server/libjvm.so\n";
        let native = "7f20-7f30 r-xp 00000000 fe:00 13 /tmp/robolectric-nativeruntime12/libandroid_runtime.so\n";
        assert!(judge(&format!("{jvm}{native}")).unwrap().contains("no device"));
        assert!(judge(jvm).unwrap_err().to_string().contains("native code"));
        assert!(judge(native).unwrap_err().to_string().contains("libjvm"));
        assert!(judge(&format!("{jvm}{}", native.replace("r-xp", "r--p"))).is_err(), "only read");
        assert!(judge("").is_err());
    }

    #[test]
    fn missing_directory_is_reported_with_remedy() {
        let error = command("java", Path::new("/no/such"), &[]).unwrap_err().to_string();
        assert!(error.contains("/no/such") && error.contains("java/robolectric"), "{error}");
    }
}
