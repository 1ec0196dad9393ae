use super::super::testing::{Scratch, mark, run, run_with, values};
use super::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

const SMALL_OPTIONS: &str = "--file-size 2M --iterations 2 --inner 40";

/// Runs it, or prints what this place lacks.
fn run_verified(words: &str, scratch: &Scratch) -> Option<Vec<serde_json::Value>> {
    match run(&format!("random {SMALL_OPTIONS} {words}"), scratch.path()) {
        Err(Error::Failed(why)) if why.contains("O_DIRECT") || why.contains("there is no ") => {
            eprintln!("SKIP {words}: {why}");
            None
        }
        lines => Some(lines.unwrap()),
    }
}

#[test]
fn every_engine_and_state_is_verified_and_leaves_nothing() {
    let scratch = Scratch::new("random");
    for engine in engine::ENGINE_NAMES {
        for (op, states) in
            [("read", &["cold", "direct", "warm"][..]), ("write", &["synced", "buffered", "each", "direct"])]
        {
            for state in states.iter().filter(|s| **s != "each" || *engine == "psync") {
                let depth = if *engine == "psync" { 1 } else { 4 };
                let batch = if *state == "direct" { 0 } else { 3 };
                let words = format!(
                    "--engine {engine} --op {op} --state {state} --threads 3 --depth {depth} --batch {batch} --latency-every 1"
                );
                let Some(lines) = run_verified(&words, &scratch) else { continue };
                // 40 becomes 42 if each of 3 threads has the same number.
                assert_eq!((values(&lines, "work"), values(&lines, "iteration").len()), (vec![42.0], 2), "{words}");
                assert_eq!(values(&lines, "requested_bytes"), [84.0 * 4096.0]);
                assert_eq!(mark(&lines, "engine"), Some(*engine));
                assert!(values(&lines, "latency.p50")[0] > 0.0 && values(&lines, "transactions")[0] > 0.0);
                assert_eq!(lines.last().unwrap()["verified"], true, "{words}");
                assert_eq!(scratch.left(), 0, "{words}");
            }
        }
    }
}

#[test]
fn every_block_size_and_alignment_is_verified() {
    let scratch = Scratch::new("random-block");
    for op in ["read", "write"] {
        for block in ["1", "3", "512", "5000", "16K", "2M"] {
            for align in ["0", "1", "7"] {
                run_verified(&format!("--op {op} --block {block} --align {align}"), &scratch).unwrap();
            }
        }
    }
}

#[test]
fn iteration_is_sized_without_option_inner() {
    let scratch = Scratch::new("random-size");
    let words = "random --file-size 1M --iterations 2 --state warm --block 1 --threads 2 --min-iteration-ms 10";
    let lines = run(words, scratch.path()).unwrap();
    let inner: u64 = mark(&lines, "inner").unwrap().parse().unwrap();
    assert!(inner >= 32 && inner.is_power_of_two(), "{inner}");
    assert_eq!(values(&lines, "work"), [inner as f64]);
}

#[test]
fn the_same_seed_gives_the_same_offsets() {
    let pattern = file::layout_pattern();
    let plan = Plan {
        path: Path::new("/dev/null"),
        writes: false,
        state: State::Warm,
        engine: Engine::Psync,
        depth: 1,
        block: 1,
        align: 1,
        places: 1 << 40,
        seed: 1,
        pattern,
        batch: 1,
        verify: worker::Verify::Edges,
        latency_stride: 1,
    };
    let places = |seed, thread| worker::first_offsets(thread, &Plan { path: plan.path, seed, ..plan }, 100);
    assert_eq!(places(1, 0), places(1, 0));
    assert_ne!(places(1, 0), places(1, 1));
    assert_ne!(places(1, 0), places(2, 0));
    // Uniform: the mean of 100 is within 5 standard deviations of the middle.
    let mean = places(1, 0).iter().map(|p| *p as f64).sum::<f64>() / 100.0 / (1_u64 << 40) as f64;
    assert!((mean - 0.5).abs() < 5.0 * 0.029, "{mean}");
}

