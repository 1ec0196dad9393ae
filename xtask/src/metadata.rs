//! cargo's metadata of the workspace's packages.

use crate::run::{cargo, output};
use anyhow::{Context, Result};
use serde_json::Value;
use std::path::Path;

#[derive(Debug, Default)]
pub struct Package {
    /// The package's name; may differ from that of its directory.
    pub name: String,
    /// Its directory from the repository's root, such as `crates/model`.
    pub directory: String,
    /// Packages that it is built from.
    pub uses: Vec<String>,
    /// Packages that only its tests need.
    pub tests_use: Vec<String>,
    /// Its integration tests, by name.
    pub tests: Vec<String>,
}

/// The crate that is a workspace of its own, so that nothing else ends up compiling its engine.
pub const SQL_WORKSPACE: &str = "crates/sql";

/// The workspace's packages.
pub fn packages(root: &Path) -> Result<Vec<Package>> {
    workspace_packages(root, root)
}

/// The packages of every workspace of this repository.
pub fn all_packages(root: &Path) -> Result<Vec<Package>> {
    let mut all = packages(root)?;
    all.extend(workspace_packages(root, &root.join(SQL_WORKSPACE))?);
    Ok(all)
}

fn workspace_packages(root: &Path, workspace: &Path) -> Result<Vec<Package>> {
    let mut command = cargo(root);
    command.args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"]);
    command.arg(workspace.join("Cargo.toml"));
    let metadata: Value = serde_json::from_str(&output(&mut command)?).context("cargo metadata's output")?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_string();
    let list = |v: &Value| v.as_array().cloned().unwrap_or_default();
    let own = text(&metadata["workspace_root"]);
    let apart = if workspace == root { "" } else { SQL_WORKSPACE };
    let root = own.strip_suffix(apart).unwrap_or(&own).to_string();
    let mut packages = Vec::new();
    for package in list(&metadata["packages"]) {
        let manifest = text(&package["manifest_path"]);
        let directory =
            manifest.trim_start_matches(&root).trim_matches('/').trim_end_matches("/Cargo.toml").to_string();
        let mut found = Package { name: text(&package["name"]), directory, ..Package::default() };
        for dependency in list(&package["dependencies"]) {
            let kind = if dependency["kind"] == "dev" { &mut found.tests_use } else { &mut found.uses };
            kind.push(text(&dependency["name"]));
        }
        for target in list(&package["targets"]) {
            if list(&target["kind"]).iter().any(|k| k == "test") {
                found.tests.push(text(&target["name"]));
            }
        }
        packages.push(found);
    }
    Ok(packages)
}
