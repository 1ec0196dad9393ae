use super::*;
use archive::LogWriter;
use archive::{Archive, Lock, table_maker};

/// Returns the summary of an archive with these event lines and this number of writes counted by the disk.
fn summarise_lines(lines: &[&str], writes: u64) -> analysis::Summary {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    let mut meta = Meta { complete: true, ..Meta::new(ArchiveKind::Trace, 1, Vec::new()) };
    let fields = |writes: u64| {
        let mut fields = vec![0; 17];
        (fields[4], fields[6]) = (100 + writes, 800 + 8 * writes);
        fields
    };
    const DISK_DEV: u32 = 254 << 20;
    let metadata = Metadata {
        disks: vec![Disk { dev: DISK_DEV, name: "vda".into(), below: String::new(), holds_files: true }],
        under_way: vec![(DISK_DEV, 1_000_000_000, 0)],
        counted_before: vec![(DISK_DEV, 1_000_000_000, 1_000_010_000, fields(0))],
        counted_after: vec![(DISK_DEV, 3_000_000_000, 3_000_010_000, fields(writes))],
        ..Metadata::default()
    };
    metadata.store(&mut meta).unwrap();
    Archive::create(dir, &meta, false).unwrap();
    let mut log = LogWriter::create(dir, None).unwrap();
    for line in lines {
        let mut bytes = Vec::new();
        Event::parse(&line.replace("disk=vda", &format!("disk={DISK_DEV}"))).unwrap().encode(&mut bytes);
        log.append(&bytes).unwrap();
    }
    log.finish().unwrap();
    link(dir, &Context::silent(), &|_| ()).unwrap();
    analysis::summarise_archive(&Archive::open(dir).unwrap()).unwrap()
}

const WRITE_EVENTS: [&str; 4] = [
    "@2000000000 cpu0 10/10 rq_issue rq=0x5 sector=80 alloc_ns=1999999000 bytes=4096 disk=vda op=1 flags=128",
    "@2000100000 cpu1 0/0 rq_done rq=0x5 sector=80 bytes=4096 disk=vda op=1 last=1 flags=128",
    "@2000200000 cpu0 10/10 rq_issue rq=0x5 sector=88 alloc_ns=2000199000 bytes=4096 disk=vda op=1 flags=128",
    "@2000300000 cpu1 0/0 rq_done rq=0x5 sector=88 bytes=4096 disk=vda op=1 last=1 flags=128",
];

#[test]
fn completeness_is_judged_by_diskstats() {
    let whole = summarise_lines(&WRITE_EVENTS, 2);
    assert_eq!((whole.completeness.state.name(), whole.loss.events), ("checked", 0), "{:?}", whole.completeness);
    let text = analysis::show::text(&whole);
    // Nobody is known to have caused them, which is a loss of another kind.
    assert!(text.contains("No record was lost") && text.contains("vda counted 2 writes"), "{text}");
    // A completion is missing: the reuse of its command, or the count alone, reveals it.
    for (missing, program) in [(1, "rq_done"), (3, "rq_done")] {
        let lines: Vec<&str> = (0..4).filter(|n| *n != missing).map(|n| WRITE_EVENTS[n]).collect();
        let summary = summarise_lines(&lines, 2);
        assert_eq!((summary.completeness.state.name(), summary.loss.events), ("failed", 1), "{missing}");
        let interval = &summary.loss.intervals[0];
        assert_eq!((interval.source.as_str(), interval.program.as_deref()), ("probe not run", Some(program)));
        assert_eq!(summary.device_commands.incomplete, 1);
        let text = analysis::show::text(&summary);
        assert!(!text.contains("No record was lost") && text.contains("2 writes (1 recorded)"), "{text}");
    }
    // An issue is missing, and then both.
    let unissued = summarise_lines(&[WRITE_EVENTS[0], WRITE_EVENTS[1], WRITE_EVENTS[3]], 2);
    assert_eq!((unissued.loss.events, unissued.loss.intervals[0].program.as_deref()), (1, Some("rq_issue")));
    let unseen = summarise_lines(&WRITE_EVENTS[..2], 2);
    assert_eq!((unseen.loss.events, unseen.completeness.state.name()), (1, "failed"));
    assert_eq!(summarise_lines(&WRITE_EVENTS, 1).completeness.state.name(), "failed", "more than the disk counted");
}

#[test]
fn loss_weakens_links_however_late_it_is_noticed() {
    let write = "@2000000100 cpu0 10/10 syscall start_ns=2000000090 dev=5 ino=12 bytes=4096 result=4096 call=6 ctx=136";
    let bio =
        "@2000000200 cpu1 60/60 bio_queue bio=0x10 sector=800 ino=12 bytes=4096 disk=vda dev=5 pages=1 op=1 ctx=4";
    let later = "@2900000000 cpu1 0/0 task parent=1 text=other";
    let loss = "@2950000000 cpu0 0/0 loss start_ns=2000000110 events=3";
    for lines in [&[write, bio, loss, later][..], &[write, bio, later, loss]] {
        let loss = summarise_lines(lines, 0).loss;
        assert_eq!((loss.events, loss.weakened_links), (3, 1), "{lines:?}");
    }
}

#[test]
fn opening_an_archive_in_use_keeps_its_tables() {
    let directory = tempfile::tempdir().unwrap();
    let dir = directory.path();
    Archive::create(dir, &Meta::new(ArchiveKind::Trace, 1, Vec::new()), false).unwrap();
    LogWriter::create(dir, None).unwrap().finish().unwrap();
    let half_made = dir.join("tables.tmp/spans.parquet");
    std::fs::create_dir(dir.join("tables.tmp")).unwrap();
    std::fs::write(&half_made, "half").unwrap();
    let lock = Lock::take(dir).unwrap();
    let error = table_maker::open(dir, &[&FromEvents { notify: &|_| () }], &Context::silent()).unwrap_err().to_string();
    assert!(error.contains("is being written by process") && half_made.exists(), "{error}");
    drop(lock);
    // Leftovers of a crash are replaced, and no lock remains.
    assert!(table_maker::open(dir, &[&FromEvents { notify: &|_| () }], &Context::silent()).unwrap().has_tables());
    assert!(!dir.join("tables.tmp").exists() && !dir.join("lock").exists());
}
