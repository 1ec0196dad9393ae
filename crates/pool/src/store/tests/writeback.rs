//! A store on a kernel whose write-back fails, compared to an array of pages.
//!
//! The kernel takes pages whose write-back failed as written, drops some of them at once, some later and some never, and
//! tells so as it does ([`super::log`]). Processes are killed at any time, also between a notice and what they do about it,
//! and the header cannot be written for a while. Whatever happens: no flush succeeds while a page of an acknowledged write
//! is lost, the header names that page then, and each page reads as what was written last; if it is lost, as an error or as
//! what it was at some time since it was last flushed.
//!
//! The store is a file, or a raw disk. A disk has no notice other than those of its descriptions; so its coordinator
//! keeps one, asks it when another process serves the store, and has that record what it is told.

use super::log::{By, Log, What, record, start_machine};
use super::power::{COMMON_KIND, Keeping, StoryRandom, format_image, memory_file, state_after_cut_keeping};
use super::*;
use std::collections::BTreeMap;
use std::sync::Arc;

const PAGE_BYTES: usize = BLOCK_BYTES as usize;
const PAGE_COUNT: usize = STORE_BYTES as usize / PAGE_BYTES;

/// What a page may be.
#[derive(Debug, Clone)]
struct Page {
    /// What was written last.
    now: Vec<u8>,
    /// What it was since it was last flushed.
    permitted: Vec<Vec<u8>>,
    /// Whether the medium does not have what was acknowledged, which is not accepted, and will not be written again.
    is_lost: bool,
    /// Whether it was lost when flushes failed anyway: the next one that is tried, after that loss is accepted, must show it.
    is_late: bool,
}

struct Trial {
    log: Arc<Log>,
    is_raw: bool,
    base: Vec<u8>,
    file: File,
    path: PathBuf,
    store: Option<Store>,
    epoch: u64,
    pages: Vec<Page>,
    /// Whether the coordinator knows of a failure that the store may not have recorded, and the last process that it knows.
    told: bool,
    instance: String,
    chance: StoryRandom,
    /// What was done.
    steps: Vec<String>,
    /// Failed flushes, and those that found a page lost.
    counts: [usize; 2],
}

impl Trial {
    fn new(seed: u64, is_raw: bool) -> Self {
        let (base, _) = format_image(COMMON_KIND);
        let log = Arc::new(if is_raw { Log::raw() } else { Log::default() });
        record(Some(log.clone()));
        start_machine();
        let (file, path) = memory_file(&base);
        let page =
            Page { now: vec![0; PAGE_BYTES], permitted: vec![vec![0; PAGE_BYTES]], is_lost: false, is_late: false };
        let (pages, chance) = (vec![page; PAGE_COUNT], StoryRandom(seed));
        let mut trial = Self {
            log,
            is_raw,
            base,
            file,
            path,
            store: None,
            epoch: 1,
            pages,
            told: false,
            instance: String::new(),
            chance,
            steps: Vec::new(),
            counts: [0; 2],
        };
        trial.open();
        trial
    }

    fn store(&self) -> &Store {
        self.store.as_ref().expect("it is open")
    }

    /// The process ends, and another one opens the store; its coordinator goes on.
    fn open(&mut self) {
        self.store = None;
        let store = loop {
            match Store::open(&self.path) {
                Ok(store) => break store,
                // The supervisor tries again; the header can be written at some time.
                Err(_) => self.log.break_durable(false),
            }
        };
        if self.chance.one_in(2) {
            start_settler(&store);
        }
        self.connect(&store);
        self.store = Some(store);
    }

    /// The coordinator connects to a process.
    fn connect(&mut self, store: &Store) {
        self.claim(store);
        if self.is_raw && self.instance != store.instance() && self.log.notice(By::Witness).is_err() {
            // The process that has ended may have been told alone.
            self.told = true;
            self.claim(store);
        }
        self.instance = store.instance().into();
        self.log.attached();
    }

    fn claim(&mut self, store: &Store) {
        let also =
            ClaimExtensions { flush_failed: self.told, instance: self.instance.clone(), ..ClaimExtensions::default() };
        while store.claim("p", &Claim { also: also.clone(), ..claim(self.epoch) }).is_err() {
            // So does the coordinator.
            self.log.break_durable(false);
        }
        self.told = false;
    }

