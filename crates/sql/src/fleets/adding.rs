//! `fathom fleet add`: adds archives of this machine and of devices, and reports what was skipped.

use super::add;
use super::devices::{self, FetchedArchives};
use super::log::Fleet;
use crate::output::print;
use crate::{errors, open};
use anyhow::{Context as _, Result, anyhow};
use fleet::args::Add;
use fleet::devices::Source;
use std::io::Write;
use std::path::Path;

/// `fathom fleet add`; false if an archive was skipped.
pub async fn run(args: &Add) -> Result<bool> {
    let (mut here, mut sources) = (Vec::new(), Vec::new());
    for word in &args.archives {
        match Source::parse(&word.to_string_lossy()).map_err(|why| anyhow!(why))? {
            Some(source) => sources.push(source),
            None => here.push(word.clone()),
        }
    }
    let mut fleet = Fleet::open(&args.fleet).await?;
    let found = open::search(&here, true);
    let (mut fetched, mut skipped, mut dirs) = (Vec::new(), found.unread.len(), found.archives);
    for (path, why) in &found.unread {
        complain(&path.display().to_string(), why)?;
    }
    for source in sources {
        let name = format!("{}:{}", source.device, source.directory);
        match fetch(source, &fleet).await {
            Ok(device) => fetched.push(device),
            // The others are still added.
            Err(error) => {
                skipped += 1;
                complain(&name, &errors::full_text(&error))?;
            }
        }
    }
    let mut known = 0;
    for device in &fetched {
        known += device.known;
        for (name, why) in &device.failed {
            skipped += 1;
            complain(name, why)?;
        }
        if device.count > 0 {
            dirs.extend(open::archives(&[device.directory().to_path_buf()], false)?);
        }
    }
    let options = add::Options { device: args.device.clone() };
    let added = add::add(&mut fleet, &dirs, &options).await?;
    for (dir, why) in &added.skipped {
        complain(&source_name(dir, &fetched), why)?;
    }
    for dir in &added.damaged {
        let name = source_name(dir, &fetched);
        let note =
            format!("fathom: {name}: a part of its log is missing; the rest was added, and its table losses says so");
        writeln!(std::io::stderr(), "{}", model::text::shown(&note))?;
    }
    skipped += added.skipped.len();
    known += added.known;
    let known = if known > 0 { format!(", {known} already there") } else { String::new() };
    let others = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
    print(&format!(
        "{} added ({} rows in {}){known}{others}\n",
        model::counted(added.added, "archive"),
        added.rows,
        model::counted(added.files, "file"),
    ))?;
    Ok(skipped == 0)
}

fn complain(what: &str, why: &str) -> Result<()> {
    Ok(writeln!(std::io::stderr(), "fathom: skipped: {}", model::text::shown(&open::named(what, why)))?)
}

/// The name of an archive at its source.
fn source_name(dir: &Path, fetched: &[FetchedArchives]) -> String {
    fetched.iter().find_map(|device| device.name(dir)).unwrap_or_else(|| dir.display().to_string())
}

/// Runs in a thread, since ssh and adb block: so Ctrl-C is handled meanwhile. It ends with the process.
async fn fetch(source: Source, fleet: &Fleet) -> Result<FetchedArchives> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let have = fleet.state.runs.clone();
    std::thread::spawn(move || drop(sender.send(devices::fetch(&source, &have))));
    receiver.await.context("fetching archives")?
}
