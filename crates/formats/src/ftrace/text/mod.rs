//! A trace as text: tracefs's `trace` file, or the output of `trace-cmd report` and `perf script`.
//!
//! A text contains less than the pages it was made from: times in microseconds, unless more was requested, no machine, and
//! of losses before its first line only the count in its header. Lines are parsed in the kernel's own format ([`fields`], [`driver`]), or
//! as lists of fields ([`named`]); a line in another format is counted by its kind. The trace may be within a web page ([`html`]).
//!
//! *Uncertainty*: `trace-cmd report` writes times of an unknown clock as bare numbers. They are taken as ns, which is right for `boot`,
//! `tai` and `mono_raw`, and the user is warned. A time that is a little earlier than that of the line before is that of a clock that
//! differs between CPUs: the order of lines counts. One that is much earlier begins another part (`cat per_cpu/cpu*/trace`), and the
//! order of times counts.

mod driver;
mod fields;
mod html;
mod line;
mod named;

use super::content::{ReadError, TraceContent};
use super::decoder::{DecodedEvent, Kind};
use super::merge::TraceItem;
use line::Line;
use std::collections::BTreeMap;

/// Bytes at the beginning that must be text.
const HEAD_BYTES: usize = 64 << 10;
/// At most one event in this many may be like the one before in a trace in parts (equal events of one time are rare), or earlier than the
/// one before on its CPU.
const EVENTS_PER_ANOMALY_MIN: usize = 8;
/// By how much a clock may step back from one line to the next, in ns; clocks of CPUs that count apart differ by less.
const CLOCK_STEP_NS_MAX: u64 = 10_000_000;
/// Longest line that is read; the kernel's own are shorter than a page.
const LINE_BYTES_MAX: usize = 16 << 10;

/// Whether a file is such a trace: text, with tracefs's header or an event in any of its lines. A page may have megabytes before its
/// first event.
pub fn is(bytes: &[u8]) -> bool {
    if bytes[..bytes.len().min(HEAD_BYTES)].contains(&0) {
        return false;
    }
    if bytes.starts_with(b"# tracer:") {
        return true;
    }
    let lines = bytes.split(|byte| *byte == b'\n').take_while(|line| !line.contains(&0));
    let mut lines = lines.map(|line| String::from_utf8_lossy(&line[..line.len().min(LINE_BYTES_MAX)]));
    lines.any(|line| line.starts_with("# tracer:") || Line::parse(&line).is_some())
}

/// Reads a whole file.
///
/// # Errors
/// It holds no event, was made by a tracer that records none, or holds too many.
pub fn read(bytes: &[u8]) -> Result<TraceContent, ReadError> {
    let text = String::from_utf8_lossy(bytes);
    let mut out = TraceContent {
        format: "trace as text".into(),
        described: Kind::ALL.iter().copied().filter(|kind| !kind.is_own()).collect(),
        ..TraceContent::default()
    };
    let (mut events, mut bare, mut other, mut coarse) = (0_u64, false, 0_u64, true);
    // The last time of each CPU, and gaps whose end is not known yet.
    let mut last: BTreeMap<u16, u64> = BTreeMap::new();
    let mut gaps: BTreeMap<u16, Option<u64>> = BTreeMap::new();
    let (mut after, mut parts) = (0_u64, 1_u64);
    // The unchanged time of each CPU's line before; a CPU writes its lines in order.
    let mut before: BTreeMap<u16, u64> = BTreeMap::new();
    let mut backward = 0_u64;
    for raw in html::lines(&text) {
        let text = raw.get(..LINE_BYTES_MAX).unwrap_or(raw);
        if text.starts_with('#') || text.trim().is_empty() || is_head(text) {
            if let Some(lost) = parse_overwritten(text).filter(|lost| *lost > 0) {
                out.lost.insert(0, lost);
            }
            continue;
        }
        if let Some((cpu, count)) = line::parse_lost_events(text) {
            gaps.insert(cpu, count);
            continue;
        }
        let Some(line) = Line::parse(text) else {
            other += 1;
            continue;
        };
        events += 1;
        bare |= !line.seconds;
        coarse &= line.time_ns % 1000 == 0;
        let task = line.task.rsplit_once(": ").map_or(line.task, |(_, task)| task.trim_start());
        out.name(line.tid, task);
        if let Some(tgid) = line.tgid.filter(|tgid| *tgid != line.tid) {
            out.members.insert(line.tid, tgid);
        }
        if line.time_ns < after.saturating_sub(CLOCK_STEP_NS_MAX) {
            (after, parts) = (0, parts + 1);
            last.clear();
            before.clear();
        }
        let earlier = before.insert(line.cpu, line.time_ns);
        backward += u64::from(earlier.is_some_and(|time| line.time_ns < time));
        let time_ns = line.time_ns.max(after);
        after = time_ns;
        let since = last.insert(line.cpu, time_ns).unwrap_or(0);
        if let Some(count) = gaps.remove(&line.cpu) {
            out.add_gap(line.cpu, since, time_ns, count)?;
        }
        let name = if is_mark(line.event) { Kind::Print.name() } else { line.event };
        let Some(kind) = Kind::from_name(name) else {
            out.leave_out(name);
            continue;
        };
        let fill = if driver::is(kind) { driver::fill } else { fields::fill };
        let read = |fill: Fill| {
            let mut seen = DecodedEvent::new(kind, time_ns, line.cpu, line.tid);
            seen.moved_ns = u32::try_from(time_ns - line.time_ns).unwrap_or(u32::MAX);
            fill(&mut seen, line.rest).map(|()| seen)
        };
        // Any text is a mark's, also a list of fields.
        let forms = if kind == Kind::Print { [named::fill as Fill, fill] } else { [fill, named::fill] };
        match forms.into_iter().find_map(read) {
            Some(seen) => out.add(TraceItem::DecodedEvent(seen))?,
            None => *out.unread.entry(kind).or_default() += 1,
        }
    }
    if events == 0 {
        return Err(ReadError::Empty(
            "a trace as text without an event: only events are imported, not function traces",
        ));
    }
    if backward > events / EVENTS_PER_ANOMALY_MIN as u64 {
        return Err(ReadError::Unsupported(format!(
            "its lines are not in the order of time: {backward} of {events} are earlier than the line before on their CPU"
        )));
    }
    if parts > 1 {
        out.sort();
        let twice =
            out.events.windows(2).filter(|two| matches!(two[0], TraceItem::DecodedEvent(_)) && two[0] == two[1]);
        if twice.count() > out.events.len() / EVENTS_PER_ANOMALY_MIN {
            return Err(ReadError::Unsupported("it holds the same events twice".into()));
        }
        out.notes.push(format!("its lines are {parts} parts, each in the order of time; they were merged"));
    }
    if other > 0 {
        out.left_out.insert("(lines that are no event)".into(), other);
    }
    if bare {
        out.notes
            .push("its times have no decimal point and are taken as nanoseconds (clock boot, tai or mono_raw)".into());
    } else if coarse {
        out.notes.push("its times are in microseconds; `trace-cmd report -t` writes nanoseconds".into());
    }
    Ok(out)
}

