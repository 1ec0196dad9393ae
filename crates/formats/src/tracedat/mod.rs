//! trace-cmd's `trace.dat`, versions 6 and 7 (trace-cmd.dat.v6(5), trace-cmd.dat.v7(5)).
//!
//! Both hold the same: the layout of pages and events, names of tasks, options, and the pages of each CPU. Version 6 has
//! them in a fixed order; version 7 in sections that options point to, each of which may be compressed.
//!
//! | file | what |
//! |---|---|
//! | this one | the content of a file, whatever its version |
//! | `cursor` | reads numbers and texts, and fails at the end |
//! | `sections` | the sections of version 7, and their compression |
//! | `options` | the options |

mod cursor;
mod options;
mod sections;

use crate::ftrace::format::Format;
use crate::ftrace::merge::Clock;
use crate::ftrace::page::Layout;
use cursor::Cursor;
use options::Options;
use std::borrow::Cow;

const MAGIC: &[u8] = b"\x17\x08\x44tracing";

/// Most bytes of a decompressed file: otherwise a small one could exhaust memory.
const FILE_BYTES_MAX: u64 = 8 << 30;

/// Why a file is not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It is not a trace.dat.
    Foreign,
    /// Its version, or something in it, is not supported.
    Unsupported(String),
    /// It ends too early, or is inconsistent.
    Damaged(&'static str),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Foreign => f.write_str("not a trace.dat of trace-cmd"),
            Self::Unsupported(what) => f.write_str(what),
            Self::Damaged(what) => write!(f, "the file is damaged or was cut: {what}"),
        }
    }
}

impl std::error::Error for Error {}

type Result<T> = std::result::Result<T, Error>;

/// Whether a file begins as trace.dat does.
pub fn is(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// One buffer of the trace: the main one, or an instance.
#[derive(Debug, Clone)]
pub struct Buffer<'a> {
    /// The instance's name; empty: the main buffer.
    pub name: String,
    /// Its clock, if the file names it.
    pub clock: Option<String>,
    /// The layout of its pages.
    pub layout: Layout,
    /// Pages by CPU.
    pub cpus: Vec<(u16, Cow<'a, [u8]>)>,
    /// CPUs whose pages are incomplete: the file was truncated.
    pub cut: u64,
}

/// The content of a file.
#[derive(Debug, Clone)]
pub struct TraceDat<'a> {
    /// 6 or 7.
    pub version: u32,
    /// Its events.
    pub formats: Vec<Format>,
    /// Tasks and their names.
    pub names: Vec<(u32, String)>,
    /// The output of `uname -a` on the machine, shortened.
    pub uname: String,
    /// The counts of each CPU's buffer: in the order of the file, and with the buffer's name if the file has it.
    pub stats: Vec<Stats>,
    /// The clock of the buffer that was recorded first, if the file names it.
    pub clock: Option<String>,
    /// The conversion of times of the clock `x86-tsc` to ns, if there is one.
    pub tsc: Option<Clock>,
    pub buffers: Vec<Buffer<'a>>,
}

/// The kernel's counts of a CPU's buffer at the end of the recording.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// The instance's name; empty: the main buffer.
    pub buffer: String,
    /// CPU.
    pub cpu: u16,
    /// Events overwritten before they were read, and events for which there was no space.
    pub lost: u64,
}

/// The layout of the file, which all parsers of its parts need.
#[derive(Debug, Clone, Copy)]
struct Frame {
    big_endian: bool,
    long: usize,
    page_size: usize,
}

