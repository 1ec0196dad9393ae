//! Finding SQLite in programs, which are anybody's files.

use ::sqlite::DatabaseHeader;
use capture::sqlite::decode::{Machine, text_offset};
use capture::sqlite::{FindError, find_with_debug_files};
use std::io::Write;
use std::path::Path;

/// `sqlite3_sql` as Debian's compilers made it for x86_64: the text at 0xf8.
const X86_CODE: &[u8] = b"\x48\x85\xff\x74\x0b\x48\x8b\x87\xf8\0\0\0\xc3\x0f\x1f\0\x31\xc0\xc3";
/// With everything on the stack, and its protector, which makes both sides of a branch to follow.
const X86_STACK: &[u8] = b"\x55\x48\x89\xe5\x48\x83\xec\x10\x64\x48\x8b\x04\x25\x28\0\0\0\x48\x89\x45\xf8\x48\x85\xff\
    \x74\x1c\x48\x8b\x87\xf8\0\0\0\x64\x48\x8b\x0c\x25\x28\0\0\0\x48\x3b\x4d\xf8\x75\x17\x48\x83\xc4\x10\x5d\xc3\x31\xc0\
    \x64\x48\x8b\x0c\x25\x28\0\0\0\x48\x3b\x4d\xf8\x74\xe9\xe8\0\0\0\0";
/// The same question answered by clang for aarch64.
const ARM_CODE: &[u8] = b"\x40\0\0\xb4\0\x7c\x40\xf9\xc0\x03\x5f\xd6";

/// Headers of databases: 4,096 bytes a page with a journal, 65,536 with a WAL.
pub fn header_seeds() -> Vec<Vec<u8>> {
    let header = |fields: &[(usize, u8)]| {
        let mut bytes = [&b"SQLite format 3\0"[..], &[0; 84]].concat();
        fields.iter().for_each(|&(at, value)| bytes[at] = value);
        bytes
    };
    vec![
        header(&[(16, 0x10), (18, 1), (19, 1), (47, 4), (59, 1)]),
        header(&[(17, 1), (18, 2), (19, 2), (47, 1), (59, 3)]),
    ]
}

/// A header that is believed has a page size that SQLite could have made, and tells it.
pub fn check_header(bytes: &[u8]) {
    if let Some(header) = DatabaseHeader::parse(bytes) {
        assert!(header.page_size.is_power_of_two() && (512..=65_536).contains(&header.page_size));
        assert!(
            header.facts().iter().any(|(name, value)| *name == "page_size" && *value == header.page_size.to_string())
        );
    }
}

pub fn code_seeds() -> Vec<Vec<u8>> {
    [(b'x', X86_CODE), (b'x', X86_STACK), (b'a', ARM_CODE)].iter().map(|(m, code)| [&[*m], *code].concat()).collect()
}

/// The first byte chooses the machine.
pub fn check_code(bytes: &[u8]) {
    let Some((&machine, code)) = bytes.split_first() else { return };
    let machine = if machine == b'a' { Machine::Aarch64 } else { Machine::X86_64 };
    if let Some(offset) = text_offset(machine, code) {
        assert!(offset % 8 == 0 && offset < 4096, "{offset} is no place for a pointer");
    }
}

/// Where the only segment begins in memory; in the file it begins at 0.
const SEGMENT_ADDRESS: u64 = 0x40_0000;
const SOURCE_ID: &[u8] =
    b"SQLite format 3\x002022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f38a24\0";
const SYMBOL_NAMES: [&str; 5] =
    ["sqlite3_step", "sqlite3_sql", "sqlite3_finalize", "sqlite3_prepare_v2", "sqlite3_version"];

