//! What of the Android side can be tested without a device: the jar as a dex file, and the canvas on Robolectric's native
//! graphics (the real Skia, on the host).

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, lane, run};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// D8, by version and by content.
const R8: (&str, &str) = ("r8-8.5.35.jar", "4733945987ee0a840fafc34080b135259e01678412e07212b23f706334290294");

fn main() -> ExitCode {
    let jdk = || installed("java").and_then(|()| installed("javac"));
    let cases: Vec<Case> = vec![
        ("dex_file_matches_jar_results", jdk().and_then(|()| dex_tools()), dex),
        ("android_canvas_draws_exact_pixels", jdk().and_then(|()| dex_tools()).and_then(|()| robolectric()), canvas),
    ];
    lane(cases)
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn dex_tools() -> Result<(), String> {
    let jar = root().join("target/jars").join(R8.0);
    if !jar.exists() {
        return Err(format!("{} is not in target/jars (scripts/setup test fetches it where Maven is)", R8.0));
    }
    installed("enjarify")?;
    let output = Command::new("sha256sum").arg(&jar).output().map_err(|e| format!("sha256sum: {e}"))?;
    // Another file of that name is not run.
    let sum = String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_string();
    if sum == R8.1 { Ok(()) } else { Err(format!("{} has another content than the pinned one: {sum}", R8.0)) }
}

fn robolectric() -> Result<(), String> {
    let jars = root().join("target/android");
    jars.is_dir().then_some(()).ok_or_else(|| "scripts/setup android was not run (it fetches 550 MB)".into())
}

/// The jar for a device, translated back: `back.jar` in the folder.
fn translated(folder: &Path) -> Result<PathBuf> {
    let (jar, back) = (folder.join("fathom-dex.jar"), folder.join("back.jar"));
    run(Command::new("sh").arg(root().join("java/dex")).arg(&jar))?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&jar, folder]))?;
    let dexed = folder.join("classes.dex");
    ensure!(fs::read(&dexed)?.starts_with(b"dex\n035\0"), "not a dex file of the format that Android 5 reads");
    // Debian's Python: enjarify's module is its, and no other's.
    run(Command::new("enjarify").env("PYTHON", "/usr/bin/python3").arg("-f").arg("-o").arg(&back).arg(&dexed))?;
    let inside = run(Command::new("python3").args(["-m", "zipfile", "-l"]).arg(&back))?;
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    ensure!(inside.contains("fathom/draw/AndroidCanvas.class"), "no canvas: {inside}");
    ensure!(!inside.contains("android/graphics"), "Android's classes are the device's, not ours: {inside}");
    Ok(back)
}

fn dex() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let back = translated(folder.path())?;
    for (name, size, options) in [
        ("himeno", "XS", &["--inner", "3"][..]),
        ("linpack", "100", &["--inner", "2"]),
        ("scimark", "tiny", &["--kernel", "composite", "--inner", "1"]),
    ] {
        // The same command line as for the jar, as it stands: the launcher only puts the other class path in.
        let java = folder.path().join("java");
        let script = "#!/bin/sh\nset -- $(for a; do case $a in /proc/self/fd/*) echo BACK ;; *) echo \"$a\" ;; esac; done)\nexec java \"$@\"\n";
        fs::write(&java, script.replace("BACK", &back.to_string_lossy()))?;
        run(Command::new("chmod").arg("+x").arg(&java))?;
        let with = |words: &[&str]| -> Result<String> {
            let mut command = Command::new(fathom());
            command.args(["workload", name, "--size", size, "--iterations", "2"]).args(options).args(words);
            let output = String::from_utf8(run(&mut command)?.stdout)?;
            ensure!(output.contains("\"verified\":true"), "{output}");
            let line = output.lines().find(|l| l.contains("\"result\"")).context("no result")?;
            Ok(line.to_string())
        };
        let (plain, dexed) =
            (with(&["--mode=jvm-tiered"])?, with(&["--mode=jvm-tiered", "--java", &java.to_string_lossy()])?);
        ensure!(plain == dexed, "{name}: {plain} as a jar, {dexed} as a dex file");
    }
    Ok(())
}

