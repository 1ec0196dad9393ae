//! A workload in Java on Android's runtime (ART): its modes, the commands that set them, and their proof.
//!
//! | mode | command | proof, in the process's own memory map after the work |
//! |---|---|---|
//! | `art-interpreter` | `dalvikvm64 -Xint …` | no executable JIT cache, no compiled code of our classes |
//! | `art-jit` | `dalvikvm64 -Xusejit:true …` | an executable JIT cache, no compiled code of our classes |
//! | `art-aot` | `dex2oat64 --compiler-filter=speed …`, then `dalvikvm64 -Xusejit:false …` | compiled code of our classes, no JIT cache |
//!
//! Drawing is started by `app_process64` (or `app_process`) instead: only it registers the native methods of `android.graphics` (AOSP,
//! `AndroidRuntime::startReg`); `dalvikvm` has the classes of the boot class path without them. It takes the class path from the
//! environment (`CLASSPATH`), and likewise our arguments (`FATHOM_WORDS`): with a command line of more than some 256 characters it is said
//! to abort on some devices (scrcpy's issue 4481). Options from the device's properties `dalvik.vm.*` follow the given ones, and the last
//! one takes effect (`AndroidRuntime::startVm`): the heap's size always, `-Xusejit` on devices that set `dalvik.vm.usejit`. So no heap size
//! is requested, and `art-aot` is refused by its proof if that property turns the compiler on.
//!
//! The commands are those of ART's own tests (AOSP, `test/run-test`). They do not always have the requested effect: some releases are said
//! to ignore code that the shell's user compiled, and old ones compile by themselves. So nothing is taken from the command line: the
//! process copies the relevant lines of `/proc/self/maps` (java/src/fathom/proof/Art.java), and [`judge`] examines them here. A list
//! without the runtime itself (`libart.so`) proves nothing.
//!
//! Compiled code is stored next to its jar, where any ART that loads that jar finds it; so it is made for a copy of the jar, in a
//! directory `aot`, and the other modes never see it.
//!
//! Uncertain: none of this was run on a device (docs/guide/compute.md). The names of the JIT cache are those that public tools for
//! Android search for.

use crate::options::Spec;
use crate::{Error, UnprovenMode};
use model::Context;
use model::text::ShownPath as _;
use serde_json::{Value, json};
use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// The modes, with the options that set them.
pub const MODES: [(&str, &[&str]); 3] =
    [("art-interpreter", &["-Xint"]), ("art-jit", &["-Xusejit:true"]), ("art-aot", &["-Xusejit:false"])];

/// The runtime's launchers without the framework, in order of preference: `app_process` also loads it, which takes longer.
const VM_LAUNCHERS: [&str; 2] = ["dalvikvm64", "dalvikvm"];
/// The launchers that register the framework's native methods, in order of preference.
const FRAMEWORK_LAUNCHERS: [&str; 2] = ["app_process64", "app_process"];
/// The runtime's ahead-of-time compilers, in order of preference.
const AOT_COMPILERS: [&str; 2] = ["dex2oat64", "dex2oat"];
/// The path of the dexed jar.
pub const DEX_JAR_OPTION: Spec = Spec {
    name: "dex-jar",
    default: "/data/local/tmp/fathom-dex.jar",
    help: "the dexed classes (java/dex), for the modes art-*",
};
const MAIN_CLASS: &str = "fathom.Main";
/// How often a running virtual machine is polled.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How Android's runtime is to run the classes.
pub struct ModeRequest<'a> {
    /// One of [`MODES`].
    pub mode: &'a str,
    /// A program, or empty for the first of the launchers in PATH.
    pub launcher: &'a str,
    /// The output of `java/dex`.
    pub jar: &'a Path,
    /// Bytes of heap that the classes need.
    pub heap: u64,
    /// Whether they use native methods of Android's framework.
    pub framework: bool,
}

