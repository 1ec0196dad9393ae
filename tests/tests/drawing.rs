//! Drawing on a device, without a device: how Android's `app_process` is started, with a FAKE of it (tests/fakes/app_process);
//! what is refused; and that our classes do not mistake another canvas for Android's.

use anyhow::{Context, Result, ensure};
use fathom_tests::{Case, fathom, installed, run, run_suite};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use tempfile::TempDir;

fn main() -> ExitCode {
    let java = || installed("java").and_then(|()| installed("javac"));
    let cases: Vec<Case> = vec![
        ("art_drawing_is_listed_and_refused_without_android", Ok(()), no_android),
        (
            "fake_app_process_gets_documented_command_and_proves_mode",
            Ok(()),
            fake_app_process_gets_documented_command_and_proves_mode,
        ),
        ("jit_enabled_by_properties_fails_art_aot", Ok(()), jit_enabled_by_properties_fails_art_aot),
        ("design_cell_runs_on_fake_app_process", Ok(()), design_cell_runs_on_fake_app_process),
        ("missing_android_graphics_is_reported", java(), without_framework),
    ];
    run_suite(cases)
}

/// A directory with a fake `app_process64` in `bin`, and invalid dexed classes.
struct Device(TempDir);

impl Device {
    fn new() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let bin = directory.path().join("bin");
        fs::create_dir(&bin)?;
        let fake = Path::new(env!("CARGO_MANIFEST_DIR")).join("fakes/app_process");
        // Copied by another process: a file that this one has open for writing cannot be started.
        run(Command::new("cp").arg(fake).arg(bin.join("app_process64")))?;
        let right = "echo '{\"mark\":\"inner\",\"text\":\"1\"}'\n\
                     echo '{\"metric\":\"work\",\"unit\":\"figure\",\"t\":1,\"v\":100}'\n\
                     for t in 1 2 3; do echo \"{\\\"metric\\\":\\\"iteration\\\",\\\"unit\\\":\\\"ns\\\",\\\"t\\\":$t,\\\"v\\\":1000}\"; done\n\
                     echo '{\"verified\":true,\"by\":\"a fake\"}'\n";
        fs::write(directory.path().join("main"), right)?;
        fs::write(directory.path().join("fathom-dex.jar"), "dexed classes")?;
        Ok(Self(directory))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, words: &[&str]) -> Result<Command> {
        let mut command = Command::new(fathom());
        command.args(words).current_dir(self.0.path()).env("FAKE_ART", self.0.path());
        command.env("PATH", format!("{}:{}", self.path("bin").display(), std::env::var("PATH")?));
        Ok(command)
    }

    fn draw(&self, words: &[&str]) -> Result<(Option<i32>, String, String)> {
        let jar = format!("--dex-jar={}", self.path("fathom-dex.jar").display());
        let all = [&["workload", "draw", "--iterations=3", "--inner=100", &jar][..], words].concat();
        let output = self.command(&all)?.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
    }
}

const ART_MODES: [&str; 3] = ["art-interpreter", "art-jit", "art-aot"];

fn no_android() -> Result<()> {
    if installed("app_process64").is_ok() || installed("app_process").is_ok() {
        return Ok(());
    }
    let list = String::from_utf8(run(Command::new(fathom()).args(["bench", "list", "draw"]))?.stdout)?;
    for mode in ART_MODES {
        let reason = format!("not available (mode={mode}): no Android runtime");
        ensure!(list.contains(&reason) && list.contains("one of app_process64, app_process"), "{mode}: {list}");
        let output = Command::new(fathom()).args(["workload", "draw", "--mode", mode]).output()?;
        let messages = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(1) && output.stdout.is_empty(), "{messages}");
        ensure!(
            messages.contains("none of app_process64, app_process is on PATH") && messages.contains("java/dex"),
            "{messages}"
        );
    }
    Ok(())
}

