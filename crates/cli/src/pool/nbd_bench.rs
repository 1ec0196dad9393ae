//! `fathom pool bench --nbd`.

use crate::args::PoolBench;
use anyhow::Result;
use pool::nbd_bench::{Load, Uri};
use pool::show::bench::Document;
use pool::show::nbd::{lines, table};
use std::process::ExitCode;

pub fn run(args: &PoolBench, uri: &Uri) -> Result<ExitCode> {
    let load = Load {
        block_bytes: args.load.block,
        depth: args.load.depth(),
        batch: args.control.batch,
        duration: args.load.duration,
        write: args.write,
        fill: args.server.fill,
        compare: args.server.fill && !args.no_checksum,
        seed: args.load.seed,
        server: args.server.server_pid,
    };
    let figures = pool::nbd_bench::run(uri, &load)?;
    if args.paper.lines {
        println!("{}", lines(&figures).join("\n"));
    } else if args.load.json {
        println!("{}", serde_json::to_string(&Document::new(&figures))?);
    } else {
        println!("{}", table(&figures));
    }
    Ok(if figures.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
