//! Which process has a socket open: the descriptors in /proc.
//!
//! **Uncertainty.** A process that lived between two scans is not seen, nor is one of another user without the right to
//! read its descriptors (CAP_SYS_PTRACE).

use super::table::Owner;
use std::collections::{HashMap, HashSet};
use std::fs;

/// The sockets of processes, by inode.
#[derive(Debug, Default)]
pub struct Owners {
    by_inode: HashMap<u32, Owner>,
    /// The selected processes and all their descendants so far; empty: every process.
    selected: HashSet<u32>,
    is_selective: bool,
}

impl Owners {
    /// Sockets of these processes and of their children only; of all if there are none.
    pub fn of(pids: &[u32]) -> Self {
        Self { by_inode: HashMap::new(), selected: pids.iter().copied().collect(), is_selective: !pids.is_empty() }
    }

    /// Whether flows are selected by process.
    pub fn is_selective(&self) -> bool {
        self.is_selective
    }

    pub fn get(&self, inode: u32) -> Option<&Owner> {
        self.by_inode.get(&inode)
    }

    /// Whether the process is selected.
    pub fn is_selected(&self, pid: u32) -> bool {
        !self.is_selective || self.selected.contains(&pid)
    }

    /// Whether a selected process lives.
    pub fn has_living(&self) -> bool {
        self.selected.iter().any(|pid| fs::exists(format!("/proc/{pid}")).unwrap_or(false))
    }

    /// Reads the descriptors anew.
    pub fn scan(&mut self) {
        let pids: Vec<u32> = if self.is_selective {
            self.add_descendants();
            self.selected.iter().copied().collect()
        } else {
            process_ids().collect()
        };
        self.by_inode.clear();
        for pid in pids {
            let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { continue };
            let mut name = None;
            for descriptor in descriptors.flatten() {
                let Some(inode) =
                    fs::read_link(descriptor.path()).ok().as_ref().and_then(|at| socket_inode(at.to_str()?))
                else {
                    continue;
                };
                let name = name.get_or_insert_with(|| {
                    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_string()
                });
                self.by_inode.entry(inode).or_insert_with(|| Owner { pid, name: name.clone() });
            }
        }
    }

    fn add_descendants(&mut self) {
        let parents: Vec<(u32, u32)> = process_ids().filter_map(|pid| Some((pid, parent(pid)?))).collect();
        loop {
            let before = self.selected.len();
            for (pid, parent) in &parents {
                if self.selected.contains(parent) {
                    self.selected.insert(*pid);
                }
            }
            if self.selected.len() == before {
                return;
            }
        }
    }
}

fn process_ids() -> impl Iterator<Item = u32> {
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// The parent in /proc/PID/stat: after the name, which is in parentheses and may contain some, and the state.
fn parent(pid: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn socket_inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_socket_belongs_to_this_process_and_its_parent() {
        use std::os::fd::AsRawFd as _;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let link = fs::read_link(format!("/proc/self/fd/{}", listener.as_raw_fd())).unwrap();
        let inode = socket_inode(link.to_str().unwrap()).unwrap();
        let me = std::process::id();
        for (pids, is_ours) in
            [(vec![], true), (vec![me], true), (vec![parent(me).unwrap()], true), (vec![1 << 30], false)]
        {
            let mut owners = Owners::of(&pids);
            owners.scan();
            assert_eq!(owners.get(inode).is_some_and(|owner| owner.pid == me), is_ours, "{pids:?}");
        }
    }
}
