//! The plan for one library: how each of its functions is hooked, all or none. A library that has both SQLite and functions that
//! `--op` names is planned twice.

use super::error::PlanError;
use crate::request;
use crate::sqlite::decode::Machine;
use crate::sqlite::entry::find_entry;
use crate::sqlite::find::FoundSqlite;
use crate::sqlite::{self, Prepare, code_at};
use inside::hook::{self, SEARCHED_BYTES};
use inside::layout::PLAN_FUNCTIONS;
use inside::plan::{Counters, Function, Library, Role};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// A library that is probed inside.
#[derive(Debug, Clone)]
pub struct PlannedLibrary {
    pub path: PathBuf,
    /// Its entry in the plan that the object reads.
    pub library: Library,
    /// Its functions by name, with the file offsets of the jumps.
    pub functions: Vec<(String, u64)>,
}

/// Maximum number of files with named functions.
pub const NAMED_FILES_MAX: usize = 8;

/// Functions that depend on their caller, which a hook hides from them.
const CALLER_DEPENDENT_FUNCTIONS: [&str; 4] = ["dlopen", "dlmopen", "dlsym", "dlvsym"];

/// Returns a file's device and inode, as stat returns them here and inside the program.
pub fn file_identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

impl PlannedLibrary {
    /// Creates the plan for a file with SQLite in it.
    ///
    /// # Errors
    /// Why the plan does not cover everything that uprobes see of it.
    pub fn new(found: &FoundSqlite) -> Result<Self, PlanError> {
        let symbols = &found.symbols;
        let (dev, ino) = file_identity(&found.path).ok_or(PlanError::NoFile)?;
        let (Some(reset), Some(finalize)) = (symbols.reset, symbols.finalize) else {
            return Err(PlanError::NoFunction("sqlite3_reset or sqlite3_finalize".into()));
        };
        // The local ones have more arguments than there are argument registers.
        if symbols.prepares.is_empty() || !symbols.prepares.iter().all(|p| p.name.starts_with("sqlite3_prepare")) {
            return Err(PlanError::NoFunction("sqlite3_prepare functions".into()));
        }
        let mut all = vec![
            ("sqlite3_step", symbols.step, Role::Step),
            ("sqlite3_reset", reset, Role::Reset),
            ("sqlite3_finalize", finalize, Role::Finalize),
        ];
        all.extend(symbols.prepares.iter().map(|p| (p.name, p.offset, prepare_role(p))));
        let (mut functions, mut places) = (Vec::new(), Vec::new());
        for (name, offset, role) in all {
            // Two names of one function are hooked only once.
            if functions.iter().any(|(_, o): &(&str, u64)| *o == offset) {
                continue;
            }
            functions.push((name, offset));
            let hooked = plan_hook(&found.path, name, offset, role)?;
            places.push(hooked);
        }
        // For a library, these are in another file.
        if crate::sqlite::program_loader(&found.path).is_none() {
            for (name, offset, function) in
                forbidding_functions(&found.path)?.into_iter().chain(executing_function(&found.path))
            {
                functions.push((name, offset));
                places.push(function);
            }
        }
        let library = Library {
            dev,
            ino,
            text_at: symbols.sql_offset,
            running: symbols.running.map(|r| (r.offset, r.value)),
            counters: symbols.counters.and_then(plan_counters),
            functions: places,
        };
        let functions = functions.iter().zip(&library.functions);
        let functions = functions.map(|((n, o), f)| ((*n).to_owned(), o + u64::from(f.recipe.first))).collect();
        Ok(Self { path: found.path.clone(), functions, library })
    }

    /// Creates the plan for functions of one file that `--op` names, each with its number. `others`: the other planned
    /// libraries.
    pub fn named<'a>(
        path: &Path,
        named: &[(u16, &request::Function)],
        others: impl Iterator<Item = &'a Library> + Clone,
    ) -> Result<Self, PlanError> {
        let (dev, ino) = file_identity(path).ok_or(PlanError::NoFile)?;
        let refuse = |function: &str, why| PlanError::Named { function: function.to_owned(), why };
        let is_static = crate::sqlite::program_loader(path).is_none() && find_entry(path, "execve").is_ok();
        let mine = others.filter(|library| (library.dev, library.ino) == (dev, ino));
        // Its functions may be called where only those of a C library may: in a child of vfork.
        let shared = is_static || mine.clone().any(|library| library.functions.iter().any(|f| f.role == Role::Execve));
        let (mut functions, mut places): (Vec<(String, u64)>, Vec<Function>) = (Vec::new(), Vec::new());
        for (key, requested) in named {
            let name = requested.name.as_str();
            let offset = find_entry(path, name).map_err(|why| PlanError::NoEntry { function: name.to_owned(), why })?;
            // On aarch64 the return address is in a register, and the object cannot intercept the return.
            if Machine::OWN == Some(Machine::Aarch64) {
                return Err(refuse(name, "functions of --op are probed inside on x86-64 only"));
            }
            if CALLER_DEPENDENT_FUNCTIONS.contains(&name) {
                return Err(refuse(name, "it looks at where it is called from"));
            }
            let hooked = plan_hook(path, name, offset, Role::Named { key: *key, shared })?;
            if mine.clone().flat_map(|library| &library.functions).any(|other| other.address == hooked.address) {
                return Err(refuse(name, "the object already hooks it for its own use"));
            }
            let counters = mine.clone().filter_map(|library| library.counters);
            if counters.flat_map(Counters::addresses).any(|other| other == hooked.address) {
                return Err(refuse(name, "the object calls it, to read SQLite's counters"));
            }
            if places.iter().any(|other| other.address == hooked.address) {
                return Err(refuse(name, "it is named twice"));
            }
            functions.push((name.to_owned(), offset + u64::from(hooked.recipe.first)));
            places.push(hooked);
        }
        if is_static && mine.clone().next().is_none() {
            places.extend(
                forbidding_functions(path)?
                    .into_iter()
                    .chain(executing_function(path))
                    .map(|(_, _, function)| function),
            );
        }
        if places.len() > PLAN_FUNCTIONS {
            return Err(PlanError::TooManyNamed(NAMED_FILES_MAX, PLAN_FUNCTIONS));
        }
        Ok(Self {
            path: path.into(),
            functions,
            library: Library { dev, ino, functions: places, ..Library::default() },
        })
    }
}

