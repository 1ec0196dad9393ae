//! Exports the rows of an archive as a Perfetto trace.
//!
//! A thread's activity is shown under the thread, one row per layer, from the application down; a disk's activity is
//! shown under the disk: bios, requests, commands, and how many commands are in flight. Every link is an arrow with a
//! number of its own, since Perfetto draws all slices of one number as one chain; a slice with very many (a checkpoint)
//! keeps the first, and shows how many are not drawn. The number of the operation is each slice's correlation, so that
//! pointing at one highlights everything that it caused.
//!
//! A span whose end was not seen extends to the end of the trace and is marked `unfinished`; Perfetto's own way, a
//! length of -1, breaks sums.

use super::lanes::{Lanes, Share};
use super::writer::{Clocks, Flow, Note, Slice, Track, Writer};
use model::table::{Cause, Disk, DriverCommand, File, Link, LossRow, Operation, Process, Shape, Span};
use model::{Confidence, Dev, Layer, Origin};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{self, Write};

/// Most arrows at one slice. More do not help the viewer, and Perfetto lays them out one by one.
const ARROWS_MAX: u32 = 32;

/// Characters of a statement in the name of its slice; the full text is in its annotation.
const NAME_CHARS_MAX: usize = 100;

/// The rows to show. Tables that are left empty are not shown.
#[derive(Debug, Clone, Copy, Default)]
// Each is the table of its name in `model::table`.
pub struct Tables<'a> {
    pub operations: &'a [Operation],
    pub shapes: &'a [Shape],
    pub spans: &'a [Span],
    pub links: &'a [Link],
    pub causes: &'a [Cause],
    pub driver_commands: &'a [DriverCommand],
    /// Where the time of each operation went.
    pub slices: &'a [model::table::Slice],
    pub files: &'a [File],
    pub processes: &'a [Process],
    pub disks: &'a [Disk],
    pub losses: &'a [LossRow],
    /// The clocks at one moment, if known.
    pub clocks: Option<Clocks>,
}

/// Counts of what was written; a viewer must find the same numbers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Summary {
    /// Slices: one per span, one per row of `slices`, and one per driver's command without a recorded request.
    pub slices: u64,
    /// Slices whose end was not seen.
    pub unfinished: u64,
    /// Arrows.
    pub flows: u64,
    /// Links that are not drawn: beyond the limit of a slice, or to a missing span.
    pub flows_left_out: u64,
    /// Marks of losses.
    pub losses: u64,
    /// Values of counters.
    pub counts: u64,
}

/// Writes the rows as a trace to `out`, which should be buffered.
///
/// # Errors
/// Those of `out`.
pub fn export(rows: &Tables<'_>, out: &mut dyn Write) -> io::Result<Summary> {
    let mut exporter = Exporter {
        known: Lookup::from_tables(rows),
        writer: Writer::new(out)?,
        processes: HashMap::new(),
        threads: HashMap::new(),
        disks: HashMap::new(),
        done: Summary::default(),
    };
    if let Some(clocks) = rows.clocks {
        exporter.writer.write_clocks(clocks)?;
    }
    exporter.write_losses(rows.losses)?;
    exporter.write_spans(rows)?;
    exporter.write_slices(rows)?;
    exporter.own_commands(rows)?;
    exporter.in_flight(rows)?;
    exporter.writer.finish()?;
    Ok(exporter.done)
}

/// Lookup tables by number.
struct Lookup<'a> {
    end_ns: u64,
    operations: HashMap<u64, &'a Operation>,
    by_span: HashMap<u64, &'a Operation>,
    shapes: HashMap<u64, &'a str>,
    files: HashMap<u64, &'a str>,
    processes: HashMap<u32, &'a str>,
    disks: HashMap<u32, &'a str>,
    causes: HashMap<u64, Vec<&'a Cause>>,
    /// Commands that the driver sent for a request, in the order of the table: more than one if it retried.
    sent: HashMap<u64, Vec<&'a DriverCommand>>,
}

