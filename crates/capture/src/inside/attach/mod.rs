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

use super::error::ImplantError;
use super::is_unwinder;
use inside::account::{self, Account, Jump};
use inside::image::{Attach, Image};
use memory::{MappedRange, Memory, mapped_ranges};
use returns::{RestoreOutcome, Stubs};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stopped::StoppedProcess;
pub use threads::StuckThreads;
use threads::Threads;

const PAGE_BYTES: u64 = 4096;
/// The stack that the object's begin function runs on; it follows the object in memory.
const STACK_BYTES: u64 = 16 * PAGE_BYTES;
/// How long attaching is retried, and at what interval, if it is not possible at once.
const ATTACH_TIMEOUT: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(10);
const RUN_DURATION: Duration = Duration::from_millis(1);
/// How long removal waits at the end until no thread is in the object.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(1);

/// A process with the object in it.
#[derive(Debug)]
pub struct Attachment {
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
    stuck: &mut StuckThreads,
    mut tell: impl FnMut(&[usize]),
) -> Result<Attachment, ImplantError> {
    let until = Instant::now() + ATTACH_TIMEOUT;
    loop {
        match try_to_attach(pid, object, whole, stuck, &mut tell) {
            Err(ImplantError::Busy(_)) if Instant::now() < until => {
                std::thread::sleep(RETRY_INTERVAL);
                stuck.release_stopped();
            }
            done => return done,
        }
    }
}

