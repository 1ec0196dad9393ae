//! Puts a hash of the program's sources into it: a guest or a device of another architecture runs another build of the same program, and only
//! that tells whether it is the same (`model::program`).

use sha2::{Digest as _, Sha256};
use std::error::Error;
use std::path::{Path, PathBuf};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut files = vec![root.join("Cargo.lock")];
    println!("cargo::rerun-if-changed={}", files[0].display());
    // The engine of `fathom sql` is a program of its own.
    for crate_ in
        sorted_entries(&root.join("crates"))?.into_iter().filter(|path| path.is_dir() && !path.ends_with("sql"))
    {
        let is_built = |path: &PathBuf| !path.ends_with("tests") && !path.ends_with("examples");
        for part in sorted_entries(&crate_)?.into_iter().filter(is_built) {
            println!("cargo::rerun-if-changed={}", part.display());
            collect_files(part, &mut files)?;
        }
    }
    let mut hash = Sha256::new();
    for file in &files {
        let (name, bytes) = (file.strip_prefix(&root)?.to_string_lossy().into_owned(), std::fs::read(file)?);
        // With their lengths, so that nothing moves from one to the next unnoticed.
        hash.update(format!("{} {name} {} ", name.len(), bytes.len()));
        hash.update(bytes);
    }
    let hash: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    println!("cargo::rustc-env=FATHOM_SOURCES={hash}");
    Ok(())
}

/// Everything in a directory, in an order that is the same everywhere.
fn sorted_entries(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    paths.sort();
    Ok(paths)
}

fn collect_files(path: PathBuf, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if !path.is_dir() {
        files.push(path);
        return Ok(());
    }
    sorted_entries(&path)?.into_iter().try_for_each(|path| collect_files(path, files))
}
