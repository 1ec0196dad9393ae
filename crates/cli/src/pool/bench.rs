//! `fathom pool bench`.

use super::auth;
use crate::args::{Paper, PoolBench};
use anyhow::{Result, anyhow};
use pool::bench::Load;
use pool::link::Options;
use pool::show::bench::{COLUMN_NOTES, Document, PAPER_COLUMN_NOTES, heading, line, lines};
use std::process::ExitCode;

pub fn run(args: &PoolBench) -> Result<ExitCode> {
    let paper = &args.paper;
    if let Some(uri) = &args.server.nbd {
        return super::nbd_bench::run(args, uri);
    }
    if paper.paper_figures {
        return super::figures::run(args);
    }
    if let Some(nodes) = paper.nodes.filter(|_| paper.compute) {
        return super::started::compute(args, nodes);
    }
    if let Some(nodes) = paper.nodes {
        return super::started::run(args, nodes);
    }
    if !paper.at.is_empty() && paper.paper != Some(Paper::Cluster) {
        return Err(crate::Usage("--at starts the paper's nodes; use it with --paper, not --paper=load".into()).into());
    }
    let (figures, by) = if paper.paper == Some(Paper::Cluster) {
        let measured = if paper.at.is_empty() { super::paper::bench(args)? } else { super::at::bench(args)? };
        let checked = measured.checked;
        (measured.figures, format!("{checked} answers verified"))
    } else {
        let key = auth::key(&args.disk.trust, args.node.iter().copied())?;
        let figures = super::local(1, async {
            if !args.take_over {
                super::is_free(&args.node, &args.disk, key.clone()).await?;
            }
            let volume = super::join_volume(
                &args.node,
                &args.disk,
                key,
                &super::control_from_args(&args.control),
                Options::default(),
            )
            .await?;
            let load = args.load.load(args.load.requesters());
            let load = Load { write: args.write, checked: !args.no_checksum, ..load };
            // The error is not Send, like everything that stays on a node's thread.
            pool::bench::run(volume, load).await.map_err(|error| anyhow!("{error}"))
        })?;
        let checked =
            if args.no_checksum { "no answer was verified" } else { "every answer matches its store's checksum" };
        (figures, format!("{checked}; {} failed", figures.failed))
    };
    if paper.lines {
        println!("{}", lines(&figures, &by).join("\n"));
    } else if args.load.json {
        println!("{}", serde_json::to_string(&Document::new(&figures))?);
    } else {
        let units = if paper.paper == Some(Paper::Cluster) { PAPER_COLUMN_NOTES } else { COLUMN_NOTES };
        println!("{}\n{}\n\n{units}", heading(), line("", &figures));
    }
    Ok(if figures.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
