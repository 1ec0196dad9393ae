//! INSERTs recorded on two machines, this one and a device or two devices: the papers' load, with the journal mode of each. The only
//! program that it needs is this one, which is there already.

use super::record;
use crate::output::INTERRUPTED_STATUS;
use crate::{Interrupted, args, link, notices, own_load, progress};
use anyhow::{Result, bail};
use device::remote::{DeviceAddress, PROGRAM_PLACEHOLDER};
use papers::Figure;
use scores::measure::once::Load;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The papers' figures of a recording, or why there is none.
pub type Figures = Result<Vec<Figure>, String>;

/// The path of a device's recording in the common directory.
pub fn recording_path(directory: &Path, place: &DeviceAddress) -> PathBuf {
    directory.join(format!("{}-inserts.fathom", place.file_name()))
}

/// Records INSERTs and scans on each machine in its own journal mode; `binaries` are this program for other processors. Returns
/// nothing if somebody interrupted.
pub fn record_both(
    sides: [(&DeviceAddress, &str); 2],
    (rows, scans): (u64, u64),
    directory: &Path,
    binaries: &[PathBuf],
) -> Result<Option<[Figures; 2]>> {
    let mut both = Vec::new();
    for (place, journal_mode) in sides {
        let (path, load) = (recording_path(directory, place), Load { rows, scans, journal_mode, directory: "." });
        let recorded = match place {
            DeviceAddress::Local => record_here(&load, &path),
            _ => record_there(place, &load, &path, binaries),
        };
        both.push(match recorded {
            Err(error) if error.is::<Interrupted>() => return Ok(None),
            Err(why) => Err(crate::error_sentence(&why)),
            Ok(()) => read_figures(&path).map_err(|why| crate::error_sentence(&why)),
        });
    }
    Ok(both.try_into().ok())
}

fn record_here(load: &Load<'_>, path: &Path) -> Result<()> {
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let done = recorder::record(&own_load::recording_request(load, path)?, &context, &notices::print_warning);
    progress::clear(&context);
    match done {
        _ if context.cancelled() => Err(Interrupted.into()),
        Ok(done) if done.status != 0 => bail!("the workload ended with status {}", done.status),
        done => Ok(done.map(drop)?),
    }
}

fn record_there(place: &DeviceAddress, load: &Load<'_>, path: &Path, binaries: &[PathBuf]) -> Result<()> {
    let mut words: Vec<String> = ["record", "--quiet"].map(String::from).to_vec();
    words.push(format!("--device={place}"));
    words.push(format!("--output={}", path.to_string_lossy()));
    words.extend(binaries.iter().map(|binary| format!("--binary={}", binary.to_string_lossy())));
    words.extend(["--", PROGRAM_PLACEHOLDER, "workload"].map(String::from));
    words.extend(load.words("none"));
    let args::Verb::Record(request) = args::parse_words(&words)? else { bail!("it cannot be recorded") };
    match record::record_alone(&request, &words, place)? {
        done if done.code == ExitCode::SUCCESS => Ok(()),
        done if done.code == ExitCode::from(INTERRUPTED_STATUS) => Err(Interrupted.into()),
        record::DeviceRecording { lost: Some(why), .. } => bail!(why),
        _ => bail!("it cannot be recorded there: `fathom device check {place}` shows why"),
    }
}

fn read_figures(path: &Path) -> Result<Vec<Figure>> {
    let archive = link::open(path, &progress::context(true))?;
    Ok(papers::measured_figures(&analysis::summarise_archive(&archive)?))
}
