//! The operations of a store on its medium, in order: every write with its bytes, every sync, and when each began and ended.
//!
//! And the kernel's notices of a failed write-back, as errseq_t has them: each open file description gets one, one opened
//! later gets it if nobody has, and the file system has another. A disk without a file system has none: there `syncfs`
//! concerns the file system of its node in /dev, and the coordinator's description of it has a notice.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, Mutex};

const PAGE_BYTES: usize = 4096;

/// The file description that a sync uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::store) enum By {
    /// The description of the flushes.
    Flushes,
    /// That of durable writes.
    Durable,
    /// That of the sums.
    Sums,
    /// That of early write-back.
    WriteBack,
    FileSystem,
    /// The coordinator's, which outlives the process.
    Witness,
}

#[derive(Debug, Clone)]
pub(in crate::store) enum What {
    /// May stay in memory until the next sync.
    Write { at: u64, bytes: Vec<u8> },
    /// On the medium when it ends.
    Durable { at: u64, bytes: Vec<u8> },
    /// Every write that ended before it began is on the medium when it ends.
    Sync(By),
}

/// Failed write-backs.
#[derive(Debug, Default)]
struct Faults {
    /// The descriptions that have a notice.
    flushes: bool,
    durable: bool,
    sums: bool,
    write_back: bool,
    witness: bool,
    unseen: bool,
    file_system: bool,
    /// Whether it is a disk without a file system.
    is_raw: bool,
    /// The write-back of durable writes fails.
    is_broken: bool,
    /// Pages that count as written, with what the medium has.
    clean: BTreeMap<usize, Vec<u8>>,
    /// Pages whose write-back fails before the sums are synced, and a durable write gets the notice meanwhile.
    in_race: BTreeMap<usize, Vec<u8>>,
}

impl Faults {
    fn lose(&mut self, pages: BTreeMap<usize, Vec<u8>>) {
        self.clean.extend(pages);
        (self.flushes, self.durable, self.sums, self.write_back) = (true, true, true, true);
        (self.witness, self.unseen, self.file_system) = (true, true, true);
    }

    fn notice(&mut self, by: By) -> io::Result<()> {
        let notice = match by {
            By::Flushes => &mut self.flushes,
            By::Durable => &mut self.durable,
            By::Sums => &mut self.sums,
            By::WriteBack => &mut self.write_back,
            By::FileSystem if self.is_raw => return Ok(()),
            By::FileSystem => &mut self.file_system,
            By::Witness => &mut self.witness,
        };
        if !std::mem::take(notice) {
            return Ok(());
        }
        self.unseen &= by == By::FileSystem;
        Err(io::Error::from_raw_os_error(libc::EIO))
    }
}

#[derive(Debug, Clone)]
pub(in crate::store) struct Event {
    pub what: What,
    /// A logical clock that advances by one at each beginning and each end.
    pub begun: usize,
    pub ended: Option<usize>,
}

#[derive(Debug, Default)]
struct Inner {
    now: usize,
    events: Vec<Event>,
    faults: Faults,
}

#[derive(Debug, Default)]
pub(in crate::store) struct Log(Mutex<Inner>);

impl Log {
    pub fn begin(&self, what: What) -> usize {
        let mut inner = self.0.lock().expect("no thread panics");
        if let What::Write { at, bytes } | What::Durable { at, bytes } = &what {
            // Its pages are to be written again.
            let pages = *at as usize / PAGE_BYTES..(*at as usize + bytes.len()).div_ceil(PAGE_BYTES);
            inner.faults.clean.retain(|page, _| !pages.contains(page));
        }
        if matches!(what, What::Sync(By::Sums)) && !inner.faults.in_race.is_empty() {
            let pages = std::mem::take(&mut inner.faults.in_race);
            inner.faults.lose(pages);
            let _ = inner.faults.notice(By::Durable);
        }
        inner.now += 1;
        let begun = inner.now;
        inner.events.push(Event { what, begun, ended: None });
        inner.events.len() - 1
    }

    /// Ends an event, which fails if its description has a notice.
    pub fn end(&self, event: usize, done: io::Result<()>) -> io::Result<()> {
        let mut inner = self.0.lock().expect("no thread panics");
        inner.now += 1;
        let by = match &inner.events[event].what {
            What::Write { .. } => None,
            What::Durable { .. } => Some(By::Durable),
            What::Sync(by) => Some(*by),
        };
        let done = done.and_then(|()| by.map_or(Ok(()), |by| inner.faults.notice(by)));
        let now = inner.now;
        let is_void = inner.faults.is_raw && by == Some(By::FileSystem);
        inner.events[event].ended = (done.is_ok() && !is_void).then_some(now);
        done
    }

