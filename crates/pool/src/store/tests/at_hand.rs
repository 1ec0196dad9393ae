//! Concurrent small writes, and when they are not done at once.

use super::*;

const BLOCK_LENGTH: usize = BLOCK_BYTES as usize;

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK_LENGTH]
}

/// The block's checksums in the table on the medium.
fn pair_of(at: &TestPlace, block: u64) -> u64 {
    let mut bytes = [0; 8];
    File::open(&at.path).and_then(|f| f.read_exact_at(&mut bytes, STORE_BYTES + block * 8)).expect("the table");
    u64::from_le_bytes(bytes)
}

#[test]
fn nonblocking_writes_survive_a_kill_and_the_sums_follow() {
    let at = temp_place();
    let store = format_store(&at);
    store.write(0, &vec![1; STORE_BYTES as usize], false).expect("it has room");
    let contents: Vec<Vec<u8>> = (2..12).map(block).collect();
    let places = [0, 1, 2, 9, 10, 20, 33, 34, 50, 63];
    let writes: Vec<(u64, &[u8])> = places.iter().zip(&contents).map(|(p, c)| (p * BLOCK_BYTES, &c[..])).collect();
    assert_eq!(store.write_nonblocking(&writes), Some(vec![Ok(()); 10]));
    assert!((0..64).all(|block| pair_of(&at, block) == 0), "a mark spares each write its sum");
    let check = |store: &Store| {
        for place in 0..64 {
            let nth = places.iter().position(|p| *p == place);
            let expected = nth.map_or_else(|| block(1), |nth| contents[nth].clone());
            assert_eq!(read(store, place * BLOCK_BYTES, BLOCK_LENGTH as u32), Ok(expected), "block {place}");
        }
    };
    check(&store);
    drop(store);
    let store = Store::open(&at.path).expect("a store");
    check(&store);
    settle(&store);
    for (place, content) in places.iter().zip(&contents) {
        assert_eq!(pair_of(&at, *place), settled_pair(checksum(content)), "block {place}");
    }
    drop(store);
    // Damage is detected as on the other paths.
    overwrite(&at.path, 20 * BLOCK_BYTES + 5, &[99]);
    let store = Store::open(&at.path).expect("a store");
    assert_eq!(read(&store, 20 * BLOCK_BYTES, 1), Err(Status::Damaged));
}

#[test]
fn nonblocking_write_that_must_wait_writes_nothing() {
    let at = temp_place();
    let store = format_store(&at);
    let (one, two) = (block(1), block(2));
    let both: [(u64, &[u8]); 2] = [(0, &one), (8 * BLOCK_BYTES, &two)];
    assert_eq!(store.write_nonblocking(&both), None, "no region is marked");
    store.write(0, &one, false).expect("it has room");
    assert_eq!(store.write_nonblocking(&both), None, "one region is not marked");
    store.write(8 * BLOCK_BYTES, &one, false).expect("it has room");
    {
        let _held = store.lock(8..9);
        assert_eq!(store.write_nonblocking(&both), None, "a block is locked");
    }
    assert_eq!(read(&store, 8 * BLOCK_BYTES, 1), Ok(vec![1]));
    let beyond: [(u64, &[u8]); 1] = [(STORE_BYTES, &one)];
    let partly: [(u64, &[u8]); 1] = [(0, &one[..512])];
    let unordered: [(u64, &[u8]); 2] = [both[1], both[0]];
    let twice: [(u64, &[u8]); 2] = [both[0], both[0]];
    let nothing: [(u64, &[u8]); 1] = [(0, &[])];
    for odd in [&beyond[..], &partly, &unordered, &twice, &nothing] {
        assert_eq!(store.write_nonblocking(odd), None);
    }
    assert_eq!(store.write_nonblocking(&both), Some(vec![Ok(()); 2]));
    assert_eq!(read(&store, 8 * BLOCK_BYTES, 1), Ok(vec![2]));
    // After an unclean shutdown a block with unknown content can be written, while a block with two sums is checked first.
    drop(store);
    let store = Store::open(&at.path).expect("a store");
    assert_eq!(store.write_nonblocking(&both), Some(vec![Ok(()); 2]));
    let failed = store.replace_blocks(8, &[checksum(&one)], || Err(io::ErrorKind::StorageFull.into()));
    assert_eq!(failed, Err(Status::Full));
    assert_eq!(store.write_nonblocking(&both), None, "it is unknown which of its sums it has");
    assert_eq!(read(&store, 8 * BLOCK_BYTES, 1), Ok(vec![2]));
    assert_eq!(store.write_nonblocking(&both), Some(vec![Ok(()); 2]));
}

