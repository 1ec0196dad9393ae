//! The cost to a program of a probe on one of its functions: two traps, at the entry and at the return.
//!
//! The kernel's statistics time the programs that the traps run, not the traps, which are most of the cost: an exception, the
//! instruction that the probe displaced, and a second exception instead of the return. So functions of this process are probed like
//! the others, one for each kind of first instruction ([`FirstInstruction`]), and called in batches before and after the recording. Their
//! programs find that this process is not recorded and return at once.
//!
//! *Uncertainty*: this is this process's cost, with everything that the traps touch in its caches, at the clock speed at those
//! times. The batches' quartiles are reported with the median; cache lines of the traced program that the traps evict are not
//! included.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;

/// Number of calls per batch, and of batches at each of the two times: some milliseconds in total.
const BATCH_CALLS: u32 = 50;
const BATCH_COUNT: usize = 21;

/// A cost: the median of what was measured and its spread, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Price {
    /// Median.
    pub ns: f64,
    /// First quartile.
    pub low_ns: f64,
    /// Third quartile.
    pub high_ns: f64,
    /// The part of `ns` between the two times at which the programs read their clocks, and thus in what they measure.
    pub inside_ns: f64,
}

/// How a probed function begins, which decides the cost of a trap: the kernel emulates a push itself, and lets the processor execute
/// all other instructions out of line, followed by a second exception (in a virtual machine five times as expensive).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FirstInstruction {
    /// With an instruction that the kernel emulates.
    Emulated,
    /// With another one.
    Stepped,
}

impl FirstInstruction {
    /// Returns the kind of a function from its first bytes (x86_64: `push_setup_xol_ops` and `branch_setup_xol_ops` in
    /// arch/x86/kernel/uprobes.c; on arm64 all relevant ones are stepped).
    pub fn from_code(code: &[u8]) -> Self {
        let emulated = cfg!(target_arch = "x86_64")
            && match code {
                // push, with or without the prefix for the higher registers; nop; a call or jump.
                [0x50..=0x57 | 0x90 | 0xe8 | 0xe9 | 0xeb, ..] | [0x41, 0x50..=0x57, ..] => true,
                // Longer nops.
                [0x0f, 0x1f, ..] | [0x66, 0x90, ..] | [0x66, 0x0f, 0x1f, ..] => true,
                _ => false,
            };
        if emulated { Self::Emulated } else { Self::Stepped }
    }
}

/// The role of a probed function in the recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbedFunction {
    /// `sqlite3_step`.
    Step,
    /// One of those that prepare statements.
    Prepare,
    /// One named by `--op`.
    Function,
}

// The functions to be called, in assembly, since no compiler guarantees their first instructions.
#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".pushsection .text.fathom_trap, \"ax\", @progbits",
    ".balign 16",
    "fathom_trap_emulated: push rbp",
    "pop rbp",
    "mov eax, edi",
    "ret",
    ".balign 16",
    "fathom_trap_stepped: mov eax, edi",
    "ret",
    ".balign 16",
    "fathom_trap_free: push rbp",
    "pop rbp",
    "mov eax, edi",
    "ret",
    ".globl fathom_trap_emulated, fathom_trap_stepped, fathom_trap_free",
    ".popsection",
);
#[cfg(not(target_arch = "x86_64"))]
core::arch::global_asm!(
    ".pushsection .text.fathom_trap, \"ax\", @progbits",
    ".balign 16",
    "fathom_trap_emulated: nop",
    "ret",
    ".balign 16",
    "fathom_trap_stepped: stp x29, x30, [sp, #-16]!",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".balign 16",
    "fathom_trap_free: stp x29, x30, [sp, #-16]!",
    "ldp x29, x30, [sp], #16",
    "ret",
    ".globl fathom_trap_emulated, fathom_trap_stepped, fathom_trap_free",
    ".popsection",
);

unsafe extern "C" {
    fn fathom_trap_emulated(n: u32) -> u32;
    fn fathom_trap_stepped(n: u32) -> u32;
    fn fathom_trap_free(n: u32) -> u32;
}

type TrapFunction = unsafe extern "C" fn(u32) -> u32;

fn trap_function(begin: FirstInstruction) -> TrapFunction {
    match begin {
        FirstInstruction::Emulated => fathom_trap_emulated,
        FirstInstruction::Stepped => fathom_trap_stepped,
    }
}

