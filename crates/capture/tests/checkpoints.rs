//! Compares what the probes of XFS and btrfs record of their logs with the file systems' own counts. f2fs is in the suite
//! `lab`: few kernels have it built in.

mod common;

use capture::{Request, Scope};
use common::{LoopDisk, Recorder};
use lab::loopdisk::FileSystem;
use model::event::{Checkpoint, flags};
use model::{Call, Event};
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

/// Records a script in the directory of a disk that is mounted after the recording began: its probes are attached then.
fn record_on_new_disk(kind: FileSystem, probe: &str, script: &str) -> (LoopDisk, Vec<Event>) {
    let mut recorder = Recorder::start(&Request::new(Scope::Command));
    let disk = LoopDisk::with_file_system(kind, 400 << 20);
    let deadline = Instant::now() + Duration::from_secs(120);
    while !recorder.session.coverage().iter().any(|c| c.probe == probe && c.attached) {
        assert!(Instant::now() < deadline, "{probe}: {:?}", recorder.session.coverage());
        recorder.session.wait(Duration::from_millis(20));
        recorder.drain();
    }
    recorder.drain_until_quiet(&disk);
    recorder.events.clear();
    recorder.release(common::spawn_gated(&format!("cd {} && {script}", disk.path().display())));
    recorder.drain_until_quiet(&disk);
    let (events, finished) = recorder.finish();
    assert_eq!(finished.lost, 0, "nothing may be lost on a quiet machine");
    (disk, events)
}

fn checkpoints(events: &[Event], dev: u32, phase: u16) -> Vec<(u64, &Checkpoint)> {
    records!(*events, Checkpoint)
        .filter(|(_, r)| r.dev == dev && r.phase == phase)
        .map(|(e, r)| (e.header.time_ns, r))
        .collect()
}

#[test]
fn xfs_fsync_waits_for_its_checkpoint() {
    needs_live_kernel!();
    if !common::has_file_system(FileSystem::Xfs) {
        return common::skip("no xfs here, or no mkfs.xfs");
    }
    let script = "for i in 1 2 3; do echo $i > f$i; sync f$i; done";
    let (disk, events) = record_on_new_disk(FileSystem::Xfs, "xfs_force", script);
    let requests: Vec<_> =
        checkpoints(&events, disk.dev(), 0).into_iter().filter(|(_, r)| r.ctx & flags::IN_SYSCALL != 0).collect();
    let there = checkpoints(&events, disk.dev(), 1);
    assert_eq!(requests.len(), 3, "an fsync of a new file asks for the log, once: {requests:?}");
    for (asked_ns, asker) in requests {
        let (there_ns, _) = there.iter().find(|(_, r)| r.number == asker.number).expect("it reaches the medium");
        let (event, call) = records!(events, Syscall)
            .find(|(_, s)| s.start_ns == asker.syscall_ns && s.call == Call::Fsync as u16)
            .expect("the call that asked");
        assert!(call.start_ns < asked_ns && asked_ns < *there_ns && *there_ns < event.header.time_ns);
        assert_eq!(call.dev, disk.dev());
    }
    assert!(there.windows(2).all(|w| w[0].1.number < w[1].1.number), "in order: {there:?}");
}

#[test]
fn btrfs_commit_has_the_generation_of_the_superblock() {
    needs_live_kernel!();
    if !common::has_file_system(FileSystem::Btrfs) {
        return common::skip("no btrfs here, or no mkfs.btrfs");
    }
    let script = "echo 1 > f; sync -f .; echo 2 > g; sync -f .";
    let (disk, events) = record_on_new_disk(FileSystem::Btrfs, "btrfs_committed", script);
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let at = disk.path();
    let line = mounts.lines().find(|l| l.split(' ').nth(4) == at.to_str()).expect("its mount");
    let minor: u32 = line.split(' ').nth(2).unwrap().trim_start_matches("0:").parse().expect("a device without a disk");
    let there = checkpoints(&events, minor, 1);
    assert_eq!(there.len(), 2, "one commit a sync: {there:?}");
    // struct btrfs_super_block: at 64 KiB, its generation after 72 bytes.
    let mut generation = [0; 8];
    disk.image().read_exact_at(&mut generation, (64 << 10) + 72).unwrap();
    assert_eq!(there[1].1.number, u64::from_le_bytes(generation));
    assert_eq!(there[0].1.number + 1, there[1].1.number);
}
