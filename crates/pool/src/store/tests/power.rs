//! A store on a machine with power failures, compared to a plain file on a plain disk.
//!
//! The store's real writes and syncs are recorded. The state of the medium after a cut is derived from them: each **unit**
//! (a page of 4 KiB, as written by the page cache, or a sector of 512 bytes, as written by a disk) has its content at the
//! last sync that ended before the cut, or that after any later write, independently of other units. So writes are kept,
//! dropped, torn and reordered. The store is opened in that state, and each unit must read as a plain file could read after
//! the same writes and flushes: the flushed content if it was not written again, otherwise that or any later content. An
//! error is not permitted. The plain file goes through the same cuts and the same check, so that the check requires no more
//! than a plain disk provides.
//!
//! In addition to writes, trims and flushes a story has killed processes (the page cache survives), clean shutdowns, marks that
//! are removed during writes, a second cut while the store recovers from the first, and further stories on the state left
//! by a cut.

use super::log::{By, Event, Log, What, record, start_machine};
use super::*;
use crate::protocol::ClaimExtensions;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;

const PAGE_BYTES: usize = 4096;
const SECTOR_BYTES: usize = 512;

/// splitmix64: the same seed yields the same story on any machine.
pub(super) struct StoryRandom(pub u64);

impl StoryRandom {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub fn one_in(&mut self, of: u64) -> bool {
        self.below(of) == 0
    }
}

/// Which version of a unit survives the cut.
#[derive(Debug, Clone, Copy)]
pub(super) enum Keeping {
    Any,
    /// The version of the last sync, or the newest.
    OldOrNew,
    /// No unit is newer than the last sync.
    Nothing,
    Everything,
    /// Only data is newer than the last sync.
    DataOnly,
    /// Only sums are newer than the last sync.
    SumsOnly,
    /// A single unit is newer.
    One,
    /// A single unit is older.
    AllButOne,
}

const KEEPING_CHOICES: [Keeping; 8] = [
    Keeping::Any,
    Keeping::OldOrNew,
    Keeping::Nothing,
    Keeping::Everything,
    Keeping::DataOnly,
    Keeping::SumsOnly,
    Keeping::One,
    Keeping::AllButOne,
];

/// A possible state after a cut at the time `cut` of a medium with the content `base` before `events`. `data` bytes precede the sums.
pub(super) fn state_after_cut(
    base: &[u8],
    events: &[Event],
    cut: usize,
    unit: usize,
    data: usize,
    chance: &mut StoryRandom,
) -> Vec<u8> {
    let keeping = KEEPING_CHOICES[chance.below(KEEPING_CHOICES.len() as u64) as usize];
    state_after_cut_keeping(base, events, cut, unit, data, (keeping, chance))
}

