//! SciMark 2 (R. Pozo, B. Miller, NIST): five kernels in double precision, with the published sizes, generator, seed and
//! counts of operations. The composite is the arithmetic mean of their five rates.
//!
//! Two peculiarities of the published counts are kept so that scores are comparable with published ones: a Fourier
//! transform forward and back counts as one, and LU's count omits its copy of the matrix, though its time includes it.

use super::Native;
use super::checksum::checksum;
use super::rust::scimark::Random;
use super::series::{IterationTime, Load, WrongResult, time};

/// The published seed, used by every kernel separately.
pub const RANDOM_SEED: i32 = 101_010;

/// The kernels, in the published order.
pub const KERNEL_NAMES: [&str; 5] = ["fft", "sor", "montecarlo", "sparse", "lu"];

/// Steps of over-relaxation, and points of Monte Carlo, after which the result is known.
const SOR_STEPS: u64 = 10;
const CHECK_SAMPLES: u64 = 100_000;
const OMEGA: f64 = 1.25;

/// The published sizes: Fourier transform, grid, rows and values of the sparse matrix, LU; and the results that every
/// faithful build gives for them, in the order of the kernels.
pub const SIZES: [(&str, [usize; 5], [u64; 5]); 3] = [
    (
        "tiny",
        [16, 10, 10, 50, 10],
        [0xf7d7_e8ba_83ec_ff7c, 0xf171_842c_2f23_9f46, 78_537, 0x06c1_8d4f_8cb0_5992, 0xdcfc_985b_3dad_35b3],
    ),
    (
        "small",
        [1024, 100, 1000, 5000, 100],
        [0x9985_0a65_ea00_d298, 0x5db4_5983_f06d_63f9, 78_537, 0xe8f6_576e_3dc5_c508, 0xca3c_697a_1e10_391f],
    ),
    (
        "large",
        [1_048_576, 1000, 100_000, 1_000_000, 1000],
        [0x94d7_8471_fde2_724e, 0xa390_6269_0be6_5b0e, 78_537, 0xafd9_7012_3276_a0a4, 0x3244_c8d7_7869_bd47],
    ),
];

/// Creates one of the five kernels with data of a named size.
pub fn load(native: Native, kernel: &str, size: &str) -> Box<dyn Load> {
    let (_, [fft, grid, rows, values, lu], known) = SIZES.into_iter().find(|s| s.0 == size).unwrap_or(SIZES[1]);
    let mut random = Random::new(RANDOM_SEED);
    match kernel {
        "fft" => {
            let first = random.vector(2 * fft);
            Box::new(Fft { native, known: known[0], data: first.clone(), first, pairs: 0 })
        }
        "sor" => {
            let first = random.vector(grid * grid);
            Box::new(Sor { native, known: known[1], n: grid, data: first.clone(), first, steps: 0 })
        }
        "montecarlo" => Box::new(MonteCarlo { native, known: known[2], last: None }),
        "sparse" => Box::new(Sparse::new(native, known[3], rows, values, &mut random)),
        _ => {
            let a = random.vector(lu * lu);
            Box::new(Lu { native, known: known[4], factors: vec![0.0; a.len()], a, pivot: vec![0; lu] })
        }
    }
}

/// Returns the text if `sum` is `known`, or need not be since the arithmetic differs; otherwise the error.
fn check_checksum(native: Native, text: &str, sum: u64, known: u64) -> Result<String, WrongResult> {
    let found = format!("{text}, checksum {sum:016x}");
    if sum == known || !native.is_exact() {
        Ok(found)
    } else {
        Err(WrongResult::Unexpected { found, known: format!("{known:016x}") })
    }
}

/// Root of the mean squared difference.
fn rms_difference(a: &[f64], b: &[f64]) -> f64 {
    (a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / a.len() as f64).sqrt()
}

struct Fft {
    native: Native,
    known: u64,
    first: Vec<f64>,
    data: Vec<f64>,
    pairs: u64,
}

