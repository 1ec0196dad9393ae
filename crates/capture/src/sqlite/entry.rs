//! Where a function begins, the only place for a probe on it.
//!
//! A probe elsewhere changes what the program computes:
//!
//! - A return probe replaces the word at the stack pointer. That is the return address at a function's first instruction, and whatever
//!   the function keeps there after it.
//! - On x86-64, Linux 6.18 and later replace a probed NOP of 5 bytes by a call (`arch_uprobe_optimize` in arch/x86/kernel/uprobes.c),
//!   which writes below the stack pointer. At a function's first instruction nothing of value is there. Within a function that calls no
//!   other it may be the red zone (System V ABI): 128 bytes in which such a function keeps its variables. Static probes (USDT) are
//!   NOPs within functions.
//!
//! So only a symbol that is a function by type is accepted, unless it lies within another function. Some functions are refused all the
//! same, since a return probe harms their programs: those that are not called, so that the word at the stack pointer is no return
//! address; those that keep it for later use, which would end in the middle of the kernel's own code for returns; and those of Go, which
//! moves stacks and reads the return addresses on them.
//!
//! *Uncertainty*: types and sizes are what the compiler or the author of the assembly wrote.

use super::decode::Machine;
use super::elf::{Elf, ElfError, Symbol, SymbolTable};
use super::{DEBUG_FILES_DIRECTORY, debug_file};
use object::elf::STT_GNU_IFUNC;
use std::path::Path;

/// Why there is no place for a probe in a file under a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// The file cannot be read, or is no program.
    #[error("{0}")]
    NoProgram(String),
    /// No symbol has the name, or its code is not in the file.
    #[error("symbol not found")]
    NoSymbol,
    /// It is a label, or data.
    #[error(
        "its symbol is not a function, but a label or data: a probe within a function would change what the function computes (it \
         may write to the red zone, and its return probe overwrites the stack); in assembly, `.type {0}, @function` declares one"
    )]
    NotFunction(String),
    #[error(
        "it is a place within the function {0}: a probe there would change what that function computes (it may write to the red \
         zone, and its return probe overwrites the stack)"
    )]
    Within(String),
    /// The loader decides which function it is.
    #[error("the loader chooses its implementation (IFUNC); name that one")]
    Indirect,
    /// It is entered otherwise than by a call.
    #[error("it is not called, but jumped to: a return probe would overwrite what is on the stack there")]
    NotCalled,
    #[error("it stores where it returns to, which a return probe changes: the next jump there would end the program")]
    KeepsReturn,
    #[error("it is written in Go, whose stacks move: a return probe would end the program")]
    Go,
    /// The kernel has no probes for such programs.
    #[error("this kernel has no probes on functions of 32-bit programs")]
    No32Bit,
}

/// Functions whose caller, or the kernel, jumps to them: a process's first instruction and the return from signal handlers.
const UNCALLED_FUNCTIONS: [&str; 4] = ["_start", "__restore_rt", "__restore", "__kernel_rt_sigreturn"];

/// Functions that store where they return to, for use at any time.
const RETURN_KEEPING_FUNCTIONS: [&str; 8] = [
    "setjmp",
    "_setjmp",
    "__sigsetjmp",
    "sigsetjmp",
    "__sigsetjmp_cancel",
    "getcontext",
    "__getcontext",
    "swapcontext",
];

/// Returns the offset in a file, in bytes, of the first instruction of the function with this name.
pub(crate) fn find_entry(path: &Path, name: &str) -> Result<u64, EntryError> {
    if name.is_empty() {
        return Err(EntryError::NoSymbol);
    }
    let elf = Elf::open_any(path)?;
    let find = |elf: &Elf, table| elf.symbols(table, name, &[name]).get(name).copied();
    let own = find(&elf, SymbolTable::Full).or_else(|| find(&elf, SymbolTable::Dynamic));
    // Of functions around it, a stripped file may know nothing.
    let debug = debug_file(&elf, path, Path::new(DEBUG_FILES_DIRECTORY)).and_then(|path| Elf::open_any(&path).ok());
    let symbol = own.or_else(|| find(debug.as_ref()?, SymbolTable::Full)).ok_or(EntryError::NoSymbol)?;
    check_symbol(&elf, name, symbol)?;
    if let Some(around) =
        [Some(&elf), debug.as_ref()].into_iter().flatten().find_map(|f| f.function_around(symbol.address))
    {
        return Err(EntryError::Within(around));
    }
    elf.code_offset(symbol.address).ok_or(EntryError::NoSymbol)
}

fn check_symbol(elf: &Elf, name: &str, symbol: Symbol) -> Result<(), EntryError> {
    if !elf.is_64_bit && elf.machine == Machine::Aarch64 {
        // arch_uprobe_analyze_insn in arch/arm64/kernel/probes/uprobes.c
        return Err(EntryError::No32Bit);
    }
    if symbol.kind == STT_GNU_IFUNC.0 {
        return Err(EntryError::Indirect);
    }
    if !symbol.is_function() {
        return Err(EntryError::NotFunction(name.into()));
    }
    // Parts of functions that compilers move away from the rest: `f.cold`, `f.cold.0`.
    let is_part = name.split('.').skip(1).any(|suffix| suffix == "cold");
    if UNCALLED_FUNCTIONS.contains(&name) || is_part || elf.entry_address == Some(symbol.address) {
        return Err(EntryError::NotCalled);
    }
    if RETURN_KEEPING_FUNCTIONS.contains(&name) {
        return Err(EntryError::KeepsReturn);
    }
    // Names of Go's functions begin with their package's; those of C, which run on a stack of their own, have no dot.
    if name.contains('.') && elf.has_section(".gopclntab") {
        return Err(EntryError::Go);
    }
    Ok(())
}

impl From<ElfError> for EntryError {
    fn from(refusal: ElfError) -> Self {
        Self::NoProgram(super::FindError::from(refusal).to_string())
    }
}
