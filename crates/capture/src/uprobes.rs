//! Probes on functions of programs: SQLite's, and those named by --op.
//!
//! They are attached to a file, hence to every process that maps it; the kernel side drops those that are not recorded.
//! What it must know of a file travels in the probe's cookie, so that no table is looked up.

use crate::error::chain;
use crate::probes::row;
use crate::request::Function;
use crate::sqlite::{Prepare, SqliteSymbols};
use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};
use model::Layer;
use model::table::Coverage;
use std::collections::HashSet;
use std::fs::{self, File};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Bit of the cookie: the call gives its SQL as UTF-16. As in `sqlite.bpf.c`.
const UTF16: u64 = 1 << 56;

/// Files whose SQLite is probed already, by device and inode: one library has many names.
#[derive(Debug, Default)]
pub struct Uprobes {
    files: HashSet<(u64, u64)>,
    links: Vec<UProbeLink>,
    /// Whether resets are watched everywhere.
    resets: bool,
    /// Those that are not watched yet.
    waiting: Vec<Reset>,
}

/// A `sqlite3_reset` whose probe is put in once it matters. The file is kept open: its process may be gone by then, and with
/// it the path that it was found by.
#[derive(Debug)]
struct Reset {
    file: File,
    probe: String,
    offset: u64,
    cookie: u64,
}

/// What the coverage says of such a one.
const WAITING: &str = "put in when statements that are left between their rows end late by 1 ms in all";

impl Uprobes {
    /// Probes the SQLite in a file. `None` if that file is probed already.
    pub fn attach_sqlite(&mut self, ebpf: &mut Ebpf, path: &Path, symbols: &SqliteSymbols) -> Option<Vec<Coverage>> {
        // A file that cannot be looked at will not be attached to either; the rows say why.
        let identity = fs::metadata(path).map(|m| (m.dev(), m.ino()));
        if identity.is_ok_and(|i| !self.files.insert(i)) {
            return None;
        }
        let text = offset_cookie(symbols.sql_offset);
        let name = |function: &str| format!("{}:{function}", path.display());
        let mut rows = Vec::new();
        let links = &mut self.links;
        // Ends before begins, so that what begins is seen to end.
        let mut put = |function: &str, programs: &[&str], offset: u64, cookie: u64| {
            let outcome = programs.iter().try_for_each(|p| {
                links.push(attach_at(ebpf, p, path, UProbeAttachLocation::AbsoluteOffset(offset), cookie)?);
                Ok(())
            });
            rows.push(row(Layer::Database, &name(function), outcome.map(|()| format!("uprobe at {offset:#x}"))));
        };
        if let Some(offset) = symbols.finalize {
            put("sqlite3_finalize", &["sqlite_finalize"], offset, text);
        }
        // A trap in each execution, of use only to statements that are given up between their rows.
        let waits = File::open(path).ok().filter(|_| !self.resets && symbols.running.is_some());
        let waiting = match (symbols.reset, waits) {
            (Some(offset), Some(file)) => Some(Reset { file, probe: name("sqlite3_reset"), offset, cookie: text }),
            (Some(offset), None) => {
                put("sqlite3_reset", &["sqlite_reset"], offset, text);
                None
            }
            (None, _) => None,
        };
        put("sqlite3_step", &["sqlite_step_return", "sqlite_step"], symbols.step, step_cookie(symbols));
        for prepare in &symbols.prepares {
            let cookie = prepare_cookie(prepare, symbols.sql_offset);
            put(prepare.name, &["sqlite_prepare_return", "sqlite_prepare"], prepare.offset, cookie);
        }
        if let Some(reset) = waiting {
            // Of no use if the steps are not seen.
            let steps = rows.iter().any(|r| r.attached && r.probe == name("sqlite3_step"));
            let how = if steps { Ok(WAITING.into()) } else { Err("sqlite3_step is not watched".into()) };
            rows.push(row(Layer::Database, &reset.probe, how));
            self.waiting.extend(steps.then_some(reset));
        }
        rows.extend(
            symbols
                .blind_to()
                .into_iter()
                .map(|what| row(Layer::Database, &path.display().to_string(), Err(format!("blind to {what}")))),
        );
        Some(rows)
    }

    /// Watches all resets from now on; returns what became of those that were not watched.
    pub fn watch_resets(&mut self, ebpf: &mut Ebpf) -> Vec<Coverage> {
        self.resets = true;
        let mut rows = Vec::new();
        for reset in self.waiting.drain(..) {
            let path = format!("/proc/self/fd/{}", reset.file.as_raw_fd());
            let place = UProbeAttachLocation::AbsoluteOffset(reset.offset);
            let outcome = attach_at(ebpf, "sqlite_reset", Path::new(&path), place, reset.cookie);
            let how = outcome.map(|link| {
                self.links.push(link);
                format!("uprobe at {:#x}, {WAITING}", reset.offset)
            });
            rows.push(row(Layer::Database, &reset.probe, how));
        }
        rows
    }

