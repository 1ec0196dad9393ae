//! Watches the TCP connections of this network namespace: samples them, and prints nothing.
//!
//! **Cost.** A pass over all sockets costs a few microseconds each. Passes are at least as far apart that they use at most
//! [`CPU_SHARE_MAX`] of a core; how far that was is part of the result.

use super::diag::{Destroyed, Diag, DiagSocket};
use super::leaf::Division;
use super::openers::Openers;
use super::owners::Owners;
use super::table::{FlowInterval, FlowSummary, FlowTable, Unfollowed};
use crate::capability;
use crate::{clock, interface};
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::time::Duration;

/// The largest share of a core that passes use.
const CPU_SHARE_MAX: f64 = 0.01;
/// The least time between two scans for processes, in which a socket's process is looked for.
const SCAN_INTERVAL_NS_MIN: u64 = 200_000_000;

/// Which flows are watched: those that meet every condition.
#[derive(Debug, Clone, Default)]
pub struct Selection {
    /// Processes and their children.
    pub pids: Vec<u32>,
    /// Ports at either end.
    pub ports: Vec<u16>,
    /// A cgroup v2 directory, with those below it.
    pub cgroup: Option<PathBuf>,
    /// Flows from an address of this interface, or bound to it.
    pub interface: Option<String>,
}

/// Why watching is not possible.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    #[error("cannot list sockets: {0}; that needs Linux with CONFIG_INET_DIAG (module tcp_diag)")]
    Diag(#[source] io::Error),
    #[error("there is no process {0}")]
    NoProcess(u32),
    #[error("{}: not a directory of cgroup v2: {why}", path.to_string_lossy().escape_debug())]
    Cgroup { path: PathBuf, why: io::Error },
    #[error(transparent)]
    Interface(#[from] crate::Error),
}

/// How completely flows are seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Only flows of this user, who has no right to see others.
    pub own_only: Option<u32>,
    /// Why ends of flows are not reported; then flows that live between two samples are missed.
    pub no_ends_because: Option<String>,
    /// Why the processes of short flows are not known, where flows are selected by process.
    pub no_openers_because: Option<String>,
    /// Messages of ended flows for which there was no room.
    pub ends_lost: u64,
    /// Passes over all sockets, and the longest time between two, ns.
    pub passes: u64,
    pub pass_interval_ns_max: u64,
    /// CPU time of this thread, ns.
    pub cpu_ns: u64,
    pub duration_ns: u64,
}

/// The result of a watch.
#[derive(Debug)]
pub struct Watched {
    pub flows: Vec<FlowSummary>,
    pub unfollowed: Unfollowed,
    pub others: Division,
    pub coverage: Coverage,
}

/// A running watch.
#[derive(Debug)]
pub struct Watch {
    diag: Diag,
    destroyed: Option<Destroyed>,
    /// Only where flows are selected by process.
    openers: Option<Openers>,
    owners: Owners,
    selection: Selection,
    addresses: Option<Vec<IpAddr>>,
    cgroups: Option<Vec<u64>>,
    uid: Option<u32>,
    table: FlowTable,
    coverage: Coverage,
    started_ns: u64,
    cpu_from_ns: u64,
    last_pass_ns: u64,
    last_scan_ns: u64,
    pass_cost_ns: u64,
}

