//! `fathom pool keygen`.

use crate::args::PoolKeygen;
use anyhow::Result;
use model::text::ShownPath as _;
use std::process::ExitCode;
use wire::Key;

pub fn run(args: &PoolKeygen) -> Result<ExitCode> {
    let key = Key::generate()?;
    key.write(&args.file)?;
    println!("{}", key.fingerprint());
    eprintln!(
        "fathom: wrote the key to {}; copy it to every node and the coordinator over a trusted channel, and give it \
         to them as --key",
        args.file.shown()
    );
    Ok(ExitCode::SUCCESS)
}
