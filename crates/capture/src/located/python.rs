//! Functions and lines of CPython, read from the memory of a stopped thread.
//!
//! Where the members of a code object are is read from the interpreter itself (`PyCode_Type.tp_members`). The layouts of its threads and
//! frames are those of CPython's headers (`Include/internal/pycore_frame.h`, `Include/cpython/pystate.h`) of 3.11 to 3.14; of any other
//! version nothing is claimed.
//!
//! **Uncertain:** only 3.11 has been run here. Names with letters beyond ASCII are not read; such a function is left out.

use super::memory::Stopped;
use crate::stacks::code::open_regular;
use model::place::Frame;
use object::read::elf::ElfFile64;
use object::{Endianness, Object as _, ObjectSegment as _, ObjectSymbol as _, ReadCache};
use std::collections::HashMap;
use std::path::Path;

/// Deeper stacks are cut.
const FRAMES_MAX: usize = 64;
/// Maximum number of threads, and of interpreters, of a process that are searched.
const THREADS_MAX: usize = 4096;
const INTERPRETERS_MAX: usize = 64;
/// Part of an interpreter's state that is searched for its first thread.
const INTERPRETER_BYTES: usize = 32 << 10;
/// A longer table of lines is damaged.
const LINE_TABLE_BYTES_MAX: u64 = 1 << 20;

/// Members of a thread's state that all versions have in the same places.
const THREAD_NEXT: u64 = 8;
const THREAD_INTERPRETER: u64 = 16;

/// The layout of a version.
#[derive(Debug, Clone, Copy)]
struct Layout {
    /// In a thread's state: its `pthread_self`, and its current frame, or what leads to it.
    thread_id: u64,
    thread_frame: u64,
    /// In what leads to the frame (`_PyCFrame`), if anything does.
    indirect: Option<u64>,
    /// In a frame.
    code: u64,
    previous: u64,
    instruction: u64,
    /// The frame's owner, and the owner that stands for a call from C (3.12).
    owner: Option<(u64, u8)>,
    /// Where the text of a string begins.
    text: u64,
}

fn layout(minor: u8) -> Option<Layout> {
    let of_312 = Layout {
        thread_id: 136,
        thread_frame: 56,
        indirect: Some(0),
        code: 0,
        previous: 8,
        instruction: 56,
        owner: Some((70, 3)),
        text: 40,
    };
    match minor {
        11 => {
            Some(Layout { thread_id: 152, indirect: Some(8), code: 32, previous: 48, owner: None, text: 48, ..of_312 })
        }
        12 => Some(of_312),
        13 => Some(Layout { thread_id: 152, thread_frame: 72, indirect: None, ..of_312 }),
        14 => Some(Layout { thread_id: 152, thread_frame: 72, indirect: None, owner: Some((74, 3)), ..of_312 }),
        _ => None,
    }
}

/// Offsets in a code object.
#[derive(Debug, Clone, Copy)]
struct CodeMembers {
    file: u64,
    name: u64,
    first_line: u64,
    lines: u64,
    /// Where the instructions begin: the size of the rest.
    instructions: u64,
}

/// An interpreter in a process.
struct Interpreter {
    layout: Layout,
    code: CodeMembers,
    /// Address of the pointer to its first interpreter.
    first: u64,
}

#[derive(Default)]
pub struct Interpreters(HashMap<u32, Option<Interpreter>>);

impl Interpreters {
    pub fn forget(&mut self, tgid: u32) {
        self.0.remove(&tgid);
    }

    /// Returns the functions of a thread, the innermost first; none if it runs no Python that is known.
    pub fn frames(&mut self, tgid: u32, stopped: &Stopped) -> Vec<Frame> {
        if let Some(found) = self.0.get(&tgid) {
            return found.as_ref().and_then(|one| one.frames(stopped)).unwrap_or_default();
        }
        let found = Interpreter::find(tgid, stopped);
        let frames = found.as_ref().and_then(|one| one.frames(stopped)).unwrap_or_default();
        // A program that embeds it may load it later.
        if found.is_some() {
            self.0.insert(tgid, found);
        }
        frames
    }
}

/// Addresses of an interpreter's symbols.
struct Symbols {
    runtime: u64,
    code_type: u64,
    version: u64,
}

