//! `fathom pool serve`.

use super::front::Door;
use crate::args::PoolServe;
use anyhow::Result;
use nbd::Export;
use nbd::memory::Memory;
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;

pub fn run(args: &PoolServe) -> Result<ExitCode> {
    let addresses = args.node.iter().copied().chain(super::reachable(&args.nbd));
    if !super::allowed(args.disk.insecure, addresses) {
        return Ok(ExitCode::from(2));
    }
    super::local(1, async {
        match args.backend {
            Some(size) => serve(args, Rc::new(Memory::new(size))).await,
            None => serve(args, super::join(&args.node, &args.disk, &pool::link::Control::Tuned).await?).await,
        }
    })?;
    Ok(ExitCode::SUCCESS)
}

async fn serve<E: Export + 'static>(args: &PoolServe, disk: Rc<E>) -> Result<()> {
    let door = Door::open(&args.nbd).await?;
    // Alone on stdout, for scripts.
    println!("{}", door.uri()?);
    std::io::stdout().flush()?;
    eprintln!("fathom: a disk of {} bytes; Ctrl-C ends it", disk.info().size_bytes);
    tokio::select! {
        () = door.serve(disk.clone()) => Ok(()),
        ended = super::ended() => {
            ended?;
            // What clients did not flush themselves is theirs to lose, but nothing is gained by losing it.
            Ok(disk.flush().await?)
        }
    }
}