/// Runs the workload requested by `words`, and prints its lines if the mode is proven.
///
/// # Errors
/// There is no ART or no jar; it failed; its result is wrong; or the mode is not proven.
pub fn run(request: &ModeRequest, words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let (mode, jar) = (request.mode, request.jar);
    let launcher = find_launcher(request.launcher, request.framework)?;
    check_jar_exists(jar)?;
    let jar = if mode == "art-aot" { compile_jar(jar)? } else { jar.to_path_buf() };
    let mut command = command(&launcher, &jar, mode, request.heap, words);
    let printed = run_to_end(&mut command, &launcher, context)?;
    let (proof, lines) = parse_output(&printed);
    let proof = proof.and_then(|maps| judge(mode, &maps, &jar));
    // A process that failed has reported why in its lines; its mode does not matter then.
    if lines.iter().any(|line| line.starts_with("{\"verified\":false")) {
        lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        return Err(Error::Failed(format!("{mode}: wrong result")));
    }
    let over = if is_app_process(&launcher) {
        "; the device's properties dalvik.vm.* override the options of app_process"
    } else {
        ""
    };
    let proof = proof.map_err(|why| Error::Failed(format!("this ART is not in mode {mode}: {why}{over}")))?;
    writeln!(out, "{}", json!({"mark": "mode", "text": format!("{mode}: {proof}")}))?;
    lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
    out.flush()?;
    Ok(())
}

/// Checks that the dexed classes exist.
///
/// # Errors
/// They do not; the message explains how to make them.
pub(crate) fn check_jar_exists(jar: &Path) -> Result<(), Error> {
    if jar.is_file() {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "{} does not exist: make it with java/dex fathom-dex.jar (on a machine with a JDK) and copy it with adb \
         push, or give another path with --dex-jar",
        jar.shown()
    )))
}

pub(crate) fn find_launcher(named: &str, framework: bool) -> Result<PathBuf, Error> {
    let names: Vec<&str> =
        if framework { FRAMEWORK_LAUNCHERS.to_vec() } else { [VM_LAUNCHERS, FRAMEWORK_LAUNCHERS].concat() };
    if named.is_empty() {
        return find_on_path(&names).ok_or_else(|| {
            Error::Failed(format!(
                "no Android runtime: none of {} is on PATH. The modes art-* run in the shell of an Android device, \
                 with the dexed classes (java/dex)",
                names.join(", ")
            ))
        });
    }
    let path = PathBuf::from(named);
    if framework && !is_app_process(&path) {
        return Err(Error::Usage(format!(
            "--art {named}: android.graphics and android.database need {}; dalvikvm registers none of their native methods",
            names.join(" or ")
        )));
    }
    Ok(path)
}

fn is_app_process(launcher: &Path) -> bool {
    launcher.file_name().is_some_and(|n| n.to_string_lossy().starts_with("app_process"))
}

fn find_on_path(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = std::env::split_paths(&path).collect();
    names.iter().find_map(|name| directories.iter().map(|f| f.join(name)).find(|file| file.is_file()))
}

/// The command of a mode; the module documentation explains why there are two kinds.
pub(crate) fn command(launcher: &Path, jar: &Path, mode: &str, heap: u64, words: &[String]) -> Command {
    let mut command = Command::new(launcher);
    command.args(MODES.iter().find(|m| m.0 == mode).map_or(&[][..], |m| m.1));
    let offset = crate::jvm::boottime_offset_ns().to_string();
    let words = words.iter().map(String::as_str).chain(["--mode", mode, "--boottime-offset-ns", &offset]);
    if is_app_process(launcher) {
        // The first argument is a directory that it ignores.
        command.args(["/", MAIN_CLASS]).env("CLASSPATH", jar).env("FATHOM_WORDS", words.collect::<Vec<_>>().join(" "));
    } else {
        let heap = heap.div_ceil(1 << 20).max(64);
        command.args([format!("-Xms{heap}m"), format!("-Xmx{heap}m")]).arg("-cp").arg(jar).arg(MAIN_CLASS).args(words);
    }
    command
}

