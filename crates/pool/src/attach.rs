//! Attaches a served pool as a block device of this machine, by whatever means are available.
//!
//! There are four ways: `nbdublk` (ublk; the fastest, kernel 6.0), the kernel's NBD client set up by this program
//! ([`crate::kernel`]), which stays and reconnects it after a restart of the coordinator, and the same by `nbd-client` or
//! `qemu-nbd`, which do not. The available ways are determined first; if there is none, the error lists what each lacks.

use crate::listener::Endpoint;
use crate::nbd_bench::{To, Uri};
use crate::nbd_server::{EXPORT, uri};
use model::quantity::Choices;
use std::path::{Path, PathBuf};

/// The program that attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// libnbd's nbdublk, through ublk.
    Nbdublk,
    /// This program, through the kernel's NBD client.
    Kernel,
    /// nbd-client, through the kernel's NBD client.
    NbdClient,
    /// QEMU's qemu-nbd, through the kernel's NBD client.
    QemuNbd,
}

impl Way {
    /// The values of `--with`, in the order in which they are tried.
    pub const CHOICES: Choices<Self, 4> = [
        ("nbdublk", "libnbd's nbdublk, through ublk", Self::Nbdublk),
        ("kernel", "Fathom itself, through the kernel's NBD client", Self::Kernel),
        ("nbd-client", "nbd-client, through the kernel's NBD client", Self::NbdClient),
        ("qemu-nbd", "QEMU's qemu-nbd, through the kernel's NBD client", Self::QemuNbd),
    ];
}

/// The means available on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Found {
    nbdublk: bool,
    nbd_client: bool,
    qemu_nbd: bool,
    /// `/dev/ublk-control`.
    ublk: bool,
    /// `/dev/nbd0`.
    nbd: bool,
}

impl Found {
    /// Detects them.
    pub fn look() -> Self {
        let program = |name: &str| {
            let path = std::env::var_os("PATH").unwrap_or_default();
            let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
            std::env::split_paths(&path).chain(usual).any(|directory| directory.join(name).is_file())
        };
        Self {
            nbdublk: program("nbdublk"),
            nbd_client: program("nbd-client"),
            qemu_nbd: program("qemu-nbd"),
            ublk: Path::new("/dev/ublk-control").exists(),
            nbd: Path::new("/dev/nbd0").exists(),
        }
    }

    fn has(self, way: Way) -> bool {
        match way {
            Way::Nbdublk => self.nbdublk && self.ublk,
            Way::Kernel => self.nbd,
            Way::NbdClient => self.nbd_client && self.nbd,
            Way::QemuNbd => self.qemu_nbd && self.nbd,
        }
    }

    /// What is missing for a way, as remedies.
    fn missing(self, way: Way) -> Vec<&'static str> {
        let kernel_nbd = (!self.nbd).then_some("the kernel's NBD client (`modprobe nbd`, or a kernel with it)");
        let (program, kernel) = match way {
            Way::Nbdublk => (
                (!self.nbdublk).then_some("the program nbdublk (of libnbd)"),
                (!self.ublk).then_some("the kernel's ublk driver (`modprobe ublk_drv`, kernel 6.0 or later)"),
            ),
            Way::Kernel => (None, kernel_nbd),
            Way::NbdClient => {
                ((!self.nbd_client).then_some("the program nbd-client (`apt-get install nbd-client`)"), kernel_nbd)
            }
            Way::QemuNbd => {
                ((!self.qemu_nbd).then_some("the program qemu-nbd (`apt-get install qemu-utils`)"), kernel_nbd)
            }
        };
        program.into_iter().chain(kernel).collect()
    }
}

