//! The object's image in memory as a loader would create it: for programs without a loader, where the recorder takes its
//! role.
//!
//! The difficulty is its thread-local memory. A statically linked program has offsets from the thread pointer in its code, and its libc
//! allocates according to its program headers (PT_TLS). On x86-64 that memory lies below the thread pointer and ends there, so it can
//! grow at its lower end without moving its contents; on aarch64 it begins above the thread pointer, and grows at its upper end: see
//! [`Tls::extend`]. The libc then unknowingly allocates memory for the object in each thread, and initialises and frees it.

use object::elf::{PF_R, PT_DYNAMIC, PT_GNU_STACK, PT_INTERP, PT_LOAD, PT_TLS, ProgramHeader64};
use object::read::elf::{FileHeader as _, Rela as _, SectionHeader as _, Sym as _};
use object::{LittleEndian as LE, U32, U64};

/// Size of a program header in bytes.
pub const PROGRAM_HEADER_BYTES: usize = 56;
const PAGE_BYTES: u64 = 4096;
/// Larger thread-local memory is left alone: each thread has it on its stack.
const TLS_BYTES_MAX: u64 = 1 << 20;

/// A part of the object that is mapped, on separate pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Address, from the object's begin.
    pub address: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes from the file.
    pub file_size: u64,
    /// Total size in bytes; the rest is zero.
    pub size: u64,
    /// Protection for mmap: 1 read, 2 write, 4 execute.
    pub protection: u64,
}

/// What a loader has to know about the object.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Image {
    pub segments: Vec<Segment>,
    /// Total size in bytes.
    pub size: u64,
    /// Words that hold an address: their place, and the address from the object's begin.
    relative: Vec<(u64, u64)>,
    /// Words that hold an offset in the thread-local memory.
    thread_local: Vec<(u64, u64)>,
    tls: (u64, u64),
    start: u64,
    parameters_at: u64,
    /// What is needed to attach to a running process; not on every processor.
    pub attach: Option<Attach>,
}

/// What loads it into a running process (`object/attach.h`): places from the object's begin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Attach {
    /// Code for a stopped thread ([`crate::piece`]).
    pub piece: Vec<u8>,
    /// The function that prepares the jumps.
    pub begin: u64,
    /// `struct attached`.
    pub account: u64,
    /// A word that is 0 as long as no code of the object has run.
    pub began: u64,
    /// The stubs that replace return addresses, and the table of those that they replace.
    pub stubs: (u64, u64),
}

impl Image {
    /// Parses the object's file. `None` if it cannot be loaded like this.
    pub fn parse(file: &[u8]) -> Option<Self> {
        let header = object::elf::FileHeader64::<LE>::parse(file).ok()?;
        let mut image = Self::default();
        for p in header.program_headers(LE, file).ok()? {
            let (address, size) = (p.p_vaddr.get(LE), p.p_memsz.get(LE));
            match p.p_type.get(LE) {
                PT_LOAD => {
                    let flags = p.p_flags.get(LE).0;
                    // PF_X, PF_W, PF_R
                    let protection = u64::from(flags >> 2 & 1 | flags & 2 | (flags & 1) << 2);
                    let (offset, file_size) = (p.p_offset.get(LE), p.p_filesz.get(LE));
                    image.segments.push(Segment { address, offset, file_size, size, protection });
                    image.size = image.size.max((address + size).next_multiple_of(PAGE_BYTES));
                }
                PT_TLS => image.tls = (size, p.p_align.get(LE).max(1)),
                PT_INTERP => return None,
                _ => {}
            }
        }
        let (relative, thread_local) = match header.e_machine.get(LE) {
            object::elf::EM_X86_64 => (object::elf::R_X86_64_RELATIVE, object::elf::R_X86_64_TPOFF64),
            object::elf::EM_AARCH64 => (object::elf::R_AARCH64_RELATIVE, object::elf::R_AARCH64_TLS_TPREL),
            _ => return None,
        };
        let sections = header.sections(LE, file).ok()?;
        for section in sections.iter() {
            let Some((relocations, _)) = section.rela(LE, file).ok()? else { continue };
            for r in relocations {
                let (at, addend) = (r.r_offset.get(LE), r.r_addend(LE).cast_unsigned());
                match r.r_type(LE, false) {
                    kind if kind == relative => image.relative.push((at, addend)),
                    kind if kind == thread_local && r.r_sym(LE, false) == 0 => image.thread_local.push((at, addend)),
                    _ => return None,
                }
            }
        }
        let symbols = sections.symbols(LE, file, object::elf::SHT_SYMTAB).ok()?;
        let find = |wanted: &str| {
            let is_it =
                |s: &&object::elf::Sym64<LE>| s.name(LE, symbols.strings()).is_ok_and(|name| name == wanted.as_bytes());
            symbols.iter().find(is_it).map(|s| s.st_value.get(LE))
        };
        (image.start, image.parameters_at) = (find(START_SYMBOL)?, find(PARAMETERS_SYMBOL)?);
        if let [Some(from), Some(to), Some(begin), Some(account), Some(began), Some(stubs), Some(originals)] =
            ATTACH_SYMBOLS.map(find)
        {
            let holds = |s: &&Segment| s.address <= from && from <= to && to <= s.address + s.file_size;
            let code = image.segments.iter().find(holds)?;
            let at = |address: u64| usize::try_from(address - code.address + code.offset).ok();
            let (piece, stubs) = (file.get(at(from)?..at(to)?)?.to_vec(), (stubs, originals));
            image.attach = Some(Attach { piece, begin, account, began, stubs });
        }
        Some(image)
    }

