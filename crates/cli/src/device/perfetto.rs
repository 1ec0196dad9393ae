//! `fathom record --device adb:… --via perfetto`: the device's own tracer is asked to record, its file is brought here and imported. No
//! root is needed: a shell may use `perfetto`, and traced writes only where it may (/data/misc/perfetto-traces).

use crate::args::Record;
use crate::{notices, output, progress};
use anyhow::{Context as _, Result, bail};
use device::remote::DeviceAddress;
use device::remote::perfetto::{self, Config};
use model::counted;
use model::text::ShownPath as _;
use recorder::Import;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The default duration of a trace.
const DURATION: Duration = Duration::from_secs(10);

pub fn run(args: &Record, place: &DeviceAddress) -> Result<ExitCode> {
    let DeviceAddress::Adb(_) = place else {
        return Err(crate::Usage(format!("--via perfetto needs an Android device (adb:SERIAL), not {place}")).into());
    };
    if !args.command.is_empty() {
        return Err(crate::Usage(
            "--via perfetto records the whole device: give --duration, and start the program there meanwhile".into(),
        )
        .into());
    }
    let context = progress::context(args.quiet);
    progress::end_on_signal(&context);
    let config = Config { duration: args.duration.unwrap_or(DURATION), max_bytes: args.max_size };
    let mut name = args.output.as_os_str().to_owned();
    name.push(".pftrace");
    let file = PathBuf::from(name);
    let took = perfetto::record(place, &config, &file, &context, &mut |line| {
        if !args.quiet {
            eprintln!("fathom: {line}");
        }
    });
    progress::clear(&context);
    let bytes = took?;
    if bytes == 0 {
        bail!("{place}: its perfetto recorded nothing");
    }
    let notify = |notice| if args.quiet { notices::warn(notice) } else { notices::print(notice) };
    let request =
        Import { files: vec![file.clone()], output: args.output.clone(), keep_sql: args.keep_sql, machine: None };
    let imported = recorder::import(&request, &context, &notify);
    progress::clear(&context);
    let imported = imported
        .with_context(|| format!("{} of {place} was kept as {}", counted(bytes as usize, "byte"), file.shown()))?;
    recorder::output::give_to_caller(&args.output)?;
    if !args.quiet {
        eprintln!(
            "{}: {} of {place}, in {}",
            args.output.shown(),
            counted(imported.taken as usize, "event"),
            output::word(&file)
        );
        if !imported.blind.is_empty() {
            let layers: Vec<&str> = imported.blind.iter().map(|layer| layer.name()).collect();
            eprintln!("blind: {}", layers.join(", "));
        }
        eprintln!("next: fathom show {0}, or fathom report {0}", output::word(&args.output));
    }
    Ok(ExitCode::SUCCESS)
}
