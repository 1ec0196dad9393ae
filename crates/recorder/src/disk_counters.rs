//! The disks' own statistics at both ends of a recording, to check it against.
//!
//! Statistics are read while others continue using the disks, and the kernel counts slightly after a probe sees a completion. So
//! several samples are taken, a few milliseconds apart, until the disks are idle; the linker, which knows what completed around
//! each sample, chooses the best one.

use crate::metadata::DiskCounters;
use causal::accounts::LAG_NS;
use device::{Disks, Local, Reader};
use model::Dev;
use std::time::{Duration, Instant};

/// How long busy disks are sampled.
const SAMPLING_TIMEOUT: Duration = Duration::from_millis(30);
const SAMPLE_INTERVAL: Duration = Duration::from_millis(3);

/// Disks whose statistics are read.
#[derive(Debug)]
pub struct CountedDisks {
    disks: Vec<(Dev, String)>,
}

impl CountedDisks {
    /// Returns those of a machine that take requests and count them.
    pub fn from_disks(disks: &Disks) -> Self {
        let counts = |name: &str| {
            let directory = format!("/sys/block/{name}");
            // A disk without queues of its own, such as those of device mapper and zram, has no commands.
            Local.list(&format!("{directory}/mq")).is_ok()
                && Local.read(&format!("{directory}/queue/iostats")).map_or(true, |on| on.trim() != "0")
        };
        let all = disks.all.values().filter(|disk| counts(&disk.name));
        Self { disks: all.map(|disk| (disk.dev, disk.name.clone())).collect() }
    }

    /// Returns the commands that the drivers have now: disk, time, number.
    pub fn commands_under_way(&self) -> Vec<(u32, u64, u64)> {
        let of = |(dev, name): &(Dev, String)| {
            read_counters(*dev, name).map(|(disk, _, to_ns, fields)| (disk, to_ns, in_flight(&fields)))
        };
        self.disks.iter().filter_map(of).collect()
    }

    /// Samples the disks until they are idle, but no longer than some milliseconds.
    pub fn sample(&self) -> Vec<DiskCounters> {
        let began = Instant::now();
        let mut all: Vec<DiskCounters> = Vec::new();
        let mut last: Vec<Vec<u64>> = Vec::new();
        let mut rests_since = began;
        // What completed before must have been counted, and been seen by probes that were all attached.
        std::thread::sleep(Duration::from_nanos(LAG_NS));
        loop {
            let now: Vec<DiskCounters> =
                self.disks.iter().filter_map(|(dev, name)| read_counters(*dev, name)).collect();
            let fields: Vec<Vec<u64>> = now.iter().map(|(.., fields)| fields.clone()).collect();
            all.extend(now);
            // Among the other fields, times advance without requests.
            let quiet = fields.iter().all(|f| in_flight(f) == 0);
            if !quiet || completed_counts(&fields) != completed_counts(&last) {
                rests_since = Instant::now();
            }
            last = fields;
            let rested = rests_since.elapsed() > Duration::from_nanos(LAG_NS) && rests_since > began;
            if rested || began.elapsed() > SAMPLING_TIMEOUT {
                return all;
            }
            std::thread::sleep(SAMPLE_INTERVAL);
        }
    }
}

/// Returns the ninth field.
fn in_flight(fields: &[u64]) -> u64 {
    fields.get(8).copied().unwrap_or(0)
}

/// Returns the numbers of completed requests: reads, writes, discards, flushes.
fn completed_counts(all: &[Vec<u64>]) -> Vec<Option<&u64>> {
    all.iter().flat_map(|fields| [0, 4, 11, 15].map(|n| fields.get(n))).collect()
}

fn read_counters(dev: Dev, name: &str) -> Option<DiskCounters> {
    let from_ns = capture::boot_ns();
    let line = Local.read(&format!("/sys/block/{name}/stat")).ok()?;
    let to_ns = capture::boot_ns();
    let fields: Vec<u64> = line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<_>>()?;
    Some((dev.0, from_ns, to_ns, fields))
}
