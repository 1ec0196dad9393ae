//! The workspace's test programs, built once and run by whoever needs them: the lanes, the lane `privileged`, the long tests. Cargo chooses a
//! dependency's features by the packages that it is asked to build, and would build half of them again for each other choice.

use crate::metadata::packages;
use crate::run::{cargo, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the fuzz targets' program, and its name.
pub const FUZZ_PACKAGE: &str = "fathom-fuzz";

/// A program that cargo built.
#[derive(Debug, Clone)]
pub struct Program {
    /// The folder of its package, from the repository's root.
    pub folder: String,
    /// Its target's name.
    pub name: String,
    path: PathBuf,
    /// Whether a harness runs in it.
    pub is_test: bool,
}

impl Program {
    /// Runs it as cargo would run a test.
    pub fn command(&self, root: &Path) -> Command {
        self.placed(root, Command::new(&self.path))
    }

    /// The same for at most so many seconds: GNU timeout ends the whole process group, whatever it had started.
    pub fn command_within(&self, root: &Path, seconds: u64) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=20").arg(seconds.max(1).to_string()).arg(&self.path);
        self.placed(root, command)
    }

    #[cfg(test)]
    pub fn for_test(folder: &str) -> Self {
        Self { folder: folder.into(), name: String::new(), path: PathBuf::new(), is_test: true }
    }

    fn placed(&self, root: &Path, mut command: Command) -> Command {
        let folder = root.join(&self.folder);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder);
        command
    }
}

/// Builds all of them, and the program `bin` besides. What the compiler says goes where our own errors go.
pub fn build(root: &Path, bin: &str) -> Result<Vec<Program>> {
    let packages = packages(root)?;
    let mut build = cargo(root);
    build.args(["build", "--locked", "--workspace", "--lib", "--tests", "--examples", "--bin", bin]);
    build.arg("--message-format=json-render-diagnostics");
    let mut programs = Vec::new();
    for line in output(&mut build)?.lines() {
        let Ok(message) = serde_json::from_str::<Value>(line) else { continue };
        let (Some(path), Some(manifest)) = (message["executable"].as_str(), message["manifest_path"].as_str()) else {
            continue;
        };
        let is_test = message["profile"]["test"] == true || message["target"]["kind"][0] == "test";
        let name = message["target"]["name"].as_str().unwrap_or_default().to_string();
        if !is_test && name != bin {
            continue;
        }
        let package = packages.iter().find(|p| Path::new(manifest) == root.join(&p.folder).join("Cargo.toml"));
        let folder = package.with_context(|| format!("{manifest} belongs to no package"))?.folder.clone();
        programs.push(Program { folder, name, path: path.into(), is_test });
    }
    programs.sort_by(|a, b| (&a.folder, &a.name).cmp(&(&b.folder, &b.name)));
    Ok(programs)
}