impl<'a> TraceDat<'a> {
    /// Reads a whole file.
    ///
    /// # Errors
    /// It is not a trace.dat, is of another version, or is damaged where nothing after it can be trusted.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        if !is(bytes) {
            return Err(Error::Foreign);
        }
        let mut at = Cursor::new(&bytes[MAGIC.len()..], false);
        let version = at.text("the version")?;
        let head = at.take(2, "the byte order")?;
        let (big_endian, long) = (head[0] == 1, head[1].into());
        at.big_endian = big_endian;
        let page_size = at.u32("the page size")? as usize;
        if !(64..=1 << 20).contains(&page_size) {
            return Err(Error::Damaged("the page size is invalid"));
        }
        let frame = Frame { big_endian, long, page_size };
        match version.parse() {
            Ok(6) => Self::version_6(bytes, at, frame),
            Ok(7) => Self::version_7(bytes, at, frame),
            _ => Err(Error::Unsupported(format!(
                "version {version} is not supported, only versions 6 and 7 (`trace-cmd convert` converts it)"
            ))),
        }
    }

    fn version_6(bytes: &'a [u8], mut at: Cursor<'a>, frame: Frame) -> Result<Self> {
        let header_page = read_headers(&mut at)?;
        let formats = read_ftrace_formats(&mut at)?.into_iter().chain(read_event_formats(&mut at)?).collect();
        for what in ["the symbols", "the trace_printk formats"] {
            let size = at.u32(what)?;
            at.take(size as usize, what)?;
        }
        let size = at.u64("the task names")?;
        let names = parse_names(at.take(size as usize, "the task names")?);
        let cpus = at.u32("the CPU count")?;
        let mut options = Options::default();
        let mut kind = at.take(10, "the data type")?;
        if kind == b"options  \0" {
            options.version_6(&mut at)?;
            kind = at.take(10, "the data type")?;
        }
        let mut trace = Self {
            version: 6,
            formats,
            names,
            uname: options.uname.clone(),
            stats: options.stats(),
            clock: options.clock.clone(),
            tsc: options.tsc,
            buffers: Vec::new(),
        };
        let layout = read_layout(&header_page, frame, frame.page_size)?;
        if kind == b"flyrecord\0" {
            trace.buffers.push(read_buffer_6(bytes, &mut at, String::new(), layout, cpus, &options)?);
        } else if kind != b"latency  \0" {
            return Err(Error::Damaged("its data type is unknown"));
        }
        for (offset, name) in &options.buffers_6 {
            let from = usize::try_from(*offset).ok().and_then(|o| bytes.get(o..));
            let mut at = Cursor::new(from.ok_or(Error::Damaged("a buffer is beyond its end"))?, frame.big_endian);
            if at.take(10, "a buffer's kind")? == b"flyrecord\0" {
                trace.buffers.push(read_buffer_6(bytes, &mut at, name.clone(), layout, cpus, &options)?);
            }
        }
        Ok(trace)
    }

    fn version_7(bytes: &'a [u8], mut at: Cursor<'a>, frame: Frame) -> Result<Self> {
        let compression = sections::Compression::from_name(&at.text("the compression")?)?;
        at.text("the compression version")?;
        let mut budget = FILE_BYTES_MAX;
        let reader = sections::Reader { bytes, big_endian: frame.big_endian, compression };
        let mut options = Options::default();
        let mut next = at.u64("the offset of its options")?;
        // Each block of options points to the next one.
        let mut blocks = 0;
        while next != 0 {
            blocks += 1;
            if blocks > 4096 {
                return Err(Error::Damaged("its options never end"));
            }
            let section = reader.read_section(next, &mut budget)?;
            next = options.version_7(&mut Cursor::new(&section, frame.big_endian))?;
        }
        let mut whole = |place: Option<u64>| match place {
            Some(offset) => reader.read_section(offset, &mut budget),
            None => Ok(Cow::Borrowed(&[][..])),
        };
        let headers = whole(options.headers)?;
        let header_page = read_headers(&mut Cursor::new(&headers, frame.big_endian))?;
        let (own, events) = (whole(options.ftrace_events)?, whole(options.event_formats)?);
        let mut formats =
            if own.is_empty() { Vec::new() } else { read_ftrace_formats(&mut Cursor::new(&own, frame.big_endian))? };
        if !events.is_empty() {
            formats.extend(read_event_formats(&mut Cursor::new(&events, frame.big_endian))?);
        }
        let tasks = whole(options.command_lines)?;
        let mut at = Cursor::new(&tasks, frame.big_endian);
        let names = match at.u64("the task names") {
            Ok(size) => parse_names(at.take((size as usize).min(at.remaining()), "the task names")?),
            Err(_) => Vec::new(),
        };
        let mut buffers = Vec::new();
        for buffer in &options.buffers_7 {
            let layout = read_layout(&header_page, frame, buffer.page_size as usize)?;
            let compressed = reader.is_compressed(buffer.offset)?;
            let mut cpus = Vec::new();
            for &(cpu, offset, size) in &buffer.cpus {
                cpus.push((cpu, reader.read_pages(offset, size, compressed, &mut budget)?));
            }
            buffers.push(Buffer { name: buffer.name.clone(), clock: Some(buffer.clock.clone()), layout, cpus, cut: 0 });
        }
        Ok(Self {
            version: 7,
            formats,
            names,
            uname: options.uname.clone(),
            stats: options.stats(),
            clock: options.clock.clone(),
            tsc: options.tsc,
            buffers,
        })
    }
}