    /// That of a disk, without a file system.
    pub fn raw() -> Self {
        let log = Self::default();
        log.0.lock().expect("no thread panics").faults.is_raw = true;
        log
    }

    pub fn is_broken(&self) -> bool {
        self.0.lock().expect("no thread panics").faults.is_broken
    }

    pub fn break_durable(&self, is_broken: bool) {
        self.0.lock().expect("no thread panics").faults.is_broken = is_broken;
    }

    /// The store is opened: new descriptions.
    pub fn opened(&self) {
        let faults = &mut self.0.lock().expect("no thread panics").faults;
        (faults.flushes, faults.durable) = (faults.unseen, faults.unseen);
        (faults.sums, faults.write_back) = (faults.unseen, faults.unseen);
    }

    /// The coordinator opens the disk.
    pub fn attached(&self) {
        let faults = &mut self.0.lock().expect("no thread panics").faults;
        faults.witness = faults.unseen;
    }

    /// A durable write of whole pages fails: like any other, it is in memory as if it were written. The writer gets the notice.
    pub fn fail_durable(&self, file: &File, bytes: &[u8], at: u64) {
        let faults = &mut self.0.lock().expect("no thread panics").faults;
        for (nth, page) in (at as usize / PAGE_BYTES..).zip(bytes.chunks(PAGE_BYTES)) {
            let mut before = vec![0; PAGE_BYTES];
            file.read_exact_at(&mut before, (nth * PAGE_BYTES) as u64).expect("memory");
            faults.clean.entry(nth).or_insert(before);
            file.write_all_at(page, (nth * PAGE_BYTES) as u64).expect("memory");
        }
        faults.lose(BTreeMap::new());
        (faults.durable, faults.unseen) = (false, false);
    }

    /// Whether a page counts as written, and the medium does not have it.
    pub fn is_clean(&self, page: usize) -> bool {
        self.0.lock().expect("no thread panics").faults.clean.contains_key(&page)
    }

    /// The write-back of these pages failed: the medium keeps what it has, and they count as written.
    pub fn fail(&self, pages: BTreeMap<usize, Vec<u8>>) {
        self.0.lock().expect("no thread panics").faults.lose(pages);
    }

    /// The same, when the sums are synced next, and a durable write gets the notice first.
    pub fn fail_in_race(&self, pages: BTreeMap<usize, Vec<u8>>) {
        self.0.lock().expect("no thread panics").faults.in_race = pages;
    }

    /// The notice of a description, if it has one.
    pub fn notice(&self, by: By) -> io::Result<()> {
        self.0.lock().expect("no thread panics").faults.notice(by)
    }

    /// A process gets the notice of a description, and ends before it does anything about it.
    pub fn ignore(&self, by: By) {
        let _ = self.0.lock().expect("no thread panics").faults.notice(by);
    }

    /// The kernel drops those of these pages that count as written, so that they are read from the medium.
    pub fn forget(&self, file: &File, mut drops: impl FnMut(usize) -> bool) {
        let clean: Vec<(usize, Vec<u8>)> = {
            let inner = self.0.lock().expect("no thread panics");
            let dropped = inner.faults.clean.iter().filter(|(page, _)| drops(**page));
            dropped.map(|(page, bytes)| (*page, bytes.clone())).collect()
        };
        for (page, bytes) in clean {
            let event = self.begin(What::Write { at: (page * PAGE_BYTES) as u64, bytes: bytes.clone() });
            let _ = self.end(event, file.write_all_at(&bytes, (page * PAGE_BYTES) as u64));
        }
    }

    /// The time of the last event.
    pub fn now(&self) -> usize {
        self.0.lock().expect("no thread panics").now
    }

    /// Everything logged so far.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().expect("no thread panics").events.clone()
    }
}

thread_local! {
    static CURRENT_LOG: RefCell<Option<Arc<Log>>> = const { RefCell::new(None) };
}

/// The log of disks opened by this thread.
pub(in crate::store) fn current() -> Option<Arc<Log>> {
    CURRENT_LOG.with_borrow(Option::clone)
}

/// Makes disks opened by this thread from now on write to this log.
pub(in crate::store) fn record(log: Option<Arc<Log>>) {
    CURRENT_LOG.set(log);
}

thread_local! {
    static MACHINE_NUMBER: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Changes the boot id seen by disks that this thread opens from now on.
pub(in crate::store) fn start_machine() {
    MACHINE_NUMBER.set(MACHINE_NUMBER.get() + 1);
}

/// The boot id of this thread's machine.
pub(in crate::store) fn boot() -> String {
    format!("boot {}", MACHINE_NUMBER.get())
}
