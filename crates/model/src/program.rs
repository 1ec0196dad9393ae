//! This program for another processor: where it is searched, and whether it was built from the same sources. Devices and guests both need
//! one, so this code is shared.

use std::path::{Path, PathBuf};

/// Number of parents of a program in which the source tree's `target` may be: target/release/fathom,
/// target/TRIPLE/release/fathom.
const PARENTS_MAX: usize = 4;

/// Precedes the hash of its sources in a program.
pub const SOURCES_PREFIX: &str = "fathom-sources:";
/// Number of digits of that hash.
const HASH_DIGITS: usize = 64;

/// A program for another processor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Build {
    /// It was built from the same sources as ours, as far as ours states its own.
    Same(PathBuf),
    /// It was built from others: what it records or measures may differ.
    Other(PathBuf),
}

/// Returns where a program for `machine` (as in `uname -m`) may be: next to `ours` as `fathom-MACHINE`, or where the source tree builds
/// it. It need not exist, or be for that processor.
fn candidate_paths<'a>(ours: &'a Path, machine: &'a str) -> impl Iterator<Item = PathBuf> + 'a {
    let built = format!("{machine}-unknown-linux-musl/release/fathom");
    let beside = ours.with_file_name(format!("fathom-{machine}"));
    std::iter::once(beside)
        .chain(ours.ancestors().skip(1).take(PARENTS_MAX).map(move |directory| directory.join(&built)))
}

/// Returns the program for `machine` that belongs to `ours`: `runs` decides whether a file is a program for it, `read` returns its
/// contents. One from the same sources is preferred.
pub fn find_build(
    ours: &Path,
    machine: &str,
    runs: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Option<Vec<u8>>,
) -> Option<Build> {
    let found: Vec<PathBuf> = candidate_paths(ours, machine).filter(|path| runs(path)).collect();
    let sources = |path: &Path| read(path).and_then(|bytes| sources_hash(&bytes));
    let own = if found.is_empty() { None } else { sources(ours) };
    let is_same = |path: &&PathBuf| own.is_none() || sources(path) == own;
    let same = found.iter().find(is_same).cloned().map(Build::Same);
    same.or_else(|| found.into_iter().next().map(Build::Other))
}

/// Returns the hash of the sources from which a program states that it was built.
fn sources_hash(program: &[u8]) -> Option<String> {
    let hash = |at: usize| {
        let digits = program.get(at + SOURCES_PREFIX.len()..)?.get(..HASH_DIGITS)?;
        digits.iter().all(u8::is_ascii_hexdigit).then(|| String::from_utf8_lossy(digits).into_owned())
    };
    let mut told =
        program.windows(SOURCES_PREFIX.len()).enumerate().filter(|(_, part)| *part == SOURCES_PREFIX.as_bytes());
    told.find_map(|(at, _)| hash(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_build_of_the_same_sources_is_preferred_to_another() {
        let (ours, beside) = ("target/release/fathom", "target/release/fathom-aarch64");
        let built = "target/aarch64-unknown-linux-musl/release/fathom";
        // The text by itself is in each program, too.
        let program = |hash: &str| {
            format!("code {SOURCES_PREFIX} code {SOURCES_PREFIX}{} code", hash.repeat(HASH_DIGITS)).into_bytes()
        };
        let found = |files: &[(&str, &str)]| {
            let files: BTreeMap<&Path, Vec<u8>> =
                files.iter().map(|(path, hash)| (Path::new(*path), program(hash))).collect();
            find_build(Path::new(ours), "aarch64", |path| files.contains_key(path), |path| files.get(path).cloned())
        };
        assert_eq!(found(&[(ours, "a")]), None);
        assert_eq!(found(&[(ours, "a"), (beside, "")]), Some(Build::Other(beside.into())));
        assert_eq!(found(&[(ours, "a"), (beside, "b")]), Some(Build::Other(beside.into())));
        assert_eq!(found(&[(ours, "a"), (beside, "b"), (built, "a")]), Some(Build::Same(built.into())));
        // One without a hash takes the first that it finds.
        assert_eq!(found(&[(ours, ""), (beside, "b"), (built, "a")]), Some(Build::Same(beside.into())));
    }
}
