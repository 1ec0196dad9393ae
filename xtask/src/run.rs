//! Runs other programs; the error message of a failure names the command.

use anyhow::{Context, Result, ensure};
use std::process::{Command, Stdio};

/// Runs a command, with its output going where ours goes.
pub fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot start {shown}"))?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// Runs a command and returns its stdout.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let out = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {shown}"))?;
    ensure!(out.status.success(), "{shown}: {}", out.status);
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The command as it would be typed.
pub fn show(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|w| w.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Whether cargo has a component that a distribution's Rust may lack: the one behind `cargo NAME`.
pub fn has_component(root: &std::path::Path, name: &str) -> bool {
    let mut probe = cargo(root);
    probe.args([name, "--version"]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// The cargo that runs this program.
pub fn cargo(root: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(root);
    command
}