/// Reads `header_page` and `header_event`; returns the text of the first.
fn read_headers(at: &mut Cursor<'_>) -> Result<String> {
    let mut page = String::new();
    for what in ["header_page", "header_event"] {
        if at.text("a header's name")? != what {
            return Err(Error::Damaged("the headers are misplaced"));
        }
        let size = at.u64("a header")?;
        let text = at.take(size as usize, "a header")?;
        if page.is_empty() {
            page = String::from_utf8_lossy(text).into_owned();
        }
    }
    Ok(page)
}

fn read_layout(header_page: &str, frame: Frame, page_size: usize) -> Result<Layout> {
    if !matches!(frame.long, 4 | 8) || !(64..=1 << 24).contains(&page_size) {
        return Err(Error::Damaged("the size of words or pages is invalid"));
    }
    Layout::parse(header_page, page_size, frame.big_endian)
        .ok_or(Error::Damaged("the format of page headers is invalid"))
}

fn read_ftrace_formats(at: &mut Cursor<'_>) -> Result<Vec<Format>> {
    let count = at.u32("the event count")?;
    read_formats(at, "ftrace", count)
}

fn read_event_formats(at: &mut Cursor<'_>) -> Result<Vec<Format>> {
    let mut all = Vec::new();
    for _ in 0..at.u32("the system count")? {
        let system = at.text("a system's name")?;
        let count = at.u32("the event count")?;
        all.extend(read_formats(at, &system, count)?);
    }
    Ok(all)
}

/// A format that cannot be parsed is treated as missing.
fn read_formats(at: &mut Cursor<'_>, system: &str, count: u32) -> Result<Vec<Format>> {
    let mut all = Vec::new();
    for _ in 0..count {
        let size = at.u64("an event's format")?;
        let text = at.take(size as usize, "an event's format")?;
        all.extend(Format::parse(system, &String::from_utf8_lossy(text)));
    }
    Ok(all)
}

/// `PID NAME`, one per line.
fn parse_names(bytes: &[u8]) -> Vec<(u32, String)> {
    let text = String::from_utf8_lossy(bytes);
    let line = |line: &str| {
        let (pid, name) = line.trim_start().split_once(' ')?;
        let name = name.trim_end_matches('\0');
        Some((pid.parse().ok()?, name.to_owned())).filter(|(_, name)| !name.is_empty())
    };
    text.lines().filter_map(line).collect()
}

/// A buffer's table of CPUs, followed by its clock if the options announce one.
fn read_buffer_6<'a>(
    bytes: &'a [u8],
    at: &mut Cursor<'a>,
    name: String,
    layout: Layout,
    cpus: u32,
    options: &Options,
) -> Result<Buffer<'a>> {
    let (mut all, mut cut) = (Vec::new(), 0);
    for cpu in 0..cpus {
        let (offset, size) = (at.u64("a CPU's pages")?, at.u64("a CPU's pages")?);
        let start = usize::try_from(offset).ok().filter(|o| *o <= bytes.len());
        let start = start.ok_or(Error::Damaged("the pages of a CPU are beyond its end"))?;
        // Of a truncated recording, what is there is kept.
        let end = start.saturating_add(size as usize);
        cut += u64::from(end > bytes.len());
        let end = end.min(bytes.len());
        all.push((cpu as u16, Cow::Borrowed(&bytes[start..end])));
    }
    let buffer = if options.clock.is_some() {
        at.u64("a clock").and_then(|n| at.take(n as usize, "a clock")).ok()
    } else {
        None
    };
    let clock = buffer.map(|text| options::selected_clock(&String::from_utf8_lossy(text)));
    Ok(Buffer { name, clock: clock.or_else(|| options.clock.clone()), layout, cpus: all, cut })
}

#[cfg(test)]
mod tests;