/// Returns the copy of the jar with compiled code next to it, and makes it if it is missing or older than the jar.
fn compile_jar(jar: &Path) -> Result<PathBuf, Error> {
    let (Some(directory), Some(name), Some(stem)) = (jar.parent(), jar.file_name(), jar.file_stem()) else {
        return Err(Error::Usage(format!("--dex-jar {}: not a file", jar.shown())));
    };
    let directory = directory.join("aot");
    let copy = directory.join(name);
    let mut odex = OsString::from(stem);
    odex.push(".odex");
    let odex = directory.join("oat").join(instruction_set()).join(odex);
    let modified = |path: &Path| std::fs::metadata(path).and_then(|m| m.modified()).ok();
    if modified(&odex).is_some_and(|made| modified(jar).is_some_and(|jar| made >= jar)) {
        return Ok(copy);
    }
    let compiler = find_on_path(&AOT_COMPILERS).ok_or_else(|| {
        Error::Failed(format!("art-aot needs ART's compiler, and neither of {} is on PATH", AOT_COMPILERS.join(", ")))
    })?;
    let made = odex.parent().map_or(Ok(()), std::fs::create_dir_all).and_then(|()| std::fs::copy(jar, &copy));
    made.map_err(|e| Error::Failed(format!("cannot copy {} to {}: {e}", jar.shown(), copy.shown())))?;
    let output = Command::new(&compiler)
        .arg(option_with_path("--dex-file=", &copy))
        .arg(option_with_path("--oat-file=", &odex))
        .arg(format!("--instruction-set={}", instruction_set()))
        .arg("--compiler-filter=speed")
        .output()
        .map_err(|e| Error::Failed(format!("cannot run {}: {e}", compiler.shown())))?;
    if !output.status.success() || !odex.is_file() {
        let printed = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Failed(format!(
            "{} did not compile {} ({}): {}",
            compiler.shown(),
            copy.shown(),
            output.status,
            printed.trim()
        )));
    }
    Ok(copy)
}

fn option_with_path(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(path);
    word
}

/// ART's name for the architecture that this program was compiled for.
fn instruction_set() -> &'static str {
    match std::env::consts::ARCH {
        "aarch64" => "arm64",
        other => other,
    }
}

/// Runs it to its end, and returns its output. Unlike a JVM it cannot replace this process, since its proof is judged
/// here.
pub(crate) fn run_to_end(command: &mut Command, launcher: &Path, context: &Context) -> Result<String, Error> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| Error::Failed(format!("cannot run {}: {e}", launcher.shown())))?;
    let stdout = child.stdout.take();
    let reader = std::thread::spawn(move || {
        let mut printed = Vec::new();
        // An error truncates the text; the message is then that the proof is missing.
        let _ = stdout.map(|mut from| from.read_to_end(&mut printed));
        String::from_utf8_lossy(&printed).into_owned()
    });
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if context.cancelled() {
            let _ = child.kill();
            let _ = child.wait();
            return Err(Error::Interrupted);
        }
        std::thread::sleep(POLL_INTERVAL);
    };
    let printed = reader.join().unwrap_or_default();
    match status.code() {
        Some(0) => Ok(printed),
        // The lines report a wrong result.
        Some(1) if printed.contains("\"verified\":false") => Ok(printed),
        Some(2) => Err(Error::Usage(format!("{}: usage error; its output is above", launcher.shown()))),
        _ => Err(Error::Failed(format!("{} ended with {status}; its output is above", launcher.shown()))),
    }
}

/// Splits the output into what the virtual machine printed about itself, and its other lines.
pub(crate) fn parse_output(printed: &str) -> (Result<String, UnprovenMode>, Vec<&str>) {
    let mut maps = Err(UnprovenMode::from("it printed no memory map as evidence"));
    let mut lines = Vec::new();
    for line in printed.lines() {
        let mark: Option<Value> =
            line.starts_with("{\"mark\":\"art.maps\"").then(|| serde_json::from_str(line).ok()).flatten();
        match mark.as_ref().and_then(|mark| mark["text"].as_str()) {
            Some(text) => maps = Ok(text.to_string()),
            None => lines.push(line),
        }
    }
    (maps, lines)
}

/// The relevant parts of a mapping.
struct Mapping<'a> {
    executable: bool,
    path: &'a str,
}

/// Parses a line of `/proc/PID/maps`: addresses, permissions, offset, device, inode, path.
fn parse_mapping(line: &str) -> Option<Mapping<'_>> {
    let (addresses, rest) = line.split_once(' ')?;
    addresses.split_once('-')?;
    let (permissions, rest) = rest.split_once(' ')?;
    let mut rest = rest;
    for _ in 0..3 {
        rest = rest.trim_start().split_once(' ').map_or("", |(_, rest)| rest);
    }
    let executable = permissions.len() == 4 && permissions.as_bytes()[2] == b'x';
    (permissions.len() == 4).then_some(Mapping { executable, path: rest.trim() })
}

