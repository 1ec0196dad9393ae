//! Probes on functions of programs: SQLite's, and those named by --op.
//!
//! They are attached to a file, hence to every process that maps it; the kernel side drops those that are not recorded.
//! What it must know about a file is in the probe's cookie, so that no table is looked up.

use crate::multi::{self, MultiUprobes, ProbePoint};
use crate::probes::coverage_row;
use crate::refusal::AttachError;
use crate::request::Function;
use crate::sqlite::entry::find_entry;
use crate::sqlite::{Prepare, SqliteSymbols};
use crate::trap::{self, FirstInstruction, ProbedFunction};
use aya::Ebpf;
use aya::programs::uprobe::{UProbeAttachLocation, UProbeAttachPoint, UProbeLink, UProbeScope};
use aya::programs::{ProgramError, UProbe};
use model::table::Coverage;
use model::{Absence, Layer};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::{self, File};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::{FileExt as _, MetadataExt};
use std::path::Path;

/// Bit of the cookie: the call passes its SQL as UTF-16. As in `sqlite.bpf.c`.
const COOKIE_UTF16: u64 = 1 << 56;

/// Files whose SQLite is already probed, by device and inode: one library has many names.
#[derive(Debug)]
pub struct Uprobes {
    /// Links that take many functions. Perf events, one each, are used for what the kernel refuses them, and for functions
    /// that only their loader finds.
    multi: Option<MultiUprobes>,
    files: HashSet<(u64, u64)>,
    links: Vec<AttachedProbe>,
    begins: BTreeSet<(ProbedFunction, FirstInstruction)>,
    /// The program at the begin of each probed function, by its name in the coverage.
    programs_at_begin: BTreeMap<String, &'static str>,
    /// Whether resets are probed everywhere.
    resets: bool,
    /// Those that are not probed yet.
    waiting: Vec<PendingReset>,
}

/// A `sqlite3_reset` whose probe is attached once it matters. The file is kept open: its process may have ended by then, and
/// with it the path by which it was found.
#[derive(Debug)]
struct PendingReset {
    file: File,
    probe: String,
    place: ProbePoint,
}

/// The outcome of probing the SQLite in a file.
#[derive(Debug)]
pub struct AttachedSqlite {
    pub rows: Vec<Coverage>,
    /// Whether its executions are seen.
    pub sees_steps: bool,
}

/// The programs at the returns and at the begins of functions, attached in this order.
const FINALIZE_PROGRAMS: &[&str] = &["sqlite_finalize"];
const RESET_PROGRAMS: &[&str] = &["sqlite_reset"];
const STEP_PROGRAMS: &[&str] = &["sqlite_step_return", "sqlite_step"];
const PREPARE_PROGRAMS: &[&str] = &["sqlite_prepare_return", "sqlite_prepare"];
const FUNCTION_PROGRAMS: &[&str] = &["function_return", "function_enter"];

/// The names of the two ways in the coverage.
const LINK_NAME: &str = "uprobe_multi";
const PERF_NAME: &str = "uprobe";

/// An attached probe, as long as it lives.
#[derive(Debug)]
#[expect(dead_code, reason = "to be dropped is all they are for")]
enum AttachedProbe {
    Multi(multi::UprobeLinks),
    Perf(UProbeLink),
}

/// The text for its row in the coverage.
const WAITING_TEXT: &str = "attached once abandoned statements end late by 1 ms in total";

impl Uprobes {
    /// Attaches nothing yet. Without `multi`, perf events are used.
    pub fn new(multi: Option<MultiUprobes>) -> Self {
        Self {
            multi,
            files: HashSet::new(),
            links: Vec::new(),
            begins: BTreeSet::new(),
            programs_at_begin: BTreeMap::new(),
            resets: false,
            waiting: Vec::new(),
        }
    }