/// The class path of Robolectric, and the options with which it finds what it runs.
fn host(folder: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let instrumented = folder.join("instrumented");
    fs::create_dir(&instrumented)?;
    let mut path = Vec::new();
    for entry in fs::read_dir(root().join("target/android"))? {
        let file = entry?.path().canonicalize()?;
        let name = file.file_name().context("a name")?.to_string_lossy().into_owned();
        if name.starts_with("android-all-instrumented") {
            // Robolectric finds it by its name, in a folder of its own.
            std::os::unix::fs::symlink(&file, instrumented.join(name))?;
        } else if name.ends_with(".aar") {
            // An archive with the jar in it.
            let unpacked = folder.join(&name);
            run(Command::new("python3").args(["-m", "zipfile", "-e"]).arg(&file).arg(&unpacked))?;
            path.push(unpacked.join("classes.jar").to_string_lossy().into_owned());
        } else {
            path.push(file.to_string_lossy().into_owned());
        }
    }
    let options =
        ["-Drobolectric.offline=true".into(), format!("-Drobolectric.dependency.dir={}", instrumented.display())];
    Ok((path, options.to_vec()))
}

/// What a device would be given, the dexed classes translated back, draws on the real Skia: figure by figure, and as the whole program
/// behind a FAKE of Android's launcher, whose memory map alone is made up.
fn canvas() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (mut path, options) = host(folder.path())?;
    path.insert(0, translated(folder.path())?.to_string_lossy().into_owned());
    let tests = folder.path().join("tests");
    fs::create_dir(&tests)?;
    path.insert(0, tests.to_string_lossy().into_owned());
    let path = path.join(":");
    let mut sources = Vec::new();
    collect(&root().join("java/android/test"), &mut sources)?;
    run(Command::new("javac").args(["-nowarn", "-cp", &path, "-d"]).arg(&tests).args(&sources))?;
    let mut java = Command::new("java");
    java.args(&options).args(["-cp", &path, "org.junit.runner.JUnitCore", "fathom.draw.CanvasTest"]);
    let text = String::from_utf8_lossy(&run(&mut java)?.stdout).into_owned();
    ensure!(text.contains("OK (3 tests)"), "{text}");

    let launcher = folder.path().join("app_process64");
    run(Command::new("cp").arg(root().join("tests/fakes/app_process")).arg(&launcher))?;
    // Of what JUnit says too, the lines that are ours; and not the map of the JVM that stands in for Android's runtime.
    let script = format!(
        "java {} -cp {path} org.junit.runner.JUnitCore fathom.draw.ProgramTest >{out}; status=$?\n\
         sed -n 's/^[.]*{{/{{/p' {out} | grep -v '\"mark\":\"art.maps\"'; exit $status\n",
        options.join(" "),
        out = folder.path().join("out").display()
    );
    fs::write(folder.path().join("main"), script)?;
    for shape in ["rect", "line", "circle"] {
        let mut command = Command::new(fathom());
        command.args(["workload", "draw", "--mode=art-jit", "--shape", shape, "--antialias=on", "--iterations=3"]);
        command.arg(format!("--art={}", launcher.display()));
        command.arg(format!("--dex-jar={}", folder.path().join("fathom-dex.jar").display()));
        let output = String::from_utf8(run(command.env("FAKE_ART", folder.path()))?.stdout)?;
        let drawn = format!("bitmap ARGB_8888, antialiasing on; one {shape} covers");
        ensure!(output.contains("\"verified\":true") && output.contains(&drawn), "{output}");
        ensure!(output.matches("\"metric\":\"iteration\"").count() == 3, "{output}");
    }
    Ok(())
}

fn collect(folder: &Path, sources: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, sources)?;
        } else if path.extension().is_some_and(|e| e == "java") {
            sources.push(path);
        }
    }
    Ok(())
}
