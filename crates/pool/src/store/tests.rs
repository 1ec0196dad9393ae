use super::*;
use crate::protocol::{Claim, ClaimExtensions};
use lab::kept::UndoGuard;
use proptest::prelude::*;
use std::os::unix::fs::FileExt as _;

mod at_hand;
pub(super) mod log;
mod power;
mod writeback;

const STORE_BYTES: u64 = 64 * BLOCK_BYTES;

struct TestPlace {
    _directory: tempfile::TempDir,
    path: PathBuf,
}

fn temp_place() -> TestPlace {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    TestPlace { _directory: directory, path }
}

fn claim(epoch: u64) -> Claim {
    let place = StorePosition { index: 0, count: 1, stripe_bytes: 0, mirror: None };
    Claim {
        epoch,
        coordinator: "c".into(),
        node: "n1".into(),
        size_bytes: STORE_BYTES,
        place,
        joins: None,
        also: Default::default(),
    }
}

fn format_store(at: &TestPlace) -> Store {
    let store = Store::format(&at.path, Some(STORE_BYTES), "n1".into(), false).expect("a store");
    store.claim("p", &claim(1)).expect("it is free");
    store
}

fn read(store: &Store, offset: u64, length: u32) -> Result<Vec<u8>, Status> {
    let mut out = b"before".to_vec();
    let sum = store.read(offset, length, &mut out);
    if sum.is_err() {
        assert_eq!(out, b"before");
    }
    let data = out.split_off(6);
    assert_eq!(sum?, crc32c::crc32c(&data));
    Ok(data)
}

/// Changes the file without the store noticing.
fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).and_then(|f| f.write_all_at(bytes, at)).expect("a change");
}

/// The state left by an older release: two sums for each written block, in an unmarked region.
fn two_sums(at: &TestPlace, block: u64, now: u32, before: u32) {
    overwrite(&at.path, STORE_BYTES + block * 8, &(u64::from(now) | u64::from(before) << 32).to_le_bytes());
}

/// Flushes everything, and removes all marks.
fn settle(store: &Store) {
    store.flush().expect("it has room");
    assert!(store.settle(u64::MAX, u64::MAX).expect("it has room"));
    assert!(!store.header().is_marked());
}

/// Panics if the store contradicts itself; nothing is being written.
fn check_invariants(store: &Store) {
    let Some(regions) = &store.regions else { return };
    // While it is locked no region is marked.
    let header = store.header.lock().unwrap_or_else(PoisonError::into_inner);
    let marked = regions.check_invariants();
    let on_medium: std::collections::BTreeSet<usize> = header.marked.iter().collect();
    let unknown: Vec<_> = marked.iter().filter(|region| !on_medium.contains(region)).collect();
    assert!(unknown.is_empty(), "the regions {unknown:?} are marked in memory only");
    assert_eq!(header.sequence, store.sequence());
    assert!(!regions.has_writers(), "a write has not ended");
}

/// Where a file's header has more marks than the store has regions, or regions so large that their ends are no numbers.
#[test]
fn marks_beyond_the_end_are_ignored() {
    for (region_bytes, marked) in [(None, vec![1]), (Some(1 << 63), Vec::new())] {
        let at = temp_place();
        let mut header = format_store(&at).header();
        header.region_bytes = region_bytes.unwrap_or(header.region_bytes);
        [1, 100, 8191].into_iter().for_each(|region| header.marked.put(region));
        (header.sequence, header.clean, header.boot) = (header.sequence + 1, false, "another".into());
        let place = store_bytes(STORE_BYTES) - 2 * HEADER_BYTES + header.sequence % 2 * HEADER_BYTES;
        overwrite(&at.path, place, &header.to_bytes().expect("a header"));
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(store.header().marked.iter().collect::<Vec<_>>(), marked);
        assert!(store.header().lost.iter().all(|(begin, bytes)| *bytes > 0 && begin + bytes <= STORE_BYTES));
        assert_eq!(store.recovery().is_some(), !marked.is_empty());
        check_invariants(&store);
    }
}

