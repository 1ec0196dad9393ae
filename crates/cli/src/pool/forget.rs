//! `fathom pool forget`.

use crate::args::PoolForget;
use anyhow::{Context as _, Result, ensure};
use pool::store::Store;
use std::process::ExitCode;

pub fn run(args: &PoolForget) -> Result<ExitCode> {
    let path = args.store.display();
    let store = Store::open(&args.store)?;
    let (header, used) = (store.header(), store.used_bytes());
    let Some(place) = header.place else {
        eprintln!("fathom: {path} belongs to no pool");
        return Ok(ExitCode::SUCCESS);
    };
    ensure!(
        used == 0 || args.with_data,
        "{path} is {place} of the pool {:?} and has {used} bytes of its data, which no pool finds again after this; --with-data forgets \
         the pool all the same",
        header.pool
    );
    store.forget().and_then(|()| store.close()).with_context(|| format!("cannot write {path}"))?;
    eprintln!("fathom: {path} was {place} of the pool {:?}, and belongs to no pool now", header.pool);
    Ok(ExitCode::SUCCESS)
}