fn try_to_attach(
    pid: u32,
    object: &Path,
    whole: bool,
    stuck: &mut StuckThreads,
    tell: &mut dyn FnMut(&[usize]),
) -> Result<Attachment, ImplantError> {
    let image = Image::parse(::inside::OBJECT).ok_or(ImplantError::Object)?;
    let places = image.attach.as_ref().ok_or(ImplantError::Object)?;
    check::check_process(pid, object)?;
    remove_abandoned(pid, places, image.size + STACK_BYTES, stuck)?;
    let identity = file_identity(object).ok_or(ImplantError::Object)?;
    let memory = Memory::for_process(pid).map_err(ImplantError::NotTraced)?;
    let threads = Threads::stop(pid, &memory, stuck)?;
    // No thread can be added any more.
    check::check_filters(pid)?;
    let mut process = StoppedProcess::new(pid, &memory, threads, places)?;
    let (base, size) = (process.load_object(object, &image)?, image.size + STACK_BYTES);
    let done = process.run_begin(base, &image, places).and_then(|account| {
        if whole {
            process.check_all(&account)?;
        }
        process.write_jumps(&account)
    });
    match done {
        Ok(libraries) => {
            tell(&libraries);
            Ok(Attachment { pid, base, size, object: identity })
        }
        Err(why) => {
            process.revert(base, size, places);
            Err(why)
        }
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

/// Removes what a killed recorder left behind.
fn remove_abandoned(pid: u32, places: &Attach, size: u64, stuck: &mut StuckThreads) -> Result<(), ImplantError> {
    let all = mapped_ranges(pid).map_err(ImplantError::NotTraced)?;
    let is_object =
        |r: &&MappedRange| r.name.trim_end_matches(" (deleted)").ends_with("/fathom-inside.so") && r.offset == 0;
    for first in all.iter().filter(is_object) {
        let owner =
            first.name.split("/fathom-inside-").nth(1).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        let alive = |owner: u32| owner != std::process::id() && Path::new(&format!("/proc/{owner}")).exists();
        if owner.is_some_and(alive) {
            return Err(ImplantError::Unsupported("another recording probes it inside"));
        }
        let link = PathBuf::from(format!("/proc/{pid}/map_files/{:x}-{:x}", first.from, first.to));
        let other = || ImplantError::Unsupported("another version of Fathom left its object in it");
        // Its layout is known only if it is the same object.
        if fs::read(&link).ok().as_deref() != Some(::inside::OBJECT) {
            return Err(other());
        }
        let object = file_identity(&link).ok_or_else(other)?;
        let memory = Memory::for_process(pid).map_err(ImplantError::NotTraced)?;
        if known_account(&memory, first.from, places, pid).is_none() {
            return Err(ImplantError::Unsupported("it was started with an earlier recording's object"));
        }
        if !(Attachment { pid, base: first.from, size, object }.remove_object(stuck)) {
            return Err(ImplantError::Busy("the object of an earlier recording cannot be removed from it"));
        }
    }
    Ok(())
}

fn read_account(memory: &Memory, at: u64) -> Option<Account> {
    Account::parse(&memory.read(at, account::ACCOUNT_BYTES).ok()?)
}

/// Returns the account of an object that was loaded by attaching; one that has not begun has changed nothing. `None`: a
/// loader loaded it.
fn known_account(memory: &Memory, base: u64, places: &Attach, pid: u32) -> Option<Account> {
    let unbegun = || memory.read_word(base + places.began) == Some(0);
    let account = read_account(memory, base + places.account);
    account.or_else(|| unbegun().then(|| Account { pid: pid.into(), ..Account::default() }))
}

/// Removes the jumps. `all`: those in unwinders as well, which let exceptions pass through calls that are under way.
fn restore_code(memory: &Memory, account: &Account, all: bool) {
    let wanted = |jump: &&Jump| all || !is_unwinder(jump.library);
    for jump in account.jumps.iter().filter(wanted) {
        // A library may have been unloaded, and another be mapped there.
        let at = jump.at.saturating_add(jump.first as u64);
        if memory.holds_bytes(at, &jump.now[jump.first..]) {
            let _ = memory.write(at, &jump.original[jump.first..]);
        }
    }
}

impl Attachment {
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Returns the same for a child of that process, which may still have the object.
    pub fn in_child(&self, pid: u32) -> Self {
        Self { pid, ..*self }
    }

    /// Whether the object is in the process, which may have executed another program since.
    fn is_there(&self) -> bool {
        let is_it =
            |r: &MappedRange| r.from == self.base && r.ino == self.object.1 && r.name.contains("/fathom-inside-");
        mapped_ranges(self.pid).is_ok_and(|all| all.iter().any(is_it))
    }

    /// Reverts the changes, and removes the object if no thread is in it. Returns whether nothing of it is left that could run.
    pub fn remove_object(&self, stuck: &mut StuckThreads) -> bool {
        let Some(places) = Image::parse(::inside::OBJECT).and_then(|image| image.attach) else { return false };
        let until = Instant::now() + REMOVAL_TIMEOUT;
        let mut clean = false;
        loop {
            if !self.is_there() {
                return true;
            }
            match self.try_to_remove(&places, stuck) {
                Ok(Leftover::Nothing | Leftover::Kept) => return true,
                Ok(Leftover::Used) => clean = true,
                Err(_) => {}
            }
            if Instant::now() > until {
                return clean;
            }
            std::thread::sleep(2 * RUN_DURATION);
            stuck.release_stopped();
        }
    }

    fn try_to_remove(&self, places: &Attach, stuck: &mut StuckThreads) -> Result<Leftover, ImplantError> {
        let memory = Memory::for_process(self.pid).map_err(ImplantError::NotTraced)?;
        let threads = Threads::stop(self.pid, &memory, stuck)?;
        let mut process = StoppedProcess::new(self.pid, &memory, threads, places)?;
        if !self.is_there() {
            return Ok(Leftover::Nothing);
        }
        let at = self.base + places.account;
        let account = known_account(&memory, self.base, places, self.pid)
            .ok_or(ImplantError::Unsupported("the object's state in it is invalid"))?;
        restore_code(&memory, &account, false);
        let stubs = Stubs::read_from(&memory, self.base, places)?;
        let is_used = process.is_used(&account, self.base, self.size);
        if !is_used && !stubs.any_used() {
            restore_code(&memory, &account, true);
        }
        // A child may have further mappings, and these may belong to others by now.
        if account.pid != u64::from(self.pid) || account.untold > 0 {
            return Ok(Leftover::Kept);
        }
        // Removing the object takes system calls.
        if check::check_filters(self.pid).is_err() {
            return Ok(Leftover::Kept);
        }
        if is_used {
            return Ok(Leftover::Used);
        }
        match process.put_back_returns(&stubs, &account, (self.base, self.size))? {
            RestoreOutcome::All => {}
            RestoreOutcome::Busy => return Ok(Leftover::Used),
            RestoreOutcome::Unsearched => return Ok(Leftover::Kept),
        }
        restore_code(&memory, &account, true);
        process.unmap_all(self.base, self.size, at);
        Ok(Leftover::Nothing)
    }
}

/// What is left in a process.
enum Leftover {
    Nothing,
    /// The object's pages, for good: nothing jumps to them any more.
    Kept,
    /// The object, which a thread is in or returns to.
    Used,
}
