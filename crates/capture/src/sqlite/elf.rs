//! The parts of an ELF file that are needed to find functions, read in bounded memory.
//!
//! A browser or a Java machine has hundreds of megabytes of symbols and constants, so nothing is read whole: string tables,
//! symbol tables and constants are streamed in blocks, and only what was requested is kept. The files are untrusted and may
//! be damaged: every offset and size is checked against the file's length.

use super::decode::Machine;
use object::Endianness;
use object::elf;
use object::read::ReadCache;
use object::read::elf::{Dyn, FileHeader, ProgramHeader, SectionHeader};
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

/// Number of bytes read at a time.
const BLOCK_BYTES: usize = 1 << 20;

/// A part of the file that is loaded to an address.
#[derive(Debug, Clone, Copy)]
struct Segment {
    address: u64,
    offset: u64,
    size: u64,
    code: bool,
}

#[derive(Debug, Clone)]
struct Section {
    kind: u32,
    name: String,
    offset: u64,
    size: u64,
    link: usize,
}

/// A symbol's address and size in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Symbol {
    pub address: u64,
    pub size: u64,
    /// Its type (`STT_*`).
    pub kind: u8,
}

impl Symbol {
    /// Whether it is a function by type.
    pub fn is_function(&self) -> bool {
        self.kind == elf::STT_FUNC.0
    }
}

/// The table that contains a symbol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SymbolTable {
    Full,
    Dynamic,
}

/// Why a file is unusable.
#[derive(Debug)]
pub(super) enum ElfError {
    NotElf,
    Foreign(String),
    Unreadable(io::Error),
}

#[derive(Debug)]
pub(super) struct Elf {
    file: File,
    len: u64,
    /// The processor that executes it, possibly as a 32-bit program.
    pub machine: Machine,
    /// Whether it is a 64-bit file.
    pub is_64_bit: bool,
    /// The address of a program's first instruction. Linkers give libraries an address too, which means nothing.
    pub entry_address: Option<u64>,
    segments: Vec<Segment>,
    sections: Vec<Section>,
    /// Names of the libraries it needs.
    pub needed: Vec<String>,
    /// Where to search for them, as written (`$ORIGIN` and all).
    pub search: Vec<String>,
    /// The program's loader.
    pub interpreter: Option<String>,
}

impl Elf {
    /// Opens a 64-bit file.
    pub fn open(path: &Path) -> Result<Self, ElfError> {
        let elf = Self::open_any(path)?;
        if elf.is_64_bit { Ok(elf) } else { Err(ElfError::Foreign("not a 64-bit little-endian file".into())) }
    }

    /// Opens a file of 64 or 32 bits.
    pub fn open_any(path: &Path) -> Result<Self, ElfError> {
        // A file named by a program may be a pipe by the time it is opened: the open must not block.
        let mut options = File::options();
        let file = options.read(true).custom_flags(libc::O_NONBLOCK).open(path).map_err(ElfError::Unreadable)?;
        let about = file.metadata().map_err(ElfError::Unreadable)?;
        if !about.is_file() {
            return Err(ElfError::NotElf);
        }
        let mut start = [0; 20];
        if file.read_exact_at(&mut start, 0).is_err() || start[..4] != elf::ELFMAG {
            return Err(ElfError::NotElf);
        }
        if !matches!(start[4], 1 | 2) || start[5] != 1 {
            return Err(ElfError::Foreign("not a little-endian file of 32 or 64 bits".into()));
        }
        let is_64_bit = start[4] == 2;
        let machine = match (u16::from_le_bytes([start[18], start[19]]), is_64_bit) {
            (62, true) | (3, false) => Machine::X86_64,
            (183, true) | (40, false) => Machine::Aarch64,
            (other, _) => return Err(ElfError::Foreign(format!("unsupported architecture (ELF machine {other})"))),
        };
        let mut all = Self {
            len: about.len(),
            file,
            machine,
            is_64_bit,
            entry_address: None,
            segments: Vec::new(),
            sections: Vec::new(),
            needed: Vec::new(),
            search: Vec::new(),
            interpreter: None,
        };
        let copy = all.file.try_clone().map_err(ElfError::Unreadable)?;
        let cache = ReadCache::new(copy);
        let read = if is_64_bit {
            all.read_headers::<elf::FileHeader64<Endianness>>(&cache)
        } else {
            all.read_headers::<elf::FileHeader32<Endianness>>(&cache)
        };
        read.map_err(|_| ElfError::Foreign("damaged ELF headers".into()))?;
        Ok(all)
    }