    /// The user accepts what is shown.
    fn accept(&mut self) -> Result<(), String> {
        let loss = self.store().header().loss();
        if loss.ranges.is_empty() {
            return Ok(());
        }
        self.epoch += 1;
        let id = loss.id.clone();
        let also = ClaimExtensions { accepts: loss.ranges.clone(), accepts_id: loss.id, ..ClaimExtensions::default() };
        if self.store().claim("p", &Claim { also, ..claim(self.epoch) }).is_err() {
            self.log.break_durable(false);
            return Ok(());
        }
        // More may be found meanwhile.
        if self.store().header().loss().id == id {
            return Err("a loss was accepted, and it is still shown".into());
        }
        self.told = false;
        self.log.attached();
        for nth in 0..PAGE_COUNT {
            self.pages[nth].is_late = false;
            if !self.pages[nth].is_lost || !covers_page(&loss.ranges, nth) {
                continue;
            }
            let now = read(self.store(), (nth * PAGE_BYTES) as u64, PAGE_BYTES as u32)
                .map_err(|e| format!("accepted {nth}: {e}"))?;
            let page = &mut self.pages[nth];
            if !page.permitted.contains(&now) {
                return Err(format!("page {nth} was never that since it was flushed"));
            }
            (page.now, page.is_lost) = (now, false);
        }
        Ok(())
    }

    /// Write-back fails for some of the pages that the medium does not have.
    fn fail(&mut self) {
        let keeping = (Keeping::Nothing, &mut StoryRandom(0));
        let on_medium =
            state_after_cut_keeping(&self.base, &self.log.events(), usize::MAX, PAGE_BYTES, self.base.len(), keeping);
        let mut here = vec![0; self.base.len()];
        self.file.read_exact_at(&mut here, 0).expect("memory");
        let fails_anyway = self.store().flushes.has_failed();
        let mut failed = BTreeMap::new();
        for nth in 0..here.len() / PAGE_BYTES {
            let range = nth * PAGE_BYTES..(nth + 1) * PAGE_BYTES;
            let is_dirty = here[range.clone()] != on_medium[range.clone()] && !self.log.is_clean(nth);
            if is_dirty && self.chance.one_in(2) {
                failed.insert(nth, on_medium[range].to_vec());
                if let Some(page) = self.pages.get_mut(nth) {
                    (page.is_lost, page.is_late) = (true, fails_anyway);
                }
            }
        }
        self.steps.push(format!("lost: {:?}", failed.keys().collect::<Vec<_>>()));
        if !failed.is_empty() {
            self.log.fail(failed);
        }
        self.evict();
    }

    fn evict(&mut self) {
        let (log, file) = (self.log.clone(), self.file.try_clone().expect("a file"));
        log.forget(&file, |_| self.chance.one_in(3));
    }

    fn write(&mut self) -> Result<(), String> {
        let first = self.chance.below(PAGE_COUNT as u64) as usize;
        let count = (1 + self.chance.below(4) as usize).min(PAGE_COUNT - first);
        let bytes: Vec<u8> = vec![self.chance.next() as u8; count * PAGE_BYTES];
        let durable = self.chance.one_in(8);
        self.steps.push(format!("write {first} {count}"));
        let written = if self.chance.one_in(2) {
            self.store().write((first * PAGE_BYTES) as u64, &bytes, durable)
        } else {
            self.store().trim((first * PAGE_BYTES) as u64, bytes.len() as u32, durable)
        };
        for nth in first..first + count {
            // Its data may be written although a flush failed; or none is.
            let now = read(self.store(), (nth * PAGE_BYTES) as u64, PAGE_BYTES as u32);
            let page = &mut self.pages[nth];
            match now {
                Ok(now) if written.is_ok() || now != page.now => {
                    page.permitted.push(now.clone());
                    (page.now, page.is_lost) = (now, false);
                }
                Ok(_) => {}
                Err(_) if written.is_err() && page.is_lost => {}
                Err(why) => return Err(format!("page {nth} was written: {why}")),
            }
        }
        if durable {
            self.flushed(written)?;
        }
        Ok(())
    }

