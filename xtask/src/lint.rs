//! The checks that must pass before a test is worth running. Every step is run, even if an earlier one failed: a list
//! of all problems is more useful than the first one.

use crate::run::{cargo, has_component, output, show};
use crate::{gen_files, licences, linters, tidy};
use anyhow::{Result, ensure};
use serde_json::Value;
use std::path::Path;
use std::process::Command;

type Step = fn(&Path) -> Result<()>;

fn steps() -> [(&'static str, Step); 10] {
    [
        ("generated files", |root| gen_files::run(root, true)),
        ("formatting", |root| component(root, "rustfmt", &["fmt", "--all", "--check"])),
        ("formatting of the SQL engine's crate", |root| {
            component(root, "rustfmt", &["fmt", "--manifest-path", "crates/sql/Cargo.toml", "--check"])
        }),
        ("clippy", |root| {
            component(root, "clippy", &["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"])
        }),
        ("shell", linters::shell),
        ("Java", linters::java),
        ("web", linters::web),
        ("licences", licences::check),
        ("tidy", tidy::run),
        ("a second build does nothing", second_build_is_idle),
    ]
}

/// The argument that leaves clippy to the build of the tests ([`crate::programs::Compiler::Whole`]).
const NO_CLIPPY: &str = "--no-clippy";

/// Runs every step; fails if one did.
pub fn run(root: &Path, words: &[String]) -> Result<()> {
    let clippy = words != [NO_CLIPPY];
    ensure!(!clippy || words.is_empty(), "usage: cargo xtask lint [{NO_CLIPPY}]");
    let mut failed = Vec::new();
    for (name, step) in steps().into_iter().filter(|(name, _)| clippy || *name != "clippy") {
        let result = step(root);
        match result {
            Ok(()) => println!("lint: {name}: ok"),
            Err(error) => {
                println!("lint: {name}: FAILED: {error:#}");
                failed.push(name);
            }
        }
    }
    ensure!(failed.is_empty(), "lint failed: {}", failed.join(", "));
    Ok(())
}

/// Runs a cargo command of a component that a distribution's Rust may lack: if so, this is reported, and the step is
/// skipped.
fn component(root: &Path, name: &str, words: &[&str]) -> Result<()> {
    let mut command = cargo(root);
    command.args(words);
    if words.first().is_some_and(|sub| has_component(root, sub)) {
        return crate::run::run(&mut command);
    }
    println!("SKIP lint {name}: this Rust comes without it ({} is not run)", show(&command));
    Ok(())
}

/// A build script that writes a file it also watches, or watches a missing one, makes every build a new one. Two builds are needed to see
/// that: the first may follow a change of the machine, such as a JDK that was installed after the tree was built.
fn second_build_is_idle(root: &Path) -> Result<()> {
    build(root)?;
    let stale = rebuilt(&build(root)?);
    ensure!(stale.is_empty(), "built again though nothing had changed: {}", stale.join(", "));
    Ok(())
}

/// Builds the static program, and returns cargo's JSON messages.
fn build(root: &Path) -> Result<String> {
    let mut build = Command::new(root.join("scripts/build"));
    build.current_dir(root).args(["--message-format", "json", "--quiet"]);
    // Variables that cargo sets for a program that it runs, and no shell has; build scripts of some crates (ring) watch
    // them.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|n| n.starts_with("CARGO_PKG_") || n.starts_with("CARGO_MANIFEST_")) {
            build.env_remove(name);
        }
    }
    output(&mut build)
}

/// The targets that cargo's JSON messages report as not fresh.
fn rebuilt(messages: &str) -> Vec<String> {
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    messages
        .filter(|m| m["fresh"] == false)
        .map(|m| m["target"]["name"].as_str().unwrap_or_default().to_string())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rebuilt_crates_are_named() {
        let messages = "{\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"a\"},\"fresh\":true}\n\
                        noise\n\
                        {\"reason\":\"compiler-artifact\",\"target\":{\"name\":\"b\"},\"fresh\":false}\n\
                        {\"reason\":\"build-finished\",\"success\":true}\n";
        assert_eq!(rebuilt(messages), ["b"]);
    }
}
