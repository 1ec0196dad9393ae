//! A sub-buffer of the kernel's ring buffer, as read from `trace_pipe_raw` and stored in trace.dat.
//!
//! A page begins with the time of its first event; each event has five bits of type or length and 27 bits of time since
//! the previous one (kernel/trace/ring_buffer.c, `enum ring_buffer_type`). Anything that does not fit is in records of
//! its own: a longer time, an absolute time, a gap. Bits of the page's length flag that events were lost before it and,
//! if there was room, that their number follows (`RB_MISSED_EVENTS`, `RB_MISSED_STORED`).
//!
//! *Uncertainty*: a truncated or damaged page ends at the first event that does not fit ([`Pages::damaged`]); the rest
//! of it is not guessed.

use super::format;

/// `RB_MISSED_EVENTS`: events were lost before this page.
const MISSED_EVENTS_BIT: u64 = 1 << 31;
/// `RB_MISSED_STORED`: their number follows the page's data.
const MISSED_STORED_BIT: u64 = 1 << 30;
/// The rest of the field is the length of the data.
const LENGTH_MASK: u64 = (1 << 27) - 1;
/// The bits of a time that do not fit in an absolute time stamp (`TS_MSB`).
const TIME_STAMP_HIGH_BITS: u64 = 0xf8 << 56;

const PADDING_TYPE: u32 = 29;
const TIME_EXTEND_TYPE: u32 = 30;
const TIME_STAMP_TYPE: u32 = 31;

/// The layout of a trace's pages: from `header_page`, and the byte order of the machine that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a sub-buffer, header included.
    pub page_size: usize,
    /// Where the length of the data is, and in how many bytes.
    pub commit: (usize, usize),
    /// Where the data begins.
    pub data: usize,
    /// Whether the most significant byte comes first.
    pub big_endian: bool,
}

impl Layout {
    /// Parses the text of `header_page`; `None` if it does not give the position of the data.
    pub fn parse(header_page: &str, page_size: usize, big_endian: bool) -> Option<Self> {
        let fields = format::parse_fields(header_page);
        let find = |name: &str| fields.iter().find(|f| f.name == name);
        let (commit, data) = (find("commit")?, find("data")?);
        let sound = matches!(commit.size, 4 | 8) && commit.offset >= 8 && data.offset >= commit.offset + commit.size;
        let layout = Self { page_size, commit: (commit.offset, commit.size), data: data.offset, big_endian };
        (sound && data.offset < page_size).then_some(layout)
    }

    /// Reads a number of one, two, four or eight bytes; 0 beyond the end.
    pub fn number(&self, bytes: &[u8], offset: usize, size: usize) -> u64 {
        let Some(part) = offset.checked_add(size).and_then(|end| bytes.get(offset..end)).filter(|p| p.len() <= 8)
        else {
            return 0;
        };
        let add = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        if self.big_endian { part.iter().fold(0, add) } else { part.iter().rev().fold(0, add) }
    }

    /// Bytes of data according to a page's header.
    pub fn data_bytes(&self, page: &[u8]) -> usize {
        (self.number(page, self.commit.0, self.commit.1) & LENGTH_MASK) as usize
    }

    fn word(&self, bytes: &[u8], offset: usize) -> Option<u32> {
        bytes.get(offset..offset.checked_add(4)?)?;
        u32::try_from(self.number(bytes, offset, 4)).ok()
    }
}

/// An event in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Record<'a> {
    /// By the trace's clock.
    pub time: u64,
    /// The event as its [`format::Format`] describes it.
    pub data: &'a [u8],
}

/// Events that were lost just before the next item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissedEvents {
    /// The last time before the gap, on this CPU; 0: there was none.
    pub since: u64,
    /// The first time after the gap.
    pub until: u64,
    /// How many; `None`: the kernel did not record it.
    pub events: Option<u64>,
}

/// An item of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<'a> {
    Record(Record<'a>),
    /// A gap.
    Missed(MissedEvents),
}

/// The pages of one CPU, in order.
#[derive(Debug, Clone)]
pub struct Pages<'a> {
    layout: Layout,
    rest: &'a [u8],
    /// The unread data of the current page.
    page: &'a [u8],
    time: u64,
    /// A gap to be reported before the page's first event.
    missed: Option<MissedEvents>,
    damaged: u64,
    /// Whether the current page is already counted as damaged.
    counted: bool,
}

