//! What unwinding and naming need from a file that is mapped as code: its functions' names, its unwind information, its build
//! ID.
//!
//! The files are untrusted: sizes are bounded, and damaged parts are treated as missing.

use super::endless::UnwindSections;
use super::names;
use super::section::{Bytes, Section};
use gimli::RegisterRule;
use object::read::elf::{ElfFile64, FileHeader as _, ProgramHeader as _};
use object::{Endianness, Object as _, ObjectSection as _, ObjectSymbol as _, ReadCache, ReadRef, SymbolKind};
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Larger unwind sections are not read; a browser's has 20 MiB.
const SECTION_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of functions kept per file.
const FUNCTIONS_MAX: usize = 2_000_000;
/// Maximum number of bytes read in one piece: a browser's symbol table has 100 MiB. A file may have holes, and claim to be a million
/// times as large.
const PIECE_BYTES_MAX: u64 = 256 << 20;
/// Maximum size of the names of a file's functions: many symbols may share the end of one long name.
const NAMES_BYTES_MAX: usize = 256 << 20;
/// Assumed maximum length of a function of unknown size.
const UNSIZED_FUNCTION_BYTES_MAX: u64 = 64 << 10;
/// Number of symbols at and before an address that are tried, for functions inside others.
const SYMBOLS_TRIED_MAX: usize = 16;
/// Length of the longest call on x86-64 (`call *disp32(base,index)` with a prefix).
const CALL_BYTES_MAX: usize = 8;

/// A file from which no piece is read that is too long for memory.
#[derive(Clone, Copy)]
struct BoundedFile<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for BoundedFile<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > PIECE_BYTES_MAX { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

#[derive(Debug)]
struct Segment {
    offset: u64,
    size: u64,
    address: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    /// Makes the plainest of several names come last.
    underscores: std::cmp::Reverse<u8>,
    size: u64,
    name: (u32, u32),
}

#[derive(Debug)]
pub struct CodeFile {
    file: Option<File>,
    segments: Vec<Segment>,
    functions: Vec<Function>,
    text: String,
    /// In hexadecimal; empty if it has none.
    pub build_id: String,
    /// `.eh_frame`.
    pub eh_frame: Option<Section>,
    /// `.eh_frame_hdr`.
    pub eh_frame_hdr: Option<Section>,
}

impl CodeFile {
    /// Reads a file; `None` if it is not a 64-bit ELF file.
    pub fn read(file: File) -> Option<Self> {
        let mut code = Self::parse(file.try_clone().ok()?)?;
        if let Some(debug) = debug_file(&code.build_id).and_then(|path| open_regular(&path)).and_then(Self::parse)
            && debug.build_id == code.build_id
        {
            code.append(&debug);
        }
        code.file = Some(file);
        Some(code)
    }

    fn parse(file: File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let cache = BoundedFile(&cache);
        let elf = ElfFile64::<Endianness, _>::parse(cache).ok()?;
        let endian = elf.endian();
        let headers = elf.elf_header().program_headers(endian, cache).ok()?;
        let loaded = headers.iter().filter(|h| h.p_type(endian) == object::elf::PT_LOAD);
        let segment = |h: &object::elf::ProgramHeader64<Endianness>| Segment {
            offset: h.p_offset(endian),
            size: h.p_filesz(endian),
            address: h.p_vaddr(endian),
        };
        let segments = loaded.map(segment).collect();
        let section = |name: &str| {
            let section = elf.section_by_name(name).filter(|s| s.size() <= SECTION_BYTES_MAX)?;
            let bytes = section.data().ok().filter(|bytes| !bytes.is_empty())?;
            let to = section.address().checked_add(bytes.len() as u64)?;
            Some(Section { addresses: section.address()..to, bytes: Bytes::from(bytes) })
        };
        let id = elf.build_id().ok().flatten().unwrap_or_default();
        let mut code = Self {
            file: None,
            segments,
            functions: Vec::new(),
            text: String::new(),
            build_id: id.iter().take(32).map(|byte| format!("{byte:02x}")).collect(),
            eh_frame: section(".eh_frame"),
            eh_frame_hdr: section(".eh_frame_hdr"),
        };
        // Without the header the unwinder builds a table from them.
        if let (Some(frame), None) = (&code.eh_frame, &code.eh_frame_hdr)
            && !UnwindSections::new(frame, None).all_safe()
        {
            code.eh_frame = None;
        }
        let mut read = 0;
        for symbol in elf.symbols().chain(elf.dynamic_symbols()).filter(|symbol| symbol.is_definition()) {
            let is_of_code = symbol.kind() == SymbolKind::Text;
            if !is_of_code && !matches!(symbol.kind(), SymbolKind::Unknown | SymbolKind::Label) {
                continue;
            }
            let Ok(whole) = symbol.name() else { continue };
            // In a shared library, the name of its own symbols is followed by a version.
            let name = whole.split_once('@').map_or(whole, |(name, _)| name);
            if is_of_code || name == "_start" {
                code.add(symbol.address(), symbol.size(), name);
            }
            read += whole.len();
            if read > NAMES_BYTES_MAX {
                break;
            }
        }
        code.sort();
        Some(code)
    }