/// The same, with a choice of what survives.
pub(super) fn state_after_cut_keeping(
    base: &[u8],
    events: &[Event],
    cut: usize,
    unit: usize,
    data: usize,
    (keeping, chance): (Keeping, &mut StoryRandom),
) -> Vec<u8> {
    let mut newest = base.to_vec();
    // For each written unit: its versions, and when each of them was complete in memory.
    let mut versions: std::collections::BTreeMap<usize, Vec<(usize, Vec<u8>)>> = Default::default();
    let mut floors: std::collections::BTreeMap<usize, usize> = Default::default();
    let mut synced = 0;
    for event in events.iter().filter(|event| event.begun < cut) {
        let done = event.ended.filter(|ended| *ended <= cut);
        let (at, bytes, durable) = match &event.what {
            What::Sync(_) => {
                synced = if done.is_some() { synced.max(event.begun) } else { synced };
                continue;
            }
            What::Write { at, bytes } => (*at as usize, bytes, false),
            What::Durable { at, bytes } => (*at as usize, bytes, true),
        };
        newest[at..at + bytes.len()].copy_from_slice(bytes);
        for nth in at / unit..(at + bytes.len()).div_ceil(unit) {
            let whole = nth * unit..newest.len().min((nth + 1) * unit);
            let list = versions.entry(nth).or_insert_with(|| vec![(0, base[whole.clone()].to_vec())]);
            list.push((done.unwrap_or(usize::MAX), newest[whole].to_vec()));
            if durable && done.is_some() {
                floors.insert(nth, list.len() - 1);
            }
        }
    }
    let mut image = base.to_vec();
    let chosen = versions.keys().nth(chance.below(versions.len() as u64) as usize).copied();
    for (nth, list) in &versions {
        let last = list.len() - 1;
        let flushed = list.iter().rposition(|(ended, _)| *ended < synced || *ended == 0).unwrap_or(0);
        let floor = flushed.max(floors.get(nth).copied().unwrap_or(0));
        let pick = match keeping {
            Keeping::Any => floor + chance.below((last - floor + 1) as u64) as usize,
            Keeping::OldOrNew => {
                if chance.one_in(2) {
                    floor
                } else {
                    last
                }
            }
            Keeping::Nothing => floor,
            Keeping::Everything => last,
            Keeping::DataOnly => {
                if nth * unit < data {
                    last
                } else {
                    floor
                }
            }
            Keeping::SumsOnly => {
                if nth * unit < data {
                    floor
                } else {
                    last
                }
            }
            Keeping::One => {
                if Some(*nth) == chosen {
                    last
                } else {
                    floor
                }
            }
            Keeping::AllButOne => {
                if Some(*nth) == chosen {
                    floor
                } else {
                    last
                }
            }
        };
        image[nth * unit..nth * unit + list[pick].1.len()].copy_from_slice(&list[pick].1);
    }
    image
}

/// A request to the disk.
#[derive(Debug, Clone)]
struct StoryRequest {
    /// The new content from this offset on; empty for a flush.
    offset: usize,
    bytes: Vec<u8>,
    /// Whether, once answered, everything answered before it began is durable, and it as well.
    durable: bool,
    /// Its times at the store and at the plain file.
    begun: [usize; 2],
    ended: [usize; 2],
}

/// The permitted contents of each unit after a cut, in order of time.
pub(super) type PermittedContents = Vec<Vec<Vec<u8>>>;

fn permitted_contents(start: &[u8], asked: &[StoryRequest], on: usize, cut: usize, unit: usize) -> PermittedContents {
    let mut now = start.to_vec();
    let mut may: PermittedContents = start.chunks(unit).map(|unit| vec![unit.to_vec()]).collect();
    for one in asked.iter().filter(|one| one.begun[on] < cut) {
        now[one.offset..one.offset + one.bytes.len()].copy_from_slice(&one.bytes);
        for nth in one.offset / unit..(one.offset + one.bytes.len()).div_ceil(unit) {
            may[nth].push(now[nth * unit..(nth + 1) * unit].to_vec());
        }
        if one.durable && one.ended[on] <= cut {
            for list in &mut may {
                let last = list.split_off(list.len() - 1);
                *list = last;
            }
        }
    }
    may
}

/// A plain file, which does exactly what was requested.
#[derive(Default)]
struct PlainFile(Log);

impl PlainFile {
    fn write(&self, at: usize, bytes: &[u8]) {
        let event = self.0.begin(What::Write { at: at as u64, bytes: bytes.to_vec() });
        self.0.end(event, Ok(())).expect("it has no faults");
    }

    fn sync(&self) {
        let event = self.0.begin(What::Sync(By::Flushes));
        self.0.end(event, Ok(())).expect("it has no faults");
    }
}

/// Creates a file in memory with the content `image`, and its path.
pub(super) fn memory_file(image: &[u8]) -> (File, PathBuf) {
    let file = rustix::fs::memfd_create("medium", rustix::fs::MemfdFlags::CLOEXEC).map(File::from).expect("memory");
    file.write_all_at(image, 0).expect("memory");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    (file, path)
}

/// All data of a store, or the first block with an error.
fn store_content(store: &Store) -> Result<Vec<u8>, String> {
    let mut all = Vec::new();
    for offset in (0..store.size_bytes()).step_by(PAGE_BYTES) {
        let block = read(store, offset, PAGE_BYTES as u32);
        all.extend(block.map_err(|status| format!("block {}: {status}", offset / BLOCK_BYTES))?);
    }
    Ok(all)
}

