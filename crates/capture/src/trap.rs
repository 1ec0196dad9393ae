//! What it costs a program that a probe sits at one of its functions: two traps, at the entry and at the return.
//!
//! The kernel's statistics time the programs that the traps run, not the traps, which are most of the price: an exception,
//! the instruction that the probe displaced, and a second exception instead of the return. So one function of this very
//! process is probed like the others, and called in batches before and after the recording. Its programs find that this process is
//! not recorded and return at once.
//!
//! *Uncertainty*: it is this process's price, with all in its caches that the traps touch, at the clock speed of those
//! moments. The batches' quartiles are told with the median; what the traps displace from the caches of the traced program is in
//! none of it.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Calls of a batch, and batches at each of the two times: some milliseconds in all.
const CALLS: u32 = 50;
const BATCHES: usize = 21;

/// Of a price, the middle of what was measured and how far it reached, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Median.
    pub ns: f64,
    /// First quartile.
    pub low_ns: f64,
    /// Third quartile.
    pub high_ns: f64,
}

/// The probed function. It must be one: neither inlined nor merged with the other.
#[inline(never)]
extern "C" fn trapped(n: u32) -> u32 {
    black_box(n ^ 0x5a5a_0001)
}

/// The same without a probe.
#[inline(never)]
extern "C" fn free(n: u32) -> u32 {
    black_box(n ^ 0x5a5a_0002)
}

/// Where in this program's file the function is that is to be probed; `None` if that cannot be told.
pub fn place() -> Option<u64> {
    offset_of(&std::fs::read_to_string("/proc/self/maps").ok()?, trapped as *const () as u64)
}

/// This program's file, as it can be opened even if it was replaced.
pub fn program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// The offset in the mapped file of an address.
fn offset_of(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        (from..to).contains(&address).then(|| address - from + offset)
    })
}

/// How long the two traps of a call took, batch by batch, in ns.
pub fn measure(into: &mut Vec<f64>) {
    let time = |function: extern "C" fn(u32) -> u32| {
        let function = black_box(function);
        let start = Instant::now();
        for n in 0..CALLS {
            black_box(function(n));
        }
        start.elapsed().as_nanos() as f64 / f64::from(CALLS)
    };
    // The first brings the code and the kernel's tables into the caches.
    (time(trapped), time(free));
    into.extend((0..BATCHES).map(|_| (time(trapped) - time(free)).max(0.0)));
}

/// The price by these batches; `None` if there are none.
pub fn price(batches: &mut [f64]) -> Option<Price> {
    batches.sort_by(f64::total_cmp);
    let at = |part: f64| batches.get((part * (batches.len().checked_sub(1)?) as f64).round() as usize).copied();
    Some(Price { ns: at(0.5)?, low_ns: at(0.25)?, high_ns: at(0.75)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_found_in_this_programs_file() {
        let maps = "55d0-55e0 r--p 00000000 fe:00 7 /bin/x\n55e0-5600 r-xp 00000100 fe:00 7 /bin/x\n";
        assert_eq!(offset_of(maps, 0x55e8), Some(0x108));
        assert_eq!(offset_of(maps, 0x5600), None);
        let code = std::fs::read(program()).unwrap();
        let at = usize::try_from(place().unwrap()).unwrap();
        // SAFETY: the function's first bytes are mapped to be read as well as run.
        let here = unsafe { std::slice::from_raw_parts(trapped as *const u8, 8) };
        assert_eq!(&code[at..at + 8], here);
    }

    #[test]
    fn a_price_is_the_middle_of_its_batches() {
        assert_eq!(price(&mut []), None);
        let mut batches: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(price(&mut batches), Some(Price { ns: 50.0, low_ns: 25.0, high_ns: 75.0 }));
        let mut batches = Vec::new();
        measure(&mut batches);
        assert_eq!(batches.len(), BATCHES);
    }
}
