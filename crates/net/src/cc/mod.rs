//! Congestion controls: what this machine has, and those that Fathom supplies where the kernel lacks them.
//!
//! A socket selects its congestion control by name, and the kernel must support it. Many kernels have reno, cubic and
//! little else. Three algorithms that papers compare (BIC, H-TCP, Westwood+) are provided here as BPF programs; the
//! algorithms are in `bpf/*.h`, each with its source. `docs/guide/congestion-controls.md` measures how closely they match
//! the kernel modules of the same names.

mod load;

pub use load::{Registration, register, registered_by_bpf, unregister};

use crate::capability::{self, CAP_BPF, CAP_NET_ADMIN, CAP_PERFMON, CAP_SYS_ADMIN};
use std::collections::BTreeSet;
use std::io;
use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// The congestion controls that the kernel can use now.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Prefix of a name that selects Fathom's implementation even where the kernel has its own.
pub const NAME_PREFIX: &str = "fathom_";

/// A congestion control that Fathom provides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// Binary increase (Xu, Harfoush, Rhee 2004).
    Bic,
    /// H-TCP (Leith, Shorten 2004).
    Htcp,
    /// Westwood+ (Casetti et al. 2001, Grieco, Mascolo 2004).
    Westwood,
}

/// An object's bytes, aligned for the parser.
#[repr(C, align(8))]
struct AlignedBytes<T: ?Sized>(T);

static BIC_OBJECT: &AlignedBytes<[u8]> = &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/bic.bpf.o")));
static HTCP_OBJECT: &AlignedBytes<[u8]> = &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/htcp.bpf.o")));
static WESTWOOD_OBJECT: &AlignedBytes<[u8]> =
    &AlignedBytes(*include_bytes!(concat!(env!("OUT_DIR"), "/westwood.bpf.o")));

impl Algorithm {
    pub const ALL: [Self; 3] = [Self::Bic, Self::Htcp, Self::Westwood];

    /// The name of the kernel's module.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bic => "bic",
            Self::Htcp => "htcp",
            Self::Westwood => "westwood",
        }
    }

    /// The algorithm that `name` means, with or without [`NAME_PREFIX`].
    pub fn from_name(name: &str) -> Option<Self> {
        let plain = name.strip_prefix(NAME_PREFIX).unwrap_or(name);
        Self::ALL.into_iter().find(|a| a.name() == plain)
    }

    fn object(self) -> &'static [u8] {
        match self {
            Self::Bic => &BIC_OBJECT.0,
            Self::Htcp => &HTCP_OBJECT.0,
            Self::Westwood => &WESTWOOD_OBJECT.0,
        }
    }
}

/// Whether a congestion control of this name sends at the rate of its model of the path, so that single losses do not reduce its window:
/// BBR in any version, by whomever it is registered.
pub fn paces_by_model(name: &str) -> bool {
    let plain = ["tcp_", NAME_PREFIX].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    plain.starts_with("bbr")
}

