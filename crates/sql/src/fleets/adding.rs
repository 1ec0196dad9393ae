//! `fathom fleet add`: archives of this machine and of devices, and what is said of them.

use super::devices::{self, Brought};
use super::log::Fleet;
use super::{add, say};
use crate::open;
use anyhow::{Context as _, Result, anyhow};
use fleet::args::Add;
use fleet::devices::Source;
use std::io::Write;
use std::path::Path;

/// `fathom fleet add`; false if something was left out.
///
/// # Errors
/// With a text for people.
pub async fn run(args: &Add) -> Result<bool> {
    let (mut here, mut sources) = (Vec::new(), Vec::new());
    for word in &args.archives {
        match Source::parse(&word.to_string_lossy()).map_err(|why| anyhow!(why))? {
            Some(source) => sources.push(source),
            None => here.push(word.clone()),
        }
    }
    let mut fleet = Fleet::open(&args.fleet).await?;
    let found = open::search(&here);
    let (mut brought, mut left_out, mut dirs) = (Vec::new(), found.unread.len(), found.archives);
    for (path, why) in &found.unread {
        complain(&path.display().to_string(), why)?;
    }
    for source in sources {
        let name = format!("{}:{}", source.device, source.folder);
        match bring(source, &fleet).await {
            Ok(one) => brought.push(one),
            // The others are added all the same.
            Err(error) => {
                left_out += 1;
                complain(&name, &format!("{error:#}"))?;
            }
        }
    }
    let mut known = 0;
    for one in &brought {
        known += one.known;
        for (name, why) in &one.failed {
            left_out += 1;
            complain(name, why)?;
        }
        if one.count > 0 {
            dirs.extend(open::archives(&[one.folder().to_path_buf()])?);
        }
    }
    let options = add::Options { device: args.device.clone() };
    let said = add::add(&mut fleet, &dirs, &options).await?;
    for (dir, why) in &said.skipped {
        complain(&name(dir, &brought), why)?;
    }
    left_out += said.skipped.len();
    known += said.known;
    let known = if known > 0 { format!(", {known} there already") } else { String::new() };
    let skipped = if left_out > 0 { format!(", {left_out} left out") } else { String::new() };
    say(&format!(
        "{} added ({} rows in {}){known}{skipped}\n",
        model::counted(said.added, "archive"),
        said.rows,
        model::counted(said.files, "file"),
    ))?;
    Ok(left_out == 0)
}

fn complain(what: &str, why: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "fathom: left out: {}", model::text::shown(&open::named(what, why)))?)
}

/// What an archive is called where it came from.
fn name(dir: &Path, brought: &[Brought]) -> String {
    brought.iter().find_map(|one| one.name(dir)).unwrap_or_else(|| dir.display().to_string())
}

/// Ssh and adb wait on their own; a thread, so that Ctrl-C is heard meanwhile. It ends with the process.
async fn bring(source: Source, fleet: &Fleet) -> Result<Brought> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let have = fleet.state.runs.clone();
    std::thread::spawn(move || drop(tell.send(devices::bring(&source, &have))));
    told.await.context("bringing archives")?
}
