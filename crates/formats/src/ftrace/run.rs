//! Converts a whole trace, from pages to events.

use super::content::TraceContent;
use super::decoder::{Decoder, Kind};
use super::merge::{Clock, MergedStreams, Stream, TraceItem};
use super::page::{Layout, Pages};
use super::translate::{TraceContext, Translator, UnusedText};
use crate::tracedat::{Stats, TraceDat};
use model::Event;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// One buffer of a trace.
#[derive(Debug)]
pub struct TraceBuffer<'a> {
    pub decoder: Decoder,
    /// The layout of its pages.
    pub layout: Layout,
    /// Converts its times to ns.
    pub clock: Clock,
    /// Pages by CPU.
    pub cpus: Vec<(u16, Cow<'a, [u8]>)>,
    /// CPUs whose pages are incomplete.
    pub cut: u64,
}

/// The summary of a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Events taken, by kind.
    pub taken: BTreeMap<Kind, u64>,
    /// Kinds that the trace describes: they could have been recorded.
    pub described: Vec<Kind>,
    /// Events that have no meaning here, by name.
    pub left_out: BTreeMap<String, u64>,
    /// Texts that programs wrote into the trace and that became no mark.
    pub unused_texts: BTreeMap<UnusedText, u64>,
    /// Events that are interpreted, but could not be read, by kind.
    pub unread: BTreeMap<Kind, u64>,
    /// Events known to be lost, by CPU.
    pub lost: BTreeMap<u16, u64>,
    /// Whether more may be lost: a gap whose number of events the kernel did not record.
    pub at_least: bool,
    /// Pages or other parts that could not be read completely.
    pub damaged: u64,
    /// First and last event, in ns.
    pub window_ns: (u64, u64),
    /// Partitions and their disks.
    pub partitions: Vec<(u32, u32)>,
    /// Names of disks, by number, as far as the trace has them.
    pub disks: Vec<(u32, String)>,
    /// Files that recorded processes executed, as they named them.
    pub executed: BTreeSet<String>,
}

impl Summary {
    /// What has no meaning here, in words: events and texts.
    pub fn all_left_out(&self) -> BTreeMap<String, u64> {
        let texts = self.unused_texts.iter().map(|(what, n)| (format!("{}: {}", Kind::Print.name(), what.name()), *n));
        self.left_out.clone().into_iter().chain(texts).collect()
    }
}

/// A clock whose times cannot be converted to ns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoClock {
    /// Cycles of unknown length.
    Cycles,
    /// A counter of events, or an unknown clock.
    NoTime(String),
}

impl fmt::Display for NoClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycles => write!(
                f,
                "its clock counts cycles (x86-tsc), and the trace lacks the TSC frequency; record with `-C boot`"
            ),
            Self::NoTime(clock) => write!(f, "its clock ({clock}) counts no time; record with `-C boot`"),
        }
    }
}

impl std::error::Error for NoClock {}

/// Returns the conversion of a clock's times to ns.
pub fn clock_by_name(name: &str, tsc: Option<Clock>) -> Result<Clock, NoClock> {
    match name {
        "local" | "global" | "perf" | "mono" | "mono_raw" | "boot" | "tai" | "" => Ok(Clock::NS),
        "x86-tsc" | "tsc2nsec" => tsc.ok_or(NoClock::Cycles),
        other => Err(NoClock::NoTime(other.into())),
    }
}

/// The buffers of a trace.dat.
///
/// # Errors
/// The clock of one of them does not measure time.
pub fn trace_buffers<'a>(trace: &TraceDat<'a>) -> Result<Vec<TraceBuffer<'a>>, NoClock> {
    let used: Vec<_> = trace.buffers.iter().filter(|b| b.cpus.iter().any(|(_, pages)| !pages.is_empty())).collect();
    // For an instance, trace-cmd 3.1 writes `boot` whatever its clock is; the file's own option then has the right one.
    let of_file = match used.len() {
        1 => clock_by_name(trace.clock.as_deref().unwrap_or(""), trace.tsc)?,
        _ => Clock::NS,
    };
    used.into_iter()
        .map(|b| {
            let of_buffer = clock_by_name(b.clock.as_deref().unwrap_or(""), trace.tsc)?;
            let clock = if of_file == Clock::NS { of_buffer } else { of_file };
            let decoder = Decoder::new(b.layout, &trace.formats);
            Ok(TraceBuffer { decoder, layout: b.layout, clock, cpus: b.cpus.clone(), cut: b.cut })
        })
        .collect()
}

