//! Inputs that are kept in `fuzz/corpus/TARGET/`: one a file where one once failed, and packed into one file those that a run guided by
//! coverage found to reach other code than all others (`scripts/fuzz`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

/// The file of many inputs: compressed by zlib, each behind its length.
const PACKED_FILE: &str = "coverage.packed";

/// What a packed file may hold: it is read whole.
const UNPACKED_BYTES_MAX: usize = 1 << 26;

/// An input and its name.
pub type KeptInput = (String, Vec<u8>);

/// Where a target's are.
pub fn corpus_directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// A target's inputs, each with its name.
pub fn kept_inputs(target: &str) -> io::Result<Vec<KeptInput>> {
    let directory = corpus_directory(target);
    let mut all = Vec::new();
    if !directory.is_dir() {
        return Ok(all);
    }
    for path in sorted_files(&directory)? {
        let (name, bytes) = (path.display().to_string(), std::fs::read(&path)?);
        if !path.ends_with(PACKED_FILE) {
            all.push((name, bytes));
            continue;
        }
        let inputs = unpack_inputs(&bytes).ok_or_else(|| io::Error::other(format!("{name} is damaged")))?;
        all.extend(inputs.into_iter().enumerate().map(|(nth, input)| (format!("input {nth} of {name}"), input)));
    }
    Ok(all)
}

/// Packs the files of a directory, in place of what was packed before; how many inputs and bytes it made.
pub fn pack_files(target: &str, from: &Path) -> io::Result<(usize, usize)> {
    let inputs: BTreeSet<Vec<u8>> = sorted_files(from)?.into_iter().map(std::fs::read).collect::<io::Result<_>>()?;
    let bytes = pack_inputs(&inputs);
    std::fs::create_dir_all(corpus_directory(target))?;
    std::fs::write(corpus_directory(target).join(PACKED_FILE), &bytes)?;
    Ok((inputs.len(), bytes.len()))
}

fn sorted_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

/// Short ones first, which are much alike.
fn pack_inputs(inputs: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut sorted: Vec<&Vec<u8>> = inputs.iter().collect();
    sorted.sort_by_key(|input| input.len());
    let each = |input: &Vec<u8>| [&(input.len() as u32).to_le_bytes()[..], input].concat();
    miniz_oxide::deflate::compress_to_vec_zlib(&sorted.into_iter().flat_map(each).collect::<Vec<_>>(), 9)
}

fn unpack_inputs(bytes: &[u8]) -> Option<Vec<Vec<u8>>> {
    let whole = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(bytes, UNPACKED_BYTES_MAX).ok()?;
    let (mut rest, mut all) = (&whole[..], Vec::new());
    while let Some((length, after)) = rest.split_first_chunk() {
        let (input, after) = after.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        all.push(input.to_vec());
        rest = after;
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_inputs_are_unpacked_the_same() {
        let inputs = BTreeSet::from([b"longer".to_vec(), Vec::new(), b"b".to_vec()]);
        let bytes = pack_inputs(&inputs);
        assert_eq!(unpack_inputs(&bytes).unwrap(), [b"".to_vec(), b"b".to_vec(), b"longer".to_vec()]);
        assert!((0..bytes.len()).all(|cut| unpack_inputs(&bytes[..cut]).is_none()));
    }
}
