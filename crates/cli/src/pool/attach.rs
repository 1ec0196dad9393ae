//! `fathom pool attach`: makes a served pool a block device of this machine, by whatever means this machine has for
//! that.

use crate::args::PoolAttach;
use crate::{Usage, output};
use anyhow::{Context as _, Result};
use pool::attach::{AttachMethod, AvailableTools, attach_commands, choose_method, default_device, endpoint_uri};
use pool::kernel::{AttachedDisk, State, device_index};
use pool::listener::Endpoint;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

pub fn run(args: &PoolAttach) -> Result<ExitCode> {
    let way = match (choose_method(AvailableTools::detect(), args.with), args.dry_run) {
        (Ok(way), _) => way,
        // A dry run works anywhere.
        (Err(_), true) => args.with.unwrap_or(AttachMethod::Kernel),
        (Err(why), false) => {
            let advice = "nbdcopy, fio, qemu and nbdfuse can use a pool that is not attached";
            return Err(Usage(format!("cannot attach a pool on this machine: {why}; {advice}")).into());
        }
    };
    let device = args.device.as_deref().map_or(default_device(way).into(), Path::to_string_lossy);
    let (attach, detach) = attach_commands(way, &args.nbd, &device);
    if way == AttachMethod::Kernel && !args.dry_run {
        return attach_kernel(&args.nbd, &device);
    }
    // Quoted for a shell.
    let line = |words: &[String]| words.iter().map(|word| output::word(Path::new(word))).collect::<Vec<_>>().join(" ");
    println!("{}", line(&attach));
    if args.dry_run {
        println!("{}", line(&detach));
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("fathom: to detach, before stopping the coordinator: {}", line(&detach));
    let status = Command::new(&attach[0]).args(&attach[1..]).status();
    let status = status.with_context(|| format!("cannot start {}", attach[0]))?;
    if !status.success() {
        anyhow::bail!("{} failed ({status}); it needs root and a running coordinator at that address", attach[0]);
    }
    eprintln!("fathom: attached the pool as {device}");
    Ok(ExitCode::SUCCESS)
}

/// Attaches the disk, maintains the connection until it is ended or the disk is detached by another process, and
/// detaches the disk.
fn attach_kernel(endpoint: &Endpoint, device: &str) -> Result<ExitCode> {
    let index =
        device_index(device).ok_or_else(|| Usage(format!("{device} is not an NBD device such as /dev/nbd0")))?;
    super::local(1, async {
        let ended = super::end_signal()?;
        let attached = AttachedDisk::new(&endpoint_uri(endpoint), index)?;
        println!("{device}");
        std::io::stdout().flush()?;
        eprintln!("fathom: attached the pool as {device}; Ctrl-C detaches it (umount first)");
        let changed = |state| match state {
            State::Connected => eprintln!("fathom: {device} reconnected"),
            State::Away => eprintln!("fathom: lost the coordinator; requests to {device} wait for it"),
            State::Detached => eprintln!("fathom: {device} was detached"),
        };
        attached.maintain(ended, changed).await?;
        Ok(ExitCode::SUCCESS)
    })
}
