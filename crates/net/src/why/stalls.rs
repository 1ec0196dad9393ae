//! The account of each stream ([`crate::flow::account`]), as far as the evaluation of a run uses it: the times without
//! progress, and the windows after an ECN mark. Pure.
//!
//! Both ends talked over their control connection before and after the run, so small packets are known to pass.

use super::WINDOW_NS;
use crate::flow::account::{Episode, FlowAccount};
use crate::flow::leaf::Leaf;
use crate::tcp_info::TcpSample;
use std::collections::{BTreeMap, BTreeSet};

/// A leaf that is this share of a window's time is its meaning.
const WINDOW_SHARE_MIN: f64 = 0.5;

/// What the streams' accounts say.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Stalls {
    /// By stream.
    pub episodes: BTreeMap<u64, Vec<Episode>>,
    /// Stream and number of windows in which the last reduction was by a mark.
    marked: BTreeSet<(u64, u64)>,
    start_ns: u64,
}

impl Stalls {
    pub fn from_samples(samples: &[TcpSample], start_ns: u64, congestion: Option<&str>) -> Self {
        let mut accounts: BTreeMap<u64, FlowAccount> = BTreeMap::new();
        let mut all = Self { start_ns, ..Self::default() };
        for sample in samples {
            let account = accounts.entry(sample.stream).or_insert_with(|| {
                let mut account = FlowAccount::new(congestion);
                account.small_packets_pass = true;
                account
            });
            account.push(sample);
            if account.is_reduced_by_mark() {
                all.marked.insert((sample.stream, sample.time_ns.saturating_sub(start_ns) / WINDOW_NS));
            }
        }
        for (stream, mut account) in accounts {
            account.finish();
            let episodes = account.episodes().0;
            if !episodes.is_empty() {
                all.episodes.insert(stream, episodes.to_vec());
            }
        }
        all
    }

    /// The stall that most of a window belongs to.
    pub fn in_window(&self, stream: u64, number: u64) -> Option<Leaf> {
        let from = self.start_ns.saturating_add(number.saturating_mul(WINDOW_NS));
        let to = from.saturating_add(WINDOW_NS);
        let inside = |e: &&Episode| {
            let overlap = e.end_ns.min(to).saturating_sub(e.start_ns.max(from));
            overlap as f64 >= WINDOW_SHARE_MIN * WINDOW_NS as f64
        };
        self.episodes.get(&stream)?.iter().find(inside).map(|e| e.leaf)
    }

    /// Whether the congestion window was last reduced by a mark.
    pub fn is_marked(&self, stream: u64, number: u64) -> bool {
        self.marked.contains(&(stream, number))
    }

    /// The times of a kind, as seconds since the start of the run: at most a few.
    pub fn times(&self, leaf: Leaf) -> String {
        let seconds = |ns: u64| ns.saturating_sub(self.start_ns) as f64 / 1e9;
        let all = self.episodes.values().flatten().filter(|e| e.leaf == leaf);
        let texts: Vec<String> =
            all.map(|e| format!("{:.2} to {:.2} s", seconds(e.start_ns), seconds(e.end_ns))).collect();
        let shown = texts.iter().take(4).cloned().collect::<Vec<_>>().join(", ");
        if texts.len() > 4 { format!("{shown} and {} more", texts.len() - 4) } else { shown }
    }
}
