//! Subjects of commits: `area: verb …`, at most 72 characters, as `git log --oneline` and a mail's subject show them whole. Commits before
//! [`BASE`] are as they are.

use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// The last commit that was made without this rule. Where it is no ancestor of HEAD (a copy without history), nothing is checked.
const BASE: &str = "6d9fce6a";
const SUBJECT_CHARACTERS_MAX: usize = 72;

/// Commits since the base whose subjects break the rule.
pub fn offences(root: &Path) -> Result<Vec<String>> {
    let range = format!("{BASE}..HEAD");
    let mut log = Command::new("git");
    log.current_dir(root).args(["log", "--no-merges", "--format=%h %s", &range]);
    let log = log.output()?;
    if !log.status.success() {
        return Ok(Vec::new());
    }
    let log = String::from_utf8_lossy(&log.stdout).into_owned();
    let subjects = log.lines().filter_map(|line| line.split_once(' '));
    Ok(subjects.filter_map(|(commit, subject)| Some(format!("commit {commit}: {}", wrong(subject)?))).collect())
}

/// What is wrong with a subject.
fn wrong(subject: &str) -> Option<String> {
    let characters = subject.chars().count();
    if characters > SUBJECT_CHARACTERS_MAX {
        return Some(format!("the subject has {characters} characters, more than {SUBJECT_CHARACTERS_MAX}: {subject}"));
    }
    let area =
        |area: &str| !area.is_empty() && area.chars().all(|c| c.is_ascii_lowercase() || "0123456789_-/., ".contains(c));
    let names_area = subject.split_once(": ").is_some_and(|(before, after)| area(before) && !after.trim().is_empty());
    (!names_area).then(|| format!("the subject is not `area: verb …`: {subject}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subject_names_its_area_within_72_characters() {
        assert_eq!(wrong("pool: fence a coordinator by code, not by text"), None);
        assert_eq!(wrong("analysis, model: hold spans packed"), None);
        assert!(wrong("Fence a coordinator by code").is_some());
        assert!(wrong("pool:").is_some());
        assert!(wrong(&format!("pool: {}", "a".repeat(67))).is_some());
        assert_eq!(wrong(&format!("pool: {}", "a".repeat(66))), None);
    }
}
