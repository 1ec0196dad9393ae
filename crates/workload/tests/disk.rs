//! The storage loads on a disk of their own: their reports are compared with the disk's own statistics, and their
//! messages are tested when it fails.

use lab::kept::UndoGuard;
use lab::loopdisk::{Backing, FileSystem, LoopDisk, Options};
use model::Context;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use workload::Error;

/// Reads completed, sectors read, writes completed, sectors written: the kernel's Documentation/block/stat.rst.
const READ_SECTORS_FIELD: usize = 2;
const WRITE_SECTORS_FIELD: usize = 6;

fn create_disk(backing: &Backing) -> LoopDisk {
    LoopDisk::create(256 << 20, FileSystem::Ext4, backing, &Options::default()).unwrap()
}

fn run_with(words: &str, dir: &Path, context: &Context) -> Result<Vec<Value>, Error> {
    let mut words: Vec<String> = words.split_whitespace().map(String::from).collect();
    words.extend(["--dir".into(), dir.to_str().unwrap().into()]);
    let mut out = Vec::new();
    workload::run(&words, context, &mut out)?;
    Ok(out.split(|b| *b == b'\n').filter(|l| !l.is_empty()).map(|l| serde_json::from_slice(l).unwrap()).collect())
}

fn run(words: &str, dir: &Path) -> Vec<Value> {
    run_with(words, dir, &Context::silent()).unwrap()
}

fn value(lines: &[Value], metric: &str) -> f64 {
    lines.iter().find(|l| l["metric"] == metric).unwrap_or_else(|| panic!("no {metric}: {lines:?}"))["v"]
        .as_f64()
        .unwrap()
}

fn mark<'a>(lines: &'a [Value], name: &str) -> Option<&'a str> {
    lines.iter().find(|l| l["mark"] == name).and_then(|l| l["text"].as_str())
}

/// A context that does something once, when the load reports that it is at `what`, `nth`.
fn act_at_progress(what: &'static str, nth: u64, act: impl FnOnce() + Send + 'static) -> Context {
    let act = std::sync::Mutex::new(Some(act));
    Context::new(Arc::new(move |said: &str, done, _| {
        if said == what
            && done == nth
            && let Some(act) = act.lock().unwrap().take()
        {
            act();
        }
    }))
}

/// Files in the root of the disk, except for ext4's own.
fn remaining_files(disk: &LoopDisk) -> Vec<String> {
    let names = std::fs::read_dir(disk.path()).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
    names.filter(|n| n != "lost+found").collect()
}

/// Paper 001, section 2.3: a read of less than the file system's block costs a block; and O_DIRECT shows that this is due
/// to the page cache, not the disk.
#[test]
#[ignore = "root: makes a loop disk and mounts it"]
fn read_of_one_byte_costs_a_page_unless_direct() {
    let disk = create_disk(&Backing::Ram);
    let amplification = |words: &str| {
        let lines = run(&format!("random --file-size 64M --inner 200 --iterations 1 {words}"), disk.path());
        assert_eq!((mark(&lines, "disk.name"), mark(&lines, "fs.type")), (Some(disk.name()), Some("ext4")));
        assert_eq!(mark(&lines, "cache.doubt"), None, "{words}");
        assert_eq!(
            value(&lines, "device.read_bytes") / value(&lines, "requested_bytes"),
            value(&lines, "amplification")
        );
        value(&lines, "amplification")
    };
    for (words, most) in [("--block 1", 4096.0), ("--block 512", 8.0), ("--block 4K", 1.0)] {
        let found = amplification(&format!("{words} --state cold"));
        // Two of 200 uniform places in 16,384 pages may share one.
        assert!(found <= most && found > 0.95 * most, "{words}: {found}");
    }
    for words in ["--block 512", "--block 4K", "--block 16K", "--block 512 --engine io_uring --depth 8"] {
        assert_eq!(amplification(&format!("{words} --state direct")), 1.0, "{words}");
    }
    assert_eq!(remaining_files(&disk), [""; 0]);
}

#[test]
#[ignore = "root: makes a loop disk and mounts it"]
fn reported_bytes_match_disk_statistics() {
    let disk = create_disk(&Backing::Ram);
    let before = disk.stat().unwrap();
    let lines = run("seq --op read --state direct --count 8 --iterations 3", disk.path());
    let read = (disk.stat().unwrap()[READ_SECTORS_FIELD] - before[READ_SECTORS_FIELD]) * 512;
    let mib = f64::from(1 << 20);
    // Each iteration once; and once more, outside the account, to check every byte.
    assert_eq!(value(&lines, "device.read_bytes"), 24.0 * mib);
    assert!((32 << 20..(32 << 20) + (64 << 10)).contains(&read), "{read}");
    for words in ["synced", "buffered", "direct"] {
        let before = disk.stat().unwrap();
        let lines = run(&format!("seq --op write --state {words} --count 8 --iterations 3"), disk.path());
        let written = ((disk.stat().unwrap()[WRITE_SECTORS_FIELD] - before[WRITE_SECTORS_FIELD]) * 512) as f64;
        let said = value(&lines, "device.written_bytes");
        // All of the data, and no more of the rest (journal, tables) than the disk saw.
        assert!((24.0 * mib..=written).contains(&said) && said < 26.0 * mib, "{words}: {said} of {written}");
    }
    for op in ["insert", "update", "delete"] {
        let lines = run(&format!("sqlite --op {op} --rows 20 --page-size 4096"), disk.path());
        // At least one page of the table and one of the rollback journal, and two flushes, each time.
        assert!(
            value(&lines, "device.written_bytes") >= 20.0 * 8192.0 && value(&lines, "device.flushes") >= 40.0,
            "{op}"
        );
    }
}

