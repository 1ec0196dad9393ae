//! Return addresses that were replaced by stubs of the object, for functions of `--op`. Before the object is removed, the program gets its
//! own back, wherever it keeps them: on stacks, in calls under way; on stacks of coroutines, and in copies of stacks; in registers.
//!
//! So the memory that the process can write is searched. A word that is a stub's address is one: the object's addresses are random.

use super::memory::{MappedRange, Memory};
use super::threads::{Threads, set_registers, set_vector_registers, vector_registers};
use crate::inside::error::ImplantError;
use inside::image::Attach;
use inside::layout::{STUB_SIZE, STUBS};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE_BYTES: u64 = 4096;
/// Maximum amount of memory that is searched while all threads are stopped: 0.1 s.
const SEARCHED_BYTES_MAX: u64 = 256 << 20;
/// Maximum amount of address space in which such memory is looked for.
const ADDRESS_RANGE_BYTES_MAX: u64 = 32 << 30;
/// Number of pages that are looked up or read at a time.
const PAGES_PER_READ: u64 = 256;
/// Bits of an entry of `/proc/PID/pagemap`: the page is in memory, or swapped out.
const PAGEMAP_PRESENT_OR_SWAPPED: u64 = 3 << 62;
/// The unwinder of exceptions.
const UNWINDER_NAME: &str = "/libgcc_s";

/// The stubs in use.
#[derive(Debug)]
pub struct Stubs {
    from: u64,
    /// What each stands for; 0: it is unused.
    originals: Vec<u64>,
}

/// Whether the program has its own return addresses again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestoreOutcome {
    All,
    /// A thread is about to use one: later.
    Busy,
    /// There is too much memory to search.
    Unsearched,
}

impl Stubs {
    /// Reads those of the object at `base`.
    pub fn read_from(memory: &Memory, base: u64, places: &Attach) -> Result<Self, ImplantError> {
        let (from, table) = (base + places.stubs.0, base + places.stubs.1);
        let bytes = memory.read(table, STUBS * 8)?;
        Ok(Self { from, originals: words(&bytes).collect() })
    }

    /// Whether any was ever used.
    pub fn any_used(&self) -> bool {
        self.originals.iter().any(|original| *original != 0)
    }

    fn is_stub(&self, word: u64) -> bool {
        let distance = word.wrapping_sub(self.from);
        distance < STUBS as u64 * STUB_SIZE && distance.is_multiple_of(STUB_SIZE)
    }

    /// Returns what a stub stands for. That may be a stub as well: a function that ended with a jump to another left its own. `None`: it
    /// is no stub, or none that was ever used, whose address the object's code may have left behind.
    fn original(&self, word: u64) -> Option<u64> {
        let mut to = word;
        for _ in 0..STUBS {
            if !self.is_stub(to) {
                return (to != word).then_some(to);
            }
            let place = (to - self.from) / STUB_SIZE;
            to = *self.originals.get(place as usize).filter(|original| **original != 0)?;
        }
        None
    }

    /// Replaces all of them, in a process whose threads are stopped, and outside the object. `own`: the object's memory.
    pub fn restore_returns(
        &self,
        pid: u32,
        memory: &Memory,
        threads: &mut Threads<'_>,
        ranges: &[MappedRange],
        own: &[(u64, u64)],
    ) -> Result<RestoreOutcome, ImplantError> {
        if !self.any_used() {
            return Ok(RestoreOutcome::All);
        }
        let Some(runs) = filled_ranges(pid, ranges, own)? else { return Ok(RestoreOutcome::Unsearched) };
        let unwinder =
            |at: u64| ranges.iter().any(|r| r.executable && r.name.contains(UNWINDER_NAME) && r.contains(at));
        for thread in &threads.stopped {
            // It may have read a stub's description, and be about to act upon it.
            let Some(stack) = threads.stack(ranges, thread) else { return Ok(RestoreOutcome::Busy) };
            let unwinds = unwinder(thread.registers.rip) || stack.iter().any(|word| unwinder(*word));
            if unwinds && stack.iter().any(|word| self.original(*word).is_some()) {
                return Ok(RestoreOutcome::Busy);
            }
        }
        for (from, to) in runs {
            self.replace_in_memory(memory, from, to)?;
        }
        for thread in &mut threads.stopped {
            let r = &mut thread.registers;
            let all = [
                &mut r.r15, &mut r.r14, &mut r.r13, &mut r.r12, &mut r.r11, &mut r.r10, &mut r.r9, &mut r.r8,
                &mut r.rbp, &mut r.rdi, &mut r.rsi, &mut r.rdx, &mut r.rcx, &mut r.rax, &mut r.rbx,
            ];
            let mut changed = false;
            for register in all {
                if let Some(original) = self.original(*register) {
                    (*register, changed) = (original, true);
                }
            }
            if changed {
                set_registers(thread.tid, r)?;
            }
            // It may be in the middle of copying a stack; and what was copied last stays there.
            let mut vectors = vector_registers(thread.tid)?;
            if self.replace_in_bytes(&mut vectors) {
                set_vector_registers(thread.tid, &mut vectors)?;
            }
        }
        Ok(RestoreOutcome::All)
    }

    /// Replaces those in words of 8 bytes; returns whether there were any.
    fn replace_in_bytes(&self, bytes: &mut [u8]) -> bool {
        let mut any = false;
        for word in bytes.chunks_exact_mut(8) {
            let value = u64::from_le_bytes(*word.first_chunk().unwrap_or(&[0; 8]));
            if let Some(original) = self.original(value) {
                word.copy_from_slice(&original.to_le_bytes());
                any = true;
            }
        }
        any
    }