    /// A flush was answered.
    fn flushed(&mut self, flushed: Result<(), Status>) -> Result<(), String> {
        self.steps.push(format!("flush {flushed:?} {:?}", self.store().header().lost));
        let lost: Vec<usize> = (0..PAGE_COUNT).filter(|page| self.pages[*page].is_lost).collect();
        match flushed {
            Ok(()) if !lost.is_empty() => Err(format!("a flush succeeded, and the pages {lost:?} are lost")),
            Ok(()) => {
                self.pages.iter_mut().for_each(|page| page.permitted = vec![page.now.clone()]);
                Ok(())
            }
            Err(Status::Lost) => {
                (self.told, self.counts[0]) = (true, self.counts[0] + 1);
                self.counts[1] += usize::from(!lost.is_empty());
                // On the medium, if it can be.
                let shown = if self.log.is_broken() {
                    self.store().header().lost
                } else {
                    read_header(&self.path, &self.file, self.base.len() as u64).expect("a header").lost
                };
                match lost.iter().find(|page| !self.pages[**page].is_late && !covers_page(&shown, **page)) {
                    Some(page) => Err(format!("page {page} is lost, and {shown:?} is shown")),
                    None if shown.is_empty() => Err("a flush failed, and nothing is shown".into()),
                    None => Ok(()),
                }
            }
            Err(_) => Ok(()),
        }
    }