fn check_permitted(data: &[u8], may: &PermittedContents, unit: usize) -> Result<(), String> {
    for (nth, (unit, may)) in data.chunks(unit).zip(may).enumerate() {
        if !may.iter().any(|version| version == unit) {
            return Err(format!("unit {nth} was never that since it was flushed"));
        }
    }
    Ok(())
}

/// The parameters of a story.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoryKind {
    size: u64,
    /// Additional bytes of the medium after the store, as on a device.
    longer: u64,
    /// The version of the release that created it.
    version: u32,
}

pub(super) const COMMON_KIND: StoryKind = StoryKind { size: STORE_BYTES, longer: 0, version: header::FORMAT_VERSION };
const STORY_KINDS: [StoryKind; 8] = [
    COMMON_KIND,
    COMMON_KIND,
    COMMON_KIND,
    COMMON_KIND,
    StoryKind { version: 1, ..COMMON_KIND },
    StoryKind { version: 2, ..COMMON_KIND },
    StoryKind { size: STORE_BYTES / 4, longer: 7 * 512, ..COMMON_KIND },
    StoryKind { size: 500 * BLOCK_BYTES, ..COMMON_KIND },
];

/// Runs a story and cuts it `cuts` times; returns the number of cuts made.
fn run_story(seed: u64, cuts: usize) -> Result<usize, String> {
    let mut chance = StoryRandom(seed);
    let kind = STORY_KINDS[chance.below(STORY_KINDS.len() as u64) as usize];
    let size = kind.size as usize;
    let (mut base, mut start) = format_image(kind);
    if kind.version == 2 {
        make_unclean_version_2(&mut base, &mut start, &mut chance);
    }
    let mut made = 0;
    for _chapter in 0..1 + chance.below(3) {
        let log = Arc::new(Log::default());
        let plain = PlainFile::default();
        record(Some(log.clone()));
        start_machine();
        let (_file, path) = memory_file(&base);
        let mut store = Store::open(&path).map_err(|e| e.to_string())?;
        let mut epoch = store.header().epoch + 1;
        let accepts = ClaimExtensions { accepts: store.header().lost, ..ClaimExtensions::default() };
        store.claim("p", &Claim { size_bytes: kind.size, also: accepts, ..claim(epoch) }).map_err(|e| e.to_string())?;
        let mut asked: Vec<StoryRequest> = Vec::new();
        // The periods in which everything was flushed, and the store had time to record it.
        // The state after a cut is marked until it is flushed once.
        let mut flushed_since_killed = !store.header().is_marked();
        let mut quiet: Vec<std::ops::Range<usize>> = Vec::new();
        let mut now = start.clone();
        // Few offsets, so that blocks are overwritten.
        let hot: Vec<u64> = (0..6).map(|_| chance.below(kind.size)).collect();
        // Marks that are being removed.
        let mut prepared = None;
        for _ in 0..5 + chance.below(40) {
            check_invariants(&store);
            let begun = [log.now() + 1, plain.0.now() + 1];
            let place = if chance.one_in(3) { chance.below(kind.size) } else { hot[chance.below(6) as usize] };
            let (place, length) = match chance.below(4) {
                0 => (place - place % BLOCK_BYTES, BLOCK_BYTES),
                1 => (place - place % 512, 512 * (1 + chance.below(9))),
                2 => (place, 1 + chance.below(600)),
                _ => (place, 1 + chance.below(6 * BLOCK_BYTES)),
            };
            let length = length.min(kind.size - place) as usize;
            let (offset, durable) = (place as usize, chance.one_in(8));
            let mut one = StoryRequest { offset, bytes: Vec::new(), durable, begun, ended: [0; 2] };
            match chance.below(28) {
                0..=10 => {
                    let byte = chance.next() as u8;
                    one.bytes = (0..length).map(|nth| byte.wrapping_add((nth / 97) as u8)).collect();
                    store.write(place, &one.bytes, durable).map_err(|e| format!("write: {e}"))?;
                }
                11..=13 => {
                    one.bytes = vec![0; length];
                    store.trim(place, length as u32, durable).map_err(|e| format!("trim: {e}"))?;
                }
                14..=16 => {
                    one.durable = true;
                    store.flush().map_err(|e| format!("flush: {e}"))?;
                }
                17 | 24 => {
                    // The process is killed and restarted: memory survives.
                    flushed_since_killed = false;
                    prepared = None;
                    drop(store);
                    store = Store::open(&path).map_err(|e| e.to_string())?;
                    epoch += 1;
                    store.claim("p", &Claim { size_bytes: kind.size, ..claim(epoch) }).map_err(|e| e.to_string())?;
                    continue;
                }
                25..=27 => {
                    // Marks are removed, with other operations in between.
                    if let Some(prepared) = prepared.take() {
                        store.unmark(&prepared).expect("memory");
                    } else {
                        // Few bytes: after an unclean shutdown blocks are checked in several rounds.
                        prepared = Some(store.prepare(u64::MAX, chance.below(3) * BLOCK_BYTES).expect("memory").0);
                    }
                    continue;
                }
                18 => {
                    prepared = None;
                    store.close().map_err(|e| e.to_string())?;
                    drop(store);
                    store = Store::open(&path).map_err(|e| e.to_string())?;
                    epoch += 1;
                    store.claim("p", &Claim { size_bytes: kind.size, ..claim(epoch) }).map_err(|e| e.to_string())?;
                    one.durable = true;
                }
                20..=23 => {
                    // Concurrent writes of one or more blocks.
                    let mut blocks: Vec<u64> = hot.iter().chain(&[place]).map(|place| place / BLOCK_BYTES).collect();
                    blocks.sort_unstable();
                    blocks.dedup();
                    blocks.retain(|_| chance.one_in(2));
                    let bytes = vec![chance.next() as u8; 4 * BLOCK_BYTES as usize];
                    let mut writes: Vec<(u64, &[u8])> = Vec::new();
                    let ends = blocks.iter().skip(1).copied().chain([kind.size / BLOCK_BYTES]);
                    for (block, end) in blocks.iter().zip(ends) {
                        let many = (1 + chance.next() % 4).min(end - block) as usize;
                        writes.push((block * BLOCK_BYTES, &bytes[..many * BLOCK_BYTES as usize]));
                    }
                    match store.write_nonblocking(&writes) {
                        Some(results) => results.into_iter().collect::<Result<(), _>>().map_err(|e| e.to_string())?,
                        None => writes
                            .iter()
                            .try_for_each(|(offset, bytes)| store.write(*offset, bytes, false))
                            .map_err(|e| e.to_string())?,
                    }
                    if !writes.is_empty() {
                        quiet.iter_mut().for_each(|quiet| quiet.end = quiet.end.min(begun[0]));
                    }
                    let first = asked.len();
                    for (offset, bytes) in writes {
                        let (offset, bytes) = (offset as usize, bytes.to_vec());
                        now[offset..offset + bytes.len()].copy_from_slice(&bytes);
                        plain.write(offset, &bytes);
                        asked.push(StoryRequest { offset, bytes, durable: false, begun, ended: [0; 2] });
                    }
                    let ended = [log.now(), plain.0.now()];
                    asked[first..].iter_mut().for_each(|one| one.ended = ended);
                    continue;
                }
                _ => {
                    // Marks are not removed concurrently.
                    prepared = None;
                    store.settle(u64::MAX, u64::MAX).expect("memory");
                    // A killed process may have left data that its successor does not know to be flushed.
                    if unflushed_ranges(&asked, usize::MAX).is_empty() && flushed_since_killed {
                        quiet.push(log.now()..usize::MAX);
                    }
                    continue;
                }
            }
            now[offset..offset + one.bytes.len()].copy_from_slice(&one.bytes);
            if !one.bytes.is_empty() {
                quiet.iter_mut().for_each(|quiet| quiet.end = quiet.end.min(begun[0]));
                plain.write(offset, &one.bytes);
            }
            if one.durable {
                plain.sync();
                flushed_since_killed = true;
            }
            one.ended = [log.now(), plain.0.now()];
            asked.push(one);
        }
        check_invariants(&store);
        if store_content(&store)? != now {
            return Err("a read before any cut is wrong".into());
        }
        drop(store);
        let events = log.events();
        let mut next = None;
        for _ in 0..cuts {
            made += 1;
            let unit = if chance.one_in(2) { PAGE_BYTES } else { SECTOR_BYTES };
            // The plain file must pass the check first.
            let cut = chance.below(plain.0.now() as u64 + 1) as usize;
            let image = state_after_cut(&start, &plain.0.events(), cut, unit, size, &mut chance);
            check_permitted(&image, &permitted_contents(&start, &asked, 1, cut, unit), unit)
                .map_err(|e| format!("a plain file: {e}"))?;
            let cut = chance.below(log.now() as u64 + 1) as usize;
            let image = state_after_cut(&base, &events, cut, unit, size, &mut chance);
            let may = permitted_contents(&start, &asked, 0, cut, unit);
            let lost = ExpectedLoss {
                at_least: unflushed_ranges(&asked, cut),
                nothing: quiet.iter().any(|quiet| quiet.contains(&cut)),
            };
            let (image, data) = recover_and_check(image, &may, &lost, unit, size, &mut chance)
                .map_err(|why| format!("cut at {cut} of {}, units of {unit}: {why}", log.now()))?;
            next = Some((image, data));
        }
        let Some(next) = next else { break };
        (base, start) = next;
    }
    record(None);
    Ok(made)
}