    /// Returns the object's entry point in a program into which it is implanted, when mapped at `base`.
    pub fn start(&self, base: u64) -> u64 {
        base + self.start
    }

    /// Returns what is to be written into it: addresses, with words of 8 bytes. `tls`: the offset from the thread pointer to its
    /// thread-local memory.
    pub fn relocated_words(&self, base: u64, tls: i64) -> Vec<(u64, u64)> {
        let relative = self.relative.iter().map(|(at, to)| (base + at, base.wrapping_add(*to)));
        let local = self.thread_local.iter().map(|(at, to)| (base + at, to.wrapping_add(tls.cast_unsigned())));
        relative.chain(local).collect()
    }

    /// Returns `fathom_implant` of `object/static.h`: its address and bytes. `directory` ends in a slash.
    pub fn parameters(&self, base: u64, entry: u64, bias: u64, directory: &[u8]) -> (u64, Vec<u8>) {
        (base + self.parameters_at, [&entry.to_le_bytes()[..], &bias.to_le_bytes(), directory, &[0]].concat())
    }

    /// Returns the size and alignment of its thread-local memory.
    pub fn tls(&self) -> (u64, u64) {
        self.tls
    }
}

/// Symbols of `object/static.h`.
const START_SYMBOL: &str = "fathom_start_implanted";
const PARAMETERS_SYMBOL: &str = "fathom_implant";
/// Symbols of `object/attach.h`.
const ATTACH_SYMBOLS: [&str; 7] = [
    "fathom_piece",
    "fathom_piece_end",
    "fathom_begin_attached",
    "fathom_attached",
    "fathom_headers",
    "fathom_returns",
    "fathom_originals",
];

/// How a program's thread-local memory makes room for the object's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// Offset of the changed header in the program's header table.
    pub header_at: usize,
    /// Size in bytes of its new image: a multiple of its alignment. The object's part is first, and zero.
    pub size: u64,
    /// Source address (in the program's own addresses), size and destination offset for copying the program's part into the
    /// image.
    pub own: (u64, u64, u64),
    align: u64,
    file_size: u64,
    offset: i64,
}

/// The side of the thread pointer on which a program's thread-local memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsSide {
    /// Below, where it ends: x86-64.
    Below,
    /// Above, after two words of the C library's: aarch64.
    Above,
}

impl TlsSide {
    /// That of this processor.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Self::Above } else { Self::Below };
}

/// Bytes between the thread pointer and the memory above it.
const ABOVE_POINTER_BYTES: u64 = 16;

/// Why the object cannot be loaded into a program: a property of its file or memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageError {
    /// Its program headers are truncated.
    Headers,
    /// It has a loader, which should do this.
    Loader,
    /// Its thread-local memory has a layout that no linker produces.
    Layout,
    /// It has no thread-local memory, and no header that could be used for it.
    NoThreadLocal,
    Relocations,
    /// It has more relocations than the limit.
    ManyRelocations,
    /// Relocations of its thread-local memory are of another kind, or cross its boundary.
    UnusualRelocations,
}

impl std::fmt::Display for ImageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Headers => "its program headers cannot be read",
            Self::Loader => "it has a loader",
            Self::Layout => "its thread-local memory has an unusual layout",
            Self::NoThreadLocal => "it has no thread-local memory",
            Self::Relocations => "its relocations cannot be read",
            Self::ManyRelocations => "it has too many relocations",
            Self::UnusualRelocations => "its thread-local memory has unusual relocations",
        })
    }
}

