//! One version: packages outside the workspace (`fathom-sql`, with a lock file of its own, and the Python package) have the
//! workspace's version, since all of them are released together. And that lock file has our crates' dependencies: `fathom-sql` is
//! built with `--locked`, long after a crate that it uses was changed.

use anyhow::{Context, Result};
use std::path::Path;

/// The manifest that has the version.
const WORKSPACE_MANIFEST: &str = "Cargo.toml";
/// Manifests that repeat it.
const REPEATING_MANIFESTS: [&str; 3] = ["crates/sql/Cargo.toml", "hooks/rust/Cargo.toml", "python/pyproject.toml"];
/// The lock file that repeats it for each of our crates, in the directory of its name below `crates/`.
const LOCK_PATH: &str = "crates/sql/Cargo.lock";

/// Packages with another version than the workspace.
pub fn offences(root: &Path) -> Result<Vec<String>> {
    let read = |path: &str| std::fs::read_to_string(root.join(path)).with_context(|| format!("cannot read {path}"));
    let expected =
        version(&read(WORKSPACE_MANIFEST)?).with_context(|| format!("{WORKSPACE_MANIFEST} has no version"))?.to_owned();
    let mut found = Vec::new();
    for path in REPEATING_MANIFESTS {
        found.extend(check_version(path, version(&read(path)?), &expected));
    }
    let lock = read(LOCK_PATH)?;
    for Package { name, version, dependencies } in own_crates(&lock) {
        found.extend(check_version(&format!("{LOCK_PATH}: {name}"), Some(version), &expected));
        let directory = name.strip_prefix("fathom-").unwrap_or(name);
        let manifest = read(&format!("crates/{directory}/Cargo.toml"))?;
        let missing = declared_dependencies(&manifest).into_iter().filter(|needed| !dependencies.contains(needed));
        found.extend(missing.map(|missing| {
            format!("{LOCK_PATH}: {name} without {missing}; run `cargo metadata --manifest-path crates/sql/Cargo.toml`")
        }));
    }
    Ok(found)
}

fn check_version(place: &str, found: Option<&str>, expected: &str) -> Option<String> {
    let found = found.unwrap_or("none");
    (found != expected).then(|| format!("{place}: version {found}, but the workspace has {expected}"))
}

/// The first version of a manifest, at the beginning of a line: dependencies have theirs in braces.
fn version(manifest: &str) -> Option<&str> {
    manifest.lines().find_map(|line| line.strip_prefix("version = \"")?.strip_suffix('"'))
}

/// A crate in a lock file.
#[derive(Debug, PartialEq, Eq)]
struct Package<'a> {
    name: &'a str,
    version: &'a str,
    /// Names of the crates that it is built from.
    dependencies: Vec<&'a str>,
}

/// The crates of a lock file that do not come from a registry.
fn own_crates(lock: &str) -> Vec<Package<'_>> {
    fn value<'a>(package: &'a str, name: &str) -> Option<&'a str> {
        package.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(" = \"")?.strip_suffix('"'))
    }
    let packages = lock.split("[[package]]").filter(|package| value(package, "source").is_none());
    let parsed = packages.filter_map(|package| {
        let listed = package.lines().filter_map(|line| line.strip_prefix(" \"")?.strip_suffix("\","));
        // A name shared by several versions is followed by the version.
        let dependencies = listed.filter_map(|listed| listed.split(' ').next()).collect();
        Some(Package { name: value(package, "name")?, version: value(package, "version")?, dependencies })
    });
    parsed.collect()
}

/// The dependencies of a crate in its manifest, except those of its tests and optional ones.
fn declared_dependencies(manifest: &str) -> Vec<&str> {
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            section = line;
        } else if section.ends_with("dependencies]") && !section.contains("dev-") && !line.contains("optional = true") {
            // Lines of a list of features are indented, or begin with its end.
            let name = line.split(['.', '=']).next().unwrap_or_default().trim_end();
            names.extend(Some(name).filter(|name| name.starts_with(|c: char| c.is_ascii_alphanumeric())));
        }
    }
    names
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
                    dependencies = [\n \"object 0.39.1\",\n \"serde\",\n]\n\n\
                    [[package]]\nname = \"serde\"\nversion = \"1.0.0\"\nsource = \"registry\"\n";
        assert_eq!(
            own_crates(lock),
            [Package { name: "ours", version: "0.3.0", dependencies: vec!["object", "serde"] }]
        );
        assert_eq!(
            check_version("a", Some("0.2.0"), "0.3.0").as_deref(),
            Some("a: version 0.2.0, but the workspace has 0.3.0")
        );
        assert_eq!(check_version("a", Some("0.3.0"), "0.3.0"), None);
    }

    #[test]
    fn crates_of_tests_and_features_need_no_lock() {
        let manifest = "[package]\nname = \"a\"\n[dependencies]\n# why\nb = { version = \"1\", features = [\n    \"x\",\n] }\nc = { version = \"2\", optional = true }\n\
                        [target.'cfg(unix)'.dependencies]\nd = \"1\"\n[dev-dependencies]\ne = \"1\"\n";
        assert_eq!(declared_dependencies(manifest), ["b", "d"]);
    }
}