#[test]
fn writes_survive_clean_and_unclean_shutdown() {
    for close in [true, false] {
        let at = temp_place();
        let store = format_store(&at);
        store.write(5000, b"hello", true).expect("it has room");
        if close {
            store.close().expect("it closes");
        }
        drop(store);
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(store.header().clean, close);
        assert_eq!(read(&store, 4999, 7).expect("it is whole"), b"\0hello\0");
        assert_eq!((store.header().pool.as_str(), store.header().epoch), ("p", 1));
    }
}

#[test]
fn torn_header_leaves_the_previous_one_valid() {
    let at = temp_place();
    let store = format_store(&at);
    store.claim("p", &claim(2)).expect("it is newer");
    let newest = store.headers_at + store.header().sequence % 2 * HEADER_BYTES;
    drop(store);
    overwrite(&at.path, newest + 10, b"\xff\xff");
    assert_eq!(Store::open(&at.path).expect("the other header").header().epoch, 1);
    overwrite(&at.path, store_bytes(STORE_BYTES) - 2 * HEADER_BYTES + 10, b"\xff\xff");
    overwrite(&at.path, store_bytes(STORE_BYTES) - HEADER_BYTES + 10, b"\xff\xff");
    assert!(matches!(Store::open(&at.path), Err(Error::Unformatted { .. })));
}

#[test]
fn headers_are_at_the_end_of_a_longer_device() {
    // The same as `format` does with a device, on a file.
    let at = temp_place();
    let there = store_bytes(STORE_BYTES) + 10 * BLOCK_BYTES + 512;
    let file = File::options().read(true).write(true).create_new(true).open(&at.path).expect("a file");
    file.set_len(there).expect("a size");
    let store = Store::new(Disk::new(file).expect("it is there"), Header::new("n1".into(), STORE_BYTES), there);
    store.write(STORE_BYTES - 3, b"end", false).expect("it has room");
    store.close().expect("it closes");
    drop(store);
    let store = Store::open(&at.path).expect("a store");
    assert_eq!(store.headers_at, there - 2 * HEADER_BYTES);
    assert_eq!(read(&store, STORE_BYTES - 3, 3).expect("it is whole"), b"end");
}

#[test]
fn after_a_crash_of_an_older_release_either_sum_is_valid() {
    let (old, new) = (vec![1; BLOCK_BYTES as usize], vec![2; BLOCK_BYTES as usize]);
    for (held, what) in [(&old, "old"), (&new, "new")] {
        let at = temp_place();
        let store = format_store(&at);
        store.write(0, &old, true).expect("it has room");
        settle(&store);
        drop(store);
        two_sums(&at, 0, checksum(&new), checksum(&old));
        overwrite(&at.path, 0, held);
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(&read(&store, 0, 4096).expect(what), held);
        store.close().expect("it closes");
        assert!(store.header().clean);
        drop(store);
        // Now this sum counts as the only one.
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(&read(&store, 0, 4096).expect(what), held);
        overwrite(&at.path, 0, if held == &old { &new } else { &old });
        assert_eq!(read(&store, 0, 1), Err(Status::Damaged));
    }
}

#[test]
fn failed_write_leaves_the_old_or_the_new_block() {
    let (old, new, newer) = (vec![1; 4096], vec![2; 4096], vec![3; 4096]);
    for older_release in [false, true] {
        let at = temp_place();
        let mut store = format_store(&at);
        store.write(0, &old, true).expect("it has room");
        if older_release {
            settle(&store);
            drop(store);
            // It was killed between writing the pair and the data of `new`.
            two_sums(&at, 0, checksum(&new), checksum(&old));
            store = Store::open(&at.path).expect("a store");
        }
        let full = || Err(io::ErrorKind::StorageFull.into());
        drop(store.mark_for_write(0, BLOCK_BYTES).expect("it has room"));
        assert_eq!(store.replace_blocks(0, &[checksum(&newer)], full), Err(Status::Full));
        assert_eq!(store.replace_blocks(0, &[checksum(&newer)], full), Err(Status::Full), "again");
        // A third content is damage, and either of the two is not: also after the mark is removed and the node was killed.
        overwrite(&at.path, 0, &new);
        assert_eq!(read(&store, 0, 4096), Err(Status::Damaged));
        settle(&store);
        drop(store);
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(read(&store, 0, 4096), Err(Status::Damaged));
        overwrite(&at.path, 0, &old);
        assert_eq!(read(&store, 0, 4096), Ok(old.clone()));
        drop(store);
        overwrite(&at.path, 0, &newer);
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(read(&store, 0, 4096), Ok(newer.clone()));
        // The current content is the only valid one from now on, although the medium has both sums.
        store.close().expect("it closes");
        drop(store);
        overwrite(&at.path, 0, &old);
        assert_eq!(read(&Store::open(&at.path).expect("a store"), 0, 4096), Err(Status::Damaged));
    }
}

