//! `fathom workload`: a benchmark's replicate, a process that says what it measured as JSON lines.

use crate::args;
use anyhow::{Result, bail};
use std::io::Write;
use std::process::ExitCode;

pub fn run(args: &args::Workload) -> Result<ExitCode> {
    let (name, options) = args.words.split_first().expect("clap requires a name");
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let status = match name.as_str() {
        "sqlite" => workload::sqlite::run(options, &mut out)?,
        other => bail!("there is no workload `{other}`; there is: sqlite"),
    };
    out.flush()?;
    Ok(ExitCode::from(status))
}