#[test]
fn mark_stays_until_a_flush_covers_a_nonblocking_write() {
    let at = temp_place();
    let store = format_store(&at);
    let one = block(1);
    store.write(0, &one, true).expect("it has room");
    let during = store.regions.as_ref().map(Regions::begin_flush).expect("it is on a medium");
    assert!(store.write_nonblocking(&[(0, &one)]).is_some());
    store.regions.as_ref().expect("it is on a medium").record_flush(during);
    store.settle(u64::MAX, u64::MAX).expect("it has room");
    assert!(store.header().is_marked(), "it was written after that flush began");
    store.flush().expect("it has room");
    store.settle(u64::MAX, u64::MAX).expect("it has room");
    assert!(!store.header().is_marked());
    assert_eq!(store.write_nonblocking(&[(0, &one)]), None, "its mark is gone");
}

/// A block that finds no space is an error, and each block has its old or its new content.
#[test]
#[ignore = "root: mounts a small tmpfs"]
fn full_medium_fails_only_writes_without_space() {
    let directory = tempfile::tempdir().expect("a directory");
    let mounted = UndoGuard::mount("tmpfs", "size=1M", directory.path()).expect("a small tmpfs");
    let size = 2048 * BLOCK_BYTES;
    let store = Store::format(&directory.path().join("store"), Some(size), "n1".into(), false).expect("a sparse file");
    store.claim("p", &Claim { size_bytes: size, ..claim(1) }).expect("it is free");
    // All regions are marked, and no space is allocated yet.
    store.announce([(0, size)].into_iter());
    store.write(0, &block(1), false).expect("it has room");
    let content = block(7);
    let (mut put, mut full) = (Vec::new(), 0);
    for begin in 0..512 {
        let places: Vec<u64> = (0..4).map(|nth| nth * 512 + begin).collect();
        let writes: Vec<(u64, &[u8])> = places.iter().map(|place| (place * BLOCK_BYTES, &content[..])).collect();
        for (place, result) in
            places.iter().zip(store.write_nonblocking(&writes).expect("all is marked and settled or given up"))
        {
            match result {
                Ok(()) => put.push(*place),
                Err(Status::Full) => full += 1,
                Err(other) => panic!("{other}"),
            }
        }
        if full > 0 {
            break;
        }
    }
    assert!(put.len() > 100 && full > 0, "{} and {full}", put.len());
    for place in 0..2048 {
        let data = read(&store, place * BLOCK_BYTES, BLOCK_LENGTH as u32).expect("no block is damaged");
        let expected: &[u8] = if put.contains(&place) { &[7] } else { &[0, 7, 1] };
        assert!(expected.contains(&data[0]) && data.iter().all(|byte| *byte == data[0]), "block {place}");
    }
    drop((store, mounted));
}

#[test]
fn durable_trim_is_covered_by_its_own_flush() {
    let at = temp_place();
    let store = format_store(&at);
    store.write(0, &[1; 8 * BLOCK_LENGTH], false).expect("it has room");
    store.trim(0, 8 * BLOCK_LENGTH as u32, true).expect("it has room");
    store.settle(u64::MAX, u64::MAX).expect("it has room");
    assert!(!store.header().is_marked());
}
