//! The conventions that no compiler checks. Each rule is a function from texts to offences, so that a test can show
//! that it catches what it should.

mod arrows;
mod circles;
mod code;
mod commits;
mod docs;
mod headers;
mod manual;
mod testing;
mod versions;

use crate::metadata::all_packages;
use crate::source::{files, paths};
use anyhow::{Context, Result, ensure};
use std::path::Path;

/// The page that declares which crates may use which.
const ARCHITECTURE_PAGE: &str = "docs/internals/architecture.md";

/// Checks every rule and prints the offences.
pub fn run(root: &Path) -> Result<()> {
    let paths = paths(root)?;
    // A file that was removed but not yet committed is listed but missing.
    let large = |path: &String| code::too_large(path, root.join(path).symlink_metadata().ok()?.len());
    let mut offences: Vec<String> = paths.iter().filter_map(large).collect();
    let files = files(root, &paths);

    let architecture = std::fs::read_to_string(root.join(ARCHITECTURE_PAGE))
        .with_context(|| format!("cannot read {ARCHITECTURE_PAGE}"))?;
    offences.extend(arrows::offences(&arrows::parse_rules(&architecture)?, &all_packages(root)?));
    offences.extend(circles::offences(&architecture, &files));
    offences.extend(headers::offences(&files));
    offences.extend(crate::mutants::offences(&files));
    offences.extend(versions::offences(root)?);
    offences.extend(commits::offences(root)?);

    for file in &files {
        offences.extend(code::offences(file));
        offences.extend(manual::long_lines(file));
        offences.extend(manual::joined_blocks(file));
        offences.extend(testing::offences(file));
    }
    offences.extend(manual::unlisted(&files));
    let commands = docs::commands(&files);
    offences.extend(docs::broken_links(root, &files));
    offences.extend(docs::missing_sources(&paths, &files));
    let binary = root.join("target/release/fathom");
    if binary.exists() {
        offences.extend(docs::refused(&binary, &commands)?);
        offences.extend(crate::cli_page::stale(root, &binary)?);
    } else {
        offences
            .push(format!("{} is missing; run `make build` first (the docs are checked against it)", binary.display()));
    }

    for offence in &offences {
        println!("{offence}");
    }
    ensure!(offences.is_empty(), "tidy: {} offences", offences.len());
    println!("tidy: {} files and {} command lines in docs keep the rules", files.len(), commands.len());
    Ok(())
}