/// Nothing on this machine can attach the disk; lists what each way lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(way, missing)| format!("{} lacks {}", name(*way), missing.join(" and "))).collect::<Vec<_>>().join("; "))]
pub struct NoWay(pub Vec<(Way, Vec<&'static str>)>);

/// Selects an available way.
pub fn choose(found: Found, wanted: Option<Way>) -> Result<Way, NoWay> {
    let all = Way::CHOICES.into_iter().map(|(_, _, way)| way);
    let ways: Vec<Way> = all.filter(|way| wanted.is_none_or(|wanted| wanted == *way)).collect();
    if let Some(way) = ways.iter().find(|way| found.has(**way)) {
        return Ok(*way);
    }
    Err(NoWay(ways.into_iter().map(|way| (way, found.missing(way))).collect()))
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Nbdublk => "nbdublk",
        Way::Kernel => "this program",
        Way::NbdClient => "nbd-client",
        Way::QemuNbd => "qemu-nbd",
    }
}

/// The commands that attach and detach.
pub fn commands(way: Way, endpoint: &Endpoint, device: &str) -> (Vec<String>, Vec<String>) {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let uri = uri(endpoint, false);
    match (way, endpoint) {
        (Way::Kernel, _) => {
            let endpoint = endpoint.to_string();
            (
                words(&["fathom", "pool", "attach", "--with", "kernel", "--device", device, &endpoint]),
                words(&["Ctrl-C"]),
            )
        }
        (Way::Nbdublk, _) => {
            (words(&["nbdublk", device, &uri]), words(&["ublk", "del", "-n", device.trim_start_matches("/dev/ublkb")]))
        }
        (Way::QemuNbd, _) => (
            words(&["qemu-nbd", "--fork", "--connect", device, "--format=raw", &uri]),
            words(&["qemu-nbd", "--disconnect", device]),
        ),
        (Way::NbdClient, Endpoint::Unix(path)) => (
            words(&["nbd-client", "-unix", &path.to_string_lossy(), device, "-name", EXPORT, "-block-size", "4096"]),
            words(&["nbd-client", "-d", device]),
        ),
        (Way::NbdClient, Endpoint::Tcp(address)) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let attach = ["nbd-client", &host, &port, device, "-name", EXPORT, "-block-size", "4096"];
            (words(&attach), words(&["nbd-client", "-d", device]))
        }
    }
}

/// Converts the endpoint of a served pool to the address format of [`crate::kernel`].
pub fn place(endpoint: &Endpoint) -> Uri {
    let to = match endpoint {
        Endpoint::Unix(path) => To::Unix(path.clone()),
        Endpoint::Tcp(address) => To::Tcp(address.ip().to_string(), address.port()),
    };
    Uri { export: EXPORT.into(), to }
}

/// The default device of each way.
pub fn usual_device(way: Way) -> &'static str {
    match way {
        Way::Nbdublk => "/dev/ublkb0",
        Way::Kernel | Way::NbdClient | Way::QemuNbd => "/dev/nbd0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_picks_available_client_and_names_missing() {
        let nothing = choose(Found::default(), None).expect_err("there is nothing").to_string();
        for words in ["nbdublk lacks", "modprobe ublk_drv", "apt-get install nbd-client", "qemu-utils", "modprobe nbd"]
        {
            assert!(nothing.contains(words), "{nothing}");
        }
        let kernel = Found { nbd: true, ..Found::default() };
        assert!(!choose(kernel, Some(Way::NbdClient)).expect_err("no program").to_string().contains("modprobe"));
        assert_eq!(choose(kernel, None), Ok(Way::Kernel));
        let both = Found { nbd_client: true, qemu_nbd: true, ..kernel };
        assert_eq!(choose(both, None), Ok(Way::Kernel));
        assert_eq!(choose(both, Some(Way::NbdClient)), Ok(Way::NbdClient));
        assert_eq!(choose(both, Some(Way::QemuNbd)), Ok(Way::QemuNbd));
        assert_eq!(choose(Found { nbdublk: true, ublk: true, ..both }, None), Ok(Way::Nbdublk));
    }

    #[test]
    fn commands_name_export_and_device() {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 10_809).into());
        let (attach, detach) = commands(Way::NbdClient, &endpoint, "/dev/nbd3");
        assert_eq!(attach.join(" "), "nbd-client 127.0.0.1 10809 /dev/nbd3 -name pool -block-size 4096");
        assert_eq!(detach.join(" "), "nbd-client -d /dev/nbd3");
        assert_eq!(place(&endpoint).to_string(), uri(&endpoint, false));
        let (attach, _) = commands(Way::QemuNbd, &Endpoint::Unix("/run/p".into()), "/dev/nbd0");
        assert_eq!(attach.last().map(String::as_str), Some("nbd+unix:///pool?socket=/run/p"));
    }
}
