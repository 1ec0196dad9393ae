use super::*;

/// A record as the kernel writes it.
fn record(sequence: u32, time: u64, action: (u16, u16), place: (u64, u32), rest: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend((MAGIC | VERSION).to_le_bytes());
    out.extend(sequence.to_le_bytes());
    out.extend(time.to_le_bytes());
    out.extend(place.0.to_le_bytes());
    out.extend(place.1.to_le_bytes());
    out.extend((u32::from(action.0) << 16 | u32::from(action.1)).to_le_bytes());
    for n in [7_u32, 8 << 20, 1] {
        out.extend(n.to_le_bytes());
    }
    out.extend(0_u16.to_le_bytes());
    out.extend((rest.len() as u16).to_le_bytes());
    out.extend(rest);
    out
}

const SYNC_WRITE: u16 = category::WRITE | category::SYNC;

#[test]
fn records_become_events_of_block_layer() {
    let bytes = [
        record(0, 1, (category::NOTIFY, NOTIFY_PROCESS), (0, 0), b"my app\0\0"),
        record(1, 10, (SYNC_WRITE, action::QUEUE), (100, 4096), &[]),
        record(2, 11, (SYNC_WRITE, action::PLUG), (0, 0), &[]),
        record(3, 12, (SYNC_WRITE, action::SPLIT), (100, 4096), &104_u64.to_be_bytes()),
        record(4, 13, (SYNC_WRITE, action::ISSUE), (100, 4096), &[]),
        record(5, 14, (category::FLUSH, action::ISSUE), (0, 0), &[]),
        record(8, 15, (category::FLUSH, action::COMPLETE), (0, 0), &[]),
        record(9, 16, (SYNC_WRITE | category::FLUSH | category::FUA, action::COMPLETE), (100, 4096), &[]),
    ]
    .concat();
    let out = read(&[&bytes]).unwrap();
    let told: Vec<String> = out
        .events
        .iter()
        .map(|next| match next {
            TraceItem::DecodedEvent(s) => format!("{} {} {:?} {:?}", s.kind.name(), s.text, s.number(1), s.number(2)),
            TraceItem::Missed(cpu, m) => format!("CPU {cpu}: {:?} between {} and {}", m.events, m.since, m.until),
        })
        .collect();
    assert_eq!(
        told,
        [
            "block_bio_queue WS Some(100) Some(8)",
            "block_split WS Some(100) Some(104)",
            "block_rq_issue WS Some(100) Some(8)",
            "block_rq_issue FF Some(0) Some(0)",
            "CPU 1: Some(2) between 14 and 15",
            "block_rq_complete FF Some(18446744073709551615) Some(0)",
            "block_rq_complete FWFS Some(100) Some(8)",
        ]
    );
    assert_eq!((out.names[&7].as_str(), out.left_out["plug (P)"]), ("my app", 1));
}

#[test]
fn files_of_several_cpus_are_read_in_time_order() {
    let (a, b) = (
        record(1, 30, (SYNC_WRITE, action::QUEUE), (1, 512), &[]),
        record(1, 20, (SYNC_WRITE, action::QUEUE), (2, 512), &[]),
    );
    let out = read(&[&a, &[], &b]).unwrap();
    assert_eq!(out.events.iter().map(crate::ftrace::content::item_time).collect::<Vec<_>>(), [20, 30]);
    // Without a request it is a disk with bios only.
    let done = record(2, 40, (SYNC_WRITE, action::COMPLETE), (1, 512), &[]);
    let out = read(&[&a, &done]).unwrap();
    assert!(matches!(&out.events[1], TraceItem::DecodedEvent(seen) if seen.kind == Kind::BioComplete));
}

