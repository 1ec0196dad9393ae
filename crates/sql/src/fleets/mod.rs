//! `fathom fleet`: archives of many devices and days in one place, as files that any engine reads.

pub mod add;
mod adding;
pub mod collect;
pub mod devices;
pub mod log;
pub mod ls;
pub mod progress;
pub mod rows;
pub mod store;

use crate::engine::{Engine, Settings};
use crate::output::print;
use anyhow::{Context as _, Result, bail};
use fleet::args::{Fleet as Arguments, FleetVerb, Init};
use fleet::commits::{FORMAT_NAME, FORMAT_VERSION, FleetInfo};
use fleet::privacy::Rules;
use log::Fleet;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// `fathom fleet`; false if something was left out.
pub fn run(args: &Arguments) -> Result<bool> {
    crate::ask::runtime(0)?.block_on(async {
        tokio::select! {
            done = run_verb(&args.verb) => done,
            // Incomplete files are removed on exit.
            () = crate::stop::wait_for_stop() => bail!("stopped; committed archives stay, and the same command continues from there"),
        }
    })
}

/// `fathom serve`.
pub fn serve(args: &fleet::args::Serve) -> Result<bool> {
    crate::ask::runtime(0)?.block_on(async {
        tokio::select! {
            done = crate::serve::run(args, print) => done.map(|()| true),
            () = crate::stop::wait_for_stop() => Ok(true),
        }
    })
}

async fn run_verb(verb: &FleetVerb) -> Result<bool> {
    match verb {
        FleetVerb::Init(args) => {
            Fleet::init(&args.fleet, fleet_info(args)?).await?;
            print(&format!("{}: an empty fleet; `fathom fleet add` adds archives\n", args.fleet))?;
        }
        FleetVerb::Add(args) => {
            return adding::run(args).await;
        }
        FleetVerb::Ls(args) => {
            let fleet = Fleet::open(&args.fleet).await?;
            if args.check {
                let damaged = fleet.damaged().await?;
                for file in &damaged {
                    writeln!(std::io::stderr(), "fathom: {}", model::text::shown(file))?;
                }
                print(&format!(
                    "{} checked, {} damaged\n",
                    model::counted(fleet.state.files.len(), "file"),
                    damaged.len()
                ))?;
                return Ok(damaged.is_empty());
            }
            print(&match (&args.files, args.json) {
                (Some(table), _) => {
                    let table = Some(table.as_str()).filter(|table| !table.is_empty());
                    if let Some(table) = table.filter(|table| fleet::tables().all(|known| known.name != *table)) {
                        bail!("no such table: {table}");
                    }
                    ls::files(&fleet, table)
                }
                (None, true) => format!("{}\n", ls::json(&fleet)),
                (None, false) => ls::text(&fleet),
            })?;
        }
        FleetVerb::Report(args) => {
            let to_stdout = crate::output::is_stdout(&args.output);
            if to_stdout && args.pages {
                bail!("--pages needs -o FILE: it writes to a directory next to the page");
            }
            let fleet = Fleet::open(&args.fleet).await?;
            let engine = Engine::over_fleet(&fleet, Settings::default())?;
            let gathered = crate::report::gather_data(&engine).await?;
            let pages = if args.pages { write_pages(&fleet, &gathered, &args.output).await? } else { BTreeMap::new() };
            let name = format!("Fleet {}", args.fleet);
            let page = crate::report::draw_page(&name, &gathered, &|run| pages.get(run).cloned());
            let written = crate::output::whole_file(&args.output, async |out| {
                out.write_all(page.as_bytes()).map_err(|error| crate::output::OutputError::Output(error.into()))
            });
            written.await.map_err(anyhow::Error::from)?;
            if !to_stdout {
                print(&format!("{}\n", args.output.display()))?;
            }
        }
        FleetVerb::Gc(args) => {
            let mut fleet = Fleet::open(&args.fleet).await?;
            let collected = collect::gc(&mut fleet, args.grace.saturating_mul(1_000_000_000)).await?;
            let waiting = match collected.waiting {
                0 => String::new(),
                n => format!("; {} will be removed later", model::counted(n, "file")),
            };
            print(&format!(
                "{} merged into {}; {} removed ({}){waiting}\n",
                model::counted(collected.merged, "file"),
                collected.into,
                model::counted(collected.removed, "file"),
                model::text::bytes(collected.bytes as f64),
            ))?;
        }
    }
    Ok(true)
}

/// Writes the pages of the archives at changes next to a report; returns their relative paths, by run.
async fn write_pages(
    fleet: &Fleet,
    gathered: &crate::report::ReportData,
    report: &Path,
) -> Result<BTreeMap<String, String>> {
    if !fleet.info.keep_raw {
        bail!(
            "this fleet keeps no archives, so none has a page (`fathom fleet init --keep-raw` keeps them): omit --pages"
        );
    }
    let directory = report.with_extension("archives");
    let name = directory.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    std::fs::create_dir_all(&directory).with_context(|| format!("creating {}", directory.display()))?;
    let (mut links, runs) = (BTreeMap::new(), gathered.linked());
    let mut progress = progress::Progress::default();
    for (at, run) in runs.iter().enumerate() {
        progress.step("making pages", at, runs.len());
        let to = directory.join(format!("{run}.html"));
        let page = crate::archive_page::make(fleet, run).await?;
        let written = crate::output::whole_file(&to, async |out| {
            out.write_all(page.as_bytes()).map_err(|error| crate::output::OutputError::Output(error.into()))
        });
        written.await.map_err(anyhow::Error::from)?;
        links.insert(run.clone(), format!("{}/{run}.html", percent_encoded(&name)));
    }
    Ok(links)
}

/// A name percent-encoded for a link.
fn percent_encoded(name: &str) -> String {
    name.bytes().fold(String::new(), |mut out, c| {
        match c {
            c if c.is_ascii_alphanumeric() || b"-._~".contains(&c) => out.push(char::from(c)),
            c => out.push_str(&format!("%{c:02X}")),
        }
        out
    })
}

fn fleet_info(args: &Init) -> Result<FleetInfo> {
    let private = Rules { commands: args.commands.into(), paths: args.paths.into(), sql: args.sql.into() };
    if args.keep_raw && !private.keep_all() {
        bail!("--keep-raw would keep what the rules for commands, paths and SQL remove; give one or the other");
    }
    Ok(FleetInfo {
        format: FORMAT_NAME.into(),
        version: FORMAT_VERSION,
        made_by: rows::made_by(),
        created_unix_ns: archive::unix_now_ns(),
        private,
        salt: rows::unique_name(),
        keep_raw: args.keep_raw,
        file_bytes: args.file_size,
    })
}
