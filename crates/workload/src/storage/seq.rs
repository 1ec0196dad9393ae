//! One file from start to end, as the papers did with dd (000 section 4.5.1): 1 MB 512 times (1024 on one device, 192 on
//! another), written and then read.

use super::iterations;
use super::state::State;
use super::transfer::Transfer;
use crate::Error;
use crate::options::{Options, Spec};
use model::Context;
use std::io::Write;
use std::path::Path;

const HELP_SUMMARY: &str = "One file, written or read sequentially in blocks (paper 000, 4.5.1: dd, 1 MB 512 times).";

const OPTION_SPECS: &[Spec] = &[
    Spec { name: "op", default: "write", help: "write or read" },
    Spec {
        name: "state",
        default: "",
        help: "write: buffered (not synced), synced, direct; read: cold, dropped (root), direct, warm [the first]",
    },
    Spec { name: "block", default: "1M", help: "block size in bytes" },
    Spec { name: "count", default: "512", help: "number of blocks (the papers: 512, 1024, 192)" },
    iterations::ITERATIONS_OPTION,
    Spec { name: "dir", default: ".", help: "directory for the file" },
];

/// Runs the workload with `words` as its options.
///
/// # Errors
/// See [`Error`]; the file is removed in any case.
pub fn run(words: &[String], context: &Context, out: &mut dyn Write) -> Result<(), Error> {
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, words)?;
    let (writes, state) = State::parse(&options, &["buffered", "synced", "direct"])?;
    let transfer = Transfer {
        name: "seq",
        files: 1,
        blocks: options.get("count")?,
        block: parse_block(&options)?,
        writes,
        state,
        iterations: iterations::count(&options)?,
        remedy: "--count, --block",
        machine: None,
    };
    let lines = transfer.run(Path::new(options.text("dir")), context)?;
    out.write_all(lines.bytes())?;
    Ok(())
}

/// `--block`: up to 1 GiB, since it is held in memory.
pub(crate) fn parse_block(options: &Options) -> Result<usize, Error> {
    match usize::try_from(options.bytes("block")?) {
        Ok(n) if (1..=1 << 30).contains(&n) => Ok(n),
        _ => Err(Error::Usage("--block must lie between 1 and 1G".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Scratch, mark, run, run_with, values};
    use crate::Error;
    use model::Context;
    use std::sync::atomic::Ordering;

    #[test]
    fn every_state_is_verified_and_leaves_nothing() {
        let scratch = Scratch::new("seq");
        for (op, states) in [("write", &["buffered", "synced", "direct"][..]), ("read", &["cold", "direct", "warm"])] {
            for state in states {
                let words = format!("seq --op {op} --state {state} --block 64K --count 5 --iterations 3");
                let lines = match run(&words, scratch.path()) {
                    // A file system without O_DIRECT reports so.
                    Err(Error::Failed(why)) if *state == "direct" => {
                        assert!(why.contains("O_DIRECT"), "{why}");
                        continue;
                    }
                    lines => lines.unwrap(),
                };
                assert_eq!(values(&lines, "iteration").len(), 3, "{words}");
                assert_eq!(values(&lines, "work"), [5.0 * 65536.0]);
                assert_eq!(values(&lines, "requested_bytes").iter().sum::<f64>(), 3.0 * 5.0 * 65536.0);
                assert_eq!(mark(&lines, "state"), Some(*state));
                assert_eq!(lines.last().unwrap()["verified"], true);
                assert_eq!(scratch.left(), 0, "{words}");
            }
        }
    }

    #[test]
    fn odd_block_sizes_are_verified() {
        let scratch = Scratch::new("seq-odd");
        for (op, block) in [("write", 1), ("write", 4097), ("read", 3), ("read", 10_000)] {
            let words = format!("seq --op {op} --block {block} --count 7 --iterations 2");
            assert_eq!(run(&words, scratch.path()).unwrap().last().unwrap()["verified"], true, "{words}");
        }
    }

    #[test]
    fn invalid_options_create_nothing() {
        let scratch = Scratch::new("seq-bad");
        for words in [
            "--op copy",
            "--op read --state buffered",
            "--op write --state cold",
            "--block 0",
            "--block 2G",
            "--count 0",
            "--count -1",
            "--iterations 0",
            "--count 9000000000000000000 --block 1G",
        ] {
            let result = run(&format!("seq {words}"), scratch.path());
            assert!(matches!(result, Err(Error::Usage(_))), "{words}: {result:?}");
        }
        let result = run("seq --count 1000000000", scratch.path());
        assert!(matches!(&result, Err(Error::Failed(why)) if why.contains("available")), "{result:?}");
        assert_eq!(scratch.left(), 0);
    }

    #[test]
    fn cancelled_run_leaves_nothing() {
        let scratch = Scratch::new("seq-cancel");
        let flag = std::sync::Arc::new(std::sync::OnceLock::<std::sync::Arc<std::sync::atomic::AtomicBool>>::new());
        let seen = flag.clone();
        let context = Context::new(std::sync::Arc::new(move |_: &str, done, _| {
            if let Some(flag) = seen.get().filter(|_| done == 1) {
                flag.store(true, Ordering::Relaxed);
            }
        }));
        flag.set(context.cancel_flag()).unwrap();
        let (result, lines) = run_with("seq --count 3 --iterations 9", scratch.path(), &context);
        assert!(matches!(result, Err(Error::Interrupted)) && lines.is_empty(), "{result:?}");
        assert_eq!(scratch.left(), 0);
    }
}
