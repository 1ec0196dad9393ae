//! Checks compiled kernels against known results and against each other.

use super::*;
use scimark::KERNEL_NAMES;
use series::{Load, WrongResult};

const NATIVE_KERNELS: [Native; 5] =
    [Native::C(Level::O0), Native::C(Level::O2), Native::C(Level::O3), Native::C(Level::Fast), Native::Rust];

fn exact_kernels() -> impl Iterator<Item = Native> {
    NATIVE_KERNELS.into_iter().filter(|how| how.is_exact())
}

#[test]
fn himeno_has_published_residuals() {
    // After 3 and after 40 steps, as measured with other compilers, processors and languages.
    for (size, steps, known) in [(0, 3, "6.227474e-3"), (1, 3, "3.288628e-3"), (1, 40, "2.616851e-3")] {
        for how in exact_kernels() {
            let gosa = himeno::Himeno::new(how, himeno::SIZES[size]).unwrap().gosa(steps);
            assert_eq!(format!("{gosa:.6e}"), known, "{how:?}, {steps} steps");
        }
    }
    for how in NATIVE_KERNELS {
        himeno::Himeno::new(how, himeno::SIZES[1]).unwrap().check().unwrap();
    }
    let gosa = himeno::Himeno::new(Native::Rust, himeno::SIZES[2]).unwrap().gosa(3);
    assert_eq!(format!("{gosa:.6e}"), "1.733593e-3");
}

#[test]
fn linpack_solution_is_bit_identical_everywhere() {
    for (n, _) in linpack::SOLUTION_CHECKSUMS {
        for how in NATIVE_KERNELS {
            linpack::Linpack::new(how, n).check().unwrap();
        }
    }
    // The published residual for order 100.
    assert!(linpack::Linpack::new(Native::Rust, 100).check().unwrap().contains("residual 1.671,"));
    // An order without known results is checked by its residual, and still has the same bits.
    let others: Vec<String> = exact_kernels().map(|how| linpack::Linpack::new(how, 333).check().unwrap()).collect();
    assert!(others.windows(2).all(|w| w[0] == w[1]), "{others:?}");
}

#[test]
fn scimark_results_are_bit_identical_everywhere() {
    for size in ["tiny", "small"] {
        for kernel in KERNEL_NAMES {
            for how in NATIVE_KERNELS {
                scimark::load(how, kernel, size).check().unwrap();
            }
        }
    }
    for kernel in KERNEL_NAMES {
        scimark::load(Native::Rust, kernel, "large").check().unwrap();
    }
}

#[test]
fn operation_counts_match_publications() {
    let flop = |kernel, size| scimark::load(Native::Rust, kernel, size).flop();
    assert_eq!(flop("fft", "small"), (5.0 * 1024.0 - 2.0) * 10.0 + 2.0 * 1025.0);
    assert_eq!(flop("sor", "small"), 99.0 * 99.0 * 6.0);
    assert_eq!(flop("montecarlo", "small"), 4.0);
    assert_eq!(flop("sparse", "small"), 10_000.0);
    assert_eq!(flop("lu", "small"), 2e6 / 3.0);
    assert_eq!(linpack::Linpack::new(Native::Rust, 100).flop().round(), 686_667.0);
    let himeno = himeno::Himeno::new(Native::Rust, himeno::SIZES[1]).unwrap();
    assert_eq!(himeno.flop(), 34.0 * 62.0 * 62.0 * 126.0);
}

#[test]
fn clock_is_read_only_twice_per_kernel() {
    let mut readings = 0;
    let mut clock = || {
        readings += 1;
        readings
    };
    himeno::Himeno::new(Native::Rust, himeno::SIZES[0]).unwrap().run(7, &mut clock).unwrap();
    for kernel in KERNEL_NAMES {
        scimark::load(Native::Rust, kernel, "tiny").run(1000, &mut clock).unwrap();
    }
    // LINPACK makes a new matrix for each solution, outside the measured time.
    linpack::Linpack::new(Native::Rust, 100).run(3, &mut clock).unwrap();
    assert_eq!(readings, 2 + 2 * 5 + 2 * 3);
}

/// A load whose result goes wrong at the third check or run.
struct BreakingLoad {
    check: u32,
    run: u32,
}

