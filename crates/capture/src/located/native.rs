//! Functions of compiled code, with the lines of their source where the file has them (`.debug_line`).

use super::memory::Stopped;
use crate::stacks::code::open_regular;
use crate::stacks::program::{Place, Programs};
use crate::stacks::raw::CallStack;
use gimli::{EndianSlice, LittleEndian};
use model::place::Frame;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSection as _, ReadCache};
use std::collections::HashMap;
use std::path::Path;

/// Part of a stack that is read.
const STACK_BYTES: usize = 64 << 10;
/// Larger tables of lines are not read.
const LINES_BYTES_MAX: u64 = 64 << 20;

#[derive(Default)]
pub struct NativeStacks {
    programs: Programs,
    lines: HashMap<String, Lines>,
}

impl NativeStacks {
    pub fn frames(&mut self, tgid: u32, stopped: &Stopped) -> Vec<Frame> {
        // Libraries are loaded meanwhile: the process is read again, which costs nothing if nothing has changed.
        self.programs.read_process(tgid);
        let bytes = stopped.bytes(stopped.registers.sp, STACK_BYTES);
        let call = CallStack {
            thread: (tgid, stopped.pid as u32),
            time_ns: 0,
            at: stopped.registers,
            stubs: 0,
            returns: Vec::new(),
            from: stopped.registers.sp,
            is_cut: bytes.len() == STACK_BYTES,
            bytes,
        };
        let (places, _) = self.programs.unwind(&call);
        let innermost = places.iter().take(1).map(|place| (place, 0));
        // A return address is that of the next instruction.
        let all = innermost.chain(places.iter().skip(1).map(|place| (place, 1)));
        let all: Vec<(Place, u64)> = all.map(|(place, back)| (place.clone(), back)).collect();
        all.into_iter().filter_map(|(place, back)| self.frame(tgid, place, back)).collect()
    }

    fn frame(&mut self, tgid: u32, place: Place, back: u64) -> Option<Frame> {
        let (function, _) = place.function?;
        let lines = self
            .lines
            .entry(place.file.clone())
            .or_insert_with(|| Lines::read(Path::new(&format!("/proc/{tgid}/root{}", place.file))).unwrap_or_default());
        let (file, line) = match lines.find(place.offset.saturating_sub(back)) {
            Some((file, line)) => (file.to_string(), Some(line)),
            None => (place.file.clone(), None),
        };
        Some(Frame { function, file, code: place.file, line })
    }
}

/// The lines of a file's code, by address as linked.
#[derive(Default)]
struct Lines {
    /// Offset in the file, size and address of what is mapped.
    segments: Vec<(u64, u64, u64)>,
    /// Address, file and line; a line of 0 ends a sequence.
    rows: Vec<(u64, u32, u32)>,
    files: Vec<String>,
}

impl Lines {
    fn read(path: &Path) -> Option<Self> {
        use object::read::elf::{FileHeader as _, ProgramHeader as _};
        let cache = ReadCache::new(open_regular(path)?);
        let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
        let endian = elf.endian();
        let headers = elf.elf_header().program_headers(endian, &cache).ok()?;
        let loaded = headers.iter().filter(|header| header.p_type(endian) == object::elf::PT_LOAD);
        let mut lines = Self {
            segments: loaded.map(|h| (h.p_offset(endian), h.p_filesz(endian), h.p_vaddr(endian))).collect(),
            ..Self::default()
        };
        let load = |id: gimli::SectionId| -> Result<EndianSlice<LittleEndian>, gimli::Error> {
            let section = elf.section_by_name(id.name()).filter(|section| section.size() <= LINES_BYTES_MAX);
            let data = section.and_then(|section| section.data().ok()).unwrap_or_default();
            Ok(EndianSlice::new(data, LittleEndian))
        };
        let dwarf = gimli::Dwarf::load(load).ok()?;
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            if let Ok(unit) = dwarf.unit(header) {
                let _ = lines.add(&dwarf, &unit);
            }
        }
        lines.rows.sort_unstable();
        Some(lines)
    }

    fn add<R: gimli::Reader>(&mut self, dwarf: &gimli::Dwarf<R>, unit: &gimli::Unit<R>) -> Result<(), gimli::Error> {
        let Some(program) = unit.line_program.clone() else { return Ok(()) };
        let mut names: HashMap<u64, u32> = HashMap::new();
        let mut rows = program.rows();
        while let Some((header, row)) = rows.next_row()? {
            if row.end_sequence() {
                self.rows.push((row.address(), 0, 0));
                continue;
            }
            let name = match names.get(&row.file_index()) {
                Some(known) => *known,
                None => {
                    let built = unit
                        .comp_dir
                        .clone()
                        .map_or(Ok(String::new()), |name| name.to_string_lossy().map(std::borrow::Cow::into_owned))?;
                    let mut path = String::new();
                    if let Some(file) = row.file(header) {
                        let directory = file.directory(header).map(|name| dwarf.attr_string(unit, name));
                        if let Some(directory) = directory.transpose()? {
                            path = format!("{}/", directory.to_string_lossy()?);
                        }
                        let name = dwarf.attr_string(unit, file.path_name())?.to_string_lossy()?.into_owned();
                        path = if name.starts_with('/') { name } else { path + &name };
                    }
                    // Relative names are below the directory in which it was compiled.
                    path = if path.starts_with('/') || built.is_empty() { path } else { format!("{built}/{path}") };
                    self.files.push(path);
                    let number = self.files.len() as u32 - 1;
                    names.insert(row.file_index(), number);
                    number
                }
            };
            let line = row.line().map_or(0, |line| u32::try_from(line.get()).unwrap_or(0));
            self.rows.push((row.address(), name, line));
        }
        Ok(())
    }

    /// Returns the source of the code at an offset of the file.
    fn find(&self, offset: u64) -> Option<(&str, u32)> {
        let (from, _, address) =
            self.segments.iter().find(|(from, size, _)| offset >= *from && offset - from < *size)?;
        let address = address.checked_add(offset - from)?;
        let at = self.rows.partition_point(|(row, ..)| *row <= address).checked_sub(1)?;
        let (_, file, line) = self.rows[at];
        (line > 0).then(|| (self.files[file as usize].as_str(), line))
    }
}