/// The losses that the store must report.
#[derive(Debug)]
struct ExpectedLoss {
    at_least: Vec<std::ops::Range<u64>>,
    nothing: bool,
}

/// The ranges with acknowledged but unflushed data; an unanswered flush may have succeeded nevertheless.
fn unflushed_ranges(asked: &[StoryRequest], cut: usize) -> Vec<std::ops::Range<u64>> {
    let mut all = Vec::new();
    for one in asked.iter().filter(|one| one.begun[0] <= cut) {
        if one.ended[0] <= cut {
            all.push(one.offset as u64..(one.offset + one.bytes.len()) as u64);
        }
        if one.durable {
            all.clear();
        }
    }
    all.retain(|range| !range.is_empty());
    all
}

/// Opens the state left by a cut, possibly with another cut meanwhile, and checks it. Returns the resulting medium, and its content.
fn recover_and_check(
    mut image: Vec<u8>,
    may: &PermittedContents,
    lost: &ExpectedLoss,
    unit: usize,
    size: usize,
    chance: &mut StoryRandom,
) -> Result<(Vec<u8>, Vec<u8>), String> {
    for _ in 0..chance.below(3) {
        // A second power cut while the store recovers from the first.
        start_machine();
        let log = Arc::new(Log::default());
        record(Some(log.clone()));
        let (_file, path) = memory_file(&image);
        let store = Store::open(&path).map_err(|e| e.to_string())?;
        let claimed = Claim { size_bytes: size as u64, ..claim(store.header().epoch + 1) };
        if chance.one_in(2) {
            store.claim("p", &claimed).map_err(|e| e.to_string())?;
        }
        if chance.one_in(2) && store.header().lost.is_empty() {
            // It got as far as computing sums.
            store.flush().map_err(|e| e.to_string())?;
            store.settle(u64::MAX, chance.below(9) * BLOCK_BYTES).map_err(|e| e.to_string())?;
        }
        drop(store);
        let cut = chance.below(log.now() as u64 + 1) as usize;
        image = state_after_cut(&image, &log.events(), cut, unit, size, chance);
    }
    start_machine();
    record(None);
    let (file, path) = memory_file(&image);
    let store = Store::open(&path).map_err(|e| e.to_string())?;
    let data = store_content(&store)?;
    check_permitted(&data, may, unit)?;
    let reported = store.header().lost;
    let known =
        |range: &std::ops::Range<u64>| reported.iter().any(|(at, bytes)| *at <= range.start && range.end <= at + bytes);
    if !lost.at_least.iter().all(known) || (lost.nothing && !reported.is_empty()) {
        return Err(format!("{reported:?} may be lost, it says, and it is {lost:?}"));
    }
    // Afterwards it works as usual: partial blocks can be written, and a clean shutdown keeps the data.
    if !reported.is_empty() && store.flush() != Err(Status::Lost) {
        return Err("a flush succeeded before the loss was accepted".into());
    }
    let also = ClaimExtensions { accepts: reported, ..ClaimExtensions::default() };
    let claimed = Claim { size_bytes: size as u64, also, ..claim(store.header().epoch + 1) };
    store.claim("p", &claimed).map_err(|e| e.to_string())?;
    let place = chance.below(size as u64 - 3);
    store
        .write(place, &data[place as usize..place as usize + 3], false)
        .map_err(|e| format!("a part of a block: {e}"))?;
    if chance.one_in(2) {
        store.close().map_err(|e| e.to_string())?;
        drop(store);
        let store = Store::open(&path).map_err(|e| e.to_string())?;
        if !store.header().clean || store_content(&store)? != data {
            return Err("it was another after an end in order".into());
        }
    } else {
        store.flush().map_err(|e| e.to_string())?;
    }
    let mut image = vec![0; image.len()];
    file.read_exact_at(&mut image, 0).map_err(|e| e.to_string())?;
    Ok((image, data))
}

