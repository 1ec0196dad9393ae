//! `fathom fleet`: archives of many devices and days in one place, as files that any engine reads.

pub mod add;
pub mod collect;
pub mod log;
pub mod ls;
pub mod progress;
pub mod rows;
pub mod store;

use crate::args::{Fleet as Arguments, FleetVerb, Init};
use crate::engine::{Engine, Settings};
use crate::open;
use anyhow::{Result, bail};
use fleet::commits::{FORMAT, Info, VERSION};
use fleet::privacy::Rules;
use log::Fleet;
use std::io::Write;

/// `fathom fleet`; false if something was left out.
///
/// # Errors
/// With a text for people.
pub fn run(args: &Arguments) -> Result<bool> {
    crate::ask::runtime(0)?.block_on(async {
        tokio::select! {
            done = verb(&args.verb) => done,
            // Files that are not whole are removed on the way out.
            () = crate::ask::stopped() => bail!("stopped; what was committed stays, and the same command goes on from there"),
        }
    })
}

/// `fathom serve`.
///
/// # Errors
/// With a text for people.
pub fn serve(args: &crate::args::Serve) -> Result<bool> {
    crate::ask::runtime(0)?.block_on(async {
        tokio::select! {
            done = crate::serve::run(&args.fleet, args.listen, say) => done.map(|()| true),
            () = crate::ask::stopped() => Ok(true),
        }
    })
}

async fn verb(verb: &FleetVerb) -> Result<bool> {
    match verb {
        FleetVerb::Init(args) => {
            Fleet::init(&args.fleet, info(args)?).await?;
            say(&format!("{}: an empty fleet; `fathom fleet add` adds archives\n", args.fleet))?;
        }
        FleetVerb::Add(args) => {
            let mut fleet = Fleet::open(&args.fleet).await?;
            let dirs = open::archives(&args.archives)?;
            let options = add::Options { device: args.device.clone() };
            let said = add::add(&mut fleet, &dirs, &options).await?;
            for (dir, why) in &said.skipped {
                let lines = model::text::shown(&format!("{}: {why}", dir.display()));
                writeln!(std::io::stderr(), "fathom: left out: {lines}")?;
            }
            let known = if said.known > 0 { format!(", {} there already", said.known) } else { String::new() };
            let skipped =
                if said.skipped.is_empty() { String::new() } else { format!(", {} left out", said.skipped.len()) };
            say(&format!(
                "{} added ({} rows in {}){known}{skipped}\n",
                model::counted(said.added, "archive"),
                said.rows,
                model::counted(said.files, "file"),
            ))?;
            return Ok(said.skipped.is_empty());
        }
        FleetVerb::Ls(args) => {
            let fleet = Fleet::open(&args.fleet).await?;
            if args.check {
                let damaged = fleet.damaged().await?;
                for file in &damaged {
                    writeln!(std::io::stderr(), "fathom: {}", model::text::shown(file))?;
                }
                say(&format!(
                    "{} checked, {} damaged\n",
                    model::counted(fleet.state.files.len(), "file"),
                    damaged.len()
                ))?;
                return Ok(damaged.is_empty());
            }
            say(&match (&args.files, args.json) {
                (Some(table), _) => {
                    let table = Some(table.as_str()).filter(|table| !table.is_empty());
                    if let Some(table) = table.filter(|table| fleet::tables().all(|known| known.name != *table)) {
                        bail!("there is no table {table}");
                    }
                    ls::files(&fleet, table)
                }
                (None, true) => format!("{}\n", ls::json(&fleet)),
                (None, false) => ls::text(&fleet),
            })?;
        }
        FleetVerb::Report(args) => {
            let fleet = Fleet::open(&args.fleet).await?;
            let engine = Engine::over_fleet(&fleet, Settings::default())?;
            let page = crate::report::page(&engine, &format!("Fleet {}", args.fleet)).await?;
            let written = crate::output::whole_file(&args.output, async |out| {
                out.write_all(page.as_bytes()).map_err(|error| crate::output::Failed::Output(error.into()))
            });
            written.await.map_err(anyhow::Error::from)?;
            say(&format!("{}\n", args.output.display()))?;
        }
        FleetVerb::Gc(args) => {
            let mut fleet = Fleet::open(&args.fleet).await?;
            let said = collect::gc(&mut fleet, args.grace.saturating_mul(1_000_000_000)).await?;
            let waiting = match said.waiting {
                0 => String::new(),
                n => format!("; {} will be removed later", model::counted(n, "file")),
            };
            say(&format!(
                "{} merged into {}; {} removed ({}){waiting}\n",
                model::counted(said.merged, "file"),
                said.into,
                model::counted(said.removed, "file"),
                model::text::bytes(said.bytes as f64),
            ))?;
        }
    }
    Ok(true)
}

fn info(args: &Init) -> Result<Info> {
    let private = Rules { commands: args.commands.into(), paths: args.paths.into(), sql: args.sql.into() };
    if args.keep_raw && !private.keep_all() {
        bail!("--keep-raw would keep what the rules for commands, paths and SQL take out; leave one of them away");
    }
    Ok(Info {
        format: FORMAT.into(),
        version: VERSION,
        made_by: rows::made_by(),
        created_unix_ns: archive::unix_now_ns(),
        private,
        salt: rows::unique(),
        keep_raw: args.keep_raw,
        file_bytes: args.file_size,
    })
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    Ok(out.write_all(text.as_bytes()).and_then(|()| out.flush())?)
}