    fn add(&mut self, address: u64, size: u64, name: &str) {
        if name.is_empty() || self.functions.len() >= FUNCTIONS_MAX {
            return;
        }
        let Ok(from) = u32::try_from(self.text.len()) else { return };
        let underscores = name.bytes().take_while(|byte| *byte == b'_').count().min(255) as u8;
        self.text.push_str(name);
        let name = (from, name.len() as u32);
        self.functions.push(Function { address, underscores: std::cmp::Reverse(underscores), size, name });
    }

    fn append(&mut self, other: &Self) {
        for function in &other.functions {
            self.add(function.address, function.size, other.name_of(function));
        }
        self.sort();
    }

    fn sort(&mut self) {
        self.functions.sort_unstable();
        let text = &self.text;
        let name = |f: &Function| text.get(f.name.0 as usize..(f.name.0 as usize + f.name.1 as usize));
        self.functions.dedup_by(|a, b| (a.address, a.size) == (b.address, b.size) && name(a) == name(b));
    }

    fn name_of(&self, function: &Function) -> &str {
        let from = function.name.0 as usize;
        self.text.get(from..from + function.name.1 as usize).unwrap_or_default()
    }

    /// Returns the address, as linked, of an offset in the file.
    pub fn address_of(&self, offset: u64) -> Option<u64> {
        let within = |s: &&Segment| offset >= s.offset && offset - s.offset < s.size;
        let segment = self.segments.iter().find(within)?;
        segment.address.checked_add(offset - segment.offset)
    }

    /// Returns the function that contains an address, as linked, and the offset in it.
    pub fn function(&self, address: u64) -> Option<(String, u64)> {
        let at = self.functions.partition_point(|f| f.address <= address);
        let next = self.functions.get(at).map_or(u64::MAX, |f| f.address);
        let holds = |f: &&Function| {
            let within = address - f.address;
            if f.size > 0 { within < f.size } else { within < UNSIZED_FUNCTION_BYTES_MAX && address < next }
        };
        let found = self.functions[..at].iter().rev().take(SYMBOLS_TRIED_MAX).find(holds)?;
        Some((names::demangle(self.name_of(found)), address - found.address))
    }

    /// Whether a call precedes this file offset. Otherwise an address found by unwinding is no return address; without unwind
    /// information the unwinder follows registers, which may hold anything.
    pub fn follows_call(&self, offset: u64) -> bool {
        let Some(file) = &self.file else { return true };
        let mut bytes = [0; CALL_BYTES_MAX];
        let Some(from) = offset.checked_sub(CALL_BYTES_MAX as u64) else { return false };
        file.read_exact_at(&mut bytes, from).is_ok() && ends_with_call(&bytes)
    }

    /// Returns the target of a direct call before this file offset, relative to the offset.
    pub fn called_before(&self, offset: u64) -> Option<i64> {
        let mut bytes = [0; CALL_BYTES_MAX];
        self.file.as_ref()?.read_exact_at(&mut bytes, offset.checked_sub(CALL_BYTES_MAX as u64)?).ok()?;
        call_target(&bytes)
    }

    /// Whether there is unwind information for an address, as linked.
    pub fn has_unwind_info(&self, address: u64) -> bool {
        let both = self.eh_frame.as_ref().zip(self.eh_frame_hdr.as_ref());
        both.is_some_and(|(frame, header)| {
            UnwindSections::new(frame, Some(header)).with_row(header, address, |_, _| ()).is_some()
        })
    }

    /// Whether the function at an address, as linked, has no caller according to the unwind information; `None` if it does not cover
    /// the address.
    pub fn is_outermost(&self, address: u64) -> Option<bool> {
        let (frame, header) = (self.eh_frame.as_ref()?, self.eh_frame_hdr.as_ref()?);
        UnwindSections::new(frame, Some(header)).with_row(header, address, |fde, row| {
            let register = fde.cie().return_address_register();
            matches!(row.register(register), None | Some(RegisterRule::Undefined)) && is_explicit_rule(row, register)
        })
    }

