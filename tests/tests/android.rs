//! The parts of the Android side that can be tested without a device: the jar as a dex file, and the canvas on
//! Robolectric's native graphics (the real Skia, on the host).

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// D8, by version and by content.
const R8_JAR: (&str, &str) = ("r8-8.5.35.jar", "4733945987ee0a840fafc34080b135259e01678412e07212b23f706334290294");

fn main() -> ExitCode {
    let jdk = || installed("java").and_then(|()| installed("javac"));
    let cases: Vec<Case> = vec![
        ("long::dex_file_matches_jar_results", jdk().and_then(|()| dex_tools()), dex_file_matches_jar_results),
        (
            "android_canvas_draws_exact_pixels",
            jdk().and_then(|()| dex_tools()).and_then(|()| robolectric()),
            android_canvas_draws_exact_pixels,
        ),
        (
            "robolectric_is_a_mode_of_drawing_and_sqlite",
            jdk().and_then(|()| robolectric()),
            robolectric_is_a_mode_of_drawing_and_sqlite,
        ),
        ("android_database_behind_launcher_keeps_contents", jdk().and_then(|()| robolectric()), behind_launcher),
    ];
    run_suite(cases)
}

fn repository_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn dex_tools() -> Result<(), String> {
    let jar = repository_root().join("target/jars").join(R8_JAR.0);
    if !jar.exists() {
        return Err(format!("{} is not in target/jars (scripts/setup test fetches it where Maven is)", R8_JAR.0));
    }
    installed("enjarify")?;
    let output = Command::new("sha256sum").arg(&jar).output().map_err(|e| format!("sha256sum: {e}"))?;
    // Another file of that name must not be run.
    let sum = String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_string();
    if sum == R8_JAR.1 { Ok(()) } else { Err(format!("{} has another content than the pinned one: {sum}", R8_JAR.0)) }
}

fn robolectric() -> Result<(), String> {
    let jars = repository_root().join("target/android");
    jars.is_dir().then_some(()).ok_or_else(|| "scripts/setup android was not run (it fetches 550 MB)".into())
}

/// Translates the jar for a device back to `back.jar` in the directory.
fn translate_jar(directory: &Path) -> Result<PathBuf> {
    let (jar, back) = (directory.join("fathom-dex.jar"), directory.join("back.jar"));
    run(Command::new("sh").arg(repository_root().join("java/dex")).arg(&jar))?;
    run(Command::new("python3").args(["-m", "zipfile", "-e"]).args([&jar, directory]))?;
    let dexed = directory.join("classes.dex");
    ensure!(fs::read(&dexed)?.starts_with(b"dex\n035\0"), "not a dex file of the format that Android 5 reads");
    // Debian's Python, the only one with enjarify's module.
    run(Command::new("enjarify").env("PYTHON", "/usr/bin/python3").arg("-f").arg("-o").arg(&back).arg(&dexed))?;
    let inside = run(Command::new("python3").args(["-m", "zipfile", "-l"]).arg(&back))?;
    let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
    ensure!(inside.contains("fathom/draw/AndroidCanvas.class"), "no canvas: {inside}");
    ensure!(!inside.contains("android/graphics"), "Android's classes are the device's, not ours: {inside}");
    Ok(back)
}