/// Why a congestion control is not available.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Neither the kernel nor Fathom has it.
    #[error(
        "this kernel has no congestion control {name:?}, and Fathom does not provide it (the kernel has: {}; Fathom \
         provides bic, htcp, westwood)",
        available.join(", ")
    )]
    Unknown {
        name: String,
        /// The names that the kernel has.
        available: Vec<String>,
    },
    /// The kernel provides no BTF.
    #[error(
        "loading a congestion control needs the kernel's BTF: /sys/kernel/btf/vmlinux is missing or not readable \
         (CONFIG_DEBUG_INFO_BTF)"
    )]
    NoBtf,
    /// The kernel does not support congestion controls in BPF.
    #[error(
        "this kernel does not support congestion controls in BPF; that needs Linux 5.6 with CONFIG_BPF_JIT and \
         CONFIG_BPF_SYSCALL"
    )]
    NoStructOps,
    /// The kernel's tcp_congestion_ops has no such member.
    #[error("this kernel's tcp_congestion_ops has no {0:?}; Fathom does not support this kernel yet")]
    NoMember(String),
    #[error("loading a congestion control needs root, or CAP_BPF, CAP_NET_ADMIN and CAP_PERFMON")]
    NotPermitted,
    /// The verifier rejected a function.
    #[error("the kernel rejected {function} of a congestion control ({source}); end of the verifier's log:\n{log}")]
    Refused {
        function: String,
        /// The end of the verifier's log.
        log: String,
        source: io::Error,
    },
    #[error("this kernel already has a congestion control named {0:?}")]
    Exists(String),
    /// Not a valid name.
    #[error("{0:?} is not a valid name for a congestion control: a name has 1 to 15 bytes")]
    BadName(String),
    /// The embedded object does not fit this kernel.
    #[error("the BPF program of {algorithm} does not fit this kernel: {why}")]
    Object {
        algorithm: &'static str,
        /// What did not fit.
        why: String,
    },
    #[error("registering a congestion control failed: {0}")]
    Kernel(#[source] io::Error),
    /// The list cannot be read.
    #[error("cannot read {AVAILABLE} ({0}): is /proc mounted?")]
    NoList(#[source] io::Error),
}

impl Error {
    fn kernel(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => Self::NotPermitted,
            _ => Self::Kernel(error),
        }
    }

    fn refused(function: &str, source: io::Error, log: String) -> Self {
        if source.raw_os_error() == Some(libc::EPERM) {
            return Self::NotPermitted;
        }
        let lines: Vec<&str> = log.lines().collect();
        let log = lines[lines.len().saturating_sub(12)..].join("\n");
        Self::Refused { function: function.to_string(), log, source }
    }
}

/// Where a congestion control comes from on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The kernel's own, built in or loaded.
    Kernel,
    /// Registered through BPF at this moment, by Fathom or by someone else.
    Bpf,
    /// Available, but only root can determine whether it is the kernel's own.
    KernelOrBpf,
    /// A module that the kernel loads when a socket of root requests it.
    Module,
    /// Fathom provides it on request.
    Supplied,
    /// Not available, and why.
    Missing(String),
}

/// A congestion control and where it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CongestionControl {
    /// The name that a socket selects it by.
    pub name: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// The congestion controls that the kernel can use now.
///
/// # Errors
/// `NoList` where /proc is not mounted.
pub fn available_names() -> Result<Vec<String>, Error> {
    let text = std::fs::read_to_string(AVAILABLE).map_err(Error::NoList)?;
    Ok(text.split_whitespace().map(str::to_string).collect())
}

/// Every congestion control that is available here or that Fathom provides, sorted by name.
///
/// # Errors
/// `NoList` where /proc is not mounted.
pub fn list() -> Result<Vec<CongestionControl>, Error> {
    let available: BTreeSet<String> = available_names()?.into_iter().collect();
    let by_bpf = registered_by_bpf();
    let modules = module_names();
    let can_supply =
        if are_sufficient(capability::effective()) { load::check_support() } else { Err(Error::NotPermitted) };
    let ours = Algorithm::ALL.iter().map(|a| a.name().to_string());
    let names: BTreeSet<String> = available.iter().cloned().chain(modules.iter().cloned()).chain(ours).collect();
    let origin = |name: &String| match (available.contains(name), &by_bpf) {
        (true, Ok(by_bpf)) if by_bpf.contains(name) => Origin::Bpf,
        (true, Ok(_)) => Origin::Kernel,
        (true, Err(_)) => Origin::KernelOrBpf,
        (false, _) if modules.contains(name) => Origin::Module,
        (false, _) => match &can_supply {
            Ok(()) => Origin::Supplied,
            Err(why) => Origin::Missing(why.to_string()),
        },
    };
    Ok(names.into_iter().map(|name| CongestionControl { origin: origin(&name), name }).collect())
}

