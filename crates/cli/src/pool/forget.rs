//! `fathom pool forget`.

use crate::args::PoolForget;
use anyhow::{Context as _, Result, ensure};
use model::text::ShownPath as _;
use pool::store::Store;
use std::process::ExitCode;

pub fn run(args: &PoolForget) -> Result<ExitCode> {
    let path = args.store.shown();
    let store = Store::open(&args.store)?;
    let (header, used) = (store.header(), store.used_bytes());
    let Some(place) = header.place else {
        eprintln!("fathom: {path} belongs to no pool");
        return Ok(ExitCode::SUCCESS);
    };
    ensure!(
        used == 0 || args.with_data,
        "{path} is {place} of the pool {:?} and contains {used} bytes of its data, which the pool would lose; give \
         --with-data to remove it anyway",
        header.pool
    );
    store.forget().and_then(|()| store.close()).with_context(|| format!("cannot write {path}"))?;
    eprintln!("fathom: {path}, {place} of the pool {:?}, now belongs to no pool", header.pool);
    Ok(ExitCode::SUCCESS)
}