    fn replace_in_memory(&self, memory: &Memory, from: u64, to: u64) -> Result<(), ImplantError> {
        for at in (from..to).step_by((PAGES_PER_READ * PAGE_BYTES) as usize) {
            let bytes = memory.read(at, (to - at).min(PAGES_PER_READ * PAGE_BYTES) as usize)?;
            for (word, place) in words(&bytes).zip((at..).step_by(8)) {
                if let Some(original) = self.original(word) {
                    memory.write(place, &original.to_le_bytes())?;
                }
            }
        }
        Ok(())
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks_exact(8).map(|w| u64::from_le_bytes(*w.first_chunk().unwrap_or(&[0; 8])))
}

/// Returns the parts of a process's memory that may hold return addresses; `None`: there are too many.
fn filled_ranges(
    pid: u32,
    ranges: &[MappedRange],
    own: &[(u64, u64)],
) -> Result<Option<Vec<(u64, u64)>>, ImplantError> {
    let is_own = |r: &&MappedRange| own.iter().any(|(at, size)| r.from < at + size && *at < r.to);
    let searched: Vec<&MappedRange> = ranges.iter().filter(|r| may_hold_returns(r) && !is_own(r)).collect();
    if searched.iter().map(|r| r.to - r.from).sum::<u64>() > ADDRESS_RANGE_BYTES_MAX {
        return Ok(None);
    }
    let pages = File::open(format!("/proc/{pid}/pagemap")).map_err(ImplantError::NotTraced)?;
    let (mut runs, mut bytes): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
    for range in searched {
        for from in (range.from..range.to).step_by((PAGES_PER_READ * PAGE_BYTES) as usize) {
            let to = range.to.min(from + PAGES_PER_READ * PAGE_BYTES);
            let mut entries = vec![0; ((to - from) / PAGE_BYTES * 8) as usize];
            pages.read_exact_at(&mut entries, from / PAGE_BYTES * 8)?;
            for (_, at) in words(&entries)
                .zip((from..).step_by(PAGE_BYTES as usize))
                .filter(|(page, _)| page & PAGEMAP_PRESENT_OR_SWAPPED != 0)
            {
                bytes += PAGE_BYTES;
                match runs.last_mut() {
                    Some((_, end)) if *end == at => *end += PAGE_BYTES,
                    _ => runs.push((at, at + PAGE_BYTES)),
                }
            }
            if bytes > SEARCHED_BYTES_MAX {
                return Ok(None);
            }
        }
    }
    Ok(Some(runs))
}

/// Not code, nor files that other programs write: only memory that has no other name.
fn may_hold_returns(range: &MappedRange) -> bool {
    let anonymous = range.ino == 0 || ["/dev/zero", "/memfd:", "/SYSV"].iter().any(|name| range.name.starts_with(name));
    let kernel = ["[vvar", "[vdso", "[vsyscall", "[uprobes"].iter().any(|name| range.name.starts_with(name));
    !kernel && (range.writable && (range.private || anonymous) || range.readable && range.ino == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stubs(originals: &[u64]) -> Stubs {
        let mut all = originals.to_vec();
        all.resize(STUBS, 0);
        Stubs { from: 0x7000_0000_0000, originals: all }
    }

    #[test]
    fn stub_leads_to_what_it_stands_for() {
        let stubs = stubs(&[0x1111, 0x7000_0000_0000, 0, 0x7000_0000_0018]);
        let original = |n: u64| stubs.original(stubs.from + n);
        assert_eq!((original(0), original(8)), (Some(0x1111), Some(0x1111)), "one that stands for another");
        assert_eq!((original(16), original(24)), (None, None), "one that is unused, one that stands for itself");
        assert_eq!(stubs.original(5), None);
        assert!(!stubs.is_stub(stubs.from + 5) && !stubs.is_stub(stubs.from + STUBS as u64 * STUB_SIZE));
        assert!(stubs.any_used() && !self::stubs(&[]).any_used());
    }

    #[test]
    fn own_memory_is_found_and_replaced() {
        let pid = std::process::id();
        let memory = Memory::for_process(pid).unwrap();
        let stubs = stubs(&[0x1234]);
        let held = vec![7, stubs.from, stubs.from + 1, stubs.from];
        let at = held.as_ptr() as u64;
        let runs = filled_ranges(pid, &super::super::memory::mapped_ranges(pid).unwrap(), &[]).unwrap().unwrap();
        let (from, _) = *runs.iter().find(|(from, to)| (*from..*to).contains(&at)).unwrap();
        assert!(runs.iter().all(|(from, to)| from < to && from.is_multiple_of(PAGE_BYTES)));
        stubs.replace_in_memory(&memory, from.max(at & !(PAGE_BYTES - 1)), at + 24).unwrap();
        // Read anew: the compiler knows of no change.
        let now = std::hint::black_box(&held);
        assert_eq!(now[..], [7, 0x1234, stubs.from + 1, stubs.from]);
        let elsewhere = [(at & !(PAGE_BYTES - 1), PAGE_BYTES)];
        let runs = filled_ranges(pid, &super::super::memory::mapped_ranges(pid).unwrap(), &elsewhere).unwrap().unwrap();
        assert!(!runs.iter().any(|(from, to)| (*from..*to).contains(&at)), "the object's own memory");
    }
}