fn symbols(tgid: u32) -> Option<Symbols> {
    let maps = std::fs::read_to_string(format!("/proc/{tgid}/maps")).ok()?;
    let mut seen = Vec::new();
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (Some(range), Some(path)) = (words.next(), words.nth(4)) else { continue };
        let name = path.rsplit('/').next().unwrap_or(path);
        if seen.contains(&path) || !name.contains("python") {
            continue;
        }
        seen.push(path);
        let base = range.split_once('-').and_then(|(from, _)| u64::from_str_radix(from, 16).ok());
        let found = base.and_then(|base| {
            let there = format!("/proc/{tgid}/root{path}");
            symbols_in(Path::new(&there), base)
        });
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Reads them from a file whose first mapping is at `base`.
fn symbols_in(path: &Path, base: u64) -> Option<Symbols> {
    let cache = ReadCache::new(open_regular(path)?);
    let elf = ElfFile64::<Endianness, _>::parse(&cache).ok()?;
    let first = elf.segments().map(|segment| segment.address()).min()?;
    let bias = base.checked_sub(first & !0xfff)?;
    let address = |name: &str| {
        let symbol = elf.dynamic_symbols().chain(elf.symbols()).find(|symbol| symbol.name() == Ok(name))?;
        symbol.address().checked_add(bias)
    };
    Some(Symbols {
        runtime: address("_PyRuntime")?,
        code_type: address("PyCode_Type")?,
        version: address("Py_Version")?,
    })
}

/// Offset of `tp_basicsize` and `tp_members` in a type; size of a member, and the offset of its offset.
const TYPE_SIZE: u64 = 32;
const TYPE_MEMBERS: u64 = 240;
const MEMBER_BYTES: u64 = 40;
const MEMBER_OFFSET: u64 = 16;
const MEMBERS_MAX: u64 = 64;

impl CodeMembers {
    fn read(stopped: &Stopped, code_type: u64) -> Option<Self> {
        let members = stopped.word(code_type + TYPE_MEMBERS)?;
        let mut offsets: HashMap<String, u64> = HashMap::new();
        for at in (0..MEMBERS_MAX).map(|i| members + i * MEMBER_BYTES) {
            let name = stopped.word(at).filter(|name| *name != 0).and_then(|name| stopped.c_text(name));
            let Some(name) = name else { break };
            offsets.insert(name, stopped.word(at + MEMBER_OFFSET)?);
        }
        let of = |name: &str| offsets.get(name).copied();
        Some(Self {
            file: of("co_filename")?,
            name: of("co_qualname").or_else(|| of("co_name"))?,
            first_line: of("co_firstlineno")?,
            lines: of("co_linetable")?,
            instructions: stopped.word(code_type + TYPE_SIZE).filter(|size| *size < 4096)?,
        })
    }
}

impl Interpreter {
    fn find(tgid: u32, stopped: &Stopped) -> Option<Self> {
        let symbols = symbols(tgid)?;
        let version = stopped.half(symbols.version)?;
        let (major, minor) = (version >> 24, (version >> 16 & 0xff) as u8);
        let layout = layout(minor).filter(|_| major == 3)?;
        // From 3.13 on the runtime describes itself (`_Py_DebugOffsets`): cookie, version, threading, size, finalizing, head.
        let head = if minor >= 13 { stopped.word(symbols.runtime + 40).filter(|at| *at < 1 << 20)? } else { 40 };
        let code = CodeMembers::read(stopped, symbols.code_type)?;
        Some(Self { layout, code, first: symbols.runtime + head })
    }

    /// The state of the stopped thread: that with its `pthread_self`.
    fn thread(&self, stopped: &Stopped) -> Option<u64> {
        let mut interpreter = stopped.word(self.first)?;
        for _ in 0..INTERPRETERS_MAX {
            if interpreter == 0 {
                return None;
            }
            let state = stopped.bytes(interpreter, INTERPRETER_BYTES);
            let words = state.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
            // The first thread is one that leads back to its interpreter.
            let is_thread = |at: &u64| *at > 0xffff && stopped.word(*at + THREAD_INTERPRETER) == Some(interpreter);
            let mut next = words.clone().find(is_thread).unwrap_or(0);
            for _ in 0..THREADS_MAX {
                if next == 0 {
                    break;
                }
                if stopped.word(next + self.layout.thread_id) == Some(stopped.thread_pointer) {
                    return Some(next);
                }
                next = stopped.word(next + THREAD_NEXT).unwrap_or(0);
            }
            // In 3.11 the next interpreter is first; later versions have it elsewhere, and a second one is rare.
            interpreter = if self.layout.owner.is_none() { stopped.word(interpreter)? } else { 0 };
        }
        None
    }

    fn frames(&self, stopped: &Stopped) -> Option<Vec<Frame>> {
        let layout = &self.layout;
        let mut at = stopped.word(self.thread(stopped)? + layout.thread_frame)?;
        if let Some(offset) = layout.indirect {
            at = stopped.word(at + offset)?;
        }
        let mut frames = Vec::new();
        for _ in 0..FRAMES_MAX {
            if at == 0 {
                break;
            }
            let from_c = layout.owner.is_some_and(|(offset, c)| stopped.byte(at + offset) == Some(c));
            if !from_c {
                frames.extend(self.frame(stopped, at));
            }
            at = stopped.word(at + layout.previous)?;
        }
        Some(frames)
    }

    fn frame(&self, stopped: &Stopped, at: u64) -> Option<Frame> {
        // From 3.14 on the lowest bits of a reference say how it is counted.
        let code = stopped.word(at + self.layout.code)? & !7;
        let instruction = stopped.word(at + self.layout.instruction)?.checked_sub(code + self.code.instructions)?;
        let text = |member: u64| {
            let string = stopped.word(code + member)?;
            stopped.text(string + self.layout.text, stopped.word(string + 16)?)
        };
        let first = stopped.half(code + self.code.first_line)?;
        let table = stopped.word(code + self.code.lines)?;
        let length = stopped.word(table + 16).filter(|length| *length < LINE_TABLE_BYTES_MAX)?;
        let table = stopped.bytes(table + 32, length as usize);
        let file = text(self.code.file)?;
        Some(Frame {
            function: text(self.code.name)?,
            code: file.clone(),
            file,
            line: line_of(&table, first, instruction / 2),
        })
    }
}

/// Decodes a table of lines (CPython's `Objects/locations.md`): the line of an instruction, by its index.
fn line_of(table: &[u8], first: u32, instruction: u64) -> Option<u32> {
    let mut bytes = table.iter().copied();
    let (mut line, mut reached) = (i64::from(first), 0);
    while let Some(start) = bytes.next() {
        // Each entry's first byte is marked.
        if start & 0x80 == 0 {
            return None;
        }
        let mut known = true;
        match start >> 3 & 15 {
            15 => known = false,
            14 => {
                line += signed(&mut bytes)?;
                for _ in 0..3 {
                    unsigned(&mut bytes)?;
                }
            }
            13 => line += signed(&mut bytes)?,
            code @ 10..=12 => {
                line += i64::from(code) - 10;
                bytes.nth(1)?;
            }
            _ => drop(bytes.next()?),
        }
        reached += u64::from(start & 7) + 1;
        if reached > instruction {
            return known.then(|| u32::try_from(line).ok()).flatten();
        }
    }
    None
}

fn unsigned(bytes: &mut impl Iterator<Item = u8>) -> Option<u64> {
    let mut value = 0;
    for shift in (0..60).step_by(6) {
        let byte = bytes.next()?;
        value |= u64::from(byte & 63) << shift;
        if byte & 64 == 0 {
            return Some(value);
        }
    }
    None
}

fn signed(bytes: &mut impl Iterator<Item = u8>) -> Option<i64> {
    let value = unsigned(bytes)?;
    let size = i64::try_from(value >> 1).ok()?;
    Some(if value & 1 == 1 { -size } else { size })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_table_gives_the_line_of_each_instruction() {
        // A short entry (two units), one line further (one unit), no line (one unit), 70 lines back by the long form.
        let table = [0x80 | 1, 0x12, 0x80 | 11 << 3, 0, 4, 0x80 | 15 << 3, 0x80 | 13 << 3, 0x40 | 13, 2];
        let lines: Vec<_> = (0..6).map(|at| line_of(&table, 100, at)).collect();
        assert_eq!(lines, [Some(100), Some(100), Some(101), None, Some(31), None]);
        assert_eq!(line_of(&[0x12], 1, 0), None, "no entry begins here");
    }
}
