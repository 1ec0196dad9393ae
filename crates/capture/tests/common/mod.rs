//! Shared by the tests on a live kernel: a private disk, and a recording in memory.
//!
//! Everything created is removed when the guard is dropped, after a panic too, and when the test is killed.

#![allow(dead_code, reason = "every test binary compiles this file and uses a part of it")]

use capture::{FinishedRecording, Request, Session};
use lab::loopdisk::{Backing, FileSystem, Options};
use model::{Event, Record};
use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Prints that the test of this thread was skipped, and why, in the format that the suites' runner counts.
pub fn skip(why: &str) {
    println!("SKIP {}: {why}", std::thread::current().name().unwrap_or("a test"));
}

/// Ends the test as skipped if a live kernel cannot be used.
#[macro_export]
macro_rules! needs_live_kernel {
    () => {
        if let Err(why) = lab::privilege::live_kernel() {
            return common::skip(&why.to_string());
        }
    };
}

/// Whether a program that creates such a file system is installed, and the kernel supports it without loading a module.
pub fn has_file_system(kind: FileSystem) -> bool {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    known.lines().any(|l| l.trim() == kind.name()) && lab::loopdisk::LoopDisk::available(kind).is_ok()
}

/// A loop disk with a file system on it, in memory.
pub struct LoopDisk(lab::loopdisk::LoopDisk);

impl LoopDisk {
    /// Creates and mounts one with ext4.
    pub fn ext4() -> Self {
        Self::with_file_system(FileSystem::Ext4, 256 << 20)
    }

    /// Creates one with another file system.
    pub fn with_file_system(kind: FileSystem, size: u64) -> Self {
        let disk = lab::loopdisk::LoopDisk::create(size, kind, &Backing::Ram, &Options::default());
        Self(disk.unwrap_or_else(|e| panic!("{e}")))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn image(&self) -> fs::File {
        fs::File::open(fs::read_to_string(self.0.sysfs("loop/backing_file")).unwrap().trim_end()).unwrap()
    }

    /// Returns the disk's number, as in records.
    pub fn dev(&self) -> u32 {
        self.0.dev().unwrap().0
    }

    /// Returns the numbers in the disk's `stat` file (Documentation/block/stat.rst).
    pub fn stat(&self) -> Vec<u64> {
        self.0.stat().unwrap()
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

    /// Releases a gated child and drains until it has ended.
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

    /// Drains until no request of the disk is in flight and its counts are stable.
    pub fn drain_until_quiet(&mut self, disk: &LoopDisk) {
        let mut before = disk.stat();
        let deadline = Instant::now() + Duration::from_secs(120);
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

    /// Ends it; the events are in time order.
    pub fn finish(self) -> (Vec<Event>, FinishedRecording) {
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
pub fn spawn_gated(script: &str) -> Child {
    Command::new("sh")
        .args(["-c", &format!("read go; {script}")])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Returns the records of one kind, with their events.
pub fn of<'a, T: 'a>(
    events: &'a [Event],
    pick: impl Fn(&'a Record) -> Option<&'a T> + 'a,
) -> impl Iterator<Item = (&'a Event, &'a T)> {
    events.iter().filter_map(move |e| pick(&e.record).map(|r| (e, r)))
}

/// Calls `of` for a variant: `records!(events, RqDone)`.
#[macro_export]
macro_rules! records {
    ($events:expr, $Kind:ident) => {
        common::of(&$events, |r| match r {
            model::Record::$Kind(x) => Some(x),
            _ => None,
        })
    };
}
