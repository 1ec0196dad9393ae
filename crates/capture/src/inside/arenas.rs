//! The arenas of the recorded processes, read as files: a program that truncates its own would kill a reader that had it mapped.
//!
//! Each process creates one when it first needs it, and names it after itself. The process that a record names is accepted only if the
//! kernel side knows the thread and its process. An arena outlives its process until it has been read.

use crate::kernel::clock::boot_ns;
use crate::tasks::NO_CPU;
use inside::layout::{
    ARENA_BYTES, ARENA_HEADER_BYTES, ARENA_MAGIC, CLOSED_AT, CONTROL_BYTES, CONTROLS_AT, DROPPED_AT, HEAD_AT,
    LIBRARY_AT, LibraryStatus, NO_RING_AT, PRICE_BATCHES, PRICE_STATEMENTS, PRICE_STEPS, RING_WORDS, RINGS, RINGS_AT,
    STATEMENT_PRICES_AT, STEP_PRICES_AT, TAIL_AT, TGID_AT,
};
use inside::ring::{KIND_DISPLACED, RingReader, Window};
use model::event::{Header, Loss};
use model::{Event, LossSource, Record};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

/// Maximum number of open arenas.
const ARENAS_MAX: usize = 4096;

/// Maximum number of batches whose costs are kept, and the longest plausible batch: one in which the thread was preempted is
/// longer, and the program can write anything.
const BATCHES_MAX: usize = 4096;
const BATCH_NS_MAX: u32 = 1_000_000;

/// The cost of recording, by batches of each process that measured it, in ns.
#[derive(Debug, Default)]
pub struct Prices {
    /// Of each further step.
    pub step: Vec<f64>,
    /// Of a statement with one step, including that step.
    pub statement: Vec<f64>,
}

impl Prices {
    /// Adds those of an arena, if it has any.
    fn add_from_header(&mut self, header: &[u8]) -> bool {
        let batches = |at: usize| -> Option<Vec<u32>> {
            let bytes = header.get(at..at + 4 * PRICE_BATCHES)?;
            Some(bytes.chunks_exact(4).filter_map(|b| b.first_chunk().map(|b| u32::from_le_bytes(*b))).collect())
        };
        let (Some(steps), Some(statements)) = (batches(STEP_PRICES_AT), batches(STATEMENT_PRICES_AT)) else {
            return false;
        };
        if steps.iter().chain(&statements).any(|batch| *batch == 0) || self.step.len() + PRICE_BATCHES > BATCHES_MAX {
            return false;
        }
        let whole = |batches: Vec<u32>, of: u32| {
            batches.into_iter().filter(|ns| *ns < BATCH_NS_MAX).map(move |ns| f64::from(ns) / f64::from(of))
        };
        self.step.extend(whole(steps, PRICE_STEPS));
        self.statement.extend(whole(statements, PRICE_STATEMENTS));
        true
    }
}

pub struct Arenas {
    directory: PathBuf,
    open: BTreeMap<OsString, Arena>,
    /// The final status of libraries in processes that have ended.
    ended: BTreeMap<(u32, usize), LibraryStatus>,
    from_ns: u64,
    functions: u64,
    last_ns: u64,
    lost: u64,
    prices: Prices,
}

struct Arena {
    file: File,
    path: PathBuf,
    tgid: u32,
    rings: Vec<RingProgress>,
    no_ring: u64,
    /// Whether its costs were taken.
    priced: bool,
}

#[derive(Default)]
struct RingProgress {
    reader: RingReader,
    dropped: u64,
    unusable: u64,
}

impl Arenas {
    /// Reads the arenas in a directory, ignoring records from before `from_ns` and of more functions than `--op` names.
    pub fn new(directory: PathBuf, from_ns: u64, functions: usize) -> Self {
        let (open, ended, functions) = (BTreeMap::new(), BTreeMap::new(), functions as u64);
        Self { directory, open, ended, from_ns, functions, last_ns: from_ns, lost: 0, prices: Prices::default() }
    }