#[test]
fn trim_cut_short_by_an_older_release_leaves_old_or_zeroes() {
    for zeroed in [false, true] {
        let at = temp_place();
        let store = format_store(&at);
        store.write(0, &[7; 4096], true).expect("it has room");
        settle(&store);
        drop(store);
        two_sums(&at, 0, 0, checksum(&[7; 4096]));
        if zeroed {
            overwrite(&at.path, 0, &[0; 4096]);
        }
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(read(&store, 100, 1), Ok(vec![if zeroed { 0 } else { 7 }]));
    }
}

#[test]
fn flipped_byte_is_detected_on_every_read_path() {
    let at = temp_place();
    let store = format_store(&at);
    store.write(0, &[9; 3 * 4096], true).expect("it has room");
    overwrite(&at.path, 4096 + 77, &[8]);
    assert_eq!(read(&store, 4096, 1), Err(Status::Damaged));
    assert_eq!(read(&store, 0, 3 * 4096), Err(Status::Damaged));
    assert_eq!(store.write(4096, b"part", false), Err(Status::Damaged));
    assert_eq!(read(&store, 0, 4096), Ok(vec![9; 4096]));
    // Writing a whole block repairs it; the same applies to a block that was never written and is not zero.
    store.write(4096, &[1; 4096], false).expect("nothing of the old block is kept");
    assert_eq!(read(&store, 4096, 2), Ok(vec![1, 1]));
    overwrite(&at.path, 5 * 4096, &[1]);
    assert_eq!(read(&store, 5 * 4096, 1), Err(Status::Damaged));
}

#[test]
fn import_keeps_the_content_of_an_image() {
    let at = temp_place();
    let mut image = vec![0; 10_000];
    image[9_990..].fill(5);
    std::fs::write(&at.path, &image).expect("a file");
    let refused = Store::format(&at.path, Some(STORE_BYTES), "n1".into(), false);
    assert!(matches!(refused, Err(Error::NotEmpty { .. })));
    let refused = Store::format(&at.path, Some(4096), "n1".into(), true);
    assert!(matches!(refused, Err(Error::Size { .. })));
    assert_eq!(std::fs::read(&at.path).expect("the file"), image, "a refusal changes nothing");
    let store = Store::format(&at.path, None, "n1".into(), true).expect("it is taken in");
    assert_eq!(store.size_bytes(), 12_288);
    image.resize(12_288, 0);
    assert_eq!(read(&store, 0, 12_288), Ok(image));
}

#[test]
fn failed_format_neither_leaves_nor_removes_a_file() {
    let at = temp_place();
    for size in [None, Some(0)] {
        assert!(matches!(Store::format(&at.path, size, "n1".into(), false), Err(Error::Size { .. })));
        assert!(!at.path.exists(), "{size:?} leaves a file");
    }
    std::fs::write(&at.path, b"").expect("a file");
    assert!(Store::format(&at.path, None, "n1".into(), false).is_err());
    assert!(at.path.exists(), "it was there before");
}

#[test]
fn repeated_claim_of_another_epoch_is_refused() {
    let at = temp_place();
    let store = format_store(&at);
    let again = |epoch| Claim { also: ClaimExtensions { again: true, ..ClaimExtensions::default() }, ..claim(epoch) };
    assert_eq!(store.claim("p", &again(1)), Ok(()));
    let why = store.claim("p", &again(2)).expect_err("it was claimed with epoch 1");
    assert_eq!(why, Refusal::OlderStore { has: 1, was: 2 });
    assert_eq!(store.claim("p", &claim(2)), Ok(()), "it was not changed by what was refused");
}

