//! Loads the object into a running process, and removes it again.
//!
//! All threads are stopped. One of them is made to execute a piece of code that maps the object, and the object's begin function, which
//! prepares the jumps; then it resumes where it was, by itself, whatever happens to this process. The jumps are written from here, each
//! in one write, while no thread runs and none is in the middle of the overwritten code. So the process is consistent at every point at
//! which this one may be killed.

mod check;
#[cfg(test)]
#[path = "rounds.rs"]
mod long;
mod memory;
mod returns;
mod stopped;
mod threads;

use super::error::NotImplanted;
use super::is_unwinder;
use inside::account::{self, Account, Jump};
use inside::image::{Attach, Image};
use memory::{Memory, Range, ranges};
use returns::{Returns, Stubs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stopped::StoppedProcess;
pub use threads::Stuck;
use threads::Threads;

const PAGE: u64 = 4096;
/// The stack that the object's begin function runs on; it follows the object in memory.
const STACK: u64 = 16 * PAGE;
/// How long attaching is retried, and at what interval, if it is not possible at once.
const ATTACH_WITHIN: Duration = Duration::from_secs(2);
const RETRY: Duration = Duration::from_millis(10);
const RUN_ON: Duration = Duration::from_millis(1);
/// How long removal waits at the end until no thread is in the object.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// A process with the object in it.
#[derive(Debug)]
pub struct Attached {
    pid: u32,
    /// The object, followed by its stack.
    base: u64,
    size: u64,
    object: (u64, u64),
}

/// Loads the object into a process. `whole`: it must hook everything that is planned, or nothing. `tell` receives the libraries that are
/// probed inside, by their indices in the plan, before the process continues.
///
/// # Errors
/// The reason; the process is unchanged.
pub fn attach(
    pid: u32,
    object: &Path,
    whole: bool,
    stuck: &mut Stuck,
    mut tell: impl FnMut(&[usize]),
) -> Result<Attached, NotImplanted> {
    let until = Instant::now() + ATTACH_WITHIN;
    loop {
        match try_to_attach(pid, object, whole, stuck, &mut tell) {
            Err(NotImplanted::Busy(_)) if Instant::now() < until => {
                std::thread::sleep(RETRY);
                stuck.let_go();
            }
            done => return done,
        }
    }
}

fn try_to_attach(
    pid: u32,
    object: &Path,
    whole: bool,
    stuck: &mut Stuck,
    tell: &mut dyn FnMut(&[usize]),
) -> Result<Attached, NotImplanted> {
    let image = Image::of(::inside::OBJECT).ok_or(NotImplanted::Object)?;
    let places = image.attach.as_ref().ok_or(NotImplanted::Object)?;
    check::check(pid, object)?;
    remove_abandoned(pid, places, image.size + STACK, stuck)?;
    let identity = identity(object).ok_or(NotImplanted::Object)?;
    let memory = Memory::of(pid).map_err(NotImplanted::NotTraced)?;
    let threads = Threads::stop(pid, &memory, stuck)?;
    // No thread can be added any more.
    check::check_filters(pid)?;
    let mut process = StoppedProcess::new(pid, &memory, threads, places)?;
    let (base, size) = (process.bring(object, &image)?, image.size + STACK);
    let done = process.begin(base, &image, places).and_then(|account| {
        if whole {
            process.check_all(&account)?;
        }
        process.write_jumps(&account)
    });
    match done {
        Ok(libraries) => {
            tell(&libraries);
            Ok(Attached { pid, base, size, object: identity })
        }
        Err(why) => {
            process.take_back(base, size, places);
            Err(why)
        }
    }
}

fn identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Removes what a killed recorder left behind.
fn remove_abandoned(pid: u32, places: &Attach, size: u64, stuck: &mut Stuck) -> Result<(), NotImplanted> {
    let all = ranges(pid).map_err(NotImplanted::NotTraced)?;
    let is_object = |r: &&Range| r.name.trim_end_matches(" (deleted)").ends_with("/fathom-inside.so") && r.offset == 0;
    for first in all.iter().filter(is_object) {
        let owner =
            first.name.split("/fathom-inside-").nth(1).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let alive = |owner: u32| owner != std::process::id() && Path::new(&format!("/proc/{owner}")).exists();
        if owner.is_some_and(alive) {
            return Err(NotImplanted::Unsupported("another recording probes it inside"));
        }
        let link = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", first.from, first.to));
        let other = || NotImplanted::Unsupported("another version of Fathom left its object in it");
        // Its layout is known only if it is the same object.
        if fs::read(&link).ok().as_deref() != Some(::inside::OBJECT) {
            return Err(other());
        }
        let object = identity(&link).ok_or_else(other)?;
        let memory = Memory::of(pid).map_err(NotImplanted::NotTraced)?;
        if known_account(&memory, first.from, places, pid).is_none() {
            return Err(NotImplanted::Unsupported("it was started with an earlier recording's object"));
        }
        if !(Attached { pid, base: first.from, size, object }.take_out(stuck)) {
            return Err(NotImplanted::Busy("the object of an earlier recording cannot be removed from it"));
        }
    }
    Ok(())
}

fn read_account(memory: &Memory, at: u64) -> Option<Account> {
    Account::read(&memory.read(at, account::SIZE).ok()?)
}

/// Returns the account of an object that was loaded by attaching; one that has not begun has changed nothing. `None`: a
/// loader loaded it.
fn known_account(memory: &Memory, base: u64, places: &Attach, pid: u32) -> Option<Account> {
    let unbegun = || memory.word(base + places.began) == Some(0);
    let account = read_account(memory, base + places.account);
    account.or_else(|| unbegun().then(|| Account { pid: pid.into(), ..Account::default() }))
}

/// Removes the jumps. `all`: those in unwinders as well, which let exceptions pass through calls that are under way.
fn restore_code(memory: &Memory, account: &Account, all: bool) {
    let wanted = |jump: &&Jump| all || !is_unwinder(jump.library);
    for jump in account.jumps.iter().filter(wanted) {
        // A library may have been unloaded, and another be mapped there.
        let at = jump.at.saturating_add(jump.first as u64);
        if memory.has(at, &jump.now[jump.first..]) {
            let _ = memory.write(at, &jump.original[jump.first..]);
        }
    }
}

impl Attached {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the same for a child of that process, which may still have the object.
    pub fn in_child(&self, pid: u32) -> Self {
        Self { pid, ..*self }
    }

    /// Whether the object is in the process, which may have executed another program since.
    fn is_there(&self) -> bool {
        let is_it = |r: &Range| r.from == self.base && r.ino == self.object.1 && r.name.contains("/fathom-inside-");
        ranges(self.pid).is_ok_and(|all| all.iter().any(is_it))
    }

    /// Reverts the changes, and removes the object if no thread is in it. Returns whether nothing of it is left that could run.
    pub fn take_out(&self, stuck: &mut Stuck) -> bool {
        let Some(places) = Image::of(::inside::OBJECT).and_then(|image| image.attach) else { return false };
        let until = Instant::now() + LEAVES_WITHIN;
        let mut clean = false;
        loop {
            if !self.is_there() {
                return true;
            }
            match self.try_to_take_out(&places, stuck) {
                Ok(Left::Nothing | Left::Kept) => return true,
                Ok(Left::Used) => clean = true,
                Err(_) => {}
            }
            if Instant::now() > until {
                return clean;
            }
            std::thread::sleep(2 * RUN_ON);
            stuck.let_go();
        }
    }

    fn try_to_take_out(&self, places: &Attach, stuck: &mut Stuck) -> Result<Left, NotImplanted> {
        let memory = Memory::of(self.pid).map_err(NotImplanted::NotTraced)?;
        let threads = Threads::stop(self.pid, &memory, stuck)?;
        let mut process = StoppedProcess::new(self.pid, &memory, threads, places)?;
        if !self.is_there() {
            return Ok(Left::Nothing);
        }
        let at = self.base + places.account;
        let account = known_account(&memory, self.base, places, self.pid)
            .ok_or(NotImplanted::Unsupported("the object's state in it is invalid"))?;
        restore_code(&memory, &account, false);
        let stubs = Stubs::of(&memory, self.base, places)?;
        let is_used = process.is_used(&account, self.base, self.size);
        if !is_used && !stubs.any() {
            restore_code(&memory, &account, true);
        }
        // A child may have further mappings, and these may belong to others by now.
        if account.pid != u64::from(self.pid) || account.untold > 0 {
            return Ok(Left::Kept);
        }
        // Removing the object takes system calls.
        if check::check_filters(self.pid).is_err() {
            return Ok(Left::Kept);
        }
        if is_used {
            return Ok(Left::Used);
        }
        match process.put_back_returns(&stubs, &account, (self.base, self.size))? {
            Returns::All => {}
            Returns::Busy => return Ok(Left::Used),
            Returns::Unsearched => return Ok(Left::Kept),
        }
        restore_code(&memory, &account, true);
        process.unmap_all(self.base, self.size, at);
        Ok(Left::Nothing)
    }
}

/// What is left in a process.
enum Left {
    Nothing,
    /// The object's pages, for good: nothing jumps to them any more.
    Kept,
    /// The object, which a thread is in or returns to.
    Used,
}
