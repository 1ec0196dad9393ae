//! `fathom pool node --device` and `fathom net serve --device`: this program serves there until `fathom device stop` ends it.

use crate::args::ServiceDevice;
use crate::{Usage, progress};
use anyhow::{Context as _, Result};
use device::remote::{DeviceAddress, Note, Service, in_guest};
use model::text::ShownPath as _;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// The key's name in the service's folder.
const KEY: &str = "key";
/// Whoever started it there ends it.
const HOSTED: &str = "--hosted";

/// Starts what this program was asked for, there. `kind` begins its name; `key` is copied into its folder.
pub fn run(kind: &str, at: &ServiceDevice, key: Option<&Path>) -> Result<ExitCode> {
    let Some(place) = &at.device else { return Ok(ExitCode::FAILURE) };
    if matches!(place, DeviceAddress::Local | DeviceAddress::Netns(_)) {
        return Err(Usage(format!("--device {place}: a service of this machine is started without --device")).into());
    }
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let words = words(&given);
    let mut words =
        words.map_err(|word| Usage(format!("{}: words for a device must be UTF-8", Path::new(&word).shown())))?;
    let mut files = Vec::new();
    if let Some(key) = key {
        files.push((KEY.into(), std::fs::read(key).with_context(|| format!("cannot read {}", key.shown()))?));
    }
    let context = progress::context(matches!(place, DeviceAddress::Lab(_)));
    progress::end_on_signal(&context);
    if let DeviceAddress::Lab(name) = place {
        return Ok(ExitCode::from(in_guest::serve(name, &files, &words, &context)?));
    }
    words.push(HOSTED.into());
    let name = super::result::name(kind);
    let service = Service { place, binaries: &at.binary, name: &name, files: &files, words: &words };
    let mut said = Vec::new();
    let started = device::remote::serve(&service, &context, &mut |note| match note {
        Note::Said(line) => eprintln!("fathom: {line}"),
        Note::Err(bytes) => said.extend_from_slice(bytes),
        Note::Out(_) | Note::Brought(_) => {}
    });
    progress::clear(&context);
    for line in String::from_utf8_lossy(&said).lines() {
        eprintln!("{}", analysis::text::shown(line));
    }
    let started = match started {
        Err(_) if context.cancelled() => return Err(crate::Interrupted.into()),
        started => started?,
    };
    Ok(match started.ready {
        Ok(line) => {
            println!("{}", analysis::text::shown(&line));
            eprintln!(
                "fathom: {name} runs on {0}, also when it is disconnected, until `fathom device stop {0}`",
                started.place
            );
            ExitCode::SUCCESS
        }
        Err(status) => ExitCode::from(status),
    })
}

/// The same words, without those that say where, and with the key's name there; the first that is no text.
fn words(given: &[OsString]) -> Result<Vec<String>, OsString> {
    let mut words = Vec::new();
    let mut given = given.iter();
    while let Some(word) = given.next() {
        let text = word.to_string_lossy();
        let (option, value) = text.split_once('=').map_or((&*text, None), |(o, v)| (o, Some(v)));
        match option {
            "--device" | "--binary" => drop(value.is_none().then(|| given.next())),
            "--key" => {
                let _ = value.is_none().then(|| given.next());
                words.push(format!("--key={KEY}"));
            }
            _ => words.push(word.clone().into_string()?),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt as _;

    #[test]
    fn words_name_key_and_no_device() {
        let given = "pool node --device adb:X --backend memory:1M --binary=f --key secret --listen 0.0.0.0:0";
        let given: Vec<OsString> = given.split(' ').map(Into::into).collect();
        let there = words(&given).map(|words| words.join(" "));
        assert_eq!(there.as_deref(), Ok("pool node --backend memory:1M --key=key --listen 0.0.0.0:0"));
    }

    #[test]
    fn words_that_are_no_text_are_refused() {
        let odd = OsString::from_vec(vec![b's', 0xff]);
        let node = ["pool", "node", "--key"].map(OsString::from);
        // What stays here may have any name.
        assert!(words(&[&node[..], std::slice::from_ref(&odd)].concat()).is_ok());
        let store = [&node[..2], &["--store".into(), odd.clone()]].concat();
        assert_eq!(words(&store), Err(odd));
    }
}