/// The medium of a new store, and its content.
pub(super) fn format_image(kind: StoryKind) -> (Vec<u8>, Vec<u8>) {
    record(None);
    let (file, path) = memory_file(&[]);
    let store = Store::format(&path, Some(kind.size), "n1".into(), false).expect("a store");
    drop(store);
    let mut image = vec![0; store_bytes(kind.size) as usize];
    file.read_exact_at(&mut image, 0).expect("memory");
    if kind.version == 1 {
        downgrade_to_version_1(&mut image);
    }
    if kind.longer > 0 {
        // On a device that is longer than necessary, the headers are at its end.
        let headers = image.split_off(image.len() - 2 * PAGE_BYTES);
        image.resize(image.len() + kind.longer as usize, 0);
        image.extend(headers);
    }
    (image, vec![0; kind.size as usize])
}

/// Converts the headers to version 1.
pub(super) fn downgrade_to_version_1(image: &mut [u8]) {
    change_headers(image, |fields| {
        fields.retain(|name, _| !["region_bytes", "marked", "boot", "lost", "formed"].contains(&name.as_str()));
        fields.insert("version".into(), 1.into());
    });
}

/// Converts the medium to the state left by a kill of the previous release: blocks with two sums, either of which they
/// match, in regions with a mark and without.
fn make_unclean_version_2(image: &mut [u8], start: &mut [u8], chance: &mut StoryRandom) {
    let mut marked = regions::RegionSet::default();
    for block in 0..STORE_BYTES / BLOCK_BYTES {
        let region = (block * BLOCK_BYTES / regions::region_bytes(STORE_BYTES)) as usize;
        if chance.one_in(2) {
            continue;
        }
        let content = vec![chance.next() as u8; PAGE_BYTES];
        let at = (block * BLOCK_BYTES) as usize;
        image[at..at + PAGE_BYTES].copy_from_slice(&content);
        start[at..at + PAGE_BYTES].copy_from_slice(&content);
        let (held, other) = (u64::from(sum_of(&content)), chance.next() as u32 as u64);
        let pair = if chance.one_in(2) { held | other << 32 } else { other | held << 32 };
        let at = (STORE_BYTES + block * 8) as usize;
        image[at..at + 8].copy_from_slice(&pair.to_le_bytes());
        if region.is_multiple_of(2) {
            marked.put(region);
        }
    }
    change_headers(image, |fields| {
        fields.insert("version".into(), 2.into());
        fields.insert("clean".into(), false.into());
        fields.insert("marked".into(), serde_json::to_value(&marked).expect("text"));
    });
}