impl std::error::Error for ImageError {}

impl Tls {
    /// Extends the memory of a program with this header table. `spare`: its libc does not use the header for the stack
    /// (musl).
    pub fn extend(headers: &[u8], (size, align): (u64, u64), side: TlsSide, spare: bool) -> Result<Self, ImageError> {
        let mut stack = None;
        for (n, bytes) in headers.chunks_exact(PROGRAM_HEADER_BYTES).enumerate() {
            let Ok((p, _)) = object::pod::from_bytes::<ProgramHeader64<LE>>(bytes) else {
                return Err(ImageError::Headers);
            };
            match p.p_type.get(LE) {
                PT_INTERP => return Err(ImageError::Loader),
                PT_GNU_STACK if p.p_memsz.get(LE) == 0 => stack = Some(n * PROGRAM_HEADER_BYTES),
                PT_TLS => {
                    let (address, filled, used) = (p.p_vaddr.get(LE), p.p_filesz.get(LE), p.p_memsz.get(LE));
                    let own_align = p.p_align.get(LE).max(1);
                    let usual = own_align.is_power_of_two() && own_align <= PAGE_BYTES && address % own_align == 0;
                    if !usual || used > TLS_BYTES_MAX || filled > used || address.checked_add(used).is_none() {
                        return Err(ImageError::Layout);
                    }
                    if side == TlsSide::Above {
                        return Self::above(
                            (n * PROGRAM_HEADER_BYTES, address, filled, used, own_align),
                            (size, align),
                        );
                    }
                    // The program's code relies on this: the distance from the thread pointer down to its first byte.
                    let depth = used.next_multiple_of(own_align);
                    let align = align.max(own_align);
                    let size = (depth + size).next_multiple_of(align);
                    let at = size - depth;
                    return Ok(Self {
                        header_at: n * PROGRAM_HEADER_BYTES,
                        size,
                        own: (address, filled, at),
                        align,
                        file_size: at + filled,
                        offset: -size.cast_signed(),
                    });
                }
                _ => {}
            }
        }
        let header_at = stack.filter(|_| spare).ok_or(ImageError::NoThreadLocal)?;
        if side == TlsSide::Above {
            return Self::above((header_at, 0, 0, 0, 1), (size, align));
        }
        let size = size.next_multiple_of(align);
        Ok(Self { header_at, size, own: (0, 0, 0), align, file_size: 0, offset: -size.cast_signed() })
    }

    /// Places it after the program's own. The program's code relies on where its own begins, which its alignment decides.
    fn above(
        (header_at, address, filled, used, own_align): (usize, u64, u64, u64, u64),
        (size, align): (u64, u64),
    ) -> Result<Self, ImageError> {
        let align = align.max(own_align);
        let begin = ABOVE_POINTER_BYTES.next_multiple_of(own_align);
        if begin != ABOVE_POINTER_BYTES.next_multiple_of(align) {
            return Err(ImageError::Layout);
        }
        let at = used.next_multiple_of(align);
        let offset = (begin + at).cast_signed();
        Ok(Self { header_at, size: at + size, own: (address, filled, 0), align, file_size: filled, offset })
    }

    /// Returns the offset from the thread pointer to the object's part.
    pub fn offset(&self) -> i64 {
        self.offset
    }

    /// Returns the changed header, whose image is at `address`, in the program's own addresses.
    pub fn header(&self, address: u64) -> Vec<u8> {
        let word = |value: u64| U64::new(LE, value);
        let header = ProgramHeader64::<LE> {
            p_type: U32::new(LE, PT_TLS),
            p_flags: U32::new(LE, PF_R),
            p_offset: word(0),
            p_vaddr: word(address),
            p_paddr: word(address),
            p_filesz: word(self.file_size),
            p_memsz: word(self.size),
            p_align: word(self.align),
        };
        object::pod::bytes_of(&header).to_vec()
    }
}

/// Returns the address and size of a program's dynamic section according to its headers; `None`: it has none.
pub fn dynamic_section(headers: &[u8]) -> Option<(u64, u64)> {
    let all = headers
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .filter_map(|p| object::pod::from_bytes::<ProgramHeader64<LE>>(p).ok());
    let found = all.map(|(p, _)| p).find(|p| p.p_type.get(LE) == PT_DYNAMIC)?;
    let size = found.p_memsz.get(LE);
    (size <= 1 << 16).then(|| (found.p_vaddr.get(LE), size))
}

