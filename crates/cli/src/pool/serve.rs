//! `fathom pool serve`.

use super::front::Door;
use super::trust;
use crate::args::PoolServe;
use anyhow::Result;
use nbd::Export;
use nbd::memory::Memory;
use std::io::Write as _;
use std::process::ExitCode;
use std::rc::Rc;

pub fn run(args: &PoolServe) -> Result<ExitCode> {
    let key = trust::settle(&args.disk.trust, args.node.iter().copied())?;
    trust::open(args.disk.trust.insecure, "serve by a Unix socket", super::reachable(&args.nbd))?;
    super::local(1, async {
        match args.backend {
            Some(size) => serve(args, Rc::new(Memory::new(size))).await,
            None => serve(args, super::join(&args.node, &args.disk, key, &pool::link::Control::Tuned).await?).await,
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
