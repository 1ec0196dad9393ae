//! One instance of the kernel's trace buffers: creation, reading, removal.

use super::spool::Spool;
use super::{Error, RawBuffers, Result, with_context};
use formats::ftrace::page::Layout;
use formats::tracedat::Stats;
use model::text::ShownPath as _;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// KiB of buffer for each CPU: three seconds at about 100,000 events/s.
const BUFFER_KIB: u32 = 24 << 10;

#[derive(Debug)]
struct Cpu {
    number: u16,
    pipe: File,
    spool: Spool,
}

/// An instance. Removed when it is dropped.
#[derive(Debug)]
pub struct Instance {
    path: PathBuf,
    cpus: Vec<Cpu>,
    page: Vec<u8>,
    layout: Layout,
}

impl Instance {
    /// Creates it, with all events disabled.
    pub fn create(root: &Path, name: &str, spool: &Path) -> Result<Self> {
        let path = root.join("instances").join(name);
        let layout = page_layout(root, 4096)?;
        with_context(fs::create_dir(&path), || format!("making an instance, {}", path.shown()))?;
        let mut instance = Self { path, cpus: Vec::new(), page: Vec::new(), layout };
        instance.write_setting("trace_clock", "boot")?;
        instance.write_setting("buffer_size_kb", &BUFFER_KIB.to_string())?;
        let size = fs::read_to_string(instance.path.join("buffer_subbuf_size_kb")).ok();
        let size = size.and_then(|text| text.trim().parse::<usize>().ok()).unwrap_or(4);
        instance.page = vec![0; size << 10];
        instance.layout.page_size = size << 10;
        let cpus = instance.path.join("per_cpu");
        for entry in with_context(fs::read_dir(&cpus), || format!("reading {}", cpus.shown()))?.flatten() {
            let file_name = entry.file_name();
            let Some(number) = file_name.to_str().and_then(|n| n.strip_prefix("cpu")?.parse().ok()) else { continue };
            let from = entry.path().join("trace_pipe_raw");
            let mut options = OpenOptions::new();
            let pipe = options.read(true).custom_flags(libc::O_NONBLOCK).open(&from);
            let pipe = with_context(pipe, || format!("opening {}", from.shown()))?;
            let spool = Spool::create(spool.join(format!("{name}-{number}.raw")))?;
            instance.cpus.push(Cpu { number, pipe, spool });
        }
        instance.cpus.sort_by_key(|cpu| cpu.number);
        Ok(instance)
    }

    fn write_setting(&self, name: &str, value: &str) -> Result<()> {
        let path = self.path.join(name);
        with_context(fs::write(&path, value), || format!("writing {value} into {}", path.shown()))
    }

    /// Records this thread only.
    pub fn record_only(&self, tid: u32) -> Result<()> {
        self.write_setting("set_event_pid", &tid.to_string())
    }

    pub fn add_process(&self, pid: u32) -> Result<()> {
        let path = self.path.join("set_event_pid");
        for tid in crate::tasks::threads(pid) {
            let file = OpenOptions::new().append(true).open(&path);
            let done = file.and_then(|mut file| file.write_all(tid.to_string().as_bytes()));
            with_context(done, || format!("adding thread {tid} to {}", path.shown()))?;
        }
        Ok(())
    }

    /// Returns the processes whose threads are recorded now: those that were added, and with `event-fork` their
    /// descendants.
    pub fn processes(&self) -> BTreeSet<u32> {
        let list = fs::read_to_string(self.path.join("set_event_pid")).unwrap_or_default();
        list.lines().filter_map(|tid| crate::tasks::process_of(tid.trim().parse().ok()?)).collect()
    }

    pub fn set_option(&self, name: &str, on: bool) -> Result<()> {
        self.write_setting(&format!("options/{name}"), if on { "1" } else { "0" })
    }

    /// Enables events, each with its filter; events that the kernel does not have are skipped.
    pub fn enable(&self, events: &[(&str, &str)]) -> Result<()> {
        for (event, filter) in events.iter().filter(|(event, _)| self.path.join("events").join(event).is_dir()) {
            if !filter.is_empty() {
                // A kernel that does not accept the filter records more than needed.
                let _ = fs::write(self.path.join(format!("events/{event}/filter")), filter);
            }
            self.write_setting(&format!("events/{event}/enable"), "1")?;
        }
        Ok(())
    }

    /// Enables the events of Fathom's own probes.
    pub fn enable_group(&self, group: &str) {
        // Without SQLite there are none.
        let _ = fs::write(self.path.join("events").join(group).join("enable"), "1");
    }