impl<'a> Pages<'a> {
    /// Iterates over whole pages; the last may be truncated.
    pub fn new(layout: Layout, bytes: &'a [u8]) -> Self {
        Self { layout, rest: bytes, page: &[], time: 0, missed: None, damaged: 0, counted: false }
    }

    /// Pages that could not be read completely.
    pub fn damaged(&self) -> u64 {
        self.damaged
    }

    fn mark_damaged(&mut self) {
        self.damaged += u64::from(!std::mem::replace(&mut self.counted, true));
    }

    /// Moves to the next page, if there is one.
    fn next_page(&mut self) -> bool {
        if self.rest.is_empty() {
            return false;
        }
        let size = self.layout.page_size.max(self.layout.data + 1).min(self.rest.len());
        let (page, rest) = self.rest.split_at(size);
        (self.rest, self.page, self.counted) = (rest, &[], false);
        let (at, width) = self.layout.commit;
        if page.len() <= self.layout.data {
            self.mark_damaged();
            return true;
        }
        let commit = self.layout.number(page, at, width);
        let before = self.time;
        self.time = self.layout.number(page, 0, 8);
        let end = self.layout.data.saturating_add((commit & LENGTH_MASK) as usize);
        if end > page.len() {
            self.mark_damaged();
        }
        self.page = &page[self.layout.data..end.min(page.len())];
        if commit & MISSED_EVENTS_BIT != 0 {
            let stored = commit & MISSED_STORED_BIT != 0 && end.checked_add(width).is_some_and(|e| e <= page.len());
            let events = stored.then(|| self.layout.number(page, end, width)).filter(|n| *n > 0);
            self.missed = Some(MissedEvents { since: before, until: self.time, events });
        }
        true
    }

    /// The next event of the current page; `None` at its end.
    fn next_record(&mut self) -> Option<Record<'a>> {
        loop {
            let header = self.layout.word(self.page, 0)?;
            let (kind, delta) =
                if self.layout.big_endian { (header >> 27, header & 0x07ff_ffff) } else { (header & 31, header >> 5) };
            let delta = u64::from(delta);
            let long = |pages: &Self| pages.layout.word(pages.page, 4);
            match kind {
                PADDING_TYPE if delta == 0 => {
                    self.page = &[];
                    return None;
                }
                PADDING_TYPE => {
                    // A discarded event.
                    let length = long(self)? as usize;
                    self.time = self.time.wrapping_add(delta);
                    self.skip(length.saturating_add(4))?;
                }
                TIME_EXTEND_TYPE => {
                    self.time = self.time.wrapping_add(u64::from(long(self)?) << 27).wrapping_add(delta);
                    self.skip(8)?;
                }
                TIME_STAMP_TYPE => {
                    let mut time = u64::from(long(self)?) << 27 | delta;
                    // `rb_fix_abs_ts`: its 59 bits may have wrapped.
                    if self.time & TIME_STAMP_HIGH_BITS != 0 {
                        time |= self.time & TIME_STAMP_HIGH_BITS;
                        if time < self.time {
                            time = time.wrapping_add(1 << 59);
                        }
                    }
                    self.time = time;
                    self.skip(8)?;
                }
                _ => {
                    let (at, length): (usize, usize) = match kind {
                        0 => (8, (long(self)? as usize).checked_sub(4)?),
                        words => (4, words as usize * 4),
                    };
                    self.time = self.time.wrapping_add(delta);
                    let whole = self.page;
                    let data = whole.get(at..at.checked_add(length)?)?;
                    self.skip(at + length)?;
                    return Some(Record { time: self.time, data });
                }
            }
        }
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        // Lengths are multiples of four; one that is not is damage.
        self.page = self.page.get(bytes.next_multiple_of(4).max(4)..)?;
        Some(())
    }
}

impl<'a> Iterator for Pages<'a> {
    type Item = Item<'a>;

    fn next(&mut self) -> Option<Item<'a>> {
        loop {
            if let Some(missed) = self.missed.take() {
                return Some(Item::Missed(missed));
            }
            if !self.page.is_empty() {
                if let Some(record) = self.next_record() {
                    return Some(Item::Record(record));
                }
                if !self.page.is_empty() {
                    self.mark_damaged();
                }
                self.page = &[];
            }
            if !self.next_page() {
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
