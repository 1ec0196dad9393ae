//! `fathom explain`: where the time of a recording's statements goes.

use crate::{args, diff, output};
use anyhow::Result;

pub fn run(args: &args::Explain) -> Result<()> {
    let archive = diff::open_recording(&args.archive, "`fathom bench show` shows its results", args.json)?;
    let explanation = verdicts::explain::explain_archive(&archive)?;
    output::print_result(args.json, &explanation, || verdicts::explain::text::text(&explanation))?;
    Ok(())
}