impl Watch {
    /// Prepares a watch.
    ///
    /// # Errors
    /// [`WatchError`]: what was selected does not exist, or the kernel has no such list.
    pub fn start(selection: Selection) -> Result<Self, WatchError> {
        for pid in &selection.pids {
            if !std::path::Path::new(&format!("/proc/{pid}")).exists() {
                return Err(WatchError::NoProcess(*pid));
            }
        }
        let addresses = selection.interface.as_deref().map(interface::addresses).transpose()?;
        let cgroups = match &selection.cgroup {
            Some(path) => Some(cgroup_ids(path).map_err(|why| WatchError::Cgroup { path: path.clone(), why })?),
            None => None,
        };
        let (destroyed, no_ends_because) = match Destroyed::subscribe() {
            Ok(destroyed) => (Some(destroyed), None),
            Err(error) => (None, Some(format!("ends of flows need CAP_NET_ADMIN: {error}"))),
        };
        // SAFETY: it has no arguments and cannot fail.
        let uid = unsafe { libc::geteuid() };
        // Kernels differ in whether anyone may receive the ends of sockets; other users' flows are for those with the right.
        let own_only = (uid != 0 && capability::effective() & capability::CAP_NET_ADMIN == 0).then_some(uid);
        let no_ends_because =
            no_ends_because.or_else(|| own_only.map(|_| "the kernel's message of their end names no user".into()));
        let mut owners = Owners::of(&selection.pids);
        owners.scan();
        let (openers, no_openers_because) = match owners.is_selective().then(Openers::attach) {
            Some(Ok(openers)) => (Some(openers), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let now = clock::now_ns();
        Ok(Self {
            diag: Diag::open().map_err(WatchError::Diag)?,
            destroyed,
            openers,
            owners,
            addresses,
            cgroups,
            uid: own_only,
            table: FlowTable::default(),
            coverage: Coverage { own_only, no_ends_because, no_openers_because, ..Coverage::default() },
            started_ns: now,
            cpu_from_ns: clock::thread_cpu_ns(),
            last_pass_ns: now,
            last_scan_ns: now,
            pass_cost_ns: 0,
            selection,
        })
    }

    /// How completely flows are seen so far.
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// The time until the next pass, if one is made every `period`.
    pub fn pause(&self, period: Duration) -> Duration {
        let cost = Duration::from_nanos((self.pass_cost_ns as f64 / CPU_SHARE_MAX) as u64);
        let spent = Duration::from_nanos(clock::now_ns().saturating_sub(self.last_pass_ns));
        period.max(cost).saturating_sub(spent)
    }

    /// Samples every selected flow, and takes the ends of those that were destroyed.
    ///
    /// # Errors
    /// The kernel's.
    pub fn pass(&mut self) -> Result<(), WatchError> {
        let (now, cpu) = (clock::now_ns(), clock::thread_cpu_ns());
        self.coverage.passes += 1;
        self.coverage.pass_interval_ns_max = self.coverage.pass_interval_ns_max.max(now - self.last_pass_ns);
        self.last_pass_ns = now;
        self.take_ends()?;
        self.table.begin_pass(now);
        let mut sockets = Vec::new();
        // A socket without a file is one that its process has closed, while the kernel still sends.
        self.diag.list(|socket| sockets.push((clock::now_ns(), socket))).map_err(WatchError::Diag)?;
        let is_new =
            |s: &DiagSocket| s.inode != 0 && self.owners.get(s.inode).is_none() && !self.table.has_owner(s.cookie);
        if now - self.last_scan_ns >= SCAN_INTERVAL_NS_MIN
            && sockets.iter().any(|(_, s)| self.has_selected_place(s) && is_new(s))
        {
            self.owners.scan();
            self.last_scan_ns = now;
        }
        for (at, socket) in &sockets {
            let owner = self.owners.get(socket.inode).cloned();
            let is_selected = self.table.contains(socket.cookie)
                || self.has_selected_place(socket) && (owner.is_some() || !self.owners.is_selective());
            if is_selected {
                self.table.observe(*at, socket, owner);
            }
        }
        self.table.end_pass();
        self.pass_cost_ns = clock::thread_cpu_ns() - cpu;
        Ok(())
    }

    /// What each active flow did since the last call.
    pub fn take_intervals(&mut self) -> Vec<FlowInterval> {
        self.table.take_intervals()
    }

    /// Whether flows were selected by process, and no such process is left.
    pub fn is_over(&self) -> bool {
        self.owners.is_selective() && !self.owners.has_living()
    }

    /// Ends the watch.
    pub fn finish(mut self) -> Watched {
        // What was measured is kept, whatever fails now.
        let _ = self.pass();
        let _ = self.take_ends();
        self.coverage.ends_lost = self.destroyed.as_ref().map_or(0, |d| d.overruns);
        self.coverage.cpu_ns = clock::thread_cpu_ns() - self.cpu_from_ns;
        self.coverage.duration_ns = clock::now_ns() - self.started_ns;
        let (flows, unfollowed, others) = self.table.summaries();
        Watched { flows, unfollowed, others, coverage: self.coverage }
    }

    fn take_ends(&mut self) -> Result<(), WatchError> {
        let Some(mut destroyed) = self.destroyed.take() else { return Ok(()) };
        let result = destroyed.drain(|socket| {
            // A listener, or a socket that never had a connection.
            if socket.peer.port() == 0 {
                return;
            }
            // The last message names no user, so an unknown flow may be another's.
            if self.uid.is_some() && !self.table.contains(socket.cookie) {
                return;
            }
            let is_here = self.has_selected_place(&socket);
            let opener = || {
                self.openers.as_ref()?.of(socket.cookie).map(|mut pids| pids.any(|pid| self.owners.is_selected(pid)))
            };
            let is_selected = match (is_here, self.cgroups.is_some(), self.owners.is_selective()) {
                (false, ..) => Some(false),
                // The last message has no cgroup.
                (true, true, _) => None,
                (true, false, true) => opener(),
                (true, false, false) => Some(true),
            };
            self.table.end(clock::now_ns(), &socket, is_selected);
        });
        self.destroyed = Some(destroyed);
        result.map_err(WatchError::Diag)
    }

    /// Whether everything but the process is as selected.
    fn has_selected_place(&self, socket: &DiagSocket) -> bool {
        let has_port = |port| self.selection.ports.contains(&port);
        (self.selection.ports.is_empty() || has_port(socket.local.port()) || has_port(socket.peer.port()))
            && self.addresses.as_ref().is_none_or(|all| all.contains(&socket.local.ip()))
            && self.uid.is_none_or(|uid| uid == socket.uid)
            // The last message of a socket has no cgroup.
            && self.cgroups.as_ref().is_none_or(|all| socket.cgroup.is_none_or(|id| all.contains(&id)))
    }
}

/// The inode numbers of a cgroup and of those below it: their identifiers in the kernel.
fn cgroup_ids(path: &std::path::Path) -> io::Result<Vec<u64>> {
    if !path.join("cgroup.procs").exists() || !path.join("cgroup.controllers").exists() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "it has no file cgroup.controllers"));
    }
    let mut ids = Vec::new();
    let mut open = vec![path.to_path_buf()];
    while let Some(directory) = open.pop() {
        ids.push(std::fs::metadata(&directory)?.ino());
        for entry in std::fs::read_dir(&directory)?.flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                open.push(entry.path());
            }
        }
    }
    Ok(ids)
}