    /// Whether resets are watched everywhere.
    pub fn watches_resets(&self) -> bool {
        self.resets
    }

    /// Makes a function's executions operations; `nth` is its place in the request.
    pub fn attach_function(&mut self, ebpf: &mut Ebpf, nth: u64, function: &Function) -> Coverage {
        let point = match function.offset {
            Some(offset) => UProbeAttachLocation::AbsoluteOffset(offset),
            None => UProbeAttachLocation::Symbol(&function.name),
        };
        let outcome = attach_at(ebpf, "function_return", &function.path, copy(&point), nth).and_then(|end| {
            self.links.push(end);
            self.links.push(attach_at(ebpf, "function_enter", &function.path, point, nth)?);
            Ok(())
        });
        let name = format!("{}:{}", function.path.display(), function.name);
        row(Layer::Database, &name, outcome.map(|()| "uprobe".into()))
    }
}

impl Uprobes {
    /// Takes all probes off. The kernel waits for each until no CPU can be inside it (uprobe_unregister_sync). Each has a
    /// thread, so that a kernel that can let them wait together does; Linux 6.18 has them wait one after the other, 77 ms each.
    pub fn detach(&mut self) {
        std::thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(move || drop(link));
            }
        });
    }
}

/// The program whose price is that of a row of [`Uprobes`]: the one at the function's begin.
pub fn program_of(probe: &str) -> Option<&'static str> {
    Some(match probe.rsplit_once(':')?.1 {
        "sqlite3_step" => "sqlite_step",
        "sqlite3_reset" => "sqlite_reset",
        "sqlite3_finalize" => "sqlite_finalize",
        name if name.starts_with("sqlite3") => "sqlite_prepare",
        _ => "function_enter",
    })
}

fn copy<'a>(point: &UProbeAttachLocation<'a>) -> UProbeAttachLocation<'a> {
    match point {
        UProbeAttachLocation::Symbol(s) => UProbeAttachLocation::Symbol(s),
        UProbeAttachLocation::SymbolOffset(s, n) => UProbeAttachLocation::SymbolOffset(s, *n),
        UProbeAttachLocation::AbsoluteOffset(n) => UProbeAttachLocation::AbsoluteOffset(*n),
    }
}

/// Bits 0 to 15: where a statement keeps its text, plus one; 0: unknown.
fn offset_cookie(offset: Option<u32>) -> u64 {
    offset.map_or(0, |n| u64::from(n) + 1)
}

/// Then where it says whether it runs, likewise, and a byte for what stands there if it does.
fn step_cookie(symbols: &SqliteSymbols) -> u64 {
    let running = symbols.running.map_or(0, |r| offset_cookie(Some(r.offset.into())) << 16 | u64::from(r.value) << 32);
    offset_cookie(symbols.sql_offset) | running
}

/// From bit 32 on a byte each for the number of the argument that is ppStmt, the SQL and its length.
fn prepare_cookie(prepare: &Prepare, text_offset: Option<u32>) -> u64 {
    let argument = |n: u32, shift: u32| u64::from(n & 0xff) << shift;
    offset_cookie(text_offset)
        | argument(prepare.stmt_arg, 32)
        | argument(prepare.sql_arg, 40)
        | argument(prepare.length_arg, 48)
        | if prepare.utf16 { UTF16 } else { 0 }
}

fn attach_at(
    ebpf: &mut Ebpf,
    program: &str,
    path: &Path,
    location: UProbeAttachLocation<'_>,
    cookie: u64,
) -> Result<UProbeLink, String> {
    let program: &mut UProbe =
        ebpf.program_mut(program).ok_or("not in this build")?.try_into().map_err(|e: ProgramError| chain(&e))?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(e) => return Err(crate::probes::refusal("uprobe", &e)),
    }
    let point = UProbeAttachPoint { location, cookie: Some(cookie) };
    let link = program.attach(point, path, UProbeScope::AllProcesses).map_err(|e| chain(&e))?;
    program.take_link(link).map_err(|e| chain(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_holds_what_the_kernel_side_unpacks() {
        assert_eq!(offset_cookie(None), 0);
        assert_eq!(offset_cookie(Some(0)), 1);
        let prepare =
            Prepare { name: "sqlite3_prepare16_v3", offset: 0, stmt_arg: 4, sql_arg: 1, length_arg: 2, utf16: true };
        assert_eq!(prepare_cookie(&prepare, Some(0xf8)), 0x0102_0104_0000_00f9);
    }
}
