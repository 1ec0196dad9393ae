//! `fathom pool attach`: makes a served pool a block device of this machine, with whatever this machine has for that.
//!
//! There are four ways: `nbdublk` (ublk; the fastest, kernel 6.0), the kernel's own NBD client by this program, which stays and brings it
//! a new connection after a restart of the coordinator, and the same by `nbd-client` or `qemu-nbd`, which do not. Which of them can be
//! gone is found out first; what each lacks is said if none can.

use crate::args::{AttachWith, Front, PoolAttach};
use crate::{Usage, say};
use anyhow::{Context as _, Result};
use pool::kernel::{Attached, State};
use pool::nbd_bench::{Place, To, escaped};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// How often the connection is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What this machine has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Found {
    nbdublk: bool,
    nbd_client: bool,
    qemu_nbd: bool,
    /// `/dev/ublk-control`.
    ublk: bool,
    /// `/dev/nbd0`.
    nbd: bool,
}

impl Found {
    fn look() -> Self {
        let program = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
            std::env::split_paths(&path).chain(usual).any(|folder| folder.join(name).is_file())
        };
        Self {
            nbdublk: program("nbdublk"),
            nbd_client: program("nbd-client"),
            qemu_nbd: program("qemu-nbd"),
            ublk: Path::new("/dev/ublk-control").exists(),
            nbd: Path::new("/dev/nbd0").exists(),
        }
    }

    fn has(self, with: AttachWith) -> bool {
        match with {
            AttachWith::Nbdublk => self.nbdublk && self.ublk,
            AttachWith::Kernel => self.nbd,
            AttachWith::NbdClient => self.nbd_client && self.nbd,
            AttachWith::QemuNbd => self.qemu_nbd && self.nbd,
        }
    }

    /// What is missing for a way, as things to do.
    fn missing(self, with: AttachWith) -> Vec<&'static str> {
        let kernel_nbd = (!self.nbd).then_some("the kernel's NBD client (`modprobe nbd`, or a kernel that has it)");
        let (program, kernel) = match with {
            AttachWith::Nbdublk => (
                (!self.nbdublk).then_some("the program nbdublk (of libnbd)"),
                (!self.ublk).then_some("the kernel's ublk driver (`modprobe ublk_drv`, kernel 6.0 or later)"),
            ),
            AttachWith::Kernel => (None, kernel_nbd),
            AttachWith::NbdClient => {
                ((!self.nbd_client).then_some("the program nbd-client (`apt-get install nbd-client`)"), kernel_nbd)
            }
            AttachWith::QemuNbd => {
                ((!self.qemu_nbd).then_some("the program qemu-nbd (`apt-get install qemu-utils`)"), kernel_nbd)
            }
        };
        program.into_iter().chain(kernel).collect()
    }
}

const WAYS: [AttachWith; 4] = [AttachWith::Nbdublk, AttachWith::Kernel, AttachWith::NbdClient, AttachWith::QemuNbd];

/// The way to go, or what is missing for each.
fn choose(found: Found, wanted: Option<AttachWith>) -> Result<AttachWith, String> {
    let ways: Vec<AttachWith> = WAYS.into_iter().filter(|way| wanted.is_none_or(|wanted| wanted == *way)).collect();
    if let Some(way) = ways.iter().find(|way| found.has(**way)) {
        return Ok(*way);
    }
    let lacks = |way: &AttachWith| format!("{} lacks {}", name(*way), found.missing(*way).join(" and "));
    Err(ways.iter().map(lacks).collect::<Vec<_>>().join("; "))
}

fn name(way: AttachWith) -> &'static str {
    match way {
        AttachWith::Nbdublk => "nbdublk",
        AttachWith::Kernel => "this program",
        AttachWith::NbdClient => "nbd-client",
        AttachWith::QemuNbd => "qemu-nbd",
    }
}

/// The command that attaches, and the one that detaches.
fn commands(way: AttachWith, front: &Front, device: &str) -> (Vec<String>, Vec<String>) {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let uri = match front {
        Front::Unix(path) => format!("nbd+unix:///pool?socket={}", escaped(path)),
        Front::Tcp(address) => format!("nbd://{address}/pool"),
    };
    match (way, front) {
        (AttachWith::Kernel, front) => {
            let front = match front {
                Front::Unix(path) => format!("unix:{}", path.display()),
                Front::Tcp(address) => format!("tcp:{address}"),
            };
            (words(&["fathom", "pool", "attach", "--with", "kernel", "--device", device, &front]), words(&["Ctrl-C"]))
        }
        (AttachWith::Nbdublk, _) => {
            (words(&["nbdublk", device, &uri]), words(&["ublk", "del", "-n", device.trim_start_matches("/dev/ublkb")]))
        }
        (AttachWith::QemuNbd, _) => (
            words(&["qemu-nbd", "--fork", "--connect", device, "--format=raw", &uri]),
            words(&["qemu-nbd", "--disconnect", device]),
        ),
        (AttachWith::NbdClient, Front::Unix(path)) => (
            words(&["nbd-client", "-unix", &path.to_string_lossy(), device, "-name", "pool", "-block-size", "4096"]),
            words(&["nbd-client", "-d", device]),
        ),
        (AttachWith::NbdClient, Front::Tcp(address)) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let attach = ["nbd-client", &host, &port, device, "-name", "pool", "-block-size", "4096"];
            (words(&attach), words(&["nbd-client", "-d", device]))
        }
    }
}