/// A small program with SQLite's names in `table` (a full table of symbols or a dynamic one), or with none.
fn make_program(table: Option<u32>) -> Vec<u8> {
    let sections =
        [("", 0), (".rodata", 1), (".symtab", table.unwrap_or(1)), (".strtab", 3), (".note.gnu.build-id", 7)];
    let names: String = SYMBOL_NAMES.iter().copied().chain(sections.map(|s| s.0)).flat_map(|n| ["\0", n]).collect();
    let names = (names + "\0").into_bytes();
    let place = |name: &str| {
        let whole = [&[0], name.as_bytes(), &[0]].concat();
        names.windows(whole.len()).position(|w| w == whole).map_or(0, |at| at as u32 + 1)
    };
    let code_at = 64 + 56;
    let text_at = code_at + X86_CODE.len();
    let (stamp_at, symbols_at) = (text_at + 8, text_at + 8 + SOURCE_ID.len());
    let mut symbols = vec![0; 24];
    for name in SYMBOL_NAMES {
        let at = if name == "sqlite3_version" { text_at } else { code_at } as u64;
        symbols.extend(place(name).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((SEGMENT_ADDRESS + at).to_le_bytes());
        symbols.extend((X86_CODE.len() as u64).to_le_bytes());
    }
    let note = [&[4, 0, 0, 0, 20, 0, 0, 0, 3, 0, 0, 0], b"GNU\0".as_slice(), &[0xab; 20]].concat();
    let (names_at, note_at) = (symbols_at + symbols.len(), symbols_at + symbols.len() + names.len());
    let headers_at = note_at + note.len();

    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x3e\0\x01\0\0\0".to_vec();
    [SEGMENT_ADDRESS + code_at as u64, 64, headers_at as u64].iter().for_each(|n| file.extend(n.to_le_bytes()));
    file.extend([0; 4]);
    [64_u16, 56, 1, 64, sections.len() as u16, 3].iter().for_each(|n| file.extend(n.to_le_bytes()));
    // One segment with everything, readable and executable.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let length = headers_at as u64;
    [0, SEGMENT_ADDRESS, SEGMENT_ADDRESS, length, length, 4096].iter().for_each(|n| file.extend(n.to_le_bytes()));
    [X86_CODE, b"3.40.1\0\0", SOURCE_ID, &symbols, &names, &note].iter().for_each(|part| file.extend_from_slice(part));
    let extents =
        [(0, 0), (stamp_at, SOURCE_ID.len()), (symbols_at, symbols.len()), (names_at, names.len()), (note_at, 36)];
    for ((name, kind), (at, size)) in sections.into_iter().zip(extents) {
        file.extend(place(name).to_le_bytes());
        file.extend(kind.to_le_bytes());
        [0, 0, at as u64, size as u64].iter().for_each(|n| file.extend(n.to_le_bytes()));
        // Its names are in section 3, its symbols 24 bytes each.
        [3_u32, 1].iter().for_each(|n| file.extend(n.to_le_bytes()));
        [1_u64, 24].iter().for_each(|n| file.extend(n.to_le_bytes()));
    }
    file
}

fn find_symbols(bytes: &[u8]) -> Result<capture::sqlite::SqliteSymbols, FindError> {
    let file = tempfile::NamedTempFile::new().and_then(|mut file| file.write_all(bytes).map(|()| file));
    match file {
        Ok(file) => find_with_debug_files(file.path(), Path::new("/no/debug/files/here")),
        Err(e) => panic!("no file could be made to look into: {e}"),
    }
}

pub fn program_seeds() -> Vec<Vec<u8>> {
    let all = vec![make_program(Some(2)), make_program(Some(11)), make_program(None)];
    // A seed that is refused at the door would test no more than the door.
    assert_eq!(
        find_symbols(&all[0]).map(|s| (s.step, s.sql_offset, s.version)),
        Ok((120, Some(0xf8), Some("3.40.1".into())))
    );
    assert!(find_symbols(&all[1]).is_ok() && matches!(find_symbols(&all[2]), Err(FindError::Stripped { .. })));
    all
}

/// What is said of a program is plausible, whatever the file claims.
pub fn check_program(bytes: &[u8]) {
    if let Ok(symbols) = find_symbols(bytes) {
        assert!(symbols.sql_offset.is_none_or(|at| at % 8 == 0 && at < 4096), "{symbols:?}");
        assert!(symbols.version.is_none_or(|v| v.starts_with("3.") && v.len() < 16));
    }
}

pub fn library_seeds() -> Vec<Vec<u8>> {
    let source = "2022-12-28 14:03:47 df5c253c0b3dd24916e4ec7cf77d3db5294cc9fd45ae7b9c5e82ad8197f3alt1";
    vec![format!("\x7fELF\0\01.2.13\0TEMP_STORE=3\0DEFAULT_SYNCHRONOUS=2\0{source}\03.40.1\0").into_bytes()]
}

/// What a library's file says of its SQLite is short, of one line, and harmless.
pub fn check_library(bytes: &[u8]) {
    if let Some(library) = ::sqlite::library::identify(bytes) {
        assert!(library.version.starts_with("3.") && library.source.len() <= 100);
        assert!(library.options.iter().all(|o| o.len() <= 64 && o.bytes().all(|b| b.is_ascii_graphic())));
    }
}
