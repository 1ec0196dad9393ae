//! Where this program for another processor is looked for. Devices and guests both need one, so that the places are named once.

use std::path::{Path, PathBuf};

/// Parents of a program in which the source tree's `target` may be: target/release/fathom, target/TRIPLE/release/fathom.
const PARENTS: usize = 4;

/// Where a program for `machine` (as `uname -m` calls it) may be: beside `ours` as `fathom-MACHINE`, or where the source tree builds it.
/// Nothing says yet that it is there, or that it is for that processor.
pub fn builds<'a>(ours: &'a Path, machine: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let built = format!("{machine}-unknown-linux-musl/release/fathom");
    let beside = ours.with_file_name(format!("fathom-{machine}"));
    std::iter::once(beside).chain(ours.ancestors().skip(1).take(PARENTS).map(move |folder| folder.join(&built)))
}
