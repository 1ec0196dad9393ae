//! The destination of a result, named by `-o` (or `--csv`, `--markdown`): a file, which is only replaced by a complete one, or standard
//! output, which `-` stands for if the result is one file. An archive, or one file per table, is a directory: for those `-` is refused
//! before anything is measured.

use crate::{Usage, output};
use anyhow::{Context as _, Result};
use archive::atomic_file;
use clap::builder::{PathBufValueParser, TypedValueParser as _, ValueParser};
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};

/// The name that stands for standard output. A file of that name is `./-`.
const STDOUT_NAME: &str = "-";

/// Whether a name stands for standard output: messages must not go there then.
pub fn is_stdout(output: &Path) -> bool {
    output.as_os_str() == STDOUT_NAME
}

/// Writes what `fill` writes; returns nothing if the reader of standard output left early.
pub fn write<T>(output: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<T>) -> Result<Option<T>> {
    if !is_stdout(output) {
        return Ok(Some(atomic_file::write(output, fill)?));
    }
    let mut out = BufWriter::new(io::stdout().lock());
    match fill(&mut out).and_then(|filled| out.flush().map(|()| filled)) {
        Err(error) if output::reader_has_gone(&error) => Ok(None),
        filled => Ok(Some(filled.context("cannot write to standard output")?)),
    }
}

/// Writes a text. On a terminal it is escaped; a pipe gets the same bytes as a file.
pub fn write_text(output: &Path, text: &str) -> Result<()> {
    if is_stdout(output) && io::stdout().is_terminal() {
        output::print_text(text);
        return Ok(());
    }
    write(output, |out| out.write_all(text.as_bytes())).map(drop)
}

/// Refuses `--json` together with a page that takes standard output for itself.
pub fn check_one_on_stdout(json: bool, output: Option<&Path>) -> Result<()> {
    if json && output.is_some_and(is_stdout) {
        return Err(Usage("--json and -o - both ask for standard output; give the page a name".into()).into());
    }
    Ok(())
}

/// Accepts the name of an archive or another directory to be created.
pub fn check_directory(output: PathBuf) -> Result<PathBuf, String> {
    if is_stdout(&output) {
        return Err(
            "the result is a directory, which cannot go to standard output; a directory of that name is ./-".into()
        );
    }
    Ok(output)
}

/// Parses such a name from the command line.
pub fn directory_parser() -> ValueParser {
    PathBufValueParser::new().try_map(check_directory).into()
}