    /// Probes the SQLite in a file. `None` if that file is already probed. `inside`: its place in the plan, if some processes record
    /// it without uprobes.
    pub fn attach_sqlite(
        &mut self,
        ebpf: &mut Ebpf,
        path: &Path,
        symbols: &SqliteSymbols,
        inside: Option<usize>,
    ) -> Option<AttachedSqlite> {
        // A file that cannot be read will not be attached to either; the rows contain the reason.
        let identity = fs::metadata(path).map(|m| (m.dev(), m.ino()));
        if identity.is_ok_and(|i| !self.files.insert(i)) {
            return None;
        }
        let library = library_cookie(inside);
        let text = offset_cookie(symbols.sql_offset) | library;
        let name = |function: &str| format!("{}:{function}", path.to_string_lossy());
        let mut rows = Vec::new();
        // Ends before begins, so that what begins is seen to end.
        if let Some(offset) = symbols.finalize {
            let all = [("sqlite3_finalize", ProbePoint { offset, cookie: text })];
            rows.extend(self.attach_programs(ebpf, path, FINALIZE_PROGRAMS, &all));
        }
        // A trap in each execution, useful only for statements that are abandoned between their rows.
        let waits = File::open(path).ok().filter(|_| !self.resets && symbols.running.is_some());
        let reset = symbols.reset.map(|offset| ProbePoint { offset, cookie: text });
        let waiting = match (reset, waits) {
            (Some(place), Some(file)) => Some(PendingReset { file, probe: name("sqlite3_reset"), place }),
            (Some(place), None) => {
                rows.extend(self.attach_programs(ebpf, path, RESET_PROGRAMS, &[("sqlite3_reset", place)]));
                None
            }
            (None, _) => None,
        };
        self.note_begin(ProbedFunction::Step, path, symbols.step);
        let step = ProbePoint { offset: symbols.step, cookie: step_cookie(symbols) | library };
        let steps = self.attach_programs(ebpf, path, STEP_PROGRAMS, &[("sqlite3_step", step)]);
        let sees_steps = steps.iter().all(|row| row.attached);
        rows.extend(steps);
        let cookie = |p: &Prepare| prepare_cookie(p, symbols.sql_offset) | library;
        let place = |p: &Prepare| ProbePoint { offset: p.offset, cookie: cookie(p) };
        symbols.prepares.iter().for_each(|p| self.note_begin(ProbedFunction::Prepare, path, p.offset));
        let prepares: Vec<_> = symbols.prepares.iter().map(|p| (p.name, place(p))).collect();
        rows.extend(self.attach_programs(ebpf, path, PREPARE_PROGRAMS, &prepares));
        if let Some(reset) = waiting {
            // Useless if the steps are not seen.
            let how = if sees_steps { Ok(WAITING_TEXT.into()) } else { Err("sqlite3_step is not watched".into()) };
            rows.push(coverage_row(Layer::Database, &reset.probe, how));
            self.waiting.extend(sees_steps.then_some(reset));
        }
        rows.extend(symbols.blind_to().into_iter().map(|what| {
            coverage_row(Layer::Database, &path.to_string_lossy(), Err(format!("blind to {what}").into()))
        }));
        Some(AttachedSqlite { rows, sees_steps })
    }

