//! The manual must be correct: its links and the source files that it names exist, and its command lines are accepted by the real
//! parser.
//!
//! A command line is a line of a block fenced as `sh`, `bash` or `console` that begins with `fathom` (after a prompt,
//! `sudo`, a path or variables). Everything from a pipe, redirection or comment on belongs to the shell. The program is
//! run with FATHOM_PARSE_ONLY set, which makes it stop after parsing.

use crate::markdown::{anchors, blocks, links};
use crate::source::File;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

/// A command line of the manual.
#[derive(Debug, PartialEq, Eq)]
pub struct Line {
    /// `path:line`.
    pub place: String,
    /// The words after `fathom`.
    pub arguments: Vec<String>,
}

/// The manual's pages. The changelog and the journal describe past versions.
fn pages(files: &[File]) -> impl Iterator<Item = &File> {
    files.iter().filter(|f| {
        f.path.ends_with(".md") && !f.path.starts_with("docs/internals/journal/") && f.path != "CHANGELOG.md"
    })
}

/// Every command line of the manual.
pub fn commands(files: &[File]) -> Vec<Line> {
    let mut found = Vec::new();
    for file in pages(files) {
        for block in blocks(&file.text).iter().filter(|b| ["sh", "bash", "console"].contains(&b.language)) {
            let mut lines = block.lines.iter();
            while let Some(&(number, first)) = lines.next() {
                let mut whole = first.to_string();
                while let Some(start) = whole.strip_suffix('\\') {
                    let Some((_, next)) = lines.next() else { break };
                    whole = format!("{start} {}", next.trim_start());
                }
                if let Some(arguments) = arguments(&whole) {
                    found.push(Line { place: format!("{}:{number}", file.path), arguments });
                }
            }
        }
    }
    found
}

/// The arguments of `fathom`, if the line calls it.
fn arguments(line: &str) -> Option<Vec<String>> {
    let words = split(line.trim_start().trim_start_matches("$ ").trim_start_matches("# "));
    let mut words = words.into_iter().peekable();
    while words.next_if(|w| w == "sudo" || w == "-E" || (w.contains('=') && !w.starts_with('-'))).is_some() {}
    let program = words.next()?;
    (program.rsplit('/').next() == Some("fathom")).then(|| words.collect())
}

