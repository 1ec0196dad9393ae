//! What was lost, and when: the kernel side counts, this turns growing counts into records of loss.

use crate::Error;
use crate::kernel::clock::boot_ns;
use crate::price::program_info;
use crate::tasks::NO_CPU;
use aya::Pod;
use aya::maps::{MapData, PerCpuArray};
use model::event::{Header, Loss};
use model::{Event, LossSource};
use std::collections::BTreeMap;
use std::os::fd::RawFd;

/// As in `common.h`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuState {
    /// Records so far, those lost included.
    pub seq: u64,
    /// Records that found no room.
    pub lost: u64,
    /// Times a table was full.
    pub table_full: u64,
}

// SAFETY: three u64 without padding, of which every bit pattern is valid.
unsafe impl Pod for CpuState {}

/// Compares the counters with what they were.
pub struct LossWatch {
    cpus: PerCpuArray<MapData, CpuState>,
    last: Vec<CpuState>,
    last_ns: u64,
    recursion: BTreeMap<String, u64>,
    recursion_ns: u64,
    lost: u64,
}

impl LossWatch {
    /// Watches from now on.
    pub fn new(cpus: PerCpuArray<MapData, CpuState>) -> Self {
        let now = boot_ns();
        Self { cpus, last: Vec::new(), last_ns: now, recursion: BTreeMap::new(), recursion_ns: now, lost: 0 }
    }

    /// Records lost so far, whatever lost them.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// The losses since the last look.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn look(&mut self) -> Result<Vec<Event>, Error> {
        let start = self.last_ns;
        let now = boot_ns();
        let values = self.cpus.get(&0, 0).map_err(|e| Error::table("the counters of loss cannot be read", e))?;
        self.last.resize(values.len(), CpuState::default());
        let mut all = Vec::new();
        for (cpu, (new, old)) in values.iter().zip(&mut self.last).enumerate() {
            for (count, source) in
                [(new.lost - old.lost, LossSource::Ring), (new.table_full - old.table_full, LossSource::TableFull)]
            {
                if count > 0 {
                    self.lost += count;
                    all.push(loss(start, now, cpu as u16, count, source, ""));
                }
            }
            *old = *new;
        }
        self.last_ns = now;
        Ok(all)
    }

    /// The runs that programs missed because they were running already on that CPU, since the last look. Which CPU, the
    /// kernel does not say.
    pub fn look_at_programs(&mut self, programs: &[(String, RawFd)]) -> Vec<Event> {
        let start = self.recursion_ns;
        let now = boot_ns();
        let mut all = Vec::new();
        for (name, fd) in programs {
            let Some(info) = program_info(*fd) else { continue };
            let seen = self.recursion.entry(name.clone()).or_default();
            let count = info.recursion_misses - *seen;
            *seen = info.recursion_misses;
            if count > 0 {
                self.lost += count;
                all.push(loss(start, now, NO_CPU, count, LossSource::Recursion, name));
            }
        }
        self.recursion_ns = now;
        all
    }
}

fn loss(start_ns: u64, now: u64, cpu: u16, events: u64, source: LossSource, program: &str) -> Event {
    let record = Loss { start_ns, events, source: source.number(), text: program.into(), ..Loss::default() }.into();
    Event { header: Header { time_ns: now, cpu, ..Header::default() }, record }
}