/// Returns the file offset of the function with that beginning in this program; `None` if it is unknown.
pub fn trap_offset(begin: FirstInstruction) -> Option<u64> {
    offset_of(&std::fs::read_to_string("/proc/self/maps").ok()?, trap_function(begin) as *const () as u64)
}

/// Returns this program's file, by a path that works even if it was replaced.
pub fn own_program() -> &'static Path {
    Path::new("/proc/self/exe")
}

/// Returns the offset of an address in the mapped file.
fn offset_of(maps: &str, address: u64) -> Option<u64> {
    maps.lines().find_map(|line| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let (from, to) = (u64::from_str_radix(from, 16).ok()?, u64::from_str_radix(to, 16).ok()?);
        let offset = u64::from_str_radix(words.nth(1)?, 16).ok()?;
        (from..to).contains(&address).then(|| address - from + offset)
    })
}

/// Measures how long the two traps of a call take, batch by batch, in ns.
pub fn measure_batches(begin: FirstInstruction, into: &mut Vec<f64>) {
    let time = |function: TrapFunction| {
        let function = black_box(function);
        let start = Instant::now();
        for n in 0..BATCH_CALLS {
            // SAFETY: it takes a number, returns one and leaves everything else unchanged.
            black_box(unsafe { function(n) });
        }
        start.elapsed().as_nanos() as f64 / f64::from(BATCH_CALLS)
    };
    // The first calls bring the code and the kernel's tables into the caches.
    time(trap_function(begin));
    time(fathom_trap_free);
    into.extend((0..BATCH_COUNT).map(|_| (time(trap_function(begin)) - time(fathom_trap_free)).max(0.0)));
}

/// Returns the cost from these batches; `None` if there are none.
pub fn price_of_batches(batches: &mut [f64]) -> Option<Price> {
    batches.sort_by(f64::total_cmp);
    let at = |part: f64| batches.get((part * (batches.len().checked_sub(1)?) as f64).round() as usize).copied();
    let ns = at(0.5)?;
    Some(Price { ns, low_ns: at(0.25)?, high_ns: at(0.75)?, inside_ns: ns / 2.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn function_is_found_in_own_program_file() {
        let maps = "55d0-55e0 r--p 00000000 fe:00 7 /bin/x\n55e0-5600 r-xp 00000100 fe:00 7 /bin/x\n";
        assert_eq!(offset_of(maps, 0x55e8), Some(0x108));
        assert_eq!(offset_of(maps, 0x5600), None);
        let code = std::fs::read(own_program()).unwrap();
        for begin in [FirstInstruction::Emulated, FirstInstruction::Stepped] {
            let at = usize::try_from(trap_offset(begin).unwrap()).unwrap();
            if cfg!(target_arch = "x86_64") {
                assert_eq!(FirstInstruction::from_code(&code[at..at + 4]), begin);
            }
        }
    }

    #[test]
    fn emulated_instructions_are_recognised_by_first_bytes() {
        for (code, emulated) in [
            (&[0x55, 0x48, 0x89, 0xe5][..], true), // push rbp
            (&[0x41, 0x57, 0x41, 0x56], true),     // push r15
            (&[0xf3, 0x0f, 0x1e, 0xfa], false),    // endbr64
            (&[0x48, 0x85, 0xff], false),          // test rdi, rdi
            (&[0x66, 0x0f, 0x1f, 0x44], true),     // nop
            (&[], false),
        ] {
            let begin = if emulated && cfg!(target_arch = "x86_64") {
                FirstInstruction::Emulated
            } else {
                FirstInstruction::Stepped
            };
            assert_eq!(FirstInstruction::from_code(code), begin, "{code:x?}");
        }
    }

    #[test]
    fn price_is_median_of_batches() {
        assert_eq!(price_of_batches(&mut []), None);
        let mut batches: Vec<f64> = (0..=100).rev().map(f64::from).collect();
        assert_eq!(
            price_of_batches(&mut batches),
            Some(Price { ns: 50.0, low_ns: 25.0, high_ns: 75.0, inside_ns: 25.0 })
        );
        let mut batches = Vec::new();
        measure_batches(FirstInstruction::Stepped, &mut batches);
        assert_eq!(batches.len(), BATCH_COUNT);
    }
}