/// Splits a line as a shell does, up to the first shell operator.
fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match c {
            '\'' | '"' => word.get_or_insert_default().extend(chars.by_ref().take_while(|&x| x != c)),
            '\\' => word.get_or_insert_default().extend(chars.next()),
            '|' | ';' | '>' | '<' | '&' => break,
            '#' if word.is_none() => break,
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The command lines that the program refuses.
pub fn refused(program: &Path, commands: &[Line]) -> Result<Vec<String>> {
    // A program that did not support the variable would really record, or delete: it must refuse nonsense, and accept a
    // verb on a directory that cannot exist.
    let nonsense = parses(program, &["--no-such-option".into()])?;
    let harmless = parses(program, &["show".into(), "/nonexistent/x.fathom".into()])?;
    ensure!(!nonsense && harmless, "{} does not honour FATHOM_PARSE_ONLY", program.display());
    let mut refused = Vec::new();
    for command in commands {
        if !parses(program, &command.arguments)? {
            refused.push(format!("{}: fathom does not take `{}`", command.place, command.arguments.join(" ")));
        }
    }
    Ok(refused)
}

fn parses(program: &Path, arguments: &[String]) -> Result<bool> {
    let mut command = Command::new(program);
    command.args(arguments).env("FATHOM_PARSE_ONLY", "1");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(command.status().with_context(|| format!("cannot start {}", program.display()))?.success())
}

/// Broken relative links: to a missing file, or to a heading that its page does not have.
pub fn broken_links(root: &Path, files: &[File]) -> Vec<String> {
    let mut broken = Vec::new();
    for file in files.iter().filter(|f| f.path.ends_with(".md")) {
        let directory = Path::new(&file.path).parent().unwrap_or(Path::new(""));
        for (line, target) in links(&file.text) {
            let target = target.split(' ').next().unwrap_or_default();
            let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
            if path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            let to = if path.is_empty() { root.join(&file.path) } else { root.join(directory).join(path) };
            if !path.is_empty() && !to.exists() {
                broken.push(format!("{}:{line}: there is no {path}", file.path));
                continue;
            }
            let Some(anchor) = anchor.filter(|_| path.is_empty() || path.ends_with(".md")) else { continue };
            let text = if path.is_empty() { Some(file.text.clone()) } else { std::fs::read_to_string(&to).ok() };
            if !text.is_some_and(|text| anchors(&text).iter().any(|a| a == anchor)) {
                broken.push(format!("{}:{line}: no heading makes {target}", file.path));
            }
        }
    }
    broken
}

/// Source files that a page names in backticks and that no file's path ends with: moved, renamed or removed.
pub fn missing_sources(paths: &[String], files: &[File]) -> Vec<String> {
    let is_source = |name: &str| {
        let known = [".rs", ".h", ".bpf.c", ".js", ".css"].iter().any(|extension| name.ends_with(extension));
        known && name.bytes().all(|c| matches!(c, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' | b'.' | b'/'))
    };
    let is_there = |name: &str| {
        let ends = |path: &String| path.strip_suffix(name).is_some_and(|rest| rest.is_empty() || rest.ends_with('/'));
        name.starts_with(['.', '/']) || paths.iter().any(ends)
    };
    let mut missing = Vec::new();
    for file in pages(files) {
        let mut fenced = false;
        for (at, line) in file.text.lines().enumerate() {
            fenced ^= line.trim_start().starts_with("```");
            let spans = line.split('`').skip(1).step_by(2).filter(|name| !fenced && is_source(name) && !is_there(name));
            missing.extend(spans.map(|name| format!("{}:{}: there is no file {name}", file.path, at + 1)));
        }
    }
    missing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(text: &str) -> Vec<File> {
        vec![File { path: "docs/a.md".into(), text: text.into() }]
    }

    #[test]
    fn command_lines_are_found_in_sh_blocks() {
        let text = "```sh\n$ sudo fathom record -o 'my trace.fathom' \\\n    -- sqlite3 x   # why\n\
                    A=1 target/release/fathom show t.fathom | less\nls\n```\n```text\nfathom [OPTIONS]\n```\n";
        let found = commands(&page(text));
        assert_eq!(found[0].place, "docs/a.md:2");
        assert_eq!(found[0].arguments, ["record", "-o", "my trace.fathom", "--", "sqlite3", "x"]);
        assert_eq!(found[1].arguments, ["show", "t.fathom"]);
        assert_eq!(found.len(), 2);
    }

    #[test]
    fn journal_and_changelog_are_not_checked() {
        let text = "```sh\nfathom gone\n```\n";
        for path in ["docs/internals/journal/2026.md", "CHANGELOG.md"] {
            assert_eq!(commands(&[File { path: path.into(), text: text.into() }]), []);
        }
    }

    /// A stand-in for the program that accepts only `show`.
    fn program(directory: &Path, script: &str) -> Result<std::path::PathBuf> {
        let path = directory.join("fathom");
        lab::script::write(&path, &format!("#!/bin/sh\n{script}\n"))?;
        Ok(path)
    }

    #[test]
    fn invalid_command_line_is_reported_with_place() -> Result<()> {
        let directory = tempfile::tempdir()?;
        let strict = program(directory.path(), "[ \"$1\" = show ] || exit 2")?;
        let refused = refused(&strict, &commands(&page("```sh\nfathom show x\nfathom dance\n```\n")))?;
        assert_eq!(refused, ["docs/a.md:3: fathom does not take `dance`"]);
        Ok(())
    }

    #[test]
    fn program_that_ignores_parse_only_is_refused() -> Result<()> {
        let directory = tempfile::tempdir()?;
        for script in ["exit 0", "exit 1"] {
            assert!(refused(&program(directory.path(), script)?, &[]).is_err(), "{script}");
        }
        Ok(())
    }

    #[test]
    fn source_files_that_are_gone_are_reported() {
        let paths = ["crates/pool/src/store/disk.rs", "web/src/lanes.js"].map(String::from);
        let files =
            page("`store/disk.rs`, `disk.rs`, `lanes.js`, `NAME.h`\n`sk.rs` in `pool/gone.rs`\n```text\n`x.rs`\n```\n");
        assert_eq!(
            missing_sources(&paths, &files),
            ["docs/a.md:2: there is no file sk.rs", "docs/a.md:2: there is no file pool/gone.rs"]
        );
    }

    #[test]
    fn broken_links_are_reported() -> Result<()> {
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("docs"))?;
        std::fs::write(directory.path().join("docs/b.md"), "# A part\n")?;
        let files =
            page("# Here\n[b](b.md#a-part) [h](#here) [w](https://example.org/#x) [gone](c.md)\n[p](b.md#q) [q](#q)\n");
        assert_eq!(
            broken_links(directory.path(), &files),
            [
                "docs/a.md:2: there is no c.md",
                "docs/a.md:3: no heading makes b.md#q",
                "docs/a.md:3: no heading makes #q"
            ]
        );
        Ok(())
    }
}