#[test]
#[ignore = "root: makes a loop disk, drops everybody's caches"]
fn dropped_caches_are_proven_by_disk_statistics() {
    let disk = create_disk(&Backing::Ram);
    for words in ["random --file-size 16M --inner 100 --iterations 2", "file --op read --files 20 --iterations 2"] {
        let lines = run(&format!("{words} --state dropped"), disk.path());
        assert!(mark(&lines, "cache").unwrap().contains(" 0 of "), "{lines:?}");
        assert_eq!(mark(&lines, "cache.doubt"), None);
        assert!(value(&lines, "amplification") > 0.9);
        let lines = run(&format!("{words} --state warm"), disk.path());
        assert_eq!((mark(&lines, "cache.doubt"), value(&lines, "device.read_bytes")), (None, 0.0));
    }
}

#[test]
#[ignore = "root: mounts a tmpfs"]
fn tmpfs_is_never_called_cold() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = UndoGuard::mount("tmpfs", "size=16m", directory.path()).unwrap();
    let lines =
        run_with("random --file-size 4M --inner 50 --iterations 1 --state cold", directory.path(), &Context::silent());
    drop(mounted);
    let lines = lines.unwrap();
    assert!(mark(&lines, "cache.doubt").unwrap().contains("1024 pages could not be evicted"), "{lines:?}");
    assert!(mark(&lines, "disk.name").unwrap().contains("unknown") && mark(&lines, "device").is_some());
}

#[test]
#[ignore = "root: makes a loop disk and spoils it"]
fn removed_storage_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let disk = create_disk(&Backing::Directory(directory.path().into()));
    let backing = std::fs::read_to_string(disk.sysfs("loop/backing_file")).unwrap().trim().to_owned();
    // A loop disk whose file was truncated to nothing fails every read, like a card that was pulled out.
    let context = act_at_progress("random", 1, move || {
        std::fs::OpenOptions::new().write(true).open(&backing).unwrap().set_len(0).unwrap();
    });
    let words = "random --file-size 32M --state direct --inner 500 --iterations 5 --threads 4";
    let Err(Error::Failed(why)) = run_with(words, disk.path(), &context) else { panic!("it did not fail") };
    assert!(why.contains("cannot read") && why.contains("was removed") && why.contains("--dir"), "{why}");
}

#[test]
#[ignore = "root: makes a loop disk and unmounts it under a load"]
fn unmounted_storage_is_reported() {
    let disk = create_disk(&Backing::Ram);
    let mount = disk.path().to_owned();
    let context = act_at_progress("seq", 1, move || {
        assert!(Command::new("umount").arg("-l").arg(mount).status().unwrap().success());
    });
    let Err(Error::Failed(why)) = run_with("seq --count 4 --iterations 5", disk.path(), &context) else {
        panic!("it did not fail")
    };
    assert!(why.contains("unmounted"), "{why}");
}

#[test]
#[ignore = "root: makes a loop disk and mounts it read-only"]
fn read_only_disk_is_reported() {
    let disk = create_disk(&Backing::Ram);
    assert!(Command::new("mount").args(["-o", "remount,ro"]).arg(disk.path()).status().unwrap().success());
    for words in
        ["seq --count 1", "file --op read --files 1", "random --file-size 1M", "random --file-size 1M --op write"]
    {
        let Err(Error::Failed(why)) = run_with(words, disk.path(), &Context::silent()) else { panic!("{words}") };
        assert!(why.contains("read-only") && why.contains("--dir"), "{words}: {why}");
    }
    let Err(Error::Failed(why)) = run_with("sqlite", disk.path(), &Context::silent()) else { panic!("sqlite") };
    assert!(why.contains("Read-only") && why.contains("--dir"), "{why}");
}

#[test]
#[ignore = "root: makes a loop disk and fills it"]
fn disk_filled_by_others_is_reported_and_files_go() {
    let disk = create_disk(&Backing::Ram);
    for words in ["seq --count 100 --iterations 5", "file --files 100 --iterations 5 --state synced"] {
        let filler = disk.path().join("filler");
        let theirs = filler.clone();
        let context = act_at_progress(if words.starts_with("seq") { "seq" } else { "file" }, 0, move || {
            let mut file = std::fs::File::create(theirs).unwrap();
            let chunk = vec![1; 1 << 20];
            while file.write_all(&chunk).is_ok() {}
        });
        let Err(Error::Failed(why)) = run_with(words, disk.path(), &context) else { panic!("{words} did not fail") };
        assert!(why.contains("full") && why.contains("free some"), "{words}: {why}");
        assert_eq!(remaining_files(&disk), ["filler"], "{words}");
        std::fs::remove_file(filler).unwrap();
    }
}