impl<'a> Lookup<'a> {
    fn from_tables(rows: &Tables<'a>) -> Self {
        let mut causes: HashMap<u64, Vec<&Cause>> = HashMap::new();
        for cause in rows.causes {
            causes.entry(cause.command).or_default().push(cause);
        }
        let mut sent: HashMap<u64, Vec<&DriverCommand>> = HashMap::new();
        for command in rows.driver_commands {
            if let Some(request) = command.command {
                sent.entry(request).or_default().push(command);
            }
        }
        let span_ends = rows.spans.iter().map(|s| s.end_ns.unwrap_or(s.start_ns));
        let sent_ends = rows.driver_commands.iter().map(|c| c.end_ns.unwrap_or(c.start_ns));
        let slice_ends = rows.slices.iter().map(|s| s.end_ns);
        let ends = span_ends.chain(slice_ends).chain(rows.losses.iter().map(|l| l.end_ns)).chain(sent_ends);
        Self {
            end_ns: ends.max().unwrap_or(0),
            operations: rows.operations.iter().map(|o| (o.id, o)).collect(),
            by_span: rows.operations.iter().map(|o| (o.span, o)).collect(),
            shapes: rows.shapes.iter().map(|s| (s.id, s.text.as_str())).collect(),
            files: rows.files.iter().filter_map(|f| Some((f.id, f.path.as_deref()?))).collect(),
            processes: rows.processes.iter().map(|p| (p.tgid, p.name.as_str())).collect(),
            disks: rows.disks.iter().map(|d| (d.dev, d.name.as_str())).collect(),
            causes,
            sent,
        }
    }

    /// The operation that a span belongs to: its own, or for a device command the one that is charged most.
    fn operation(&self, span: &Span) -> Option<&'a Operation> {
        let own = self.by_span.get(&span.id).copied();
        let within = || span.operation.and_then(|id| self.operations.get(&id).copied());
        let charged = || {
            let causes = self.causes.get(&span.id)?;
            let most = causes.iter().filter(|c| c.operation.is_some()).max_by(|a, b| a.share.total_cmp(&b.share))?;
            self.operations.get(&most.operation?).copied()
        };
        own.or_else(within).or_else(charged)
    }

    /// An end that is not before its start, whatever the rows contain.
    fn end_ns(&self, span: &Span) -> u64 {
        span.end_ns.unwrap_or(self.end_ns).max(span.start_ns)
    }
}

/// The row of a span. Rows are ordered as in the file, so that of two slices that start together the upper one, where
/// the arrow starts, comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    layer: Layer,
    place: TrackOwner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum TrackOwner {
    Thread(u32, u32),
    Disk(u32),
    /// Neither is known.
    Nowhere,
}

impl Row {
    fn for_span(span: &Span) -> Self {
        let of_disk = matches!(span.layer, Layer::Block | Layer::IoScheduler | Layer::Driver);
        let place = match (span.disk, span.tid) {
            (Some(disk), _) if of_disk => TrackOwner::Disk(disk),
            (_, tid) if tid != 0 => TrackOwner::Thread(if span.tgid == 0 { tid } else { span.tgid }, tid),
            (Some(disk), _) => TrackOwner::Disk(disk),
            (None, _) => TrackOwner::Nowhere,
        };
        Self { layer: span.layer, place }
    }

    fn share(self) -> Share {
        match self.place {
            TrackOwner::Thread(..) => Share::Nested,
            TrackOwner::Disk(_) | TrackOwner::Nowhere => Share::Alone,
        }
    }
}

/// A slice to be placed in a row: its time, and its annotations.
struct Bar<'a> {
    start_ns: u64,
    end_ns: u64,
    what: Content<'a>,
}

