//! `fathom whatif`: what a recording's statements would take without something, or on another device.

use crate::{Usage, args, diff, output};
use analysis::Rows;
use anyhow::{Context as _, Result};
use model::text::ShownPath as _;
use std::path::Path;
use verdicts::whatif::{self, PredictionRequest};

pub fn run(args: &args::Whatif) -> Result<()> {
    if args.without.is_empty() && args.device.is_none() && args.queue.is_none() {
        return Err(Usage("nothing to change: give --without, --device or --queue".into()).into());
    }
    let load = |path: &Path| -> Result<Rows> {
        let archive = diff::open_recording(path, "`fathom bench show` shows its results", args.json)?;
        Ok(Rows::load(&archive)?)
    };
    let rows = load(&args.archive)?;
    let device = args.device.as_deref().map(load).transpose()?;
    let asked = PredictionRequest {
        without: args.without.clone(),
        device: device.as_ref(),
        queue: args.queue,
        seed: args.seed,
    };
    let prediction = whatif::predict(&rows, &asked).with_context(|| args.archive.shown().to_string())?;
    output::print_result(args.json, &prediction, || whatif::text::text(&prediction))?;
    Ok(())
}