fn change_headers(image: &mut [u8], change: impl Fn(&mut serde_json::Map<String, serde_json::Value>)) {
    let begin = image.len() - 2 * PAGE_BYTES;
    for header in image[begin..].chunks_mut(PAGE_BYTES) {
        let Ok(mut value) = serde_json::from_slice::<serde_json::Value>(&header[..PAGE_BYTES - 4]) else { continue };
        change(value.as_object_mut().expect("a header"));
        let mut text = serde_json::to_vec(&value).expect("text");
        text.resize(PAGE_BYTES - 4, b' ');
        text.extend(crc32c::crc32c(&text).to_le_bytes());
        header.copy_from_slice(&text);
    }
}

/// Runs a story for each seed, with `cuts` cuts of each part; at least `all` cuts in total.
fn run_stories(seeds: std::ops::Range<u64>, cuts: usize, all: usize) {
    let mut made = 0;
    let mut failed = Vec::new();
    for seed in seeds {
        match run_story(seed, cuts) {
            Ok(more) => made += more,
            Err(why) => failed.push(format!("seed {seed}: {why}")),
        }
    }
    assert!(failed.is_empty(), "{} stories failed:\n{}", failed.len(), failed.join("\n"));
    assert!(made >= all, "{made} cuts");
}

#[test]
fn store_reads_as_plain_disk_after_power_cut() {
    run_stories(0..40, 4, 200);
    // Marks of an earlier cut, and no flush since.
    run_stories(1009..1010, 4, 1);
    run_stories(1786..1787, 4, 1);
}

