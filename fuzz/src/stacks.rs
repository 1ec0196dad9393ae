//! Stacks of programs, and the files that they are unwound by: both are whatever a recorded program makes of them.

use capture::stacks::FuzzTrial;
use std::cell::RefCell;
use std::io::Write as _;

thread_local! {
    /// It reads this program's own files once.
    static STACK_TRIAL: RefCell<FuzzTrial> = RefCell::default();
}

fn make_record(what: u32, count: u32, at: [u64; 4], rest: &[u64]) -> Vec<u8> {
    let halves = [what, 7, 8, count];
    let words = [1_000, 2_000, at[0], at[1], at[2], at[3], 0, 0];
    let halves = halves.iter().flat_map(|half| half.to_le_bytes());
    halves.chain(words.iter().chain(rest).flat_map(|word| word.to_le_bytes())).collect()
}

/// A sleep; a stack that leads through this program's functions; the texts that are read of the kernel; symbols.
pub fn stack_seeds() -> Vec<Vec<u8>> {
    let here = stack_seeds as *const () as u64;
    let sp = 0x7ffc_0000_0410_u64;
    let asleep = make_record(1, 3, [here, sp, sp, 0], &[0xffff_ffff_8100_0123, 0xffff_ffff_8100_0456, 0]);
    let mut memory = vec![0; 32];
    // Frame pointers that lead upwards, with return addresses into code between them.
    memory.extend((0..2 * 128_u64).map(|i| if i % 2 == 0 { sp + 8 * (i + 4) } else { here + 3 * i }));
    let call = make_record(2, 2, [here + 9, sp, sp + 32, here + 5], &memory);
    let texts = [
        "55d0c0001000-55d0c0005000 r-xp 00001000 fe:01 4242    /usr/bin/a b\n7fff0000-7fff1000 r-xp 0 0:0 0 [vdso]\n",
        "ffffffff81000000 T _stext\nffffffff81000100 t schedule\nffffffffc0000000 t ext4_sync_file\t[ext4]\n",
        "_ZNSt6vectorIiSaIiEE9push_backERKi",
        "_RNvCs4fqI2P2rA04_3app4main",
    ];
    [asleep, call].into_iter().chain(texts.iter().map(|text| text.as_bytes().to_vec())).collect()
}

/// Reads it as all of these.
pub fn check_stack(bytes: &[u8]) {
    STACK_TRIAL.with_borrow_mut(|trial| trial.read(bytes));
}

/// The beginning of a small program, or of this one.
pub fn code_seeds() -> Vec<Vec<u8>> {
    let small = std::fs::read("/bin/true").or_else(|_| std::fs::read("/system/bin/true"));
    small.into_iter().map(|bytes| bytes.into_iter().take(64 << 10).collect()).collect()
}

/// Reads it as a file of code.
pub fn check_code(bytes: &[u8]) {
    let written = tempfile::tempfile().and_then(|mut file| file.write_all(bytes).map(|()| file));
    if let Ok(file) = written {
        FuzzTrial::read_file(file);
    }
}
