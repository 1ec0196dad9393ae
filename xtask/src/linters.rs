//! Formatters and linters for everything that is not Rust: shell, Java, the page's script. `scripts/setup test` installs them; a
//! missing one is reported and skipped, like a component that a distribution's Rust lacks.
//!
//! Where other versions of a formatter would format differently, the version is pinned: Java's is clang-format 14, Debian 12's, and
//! the script's are those of `web/package-lock.json`. Java is linted by `javac -Xlint:all -Werror`, which compiles it anyway.

use crate::run::{run, show};
use crate::source::{File, files, paths};
use anyhow::{Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// Java's formatter.
const CLANG_FORMAT: &str = "clang-format-14";

/// sh scripts: shellcheck, and shfmt configured by `.editorconfig`.
pub fn shell(root: &Path) -> Result<()> {
    let scripts = chosen(root, is_shell)?;
    tool(root, "shellcheck", &[], &scripts)?;
    tool(root, "shfmt", &["-d"], &scripts)
}

/// Java, configured by `.clang-format`.
pub fn java(root: &Path) -> Result<()> {
    let sources = chosen(root, |file| file.path.ends_with(".java"))?;
    tool(root, CLANG_FORMAT, &["--dry-run", "-Werror"], &sources)
}

/// The page's script: prettier, ESLint and the type checker.
pub fn web(root: &Path) -> Result<()> {
    let web = root.join("web");
    if !web.join("node_modules").exists() {
        println!("SKIP lint web: web/node_modules is not there (scripts/npm ci --prefix web)");
        return Ok(());
    }
    run(Command::new(root.join("scripts/npm")).args(["run", "--silent", "check"]).current_dir(web))
}

fn is_shell(file: &File) -> bool {
    let first = file.text.lines().next().unwrap_or_default();
    let interpreter = first.strip_prefix("#!").unwrap_or_default().rsplit(['/', ' ']).next().unwrap_or_default();
    file.path.ends_with(".sh") || ["sh", "bash"].contains(&interpreter)
}

fn chosen(root: &Path, wanted: fn(&File) -> bool) -> Result<Vec<String>> {
    let chosen: Vec<String> = files(root, &paths(root)?).into_iter().filter(wanted).map(|file| file.path).collect();
    ensure!(!chosen.is_empty(), "no file to check was found");
    Ok(chosen)
}

fn tool(root: &Path, program: &str, options: &[&str], files: &[String]) -> Result<()> {
    let mut probe = Command::new(program);
    probe.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut command = Command::new(program);
    command.args(options).args(files).current_dir(root);
    if probe.status().is_ok_and(|status| status.success()) {
        return run(&mut command);
    }
    println!("SKIP lint {program}: it is not installed ({} is not run)", show(&command));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shell_is_recognised_by_interpreter_or_name() {
        let is = |path: &str, text: &str| is_shell(&File { path: path.into(), text: text.into() });
        assert!(is("a", "#!/bin/sh\n") && is("a", "#!/usr/bin/env bash\n") && is("a", "#!/bin/busybox sh\n"));
        assert!(is("sourced.sh", "# no interpreter\n"));
        assert!(!is("a", "#!/usr/bin/env python3\n") && !is("a.rs", "//! sh\n") && !is("a", ""));
    }
}