/// Reads the trace twice and passes on its events, in time order.
pub fn translate_buffers(
    parts: &[TraceBuffer<'_>],
    trace_context: &TraceContext,
    stats: &[Stats],
    sink: &mut dyn FnMut(&Event),
) -> Summary {
    let streams = || {
        let of = |part: &'_ TraceBuffer<'_>| (part.layout, part.clock);
        let all = parts.iter().flat_map(|part| {
            let (layout, clock) = of(part);
            part.cpus.iter().map(move |(cpu, pages)| Stream {
                cpu: *cpu,
                pages: Pages::new(layout, pages),
                decoder: &part.decoder,
                clock,
            })
        });
        MergedStreams::new(all.collect())
    };
    let mut counted: BTreeMap<u16, u64> = BTreeMap::new();
    for stats in stats {
        let sum = counted.entry(stats.cpu).or_default();
        *sum = sum.saturating_add(stats.lost);
    }
    let mut merged = streams();
    let (first, again) = (streams().map(Cow::Owned), merged.by_ref().map(Cow::Owned));
    let (mut summary, mut translator) = translate_twice(first, again, trace_context, &counted, sink);
    summary.damaged = merged.damaged() + parts.iter().map(|part| part.cut).sum::<u64>();
    lose_damaged(summary.damaged, &mut translator, sink);
    summary.described = parts.iter().flat_map(|part| part.decoder.described()).collect();
    summary.described.sort_unstable();
    summary.described.dedup();
    summary.taken = merged.taken;
    summary.left_out = merged.left_out;
    account_unused(&mut summary, &mut translator, BTreeMap::new(), sink);
    summary
}

/// Accounts for the events that were decoded and are of no use.
fn account_unused(
    summary: &mut Summary,
    translator: &mut Translator,
    unread: BTreeMap<Kind, u64>,
    sink: &mut dyn FnMut(&Event),
) {
    let mut less = |kind: Kind, events: u64| {
        if let Some(taken) = summary.taken.get_mut(&kind) {
            *taken = taken.saturating_sub(events);
        }
    };
    translator.unread().iter().for_each(|(kind, events)| less(*kind, *events));
    let texts = translator.unused_texts();
    less(Kind::Print, texts.values().sum());
    summary.taken.retain(|_, events| *events > 0);
    summary.unused_texts = texts;
    summary.unread = unread;
    for (kind, events) in translator.unread() {
        *summary.unread.entry(*kind).or_default() += events;
    }
    summary.unread.iter().for_each(|(kind, events)| translator.not_readable(*kind, *events));
    translator.events().for_each(|event| sink(&event));
}

/// The same for a trace in memory.
pub fn translate_content(trace: &TraceContent, trace_context: &TraceContext, sink: &mut dyn FnMut(&Event)) -> Summary {
    let all = || trace.events.iter().map(Cow::Borrowed);
    let (mut summary, mut translator) = translate_twice(all(), all(), trace_context, &trace.lost, sink);
    lose_damaged(trace.damaged, &mut translator, sink);
    for next in &trace.events {
        if let TraceItem::DecodedEvent(seen) = next {
            *summary.taken.entry(seen.kind).or_default() += 1;
        }
    }
    summary.at_least |= trace.at_least;
    (summary.described, summary.left_out, summary.damaged) =
        (trace.described.clone(), trace.left_out.clone(), trace.damaged);
    account_unused(&mut summary, &mut translator, trace.unread.clone(), sink);
    summary
}

/// `counted`: the total lost per CPU, from another source.
fn translate_twice<'n>(
    first: impl Iterator<Item = Cow<'n, TraceItem>>,
    again: impl Iterator<Item = Cow<'n, TraceItem>>,
    trace_context: &TraceContext,
    counted: &BTreeMap<u16, u64>,
    sink: &mut dyn FnMut(&Event),
) -> (Summary, Translator) {
    let mut learns = Translator::first_pass(trace_context);
    first.for_each(|next| learns.take(&next));
    let mut second = learns.second_pass(trace_context);
    let mut summary = Summary::default();
    for next in again {
        if let TraceItem::Missed(cpu, missed) = &*next {
            let lost = summary.lost.entry(*cpu).or_default();
            *lost = lost.saturating_add(missed.events.unwrap_or(1));
            summary.at_least |= missed.events.is_none();
        }
        second.take(&next);
        second.events().for_each(|event| sink(&event));
    }
    summary.window_ns = second.window_ns();
    // Counted losses that no gap accounts for: at the end, or before the first page.
    for (&cpu, &counted) in counted {
        let in_gaps = summary.lost.get(&cpu).copied().unwrap_or(0);
        if counted > in_gaps {
            second.lost(cpu, counted - in_gaps);
            second.events().for_each(|event| sink(&event));
            summary.lost.insert(cpu, counted);
        }
    }
    summary.partitions = second.partitions();
    summary.disks = second.disks();
    summary.executed = second.executed();
    (summary, second)
}

/// Unreadable parts are missing from the archive at an unknown place: anyone who opens it learns that, not only who imports.
fn lose_damaged(parts: u64, translator: &mut Translator, sink: &mut dyn FnMut(&Event)) {
    if parts > 0 {
        translator.damaged(parts);
        translator.events().for_each(|event| sink(&event));
    }
}
