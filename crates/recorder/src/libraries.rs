//! The files that contain SQLite: those that exist when the recording begins, and those that a process maps later.

use crate::inside::Watch;
use crate::request::{Request, Target};
use crate::sqlite_version::{Identity, ProbedLibrary};
use ::inside::question::{Answer, Subject};
use capture::launch::{self, LaunchError};
use capture::sqlite::FindError;
use capture::sqlite::find::{Finder, FoundSqlite, SearchResult};
use capture::{Inside, Session};
use model::table::Coverage;
use model::{Absence, Layer};
use std::collections::BTreeSet;
use std::env::var_os;
use std::path::{Path, PathBuf};

/// The consequence of finding a SQLite that was already running.
const FOUND_LATE_REASON: &str =
    "it was found after a process had begun to run it: that process's first statements, or all, are missing";

/// The SQLites found, and which of them are probed.
pub struct Libraries {
    finder: Finder,
    /// Files that contain SQLite and cannot be probed.
    pub blind: Vec<Coverage>,
    /// The SQLites found.
    pub probed: Vec<ProbedLibrary>,
    /// Those that are probed inside.
    pub inside: Watch,
    /// Files that processes asked about, by device and inode.
    asked_files: BTreeSet<(u64, u64)>,
    /// Processes that had mapped a SQLite when it was found.
    late_processes: Vec<(u32, PathBuf)>,
}

impl Libraries {
    fn new(finder: Finder, inside: Watch) -> Self {
        Self {
            finder,
            blind: Vec::new(),
            probed: Vec::new(),
            inside,
            asked_files: BTreeSet::new(),
            late_processes: Vec::new(),
        }
    }

    /// Probes the system's SQLites, those of the requested processes, and the command's.
    pub fn attach(session: &mut Session, request: &Request, inside: Watch) -> Result<Self, LaunchError> {
        let finder = Finder::new(var_os("LD_LIBRARY_PATH").as_deref());
        let mut libraries = Self::new(finder, inside);
        libraries.add(session, Finder::search_system);
        if request.also_all || matches!(request.target, Target::Comm(_) | Target::All) {
            libraries.add(session, Finder::search_every_process);
        }
        for pid in request.pids() {
            libraries.add_process(session, *pid);
        }
        for pid in request.pids() {
            if let Some(inside) = session.inside().filter(|_| libraries.inside.is_possible()) {
                libraries.inside.attached(*pid, inside.attach_to(*pid));
            }
        }
        if let Some(first) = request.command().first() {
            let path = var_os("PATH");
            let program = launch::resolve_program(first, path.as_deref())?;
            libraries.add(session, |finder| finder.search_command(&program, path.as_deref()));
            libraries.add(session, |finder| finder.search_named(request.command(), path.as_deref()));
        }
        Ok(libraries)
    }

    /// Returns those that a recording without a [`Session`] can probe when it begins.
    pub fn find(request: &Request) -> Result<(Self, Vec<FoundSqlite>), LaunchError> {
        let finder = Finder::new(var_os("LD_LIBRARY_PATH").as_deref());
        let inside = Watch::none(&"the ftrace backend has uprobes only".into());
        let mut libraries = Self::new(finder, inside);
        let mut all = vec![libraries.finder.search_system()];
        if request.also_all || matches!(request.target, Target::Comm(_) | Target::All) {
            all.push(libraries.finder.search_every_process());
        }
        all.extend(request.pids().iter().map(|pid| libraries.finder.search_process(*pid)));
        if let Some(first) = request.command().first() {
            let path = var_os("PATH");
            let program = launch::resolve_program(first, path.as_deref())?;
            all.push(libraries.finder.search_command(&program, path.as_deref()));
            all.push(libraries.finder.search_named(request.command(), path.as_deref()));
        }
        let mut found = Vec::new();
        for search in all {
            search.found.iter().for_each(|found| libraries.probed.push(probed_library(found)));
            libraries.blind.extend(search.absent.into_iter().map(blind_coverage));
            found.extend(search.found);
        }
        Ok((libraries, found))
    }

    /// Probes what a process has mapped when the recording begins.
    fn add_process(&mut self, session: &mut Session, pid: u32) {
        for path in self.add(session, |finder| finder.search_process(pid)) {
            self.inside.met_late(pid, &path);
        }
    }