fn fake_app_process_gets_documented_command_and_proves_mode() -> Result<()> {
    let device = Device::new()?;
    for (mode, proof) in [("art-interpreter", "no JIT cache"), ("art-jit", "/memfd:jit-cache")] {
        let (status, out, messages) = device.draw(&["--mode", mode, "--shape=circle", "--antialias=on"])?;
        ensure!(status == Some(0) && out.contains("\"iteration\"") && out.contains("\"verified\":true"), "{messages}");
        ensure!(out.contains(&format!("{mode}: in /proc/self/maps: ")) && out.contains(proof), "{out}");
        ensure!(!out.contains("art.maps"), "{out}");
        // The class path and our arguments in the environment, and the class without arguments.
        let commands = fs::read_to_string(device.path("commands"))?;
        let expected = format!(
            "{} fathom.Main  (draw --shape circle --antialias on --size 480,800 --extent 100 --format argb-pre --iterations 3 \
             --inner 100 --min-iteration-ms 10 --mode {mode} --boottime-offset-ns ",
            device.path("fathom-dex.jar").display()
        );
        ensure!(commands.contains(&expected), "{expected} is not among\n{commands}");
    }
    for (words, part) in [
        (
            &["--mode=art-jit", "--art=/apex/com.android.art/bin/dalvikvm64"][..],
            "registers none of their native methods",
        ),
        (&["--mode=art-jit", "--format=rgb"], "argb-pre and rgb565"),
    ] {
        let (status, out, messages) = device.draw(words)?;
        ensure!(status == Some(2) && out.is_empty() && messages.contains(part), "{words:?}: {messages}");
    }
    // A wrong picture gives no score.
    fs::write(device.path("main"), "echo '{\"verified\":false,\"by\":\"a wrong picture\"}'; exit 1\n")?;
    let (status, out, messages) = device.draw(&["--mode=art-jit"])?;
    ensure!(
        status == Some(1) && out.contains("a wrong picture") && messages.contains("wrong result"),
        "{out}{messages}"
    );
    ensure!(out.matches("\"verified\"").count() == 1, "{out}");
    // Its message when it cannot draw is passed on.
    fs::write(device.path("main"), "echo 'fathom: no canvas' >&2; exit 1\n")?;
    let (status, out, messages) = device.draw(&["--mode=art-jit"])?;
    ensure!(status == Some(1) && out.is_empty() && messages.contains("fathom: no canvas"), "{out}{messages}");
    fs::remove_file(device.path("fathom-dex.jar"))?;
    let (status, _, messages) = device.draw(&["--mode=art-jit"])?;
    ensure!(status == Some(1) && messages.contains("java/dex") && messages.contains("--dex-jar"), "{messages}");
    Ok(())
}

fn jit_enabled_by_properties_fails_art_aot() -> Result<()> {
    let device = Device::new()?;
    // Already compiled, as by dex2oat.
    let (_, _, messages) = device.draw(&["--mode=art-aot"])?;
    ensure!(messages.contains("needs ART's compiler"), "{messages}");
    let oat = device.path("aot/oat").join(if cfg!(target_arch = "aarch64") { "arm64" } else { "x86_64" });
    fs::create_dir_all(&oat)?;
    fs::copy(device.path("fathom-dex.jar"), device.path("aot/fathom-dex.jar"))?;
    fs::write(oat.join("fathom-dex.odex"), "compiled")?;
    let (status, out, messages) = device.draw(&["--mode=art-aot"])?;
    ensure!(status == Some(0) && out.contains("fathom-dex.odex is mapped executable"), "{out}{messages}");
    fs::write(device.path("usejit"), "true")?;
    let (status, out, messages) = device.draw(&["--mode=art-aot"])?;
    ensure!(status == Some(1) && out.is_empty(), "{out}");
    ensure!(messages.contains("not in mode art-aot") && messages.contains("properties dalvik.vm.*"), "{messages}");
    fs::write(device.path("usejit"), "false")?;
    let (status, out, messages) = device.draw(&["--mode=art-jit"])?;
    ensure!(status == Some(1) && out.is_empty() && messages.contains("no JIT cache"), "{messages}");
    Ok(())
}

fn design_cell_runs_on_fake_app_process() -> Result<()> {
    let device = Device::new()?;
    let dex = format!("dex_jar={}", device.path("fathom-dex.jar").display());
    let words = ["-p", "mode=art-jit", "-p", "shape=rect", "-p", "antialias=off", "-p", &dex, "--blocks=2", "--json"];
    let words = [&["bench", "run", "draw", "--no-wait"][..], &words].concat();
    let value: Value = serde_json::from_slice(&run(&mut device.command(&words)?)?.stdout)?;
    let result = &value["results"][0];
    ensure!(result["processes"] == 2 && result["verified"] == true && result["unit"] == "figure/s", "{value}");
    // 100 figures in 1000 ns.
    ensure!(result["estimate"] == 1e8 && result["parameters"]["mode"] == "art-jit", "{value}");
    let proof = result["marks"]["mode"].as_str().context("a proof")?;
    ensure!(proof.contains("jit-cache"), "{proof}");
    Ok(())
}

/// The real classes, on a JVM that claims to be Android's: there is no android.graphics, and that is reported.
fn without_framework() -> Result<()> {
    let device = Device::new()?;
    let jar = device.path("classes.jar");
    run(Command::new("sh").arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../java/build")).arg(&jar).arg("android"))?;
    let source = "public class Says { public static void main(String[] words) {\n\
                  System.setProperty(\"java.vm.name\", \"Dalvik\"); fathom.Main.main(words); } }\n";
    fs::write(device.path("Says.java"), source)?;
    run(Command::new("javac").arg("-cp").arg(&jar).arg("-d").arg(device.0.path()).arg(device.path("Says.java")))?;
    let script = format!("exec java -cp {}:{} Says \"$@\"\n", jar.display(), device.0.path().display());
    fs::write(device.path("main"), script)?;
    let (status, out, messages) = device.draw(&["--mode=art-jit"])?;
    ensure!(status == Some(1) && out.is_empty(), "{out}");
    ensure!(
        messages.contains("Android's canvas does not work here") && messages.contains("android/graphics/"),
        "{messages}"
    );
    Ok(())
}