    fn check(&self) -> Result<(), String> {
        for (nth, page) in self.pages.iter().enumerate() {
            match read(self.store(), (nth * PAGE_BYTES) as u64, PAGE_BYTES as u32) {
                Ok(bytes) if bytes == page.now => {}
                Ok(bytes) if page.is_lost && page.permitted.contains(&bytes) => {}
                Err(Status::Damaged) if page.is_lost => {}
                Ok(bytes) => return Err(format!("page {nth} was {}, and reads as {}", page.now[0], bytes[0])),
                Err(why) => return Err(format!("page {nth}: {why}")),
            }
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), String> {
        let step = self.chance.below(25);
        self.steps.push(step.to_string());
        match step {
            0..=8 => self.write()?,
            9..=12 => {
                let flushed = self.store().flush();
                self.flushed(flushed)?;
            }
            13 | 14 => self.fail(),
            15 => {
                self.fail();
                self.log.break_durable(true);
            }
            16 | 17 => {
                self.evict();
                self.open();
            }
            18 => {
                // It is killed when it has a notice and has done nothing about it.
                let all = [By::Flushes, By::Durable, By::Sums, By::WriteBack];
                let by = all[self.chance.below(4) as usize];
                self.log.ignore(by);
                self.open();
            }
            // The settler.
            19 | 20 => drop(self.store().settle(u64::MAX, u64::MAX)),
            21 => {
                self.log.break_durable(false);
                self.store().save_loss();
            }
            22 => self.accept()?,
            23 if self.told => {
                let store = self.store.take().expect("it is open");
                self.connect(&store);
                self.store = Some(store);
            }
            23 => {
                // What early write-back finds is recorded, as a flush would.
                if let Err(error) = self.log.notice(By::WriteBack) {
                    self.store().record_lost_write(&error);
                }
            }
            _ => {
                let closed = self.store().close();
                if closed.is_ok() && self.pages.iter().any(|page| page.is_lost) {
                    return Err("it was closed in order, and a page is lost".into());
                }
                self.open();
            }
        }
        check_invariants(self.store());
        self.check()
    }
}

/// What it does when a process begins.
fn start_settler(store: &Store) {
    // A failure is recorded, and what cannot be settled stays marked.
    let _ = store.flush();
    let _ = store.settle(u64::MAX, u64::MAX);
}

fn covers_page(ranges: &[(u64, u64)], page: usize) -> bool {
    let (begin, end) = ((page * PAGE_BYTES) as u64, ((page + 1) * PAGE_BYTES) as u64);
    ranges.iter().any(|(at, bytes)| *at <= begin && end <= at + bytes)
}

/// Runs a story for each seed; returns how many flushes failed, and how many of them had lost something.
fn run_stories(seeds: std::ops::Range<u64>, is_raw: bool) -> [usize; 2] {
    let mut counts = [0; 2];
    for seed in seeds {
        let mut trial = Trial::new(seed, is_raw);
        for step in 0..60 {
            if let Err(why) = trial.step() {
                panic!("seed {seed}, step {step}: {why}; {}", trial.steps.join("; "));
            }
        }
        counts = [counts[0] + trial.counts[0], counts[1] + trial.counts[1]];
        record(None);
    }
    counts
}

#[test]
fn no_flush_succeeds_while_a_page_is_lost() {
    let [failed, lost] = run_stories(0..50, false);
    assert!(failed > 50 && lost > 25, "{failed} flushes failed, {lost} of them with a loss");
}

#[test]
fn no_flush_succeeds_while_a_page_of_a_raw_disk_is_lost() {
    let [failed, lost] = run_stories(0..50, true);
    assert!(failed > 50 && lost > 25, "{failed} flushes failed, {lost} of them with a loss");
}

/// A process was told that pages of a raw disk were lost, and ended: the next one is not told, flushes with success, and
/// takes what it reads for what the disk has.
#[test]
fn loss_that_only_witness_knows_is_accepted_after_settling() {
    let mut trial = Trial::new(1, true);
    trial.store().write(9 * BLOCK_BYTES, &[2; PAGE_BYTES], false).expect("it has room");
    trial.log.fail(BTreeMap::from([(9, vec![0; PAGE_BYTES])]));
    trial.log.ignore(By::Flushes);
    trial.store = None;
    let store = Store::open(&trial.path).expect("a store");
    start_settler(&store);
    assert!(!store.header().is_marked());
    trial.connect(&store);
    trial.store = Some(store);
    assert_eq!(trial.store().header().loss_causes, [LossCause::FlushFailed]);
    assert_eq!(trial.store().flush(), Err(Status::Lost));
    let lost = trial.store().header().lost;
    assert_eq!(lost, [(8 * BLOCK_BYTES, 4 * BLOCK_BYTES)]);
    (trial.pages[9].is_lost, trial.pages[9].now) = (true, vec![2; PAGE_BYTES]);
    trial.accept().expect("the disk's content counts");
    assert_eq!(read(trial.store(), 9 * BLOCK_BYTES, 4), Ok(vec![0; 4]));
    settle(trial.store());
    trial.open();
    assert_eq!(read(trial.store(), 9 * BLOCK_BYTES, 4), Ok(vec![0; 4]), "its sum is on the disk");
    record(None);
}

#[test]
fn second_loss_before_first_is_accepted_is_shown() {
    let mut trial = Trial::new(1, true);
    let lose = |trial: &Trial, page: usize| {
        trial.store().write(page as u64 * BLOCK_BYTES, &[2; PAGE_BYTES], false).expect("it has room");
        trial.log.fail(BTreeMap::from([(page, vec![0; PAGE_BYTES])]));
    };
    lose(&trial, 9);
    assert_eq!(trial.store().flush(), Err(Status::Lost));
    trial.told = true;
    let store = trial.store.take().expect("it is open");
    trial.connect(&store);
    trial.store = Some(store);
    let first = trial.store().header().loss();
    assert!(covers_page(&first.ranges, 9) && !covers_page(&first.ranges, 40));
    trial.open();
    assert_eq!(trial.store().header().loss(), first, "it is the same");
    lose(&trial, 40);
    [By::Flushes, By::Durable, By::Sums, By::WriteBack].into_iter().for_each(|by| trial.log.ignore(by));
    trial.open();
    let second = trial.store().header().loss();
    assert!(covers_page(&second.ranges, 9) && covers_page(&second.ranges, 40) && second.id != first.id);
    record(None);
}

/// The kernel has it as a clean page.
#[test]
fn header_that_was_not_written_is_not_read() {
    for is_raw in [false, true] {
        let mut trial = Trial::new(1, is_raw);
        trial.log.break_durable(true);
        trial.store().claim("p", &claim(7)).expect_err("it is not written");
        trial.log.break_durable(false);
        trial.store = None;
        assert_eq!(Store::open(&trial.path).expect("a store").header().epoch, 1);
        record(None);
    }
}

#[test]
fn sums_whose_loss_durable_write_was_told_of_are_written_again() {
    let mut trial = Trial::new(1, true);
    trial.store().write(0, &[1; PAGE_BYTES], true).expect("it has room");
    let table = PAGE_COUNT;
    let mut before = vec![0; PAGE_BYTES];
    trial.file.read_exact_at(&mut before, (table * PAGE_BYTES) as u64).expect("memory");
    trial.log.fail_in_race(BTreeMap::from([(table, before)]));
    trial.store().settle(u64::MAX, u64::MAX).expect_err("the sums are lost");
    assert!(trial.store().header().is_marked());
    settle(trial.store());
    let (log, file) = (trial.log.clone(), trial.file.try_clone().expect("a file"));
    log.forget(&file, |_| true);
    trial.open();
    assert_eq!(read(trial.store(), 0, 4), Ok(vec![1; 4]));
    record(None);
}

/// A process that is killed while it flushes may be the only one that was told.
#[test]
fn early_write_back_that_fails_is_recorded_before_it_is_flushed() {
    let mut trial = Trial::new(1, false);
    trial.store().write(9 * BLOCK_BYTES, &[2; PAGE_BYTES], false).expect("it has room");
    trial.log.fail(BTreeMap::from([(9, vec![0; PAGE_BYTES])]));
    let before = trial.log.events().len();
    let error = trial.log.notice(By::WriteBack).expect_err("it is told");
    trial.store().record_lost_write(&error);
    let events = trial.log.events();
    let first = |is: fn(&What) -> bool| events[before..].iter().position(|event| is(&event.what)).expect("it is done");
    let (recorded, flushed) =
        (first(|what| matches!(what, What::Durable { .. })), first(|what| matches!(what, What::Sync(By::Flushes))));
    assert!(recorded < flushed, "{events:?}");
    let durable = read_header(&trial.path, &trial.file, trial.base.len() as u64).expect("a header");
    assert_eq!(durable.loss_causes, [LossCause::FlushFailed]);
    assert!(covers_page(&durable.lost, 9));
    // It is accepted once.
    trial.accept().expect("it is shown");
    assert_eq!(trial.store().flush(), Ok(()));
    record(None);
}

/// What the first failure leaves behind, step by step.
#[test]
fn failed_flush_is_in_header_before_it_is_answered() {
    let mut trial = Trial::new(1, false);
    trial.store().write(0, &[1; PAGE_BYTES], true).expect("it has room");
    settle(trial.store());
    trial.store().write(9 * BLOCK_BYTES, &[2; PAGE_BYTES], false).expect("it has room");
    trial.log.fail(BTreeMap::from([(9, vec![0; PAGE_BYTES])]));
    assert_eq!(trial.store().flush(), Err(Status::Lost));
    let region = regions::region_bytes(STORE_BYTES);
    let expected = [(9 * BLOCK_BYTES / region * region, region)];
    assert_eq!(trial.store().header().lost, expected);
    assert_eq!(trial.store().flush(), Err(Status::Lost), "the kernel reports it once");
    let durable = read_header(&trial.path, &trial.file, trial.base.len() as u64).expect("a header");
    assert_eq!((&durable.lost[..], &durable.loss_causes[..]), (&expected[..], &[LossCause::FlushFailed][..]));
    trial.store().save_loss();
    // The supervisor starts the node again, in the same boot; the kernel drops the page.
    trial.open();
    let loss = trial.store().header().loss();
    assert_eq!((&loss.ranges[..], &loss.causes[..]), (&expected[..], &[LossCause::FlushFailed][..]));
    assert_eq!(read(trial.store(), 9 * BLOCK_BYTES, 4), Ok(vec![0; 4]), "what the medium has");
    // Another loss of the same ranges is not accepted by what was shown before.
    let accept = |trial: &Trial, epoch, id: &str| {
        let also = ClaimExtensions { accepts: expected.to_vec(), accepts_id: id.into(), ..ClaimExtensions::default() };
        trial.store().claim("p", &Claim { also, ..claim(epoch) }).expect("it is newer");
        trial.store().header().lost.is_empty()
    };
    assert!(!accept(&trial, 2, "another"));
    assert!(accept(&trial, 3, &loss.id));
    assert_eq!(trial.store().flush(), Ok(()));
    trial.store().write(9 * BLOCK_BYTES, &[3; PAGE_BYTES], false).expect("it has room");
    trial.log.fail(BTreeMap::from([(9, vec![0; PAGE_BYTES])]));
    assert_eq!(trial.store().flush(), Err(Status::Lost));
    assert!(!accept(&trial, 4, &loss.id), "it was accepted once");
    record(None);
}

mod long {
    #[test]
    #[ignore = "long: 3,000 stories"]
    fn no_flush_succeeds_while_a_page_is_lost_in_3000_stories() {
        super::run_stories(1000..4000, false);
    }

    #[test]
    #[ignore = "long: 2,000 stories"]
    fn no_flush_succeeds_while_a_raw_page_is_lost_in_2000_stories() {
        super::run_stories(1000..3000, true);
    }
}