    /// Attaches programs, in their order, to functions of a file; returns a row for each function.
    fn attach_programs(
        &mut self,
        ebpf: &mut Ebpf,
        path: &Path,
        programs: &[&'static str],
        functions: &[(&str, ProbePoint)],
    ) -> Vec<Coverage> {
        let places: Vec<ProbePoint> = functions.iter().map(|(_, place)| *place).collect();
        let together = if places.len() > 1 { self.attach_by_link(path, programs, &places) } else { None };
        let alone = |&(name, place): &(&str, ProbePoint)| {
            let outcome = match &together {
                Some(Ok(())) => Ok(describe_place(LINK_NAME, place)),
                _ => self.attach(ebpf, path, programs, place),
            };
            self.row(format!("{}:{name}", path.to_string_lossy()), programs, outcome)
        };
        functions.iter().map(alone).collect()
    }

    /// Returns the row of a probe for the coverage, and notes which of its programs determines its cost.
    fn row(&mut self, probe: String, programs: &[&'static str], outcome: Result<String, AttachError>) -> Coverage {
        let row = coverage_row(Layer::Database, &probe, outcome);
        if let Some(program) = programs.last() {
            self.programs_at_begin.insert(probe, program);
        }
        row
    }

    /// Attaches programs, in their order, to a place of a file, all of them in one way or none. Returns how, for the
    /// coverage.
    pub fn attach(
        &mut self,
        ebpf: &mut Ebpf,
        path: &Path,
        programs: &[&str],
        place: ProbePoint,
    ) -> Result<String, AttachError> {
        let refused = match self.attach_by_link(path, programs, &[place]) {
            Some(Ok(())) => return Ok(describe_place(LINK_NAME, place)),
            Some(Err(refused)) => Some((format!("{LINK_NAME}: {}", refused.why), refused.absence)),
            None => None,
        };
        match (self.attach_by_perf(ebpf, path, programs, place), refused) {
            (Ok(()), None) => Ok(describe_place(PERF_NAME, place)),
            (Ok(()), Some((why, _))) => Ok(format!("{}, since {why}", describe_place(PERF_NAME, place))),
            (Err(refused), None) => Err(refused),
            (Err(by_perf), Some((why, absence))) => Err(AttachError {
                why: format!("{why}; {PERF_NAME}: {}", by_perf.why),
                absence: if absence == Absence::NotPermitted { absence } else { by_perf.absence },
            }),
        }
    }

    /// Attaches programs to places of a file by links, all or none; `None` if links are not supported.
    fn attach_by_link(
        &mut self,
        path: &Path,
        programs: &[&str],
        places: &[ProbePoint],
    ) -> Option<Result<(), AttachError>> {
        let multi = self.multi.as_mut()?;
        let links: Result<Vec<_>, _> = programs.iter().map(|program| multi.attach(program, path, places)).collect();
        Some(links.map(|links| self.links.extend(links.into_iter().map(AttachedProbe::Multi))))
    }

    /// Attaches programs to one place of a file by perf events, all or none.
    fn attach_by_perf(
        &mut self,
        ebpf: &mut Ebpf,
        path: &Path,
        programs: &[&str],
        place: ProbePoint,
    ) -> Result<(), AttachError> {
        let links = programs.iter().map(|program| attach_perf_event(ebpf, program, path, place));
        let links = links.collect::<Result<Vec<_>, _>>()?;
        self.links.extend(links.into_iter().map(AttachedProbe::Perf));
        Ok(())
    }

    /// Probes all resets from now on; returns the outcome for those that were not probed.
    pub fn watch_resets(&mut self, ebpf: &mut Ebpf) -> Vec<Coverage> {
        self.resets = true;
        let mut rows = Vec::new();
        for reset in std::mem::take(&mut self.waiting) {
            let path = format!("/proc/self/fd/{}", reset.file.as_raw_fd());
            let outcome = self.attach(ebpf, Path::new(&path), RESET_PROGRAMS, reset.place);
            let outcome = outcome.map(|how| format!("{how}, {WAITING_TEXT}"));
            rows.push(self.row(reset.probe, RESET_PROGRAMS, outcome));
        }
        rows
    }

    /// Whether resets are probed everywhere.
    pub fn watches_resets(&self) -> bool {
        self.resets
    }

    /// Makes the executions of functions operations, each with its index in the list as its number.
    pub fn attach_functions(&mut self, ebpf: &mut Ebpf, functions: &[Function]) -> Vec<Coverage> {
        let mut rows = Vec::new();
        for (function, cookie) in functions.iter().zip(0..) {
            let path = &function.path;
            let outcome = find_entry(path, &function.name).map_err(|why| why.to_string().into()).and_then(|offset| {
                self.note_begin(ProbedFunction::Function, path, offset);
                let place = ProbePoint { offset, cookie: cookie | library_cookie(function.inside) };
                self.attach(ebpf, path, FUNCTION_PROGRAMS, place)
            });
            let name = format!("{}:{}", path.to_string_lossy(), function.name);
            rows.push(self.row(name, FUNCTION_PROGRAMS, outcome));
        }
        rows
    }

    /// Returns the program that determines the cost in the row of a probed function: the one at its begin.
    pub fn program_of(&self, probe: &str) -> Option<&'static str> {
        self.programs_at_begin.get(probe).copied()
    }

    /// Returns how the probed functions begin.
    pub fn begins(&self) -> &BTreeSet<(ProbedFunction, FirstInstruction)> {
        &self.begins
    }

    fn note_begin(&mut self, probed: ProbedFunction, path: &Path, offset: u64) {
        let mut code = [0; 4];
        let read = File::open(path).and_then(|file| file.read_exact_at(&mut code, offset));
        if read.is_ok() {
            self.begins.insert((probed, FirstInstruction::from_code(&code)));
        }
    }

    /// Attaches the programs for functions to the function of this process that is called to measure the cost of traps. Returns
    /// whether that succeeded.
    pub fn attach_trap(&mut self, ebpf: &mut Ebpf, begin: FirstInstruction) -> bool {
        let Some(offset) = trap::trap_offset(begin) else { return false };
        // Not a number of the list.
        let place = ProbePoint { offset, cookie: u64::MAX };
        self.attach(ebpf, trap::own_program(), FUNCTION_PROGRAMS, place).is_ok()
    }

    /// Returns the programs that are attached other than through `ebpf`, by name.
    pub fn programs(&self) -> Vec<(String, RawFd)> {
        self.multi.iter().flat_map(MultiUprobes::programs).collect()
    }

    /// Detaches all probes. For each link the kernel waits until no CPU can be inside it. Each has a thread, so that they
    /// wait concurrently; perf events wait one after the other all the same (77 ms each with Linux 6.18).
    pub fn detach(&mut self) {
        std::thread::scope(|scope| {
            for link in self.links.drain(..) {
                scope.spawn(move || drop(link));
            }
        });
    }
}

/// Describes a way and a place.
fn describe_place(way: &str, place: ProbePoint) -> String {
    format!("{way} at {:#x}", place.offset)
}

/// Bits 0 to 15: the offset of the text in a statement, plus one; 0: unknown.
fn offset_cookie(offset: Option<u32>) -> u64 {
    offset.map_or(0, |n| u64::from(n) + 1)
}

/// From bit 57 on: the library's place in the plan of what is probed inside, plus one.
fn library_cookie(place: Option<usize>) -> u64 {
    place.map_or(0, |n| (n as u64 + 1) << 57)
}

/// Then likewise the offset of the running state, and a byte for its value in a running statement.
fn step_cookie(symbols: &SqliteSymbols) -> u64 {
    let running = symbols.running.map_or(0, |r| offset_cookie(Some(r.offset.into())) << 16 | u64::from(r.value) << 32);
    offset_cookie(symbols.sql_offset) | running
}

/// From bit 32 on: one byte each for the indices of the arguments ppStmt, the SQL and its length.
fn prepare_cookie(prepare: &Prepare, text_offset: Option<u32>) -> u64 {
    let argument = |n: u32, shift: u32| u64::from(n & 0xff) << shift;
    offset_cookie(text_offset)
        | argument(prepare.stmt_arg, 32)
        | argument(prepare.sql_arg, 40)
        | argument(prepare.length_arg, 48)
        | if prepare.utf16 { COOKIE_UTF16 } else { 0 }
}

fn attach_perf_event(
    ebpf: &mut Ebpf,
    program: &str,
    path: &Path,
    place: ProbePoint,
) -> Result<UProbeLink, AttachError> {
    let program: &mut UProbe = ebpf
        .program_mut(program)
        .ok_or("not in this build")?
        .try_into()
        .map_err(|e: ProgramError| AttachError::from_error(&e))?;
    match program.load() {
        Ok(()) | Err(ProgramError::AlreadyLoaded) => {}
        Err(e) => return Err(crate::probes::attach_error("uprobe", &e)),
    }
    let location = UProbeAttachLocation::AbsoluteOffset(place.offset);
    let point = UProbeAttachPoint { location, cookie: Some(place.cookie) };
    let link = program.attach(point, path, UProbeScope::AllProcesses).map_err(|e| AttachError::from_error(&e))?;
    program.take_link(link).map_err(|e| AttachError::from_error(&e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::types::KernelTypes;
    use crate::request::{Request, Scope};
    use crate::rings::RingLayout;
    use crate::{session, sqlite};

    #[test]
    fn cookie_layout_matches_bpf_program() {
        assert_eq!(offset_cookie(None), 0);
        assert_eq!(offset_cookie(Some(0)), 1);
        let prepare =
            Prepare { name: "sqlite3_prepare16_v3", offset: 0, stmt_arg: 4, sql_arg: 1, length_arg: 2, utf16: true };
        assert_eq!(prepare_cookie(&prepare, Some(0xf8)), 0x0102_0104_0000_00f9);
    }

    #[test]
    fn cost_of_named_function_is_not_taken_for_sqlites() {
        let mut uprobes = Uprobes::new(None);
        for (name, programs, begin) in [
            ("/lib/a:b:sqlite3_step", STEP_PROGRAMS, "sqlite_step"),
            ("/lib/a:sqlite3_prepare_v2", PREPARE_PROGRAMS, "sqlite_prepare"),
            ("/bin/own:sqlite3_wrapper", FUNCTION_PROGRAMS, "function_enter"),
        ] {
            let row = uprobes.row(name.into(), programs, Ok("uprobe at 0x10".into()));
            assert_eq!((row.probe.as_str(), uprobes.program_of(name)), (name, Some(begin)));
        }
        assert_eq!(uprobes.program_of("sched_switch"), None);
    }

    /// Returns the rows for this program, which contains SQLite, for each way that this kernel supports; last with a kernel
    /// that refuses one of the programs for links. One of its functions has an offset beyond the file's end.
    fn rows_of_a_program() -> Vec<(&'static str, Vec<Coverage>)> {
        let path = std::env::current_exe().unwrap();
        let mut symbols = sqlite::find(&path).unwrap();
        assert!(symbols.prepares.len() > 2 && symbols.prepares[1].name == "sqlite3_prepare_v2");
        // So that the reset is probed from the start.
        symbols.running = None;
        symbols.prepares[1].offset = fs::metadata(&path).unwrap().len().next_multiple_of(1 << 20);
        let types = KernelTypes::read(session::BPF_OBJECT).unwrap();
        let mut ebpf = session::load_programs(&Request::new(Scope::Command), &types, RingLayout::new(1, 1, 0)).unwrap();
        let open = |ebpf: &Ebpf| MultiUprobes::open(session::BPF_OBJECT, ebpf, &types.for_fields);
        let known = fs::read("/sys/kernel/btf/vmlinux").unwrap();
        let known = known.windows(22).any(|w| w == b"BPF_TRACE_UPROBE_MULTI");
        assert_eq!(open(&ebpf).err().filter(|_| known), None, "this kernel has such links");
        let mut ways = vec![(PERF_NAME, Uprobes::new(None), 0)];
        ways.extend(open(&ebpf).ok().map(|multi| (LINK_NAME, Uprobes::new(Some(multi)), 6)));
        ways.extend(open(&ebpf).ok().map(|mut multi| {
            multi.refuse("sqlite_finalize");
            (MIXED_NAME, Uprobes::new(Some(multi)), 5)
        }));
        let rows = ways.into_iter().map(|(way, mut uprobes, of_links)| {
            let AttachedSqlite { rows, sees_steps } = uprobes.attach_sqlite(&mut ebpf, &path, &symbols, None).unwrap();
            assert!(sees_steps);
            assert_eq!(uprobes.programs().len(), of_links, "{way}: separate programs");
            uprobes.detach();
            (way, rows)
        });
        rows.collect()
    }

    /// By links, except for one program.
    const MIXED_NAME: &str = "uprobe_multi and uprobe";

    #[test]
    #[ignore = "root: attaches probes"]
    fn one_unprobed_function_leaves_others_attached() {
        for (way, rows) in rows_of_a_program() {
            for row in rows {
                let blind = row.probe.ends_with(":sqlite3_prepare_v2") || row.how.starts_with("blind to ");
                assert_eq!(row.attached, !blind, "{row:?}");
                let by_perf = way == PERF_NAME || way == MIXED_NAME && row.probe.ends_with(":sqlite3_finalize");
                assert!(
                    blind || row.how.starts_with(if by_perf { "uprobe at 0x" } else { "uprobe_multi at 0x" }),
                    "{row:?}"
                );
                assert_eq!(way == MIXED_NAME && by_perf, row.how.contains(", since uprobe_multi: "), "{row:?}");
            }
        }
    }
}