/// The files that are mapped executable.
pub(crate) fn executable_paths(maps: &str) -> Vec<&str> {
    maps.lines().filter_map(parse_mapping).filter(|m| m.executable).map(|m| m.path).collect()
}

/// What the lines `maps` of a process's memory map prove about its mode; `jar` is the executed one.
///
/// # Errors
/// They prove nothing, or another mode.
pub fn judge(mode: &str, maps: &str, jar: &Path) -> Result<String, UnprovenMode> {
    let mappings: Vec<Mapping> = maps.lines().filter_map(parse_mapping).collect();
    let executable = || mappings.iter().filter(|m| m.executable);
    if !executable().any(|m| m.path.ends_with("/libart.so")) {
        return Err("the memory map that it printed does not contain the runtime itself (libart.so)".into());
    }
    // The zygote's cache belongs to the apps' parent, from which this process was not forked.
    let is_cache =
        |path: &str| (path.contains("jit-cache") || path.contains("jit-code-cache")) && !path.contains("zygote");
    let cache = executable().find(|m| is_cache(m.path)).map(|m| m.path);
    // `fathom-dex.odex`, or in the runtime's own directory `data@local@tmp@fathom-dex.jar@classes.dex`.
    let stem = jar.file_stem().unwrap_or_default().to_string_lossy();
    let file = |path: &str| path.rsplit('/').next().is_some_and(|name| name.contains(&*stem));
    let code = executable().find(|m| file(m.path)).map(|m| m.path);
    let found = format!(
        "{}; {}",
        code.map_or("no compiled code of our classes is mapped".into(), |path| format!("{path} is mapped executable")),
        cache.map_or("no JIT cache".into(), |path| format!("the JIT's cache is ({path})"))
    );
    let holds = match mode {
        "art-interpreter" => code.is_none() && cache.is_none(),
        "art-jit" => code.is_none() && cache.is_some(),
        "art-aot" => code.is_some() && cache.is_none(),
        other => return Err(UnprovenMode(format!("no such mode of ART: {other}"))),
    };
    if holds { Ok(format!("in /proc/self/maps: {found}")) } else { Err(UnprovenMode(found)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RUNTIME_MAPPING: &str = "7000000000-7000a00000 r-xp 00200000 fe:05 1234                           /apex/com.android.art/lib64/libart.so\n";
    const JIT_CACHE_MAPPING: &str =
        "58000000-5a000000 r-xs 02000000 00:01 99                             /memfd:jit-cache (deleted)\n";
    const ODEX_MAPPING: &str = "7100000000-7100010000 r-xp 00005000 fe:2c 77                      /data/local/tmp/aot/oat/arm64/fathom-dex.odex\n";

    fn proof(mode: &str, lines: &[&str]) -> Result<String, UnprovenMode> {
        judge(mode, &lines.concat(), Path::new("/data/local/tmp/fathom-dex.jar"))
    }

    #[test]
    fn each_mode_is_proven_only_by_its_mappings() {
        for (lines, mode) in [
            (&[RUNTIME_MAPPING][..], "art-interpreter"),
            (&[RUNTIME_MAPPING, JIT_CACHE_MAPPING], "art-jit"),
            (&[RUNTIME_MAPPING, ODEX_MAPPING], "art-aot"),
        ] {
            for (other, _) in MODES {
                assert_eq!(proof(other, lines).is_ok(), other == mode, "{other} by {lines:?}");
            }
        }
        // Compiled code together with a compiler is not one of our modes.
        assert!(
            MODES.iter().all(|(mode, _)| proof(mode, &[RUNTIME_MAPPING, JIT_CACHE_MAPPING, ODEX_MAPPING]).is_err())
        );
    }

    #[test]
    fn jit_cache_names_of_old_and_new_android_are_known() {
        for path in [
            "/dev/ashmem/dalvik-jit-code-cache (deleted)",
            "[anon:dalvik-jit-code-cache]",
            "[anon_shmem:dalvik-jit-code-cache]",
            "/memfd:jit-cache (deleted)",
        ] {
            let line = JIT_CACHE_MAPPING.replace("/memfd:jit-cache (deleted)", path);
            assert!(proof("art-jit", &[RUNTIME_MAPPING, &line]).unwrap().contains(path));
            // Only reserved, or the zygote's: nothing of it is executed here.
            assert!(proof("art-jit", &[RUNTIME_MAPPING, &line.replace("r-xs", "rw-s")]).is_err());
        }
        assert!(
            proof("art-jit", &[RUNTIME_MAPPING, &JIT_CACHE_MAPPING.replace("jit-cache", "jit-zygote-cache")]).is_err()
        );
    }

    #[test]
    fn compiled_code_is_recognised_in_any_location() {
        let own = ODEX_MAPPING.replace(
            "/data/local/tmp/aot/oat/arm64/fathom-dex.odex",
            "/data/dalvik-cache/arm64/data@local@tmp@fathom-dex.jar@classes.dex",
        );
        assert!(
            proof("art-aot", &[RUNTIME_MAPPING, &own]).is_ok()
                && proof("art-interpreter", &[RUNTIME_MAPPING, &own]).is_err()
        );
        // Code that was only verified has nothing executable.
        assert!(proof("art-aot", &[RUNTIME_MAPPING, &ODEX_MAPPING.replace("r-xp", "r--p")]).is_err());
    }

    #[test]
    fn maps_without_libart_prove_nothing() {
        for text in [
            "",
            "garbage",
            "a-b r-xp",
            &RUNTIME_MAPPING.replace("r-xp", "r--p"),
            "\u{fc}-\u{fc} \u{fc}\u{fc} 0 0 0 /libart.so",
        ] {
            let why = judge("art-interpreter", text, Path::new("x.jar")).unwrap_err().to_string();
            assert!(why.contains("libart.so"), "{why}");
        }
        assert!(
            parse_output("{\"mark\":\"mode\",\"text\":\"art-jit\"}\n")
                .0
                .unwrap_err()
                .to_string()
                .contains("no memory map")
        );
    }

    #[test]
    fn commands_match_the_documentation() {
        let words = ["himeno".to_string(), "--inner".into(), "1".into()];
        let line = |launcher: &str, mode: &str| {
            let command = command(Path::new(launcher), Path::new("/t/fathom-dex.jar"), mode, 100 << 20, &words);
            let own = |text: std::borrow::Cow<str>| text.split(" --boottime").next().unwrap_or_default().to_string();
            let arguments = command.get_args().map(|w| w.to_string_lossy()).collect::<Vec<_>>().join(" ");
            let envs = command.get_envs().filter_map(|(name, value)| {
                Some(format!("{}={}", name.to_string_lossy(), own(value?.to_string_lossy())))
            });
            (own(arguments.into()), envs.collect::<Vec<_>>())
        };
        let rest = "-Xms100m -Xmx100m -cp /t/fathom-dex.jar fathom.Main himeno --inner 1 --mode";
        for (mode, flags) in MODES {
            let flags = flags.join(" ");
            assert_eq!(line("/apex/com.android.art/bin/dalvikvm64", mode), (format!("{flags} {rest} {mode}"), vec![]));
            let envs =
                ["CLASSPATH=/t/fathom-dex.jar".to_string(), format!("FATHOM_WORDS=himeno --inner 1 --mode {mode}")];
            assert_eq!(line("/system/bin/app_process64", mode), (format!("{flags} / fathom.Main"), envs.to_vec()));
        }
    }

    #[test]
    fn drawing_requires_the_frameworks_native_methods() {
        let Err(Error::Usage(why)) = find_launcher("/apex/com.android.art/bin/dalvikvm64", true) else {
            panic!("taken")
        };
        assert!(why.contains("app_process64") && why.contains("android.graphics"), "{why}");
        for framework in [false, true] {
            assert!(find_launcher("/system/bin/app_process64", framework).is_ok());
        }
        assert!(find_launcher("/apex/com.android.art/bin/dalvikvm64", false).is_ok());
    }
}