    /// Whether there is a section with that name.
    pub fn has_section(&self, name: &str) -> bool {
        self.sections
            .iter()
            .any(|section| section.name == name || section.name.strip_prefix(".data.rel.ro") == Some(name))
    }

    fn read_headers<H: FileHeader<Endian = Endianness>>(
        &mut self,
        cache: &ReadCache<File>,
    ) -> object::read::Result<()> {
        let header = H::parse(cache)?;
        let endian = header.endian()?;
        let mut dynamic: &[H::Dyn] = &[];
        for p in header.program_headers(endian, cache)? {
            let (offset, size): (u64, u64) = (p.p_offset(endian).into(), p.p_filesz(endian).into());
            let kind = p.p_type(endian);
            let inside = offset.checked_add(size).is_some_and(|end| end <= self.len);
            // A segment beyond the end of the file is invalid, and so would be an offset computed from it.
            if kind == elf::PT_LOAD && inside {
                let code = p.p_flags(endian).0 & elf::PF_X.0 != 0;
                self.segments.push(Segment { address: p.p_vaddr(endian).into(), offset, size, code });
            } else if kind == elf::PT_INTERP && inside && size < 4096 {
                let mut path = self.read_bytes(offset, size as usize).unwrap_or_default();
                path.truncate(path.iter().position(|b| *b == 0).unwrap_or(path.len()));
                self.interpreter = String::from_utf8(path).ok();
            } else if kind == elf::PT_DYNAMIC && inside && size < BLOCK_BYTES as u64 {
                dynamic = p.dynamic(endian, cache)?.unwrap_or_default();
            }
        }
        self.read_dynamic(dynamic, endian);
        if self.interpreter.is_some() || header.e_type(endian) == elf::ET_EXEC {
            self.entry_address = Some(header.e_entry(endian).into());
        }
        // Section headers may have been stripped (`sstrip`), and debug files have no use for segments: neither is an error.
        if let Ok(sections) = header.sections(endian, cache) {
            for s in sections.iter() {
                let name = sections.section_name(endian, s).unwrap_or_default();
                self.sections.push(Section {
                    kind: s.sh_type(endian).0,
                    name: String::from_utf8_lossy(name).into_owned(),
                    offset: s.sh_offset(endian).into(),
                    size: s.sh_size(endian).into(),
                    link: s.sh_link(endian) as usize,
                });
            }
        }
        Ok(())
    }

    /// Reads the needed libraries and where to search for them from the dynamic section; strings are found by address.
    fn read_dynamic<D: Dyn<Endian = Endianness>>(&mut self, entries: &[D], endian: Endianness) {
        let number = |tag| entries.iter().find(|d| d.d_tag(endian) == tag).map(|d| d.d_val(endian).into());
        let Some(strings) = number(elf::DT_STRTAB).and_then(|address| self.file_offset(address)) else { return };
        for d in entries {
            let tag = d.d_tag(endian);
            let into_search = tag == elf::DT_RUNPATH || tag == elf::DT_RPATH;
            if !into_search && tag != elf::DT_NEEDED {
                continue;
            }
            let Some(text) = strings.checked_add(d.d_val(endian).into()).and_then(|at| self.read_text(at)) else {
                continue;
            };
            if into_search {
                self.search.extend(text.split(':').map(str::to_owned));
            } else {
                self.needed.push(text);
            }
        }
    }

    /// Reads a zero-terminated text, at most as long as a path.
    fn read_text(&self, offset: u64) -> Option<String> {
        let room = self.len.checked_sub(offset)?.min(4096);
        let bytes = self.read_bytes(offset, room as usize).ok()?;
        let end = bytes.iter().position(|b| *b == 0)?;
        String::from_utf8(bytes[..end].to_vec()).ok()
    }

    /// Reads bytes of the file; too few at its end are an error.
    pub fn read_bytes(&self, offset: u64, size: usize) -> io::Result<Vec<u8>> {
        let mut all = vec![0; size];
        self.file.read_exact_at(&mut all, offset)?;
        Ok(all)
    }

