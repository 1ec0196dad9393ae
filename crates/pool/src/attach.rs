//! Attaches a served pool as a block device of this machine, by whatever means are available.
//!
//! There are four ways: `nbdublk` (ublk; the fastest, kernel 6.0), the kernel's NBD client set up by this program
//! ([`crate::kernel`]), which stays and reconnects it after a restart of the coordinator, and the same by `nbd-client` or
//! `qemu-nbd`, which do not. The available ways are determined first; if there is none, the error lists what each lacks.

use crate::listener::Endpoint;
use crate::nbd_bench::{ServerAddress, Uri};
use crate::nbd_server::{EXPORT_NAME, uri};
use model::quantity::Choices;
use std::path::{Path, PathBuf};

/// The program that attaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttachMethod {
    /// libnbd's nbdublk, through ublk.
    Nbdublk,
    /// This program, through the kernel's NBD client.
    Kernel,
    /// nbd-client, through the kernel's NBD client.
    NbdClient,
    /// QEMU's qemu-nbd, through the kernel's NBD client.
    QemuNbd,
}

impl AttachMethod {
    /// The values of `--with`, in the order in which they are tried.
    pub const FLAG_VALUES: Choices<Self, 4> = [
        ("nbdublk", "libnbd's nbdublk, through ublk", Self::Nbdublk),
        ("kernel", "Fathom itself, through the kernel's NBD client", Self::Kernel),
        ("nbd-client", "nbd-client, through the kernel's NBD client", Self::NbdClient),
        ("qemu-nbd", "QEMU's qemu-nbd, through the kernel's NBD client", Self::QemuNbd),
    ];
}

/// The means available on this machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AvailableTools {
    nbdublk: bool,
    nbd_client: bool,
    qemu_nbd: bool,
    /// `/dev/ublk-control`.
    ublk: bool,
    /// `/dev/nbd0`.
    nbd: bool,
}

impl AvailableTools {
    /// Detects them.
    pub fn detect() -> Self {
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

    fn has(self, way: AttachMethod) -> bool {
        match way {
            AttachMethod::Nbdublk => self.nbdublk && self.ublk,
            AttachMethod::Kernel => self.nbd,
            AttachMethod::NbdClient => self.nbd_client && self.nbd,
            AttachMethod::QemuNbd => self.qemu_nbd && self.nbd,
        }
    }

    /// What is missing for a way, as remedies.
    fn missing(self, way: AttachMethod) -> Vec<&'static str> {
        let kernel_nbd = (!self.nbd).then_some("the kernel's NBD client (`modprobe nbd`, or a kernel with it)");
        let (program, kernel) = match way {
            AttachMethod::Nbdublk => (
                (!self.nbdublk).then_some("the program nbdublk (of libnbd)"),
                (!self.ublk).then_some("the kernel's ublk driver (`modprobe ublk_drv`, kernel 6.0 or later)"),
            ),
            AttachMethod::Kernel => (None, kernel_nbd),
            AttachMethod::NbdClient => {
                ((!self.nbd_client).then_some("the program nbd-client (`apt-get install nbd-client`)"), kernel_nbd)
            }
            AttachMethod::QemuNbd => {
                ((!self.qemu_nbd).then_some("the program qemu-nbd (`apt-get install qemu-utils`)"), kernel_nbd)
            }
        };
        program.into_iter().chain(kernel).collect()
    }
}

