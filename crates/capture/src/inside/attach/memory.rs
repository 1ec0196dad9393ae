//! The memory of a process, and its mappings.

use object::elf::{FileHeader64, PF_X, PT_LOAD};
use object::read::elf::{FileHeader as _, ProgramHeader as _};
use object::{LittleEndian as LE, read::ReadCache};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;

/// A process's memory, writable even where the process itself may not write.
pub struct Memory(File);

impl Memory {
    pub fn for_process(pid: u32) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/mem"))?))
    }

    pub fn read(&self, at: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; size];
        self.0.read_exact_at(&mut bytes, at).map(|()| bytes)
    }

    /// Writes bytes within one page, in a single write.
    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    pub fn read_word(&self, at: u64) -> Option<u64> {
        self.read(at, 8).ok()?.first_chunk().map(|w| u64::from_le_bytes(*w))
    }

    pub fn holds_bytes(&self, at: u64, bytes: &[u8]) -> bool {
        self.read(at, bytes.len()).is_ok_and(|there| there == bytes)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedRange {
    pub from: u64,
    pub to: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub private: bool,
    pub offset: u64,
    pub ino: u64,
    pub name: String,
}

impl MappedRange {
    pub fn contains(&self, at: u64) -> bool {
        (self.from..self.to).contains(&at)
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let may = words.next()?.as_bytes();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (offset, _dev, ino) = (hex(words.next()?)?, words.next()?, words.next()?.parse().ok()?);
        let name = words.next().unwrap_or_default().trim_start().to_owned();
        let flags = [(0, b'r'), (1, b'w'), (2, b'x'), (3, b'p')];
        let [readable, writable, executable, private] = flags.map(|(i, c)| may.get(i) == Some(&c));
        Some(Self { from: hex(from)?, to: hex(to)?, readable, writable, executable, private, offset, ino, name })
    }
}

/// Returns all mappings, in order.
pub fn mapped_ranges(pid: u32) -> io::Result<Vec<MappedRange>> {
    Ok(fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().filter_map(MappedRange::parse).collect())
}

/// Space after some library's code, in the rest of its last page, which nothing in the process uses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeGap {
    /// Its start; everything from there is zero, except for the leftovers of a killed recorder.
    pub from: u64,
    pub to: u64,
    /// The length of the part that is not zero.
    pub used: u64,
}

/// Returns the places for a piece of code. Not after the object's own code, which such a piece unmaps.
pub fn code_gaps(pid: u32, memory: &Memory, ranges: &[MappedRange]) -> Vec<CodeGap> {
    let is_code = |r: &&MappedRange| {
        let of_file = r.private && r.ino != 0 && r.name.starts_with('/');
        r.executable && !r.writable && of_file && !r.name.contains("/fathom-inside-")
    };
    // The C library is always present, so it comes first.
    let (first, others): (Vec<&MappedRange>, Vec<&MappedRange>) =
        ranges.iter().filter(is_code).partition(|r| r.name.contains("/libc.so") || r.name.contains("/libc-"));
    let room = |r: &MappedRange| {
        let from = (end_of_code(pid, r)? + 1).next_multiple_of(16);
        let there = memory.read(from, r.to.checked_sub(from)? as usize).ok()?;
        let used = there.iter().rposition(|b| *b != 0).map_or(0, |last| last as u64 + 1);
        Some(CodeGap { from, to: r.to, used })
    };
    first.into_iter().chain(others).filter_map(room).collect()
}

/// Returns where the code of the file mapped at this range ends.
fn end_of_code(pid: u32, range: &MappedRange) -> Option<u64> {
    let file = File::open(format!("/proc/{pid}/map_files/{:x}-{:x}", range.from, range.to)).ok()?;
    let data = ReadCache::new(file);
    let header = FileHeader64::<LE>::parse(&data).ok()?;
    let code = header.program_headers(LE, &data).ok()?.iter().find(|p| {
        let offset = p.p_offset(LE);
        let is_it = p.p_type(LE) == PT_LOAD && p.p_flags(LE).0 & PF_X.0 != 0;
        is_it && range.offset <= offset && offset - range.offset < 4096
    })?;
    let end = range.from + (code.p_offset(LE) - range.offset) + code.p_filesz(LE);
    // Only within the page in which the file's code ends: if more follows, it is something else.
    (end < range.to && range.to - end < 4096).then_some(end)
}

/// Returns a free address range of this size, below the mapping of a file, and far from regions that grow.
pub fn find_free_range(ranges: &[MappedRange], size: u64) -> Option<u64> {
    const REGION_DISTANCE_BYTES: u64 = 1 << 20;
    let gaps = ranges.windows(2).rev();
    let fits = |pair: &&[MappedRange]| {
        let [below, above] = pair else { return false };
        let gap = above.from - below.to;
        !above.name.starts_with('[') && gap > size + 4 * REGION_DISTANCE_BYTES
    };
    gaps.into_iter().find(fits).and_then(|pair| Some((pair.last()?.from - REGION_DISTANCE_BYTES - size) & !0xffff))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_memory_is_read_and_has_room() {
        let pid = std::process::id();
        let all = mapped_ranges(pid).unwrap();
        let code = own_memory_is_read_and_has_room as *const () as u64;
        assert!(all.iter().any(|r| r.contains(code) && r.executable && !r.writable && r.private), "{all:?}");
        let code = all.iter().find(|r| r.contains(code)).unwrap();
        if let Err(error) = File::open(format!("/proc/{pid}/map_files/{:x}-{:x}", code.from, code.to)) {
            return println!(
                "SKIP own_memory_is_read_and_has_room: /proc/PID/map_files: {error} (needs CAP_CHECKPOINT_RESTORE)"
            );
        }
        let memory = Memory::for_process(pid).unwrap();
        let value = 0x1122_3344_5566_7788u64;
        assert_eq!(memory.read_word(&raw const value as u64), Some(value));
        let rooms = code_gaps(pid, &memory, &all);
        let room = rooms.iter().find(|room| room.used == 0 && room.to - room.from > 1000).unwrap();
        assert!(all.iter().any(|r| r.contains(room.from) && r.to == room.to && r.executable));
        assert!(memory.holds_bytes(room.from, &[0; 1000]));
        let place = find_free_range(&all, 1 << 20).unwrap();
        assert!(place.is_multiple_of(4096) && !all.iter().any(|r| r.from < place + (1 << 20) && place < r.to));
    }

    #[test]
    fn lines_of_maps_are_parsed() {
        let line = "7f10-7f20 r-xp 00026000 08:01 1234                       /usr/lib/a b.so";
        let range = MappedRange::parse(line).unwrap();
        assert_eq!((range.from, range.to, range.offset, range.ino), (0x7f10, 0x7f20, 0x26000, 1234));
        assert_eq!(
            (range.name.as_str(), range.executable, range.writable, range.private),
            ("/usr/lib/a b.so", true, false, true)
        );
        assert_eq!(MappedRange::parse("7f10-7f20 rw-s 0 00:00 0").unwrap().name, "");
    }
}
