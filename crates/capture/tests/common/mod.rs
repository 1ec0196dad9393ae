//! What the tests on a live kernel share: a private disk, and a recording in memory.
//!
//! Everything made is removed when the guard is dropped, after a panic too.

#![allow(dead_code, reason = "every test binary compiles this file and uses a part of it")]

use capture::{Finished, Request, Session};
use model::{Dev, Event, Record};
use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Says that the test of this thread was skipped, and why, in the words that the lanes' runner counts.
pub fn skip(why: &str) {
    println!("SKIP {}: {why}", std::thread::current().name().unwrap_or("a test"));
}

/// Ends the test as skipped where a live kernel cannot be used.
#[macro_export]
macro_rules! needs_live_kernel {
    () => {
        if let Err(why) = lab::privilege::live_kernel() {
            return common::skip(&why.to_string());
        }
    };
}

fn run(program: &str, args: &[&str]) -> String {
    let out = Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    assert!(out.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim().to_string()
}

/// Whether a program is installed that makes such a file system, and the kernel has it without a module to be loaded.
pub fn has_file_system(kind: &str) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let made = Command::new(format!("mkfs.{kind}")).arg("-V").stdout(Stdio::null()).stderr(Stdio::null()).status();
    known.lines().any(|l| l.trim() == kind) && made.is_ok()
}

/// A loop disk with a file system on it, its image in memory where there is such a place.
pub struct LoopDisk {
    folder: tempfile::TempDir,
    device: String,
    mounted: bool,
}

impl LoopDisk {
    /// Makes and mounts one with ext4.
    pub fn ext4() -> Self {
        // No lazy initialisation: its writes would come into the tests' windows.
        Self::with("ext4", 256 << 20, &["-q", "-E", "lazy_itable_init=0,lazy_journal_init=0"])
    }

    /// One with another file system.
    pub fn with(kind: &str, size: u64, options: &[&str]) -> Self {
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap();
        let image = folder.path().join("image");
        fs::File::create(&image).unwrap().set_len(size).unwrap();
        let device = run("losetup", &["--find", "--show", image.to_str().unwrap()]);
        let mut disk = Self { folder, device, mounted: false };
        run(&format!("mkfs.{kind}"), &[options, &[&disk.device]].concat());
        fs::create_dir(disk.path()).unwrap();
        run("mount", &[&disk.device, disk.path().to_str().unwrap()]);
        disk.mounted = true;
        run("sync", &[]);
        disk
    }

    /// Where it is mounted.
    pub fn path(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// What is on it.
    pub fn image(&self) -> fs::File {
        fs::File::open(self.folder.path().join("image")).unwrap()
    }

    /// The disk's number, as records have it.
    pub fn dev(&self) -> u32 {
        let rdev = fs::metadata(&self.device).unwrap().rdev();
        Dev::new(libc::major(rdev), libc::minor(rdev)).0
    }

    /// The numbers of the disk's `stat` file (Documentation/block/stat.rst).
    pub fn stat(&self) -> Vec<u64> {
        let name = self.device.trim_start_matches("/dev/");
        let text = fs::read_to_string(format!("/sys/block/{name}/stat")).unwrap();
        text.split_ascii_whitespace().map(|w| w.parse().unwrap()).collect()
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = Command::new("umount").arg(self.path()).status();
        }
        let _ = Command::new("losetup").args(["--detach", &self.device]).status();
    }
}

/// A recording whose events are kept in memory.
pub struct Recorder {
    pub session: Session,
    pub events: Vec<Event>,
}

impl Recorder {
    pub fn start(request: &Request) -> Self {
        Self { session: Session::start(request).unwrap_or_else(|e| panic!("{e}")), events: Vec::new() }
    }

    pub fn drain(&mut self) {
        let Self { session, events } = self;
        session.drain(&mut |bytes| events.push(decode(bytes)));
    }

    /// Lets a gated child go and drains until it has ended.
    pub fn release(&mut self, mut child: Child) {
        self.session.track(child.id()).unwrap();
        child.stdin.take().unwrap().write_all(b"go\n").unwrap();
        loop {
            self.session.wait(Duration::from_millis(20));
            self.drain();
            if let Some(status) = child.try_wait().unwrap() {
                assert!(status.success());
                return;
            }
        }
    }

    /// Drains until no request of the disk is in flight and its counts rest.
    pub fn until_quiet(&mut self, disk: &LoopDisk) {
        let mut before = disk.stat();
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut quiet_since = Instant::now();
        while quiet_since.elapsed() < Duration::from_millis(300) {
            assert!(Instant::now() < deadline, "the disk does not come to rest");
            self.session.wait(Duration::from_millis(20));
            self.drain();
            let now = disk.stat();
            if now != before || now[8] != 0 {
                before = now;
                quiet_since = Instant::now();
            }
        }
    }

    /// Ends it; the events are in order of time.
    pub fn finish(self) -> (Vec<Event>, Finished) {
        let Self { session, mut events } = self;
        let finished = session.finish(&mut |bytes| events.push(decode(bytes)));
        events.sort_by_key(|e| e.header.time_ns);
        (events, finished)
    }
}

fn decode(bytes: &[u8]) -> Event {
    Event::decode(bytes).unwrap_or_else(|| panic!("damaged: {bytes:x?}"))
}

/// Starts a shell script that waits for a line before it does anything, so that it can be followed from its first call.
pub fn gated(script: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// The records of one kind, with their events.
pub fn of<'a, T: 'a>(
    events: &'a [Event],
    pick: impl Fn(&'a Record) -> Option<&'a T> + 'a,
) -> impl Iterator<Item = (&'a Event, &'a T)> {
    events.iter().filter_map(move |e| pick(&e.record).map(|r| (e, r)))
}

/// `of` for a variant: `records!(events, RqDone)`.
#[macro_export]
macro_rules! records {
    ($events:expr, $Kind:ident) => {
        common::of(&$events, |r| match r {
            model::Record::$Kind(x) => Some(x),
            _ => None,
        })
    };
}