/// Nothing on this machine can attach the disk; lists what each way lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", .0.iter().map(|(way, missing)| format!("{} lacks {}", name(*way), missing.join(" and "))).collect::<Vec<_>>().join("; "))]
pub struct NoAttachMethod(pub Vec<(AttachMethod, Vec<&'static str>)>);

/// Selects an available way.
pub fn choose_method(found: AvailableTools, wanted: Option<AttachMethod>) -> Result<AttachMethod, NoAttachMethod> {
    let all = AttachMethod::FLAG_VALUES.into_iter().map(|(_, _, way)| way);
    let ways: Vec<AttachMethod> = all.filter(|way| wanted.is_none_or(|wanted| wanted == *way)).collect();
    if let Some(way) = ways.iter().find(|way| found.has(**way)) {
        return Ok(*way);
    }
    Err(NoAttachMethod(ways.into_iter().map(|way| (way, found.missing(way))).collect()))
}

fn name(way: AttachMethod) -> &'static str {
    match way {
        AttachMethod::Nbdublk => "nbdublk",
        AttachMethod::Kernel => "this program",
        AttachMethod::NbdClient => "nbd-client",
        AttachMethod::QemuNbd => "qemu-nbd",
    }
}

/// The commands that attach and detach.
pub fn attach_commands(way: AttachMethod, endpoint: &Endpoint, device: &str) -> (Vec<String>, Vec<String>) {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<String>>();
    let uri = uri(endpoint, false);
    match (way, endpoint) {
        (AttachMethod::Kernel, _) => {
            let endpoint = endpoint.to_string();
            (
                words(&["fathom", "pool", "attach", "--with", "kernel", "--device", device, &endpoint]),
                words(&["Ctrl-C"]),
            )
        }
        (AttachMethod::Nbdublk, _) => {
            (words(&["nbdublk", device, &uri]), words(&["ublk", "del", "-n", device.trim_start_matches("/dev/ublkb")]))
        }
        (AttachMethod::QemuNbd, _) => (
            words(&["qemu-nbd", "--fork", "--connect", device, "--format=raw", &uri]),
            words(&["qemu-nbd", "--disconnect", device]),
        ),
        (AttachMethod::NbdClient, Endpoint::Unix(path)) => (
            words(&[
                "nbd-client",
                "-unix",
                &path.to_string_lossy(),
                device,
                "-name",
                EXPORT_NAME,
                "-block-size",
                "4096",
            ]),
            words(&["nbd-client", "-d", device]),
        ),
        (AttachMethod::NbdClient, Endpoint::Tcp(address)) => {
            let (host, port) = (address.ip().to_string(), address.port().to_string());
            let attach = ["nbd-client", &host, &port, device, "-name", EXPORT_NAME, "-block-size", "4096"];
            (words(&attach), words(&["nbd-client", "-d", device]))
        }
    }
}

/// Converts the endpoint of a served pool to the address format of [`crate::kernel`].
pub fn endpoint_uri(endpoint: &Endpoint) -> Uri {
    let to = match endpoint {
        Endpoint::Unix(path) => ServerAddress::Unix(path.clone()),
        Endpoint::Tcp(address) => ServerAddress::Tcp(address.ip().to_string(), address.port()),
    };
    Uri { export: EXPORT_NAME.into(), server: to }
}

/// The default device of each way.
pub fn default_device(way: AttachMethod) -> &'static str {
    match way {
        AttachMethod::Nbdublk => "/dev/ublkb0",
        AttachMethod::Kernel | AttachMethod::NbdClient | AttachMethod::QemuNbd => "/dev/nbd0",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_picks_an_available_client_and_names_missing_ones() {
        let nothing = choose_method(AvailableTools::default(), None).expect_err("there is nothing").to_string();
        for words in ["nbdublk lacks", "modprobe ublk_drv", "apt-get install nbd-client", "qemu-utils", "modprobe nbd"]
        {
            assert!(nothing.contains(words), "{nothing}");
        }
        let kernel = AvailableTools { nbd: true, ..AvailableTools::default() };
        assert!(
            !choose_method(kernel, Some(AttachMethod::NbdClient))
                .expect_err("no program")
                .to_string()
                .contains("modprobe")
        );
        assert_eq!(choose_method(kernel, None), Ok(AttachMethod::Kernel));
        let both = AvailableTools { nbd_client: true, qemu_nbd: true, ..kernel };
        assert_eq!(choose_method(both, None), Ok(AttachMethod::Kernel));
        assert_eq!(choose_method(both, Some(AttachMethod::NbdClient)), Ok(AttachMethod::NbdClient));
        assert_eq!(choose_method(both, Some(AttachMethod::QemuNbd)), Ok(AttachMethod::QemuNbd));
        assert_eq!(
            choose_method(AvailableTools { nbdublk: true, ublk: true, ..both }, None),
            Ok(AttachMethod::Nbdublk)
        );
    }

    #[test]
    fn commands_name_the_export_and_the_device() {
        let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 10_809).into());
        let (attach, detach) = attach_commands(AttachMethod::NbdClient, &endpoint, "/dev/nbd3");
        assert_eq!(attach.join(" "), "nbd-client 127.0.0.1 10809 /dev/nbd3 -name pool -block-size 4096");
        assert_eq!(detach.join(" "), "nbd-client -d /dev/nbd3");
        assert_eq!(endpoint_uri(&endpoint).to_string(), uri(&endpoint, false));
        let (attach, _) = attach_commands(AttachMethod::QemuNbd, &Endpoint::Unix("/run/p".into()), "/dev/nbd0");
        assert_eq!(attach.last().map(String::as_str), Some("nbd+unix:///pool?socket=/run/p"));
    }
}