#[test]
fn invalid_operations_are_refused() {
    let at = temp_place();
    assert!(matches!(Store::format(&at.path, None, "n1".into(), false), Err(Error::Size { .. })));
    assert!(matches!(Store::format(&at.path, Some(4095), "n1".into(), false), Err(Error::Size { .. })));
    assert!(matches!(Store::open(&at.path), Err(Error::Missing { .. })));
    std::fs::write(&at.path, b"").expect("a file");
    assert!(matches!(Store::open(&at.path), Err(Error::Unformatted { .. })));
    // The error suggests a command that works: a new file needs a size.
    let directory = at.path.parent().expect("a directory");
    for path in [&at.path, directory] {
        let said = Store::open(path).expect_err("no store").to_string();
        assert!(said.contains("--init --store") && said.contains("--size SIZE"), "{said}");
    }
    assert!(matches!(Store::format(directory, Some(STORE_BYTES), "n1".into(), false), Err(Error::Directory { .. })));
    let store = format_store(&at);
    assert!(matches!(Store::open(&at.path), Err(Error::InUse { .. })));
    assert_eq!(store.write(STORE_BYTES - 1, b"xy", false), Err(Status::Range));
    assert_eq!(store.write(u64::MAX, b"xy", false), Err(Status::Range));
    assert_eq!(read(&store, STORE_BYTES, 1), Err(Status::Range));
    store.claim("p", &claim(5)).expect("it is newer");
    let elsewhere = StorePosition { index: 1, count: 2, stripe_bytes: 0, mirror: None };
    for (pool, claim, reason) in [
        ("q", claim(9), "belongs to the pool"),
        ("p", claim(4), "has taken over"),
        ("p", Claim { coordinator: "d".into(), ..claim(5) }, "has taken over"),
        ("p", Claim { place: elsewhere, ..claim(9) }, "in their original order"),
    ] {
        let why = store.claim(pool, &claim).expect_err("it must not be");
        assert!(why.to_string().contains(reason), "{why}");
    }
    drop(store);
    assert!(matches!(Store::format(&at.path, Some(STORE_BYTES), "n2".into(), true), Err(Error::Exists { .. })));
    File::options().write(true).open(&at.path).and_then(|f| f.set_len(STORE_BYTES)).expect("it is cut");
    assert!(matches!(Store::open(&at.path), Err(Error::Unformatted { .. })));
}