    pub fn open_new(&mut self) {
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if self.open.len() < ARENAS_MAX
                && !self.open.contains_key(&name)
                && let Some(arena) = Arena::open(entry.path())
            {
                self.open.insert(name, arena);
            }
        }
    }

    pub fn status(&mut self, tgid: u32, library: usize) -> LibraryStatus {
        self.open_new();
        let mut statuses = self.open.values().filter(|arena| arena.tgid == tgid).map(|arena| arena.status(library));
        let known = statuses.rfind(|status| *status != LibraryStatus::Unseen);
        known.or_else(|| self.ended.get(&(tgid, library)).copied()).unwrap_or(LibraryStatus::Unseen)
    }

    /// Returns how full the fullest ring is, from 0 to 1.
    pub fn fill_ratio(&self) -> f64 {
        let used = self.open.values().filter_map(|arena| Some(arena.used(&arena.header()?)));
        used.max().unwrap_or(0) as f64 / RING_WORDS as f64
    }

    /// Returns the new records, in time order, including losses. `process_of` returns the process of a thread.
    pub fn collect(&mut self, process_of: &dyn Fn(u32) -> Option<u32>) -> Vec<Event> {
        let mut all = Vec::new();
        let (mut lost, mut ended_names) = (0, Vec::new());
        let mut processes: BTreeMap<u32, Option<u32>> = BTreeMap::new();
        let mut process_of = |tid: u32| *processes.entry(tid).or_insert_with(|| process_of(tid));
        for (name, arena) in &mut self.open {
            // Checked before reading, so that its last records are included.
            let ended = !Path::new(&format!("/proc/{}", arena.tgid)).exists();
            if !arena.priced {
                arena.priced = arena.header().is_some_and(|header| self.prices.add_from_header(&header));
            }
            lost += arena.read((self.from_ns, self.functions), &mut process_of, &mut |event| all.push(event));
            if ended {
                ended_names.push(name.clone());
            }
        }
        for name in ended_names {
            let Some(arena) = self.open.remove(&name) else { continue };
            let all = (0..inside::layout::PLAN_LIBRARIES).map(|library| ((arena.tgid, library), arena.status(library)));
            self.ended.extend(all.filter(|(_, status)| *status != LibraryStatus::Unseen));
            let _ = fs::remove_file(&arena.path);
        }
        let now_ns = boot_ns();
        // Counted as on the kernel side: what a displaced execution did later is not known.
        let gave_way =
            all.iter().filter(|e| matches!(&e.record, Record::OpEnd(end) if end.kind == KIND_DISPLACED)).count();
        for (count, source) in [(lost, LossSource::Ring), (gave_way as u64, LossSource::TableFull)] {
            if count > 0 {
                self.lost += count;
                all.push(loss_event(self.last_ns, now_ns, count, source));
            }
        }
        self.last_ns = now_ns;
        all.sort_by_key(|event| event.header.time_ns);
        all
    }

    /// Whether a library is hooked in any process, or was.
    pub fn any_hooked(&self) -> bool {
        let hooked =
            |arena: &Arena| (0..inside::layout::PLAN_LIBRARIES).any(|l| arena.status(l) == LibraryStatus::Hooked);
        self.ended.values().any(|status| *status == LibraryStatus::Hooked) || self.open.values().any(hooked)
    }

    /// Returns the cost of recording, as far as processes have measured it.
    pub fn prices(&mut self) -> &mut Prices {
        &mut self.prices
    }

    /// Returns the number of records lost so far.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Notifies all running processes that recording has ended.
    pub fn close(&mut self) {
        self.open_new();
        for arena in self.open.values() {
            let _ = arena.file.write_all_at(&1u64.to_le_bytes(), CLOSED_AT);
        }
    }
}

impl Arena {
    /// Opens an arena, if its process has finished creating it.
    fn open(path: PathBuf) -> Option<Self> {
        let options =
            OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
        let file =
            options.ok().filter(|f| f.metadata().is_ok_and(|about| about.is_file() && about.len() == ARENA_BYTES))?;
        let tgid = path.file_name()?.to_str()?.split('.').next()?.parse().ok()?;
        let rings = (0..RINGS).map(|_| RingProgress::default()).collect();
        let arena = Self { file, path, tgid, rings, no_ring: 0, priced: false };
        let header = arena.header()?;
        let claimed = u32::from_le_bytes(*header.get(TGID_AT..)?.first_chunk()?);
        (read_word(&header, 0) == ARENA_MAGIC && claimed == tgid).then_some(arena)
    }