impl Fft {
    fn n(&self) -> f64 {
        (self.first.len() / 2) as f64
    }
}

impl Load for Fft {
    fn flop(&self) -> f64 {
        let n = self.n();
        (5.0 * n - 2.0) * n.log2() + 2.0 * (n + 1.0)
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        self.pairs += inner;
        Ok(time(clock, || self.native.fft_pairs(&mut self.data, inner)).1)
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        let mut data = self.first.clone();
        self.native.fft(&mut data, -1);
        let sum = checksum(&data);
        self.native.fft(&mut data, 1);
        let off = rms_difference(&data, &self.first);
        let text = format!("fft: forward and back off by {off:.1e}");
        // Also false for NaN.
        if off < 1e-10 { check_checksum(self.native, &text, sum, self.known) } else { Err(WrongResult::Result(text)) }
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        let off = rms_difference(&self.data, &self.first);
        let text = format!("fft: {} times forward and back off by {off:.1e}", self.pairs);
        // Twiddle factors by recurrence are off by a few times sqrt(n) roundings, and each pair adds the same.
        let bound = (self.pairs + 1) as f64 * self.n().sqrt() * 32.0 * f64::EPSILON;
        if off < bound { Ok(text) } else { Err(WrongResult::Result(text)) }
    }
}

struct Sor {
    native: Native,
    known: u64,
    n: usize,
    first: Vec<f64>,
    data: Vec<f64>,
    steps: u64,
}

impl Load for Sor {
    fn flop(&self) -> f64 {
        let n = (self.n - 1) as f64;
        6.0 * n * n
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        self.steps += inner;
        Ok(time(clock, || self.native.sor(&mut self.data, self.n, OMEGA, inner)).1)
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        let mut data = self.first.clone();
        self.native.sor(&mut data, self.n, OMEGA, SOR_STEPS);
        let sum = checksum(&data);
        let mut reference = self.first.clone();
        Native::Rust.sor(&mut reference, self.n, OMEGA, SOR_STEPS);
        let off = rms_difference(&data, &reference);
        let text = format!("sor: {SOR_STEPS} steps off by {off:.1e}");
        if off < 1e-12 { check_checksum(self.native, &text, sum, self.known) } else { Err(WrongResult::Result(text)) }
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        // Each step is a weighted mean with one negative weight; a converging grid stays within its border's values.
        let inside = self.data.iter().all(|v| (-1.0..=2.0).contains(v));
        let text = format!("sor: checksum {:016x} after {} steps", checksum(&self.data), self.steps);
        if inside { Ok(text) } else { Err(WrongResult::Result(format!("{text}: values outside the border's"))) }
    }
}

struct MonteCarlo {
    native: Native,
    known: u64,
    last: Option<(u64, u64)>,
}

impl Load for MonteCarlo {
    fn flop(&self) -> f64 {
        4.0
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        let (within, timed) = time(clock, || self.native.montecarlo(RANDOM_SEED, inner));
        // The seed is the same each time, and so must be the count.
        match self.last.replace((inner, within)) {
            Some((samples, before)) if samples == inner && before != within => Err(WrongResult::Unrepeatable {
                what: format!("montecarlo: {within} points within"),
                before: before.to_string(),
            }),
            _ => Ok(timed),
        }
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        let within = self.native.montecarlo(RANDOM_SEED, CHECK_SAMPLES);
        let pi = 4.0 * within as f64 / CHECK_SAMPLES as f64;
        let text = format!("montecarlo: pi {pi:.5}, {within} of {CHECK_SAMPLES} points within");
        // With other arithmetic a point on the border may fall to either side.
        let right = if self.native.is_exact() { within == self.known } else { within.abs_diff(self.known) <= 2 };
        if right { Ok(text) } else { Err(WrongResult::Unexpected { found: text, known: self.known.to_string() }) }
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        let (samples, within) = self.last.ok_or(WrongResult::NothingRun("montecarlo"))?;
        let pi = 4.0 * within as f64 / samples as f64;
        let text = format!("montecarlo: pi {pi:.6} of {samples} points");
        // Five standard deviations of the mean of four times a coin with probability pi / 4.
        let bound = 5.0 * 1.6422 / (samples as f64).sqrt();
        if (pi - std::f64::consts::PI).abs() < bound { Ok(text) } else { Err(WrongResult::Result(text)) }
    }
}