    /// Returns the file offset of the byte at this address.
    pub fn file_offset(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|s| {
            let into = address.checked_sub(s.address)?;
            (into < s.size).then(|| s.offset.checked_add(into))?
        })
    }

    /// Does the same for code: `None` if it is not in an executable segment.
    pub fn code_offset(&self, address: u64) -> Option<u64> {
        let inside = |s: &&Segment| s.code && address.checked_sub(s.address).is_some_and(|into| into < s.size);
        self.segments.iter().find(inside)?;
        self.file_offset(address)
    }

    /// Returns the address of the code at a file offset.
    pub fn code_address(&self, offset: u64) -> Option<u64> {
        let inside = |s: &&Segment| s.code && offset.checked_sub(s.offset).is_some_and(|into| into < s.size);
        self.segments.iter().find(inside).map(|s| s.address + (offset - s.offset))
    }

    /// Returns the machine code at a file offset, up to `size` bytes.
    pub fn code(&self, offset: u64, size: usize) -> Vec<u8> {
        let room = self.len.saturating_sub(offset).min(size as u64);
        self.read_bytes(offset, room as usize).unwrap_or_default()
    }

    /// Returns the text at an address, if the file contains it.
    pub fn text_at(&self, address: u64) -> Option<String> {
        self.read_text(self.file_offset(address)?)
    }

    /// Returns the build id in hexadecimal, by which a debug file is found.
    pub fn build_id(&self) -> Option<String> {
        let note = self.sections.iter().find(|s| s.name == ".note.gnu.build-id" && s.size < 4096)?;
        let bytes = self.read_bytes(note.offset, note.size as usize).ok()?;
        let word = |at: usize| Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?) as usize);
        let (name, id) = (word(0)?.next_multiple_of(4), word(4)?);
        let id = bytes.get(12usize.checked_add(name)?..)?.get(..id)?;
        (id.len() > 2).then(|| id.iter().map(|b| format!("{b:02x}")).collect())
    }

    /// Returns the name of the debug file that was split off (`objcopy --add-gnu-debuglink`).
    pub fn debug_link(&self) -> Option<String> {
        let link = self.sections.iter().find(|s| s.name == ".gnu_debuglink" && s.size < 4096)?;
        self.read_text(link.offset).filter(|name| !name.is_empty() && !name.contains('/'))
    }

    /// Streams a part of the file through `look`, in blocks that overlap by `overlap` bytes, until it returns `true`.
    /// `look` receives the offset of the block within the part.
    fn stream(&self, offset: u64, size: u64, overlap: usize, mut look: impl FnMut(u64, &[u8]) -> bool) {
        let size = size.min(self.len.saturating_sub(offset));
        let mut block = vec![0; BLOCK_BYTES.min(size as usize)];
        let mut at = 0;
        while at < size {
            let part = (size - at).min(BLOCK_BYTES as u64) as usize;
            if self.file.read_exact_at(&mut block[..part], offset + at).is_err() || look(at, &block[..part]) {
                return;
            }
            if part < BLOCK_BYTES {
                return;
            }
            at += (BLOCK_BYTES - overlap) as u64;
        }
    }

    /// Searches the constants with `look`, which may keep what it finds and returns whether it has enough. A text of up to
    /// `longest` bytes is passed whole.
    pub fn search_constants(&self, longest: usize, mut look: impl FnMut(&[u8]) -> bool) {
        for s in self.sections.iter().filter(|s| s.name.starts_with(".rodata")) {
            self.stream(s.offset, s.size, longest, |_, block| look(block));
        }
    }

    /// Returns the defined symbols among `names` in a table. All of them must begin with `prefix`, for which the names are
    /// scanned first: a file without a match costs one pass over its names and no memory.
    pub fn symbols<'n>(&self, table: SymbolTable, prefix: &str, names: &[&'n str]) -> BTreeMap<&'n str, Symbol> {
        self.find_entries(table, prefix, names, true)
    }

    /// Whether it uses a function that another file defines.
    pub fn imports(&self, name: &str) -> bool {
        !self.find_entries(SymbolTable::Dynamic, name, &[name], false).is_empty()
    }

    fn find_entries<'n>(
        &self,
        table: SymbolTable,
        prefix: &str,
        names: &[&'n str],
        defined: bool,
    ) -> BTreeMap<&'n str, Symbol> {
        let kind = if table == SymbolTable::Full { elf::SHT_SYMTAB.0 } else { elf::SHT_DYNSYM.0 };
        let mut found = BTreeMap::new();
        for table in self.sections.iter().filter(|s| s.kind == kind) {
            let Some(strings) = self.sections.get(table.link) else { continue };
            let places = self.name_positions(strings, prefix, names);
            if places.is_empty() {
                continue;
            }
            self.for_each_entry(table, |entry| {
                // Section 0: needed here, defined elsewhere.
                if (entry.section != 0) == defined
                    && let Some(name) = places.get(&entry.name)
                {
                    found.entry(*name).or_insert(entry.symbol);
                }
                false
            });
        }
        found
    }

    /// Returns the name of a function that contains this address, but does not begin there.
    pub fn function_around(&self, address: u64) -> Option<String> {
        let mut found = None;
        for table in self.sections.iter().filter(|s| s.kind == elf::SHT_SYMTAB.0 || s.kind == elf::SHT_DYNSYM.0) {
            let Some(strings) = self.sections.get(table.link) else { continue };
            self.for_each_entry(table, |SymbolEntry { name, section, symbol }| {
                let into = address.checked_sub(symbol.address);
                let contains = into.is_some_and(|into| into > 0 && into < symbol.size);
                if contains && section != 0 && symbol.is_function() {
                    found = strings.offset.checked_add(name.into()).and_then(|at| self.read_text(at));
                }
                found.is_some()
            });
        }
        found
    }

    /// Passes the entries of a symbol table to `look`, until it returns `true`.
    fn for_each_entry(&self, table: &Section, mut look: impl FnMut(SymbolEntry) -> bool) {
        let size = if self.is_64_bit { ENTRY_64_BYTES } else { ENTRY_32_BYTES };
        // Blocks overlap by the entry that does not fit into them entirely.
        self.stream(table.offset, table.size, BLOCK_BYTES % size, |_, block| {
            block.chunks_exact(size).any(|bytes| look(if self.is_64_bit { entry_64(bytes) } else { entry_32(bytes) }))
        });
    }

    /// Returns the positions of the names in a string table. A linker may let one name share the end of a longer one, so a
    /// name need not follow a zero. Names that link-time optimisation made unique are treated as the original ones; other
    /// suffixes (`.part.0`, `.cold`, `.constprop.0`) denote parts or variants of a function, not the function.
    fn name_positions<'n>(&self, strings: &Section, prefix: &str, names: &[&'n str]) -> BTreeMap<u32, &'n str> {
        let longest = names.iter().map(|n| n.len()).max().unwrap_or(0) + LTO_SUFFIX.len() + 1;
        let mut places = BTreeMap::new();
        self.stream(strings.offset, strings.size, longest, |at, block| {
            for start in find_all(block, prefix.as_bytes()) {
                let rest = &block[start..];
                let ends =
                    |tail: &[u8]| matches!(tail.first(), Some(0 | b'@')) || tail.starts_with(LTO_SUFFIX.as_bytes());
                let hit = names.iter().find(|n| rest.strip_prefix(n.as_bytes()).is_some_and(ends));
                if let (Some(name), Ok(place)) = (hit, u32::try_from(at + start as u64)) {
                    places.insert(place, *name);
                }
            }
            false
        });
        places
    }
}

