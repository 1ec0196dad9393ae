//! The repository's files as tidy reads them.

use crate::run::output;
use anyhow::Result;
use std::path::Path;
use std::process::Command;

/// A text file of the repository.
#[derive(Debug)]
pub struct File {
    /// Relative to the repository's root, with `/`.
    pub path: String,
    pub text: String,
}

/// Every file that is committed or would be, relative to the repository's root: files ignored by git are left out.
pub fn paths(root: &Path) -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]);
    Ok(output(&mut git)?.split_terminator('\0').map(str::to_string).collect())
}

/// The text files among them.
pub fn files(root: &Path, paths: &[String]) -> Vec<File> {
    // A file removed but not yet committed is listed but missing; pictures and archives are not text.
    let read = |path: &String| {
        let text = std::fs::read(root.join(path)).ok().and_then(|bytes| String::from_utf8(bytes).ok())?;
        Some(File { path: path.clone(), text })
    };
    paths.iter().filter_map(read).collect()
}

impl File {
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// The crate that a file is compiled into: `crates/NAME/src/…`, except for its test files.
    pub fn crate_name(&self) -> Option<&str> {
        let (name, inside) = self.path.strip_prefix("crates/")?.split_once('/')?;
        let test = inside.ends_with("/tests.rs") || inside.contains("/tests/");
        (inside.starts_with("src/") && self.is_rust() && !test).then_some(name)
    }

    /// The lines, counted from 1, that are compiled outside tests, without comments. By convention a file's tests are
    /// at its end, so everything from the first `#[cfg(test)]` before a `mod` on is left out.
    pub fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines: Vec<&str> = self.text.lines().collect();
        let tests = (0..lines.len())
            .find(|&i| lines[i].trim() == "#[cfg(test)]" && lines.get(i + 1).is_some_and(|l| l.starts_with("mod ")));
        let end = tests.unwrap_or(lines.len());
        lines.into_iter().take(end).enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or(line)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_tests_are_not_code() {
        let text = "let a = 1; // why\n/// doc\nb\n#[cfg(test)]\nmod tests {\n c\n}\n".to_string();
        let file = File { path: "crates/x/src/lib.rs".into(), text };
        let code: Vec<_> = file.code().collect();
        assert_eq!(code, [(1, "let a = 1; "), (2, ""), (3, "b")]);
    }

    #[test]
    fn only_compiled_sources_belong_to_a_crate() {
        let crate_name = |path: &str| File { path: path.into(), text: String::new() }.crate_name().map(str::to_string);
        assert_eq!(crate_name("crates/model/src/a/b.rs").as_deref(), Some("model"));
        for other in
            ["crates/model/tests/a.rs", "crates/model/src/a/tests.rs", "crates/model/build.rs", "xtask/src/x.rs"]
        {
            assert_eq!(crate_name(other), None, "{other}");
        }
    }
}