/// Returns the words in a range of a program's memory that it will relocate itself: if the range is copied before that, the copy must
/// be relocated by the caller.
///
/// `dynamic` is its dynamic section (empty: it has none), and `read` returns its memory by its own addresses. For each word, returns
/// the offset in the range and the value to which the program's bias is added (`None`: the value there).
pub fn relocations(
    dynamic: &[u8],
    range: std::ops::Range<u64>,
    read: impl Fn(u64, u64) -> Option<Vec<u8>>,
) -> Result<Vec<(u64, Option<u64>)>, ImageError> {
    let word = |bytes: &[u8], at: usize| {
        bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
    };
    let value = |tag: u64| dynamic.chunks_exact(16).find(|d| word(d, 0) == tag).map_or(0, |d| word(d, 8));
    let table = |at: u64, size: u64| match (value(at), value(size)) {
        (_, 0) => Ok(Vec::new()),
        (address, size) if size <= RELOCATION_TABLE_BYTES_MAX => read(address, size).ok_or(ImageError::Relocations),
        _ => Err(ImageError::ManyRelocations),
    };
    let mut all = Vec::new();
    // Words, some of them across the range's boundary.
    let end = |at: u64| at.saturating_add(8);
    let concerned = |at: u64| end(at) > range.start && at < range.end;
    let within = |at: u64| at >= range.start && end(at) <= range.end;
    for r in [table(DT_RELA, DT_RELASZ)?, table(DT_JMPREL, DT_PLTRELSZ)?].iter().flat_map(|t| t.chunks_exact(24)) {
        let at = word(r, 0);
        match word(r, 8) {
            _ if !concerned(at) => {}
            R_RELATIVE if within(at) => all.push((at - range.start, Some(word(r, 16)))),
            _ => return Err(ImageError::UnusualRelocations),
        }
    }
    let mut next = 0u64;
    for entry in table(DT_RELR, DT_RELRSZ)?.chunks_exact(8).map(|bytes| word(bytes, 0)) {
        let places: Vec<u64> = if entry & 1 == 0 {
            next = entry.wrapping_add(8);
            vec![entry]
        } else {
            let bits = (1..64).filter(|bit| entry >> bit & 1 == 1);
            let places = bits.map(|bit| next.wrapping_add(8 * (bit - 1))).collect();
            next = next.wrapping_add(8 * 63);
            places
        };
        for at in places.into_iter().filter(|at| concerned(*at)) {
            if !within(at) {
                return Err(ImageError::UnusualRelocations);
            }
            all.push((at - range.start, None));
        }
    }
    Ok(all)
}