#[test]
fn same_records_in_two_files_are_refused() {
    let one = [1, 2].map(|n| record(n, 10 * u64::from(n), (SYNC_WRITE, action::QUEUE), (100, 4096), &[]));
    assert!(read(&[&one[0], &one[1]]).is_ok());
    let all = one.concat();
    assert_eq!(read(&[&all, &one[1]]).unwrap_err().to_string(), DUPLICATES_REASON);
    // A restarted trace counts from one again.
    let anew = record(1, 30, (SYNC_WRITE, action::QUEUE), (100, 4096), &[]);
    assert!(read(&[&all, &anew]).is_ok());
}

/// A disk, 8:16, and its second partition, 8:18, which begins at sector 1000: a bio and its command, from `time` on.
fn traced_write(device: u32, time: u64) -> Vec<u8> {
    let remap = [(8_u32 << 20 | 18).to_be_bytes(), (8_u32 << 20 | 16).to_be_bytes()].concat();
    let remap = [remap, 100_u64.to_be_bytes().to_vec()].concat();
    let actions = [(action::REMAP, &remap[..]), (action::QUEUE, &[]), (action::ISSUE, &[]), (action::COMPLETE, &[])];
    let mut out = Vec::new();
    for (nth, (action, rest)) in (0_u32..).zip(actions) {
        let mut bytes = record(nth + 1, time + u64::from(nth), (SYNC_WRITE, action), (1100, 4096), rest);
        bytes[36..40].copy_from_slice(&device.to_le_bytes());
        out.extend(bytes);
    }
    out
}

#[test]
fn a_partition_next_to_its_disk_is_that_disk_or_refused() {
    let (partition, disk) = (8 << 20 | 18, 8 << 20 | 16);
    let devices = |out: &TraceContent| {
        let device = |next: &TraceItem| match next {
            TraceItem::DecodedEvent(seen) => seen.number(0),
            TraceItem::Missed(..) => None,
        };
        out.events.iter().filter_map(device).collect::<BTreeSet<_>>()
    };
    // Alone, the partition counts as the traced device.
    let alone = read(&[&traced_write(partition, 10)]).unwrap();
    assert_eq!((devices(&alone), alone.notes.len()), (BTreeSet::from([partition.into()]), 0));
    for (first, second) in [(partition, disk), (disk, partition)] {
        let both = read(&[&traced_write(first, 10), &traced_write(second, 20)]).unwrap();
        assert_eq!((devices(&both), both.events.len()), (BTreeSet::from([disk.into()]), 8));
        assert!(both.notes[0].starts_with("8:18 is a partition of 8:16"), "{:?}", both.notes);
        let refused = read(&[&traced_write(first, 10), &traced_write(second, 12)]).unwrap_err().to_string();
        assert!(refused.starts_with("8:18 is a partition of 8:16, whose trace is of the same time"), "{refused}");
    }
    // A device mapper's bios continue to a disk, and both keep their own.
    let mapped = [traced_write(disk, 10), traced_write(253 << 20, 10)].concat();
    assert_eq!(devices(&read(&[&mapped]).unwrap()), BTreeSet::from([disk.into(), 253 << 20]));
}

#[test]
fn truncated_and_unknown_files_are_reported() {
    let whole = record(1, 30, (SYNC_WRITE, action::QUEUE), (1, 512), b"abc");
    for cut in 1..whole.len() {
        let bytes = [&whole[..], &whole[..cut]].concat();
        let out = read(&[&bytes]).unwrap();
        assert_eq!((out.events.len(), out.damaged), (1, 1), "{cut}");
    }
    let mut old = whole.clone();
    old[0] = 6;
    assert!(matches!(read(&[&old]), Err(ReadError::Unsupported(why)) if why.contains("version 6")));
    assert!(matches!(read(&[&whole, b"text"]), Err(ReadError::Unsupported(_))));
    assert!(matches!(read(&[b""]), Err(ReadError::Empty(_))));
    assert!(is(&whole) && !is(b"text") && !is(b""));
    let big = [(MAGIC | VERSION).to_be_bytes().to_vec(), vec![0; 44]].concat();
    assert!(is(&big) && read(&[&big]).unwrap().damaged == 0);
}