/// On a medium that becomes full, acknowledged data is kept, and rejected writes change nothing; also after the store was
/// closed and reopened.
#[test]
#[ignore = "root: mounts a small tmpfs"]
fn full_medium_keeps_acknowledged_data() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = directory.path().join("store");
    let mounted = UndoGuard::mount("tmpfs", "size=1M", directory.path()).expect("a small tmpfs");
    // Its table has four pages, so that a write across the border of two may find space for only one of them.
    let size = 2048 * BLOCK_BYTES;
    let store = Store::format(&at, Some(size), "n1".into(), false).expect("a sparse file");
    let claim = Claim { size_bytes: size, ..claim(1) };
    assert!(store.insufficient_free_bytes().is_some_and(|free| free < 1 << 20), "it is reported beforehand");
    store.claim("p", &claim).expect("it is free");
    let mut model = vec![0_u8; 2048];
    let mut full = 0;
    for round in 1..=3_u8 {
        for begin in (0..2040).step_by(5) {
            let block = (begin * 7) % 2040;
            match store.write(block as u64 * BLOCK_BYTES, &[round; 4 * BLOCK_BYTES as usize], false) {
                Ok(()) => model[block..block + 4].fill(round),
                Err(Status::Full) => full += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(full > 100 && model.contains(&3), "{full}");
    let check = |store: &Store| {
        let mut partly = 0;
        for (block, expected) in model.iter().enumerate() {
            // A rejected write may have been done partially, block by block, but never within one.
            let data = read(store, block as u64 * BLOCK_BYTES, BLOCK_BYTES as u32).expect("no block is damaged");
            assert!(data.iter().all(|byte| *byte == data[0]), "block {block} is mixed");
            partly += u32::from(data[0] != *expected);
        }
        assert!(partly < 200, "{partly} blocks differ");
    };
    check(&store);
    store.close().expect("it closes");
    drop(store);
    let store = Store::open(&at).expect("a store");
    check(&store);
    store.trim(0, size as u32, true).expect("it gives space back");
    store.write(0, b"room again", true).expect("there is room");
    drop((store, mounted));
}

/// A mounted disk, or a partition of a disk that is a store: no device is used twice.
#[test]
#[ignore = "root: attaches a loop disk and mounts it"]
fn device_in_use_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let (image, mount) = (directory.path().join("image"), directory.path().join("mount"));
    std::fs::create_dir(&mount).expect("a directory");
    File::create(&image).and_then(|f| f.set_len(16 << 20)).expect("a file");
    let made = std::process::Command::new("mkfs.ext4").arg("-q").arg(&image).status().expect("it is installed");
    assert!(made.success());
    let attached = UndoGuard::attach(&image).expect("a loop device");
    let path = Path::new(attached.answer());
    let mounted = UndoGuard::mount_device(path, &mount).expect("it has a file system");
    assert!(matches!(Store::format(path, None, "n1".into(), true), Err(Error::InUse { .. })));
    assert!(matches!(Store::open(path), Err(Error::InUse { .. })));
    drop(mounted);
    assert!(matches!(Store::format(path, None, "n1".into(), false), Err(Error::NotEmpty { .. })));
    rustix::fs::ftruncate(File::options().write(true).open(&image).expect("a file"), 0).expect("it is emptied");
    rustix::fs::ftruncate(File::options().write(true).open(&image).expect("a file"), 16 << 20).expect("zeroes");
    let store = Store::format(path, None, "n1".into(), false).expect("a device of zeroes");
    assert!(matches!(Store::open(path), Err(Error::InUse { .. })));
    drop(store);
}

#[test]
fn data_size_uses_the_whole_device() {
    for whole in [40_960, 100_000, 1 << 20, (1 << 30) + 512] {
        let data = data_bytes(whole);
        assert!(store_bytes(data) <= whole && store_bytes(data + 3 * BLOCK_BYTES) > whole, "{whole}: {data}");
    }
}

#[test]
fn concurrent_reads_see_writes_atomically() {
    let store = Store::memory(STORE_BYTES, "n1".into()).expect("memory");
    std::thread::scope(|scope| {
        for writer in 1..=3_u8 {
            let store = &store;
            scope.spawn(move || {
                for nth in 0..300_u64 {
                    store.write(nth % 4 * 8192, &[writer; 8192], false).expect("it has room");
                }
            });
        }
        for nth in 0..300 {
            let data = read(&store, nth % 4 * 8192 + 1000, 7000).expect("never damaged");
            assert!(data.iter().all(|byte| *byte == data[0]));
        }
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Writes, trims and reads of any range, with both kinds of restarts in between, behave as on a plain array of bytes.
    #[test]
    fn store_behaves_as_a_byte_array(steps in proptest::collection::vec((0_u8..6, 0..STORE_BYTES, 0_u64..20_000, any::<u8>()), 1..60)) {
        let at = temp_place();
        let mut store = format_store(&at);
        let mut model = vec![0_u8; STORE_BYTES as usize];
        for (kind, offset, length, byte) in steps {
            let length = length.min(STORE_BYTES - offset);
            let range = offset as usize..(offset + length) as usize;
            match kind {
                0 | 1 => {
                    prop_assert_eq!(store.write(offset, &vec![byte; range.len()], byte > 200), Ok(()));
                    model[range].fill(byte);
                }
                2 => {
                    prop_assert_eq!(store.trim(offset, length as u32, byte > 200), Ok(()));
                    model[range].fill(0);
                }
                3 | 4 => {
                    let data = read(&store, offset, length as u32);
                    prop_assert_eq!(data.as_deref(), Ok(&model[range]));
                }
                _ => {
                    if byte % 2 == 0 {
                        store.close().expect("it closes");
                    }
                    drop(store);
                    store = Store::open(&at.path).expect("a store");
                    store.claim("p", &claim(1)).expect("it is ours");
                }
            }
            check_invariants(&store);
        }
        let data = read(&store, 0, STORE_BYTES as u32);
        prop_assert_eq!(data.as_deref(), Ok(&model[..]));
    }
}

#[test]
fn killed_store_has_sums_of_regions_unmarked_during_writes() {
    for round in 0..20 {
        let at = temp_place();
        let store = format_store(&at);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..2_u64)
                .map(|writer| {
                    let store = &store;
                    scope.spawn(move || {
                        for nth in 0..200_u64 {
                            // Both writers have blocks in each region.
                            let (block, byte) = ((nth * 7 % 32) * 2 + writer, (nth + 1) as u8);
                            let content = vec![byte; BLOCK_BYTES as usize];
                            if store.write_nonblocking(&[(block * BLOCK_BYTES, &content)]).is_none() {
                                store.write(block * BLOCK_BYTES, &content, nth % 50 == 0).expect("it has room");
                            }
                        }
                    })
                })
                .collect();
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    store.flush().expect("it has room");
                    store.settle(u64::MAX, u64::MAX).expect("it has room");
                }
            });
            writers.into_iter().for_each(|writer| writer.join().expect("it writes"));
            over.store(true, Ordering::Release);
        });
        check_invariants(&store);
        let now = read(&store, 0, STORE_BYTES as u32).expect("it is whole");
        drop(store);
        let store = Store::open(&at.path).expect("a store");
        assert_eq!(read(&store, 0, STORE_BYTES as u32).as_ref(), Ok(&now), "round {round}");
    }
}

