//! One version: what stands outside the workspace (`fathom-sql`, with a lock file of its own, and the Python package) has the
//! workspace's, since all of it is released together.

use anyhow::{Context, Result};
use std::path::Path;

/// The manifest that has the version.
const WORKSPACE: &str = "Cargo.toml";
/// Manifests that repeat it.
const MANIFESTS: [&str; 2] = ["crates/sql/Cargo.toml", "python/pyproject.toml"];
/// The lock file that repeats it for each crate of ours.
const LOCK: &str = "crates/sql/Cargo.lock";

/// What has another version than the workspace.
pub fn offences(root: &Path) -> Result<Vec<String>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let expected = version(&read(WORKSPACE)?).with_context(|| format!("{WORKSPACE} has no version"))?.to_owned();
    let mut found = Vec::new();
    for path in MANIFESTS {
        found.extend(differs(path, version(&read(path)?), &expected));
    }
    for (name, version) in own(&read(LOCK)?) {
        found.extend(differs(&format!("{LOCK}: {name}"), Some(version), &expected));
    }
    Ok(found)
}

fn differs(place: &str, found: Option<&str>, expected: &str) -> Option<String> {
    let found = found.unwrap_or("none");
    (found != expected).then(|| format!("{place}: version {found}, but the workspace has {expected}"))
}

/// The first version of a manifest, at the beginning of a line: dependencies have theirs in braces.
fn version(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

/// The crates of a lock file that come from no registry, with their versions.
fn own(lock: &str) -> Vec<(&str, &str)> {
    fn value<'a>(package: &'a str, name: &str) -> Option<&'a str> {
        package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
    }
    let packages = lock.split("[[package]]").filter(|package| value(package, "source").is_none());
    packages.filter_map(|package| Some((value(package, "name")?, value(package, "version")?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_of_package_is_read_not_of_dependency() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\nb = { version = \"2\" }\nversion = \"1.2\"\n";
        assert_eq!(version(manifest), Some("1.2"));
    }

    #[test]
    fn only_crates_of_no_registry_are_ours() {
        let lock = "version = 4\n\n[[package]]\nname = \"ours\"\nversion = \"0.3.0\"\n\n\
                    [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\n";
        assert_eq!(own(lock), [("ours", "0.3.0")]);
        assert_eq!(
            differs("a", Some("0.2.0"), "0.3.0").as_deref(),
            Some("a: version 0.2.0, but the workspace has 0.3.0")
        );
        assert_eq!(differs("a", Some("0.3.0"), "0.3.0"), None);
    }
}