enum Content<'a> {
    /// A span, with its index in the list.
    Span(usize, &'a Span),
    /// A piece of an operation's time.
    Piece(&'a model::table::Slice),
    /// A driver's command without a recorded request.
    Command(&'a DriverCommand),
}

/// The arrows at each span, and what is known of the links above it.
struct Arrows {
    flows: Vec<Vec<Flow>>,
    hidden: Vec<u32>,
    confidence: Vec<Option<Confidence>>,
}

struct Exporter<'a, W> {
    known: Lookup<'a>,
    writer: Writer<W>,
    processes: HashMap<u32, Track>,
    threads: HashMap<(u32, u32), Track>,
    disks: HashMap<u32, Track>,
    done: Summary,
}

impl<'a, W: Write> Exporter<'a, W> {
    fn write_losses(&mut self, losses: &[LossRow]) -> io::Result<()> {
        if losses.is_empty() {
            return Ok(());
        }
        let track = self.writer.named(None, "Loss", 0)?;
        let mut losses: Vec<&LossRow> = losses.iter().collect();
        losses.sort_by_key(|l| l.start_ns);
        for loss in losses {
            let mut notes = vec![("until_ns", Note::Unsigned(loss.end_ns)), ("at_least", Note::Bool(loss.at_least))];
            notes.extend(loss.events.map(|n| ("events", Note::Unsigned(n))));
            notes.extend(loss.cpu.map(|n| ("cpu", Note::Unsigned(n.into()))));
            notes.extend(loss.program.as_deref().map(|p| ("program", Note::Repeated(p))));
            let slice = Slice { name: loss.source.name(), category: "Loss", notes: &notes, ..Slice::default() };
            self.writer.instant(track, loss.start_ns, &slice)?;
            self.done.losses += 1;
        }
        Ok(())
    }

    fn write_spans(&mut self, rows: &Tables<'a>) -> io::Result<()> {
        let arrows = self.collect_arrows(rows);
        let mut bars: BTreeMap<Row, Vec<Bar<'a>>> = BTreeMap::new();
        for (at, span) in rows.spans.iter().enumerate() {
            let bar = Bar { start_ns: span.start_ns, end_ns: self.known.end_ns(span), what: Content::Span(at, span) };
            bars.entry(Row::for_span(span)).or_default().push(bar);
        }
        for (row, bars) in bars {
            self.row(row.place, row.layer.name(), row.layer as u32, row.share(), bars, Some(&arrows))?;
        }
        Ok(())
    }

    /// Where the time of each operation went, under its thread and below its layers.
    fn write_slices(&mut self, rows: &Tables<'a>) -> io::Result<()> {
        let mut bars: BTreeMap<TrackOwner, Vec<Bar<'a>>> = BTreeMap::new();
        for piece in rows.slices {
            let Some(operation) = self.known.operations.get(&piece.operation) else { continue };
            let place = TrackOwner::Thread(operation.tgid, operation.tid);
            let (start_ns, end_ns) = (piece.start_ns, piece.end_ns.max(piece.start_ns));
            bars.entry(place).or_default().push(Bar { start_ns, end_ns, what: Content::Piece(piece) });
        }
        for (place, bars) in bars {
            self.row(place, "Where the time goes", Layer::ALL.len() as u32, Share::Nested, bars, None)?;
        }
        Ok(())
    }

    /// Commands that drivers sent without a recorded request, under the disk.
    fn own_commands(&mut self, rows: &Tables<'a>) -> io::Result<()> {
        let mut bars: BTreeMap<TrackOwner, Vec<Bar<'a>>> = BTreeMap::new();
        for command in rows.driver_commands.iter().filter(|c| c.command.is_none()) {
            let place = command.disk.map_or(TrackOwner::Nowhere, TrackOwner::Disk);
            let end_ns = command.end_ns.unwrap_or(self.known.end_ns).max(command.start_ns);
            bars.entry(place).or_default().push(Bar {
                start_ns: command.start_ns,
                end_ns,
                what: Content::Command(command),
            });
        }
        for (place, bars) in bars {
            self.row(place, "Driver, no request", Layer::ALL.len() as u32, Share::Alone, bars, None)?;
        }
        Ok(())
    }

    /// Commands in flight on each disk.
    fn in_flight(&mut self, rows: &Tables<'a>) -> io::Result<()> {
        let mut steps: BTreeMap<(u32, u64), i64> = BTreeMap::new();
        for span in rows.spans.iter().filter(|s| s.layer == Layer::Driver) {
            if let Some(disk) = span.disk {
                *steps.entry((disk, span.start_ns)).or_default() += 1;
                *steps.entry((disk, self.known.end_ns(span))).or_default() -= 1;
            }
        }
        let mut current: Option<(u32, Track, i64)> = None;
        for ((disk, time_ns), step) in steps {
            let (track, before) = match current {
                Some((same, track, value)) if same == disk => (track, value),
                _ => {
                    let parent = self.disk_track(disk)?;
                    (self.writer.counter(Some(parent), "commands in flight", Layer::ALL.len() as u32)?, 0)
                }
            };
            let value = before + step;
            self.writer.count(track, time_ns, value.unsigned_abs())?;
            self.done.counts += 1;
            current = Some((disk, track, value));
        }
        Ok(())
    }

    fn collect_arrows(&mut self, rows: &Tables<'a>) -> Arrows {
        let at: HashMap<u64, usize> = rows.spans.iter().enumerate().map(|(i, s)| (s.id, i)).collect();
        let n = rows.spans.len();
        let mut out = Arrows { flows: vec![Vec::new(); n], hidden: vec![0; n], confidence: vec![None; n] };
        for link in rows.links {
            let (Some(&parent), Some(&child)) = (at.get(&link.parent), at.get(&link.child)) else {
                self.done.flows_left_out += 1;
                continue;
            };
            let sure = &mut out.confidence[child];
            *sure = Some(sure.map_or(link.confidence, |s| s.min(link.confidence)));
            let full = |i: usize| out.flows[i].len() >= ARROWS_MAX as usize;
            if parent == child || full(parent) || full(child) {
                out.hidden[parent] += 1;
                out.hidden[child] += u32::from(parent != child);
                self.done.flows_left_out += 1;
                continue;
            }
            self.done.flows += 1;
            let id = self.done.flows;
            // Perfetto orders by time: an arrow starts where the earlier slice begins, and a flush may already have
            // been in flight when a waiter arrived. If both begin at once, neither end may be marked as the last.
            let (begin, end) = if rows.spans[child].start_ns < rows.spans[parent].start_ns {
                (child, parent)
            } else {
                (parent, child)
            };
            let later = rows.spans[end].start_ns > rows.spans[begin].start_ns;
            out.flows[begin].push(Flow::Passes(id));
            out.flows[end].push(if later { Flow::Ends(id) } else { Flow::Passes(id) });
        }
        out
    }

    /// Writes the slices of one row of the display, on as many lanes as they need.
    fn row(
        &mut self,
        place: TrackOwner,
        name: &str,
        rank: u32,
        share: Share,
        mut bars: Vec<Bar<'a>>,
        arrows: Option<&Arrows>,
    ) -> io::Result<()> {
        let parent = match place {
            TrackOwner::Thread(tgid, tid) => Some(self.thread_track(tgid, tid)?),
            TrackOwner::Disk(disk) => Some(self.disk_track(disk)?),
            TrackOwner::Nowhere => None,
        };
        bars.sort_by_key(|b| (b.start_ns, Reverse(b.end_ns)));
        let mut lanes = Lanes::new(share);
        let mut tracks: Vec<(Track, Vec<u64>)> = Vec::new();
        for bar in &bars {
            let lane = lanes.place(bar.start_ns, bar.end_ns);
            if lane == tracks.len() {
                tracks.push((self.writer.named(parent, name, rank)?, Vec::new()));
            }
            let (track, open) = &mut tracks[lane];
            while let Some(end) = open.pop_if(|e| *e <= bar.start_ns) {
                self.writer.end(*track, end)?;
            }
            open.push(bar.end_ns);
            let track = *track;
            match bar.what {
                Content::Span(at, span) => self.begin_span(track, at, span, arrows)?,
                Content::Piece(piece) => self.begin_piece(track, piece)?,
                Content::Command(command) => self.begin_command(track, command)?,
            }
            self.done.slices += 1;
        }
        for (track, mut open) in tracks {
            while let Some(end) = open.pop() {
                self.writer.end(track, end)?;
            }
        }
        Ok(())
    }

    fn begin_span(&mut self, track: Track, at: usize, span: &Span, arrows: Option<&Arrows>) -> io::Result<()> {
        let known = &self.known;
        let operation = known.operation(span);
        let statement = operation.and_then(|o| known.shapes.get(&o.shape).copied());
        let mut notes = vec![("span", Note::Unsigned(span.id))];
        notes.extend(statement.map(|t| ("statement", Note::Repeated(t))));
        notes.extend(operation.map(|o| ("operation", Note::Unsigned(o.id))));
        notes.extend(operation.filter(|o| o.span == span.id).map(|o| ("rows", Note::Unsigned(o.rows))));
        let path = span.file.and_then(|f| known.files.get(&f).copied());
        notes.extend(path.map(|p| ("file", Note::Repeated(p))));
        notes.extend(span.offset.map(|x| ("offset", Note::Unsigned(x))));
        notes.extend(span.disk.and_then(|d| known.disks.get(&d).copied()).map(|d| ("disk", Note::Repeated(d))));
        notes.extend(span.sector.map(|x| ("sector", Note::Unsigned(x))));
        if span.bytes > 0 {
            notes.push(("bytes", Note::Unsigned(span.bytes)));
        }
        notes.extend(span.result.map(|x| ("result", Note::Signed(x))));
        notes.extend(span.number.map(|x| ("number", Note::Unsigned(x))));
        notes.extend(span.cache_added.map(|x| ("cache_added", Note::Unsigned(x.into()))));
        if !span.flags.is_empty() {
            notes.push(("flags", Note::Repeated(&span.flags)));
        }
        let sent = known.sent.get(&span.id);
        let label = sent.and_then(|sent| sent.first()).map(|command| command.label());
        notes.extend(sent.map(|sent| ("driver_commands", Note::Unsigned(sent.len() as u64))));
        let error = sent.and_then(|sent| sent.iter().find_map(|command| command.error.as_deref()));
        notes.extend(error.map(|e| ("driver_error", Note::Repeated(e))));
        let charged = known.causes.get(&span.id).map(|causes| charged_to(causes));
        notes.extend(charged.as_deref().map(|c| ("charged_to", Note::Text(c))));
        if let Some(arrows) = arrows {
            notes.extend(arrows.confidence[at].map(|c| ("confidence", Note::Repeated(c.name()))));
            if arrows.hidden[at] > 0 {
                notes.push(("links_not_drawn", Note::Unsigned(arrows.hidden[at].into())));
            }
        }
        if span.end_ns.is_none() {
            notes.push(("unfinished", Note::Bool(true)));
            self.done.unfinished += 1;
        }
        let own = operation.filter(|o| o.span == span.id).and(statement);
        let slice = Slice {
            name: own.map_or_else(|| label.as_deref().unwrap_or(&span.kind), |text| first_chars(text, NAME_CHARS_MAX)),
            category: span.layer.name(),
            correlation: operation.map(|o| o.id),
            flows: arrows.map_or(&[], |a| &a.flows[at]),
            notes: &notes,
        };
        self.writer.begin(track, span.start_ns, &slice)
    }

    fn begin_command(&mut self, track: Track, command: &DriverCommand) -> io::Result<()> {
        let mut notes = vec![("protocol", Note::Repeated(&command.protocol))];
        if command.bytes > 0 {
            notes.push(("bytes", Note::Unsigned(command.bytes)));
        }
        notes.extend(command.error.as_deref().map(|e| ("driver_error", Note::Repeated(e))));
        if command.end_ns.is_none() {
            notes.push(("unfinished", Note::Bool(true)));
            self.done.unfinished += 1;
        }
        let slice = Slice { name: &command.label(), category: "Driver", notes: &notes, ..Slice::default() };
        self.writer.begin(track, command.start_ns, &slice)
    }

    fn begin_piece(&mut self, track: Track, piece: &model::table::Slice) -> io::Result<()> {
        let mut notes = vec![("operation", Note::Unsigned(piece.operation))];
        notes.extend(piece.span.map(|s| ("waits_for_span", Note::Unsigned(s))));
        notes.extend(piece.by_tgid.map(|tgid| ("by_process", Note::Unsigned(tgid.into()))));
        notes.extend(piece.by_operation.map(|id| ("by_operation", Note::Unsigned(id))));
        let name = format!("{}: {}", piece.layer, piece.why());
        let slice =
            Slice { name: &name, category: "Time", correlation: Some(piece.operation), flows: &[], notes: &notes };
        self.writer.begin(track, piece.start_ns, &slice)
    }

    fn thread_track(&mut self, tgid: u32, tid: u32) -> io::Result<Track> {
        if let Some(&track) = self.threads.get(&(tgid, tid)) {
            return Ok(track);
        }
        let name = self.known.processes.get(&tgid).copied().unwrap_or("");
        let process = match self.processes.get(&tgid) {
            Some(&track) => track,
            None => self.writer.process(tgid, name)?,
        };
        self.processes.insert(tgid, process);
        let track = self.writer.thread(process, tgid, tid, name)?;
        self.threads.insert((tgid, tid), track);
        Ok(track)
    }

    fn disk_track(&mut self, disk: u32) -> io::Result<Track> {
        if let Some(&track) = self.disks.get(&disk) {
            return Ok(track);
        }
        let name = self.known.disks.get(&disk).copied().unwrap_or("?");
        let track = self.writer.named(None, &format!("Disk {name} ({})", Dev(disk)), 1 + self.disks.len() as u32)?;
        self.disks.insert(disk, track);
        Ok(track)
    }
}

/// Who is charged for a command: the first few.
fn charged_to(causes: &[&Cause]) -> String {
    const CAUSES_MAX: usize = 8;
    let mut out = String::new();
    for (i, cause) in causes.iter().take(CAUSES_MAX).enumerate() {
        let who = match (cause.origin, cause.operation, cause.tgid) {
            (Origin::Operation, Some(id), _) => format!("operation {id}"),
            (origin, _, Some(tgid)) => format!("{origin} {tgid}"),
            (origin, _, None) => origin.name().into(),
        };
        let comma = if i > 0 { "; " } else { "" };
        // Writing to a String cannot fail.
        let _ = write!(out, "{comma}{who} {:.1} % by {} ({})", cause.share * 100.0, cause.via, cause.confidence);
    }
    if causes.len() > CAUSES_MAX {
        let _ = write!(out, "; {} more", causes.len() - CAUSES_MAX);
    }
    out
}

/// The first characters of a text.
fn first_chars(text: &str, chars: usize) -> &str {
    text.char_indices().nth(chars).map_or(text, |(end, _)| &text[..end])
}