impl Load for BreakingLoad {
    fn flop(&self) -> f64 {
        1.0
    }
    fn run(&mut self, _: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        self.run = self.run.saturating_sub(1);
        if self.run == 0 { Err(WrongResult::ZeroPivot("load")) } else { Ok(series::time(clock, || ()).1) }
    }
    fn check(&mut self) -> Result<String, WrongResult> {
        self.check -= 1;
        Ok(format!("{}", self.check.min(1)))
    }
    fn check_data(&mut self) -> Result<String, WrongResult> {
        Ok("left".into())
    }
}

fn run_series(check: u32, run: u32) -> Result<String, Error> {
    let words: Vec<String> = ["--iterations=5", "--inner=1"].map(String::from).to_vec();
    let parameters = Parameters::parse("linpack", &words).unwrap();
    Series::new(&parameters, vec![Box::new(BreakingLoad { check, run })]).run(&Context::silent())
}

#[test]
fn changed_result_is_a_failure() {
    assert_eq!(run_series(9, 9).unwrap(), "1; the same before and after the iterations");
    assert!(matches!(run_series(9, 3), Err(Error::Failed(text)) if text == WrongResult::ZeroPivot("load").to_string()));
    // The second check prints 0 where the first printed 1.
    assert!(
        matches!(run_series(2, 9), Err(Error::Failed(text)) if text.contains("before and after the iterations differ"))
    );
}

#[test]
fn output_has_work_times_and_verification() {
    let words: Vec<String> = ["--kernel", "composite", "--inner=2", "--iterations=4"].map(String::from).to_vec();
    let parameters = Parameters::parse("scimark", &words).unwrap();
    let loads = parameters.kernels().iter().map(|k| parameters.load(Native::Rust, k).unwrap()).collect();
    let mut series = Series::new(&parameters, loads);
    series.run(&Context::silent()).unwrap();
    let mut out = Vec::new();
    series.print(&parameters.kernels(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let count = |metric: &str| lines.iter().filter(|l| l["metric"] == metric).count();
    assert_eq!((count("work"), count("iteration"), count("iteration.fft"), count("work.lu")), (1, 4, 4, 1));
    assert!(lines.iter().any(|l| l["mark"] == "inner" && l["text"] == "2"));
    let work = |kernel: &str| lines.iter().find(|l| l["metric"] == *kernel).unwrap()["v"].as_f64().unwrap();
    assert_eq!((work("work.montecarlo"), work("work.lu")), (2e6, 2.0 * 2.0 * 2e6 / 3.0));
    assert_eq!(work("work"), KERNEL_NAMES.iter().map(|k| work(&format!("work.{k}"))).sum::<f64>());
}

#[test]
fn composite_is_mean_of_rates() {
    let times = [10, 20, 5, 40, 1].map(|ns| IterationTime { start_ns: 0, duration_ns: ns });
    let work = [100.0, 100.0, 30.0, 10.0, 8.0];
    let rates = [10.0, 5.0, 6.0, 0.25, 8.0];
    let composite = work.iter().sum::<f64>() / composite_ns(&work, &times);
    assert!((composite - rates.iter().sum::<f64>() / 5.0).abs() < 1e-12);
}

#[test]
fn option_errors_name_allowed_values() {
    for (name, words, part) in [
        ("himeno", &["--size=XXL"][..], "XS, S, M, L, XL"),
        ("linpack", &["--size=512"], "singular"),
        ("scimark", &["--kernel=dct"], "composite"),
        ("scimark", &["--inner=1,2"], "--inner: invalid value"),
        ("himeno", &["--inner=99999999999999"], "--inner at most"),
        ("himeno", &["--iterations=0"], "--iterations is 1"),
        ("himeno", &["--mode=c-O1"], "c-O0"),
        ("linpack", &["--kernel=lu"], "--kernel"),
    ] {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        match Parameters::parse(name, &words) {
            Err(Error::Usage(text)) => assert!(text.contains(part), "{text}"),
            other => panic!("{words:?}: {other:?}"),
        }
    }
    assert_eq!(Parameters::parse("himeno", &["--size=xl".into()]).unwrap().size, "XL");
}