const RELOCATION_TABLE_BYTES_MAX: u64 = 1 << 26;
const R_RELATIVE: u64 = if cfg!(target_arch = "aarch64") { 1027 } else { 8 };
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTRELSZ: u64 = 2;
const DT_JMPREL: u64 = 23;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relocations_of_thread_local_memory_are_found() {
        let bytes = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let dynamic = bytes(&[DT_RELA, 0x1000, DT_RELASZ, 72, DT_RELR, 0x2000, DT_RELRSZ, 16, 0, 0]);
        let read = |third: [u64; 3]| {
            move |at: u64, size: u64| match (at, size) {
                (0x1000, 72) => Some(bytes(&[&[0x5000, R_RELATIVE, 7][..], &[0x5018, R_RELATIVE, 9], &third].concat())),
                // A word, and of the 63 words after it the second and the third.
                (0x2000, 16) => Some(bytes(&[0x5000, 0b1101])),
                _ => None,
            }
        };
        let found = |third| relocations(&dynamic, 0x5010..0x5020, read(third));
        assert_eq!(found([0x6000, 1, 0]), Ok(vec![(8, Some(9)), (0, None), (8, None)]));
        assert!(found([0x5010, 37, 0]).is_err(), "of another kind");
        assert!(found([0x501c, R_RELATIVE, 0]).is_err(), "across the border");
        assert_eq!(relocations(&[], 0..100, |_, _| None), Ok(Vec::new()));
    }

    #[test]
    fn object_can_be_implanted() {
        if crate::OBJECT.is_empty() {
            println!("SKIP object_can_be_implanted: there is no object for this processor");
            return;
        }
        let image = Image::parse(crate::OBJECT).unwrap();
        assert!(image.segments.len() >= 3 && image.size <= 5 << 15);
        let code = image.segments.iter().find(|s| s.protection == 5).unwrap();
        assert!((code.address..code.address + code.size).contains(&image.start(0)));
        if cfg!(target_arch = "x86_64") {
            let attach = image.attach.as_ref().unwrap();
            assert!(attach.piece.starts_with(&[0xfc]) && attach.piece.ends_with(&[0xc2, 128, 0]), "{attach:x?}");
        }
        // One for the constructor, one for the thread-local memory.
        assert!(!image.relative.is_empty() && image.thread_local.len() == 1);
        assert!(image.tls().0 > 1000 && image.tls().1 <= 16);
        let (at, bytes) = image.parameters(0x10_0000, 1, 2, b"/dev/shm/x/");
        let (at, end) = (at - 0x10_0000, at - 0x10_0000 + bytes.len() as u64);
        let data = image.segments.iter().filter(|s| s.protection == 3);
        assert!(data.into_iter().any(|data| at >= data.address && end <= data.address + data.size));
    }

    fn header(kind: object::elf::ProgramType, address: u64, filled: u64, size: u64, align: u64) -> Vec<u8> {
        let mut tls = Tls { header_at: 0, size, own: (0, 0, 0), align, file_size: filled, offset: 0 }.header(address);
        tls[..4].copy_from_slice(&kind.0.to_le_bytes());
        tls
    }

    #[test]
    fn own_variables_keep_their_place() {
        // 0x28 bytes, 0x10 of them initialised, aligned to 0x20: the first is 0x40 below the thread pointer.
        let table = [header(PT_LOAD, 0, 0, 0, 1), header(PT_TLS, 0x4000, 0x10, 0x28, 0x20)].concat();
        let tls = Tls::extend(&table, (0x6c0, 8), TlsSide::Below, false).unwrap();
        assert_eq!((tls.header_at, tls.size, tls.own), (PROGRAM_HEADER_BYTES, 0x700, (0x4000, 0x10, 0x6c0)));
        assert_eq!(tls.offset(), -0x700);
        assert_eq!(tls.header(0x9000), header(PT_TLS, 0x9000, 0x6d0, 0x700, 0x20));
        let alone = header(PT_GNU_STACK, 0, 0, 0, 16);
        assert!(Tls::extend(&alone, (0x6c0, 8), TlsSide::Below, false).is_err(), "glibc reads it");
        assert_eq!(Tls::extend(&alone, (0x6c4, 8), TlsSide::Below, true).unwrap().size, 0x6c8);
        for refused in [header(PT_TLS, 0x4004, 0, 8, 8), header(PT_TLS, 0, 9, 8, 8), header(PT_TLS, 0, 0, 8, 3)] {
            assert!(Tls::extend(&refused, (0x6c0, 8), TlsSide::Below, true).is_err());
            assert!(Tls::extend(&refused, (0x6c0, 8), TlsSide::Above, true).is_err());
        }
    }

    #[test]
    fn object_is_behind_own_variables_above_pointer() {
        // 0x28 bytes aligned to 0x20: they begin 0x20 above the thread pointer, and the object's at the next multiple.
        let table = header(PT_TLS, 0x4000, 0x10, 0x28, 0x20);
        let tls = Tls::extend(&table, (0x6c0, 8), TlsSide::Above, false).unwrap();
        assert_eq!((tls.size, tls.own, tls.offset()), (0x40 + 0x6c0, (0x4000, 0x10, 0), 0x20 + 0x40));
        assert_eq!(tls.header(0x9000), header(PT_TLS, 0x9000, 0x10, 0x700, 0x20));
        // 5 bytes aligned to 4: 16 above, whether aligned to 4 or to 8.
        let tls = Tls::extend(&header(PT_TLS, 0x4004, 0, 5, 4), (0x6c0, 8), TlsSide::Above, false).unwrap();
        assert_eq!((tls.size, tls.offset()), (8 + 0x6c0, 16 + 8));
        assert!(
            Tls::extend(&header(PT_TLS, 0x4000, 0, 5, 4), (0x6c0, 64), TlsSide::Above, false).is_err(),
            "they would move"
        );
        let alone = Tls::extend(&header(PT_GNU_STACK, 0, 0, 0, 16), (0x6c0, 8), TlsSide::Above, true).unwrap();
        assert_eq!((alone.size, alone.offset()), (0x6c0, 16));
    }
}