struct Sparse {
    native: Native,
    known: u64,
    values: Vec<f64>,
    rows: Vec<i32>,
    columns: Vec<i32>,
    x: Vec<f64>,
    y: Vec<f64>,
}

impl Sparse {
    /// The published pattern: every row has the same number of values, spread from its start to its diagonal.
    fn new(native: Native, known: u64, n: usize, values: usize, random: &mut Random) -> Self {
        let in_row = values / n;
        let x = random.vector(n);
        let values = random.vector(in_row * n);
        let rows = (0..=n).map(|row| (row * in_row) as i32).collect();
        let columns = (0..n).flat_map(|row| (0..in_row).map(move |i| (i * (row / in_row).max(1)) as i32)).collect();
        Self { native, known, values, rows, columns, x, y: vec![0.0; n] }
    }

    fn multiply(&mut self, times: u64) {
        self.native.sparse(&mut self.y, &self.values, &self.rows, &self.columns, &self.x, times);
    }
}

impl Load for Sparse {
    fn flop(&self) -> f64 {
        2.0 * self.values.len() as f64
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        Ok(time(clock, || self.multiply(inner)).1)
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        self.y.fill(0.0);
        self.multiply(1);
        self.check_data()
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        let mut reference = vec![0.0; self.y.len()];
        Native::Rust.sparse(&mut reference, &self.values, &self.rows, &self.columns, &self.x, 1);
        let off = rms_difference(&self.y, &reference);
        let text = format!("sparse: y off by {off:.1e}");
        if off < 1e-12 {
            check_checksum(self.native, &text, checksum(&self.y), self.known)
        } else {
            Err(WrongResult::Result(text))
        }
    }
}

struct Lu {
    native: Native,
    known: u64,
    a: Vec<f64>,
    factors: Vec<f64>,
    pivot: Vec<i32>,
}

impl Lu {
    fn factor(&mut self, times: u64) -> bool {
        self.native.lu(&self.a, &mut self.factors, &mut self.pivot, times)
    }

    /// Largest |A x - b| for the x computed from the factors, divided by n, for b all ones.
    fn residual(&self) -> f64 {
        let n = self.pivot.len();
        let mut x = vec![1.0; n];
        for (i, p) in self.pivot.iter().enumerate() {
            x.swap(i, *p as usize);
        }
        for i in 0..n {
            x[i] -= (0..i).map(|k| self.factors[i * n + k] * x[k]).sum::<f64>();
        }
        for i in (0..n).rev() {
            x[i] -= (i + 1..n).map(|k| self.factors[i * n + k] * x[k]).sum::<f64>();
            x[i] /= self.factors[i * n + i];
        }
        let rows = self.a.chunks_exact(n);
        rows.map(|row| (row.iter().zip(&x).map(|(a, x)| a * x).sum::<f64>() - 1.0).abs())
            .fold(0.0_f64, |m, v| if v.is_nan() { f64::NAN } else { m.max(v) })
            / n as f64
    }
}

impl Load for Lu {
    fn flop(&self) -> f64 {
        let n = self.pivot.len() as f64;
        2.0 * n * n * n / 3.0
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        let (regular, timed) = time(clock, || self.factor(inner));
        if regular { Ok(timed) } else { Err(WrongResult::ZeroPivot("lu")) }
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        self.factors.fill(0.0);
        if !self.factor(1) {
            return Err(WrongResult::ZeroPivot("lu"));
        }
        self.check_data()
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        let residual = self.residual();
        let text = format!("lu: residual {residual:.1e}");
        if residual < 1e-10 {
            check_checksum(self.native, &text, checksum(&self.factors), self.known)
        } else {
            Err(WrongResult::Result(text))
        }
    }
}