    /// Returns the files that hold what was read.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.cpus.iter().map(|cpu| cpu.spool.path())
    }

    /// Returns why no more is accepted: one of its files has no room.
    pub fn full_reason(&self) -> Option<&str> {
        self.cpus.iter().find_map(|cpu| cpu.spool.full_reason())
    }

    /// Reads what is available while events are being recorded; returns the number of bytes.
    pub fn drain(&mut self) -> Result<u64> {
        // A page that is not full is usually the one being written. Reading on after it would read the events caused by reading
        // itself (this process is recorded too), without end.
        self.read_available(|layout, page| layout.data_bytes(page) < page.len() / 2)
    }

    /// Reads what is available, up to a page after which there is nothing more for now.
    fn read_available(&mut self, is_last: impl Fn(&Layout, &[u8]) -> bool) -> Result<u64> {
        let mut taken = 0;
        for cpu in &mut self.cpus {
            loop {
                match cpu.pipe.read(&mut self.page) {
                    Ok(0) => break,
                    Ok(n) => {
                        // A reader gets whole pages; the bytes after the data of the last page are stale.
                        self.page[n..].fill(0);
                        cpu.spool.hold(&self.page);
                        taken += n as u64;
                        if is_last(&self.layout, &self.page) {
                            break;
                        }
                    }
                    Err(e) if e.kind() == ErrorKind::Interrupted => {}
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(Error::Io { doing: "reading trace_pipe_raw".into(), source: e }),
                }
            }
            cpu.spool.write()?;
        }
        Ok(taken)
    }

    pub fn stop(&self) {
        // The result does not matter: the instance is removed soon.
        let _ = fs::write(self.path.join("tracing_on"), "0");
        let _ = fs::write(self.path.join("events/enable"), "0");
    }

    /// Reads the rest and removes the instance.
    pub fn finish(mut self) -> Result<RawBuffers> {
        // Nothing is recorded any more, so this ends.
        self.read_available(|_, _| false)?;
        let stats = self.cpus.iter().map(|cpu| self.stats(cpu.number)).collect();
        let mut cpus = Vec::new();
        for cpu in self.cpus.drain(..) {
            cpus.push((cpu.number, cpu.spool.read()?));
        }
        Ok(RawBuffers { layout: self.layout, cpus, stats })
    }

    /// Returns the kernel's counts for a CPU's buffer.
    fn stats(&self, cpu: u16) -> Stats {
        let text = fs::read_to_string(self.path.join(format!("per_cpu/cpu{cpu}/stats"))).unwrap_or_default();
        let number =
            |key: &str| text.lines().find_map(|l| l.strip_prefix(key)?.trim().parse::<u64>().ok()).unwrap_or(0);
        let lost = number("overrun:") + number("commit overrun:") + number("dropped events:");
        Stats { buffer: String::new(), cpu, lost }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.stop();
        // An instance with an open pipe is busy.
        self.cpus.clear();
        let _ = fs::remove_dir(&self.path);
    }
}

/// Returns the layout of pages of this size.
fn page_layout(root: &Path, page_size: usize) -> Result<Layout> {
    let header = root.join("events/header_page");
    let text = with_context(read_at_once(&header), || format!("reading {}", header.shown()))?;
    let source = || std::io::Error::new(ErrorKind::InvalidData, "the header page does not give the offset of the data");
    Layout::parse(&text, page_size, cfg!(target_endian = "big"))
        .ok_or_else(|| Error::Io { doing: format!("reading {}", header.shown()), source: source() })
}

/// The kernel returns this file's contents only to the first read (`show_header_page_file`), however small that is.
fn read_at_once(path: &Path) -> std::io::Result<String> {
    let mut bytes = vec![0; 64 << 10];
    let n = File::open(path)?.read(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes[..n]).into_owned())
}

/// Removes instances and probes of recorders that no longer exist.
pub fn remove_stale(root: &Path) {
    let gone = |pid: &str| pid.parse::<u32>().is_ok_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
    for entry in fs::read_dir(root.join("instances")).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|n| n.strip_prefix("fathom-")?.split('-').next());
        if pid.is_some_and(gone) {
            let _ = fs::write(entry.path().join("events/enable"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
    let probes = fs::read_to_string(root.join("uprobe_events")).unwrap_or_default();
    for line in probes.lines() {
        let name = line.split([':', ' ']).nth(1).unwrap_or_default();
        if name.split('/').next().and_then(|group| group.strip_prefix("fathom_")).is_some_and(gone) {
            super::functions::remove_probe(root, name);
        }
    }
}
