//! A closed-loop benchmark in the coordinator's own process: a number of requesters, each with one outstanding request, at
//! uniformly random offsets. It measures the pool without an NBD client in between.
//!
//! The first quarter of the time is a warm-up, in which the tuner converges.

use crate::link::{Counts, Failure};
use crate::packets::{Packets, PerDirection};
use crate::volume::Volume;
use bytes::Bytes;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use stats::random::Random;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Bytes of a request; its offset is a multiple of this.
    pub block_bytes: u32,
    /// The number of requesters.
    pub threads: u32,
    /// The total time, including the warm-up.
    pub duration: Duration,
    /// Writes instead of reads; the data on the disk is lost.
    pub write: bool,
    /// Reads verify their checksums, which only this benchmark can disable.
    pub checked: bool,
    /// The seed of the offsets.
    pub seed: u64,
}

/// Latency, in the unit of the field's name.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Completed requests per second.
    pub ops_per_s: f64,
    /// From request to response, including queueing.
    pub latency_us: Latency,
    /// The maximum of outstanding requests at a node: mean of the nodes' windows at the end.
    pub window: f64,
    /// Mean number of requests per frame.
    pub batch_mean: f64,
    /// Packets per second, all nodes together, including pure acknowledgements.
    pub packets_per_s: PerDirection,
    /// Mean bytes of data per packet, without its headers.
    pub packet_bytes_mean: PerDirection,
    /// Requests that failed.
    pub failed: u64,
}

struct Tally {
    latency_ns: Histogram<u64>,
    /// Including those of the warm-up.
    answered: u64,
    failed: u64,
    failure: Option<Failure>,
}

/// Why there are no results.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The disk is smaller than a block.
    #[error("a block of {bytes} bytes is larger than the disk")]
    Block {
        /// The size of a block.
        bytes: u32,
    },
    /// Every request failed; this is the first failure.
    #[error(transparent)]
    Request(Failure),
    /// No request completed in time.
    #[error("no request was answered")]
    Unanswered,
    /// A task of the load panicked.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// The histogram cannot be created.
    #[error(transparent)]
    Histogram(#[from] hdrhistogram::CreationError),
}

/// Runs the load on the volume. Must run in a `LocalSet`.
///
/// # Errors
/// The first failure, if no request succeeded; or the block is larger than the disk.
pub async fn run(volume: Rc<Volume>, load: Load) -> Result<Figures, Error> {
    let block_count = volume.size_bytes() / u64::from(load.block_bytes.max(1));
    if block_count == 0 || load.block_bytes == 0 {
        return Err(Error::Block { bytes: load.block_bytes });
    }
    let latency_ns = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    // Shared by all: separate buffers would take gigabytes, and seconds to fill.
    let data = if load.write { Bytes::from(vec![0x5a; load.block_bytes as usize]) } else { Bytes::new() };
    let tally = Rc::new(RefCell::new(Tally { latency_ns, answered: 0, failed: 0, failure: None }));
    let (begin, end) = (Instant::now() + load.duration / 4, Instant::now() + load.duration);
    let requesters: Vec<_> = (0..u64::from(load.threads))
        .map(|nth| {
            let random = Random::new(load.seed ^ nth.wrapping_mul(0xd1b5_4a32_d192_ed03));
            tokio::task::spawn_local(run_requester(
                volume.clone(),
                load,
                data.clone(),
                random,
                block_count,
                begin..end,
                tally.clone(),
            ))
        })
        .collect();
    tokio::time::sleep_until(begin).await;
    let (before, answered, first) = (sum_counts(&volume), tally.borrow().answered, Instant::now());
    let packets = Packets::from_this_process();
    tokio::time::sleep_until(end).await;
    let (after, answered) = (sum_counts(&volume), tally.borrow().answered - answered);
    let packets = Packets::from_this_process().since(packets);
    let seconds = first.elapsed().as_secs_f64();
    for requester in requesters {
        requester.await?;
    }
    let mut tally = tally.borrow_mut();
    if tally.latency_ns.is_empty() {
        return Err(tally.failure.take().map_or(Error::Unanswered, Error::Request));
    }
    let rate = |of: fn(&Counts) -> u64| (of(&after) - of(&before)) as f64 / seconds;
    let us = |quantile| tally.latency_ns.value_at_quantile(quantile) as f64 / 1000.0;
    Ok(Figures {
        ops_per_s: answered as f64 / seconds,
        latency_us: Latency { p50: us(0.5), p99: us(0.99) },
        window: f64::from(after.window) / volume.links().len() as f64,
        batch_mean: rate(|c| c.requests_sent) / rate(|c| c.frames_sent),
        packets_per_s: packets.per_s(seconds),
        packet_bytes_mean: packets.bytes_mean(),
        failed: tally.failed,
    })
}

/// The sum of the nodes' counters.
fn sum_counts(volume: &Volume) -> Counts {
    let mut sum = Counts::default();
    for counts in volume.links().iter().map(crate::link::NodeLink::counts) {
        sum.frames_sent += counts.frames_sent;
        sum.requests_sent += counts.requests_sent;
        sum.window += counts.window;
    }
    sum
}

async fn run_requester(
    volume: Rc<Volume>,
    load: Load,
    data: Bytes,
    mut random: Random,
    block_count: u64,
    counted_period: std::ops::Range<Instant>,
    tally: Rc<RefCell<Tally>>,
) {
    let mut sent_at = Instant::now();
    while sent_at < counted_period.end {
        let offset = random.below(block_count) * u64::from(load.block_bytes);
        let result = if load.write {
            volume.write_range(offset, data.clone(), false).await
        } else if load.checked {
            volume.read_range(offset, load.block_bytes).await.map(drop)
        } else {
            volume.read_range_unchecked(offset, load.block_bytes).await.map(drop)
        };
        let now = Instant::now();
        let mut tally = tally.borrow_mut();
        tally.answered += u64::from(result.is_ok());
        match result {
            Ok(()) if counted_period.contains(&now) => {
                tally.latency_ns.saturating_record((now - sent_at).as_nanos() as u64);
            }
            Ok(()) => {}
            Err(failure) => {
                tally.failed += 1;
                tally.failure.get_or_insert(failure);
                if tally.failed > 1000 {
                    return;
                }
            }
        }
        sent_at = now;
    }
}