/// Creates the plan for a C library: those of its functions that concern the object itself, `execve` first. `None` if that cannot be
/// hooked; then the environment stays unchanged.
pub fn plan_c_library(path: &Path) -> Option<Library> {
    let (dev, ino) = file_identity(path)?;
    let all = [("execve", Role::Execve), ("prctl", Role::Prctl), ("syscall", Role::Syscall)];
    let mut functions = Vec::new();
    for (name, role) in all {
        functions.push(plan_hook(path, name, find_entry(path, name).ok()?, role).ok()?);
    }
    Some(Library { dev, ino, functions, ..Library::default() })
}

/// Creates the plan for an unwinder: it is told about the object's code. `None` if it cannot be hooked; then exceptions end at that code.
pub fn plan_unwinder(path: &Path) -> Option<Library> {
    let (dev, ino) = file_identity(path)?;
    let name = "_Unwind_Find_FDE";
    let functions = vec![plan_hook(path, name, find_entry(path, name).ok()?, Role::FindFde).ok()?];
    Some(Library { dev, ino, functions, ..Library::default() })
}

/// Returns the functions, in a program without a C library, that can forbid it system calls: the object must notice.
fn forbidding_functions(path: &Path) -> Result<Vec<(&'static str, u64, Function)>, PlanError> {
    let all = [("prctl", Role::Prctl), ("syscall", Role::Syscall)];
    let found = all.into_iter().filter_map(|(name, role)| Some((name, find_entry(path, name).ok()?, role)));
    found.map(|(name, offset, role)| Ok((name, offset, plan_hook(path, name, offset, role)?))).collect()
}

/// Returns the function of such a program that executes others, so that these are asked about. Without it they are found
/// later.
fn executing_function(path: &Path) -> Option<(&'static str, u64, Function)> {
    let offset = find_entry(path, "execve").ok()?;
    Some(("execve", offset, plan_hook(path, "execve", offset, Role::Execve).ok()?))
}

/// Returns how the object reads the counters. Not on aarch64, where guarded pages (BTI) allow no call of a function that does not begin
/// with a landing pad.
fn plan_counters(found: sqlite::Counters) -> Option<Counters> {
    let sqlite::Counters { stmt_status, counted, cache } = found;
    (Machine::OWN == Some(Machine::X86_64)).then_some(Counters { counted, stmt_status, cache })
}

fn prepare_role(prepare: &Prepare) -> Role {
    let argument = |n: u32| n as u8;
    Role::Prepare {
        stmt: argument(prepare.stmt_arg),
        sql: argument(prepare.sql_arg),
        length: argument(prepare.length_arg),
        utf16: prepare.utf16,
    }
}

fn plan_hook(path: &Path, name: &str, offset: u64, role: Role) -> Result<Function, PlanError> {
    let (machine, address, code) =
        code_at(path, offset, SEARCHED_BYTES).ok_or_else(|| PlanError::NoCode(name.to_owned()))?;
    let recipe = match machine {
        _ if Machine::OWN != Some(machine) => return Err(PlanError::Architecture(name.to_owned())),
        Machine::X86_64 => hook::x86_64::recipe(&code, &role.reads()),
        Machine::Aarch64 => hook::aarch64::recipe(&code, address, &role.reads(), role.ignores_null()),
    };
    let recipe = recipe.map_err(|why| PlanError::NoHook { function: name.to_owned(), why })?;
    Ok(Function { address, role, recipe })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sqlite::find::Finder;

    /// The system's own library is the ground truth.
    #[test]
    fn system_library_can_be_hooked() {
        let found = Finder::new(None).search_system().found;
        if found.is_empty() {
            println!("SKIP system_library_can_be_hooked: there is no libsqlite3 here");
            return;
        }
        for found in found {
            let planned = PlannedLibrary::new(&found).unwrap();
            assert!(planned.functions.iter().any(|(name, at)| *name == "sqlite3_step" && *at > found.symbols.step));
            assert_eq!(planned.functions.len(), 3 + found.symbols.prepares.len());
            assert_eq!(file_identity(&found.path), Some((planned.library.dev, planned.library.ino)));
        }
    }

    /// If one of these exists, its three functions can be hooked.
    #[test]
    fn c_libraries_can_be_hooked() {
        let arch = std::env::consts::ARCH;
        let all = [format!("/lib/{arch}-linux-gnu/libc.so.6"), format!("/lib/ld-musl-{arch}.so.1")];
        let there: Vec<_> = all.iter().map(Path::new).filter(|path| path.exists()).collect();
        if there.is_empty() {
            println!("SKIP c_libraries_can_be_hooked: there is no C library where Debian has it");
        }
        for path in there {
            for (name, role) in [("execve", Role::Execve), ("prctl", Role::Prctl), ("syscall", Role::Syscall)] {
                let offset = find_entry(path, name).unwrap();
                plan_hook(path, name, offset, role).unwrap_or_else(|why| panic!("{}: {why}", path.to_string_lossy()));
            }
            assert_eq!(plan_c_library(path).unwrap().functions.len(), 3);
        }
    }
}
