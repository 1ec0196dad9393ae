//! `fathom lab shell`: a terminal in a guest. What is typed goes there as it is, and what comes back goes out as it is: it is the
//! user's own session, as with ssh.

use super::{folder, run::explained};
use crate::{Usage, args, output, progress};
use anyhow::{Context as _, Result};
use lab::run::{NotStarted, Options};
use lab::scenario::{self, Scenario};
use std::io::{IsTerminal as _, Read, Write};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

/// The end of a terminal's input: Ctrl-D.
const END: u8 = 4;

pub fn run(args: &args::LabShell) -> Result<ExitCode> {
    let usage = |error: scenario::Error| anyhow::Error::new(Usage(error.to_string()));
    let scenario = match &args.scenario {
        Some(word) => scenario::find(word, &args.set).map(|(_, scenario)| scenario),
        None => Scenario::parse("--disk", &of_disks(&args.disk), &args.set),
    };
    let scenario = scenario.map_err(usage)?;
    let cache = folder::cache(args.cache.as_deref())?;
    let program = args.program.clone().map_or_else(std::env::current_exe, std::path::absolute);
    let program = program.context("where this program is")?;
    lab::guest::available().map_err(explained)?;
    let temporary = tempfile::tempdir().context("cannot create a folder")?;
    let share = args.output.as_deref().unwrap_or(temporary.path());
    std::fs::create_dir_all(share).with_context(|| format!("cannot create {}", share.display()))?;
    let context = progress::context(false);
    progress::end_on_signal(&context);
    let options = Options { cache: &cache, program: &program, folder: share, keep: false };
    let mut attached = None;
    let ended = lab::run::shell(&scenario, &options, &context, |terminal| attached = attach(terminal));
    progress::clear(&context);
    if let Some((_raw, printing)) = attached {
        // The guest has ended, and with it what it prints.
        let _ = printing.join();
    }
    match ended {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(_) if context.cancelled() => Ok(ExitCode::from(crate::bench::INTERRUPTED)),
        Err(NotStarted::Wrong(error)) => Err(usage(error)),
        Err(NotStarted::Lab(error)) => Err(explained(error)),
    }
}

/// A scenario of these disks, with ext4 on the first.
fn of_disks(disks: &[String]) -> String {
    let mut text = "about = \"a shell\"\n".to_string();
    for (i, disk) in disks.iter().enumerate() {
        let (bus, size) = disk.split_once(':').unwrap_or((disk, "256M"));
        text += &format!("[disk.disk{i}]\nbus = {bus:?}\nsize = {size:?}\n");
    }
    text + "[filesystem]\ntype = \"ext4\"\ndisk = \"disk0\"\n[workload]\ncommands = [\"true\"]\n"
}

/// Joins our terminal and the guest's, until that is gone.
fn attach(terminal: UnixStream) -> Option<(Raw, std::thread::JoinHandle<()>)> {
    let mut to = terminal.try_clone().ok()?;
    let raw = Raw::enter();
    // What comes before the shell has opened its terminal would be lost: it speaks first.
    let (spoke, speaks) = std::sync::mpsc::channel();
    // Ends with the program: nothing else wakes a thread that waits for a key.
    std::thread::spawn(move || {
        if speaks.recv().is_err() {
            return;
        }
        let mut keys = [0; 1024];
        let mut stdin = std::io::stdin();
        while let Ok(n @ 1..) = stdin.read(&mut keys) {
            if to.write_all(&keys[..n]).is_err() {
                return;
            }
        }
        let _ = to.write_all(&[END]);
    });
    let mut from = terminal;
    let printing = std::thread::spawn(move || {
        let mut bytes = [0; 4096];
        while let Ok(n @ 1..) = from.read(&mut bytes) {
            // The other thread listens once only.
            let _ = spoke.send(());
            let _ = output::Stdout.write_all(&bytes[..n]).and_then(|()| output::Stdout.flush());
        }
    });
    Some((raw, printing))
}

/// Our terminal, handing on every key; as it was when this is dropped.
struct Raw(Option<libc::termios>);

impl Raw {
    fn enter() -> Self {
        let stdin = std::io::stdin();
        if !stdin.is_terminal() {
            return Self(None);
        }
        // SAFETY: the struct is plain data, valid when zeroed, and the calls fill or read it.
        unsafe {
            let mut before: libc::termios = std::mem::zeroed();
            if libc::tcgetattr(stdin.as_raw_fd(), &raw mut before) != 0 {
                return Self(None);
            }
            let mut raw = before;
            libc::cfmakeraw(&raw mut raw);
            libc::tcsetattr(stdin.as_raw_fd(), libc::TCSANOW, &raw const raw);
            Self(Some(before))
        }
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            // SAFETY: what was read from this terminal is given back to it.
            unsafe { libc::tcsetattr(std::io::stdin().as_raw_fd(), libc::TCSANOW, before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_form_scenario() {
        let scenario = Scenario::parse("--disk", &of_disks(&["nvme:1G".into(), "sd".into()]), &[]).unwrap();
        assert_eq!(scenario.disk["disk0"].size, scenario::Bytes(1 << 30));
        assert_eq!(scenario.disk["disk1"].bus, scenario::Bus::Sd);
        let wrong = Scenario::parse("--disk", &of_disks(&["usb\"\nx".into()]), &[]).unwrap_err().to_string();
        assert!(wrong.contains("unknown variant"), "{wrong}");
    }
}