    fn header(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; ARENA_HEADER_BYTES];
        self.file.read_exact_at(&mut bytes, 0).ok().map(|()| bytes)
    }

    fn status(&self, library: usize) -> LibraryStatus {
        let mut number = [0; 4];
        let read = self.file.read_exact_at(&mut number, (LIBRARY_AT + 4 * library) as u64);
        read.map_or(LibraryStatus::Unseen, |()| LibraryStatus::from_number(u32::from_le_bytes(number)))
    }

    /// Returns the number of words in the fullest ring.
    fn used(&self, header: &[u8]) -> u64 {
        let used = |(i, ring): (usize, &RingProgress)| {
            read_word(header, CONTROLS_AT + i * CONTROL_BYTES + HEAD_AT).wrapping_sub(ring.reader.tail).min(RING_WORDS)
        };
        self.rings.iter().enumerate().map(used).max().unwrap_or(0)
    }

    /// Passes on the available records; returns how many were lost. `known`: when the recording began, and the number of named
    /// functions.
    fn read(
        &mut self,
        known: (u64, u64),
        process_of: &mut dyn FnMut(u32) -> Option<u32>,
        sink: &mut dyn FnMut(Event),
    ) -> u64 {
        let Some(header) = self.header() else { return 0 };
        // After the heads: otherwise a valid record made in between would count as one from the future.
        let window = Window { from_ns: known.0, now_ns: boot_ns(), functions: known.1 };
        // The kernel read the heads for this thread, which is about to read the words before them: a weakly ordered processor needs a
        // fence to keep this order (the program publishes a head by a store-release).
        fence(Ordering::Acquire);
        let mut lost = count_growth(&mut self.no_ring, read_word(&header, NO_RING_AT));
        let (file, tgid) = (&self.file, self.tgid);
        for (i, ring) in self.rings.iter_mut().enumerate() {
            let control = CONTROLS_AT + i * CONTROL_BYTES;
            lost += count_growth(&mut ring.dropped, read_word(&header, control + DROPPED_AT));
            let head = read_word(&header, control + HEAD_AT);
            if head == ring.reader.tail {
                continue;
            }
            if let Some(count) = ring.reader.words_to_read(head)
                && let Some(words) = read_words(file, i, ring.reader.tail, count)
            {
                ring.reader.read(&words, tgid, window, |tid| process_of(tid) == Some(tgid), sink);
            }
            lost += count_growth(&mut ring.unusable, ring.reader.unusable);
            // What was read may be overwritten from here on.
            fence(Ordering::Release);
            let _ = file.write_all_at(&ring.reader.tail.to_le_bytes(), (control + TAIL_AT) as u64);
        }
        lost
    }
}

/// Returns by how much a count has grown. The program can write anything; a count that shrinks starts over.
fn count_growth(known: &mut u64, now: u64) -> u64 {
    let more = now.saturating_sub(*known);
    *known = now;
    // No thread makes as many records in the time of a recording: a false count must not look like a catastrophe.
    if more > 1 << 40 { 1 } else { more }
}

fn read_word(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

/// Reads words of a ring from a position on; they may wrap around.
fn read_words(file: &File, ring: usize, tail: u64, count: u64) -> Option<Vec<u64>> {
    // More than a ring has would wrap around onto itself; `words_to_read` bounds what the program claims.
    assert!(count <= RING_WORDS);
    let mut bytes = vec![0; count as usize * 8];
    let at = tail % RING_WORDS;
    let first = (count.min(RING_WORDS - at) * 8) as usize;
    let start = RINGS_AT + ring as u64 * RING_WORDS * 8;
    let (before, after) = bytes.split_at_mut(first);
    file.read_exact_at(before, start + at * 8).ok()?;
    file.read_exact_at(after, start).ok()?;
    Some(bytes.chunks_exact(8).map(|word| u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]))).collect())
}

fn loss_event(start_ns: u64, now: u64, events: u64, source: LossSource) -> Event {
    let record = Loss { start_ns, events, source: source.number(), ..Loss::default() }.into();
    Event { header: Header { time_ns: now, cpu: NO_CPU, ..Header::default() }, record }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn preempted_batches_are_left_out_of_price() {
        let header = |steps: [u32; PRICE_BATCHES]| {
            let mut header = vec![0; STATEMENT_PRICES_AT.max(STEP_PRICES_AT) + 4 * PRICE_BATCHES];
            for (at, batches) in [(STEP_PRICES_AT, steps), (STATEMENT_PRICES_AT, [1600; PRICE_BATCHES])] {
                let bytes: Vec<u8> = batches.iter().flat_map(|ns| ns.to_le_bytes()).collect();
                header[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            header
        };
        let mut prices = Prices::default();
        assert!(!prices.add_from_header(&header([512, 0, 0, 0, 0])), "it is not measured yet");
        assert!(prices.add_from_header(&header([512, 512, 4_000_000, 512, 512])));
        assert_eq!((prices.step.as_slice(), prices.statement.len()), (&[2.0; 4][..], PRICE_BATCHES));
    }
}