#[test]
fn idle_store_unmarks_regions_after_a_flush() {
    let at = temp_place();
    let store = std::sync::Arc::new(format_store(&at));
    let settler = Settler::start(&store).expect("a thread");
    let marks = || read_header(&at.path, store.disk.file(), store_bytes(STORE_BYTES)).expect("a header").marked;
    store.write(0, b"x", true).expect("it has room");
    store.write(STORE_BYTES - 1, b"x", false).expect("it has room");
    assert!(!marks().is_empty());
    store.flush().expect("it has room");
    let begun = Instant::now();
    while !marks().is_empty() {
        assert!(begun.elapsed().as_secs() < 60, "they stay");
        std::thread::yield_now();
    }
    drop(settler);
    store.write(0, b"y", false).expect("it has room");
    assert!(!marks().is_empty());
}

#[test]
fn error_of_a_missing_store_names_init() {
    let at = temp_place();
    let error = Store::open(&at.path).expect_err("there is nothing").to_string();
    assert!(error.contains("--init --store"), "{error}");
    assert!(!at.path.exists(), "looking made it");
}

#[test]
fn announced_writes_share_one_mark() {
    let directory = tempfile::tempdir().expect("a directory");
    let durable = |announced: bool| {
        let log = std::sync::Arc::new(log::Log::default());
        log::record(Some(log.clone()));
        let path = directory.path().join(announced.to_string());
        let store = Store::format(&path, Some(1 << 20), "n".into(), false).expect("a store");
        log::record(None);
        let count = || log.events().iter().filter(|e| matches!(e.what, log::What::Durable { .. })).count();
        let before = count();
        // Each in its own region, none adjacent to another.
        let writes: Vec<u64> = (0..8).map(|nth| nth * 100_000 / BLOCK_BYTES * BLOCK_BYTES).collect();
        if announced {
            // Ranges beyond the end are rejected when they are written.
            let beyond = [(1 << 20, BLOCK_BYTES), (u64::MAX, 1), (0, 0)];
            store.announce(writes.iter().map(|offset| (*offset, BLOCK_BYTES)).chain(beyond));
        }
        for offset in writes {
            store.write(offset, &[7; BLOCK_BYTES as usize], false).expect("it is within");
        }
        count() - before
    };
    assert_eq!((durable(true), durable(false)), (1, 8));
}

#[test]
fn store_that_needs_more_memory_than_there_is_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("store");
    for size in [1 << 60, u64::MAX] {
        let error = Store::format(&path, Some(size), "n".into(), false).expect_err("it needs petabytes");
        assert!(matches!(error, Error::Memory { .. }), "{error}");
        assert!(!path.exists(), "nothing is left behind");
    }
}