/// Reads an event's text.
type Fill = fn(&mut DecodedEvent, &str) -> Option<()>;

/// Whether an event is a text that a program wrote into the trace: printed with the name of the function that wrote it, or with its
/// address, which is 0 where the kernel hides it (kptr_restrict).
fn is_mark(event: &str) -> bool {
    let function = event.split('+').next().unwrap_or_default();
    let is_address = |digits: &str| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    matches!(function, "tracing_mark_write" | "bprint" | "bputs" | "0")
        || event.strip_prefix("0x").is_some_and(is_address)
}

/// Whether trace-cmd writes this line before the events.
fn is_head(line: &str) -> bool {
    line.starts_with("cpus=") || line.starts_with("version = ")
}

/// `# entries-in-buffer/entries-written: 205/305   #P:2`: how many were overwritten.
fn parse_overwritten(line: &str) -> Option<u64> {
    let counts = line.strip_prefix("# entries-in-buffer/entries-written:")?.trim();
    let (kept, written) = counts.split(' ').next()?.split_once('/')?;
    written.parse::<u64>().ok()?.checked_sub(kept.parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT_TRACE: &str = "# tracer: nop\n#\n# entries-in-buffer/entries-written: 4/9   #P:2\n#\n\
        \x20         app-7   [000] d..2.  5.000001: block_bio_queue: 254,0 WS 8 + 8 [app]\n\
        CPU:1 [LOST 3 EVENTS]\n\
        \x20        <idle>-0 [001] d..2.  5.000002: block_rq_complete: 254,0 WS () 8 + 8 none,0,0 [0]\n\
        \x20         app-7   [000] d..2.  5.000002: kmalloc: x\n => stack\n\
        \x20         app-7   [000] d..2.  5.000003: block_bio_queue: nonsense\n\
        \x20         app-7   [000] d..2.  5.000004: tracing_mark_write: B|7|x\n";

    #[test]
    fn text_gives_events_gaps_and_counts() {
        assert!(is(TEXT_TRACE.as_bytes()));
        let out = read(TEXT_TRACE.as_bytes()).unwrap();
        let kinds: Vec<Option<Kind>> = out
            .events
            .iter()
            .map(|next| match next {
                TraceItem::DecodedEvent(seen) => Some(seen.kind),
                TraceItem::Missed(1, missed) => {
                    assert_eq!((missed.until, missed.events), (5_000_002_000, Some(3)));
                    None
                }
                TraceItem::Missed(..) => panic!("only CPU 1 has a gap"),
            })
            .collect();
        assert_eq!(kinds, [Some(Kind::BioQueue), None, Some(Kind::RqComplete), Some(Kind::Print)]);
        assert_eq!((out.lost.get(&0), out.names[&7].as_str(), out.names.len()), (Some(&5), "app", 1));
        let left: Vec<(&str, u64)> = out.left_out.iter().map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(left, [("(lines that are no event)", 1), ("kmalloc", 1)]);
        assert_eq!(out.unread, BTreeMap::from([(Kind::BioQueue, 1)]));
    }

    #[test]
    fn other_files_are_not_text_traces() {
        for bytes in [&b""[..], b"hello\nworld\n", b"x-1 [001] 5.0: e: \0", b"\x0a\x05hello"] {
            assert!(!is(bytes));
        }
        assert!(matches!(read(b"# tracer: nop\n#\n"), Err(ReadError::Empty(_))));
    }

    #[test]
    fn the_first_event_may_be_far_into_the_file() {
        const EVENT_LINE: &str = "a-1 [000] 5.000009: sys_exit: NR 1 = 1\n";
        let page = format!(
            "<!DOCTYPE html>\n{}<script class=\"trace-data\" type=\"application/text\">\n{EVENT_LINE}</script>\n",
            "<script>function viewer() {}</script>\n".repeat(10_000)
        );
        for trace in [format!("{}{EVENT_LINE}", "reading 1\n".repeat(10_000)), page] {
            assert!(is(trace.as_bytes()));
            assert_eq!(read(trace.as_bytes()).unwrap().events.len(), 1);
        }
        assert!(!is("reading 1\n".repeat(10_000).as_bytes()));
        assert!(!is(format!("{}\0\n{EVENT_LINE}", "reading 1\n".repeat(10_000)).as_bytes()), "not a text");
    }

    #[test]
    fn marks_are_found_by_each_name_of_their_writer() {
        for name in
            ["tracing_mark_write", "tracing_mark_write+0x1b3/0x220", "0", "0xffffffff8119b3b9", "print", "bprint"]
        {
            let out = read(format!("a-1 [000] 5.000009: {name}: B|1|x y=z\n").as_bytes()).unwrap();
            assert!(
                matches!(&out.events[..], [TraceItem::DecodedEvent(seen)] if seen.kind == Kind::Print && seen.text == "B|1|x y=z"),
                "{name}: {out:?}"
            );
        }
    }

    #[test]
    fn parts_of_each_cpu_are_merged_and_copies_refused() {
        let line = |at: u64| format!("a-{} [00{}] 5.{:06}: sys_exit: NR {at} = 1\n", at % 2 + 1, at % 2, at * 1000);
        let text = |order: &mut dyn Iterator<Item = u64>| order.map(line).collect::<String>();
        let whole = read(text(&mut (0..100)).as_bytes()).unwrap();
        let by_cpu = text(&mut (0..100).step_by(2).chain((1..100).step_by(2)));
        let merged = read(by_cpu.as_bytes()).unwrap();
        assert_eq!(merged.events, whole.events);
        assert_eq!((whole.notes.len() + 1, merged.notes.len()), (2, 2), "{:?}", merged.notes);
        let twice = read(text(&mut (0..100).chain(0..100)).as_bytes());
        assert!(matches!(&twice, Err(ReadError::Unsupported(why)) if why.contains("twice")), "{twice:?}");
        // A second trace, recorded later, is no part of another time.
        assert_eq!(read(text(&mut (0..200)).as_bytes()).unwrap().notes, whole.notes);
    }

    #[test]
    fn reversed_lines_are_refused() {
        let line = |at: u64| format!("a-{} [00{}] 5.{:06}: sys_exit: NR {at} = 1\n", at % 2 + 1, at % 2, at * 100);
        let reversed = read((0..100).rev().map(line).collect::<String>().as_bytes());
        let told = "98 of 100 are earlier than the line before on their CPU";
        assert!(matches!(&reversed, Err(ReadError::Unsupported(why)) if why.ends_with(told)), "{reversed:?}");
    }

    #[test]
    fn the_order_of_lines_survives_clock_steps() {
        let text = "a-1 [000] 5.000009: kmalloc: x\na-1 [000] 5.000009: sys_exit: NR 1 = 1\n\
                    b-2 [001] 5.000001: sys_exit: NR 2 = 2\n";
        let out = read(text.as_bytes()).unwrap();
        let moved = |next: &TraceItem| match next {
            TraceItem::DecodedEvent(seen) => (seen.time_ns, seen.moved_ns),
            TraceItem::Missed(..) => (0, 0),
        };
        assert_eq!(out.events.iter().map(moved).collect::<Vec<_>>(), [(5_000_009_000, 0), (5_000_009_000, 8000)]);
    }
}