/// Opens a store after a restart of the machine, or of the process only, when block 0 was written and flushed, and `again`
/// was written since.
fn open_after_cut(again: &[u64], same_machine: bool, change: impl FnOnce(&File)) -> Store {
    start_machine();
    let (image, _) = format_image(COMMON_KIND);
    let (file, path) = memory_file(&image);
    let store = Store::open(&path).expect("a store");
    store.claim("p", &claim(1)).expect("it is free");
    store.write(0, &[7; 64 * PAGE_BYTES], true).expect("it has room");
    settle(&store);
    for block in again {
        store.write(block * BLOCK_BYTES, &[8; PAGE_BYTES], false).expect("it has room");
    }
    drop(store);
    change(&file);
    if !same_machine {
        start_machine();
    }
    Store::open(&path).expect("a store")
}

#[test]
fn coordinator_that_flushed_everything_lost_nothing() {
    let store = open_after_cut(&[0], false, |_| {});
    assert!(!store.header().lost.is_empty());
    let also = ClaimExtensions { flushed: true, ..ClaimExtensions::default() };
    store.claim("p", &Claim { also, ..claim(1) }).expect("it is the same");
    assert_eq!(store.header().lost, []);
}

#[test]
fn damage_in_an_unmarked_region_is_found_after_a_power_cut() {
    let region = regions::region_bytes(STORE_BYTES);
    let flip = |file: &File| file.write_all_at(&[1], region * 5 + 100).expect("memory");
    let store = open_after_cut(&[0, 9], false, flip);
    assert_eq!(store.recovery(), Some(Recovery { marked_bytes: 2 * region, cause: Some(LossCause::MachineRestarted) }));
    assert_eq!(read(&store, region * 5, 10), Err(Status::Damaged));
    assert_eq!(read(&store, 0, 10), Ok(vec![8; 10]));
}

#[test]
fn after_a_kill_marked_regions_count_and_the_rest_is_checked() {
    let region = regions::region_bytes(STORE_BYTES);
    let flip = |file: &File| [100, region + 100].iter().for_each(|at| file.write_all_at(&[1], *at).expect("memory"));
    let store = open_after_cut(&[0], true, flip);
    assert_eq!(store.recovery(), Some(Recovery { marked_bytes: region, cause: None }));
    assert_eq!(store.header().lost, []);
    assert_eq!(read(&store, region, 10), Err(Status::Damaged));
    assert_eq!(read(&store, 99, 2), Ok(vec![8, 1]));
    settle(&store);
    assert_eq!(read(&store, 99, 2), Ok(vec![8, 1]));
}

/// After an unclean shutdown sums are computed in rounds, each of which removes some marks.
#[test]
fn marks_are_removed_region_by_region_after_a_kill() {
    let store = open_after_cut(&[0, 9, 30], true, |_| {});
    store.flush().expect("memory");
    let region = regions::region_bytes(STORE_BYTES);
    let marks = || store.header().marked.iter().count();
    let mut seen = vec![marks()];
    while !store.settle(u64::MAX, region).expect("memory") {
        seen.push(marks());
    }
    assert_eq!((&seen[..], marks()), (&[3, 2, 1][..], 0));
    assert!(store.table.iter().all(|entry| is_settled(entry.load(Ordering::Relaxed))));
}

