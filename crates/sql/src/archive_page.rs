//! An archive's own page, from a fleet that keeps archives: the archive is fetched into a temporary directory, and `fathom report`,
//! which alone can draw pages, makes its page.

use crate::fleets::log::Fleet;
use crate::scratch::{HeldDirectory, Purpose};
use anyhow::{Context as _, Result, bail};
use std::path::{Component, Path};
use std::process::Stdio;

/// Whether there can be a page of this archive.
pub fn possible(fleet: &Fleet, run: &str) -> std::result::Result<(), String> {
    if !fleet.state.runs.contains(run) {
        return Err(format!("the fleet has no archive {run}"));
    }
    if !fleet.info.keep_raw {
        return Err("this fleet keeps no archives, only their tables (`fathom fleet init --keep-raw`)".into());
    }
    Ok(())
}

/// Makes the page.
///
/// # Errors
/// The archive is not there, or is damaged; `fathom` cannot be started.
pub async fn make(fleet: &Fleet, run: &str) -> Result<String> {
    let directory = HeldDirectory::new(Purpose::Page).context("creating a directory for an archive")?;
    let name = format!("{run}.fathom");
    let dir = directory.path().join(&name);
    let root = format!("_raw/{run}");
    let files = fleet.store.list(&root).await?;
    if files.is_empty() {
        bail!("{root} is gone from the fleet");
    }
    for file in files {
        let below = Path::new(file.path.strip_prefix(&root).unwrap_or_default().trim_start_matches('/'));
        if !below.components().all(|part| matches!(part, Component::Normal(_))) {
            bail!("{} leads outside the archive", file.path);
        }
        let to = dir.join(below);
        std::fs::create_dir_all(to.parent().unwrap_or(&dir)).with_context(|| format!("creating {}", to.display()))?;
        let mut from = fleet.store.fetch(&file.path).await?;
        let mut copy = std::fs::File::create_new(&to).with_context(|| format!("creating {}", to.display()))?;
        std::io::copy(&mut from, &mut copy).with_context(|| format!("writing {}", to.display()))?;
    }
    let (mut program, page) = (crate::open::fathom(), directory.path().join("page.html"));
    if program.components().count() > 1 {
        program = std::path::absolute(program)?;
    }
    let mut command = tokio::process::Command::new(&program);
    // The archive's name is the page's title, which must not contain a temporary directory.
    command
        .args(["report", &name, "-o"])
        .arg(&page)
        .current_dir(directory.path())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let made = command.output().await.with_context(|| format!("{} cannot be started", program.display()))?;
    if !made.status.success() {
        bail!("the page of {run}: {}", String::from_utf8_lossy(&made.stderr).trim().trim_start_matches("fathom: "));
    }
    std::fs::read_to_string(&page).with_context(|| format!("reading {}", page.display()))
}
