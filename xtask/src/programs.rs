//! The workspace's test programs, built once and used several times: by the suites, the suite `privileged`, the long tests. Cargo chooses a
//! dependency's features by the packages that it is requested to build, and would rebuild half of them for each other choice. `make test`
//! lints them in the same build.

use crate::metadata::packages;
use crate::run::{cargo, has_component, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package of the fuzz targets' program, and its name.
pub const FUZZ_PACKAGE: &str = "fathom-fuzz";

/// A program that cargo built.
#[derive(Debug, Clone)]
pub struct Program {
    /// The directory of its package, from the repository's root.
    pub directory: String,
    /// Its target's name.
    pub name: String,
    path: PathBuf,
    /// Whether it contains a test harness.
    pub is_test: bool,
}

impl Program {
    /// Runs it as cargo would run a test.
    pub fn command(&self, root: &Path) -> Command {
        self.placed(root, Command::new(&self.path))
    }

    /// The same with a limit in seconds: GNU timeout ends the whole process group, including all children.
    pub fn command_within(&self, root: &Path, seconds: u64) -> Command {
        let mut command = Command::new("timeout");
        command.arg("--kill-after=20").arg(seconds.max(1).to_string()).arg(&self.path);
        self.placed(root, command)
    }

    #[cfg(test)]
    pub fn for_test(directory: &str) -> Self {
        Self { directory: directory.into(), name: String::new(), path: PathBuf::new(), is_test: true }
    }

    fn placed(&self, root: &Path, mut command: Command) -> Command {
        let directory = root.join(&self.directory);
        command.current_dir(&directory).env("CARGO_MANIFEST_DIR", &directory);
        command
    }
}

/// How the workspace's crates are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compiler {
    /// As `cargo test` does, so that both share the build.
    Shared,
    /// For a run of everything: without what only the next build of the same crate would read, which takes time and almost half of a first
    /// build's disk space.
    Whole {
        /// With clippy's driver, which compiles as rustc does and lints at the same time: a warning is an error. `cargo clippy` checks
        /// every external crate once more without compiling it, and compiles none of ours; this is one build instead of two.
        clippy: bool,
    },
}

impl Compiler {
    /// The argument with which a command requests a build for a run of everything, linted.
    pub const LINTED_OPTION: &'static str = "--linted";

    /// Returns the compiler that the words of a command request, and the other words. A Rust without clippy compiles
    /// without it.
    pub fn from_words(root: &Path, words: &[String]) -> (Self, Vec<String>) {
        let rest: Vec<String> = words.iter().filter(|word| *word != Self::LINTED_OPTION).cloned().collect();
        if rest.len() == words.len() {
            return (Self::Shared, rest);
        }
        let clippy = has_component(root, "clippy");
        if !clippy {
            println!("SKIP lint clippy: this Rust comes without it");
        }
        (Self::Whole { clippy }, rest)
    }

    fn lints(self) -> bool {
        self == Self::Whole { clippy: true }
    }

    /// Makes a cargo command use this compiler.
    pub fn set(self, cargo: &mut Command) {
        if self != Self::Shared {
            cargo.env("CARGO_INCREMENTAL", "0");
        }
        if self.lints() {
            // As in `cargo clippy -- -D warnings`.
            cargo.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
            cargo.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        }
    }
}

/// Builds all of them, and the program `bin`. The compiler's output goes where our own errors go.
pub fn build(root: &Path, bin: &str, compiler: Compiler) -> Result<Vec<Program>> {
    let packages = packages(root)?;
    let mut build = cargo(root);
    build.args(["build", "--locked", "--workspace", "--keep-going", "--lib", "--tests", "--examples"]);
    if compiler.lints() {
        // Code that only tests use is dead code in a program, and only there.
        build.arg("--bins");
    } else {
        build.args(["--bin", bin]);
    }
    compiler.set(&mut build);
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
        let package = packages.iter().find(|p| Path::new(manifest) == root.join(&p.directory).join("Cargo.toml"));
        let directory = package.with_context(|| format!("{manifest} belongs to no package"))?.directory.clone();
        programs.push(Program { directory, name, path: path.into(), is_test });
    }
    programs.sort_by(|a, b| (&a.directory, &a.name).cmp(&(&b.directory, &b.name)));
    Ok(programs)
}
