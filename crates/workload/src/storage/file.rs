//! Many files, each written or read completely, as the papers' program did in Java (000 section 4.5.2): 512 of 1 MB
//! (1024 and 192 on other devices).

use super::iterations;
use super::machine::Jvm;
use super::seq::parse_block;
use super::state::State;
use super::transfer::Transfer;
use crate::Error;
use crate::jvm::MODES;
use crate::options::{Options, Spec};
use model::Context;
use std::io::Write;
use std::path::Path;

const HELP_SUMMARY: &str = "Many files, each created and written or opened and read completely (paper 000, 4.5.2: 512 files \
    of 1 MB).";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "op", default: "write", help: "write or read" },
    Spec {
        name: "state",
        default: "",
        help: "write: buffered (not synced), synced (each file), direct; read: cold, dropped (root), direct, warm [the first]",
    },
    Spec { name: "files", default: "512", help: "number of files (the papers: 512, 1024, 192)" },
    Spec { name: "size", default: "1M", help: "size of a file, in bytes" },
    Spec { name: "block", default: "64K", help: "bytes per call; a smaller file takes one call" },
    Spec { name: "mode", default: "native", help: "native, or in Java: jvm-int, jvm-c1, jvm-c2 or jvm-tiered" },
    Spec { name: "java", default: "java", help: "path of java" },
    iterations::ITERATIONS_OPTION,
    Spec { name: "dir", default: ".", help: "directory for the files" },
];

/// Runs the workload with `words` as its options.
///
/// # Errors
/// See [`Error`]; the files are removed in any case.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
    let (writes, state) = State::parse(&options, &["buffered", "synced", "direct"])?;
    let size = options.bytes("size")?;
    let block =
        usize::try_from(size).map_or(parse_block(&options)?, |size| size.min(parse_block(&options).unwrap_or(size)));
    if block == 0 || !size.is_multiple_of(block as u64) {
        return Err(Error::Usage(format!("--size must be a multiple of --block ({block} bytes), and at least 1")));
    }
    let transfer = Transfer {
        name: "file",
        files: options.get("files")?,
        blocks: size / block as u64,
        block,
        writes,
        state,
        iterations: iterations::count(&options)?,
        remedy: "--files, --size",
        machine: requested_jvm(&options, state, block)?,
    };
    if transfer.files > 1_000_000 {
        return Err(Error::Usage("--files must be at most 1000000".into()));
    }
    let lines = transfer.run(Path::new(options.text("dir")), context)?;
    out.write_all(lines.bytes())?;
    Ok(())
}

/// The JVM requested by `--mode`.
fn requested_jvm(options: &Options, state: State, block: usize) -> Result<Option<Jvm>, Error> {
    let modes: Vec<&'static str> = std::iter::once("native").chain(MODES.map(|m| m.0)).collect();
    let mode = options.one_of("mode", &modes)?;
    if mode == "native" {
        return Ok(None);
    }
    if state == State::Direct {
        return Err(Error::Usage("--state direct is for --mode native; Java's streams have no O_DIRECT".into()));
    }
    if !block.is_multiple_of(8) {
        return Err(Error::Usage(format!(
            "--mode {mode} needs blocks that are multiples of 8 bytes (--block, --size)"
        )));
    }
    Ok(Some(Jvm { java: options.text("java").into(), mode }))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scratch, mark, run, values};
    use crate::Error;

    #[test]
    fn all_files_are_transferred_and_checked() {
        let scratch = Scratch::new("file");
        for words in ["--op write --state synced", "--op read --state cold", "--op read --state warm"] {
            let lines =
                run(&format!("file {words} --files 9 --size 10000 --block 5000 --iterations 2"), scratch.path())
                    .unwrap();
            assert_eq!((values(&lines, "work")[0], values(&lines, "iteration").len()), (90_000.0, 2));
            let by = lines.last().unwrap()["by"].as_str().unwrap();
            assert!(by.contains("9 files of 9.77 KiB"), "{by}");
            assert_eq!(scratch.left(), 0);
        }
    }

    /// Java writes what Rust checks, and vice versa: their patterns are the same.
    #[test]
    fn java_and_rust_agree_on_the_pattern() {
        if crate::jvm::EMBEDDED_JAR.is_empty() || std::process::Command::new("java").arg("-version").output().is_err() {
            eprintln!("SKIP java_and_rust_agree_on_the_pattern: there is no JDK");
            return;
        }
        let scratch = Scratch::new("file-java");
        for mode in ["jvm-int", "jvm-tiered"] {
            for words in ["--op write --state synced", "--op read --state cold", "--op read --block 24 --size 4800"] {
                let words = format!("file --mode {mode} --files 7 --size 96K --block 12K --iterations 2 {words}");
                let lines = run(&words, scratch.path()).unwrap();
                assert_eq!(values(&lines, "iteration").len(), 2, "{words}");
                assert!(mark(&lines, "mode").unwrap().starts_with(&format!("{mode}: ")), "{lines:?}");
                assert_eq!((&lines.last().unwrap()["verified"], scratch.left()), (&true.into(), 0));
            }
        }
        let result = run("file --mode jvm-int --java /no/such/java --files 1", scratch.path());
        assert!(matches!(&result, Err(Error::Failed(why)) if why.contains("/no/such/java")), "{result:?}");
        assert_eq!(scratch.left(), 0);
    }

    #[test]
    fn small_file_is_transferred_in_one_call() {
        let scratch = Scratch::new("file-small");
        let lines = run("file --op read --files 2 --size 100 --iterations 1", scratch.path()).unwrap();
        assert_eq!(values(&lines, "work"), [200.0]);
    }

    #[test]
    fn invalid_options_are_reported() {
        let scratch = Scratch::new("file-bad");
        for words in [
            "--size 0",
            "--size 100K --block 64K",
            "--files 0",
            "--files 1000001",
            "--block 0",
            "--size x",
            "--mode js",
            "--mode jvm-int --state direct",
            "--mode jvm-int --size 9",
        ] {
            let result = run(&format!("file {words}"), scratch.path());
            assert!(matches!(result, Err(Error::Usage(_))), "{words}: {result:?}");
        }
    }
}
