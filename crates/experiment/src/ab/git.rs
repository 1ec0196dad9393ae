//! Comparison of two commits of a repository: each in a worktree of its own, built there, removed afterwards.
//!
//! The worktrees are in a directory of the run's own ([`Scratch`]), so that those of a killed run are removed by the next run; git
//! forgets them with its next `git worktree prune`, which follows.

use crate::scratch::{Scratch, ScratchError};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Why a commit could not be prepared.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Not two names.
    #[error("--git {0}: expected BASE..HEAD, such as main..HEAD")]
    Range(String),
    /// git is not installed, or failed.
    #[error("git {what}: {why}")]
    Git { what: String, why: String },
    /// A commit cannot be built.
    #[error("building {commit} failed: {why}")]
    Build {
        commit: String,
        /// The end of the build's output.
        why: String,
    },
    #[error("interrupted")]
    Cancelled,
    /// No directory for the worktrees.
    #[error(transparent)]
    Directory(#[from] ScratchError),
}

/// Number of lines kept from the output of a failed build.
const OUTPUT_LINES_MAX: usize = 15;

/// Worktrees of commits, each in a directory; removed on drop.
#[derive(Debug)]
pub struct Worktrees {
    repository: PathBuf,
    /// Commit as given by the user, with its abbreviated hash, and its directory.
    pub all: Vec<(String, PathBuf)>,
    _scratch: Scratch,
}

impl Worktrees {
    /// Checks out both ends of `range` in the repository that contains `here`.
    pub fn new(here: &Path, range: &str) -> Result<Self, Error> {
        let (base, head) = range
            .split_once("..")
            .filter(|(base, head)| !base.is_empty() && !head.starts_with('.'))
            .ok_or_else(|| Error::Range(range.into()))?;
        let head = if head.is_empty() { "HEAD" } else { head };
        let repository = PathBuf::from(run_git(here, &["rev-parse", "--show-toplevel"])?);
        let temporary = std::env::temp_dir();
        crate::remove_leftovers(&temporary);
        run_git(&repository, &["worktree", "prune"])?;
        let scratch = Scratch::new(&temporary)?;
        let mut worktrees = Self { repository, all: Vec::new(), _scratch: scratch };
        for (place, name) in [base, head].into_iter().enumerate() {
            let commit =
                run_git(&worktrees.repository, &["rev-parse", "--verify", "--quiet", &format!("{name}^{{commit}}")])
                    .map_err(|_| Error::Git { what: format!("rev-parse {name}"), why: "no such commit".into() })?;
            let short = run_git(&worktrees.repository, &["rev-parse", "--short", &commit])?;
            let directory = worktrees._scratch.path.join(["base", "head"][place]);
            run_git(
                &worktrees.repository,
                &["worktree", "add", "--quiet", "--detach", &directory.to_string_lossy(), &commit],
            )?;
            let name = if commit.starts_with(name) { short } else { format!("{name} ({short})") };
            worktrees.all.push((name, directory));
        }
        Ok(worktrees)
    }

    /// Runs a build in one of them, until `cancelled`.
    ///
    /// # Errors
    /// The build failed, with the end of its output, or was cancelled.
    pub fn build(&self, at: usize, build: &str, cancelled: &dyn Fn() -> bool) -> Result<(), Error> {
        let Some((commit, directory)) = self.all.get(at) else { return Ok(()) };
        let failed = |why: String| Error::Build { commit: commit.clone(), why };
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", build]).current_dir(directory).stdin(Stdio::null());
        let done = child::output(&mut shell, cancelled).map_err(|e| failed(e.to_string()))?.ok_or(Error::Cancelled)?;
        if done.status.success() {
            return Ok(());
        }
        let output = [done.stdout, done.stderr].concat();
        let output = String::from_utf8_lossy(&output);
        let lines: Vec<&str> = output.trim_end().lines().collect();
        let last = lines[lines.len().saturating_sub(OUTPUT_LINES_MAX)..].join("\n");
        Err(failed(format!("{build}: {}\n{last}", done.status)))
    }
}

impl Drop for Worktrees {
    fn drop(&mut self) {
        for (_, directory) in &self.all {
            // Files that git leaves are removed with the directory; the next run prunes the name.
            let _ = run_git(&self.repository, &["worktree", "remove", "--force", &directory.to_string_lossy()]);
        }
    }
}

/// Runs git and returns its output.
fn run_git(here: &Path, words: &[&str]) -> Result<String, Error> {
    let failed = |why: String| Error::Git { what: words.join(" "), why };
    let done = Command::new("git")
        .arg("-C")
        .arg(here)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .map_err(|e| failed(e.to_string()))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).trim().to_string())
    } else {
        Err(failed(String::from_utf8_lossy(&done.stderr).trim().to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commits_are_checked_out_built_and_removed() {
        let directory = tempfile::tempdir().unwrap();
        let here = directory.path();
        let run = |words: &[&str]| {
            let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"];
            run_git(here, &[&identity, words].concat())
        };
        if let Err(error) = run(&["init", "--quiet"]) {
            println!("SKIP commits_are_checked_out_built_and_removed: {error}");
            return;
        }
        for text in ["one", "two"] {
            std::fs::write(here.join("f"), text).unwrap();
            run(&["add", "f"]).unwrap();
            run(&["commit", "--quiet", "-m", text]).unwrap();
        }
        // The state that a killed run leaves: the directory's lock is not held.
        let left = std::env::temp_dir().join(format!("fathom-run-1-{}", std::process::id()));
        std::fs::create_dir(&left).unwrap();
        run_git(here, &["worktree", "add", "--quiet", "--detach", &left.join("base").to_string_lossy(), "HEAD"])
            .unwrap();
        let both = Worktrees::new(here, "HEAD~1..").unwrap();
        assert_eq!(run_git(here, &["worktree", "list"]).unwrap().lines().count(), 3, "those of this run only");
        let text = |at: usize| std::fs::read_to_string(both.all[at].1.join("built")).unwrap();
        both.build(0, "cp f built", &|| false).unwrap();
        both.build(1, "cp f built", &|| false).unwrap();
        assert_eq!((text(0), text(1)), ("one".into(), "two".into()));
        let error = both.build(1, "echo no rule; exit 2", &|| false).unwrap_err().to_string();
        assert!(error.contains("HEAD") && error.contains("no rule"), "{error}");
        assert!(matches!(both.build(1, "sleep 600", &|| true), Err(Error::Cancelled)));
        let gone: Vec<PathBuf> = both.all.iter().map(|(_, directory)| directory.clone()).collect();
        drop(both);
        assert!(gone.iter().all(|directory| !directory.exists()));
        assert_eq!(run_git(here, &["worktree", "list"]).unwrap().lines().count(), 1);
        assert!(Worktrees::new(here, "HEAD").unwrap_err().to_string().contains("BASE..HEAD"));
        assert!(Worktrees::new(here, "nope..HEAD").unwrap_err().to_string().contains("no such commit"));
    }
}