    /// Whether the unwind information for an address, as linked, can be evaluated safely.
    pub fn is_safe_to_unwind(&self, address: u64) -> bool {
        let both = self.eh_frame.as_ref().zip(self.eh_frame_hdr.as_ref());
        both.is_none_or(|(frame, header)| UnwindSections::new(frame, Some(header)).is_safe_at(header, address))
    }
}

/// On x86-64 every description has a rule for the return address; on arm64 it stays in its register until it is saved, and only an
/// explicit rule means that there is none.
fn is_explicit_rule<T: gimli::ReaderOffset, S: gimli::UnwindContextStorage<T>>(
    row: &gimli::UnwindTableRow<T, S>,
    register: gimli::Register,
) -> bool {
    cfg!(target_arch = "x86_64") || matches!(row.register(register), Some(RegisterRule::Undefined))
}

/// Whether bytes of code end with a call.
#[cfg(target_arch = "x86_64")]
fn ends_with_call(code: &[u8; CALL_BYTES_MAX]) -> bool {
    let end = code.len();
    // `call rel32`; `call *…`: FF, followed by a byte with 2 in its middle bits.
    code[end - 5] == 0xe8 || (2..=7).any(|n| code[end - n] == 0xff && code[end - n + 1] >> 3 & 7 == 2)
}

/// Returns the target of the direct call that ends these bytes, relative to their end, if they cannot be another call.
#[cfg(target_arch = "x86_64")]
fn call_target(code: &[u8; CALL_BYTES_MAX]) -> Option<i64> {
    let [.., a, b, c, d] = *code;
    let other = (2..=7).any(|n| code[CALL_BYTES_MAX - n] == 0xff && code[CALL_BYTES_MAX - n + 1] >> 3 & 7 == 2);
    (code[CALL_BYTES_MAX - 5] == 0xe8 && !other).then_some(i64::from(i32::from_le_bytes([a, b, c, d])))
}

/// Returns the target of the direct call that ends these bytes, relative to their end.
#[cfg(target_arch = "aarch64")]
fn call_target(code: &[u8; CALL_BYTES_MAX]) -> Option<i64> {
    let [.., a, b, c, d] = *code;
    let word = u32::from_le_bytes([a, b, c, d]);
    // A signed 26-bit number of words, relative to the call itself.
    (word & 0xfc00_0000 == 0x9400_0000).then_some(i64::from((word << 6) as i32 >> 4) - 4)
}

/// Whether bytes of code end with a call: BL, BLR, or a BLR variant that checks a signed address.
#[cfg(target_arch = "aarch64")]
fn ends_with_call(code: &[u8; CALL_BYTES_MAX]) -> bool {
    let [.., a, b, c, d] = *code;
    let word = u32::from_le_bytes([a, b, c, d]);
    word & 0xfc00_0000 == 0x9400_0000 || word & 0xffff_fc1f == 0xd63f_0000 || word & 0xfeff_f800 == 0xd63f_0800
}

/// Returns where a distribution puts the symbols stripped from a file.
fn debug_file(build_id: &str) -> Option<PathBuf> {
    let (first, rest) = build_id.split_at_checked(2).filter(|(_, rest)| !rest.is_empty())?;
    Some(PathBuf::from(format!("/usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// Opens a file named by a process, which may be anything.
pub fn open_regular(path: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}

/// The code files of all processes.
#[derive(Debug, Default)]
pub struct CodeFiles(HashMap<(String, u64, String), Option<Arc<CodeFile>>>);

/// Maximum number of files kept.
const FILES_MAX: usize = 512;

impl CodeFiles {
    /// Returns the file of a mapping of a process in `/proc`: through the mapping itself, as long as the process exists.
    pub fn for_mapping(&mut self, pid: u32, mapping: &super::maps::CodeMapping) -> Option<Arc<CodeFile>> {
        if !mapping.is_file() {
            return None;
        }
        if self.0.len() >= FILES_MAX {
            self.0.clear();
        }
        let key = (mapping.file.0.clone(), mapping.file.1, mapping.name.clone());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let (from, to) = (mapping.from, mapping.to);
        let same = |file: &File| file.metadata().is_ok_and(|about| about.ino() == mapping.file.1);
        let itself = open_regular(Path::new(&format!("/proc/{pid}/map_files/{from:x}-{to:x}")));
        // For a process that has ended only the path is left, which may name another file by now.
        let named = || {
            let there = open_regular(Path::new(&format!("/proc/{pid}/root{}", mapping.name))).filter(same);
            there.or_else(|| open_regular(Path::new(&mapping.name)).filter(same))
        };
        // If it does not exist any more, another process may still have it.
        let code = CodeFile::read(itself.or_else(named)?).map(Arc::new);
        self.0.insert(key, code.clone());
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_program() -> CodeFile {
        CodeFile::read(File::open("/proc/self/exe").unwrap()).expect("an ELF file")
    }

    #[test]
    fn own_functions_have_names_and_unwind_information() {
        let code = this_program();
        assert!(code.eh_frame.is_some() && !code.functions.is_empty());
        let found = code.functions.iter().find(|f| code.name_of(f).contains("this_program") && f.size > 4).unwrap();
        let (name, offset) = code.function(found.address + 3).unwrap();
        assert!(name.ends_with("this_program") && offset == 3, "{name}+{offset}");
        assert_eq!(code.is_outermost(found.address), Some(false));
        assert_eq!(code.function(0), None);
    }

    #[test]
    fn file_of_process_that_has_ended_is_read_in_another() {
        let maps = crate::stacks::maps::Maps::read(std::process::id()).unwrap();
        let own = maps.iter().find(|m| m.is_file() && !m.name.is_empty()).unwrap();
        if let Err(error) = File::open(format!("/proc/self/map_files/{:x}-{:x}", own.from, own.to)) {
            return println!(
                "SKIP file_of_process_that_has_ended_is_read_in_another: /proc/PID/map_files: {error} (needs CAP_CHECKPOINT_RESTORE)"
            );
        }
        // As if it were only available in the process: its path names nothing.
        let hidden = crate::stacks::maps::CodeMapping { name: "/nowhere".into(), ..own.clone() };
        let (gone, mut files) = (i32::MAX as u32, CodeFiles::default());
        assert!(files.for_mapping(gone, &hidden).is_none());
        assert!(files.for_mapping(std::process::id(), &hidden).is_some());
        assert!(files.for_mapping(gone, &hidden).is_some(), "it has been read");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_are_distinguished_from_other_code() {
        for (call, code) in [
            (true, [0, 0, 0, 0xe8, 1, 2, 3, 4]),
            (true, [0, 0, 0, 0, 0, 0, 0xff, 0xd0]),
            (true, [0, 0, 0xff, 0x15, 1, 2, 3, 4]),
            (true, [0, 0, 0, 0, 0, 0xff, 0x50, 0x18]),
            (false, [0x90; 8]),
            (false, [0, 0, 0, 0, 0, 0, 0xff, 0xe0]),
            (false, [0, 0, 0, 0, 0, 0, 0x0f, 0x05]),
        ] {
            assert_eq!(ends_with_call(&code), call, "{code:x?}");
        }
        assert_eq!(call_target(&[0, 0, 0, 0xe8, 1, 2, 0, 0]), Some(0x201));
        assert_eq!(call_target(&[0, 0, 0, 0xe8, 0xfb, 0xff, 0xff, 0xff]), Some(-5));
        assert_eq!(call_target(&[0, 0, 0xff, 0x15, 1, 2, 3, 4]), None);
        assert_eq!(call_target(&[0, 0, 0, 0xe8, 1, 2, 0xff, 0xd0]), None, "call *%rax, or a call far away");
    }

    /// A file with holes takes no room on the disk, whatever size its symbol table claims to need in memory.
    #[test]
    fn piece_too_long_for_memory_is_not_read() {
        let symbols = |size: u64| {
            let word = |value: u64| value.to_le_bytes().to_vec();
            let halves = |values: &[u32]| values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
            let magic = [b"\x7fELF\x02\x01\x01".to_vec(), vec![0; 9], vec![3, 0, 62, 0], halves(&[1])].concat();
            // Entry, program headers, section headers; their sizes and counts.
            let counts = [64_u16, 56, 0, 64, 3, 2].iter().flat_map(|count| count.to_le_bytes()).collect();
            let head = [magic, word(0), word(0), word(64), halves(&[0]), counts].concat();
            let section = |kind: u32, from: u64, size: u64, link: u32, each: u64| {
                [halves(&[0, kind]), word(0), word(0), word(from), word(size), halves(&[link, 0]), word(8), word(each)]
                    .concat()
            };
            let sections = [section(0, 0, 0, 0, 0), section(2, 4096, size, 2, 24), section(3, 512, 1, 0, 0)];
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[head, sections.concat()].concat(), 0).unwrap();
            file.set_len(4096 + size).unwrap();
            CodeFile::read(file)
        };
        assert!(symbols(240).is_some(), "ten symbols that are nothing");
        assert!(symbols(PIECE_BYTES_MAX / 24 * 24 + 24).is_none());
    }

    #[test]
    fn damaged_files_are_no_code() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("elf");
        let own = std::fs::read("/proc/self/exe").unwrap();
        for (cut, from) in [(0, 0), (3, 0), (64, 0), (5000, 0), (5000, 16)] {
            let mut bytes = own[..cut].to_vec();
            bytes.iter_mut().skip(from.max(20)).step_by(7).for_each(|byte| *byte ^= 0x55);
            std::fs::write(&path, bytes).unwrap();
            drop(CodeFile::read(open_regular(&path).unwrap()));
        }
        assert!(open_regular(dir.path()).is_none());
        assert_eq!(debug_file("ab"), None);
        assert_eq!(debug_file("abcd").unwrap(), Path::new("/usr/lib/debug/.build-id/ab/cd.debug"));
    }
}
