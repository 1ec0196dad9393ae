//! The manual's page of the command line, from the program's own output: `--help` of every command, outermost first.
//!
//! It is made from the program and not from the sources, as `tidy` checks the manual's command lines: only what the program accepts is
//! documented.

use crate::run::output;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

const PAGE_PATH: &str = "docs/reference/cli.md";
/// Writes the page, if the program exists and the page is stale.
pub fn write(root: &Path) -> Result<()> {
    let binary = root.join("target/release/fathom");
    if !binary.exists() {
        println!("{PAGE_PATH} is left as it is: {} is not there; run `make build` first", binary.display());
        return Ok(());
    }
    if !stale(root, &binary)?.is_empty() {
        std::fs::write(root.join(PAGE_PATH), page(&binary)?).with_context(|| format!("cannot write {PAGE_PATH}"))?;
        println!("wrote {PAGE_PATH}");
    }
    Ok(())
}

/// The offence of a page that differs from the program's output.
pub fn stale(root: &Path, binary: &Path) -> Result<Vec<String>> {
    let fresh = std::fs::read_to_string(root.join(PAGE_PATH)).is_ok_and(|old| page(binary).is_ok_and(|new| new == old));
    Ok(if fresh { vec![] } else { vec![format!("{PAGE_PATH}: stale; run `cargo xtask gen` after a build and commit")] })
}

fn page(binary: &Path) -> Result<String> {
    let mut text = "# Command line\n\n<!-- Generated from `fathom --help` by `cargo xtask gen`. Do not edit. -->\n\n\
                    Every command as `--help` prints it. `fathom man` prints the same as a manual page, `fathom completions SHELL` \
                    what completes\nthem in a shell.\n"
        .to_string();
    add(binary, &mut Vec::new(), &mut text)?;
    Ok(text)
}

/// A command and those below it.
fn add(binary: &Path, words: &mut Vec<String>, text: &mut String) -> Result<()> {
    ensure!(words.len() < 8, "commands without end: {words:?}");
    let mut command = Command::new(binary);
    // The page must depend neither on the terminal's width nor on its colours.
    command.args(words.iter()).arg("--help").env_remove("COLUMNS").env("NO_COLOR", "1");
    let help = output(&mut command)?;
    let marks = "#".repeat(2.max(words.len() + 1));
    let name = std::iter::once("fathom").chain(words.iter().map(String::as_str)).collect::<Vec<_>>().join(" ");
    let lines: Vec<&str> = help.trim_end().lines().map(str::trim_end).collect();
    let _ = write!(text, "\n{marks} {name}\n\n```text\n{}\n```\n", lines.join("\n"));
    for sub in commands(&help) {
        words.push(sub);
        add(binary, words, text)?;
        words.pop();
    }
    Ok(())
}

/// The names under `Commands:`; `help` is clap's own.
fn commands(help: &str) -> Vec<String> {
    let section = help.lines().skip_while(|l| *l != "Commands:").skip(1).take_while(|l| !l.is_empty());
    let names = section.filter_map(|l| l.strip_prefix("  ")).filter(|l| !l.starts_with(' '));
    names.filter_map(|l| l.split_whitespace().next()).filter(|n| *n != "help").map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stand-in for the program with a command in a command.
    const FAKE_PROGRAM: &str = "case \"$*\" in\n\
        --help) printf 'Top\\n\\nCommands:\\n  one   Does\\n        much\\n  help  Helps\\n\\nOptions:\\n  -h\\n' ;;\n\
        'one --help') printf 'One\\n\\nCommands:\\n  two  Does\\n' ;;\n\
        'one two --help') echo Two ;;\n\
        *) exit 2 ;;\nesac";

    #[test]
    fn every_command_has_a_section_and_an_old_page_is_stale() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let binary = directory.path().join("target/release/fathom");
        std::fs::create_dir_all(binary.parent().context("a directory")?)?;
        std::fs::create_dir_all(directory.path().join("docs/reference"))?;
        lab::script::write(&binary, &format!("#!/bin/sh\n{FAKE_PROGRAM}\n"))?;
        assert_eq!(stale(directory.path(), &binary)?.len(), 1);
        write(directory.path())?;
        assert_eq!(stale(directory.path(), &binary)?.len(), 0);
        let page = std::fs::read_to_string(directory.path().join(PAGE_PATH))?;
        let headings: Vec<&str> = page.lines().filter(|l| l.starts_with('#')).collect();
        assert_eq!(headings, ["# Command line", "## fathom", "## fathom one", "### fathom one two"]);
        lab::script::write(&binary, &format!("#!/bin/sh\n{}\n", FAKE_PROGRAM.replace("Two", "Three")))?;
        assert_eq!(stale(directory.path(), &binary)?.len(), 1);
        Ok(())
    }
}