fn dex_file_matches_jar_results() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let back = translate_jar(directory.path())?;
    for (name, size, options) in [
        ("himeno", "XS", &["--inner", "3"][..]),
        ("linpack", "100", &["--inner", "2"]),
        ("scimark", "tiny", &["--kernel", "composite", "--inner", "1"]),
    ] {
        // The same command line as for the jar: the launcher only replaces the class path.
        let java = directory.path().join("java");
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

/// The class path of Robolectric, and the options with which it finds the classes to run.
fn host_class_path(directory: &Path) -> Result<(Vec<String>, Vec<String>)> {
    let instrumented = directory.join("instrumented");
    fs::create_dir(&instrumented)?;
    let mut path = Vec::new();
    for entry in fs::read_dir(repository_root().join("target/android"))? {
        let file = entry?.path().canonicalize()?;
        let name = file.file_name().context("a name")?.to_string_lossy().into_owned();
        if name.starts_with("android-all-instrumented") {
            // Robolectric finds it by its name, in a directory of its own.
            std::os::unix::fs::symlink(&file, instrumented.join(name))?;
        } else if name.ends_with(".aar") {
            // An archive that contains the jar.
            let unpacked = directory.join(&name);
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

/// The classes for a device, dexed and translated back, draw on the real Skia: figure by figure, and as the whole program behind a
/// FAKE of Android's launcher, of which only the memory map is made up.
fn android_canvas_draws_exact_pixels() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (mut path, options) = host_class_path(directory.path())?;
    path.insert(0, translate_jar(directory.path())?.to_string_lossy().into_owned());
    let tests = directory.path().join("tests");
    fs::create_dir(&tests)?;
    path.insert(0, tests.to_string_lossy().into_owned());
    let path = path.join(":");
    let mut sources = Vec::new();
    collect_sources(&repository_root().join("java/android/test"), &mut sources)?;
    run(Command::new("javac").args(["-nowarn", "-cp", &path, "-d"]).arg(&tests).args(&sources))?;
    let mut java = Command::new("java");
    java.args(&options).args(["-cp", &path, "org.junit.runner.JUnitCore", "fathom.draw.CanvasTest"]);
    let text = String::from_utf8_lossy(&run(&mut java)?.stdout).into_owned();
    ensure!(text.contains("OK (3 tests)"), "{text}");

    let launcher = directory.path().join("app_process64");
    run(Command::new("cp").arg(repository_root().join("tests/fakes/app_process")).arg(&launcher))?;
    // Of the output, which includes JUnit's, only our lines; without the map of the JVM that replaces Android's
    // runtime.
    let script = format!(
        "java {} -cp {path} org.junit.runner.JUnitCore fathom.draw.ProgramTest >{out}; status=$?\n\
         sed -n 's/^[.]*{{/{{/p' {out} | grep -v '\"mark\":\"art.maps\"'; exit $status\n",
        options.join(" "),
        out = directory.path().join("out").display()
    );
    fs::write(directory.path().join("main"), script)?;
    for shape in ["rect", "line", "circle"] {
        let mut command = Command::new(fathom());
        command.args(["workload", "draw", "--mode=art-jit", "--shape", shape, "--antialias=on", "--iterations=3"]);
        command.arg(format!("--art={}", launcher.display()));
        command.arg(format!("--dex-jar={}", directory.path().join("fathom-dex.jar").display()));
        let output = String::from_utf8(run(command.env("FAKE_ART", directory.path()))?.stdout)?;
        let drawn = format!("bitmap ARGB_8888, antialiasing on; one {shape} covers");
        ensure!(output.contains("\"verified\":true") && output.contains(&drawn), "{output}");
        ensure!(output.matches("\"metric\":\"iteration\"").count() == 3, "{output}");
    }
    Ok(())
}

/// The output directory of `java/robolectric`.
fn robolectric_directory(directory: &Path) -> Result<String> {
    let made = directory.join("robolectric with blanks");
    run(Command::new("sh").arg(repository_root().join("java/robolectric")).arg(&made))?;
    Ok(made.to_string_lossy().into_owned())
}

fn robolectric_is_a_mode_of_drawing_and_sqlite() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let robolectric = robolectric_directory(directory.path())?;
    let printed = |words: &[&str]| -> Result<String> {
        let mut command = Command::new(fathom());
        command.arg("workload").args(words).arg(format!("--robolectric={robolectric}"));
        Ok(String::from_utf8(run(command.current_dir(directory.path()))?.stdout)?)
    };
    let output = printed(&["draw", "--mode=robolectric", "--shape=circle", "--iterations=3"])?;
    ensure!(output.contains("\"verified\":true") && output.contains("bitmap ARGB_8888"), "{output}");
    ensure!(output.contains("robolectric: in /proc/self/maps") && output.contains("\"Robolectric 4."), "{output}");
    ensure!(output.lines().all(|line| line.starts_with('{')), "lines of another's: {output}");
    // Another SQLite checks the contents. The settings are the requested ones, whatever the framework prefers.
    for (op, more) in [
        ("insert", &["--journal-mode=wal", "--page-size=1024", "--iterations=2"][..]),
        ("insert", &["--journal-mode=persist", "--per-transaction=7", "--warmup=1"]),
        ("select", &["--scans=3", "--cache=cold"]),
        ("update", &["--journal-mode=truncate"]),
        ("delete", &["--synchronous=off"]),
    ] {
        let words = [&["sqlite", "--engine=robolectric", "--rows=40", "--op", op], more].concat();
        let output = printed(&words).with_context(|| op.to_owned())?;
        ensure!(output.contains("integrity_check: ok") && output.contains("through android.database"), "{output}");
        ensure!(output.contains("robolectric: in /proc/self/maps"), "{output}");
        ensure!(output.contains(&format!("\"{op}.rate\"")), "{output}");
    }
    let left: Vec<_> = fs::read_dir(directory.path())?.filter_map(|e| Some(e.ok()?.file_name())).collect();
    ensure!(left.len() == 1, "databases were left: {left:?}");
    // As a benchmark: cells to compare.
    let mut command = Command::new(fathom());
    command.args(["bench", "run", "sqlite", "--quick", "--no-wait", "--blocks=2", "--json", "-p", "op=insert"]);
    command.args(["-p", "rows=10", "-p", "journal_mode=delete", "-p", "engine=bundled,robolectric", "-p"]);
    command.arg(format!("robolectric={robolectric}"));
    let value: serde_json::Value = serde_json::from_slice(&run(command.current_dir(directory.path()))?.stdout)?;
    let results = value["results"].as_array().context("results")?;
    let engines: Vec<_> = results.iter().filter_map(|r| r["parameters"]["engine"].as_str()).collect();
    ensure!(engines == ["bundled", "robolectric"] && value["complete"] != false, "{value:#}");
    // A missing part is reported with the remedy.
    let output = Command::new(fathom())
        .args(["workload", "sqlite", "--engine=robolectric", "--robolectric=/no/such"])
        .current_dir(directory.path())
        .output()?;
    ensure!(output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("java/robolectric"));
    Ok(())
}

/// The code path to a device's framework, with a FAKE of Android's launcher whose runtime is Robolectric and whose memory map is
/// made up.
fn behind_launcher() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let robolectric = robolectric_directory(directory.path())?;
    let (launcher, jar) = (directory.path().join("app_process64"), directory.path().join("fathom-dex.jar"));
    run(Command::new("cp").arg(repository_root().join("tests/fakes/app_process")).arg(&launcher))?;
    fs::write(&jar, "dexed classes")?;
    let run_with = |map: &str| -> Result<std::process::Output> {
        let script = format!(
            "cd '{robolectric}' && java -Drobolectric.offline=true -Drobolectric.dependency.dir=instrumented \
             -Dfathom.robolectric=x -cp 'fathom.jar:classes:jars/*' fathom.robolectric.Host | grep --line-buffered -v art.maps\n\
             printf '%s\\n' '{{\"mark\":\"art.maps\",\"text\":\"{map}\"}}'\n"
        );
        fs::write(directory.path().join("main"), script)?;
        let mut command = Command::new(fathom());
        command.args(["workload", "sqlite", "--engine=android", "--rows=20", "--iterations=2"]);
        command.arg(format!("--art={}", launcher.display())).arg(format!("--dex-jar={}", jar.display()));
        Ok(command.env("FAKE_ART", directory.path()).current_dir(directory.path()).output()?)
    };
    let art = r"7000000000-7000a00000 r-xp 00200000 fe:05 1234 /apex/com.android.art/lib64/libart.so\n";
    let jit = r"58000000-5a000000 r-xs 02000000 00:01 99 /memfd:jit-cache (deleted)\n";
    let output = run_with(&format!("{art}{jit}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success() && text.contains("art-jit: in /proc/self/maps"), "{output:?}");
    ensure!(
        text.contains("the device's own through android.database") && text.contains("integrity_check: ok"),
        "{text}"
    );
    // Results of another runtime are refused.
    let output = run_with(art)?;
    ensure!(output.status.code() == Some(1) && output.stdout.is_empty(), "{output:?}");
    ensure!(String::from_utf8_lossy(&output.stderr).contains("no JIT cache"), "{output:?}");
    // It ends before it answers.
    fs::write(directory.path().join("main"), "echo 'cannot locate symbol' >&2; exit 1\n")?;
    let mut command = Command::new(fathom());
    command.args(["workload", "sqlite", "--engine=android", "--rows=20", &format!("--art={}", launcher.display())]);
    command.arg(format!("--dex-jar={}", jar.display())).env("FAKE_ART", directory.path()).current_dir(directory.path());
    let output = command.output()?;
    ensure!(
        output.status.code() == Some(1) && String::from_utf8_lossy(&output.stderr).contains("cannot locate symbol")
    );
    ensure!(
        !fs::read_dir(directory.path())?.any(|e| e.is_ok_and(|e| e.file_name().to_string_lossy().contains("workload")))
    );
    Ok(())
}

fn collect_sources(directory: &Path, sources: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            collect_sources(&path, sources)?;
        } else if path.extension().is_some_and(|e| e == "java") {
            sources.push(path);
        }
    }
    Ok(())
}