#[test]
fn checksums_of_a_marked_region_are_rebuilt_from_the_data() {
    let torn = |file: &File| file.write_all_at(&[9; 512], 512).expect("memory");
    let store = open_after_cut(&[0], false, torn);
    assert_eq!(store.recovery().and_then(|recovery| recovery.cause), Some(LossCause::MachineRestarted));
    assert_eq!(store.header().lost, [(0, regions::region_bytes(STORE_BYTES))]);
    let data = read(&store, 0, 4096).expect("as a plain disk has it");
    assert!(data[..512] == [8; 512] && data[512..1024] == [9; 512] && data[1024..] == [8; 3072]);
    // Only known losses are accepted, and only the writer can claim that everything was flushed.
    let lost = store.header().lost;
    let lost_after = |epoch, flushed, accepts: &[(u64, u64)]| {
        let also = ClaimExtensions { flushed, accepts: accepts.to_vec(), ..ClaimExtensions::default() };
        store.claim("p", &Claim { also, ..claim(epoch) }).expect("it is free");
        store.header().lost
    };
    assert_eq!(lost_after(1, false, &[]), lost);
    assert_eq!(lost_after(2, true, &[(0, 1)]), lost);
    assert_eq!(lost_after(2, false, &lost), []);
}

/// A header whose write failed may be there partially: only the previous one is complete.
#[test]
fn failed_header_write_is_retried_in_the_same_slot() {
    let (image, _) = format_image(COMMON_KIND);
    let (file, path) = memory_file(&image);
    let store = Store::open(&path).expect("a store");
    let before = store.header().sequence;
    let too_long = |header: &mut Header| header.pool = "p".repeat(5000);
    assert!(store.write_header(too_long).is_err());
    assert_eq!((store.header().sequence, store.header().pool), (before, String::new()));
    let whole = store.headers_at + before % 2 * HEADER_BYTES;
    file.write_all_at(&[0; PAGE_BYTES], store.headers_at + (before + 1) % 2 * HEADER_BYTES).expect("memory");
    let mut bytes = [[0; PAGE_BYTES]; 2];
    file.read_exact_at(&mut bytes[0], whole).expect("memory");
    store.write_header(|header| header.pool = "p".into()).expect("memory");
    file.read_exact_at(&mut bytes[1], whole).expect("memory");
    assert!(bytes[0] == bytes[1], "the whole one was overwritten");
}

/// A cut during an import leaves no store, or a store with the whole image.
#[test]
fn power_cut_during_an_import_leaves_no_half_made_store() {
    let mut chance = StoryRandom(5);
    for _ in 0..40 {
        let mut image = vec![3; STORE_BYTES as usize];
        image.resize(store_bytes(STORE_BYTES) as usize, 0);
        let log = Arc::new(Log::default());
        record(Some(log.clone()));
        let (_file, path) = memory_file(&image[..STORE_BYTES as usize]);
        drop(Store::format(&path, Some(STORE_BYTES), "n1".into(), true).expect("a store"));
        record(None);
        let cut = chance.below(log.now() as u64 + 1) as usize;
        let unit = if chance.one_in(2) { PAGE_BYTES } else { SECTOR_BYTES };
        let (_file, path) =
            memory_file(&state_after_cut(&image, &log.events(), cut, unit, STORE_BYTES as usize, &mut chance));
        match Store::open(&path) {
            Ok(store) => assert_eq!(store_content(&store), Ok(vec![3; STORE_BYTES as usize])),
            Err(why) => assert!(matches!(why, Error::Unformatted { .. }) && cut < log.now(), "{why}"),
        }
    }
}

mod long {
    #[test]
    #[ignore = "long: 10,000 cuts"]
    fn store_reads_as_a_plain_disk_after_ten_thousand_power_cuts() {
        super::run_stories(1000..2700, 4, 10_000);
    }
}