    /// Probes what a process has mapped since: what it maps now (if it is still running), and the files and inodes that the kernel
    /// recorded. It may have ended since, or executed another program. What ran before its probes is missing, and the coverage reports
    /// it.
    pub fn add_mapped(&mut self, session: &mut Session, pid: Option<u32>, code: &[(PathBuf, u64)]) {
        if let Some(pid) = pid {
            for path in self.add(session, |finder| finder.search_process(pid)) {
                self.inside.met_late(pid, &path);
                self.late_processes.push((pid, path));
            }
        }
        let recorded = self.add(session, |finder| finder.search_files(code));
        self.blind.extend(recorded.iter().map(PathBuf::as_path).map(late_coverage));
    }

    /// Looks for SQLites that these processes and their descendants have mapped since, or any process's: they are not probed, and the
    /// coverage reports that.
    pub fn look(&mut self, roots: Option<&[u32]>) {
        let search = match roots {
            None => self.finder.search_every_process(),
            Some(roots) => self.finder.search_trees(roots),
        };
        self.blind.extend(search.found.iter().map(|found| late_coverage(&found.path)));
        self.blind.extend(search.absent.into_iter().map(blind_coverage));
    }

    /// Reports the SQLites that were found when a process was already running them. Not those probed inside: their object waited for
    /// them.
    pub fn settle(&mut self) {
        let met = std::mem::take(&mut self.late_processes).into_iter();
        let missed = met.filter(|(pid, path)| !self.inside.is_hooked(*pid, path));
        self.blind.extend(missed.map(|(_, path)| late_coverage(&path)));
    }

    /// Reports the SQLites that were mapped too late to be probed: when the recording ended.
    pub fn missed(&mut self, code: &[(PathBuf, u64)]) {
        let search = self.finder.search_files(code);
        self.blind.extend(search.found.iter().map(|found| late_coverage(&found.path)));
    }

    /// Answers processes that ask about files before these run, once they have their probes.
    pub fn answer(&mut self, session: &mut Session) {
        for ask in session.questions() {
            if self.asked_files.insert(ask.identity) {
                self.add(session, |finder| match ask.subject {
                    Subject::Executes => finder.search_command(&ask.path, var_os("PATH").as_deref()),
                    Subject::Loaded => finder.search_file(&ask.path),
                });
            }
            let Some(inside) = session.inside() else { continue };
            let planned = inside.plans(&ask.path);
            if planned && ask.subject == Subject::Executes && capture::sqlite::program_loader(&ask.path).is_none() {
                let pid = ask.pid;
                self.inside.implanted(pid, inside.implant_at_exec(ask));
            } else {
                ask.answer(if planned { Answer::Planned } else { Answer::Nothing });
            }
        }
    }

    /// Decides about processes that were stopped at an exec, since the executing program could not ask.
    pub fn meet(&mut self, session: &mut Session) {
        for met in session.inside().map(Inside::take_met).unwrap_or_default() {
            let Some((path, identity)) = met.program() else { continue };
            if self.asked_files.insert(identity) {
                self.add(session, |finder| finder.search_command(&path, var_os("PATH").as_deref()));
            }
            // Its loader loads the object, which asks from then on.
            if capture::sqlite::program_loader(&path).is_some() {
                continue;
            }
            let Some(inside) = session.inside() else { continue };
            if inside.plans(&path) {
                let pid = met.pid;
                self.inside.implanted(pid, met.implant());
            } else {
                met.follow();
            }
        }
    }

    /// Adds a search's results; returns the files found.
    fn add(&mut self, session: &mut Session, search: impl FnOnce(&mut Finder) -> SearchResult) -> Vec<PathBuf> {
        let search = search(&mut self.finder);
        for found in &search.found {
            self.inside.plan(session, found);
            session.attach_sqlite(&found.path, &found.symbols);
            self.inside.watch(session, found);
            self.probed.push(probed_library(found));
        }
        self.blind.extend(search.absent.into_iter().map(blind_coverage));
        search.found.into_iter().map(|found| found.path).collect()
    }
}

fn probed_library(found: &FoundSqlite) -> ProbedLibrary {
    let version = found.symbols.version.clone().unwrap_or_else(|| "unknown".into());
    let path = found.path.to_string_lossy().into_owned();
    ProbedLibrary { file: Identity::for_path(&path), path, version }
}

fn late_coverage(path: &Path) -> Coverage {
    Coverage::absent(Layer::Database, path.to_string_lossy().into_owned(), Absence::Late, FOUND_LATE_REASON)
}

fn blind_coverage((path, why): (PathBuf, FindError)) -> Coverage {
    Coverage::absent(Layer::Database, path.to_string_lossy().into_owned(), Absence::Failed, why.to_string())
}
