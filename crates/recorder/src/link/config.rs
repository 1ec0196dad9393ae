//! The linker's settings, from an archive's metadata.

use crate::Metadata;
use crate::metadata::DiskCounters;
use crate::presets::commits_in_groups;
use causal::accounts::DiskSample;
use causal::{Backing, Config, Sleeps, StackedDisk};
use std::collections::BTreeSet;

/// The linker's settings; `with_statements` are the processes whose statements were recorded.
pub fn linker_config(metadata: &Metadata, with_statements: BTreeSet<u32>) -> Config {
    Config {
        tracer: metadata.tracer,
        tracer_files: metadata.tracer_files.clone(),
        stacked: stacked_disks(metadata),
        functions: metadata.functions.clone(),
        group_commits: (0..).zip(&metadata.functions).filter(|(_, f)| commits_in_groups(f)).map(|(n, _)| n).collect(),
        completions_recorded: metadata.is_attached("rq_done"),
        full_since_ns: metadata.no_room.map(|(since_ns, ..)| since_ns),
        // The first of several disks wins.
        partitions: metadata.partitions.iter().rev().copied().collect(),
        with_statements: Some(with_statements),
        by_place: metadata.by_place,
        sleeps: match (metadata.is_attached("sched_switch"), metadata.all_sleeps) {
            (false, _) => Sleeps::Unrecorded,
            (true, false) => Sleeps::InOperations,
            (true, true) => Sleeps::All,
        },
        marks_from_ns: if metadata.idle_sleeps { Some(0) } else { metadata.marks_from_ns },
        are_idle_sleeps_recorded: metadata.idle_sleeps,
        ..Config::default()
    }
}

/// Returns the disks that are backed by other disks or by a file.
fn stacked_disks(metadata: &Metadata) -> Vec<StackedDisk> {
    let number = |name: &str| metadata.disks.iter().find(|d| d.name == name).map(|d| d.dev);
    let on_disks = metadata
        .disks
        .iter()
        .filter(|d| !metadata.loop_files.iter().any(|(disk, ..)| *disk == d.dev))
        .map(|d| StackedDisk { disk: d.dev, backing: Backing::Disks(d.below.split(' ').filter_map(number).collect()) })
        .filter(|s| !matches!(&s.backing, Backing::Disks(d) if d.is_empty()));
    let on_files =
        metadata.loop_files.iter().map(|&(disk, dev, ino)| StackedDisk { disk, backing: Backing::File { dev, ino } });
    on_disks.chain(on_files).collect()
}

/// Converts the disks' statistics for the accounts.
pub fn readings(all: &[DiskCounters]) -> Vec<DiskSample> {
    let reading = |(disk, from_ns, to_ns, fields): &DiskCounters| DiskSample {
        disk: *disk,
        from_ns: *from_ns,
        to_ns: *to_ns,
        fields: fields.clone(),
    };
    all.iter().map(reading).collect()
}