/// This is the purpose of the pattern.
#[test]
fn flipped_byte_fails_the_run() {
    let scratch = Scratch::new("random-flip");
    let path = scratch.path().join("kept");
    let words = |more: &str| format!("random --file-size 200K --iterations 1 {more} --file {}", path.to_string_lossy());
    run(&words("--inner 100"), scratch.path()).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    // In no page that is checked before the run, and at no edge of a block.
    bytes[4096 + 1234] ^= 0x40;
    std::fs::write(&path, &bytes).unwrap();
    for state in
        ["cold --verify whole --inner 2000", "warm --inner 200000", "warm --verify edges --block 1 --inner 4000000"]
    {
        let (result, lines) = run_with(&words(&format!("--state {state}")), scratch.path(), &Context::silent());
        let Err(Error::Wrong(why)) = result else { panic!("{state}: {result:?}") };
        assert!(why.contains("5330") && why.contains("kept"), "{why}");
        assert!(lines.iter().any(|l| l["verified"] == false) && values(&lines, "iteration").is_empty());
        assert!(path.exists(), "a file that was named stays");
    }
    // Unchecked bytes are not reported as verified.
    for (words, claimed) in [
        (words("--inner 10 --state warm"), "every byte of every 256th of 10 reads"),
        (words("--inner 10 --state warm --verify edges"), "first and last 8 bytes of 10 reads"),
    ] {
        let lines = run(&words, scratch.path()).unwrap();
        assert!(lines.last().unwrap()["by"].as_str().unwrap().contains(claimed), "{claimed}");
    }
}

#[test]
fn lost_write_is_detected() {
    let scratch = Scratch::new("random-lost");
    let options = Options::parse(HELP_SUMMARY, OPTION_SPECS, &["--op=write".into(), "--file-size=64K".into()]).unwrap();
    let p = Parameters::parse(&options).unwrap();
    let path = scratch.path().join("x");
    file::lay_out(&path, p.file_size, &Context::silent()).unwrap();
    let place = Directory::new(scratch.path()).unwrap();
    let context = Context::silent();
    let run = Run { p: &p, options: &options, path: &path, place: &place, context: &context };
    // The file still has its initial content, as if the disk had forgotten the write of block 3.
    let result = run.read_back(&run.plan(), vec![3 * 4096]);
    assert!(matches!(&result, Err(Error::Wrong(why)) if why.contains("12288")), "{result:?}");
}

#[test]
fn only_a_file_of_ours_is_reused() {
    let scratch = Scratch::new("random-kept");
    let path = scratch.path().join("kept");
    let words =
        |size: &str| format!("random --inner 10 --iterations 1 --file {} --file-size {size}", path.to_string_lossy());
    run(&words("1M"), scratch.path()).unwrap();
    let made = std::fs::metadata(&path).unwrap().modified().unwrap();
    run(&words("1M"), scratch.path()).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().modified().unwrap(), made);
    assert_eq!(scratch.left(), 1);
    let result = run(&words("2M"), scratch.path());
    assert!(matches!(&result, Err(Error::Failed(why)) if why.contains("1048576 bytes, not 2097152")), "{result:?}");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let result = run(&words("1M"), scratch.path());
    assert!(
        matches!(&result, Err(Error::Failed(why)) if why.contains("was not laid out by this workload")),
        "{result:?}"
    );
    assert!(path.exists());
}

#[test]
fn invalid_options_create_nothing() {
    let scratch = Scratch::new("random-bad");
    for words in [
        "--threads 0",
        "--threads 4097",
        "--block 0",
        "--block 8K --file-size 4K",
        "--engine posixaio",
        "--depth 4",
        "--depth 0 --engine io_uring",
        "--engine libaio --op write --state each",
        "--op write --file x",
        "--op write --state warm",
        "--iterations 0",
        "--inner -1",
        "--inner 18446744073709551615 --threads 2",
        "--verify some",
        "--min-iteration-ms x",
    ] {
        let result = run(&format!("random {words}"), scratch.path());
        assert!(matches!(result, Err(Error::Usage(_))), "{words}: {result:?}");
    }
    let result = run("random --file-size 1000000G", scratch.path());
    assert!(matches!(&result, Err(Error::Failed(why)) if why.contains("available")), "{result:?}");
    assert_eq!(scratch.left(), 0);
}

#[test]
fn cancelled_run_leaves_nothing() {
    let scratch = Scratch::new("random-cancel");
    for at in ["laying out the file", "random"] {
        let flag = Arc::new(OnceLock::<Arc<AtomicBool>>::new());
        let seen = flag.clone();
        let context = Context::new(Arc::new(move |what: &str, done, _| {
            if let Some(flag) = seen.get().filter(|_| what == at && done > 0) {
                flag.store(true, Ordering::Relaxed);
            }
        }));
        flag.set(context.cancel_flag()).unwrap();
        let (result, lines) = run_with("random --file-size 80M --threads 4 --inner 400", scratch.path(), &context);
        assert!(matches!(result, Err(Error::Interrupted)) && lines.is_empty(), "{at}: {result:?}");
        assert_eq!(scratch.left(), 0, "{at}");
    }
}

#[test]
fn more_threads_than_processors_work() {
    let scratch = Scratch::new("random-threads");
    let lines = run_verified("--threads 32 --block 1 --state warm --inner 3200", &scratch).unwrap();
    assert!(mark(&lines, "threads").unwrap().starts_with("32 on "));
}
