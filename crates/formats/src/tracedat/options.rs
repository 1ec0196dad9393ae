//! The options of a trace.dat (trace-cmd-private.h, `TRACECMD_OPTION_…`).

use super::cursor::Cursor;
use super::{Error, Result, Stats};
use crate::ftrace::merge::Clock;

const DONE: u16 = 0;
const CPUSTAT: u16 = 2;
const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const UNAME: u16 = 5;
const TSC2NSEC: u16 = 14;
const HEADERS: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const COMMAND_LINES: u16 = 21;

/// A buffer as version 7 describes it.
#[derive(Debug, Clone)]
pub struct Buffer7 {
    pub offset: u64,
    pub name: String,
    pub clock: String,
    pub page_size: u32,
    /// CPU, offset, bytes.
    pub cpus: Vec<(u16, u64, u64)>,
}

/// All of them together.
#[derive(Debug, Default)]
pub struct Options {
    pub uname: String,
    pub clock: Option<String>,
    pub tsc: Option<Clock>,
    /// Texts of CPUSTAT, in their order.
    counted: Vec<String>,
    pub buffers_6: Vec<(u64, String)>,
    pub buffers_7: Vec<Buffer7>,
    pub headers: Option<u64>,
    pub ftrace_events: Option<u64>,
    pub event_formats: Option<u64>,
    pub command_lines: Option<u64>,
}

impl Options {
    /// Parses the options of version 6, up to their end.
    pub fn version_6(&mut self, at: &mut Cursor<'_>) -> Result<()> {
        loop {
            let id = at.u16("an option")?;
            if id == DONE {
                return Ok(());
            }
            let size = at.u32("an option")?;
            let mut data = Cursor::new(at.take(size as usize, "an option")?, at.big_endian);
            match id {
                BUFFER => self.buffers_6.push((data.u64("a buffer")?, data.text("a buffer's name")?)),
                _ => self.parse_common(id, &mut data)?,
            }
        }
    }

    /// Parses a block of options of version 7; returns the offset of the next, 0 for the last.
    pub fn version_7(&mut self, at: &mut Cursor<'_>) -> Result<u64> {
        while at.remaining() > 0 {
            let id = at.u16("an option")?;
            let size = at.u32("an option")?;
            let mut data = Cursor::new(at.take(size as usize, "an option")?, at.big_endian);
            match id {
                DONE => return data.u64("the offset of further options"),
                BUFFER => {
                    let (offset, name) = (data.u64("a buffer")?, data.text("a buffer's name")?);
                    let clock = data.text("a buffer's clock")?;
                    let (page_size, count) = (data.u32("a buffer's pages")?, data.u32("a buffer's CPUs")?);
                    let mut cpus = Vec::new();
                    for _ in 0..count {
                        let cpu = data.u32("a CPU")? as u16;
                        cpus.push((cpu, data.u64("a CPU's pages")?, data.u64("a CPU's pages")?));
                    }
                    self.buffers_7.push(Buffer7 { offset, name, clock, page_size, cpus });
                }
                HEADERS => self.headers = Some(data.u64("a section")?),
                FTRACE_EVENTS => self.ftrace_events = Some(data.u64("a section")?),
                EVENT_FORMATS => self.event_formats = Some(data.u64("a section")?),
                COMMAND_LINES => self.command_lines = Some(data.u64("a section")?),
                _ => self.parse_common(id, &mut data)?,
            }
        }
        Err(Error::Damaged("its options have no end"))
    }

    fn parse_common(&mut self, id: u16, data: &mut Cursor<'_>) -> Result<()> {
        let mut text = || {
            let left = data.remaining();
            data.take(left, "an option").map(|t| String::from_utf8_lossy(t).trim_end_matches('\0').to_owned())
        };
        match id {
            UNAME => self.uname = text()?,
            TRACECLOCK => self.clock = Some(selected_clock(&text()?)),
            CPUSTAT => self.counted.push(text()?),
            TSC2NSEC => {
                let (mult, shift) = (data.u32("the clock's rate")?, data.u32("the clock's rate")?);
                let offset = data.u64("the clock's offset")? as i64;
                self.tsc = Some(Clock { mult: mult.into(), shift, offset });
            }
            _ => {}
        }
        Ok(())
    }

    /// The counts of the CPUs. A text `Buffer: NAME` precedes those of an instance.
    pub fn stats(&self) -> Vec<Stats> {
        let (mut all, mut buffer) = (Vec::new(), String::new());
        for text in &self.counted {
            let value = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(str::trim);
            if let Some(name) = value("Buffer:") {
                name.clone_into(&mut buffer);
            }
            let number = |key: &str| value(key).and_then(|n| n.parse::<u64>().ok());
            if let Some(cpu) = number("CPU:") {
                let lost = ["overrun:", "commit overrun:", "dropped events:"].iter().filter_map(|k| number(k));
                let lost = lost.fold(0, u64::saturating_add);
                all.push(Stats { buffer: buffer.clone(), cpu: cpu as u16, lost });
            }
        }
        all
    }
}

/// The clock in brackets in `local global [boot]`.
pub fn selected_clock(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']')).map(|(name, _)| name);
    inside.unwrap_or(text).trim().to_owned()
}