pub fn run(args: &PoolAttach) -> Result<ExitCode> {
    let found = Found::look();
    let way = match (choose(found, args.with), args.dry_run) {
        (Ok(way), _) => way,
        // What would be done can be told anywhere.
        (Err(_), true) => args.with.unwrap_or(AttachWith::Kernel),
        (Err(why), false) => {
            let advice = "nbdcopy, fio, qemu and nbdfuse use a pool without being attached";
            return Err(Usage(format!("this machine cannot attach a pool yet: {why}; {advice}")).into());
        }
    };
    let usual = if way == AttachWith::Nbdublk { "/dev/ublkb0" } else { "/dev/nbd0" };
    let device = args.device.as_deref().map_or(usual.into(), Path::to_string_lossy);
    let (attach, detach) = commands(way, &args.nbd, &device);
    if way == AttachWith::Kernel && !args.dry_run {
        return stay(&args.nbd, &device);
    }
    // As a shell takes them.
    let line = |words: &[String]| words.iter().map(|word| say::word(Path::new(word))).collect::<Vec<_>>().join(" ");
    println!("{}", line(&attach));
    if args.dry_run {
        println!("{}", line(&detach));
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("fathom: to detach it, before the coordinator ends: {}", line(&detach));
    let status = Command::new(&attach[0]).args(&attach[1..]).status();
    let status = status.with_context(|| format!("cannot start {}", attach[0]))?;
    if !status.success() {
        anyhow::bail!("{} failed ({status}); it needs root, and a pool that is served there", attach[0]);
    }
    eprintln!("fathom: {device} is the pool now");
    Ok(ExitCode::SUCCESS)
}

/// Attaches, looks after the connection until it is ended or somebody detaches the disk, and detaches.
fn stay(front: &Front, device: &str) -> Result<ExitCode> {
    let index = device.strip_prefix("/dev/nbd").and_then(|number| number.parse().ok());
    let index =
        index.ok_or_else(|| Usage(format!("{device} is no device of the kernel's NBD client, such as /dev/nbd0")))?;
    let to = match front {
        Front::Unix(path) => To::Unix(path.clone()),
        Front::Tcp(address) => To::Tcp(address.ip().to_string(), address.port()),
    };
    let place = Place { export: "pool".into(), to };
    super::local(1, async {
        let mut ended = pin!(super::ended()?);
        let mut attached = Attached::new(&place, index)?;
        println!("{device}");
        std::io::stdout().flush()?;
        eprintln!("fathom: {device} is the pool now; Ctrl-C detaches it (umount first)");
        let mut before = State::Connected;
        while before != State::Detached {
            tokio::select! {
                () = &mut ended => {
                    attached.detach()?;
                    break;
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            let now = attached.step()?;
            match now {
                _ if now == before => {}
                State::Connected => eprintln!("fathom: {device} is connected again"),
                State::Away => eprintln!("fathom: the coordinator is gone; what {device} is asked waits for it"),
                State::Detached => eprintln!("fathom: {device} was detached"),
            }
            before = now;
        }
        Ok(ExitCode::SUCCESS)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_taken_and_what_is_missing_is_said() {
        let nothing = choose(Found::default(), None).expect_err("there is nothing");
        for words in ["nbdublk lacks", "modprobe ublk_drv", "apt-get install nbd-client", "qemu-utils", "modprobe nbd"]
        {
            assert!(nothing.contains(words), "{nothing}");
        }
        let kernel = Found { nbd: true, ..Found::default() };
        assert!(!choose(kernel, Some(AttachWith::NbdClient)).expect_err("no program").contains("modprobe"));
        assert_eq!(choose(kernel, None), Ok(AttachWith::Kernel));
        let both = Found { nbd_client: true, qemu_nbd: true, ..kernel };
        assert_eq!(choose(both, None), Ok(AttachWith::Kernel));
        assert_eq!(choose(both, Some(AttachWith::NbdClient)), Ok(AttachWith::NbdClient));
        assert_eq!(choose(both, Some(AttachWith::QemuNbd)), Ok(AttachWith::QemuNbd));
        assert_eq!(choose(Found { nbdublk: true, ublk: true, ..both }, None), Ok(AttachWith::Nbdublk));
    }

    #[test]
    fn commands_name_the_export_and_the_device() {
        let front = Front::Tcp(([127, 0, 0, 1], 10_809).into());
        let (attach, detach) = commands(AttachWith::NbdClient, &front, "/dev/nbd3");
        assert_eq!(attach.join(" "), "nbd-client 127.0.0.1 10809 /dev/nbd3 -name pool -block-size 4096");
        assert_eq!(detach.join(" "), "nbd-client -d /dev/nbd3");
        let (attach, _) = commands(AttachWith::QemuNbd, &Front::Unix("/run/p".into()), "/dev/nbd0");
        assert_eq!(attach.last().map(String::as_str), Some("nbd+unix:///pool?socket=/run/p"));
    }
}