/// Makes sure that a socket can select `name`: it is available, or the kernel has a module, or Fathom registers its own for
/// as long as the result is kept. `None`: the kernel has it. With [`NAME_PREFIX`] it is always Fathom's own.
pub fn ensure_available(name: &str) -> Result<Option<Registration>, Error> {
    if available_names()?.iter().any(|a| a == name) || kernel_provides(name) {
        return Ok(None);
    }
    let algorithm = Algorithm::from_name(name)
        .ok_or_else(|| Error::Unknown { name: name.to_string(), available: available_names().unwrap_or_default() })?;
    match register(algorithm, name) {
        // Another process registered it first.
        Err(Error::Exists(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// Selects `name` on a socket, which loads the kernel module if there is one and this process is allowed to.
fn kernel_provides(name: &str) -> bool {
    let Ok(socket) = TcpListener::bind("127.0.0.1:0").or_else(|_| TcpListener::bind("[::1]:0")) else { return false };
    select(&socket, name).is_ok()
}

/// Sets the congestion control of a socket, and of those accepted from it.
///
/// # Errors
/// The kernel's: ENOENT if there is no such congestion control, EPERM if it is reserved for root.
pub fn select(socket: &impl AsRawFd, name: &str) -> io::Result<()> {
    // SAFETY: the name is `name.len()` bytes long, and the kernel copies it.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Congestion controls available on disk as modules of the running kernel.
fn module_names() -> BTreeSet<String> {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let directory = format!("/lib/modules/{}/kernel/net/ipv4", release.trim());
    let files = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let names = files.filter_map(|f| module_name(&f.file_name().to_string_lossy()));
    names.collect()
}

/// `tcp_bic.ko.xz` is `bic`; `tcp_diag` is no congestion control.
fn module_name(file: &str) -> Option<String> {
    let (stem, _) = file.split_once(".ko")?;
    stem.strip_prefix("tcp_").filter(|name| *name != "diag").map(str::to_string)
}

/// CAP_NET_ADMIN, CAP_BPF and CAP_PERFMON (a struct_ops program has access to `struct sock`: `is_perfmon_prog_type` in
/// kernel/bpf/syscall.c), or CAP_SYS_ADMIN, which the kernel accepts instead of each.
fn are_sufficient(held: u64) -> bool {
    [CAP_SYS_ADMIN, CAP_NET_ADMIN | CAP_BPF | CAP_PERFMON].iter().any(|set| held & set == *set)
}

/// Kernels before 5.11 count BPF memory as locked. If the limit cannot be raised, loading fails later where it is too low.
fn raise_locked_memory() {
    let all = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: passes a whole rlimit, which the kernel reads.
    unsafe { libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const all) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_map_to_algorithms() {
        assert_eq!(Algorithm::from_name("bic"), Some(Algorithm::Bic));
        assert_eq!(Algorithm::from_name("fathom_westwood"), Some(Algorithm::Westwood));
        assert_eq!(Algorithm::from_name("cubic"), None);
        assert!(Algorithm::ALL.iter().all(|a| NAME_PREFIX.len() + a.name().len() < load::NAME_BYTES));
    }

    #[test]
    fn congestion_control_modules_are_recognised_by_file_name() {
        assert_eq!(module_name("tcp_bic.ko"), Some("bic".into()));
        assert_eq!(module_name("tcp_westwood.ko.xz"), Some("westwood".into()));
        assert_eq!(module_name("tcp_diag.ko"), None);
        assert_eq!(module_name("ip_gre.ko"), None);
    }

    #[test]
    fn bad_name_is_refused_before_anything_is_loaded() {
        for name in ["", "a name of 16 byt", "a\0b"] {
            let error = register(Algorithm::Bic, name).expect_err("not a name");
            assert!(matches!(error, Error::BadName(_)), "{name:?}: {error}");
        }
    }

    #[test]
    fn capabilities_are_those_of_the_message() {
        let bits = |all: &[u32]| all.iter().fold(0, |held, bit| held | 1 << bit);
        assert!(are_sufficient(bits(&[12, 38, 39])) && are_sufficient(bits(&[21])) && are_sufficient(u64::MAX));
        for missing in [&[38, 39][..], &[12, 39], &[12, 38], &[12], &[]] {
            assert!(!are_sufficient(bits(missing)), "{missing:?}");
        }
    }

    #[test]
    fn only_bbr_paces_by_a_model() {
        for name in ["bbr", "bbr2", "bbr3", "bbrplus", "fathom_bbr", "tcp_bbr"] {
            assert!(paces_by_model(name), "{name}");
        }
        for name in ["cubic", "reno", "westwood", "fathom_bic", "fathom_", "notbbr", ""] {
            assert!(!paces_by_model(name), "{name}");
        }
    }

    #[test]
    fn unknown_congestion_controls_are_reported() {
        let error = ensure_available("nobodys").expect_err("there is no such thing");
        assert!(error.to_string().contains("nobodys"), "{error}");
        assert!(error.to_string().contains("htcp"), "{error}");
    }
}