/// An entry of a symbol table.
struct SymbolEntry {
    /// Its name's offset in the string table.
    name: u32,
    section: u16,
    symbol: Symbol,
}

/// Sizes of an entry of a symbol table.
const ENTRY_64_BYTES: usize = 24;
const ENTRY_32_BYTES: usize = 16;

/// Reads an `Elf64_Sym`.
fn entry_64(bytes: &[u8]) -> SymbolEntry {
    let word = |at: usize| bytes[at..].first_chunk::<8>().map_or(0, |b| u64::from_le_bytes(*b));
    let symbol = Symbol { address: word(8), size: word(16), kind: bytes[4] & 0xf };
    SymbolEntry { name: word(0) as u32, section: (word(0) >> 48) as u16, symbol }
}

/// Reads an `Elf32_Sym`.
fn entry_32(bytes: &[u8]) -> SymbolEntry {
    let word = |at: usize| bytes[at..].first_chunk::<4>().map_or(0, |b| u32::from_le_bytes(*b));
    let symbol = Symbol { address: word(4).into(), size: word(8).into(), kind: bytes[12] & 0xf };
    SymbolEntry { name: word(0), section: (word(12) >> 16) as u16, symbol }
}

const LTO_SUFFIX: &str = ".lto_priv";

/// Returns every position of `needle`.
pub(super) fn find_all<'a>(hay: &'a [u8], needle: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let first = needle[0];
    let mut at = 0;
    std::iter::from_fn(move || {
        loop {
            let start = at + hay.get(at..)?.iter().position(|b| *b == first)?;
            at = start + 1;
            if hay[start..].starts_with(needle) {
                return Some(start);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_found() {
        assert_eq!(find_all(b"sqlsqsql", b"sql").collect::<Vec<_>>(), [0, 5]);
        assert_eq!(find_all(b"", b"sql").count(), 0);
    }
}
