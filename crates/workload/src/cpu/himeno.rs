//! Himeno's benchmark: steps of Jacobi's method for Poisson's equation on a grid, in single precision; 34 operations per
//! inner point and step (R. Himeno, RIKEN).
//!
//! The arrays are one point larger in each dimension than the grid, as in the published programs, and consecutive in
//! memory: their relative placement in the cache matters as much as the arithmetic.

use super::checksum::sum_of_bits;
use super::series::{IterationTime, Load, WrongResult, time};
use super::{Native, available_bytes};

/// Steps after which gosa is known.
const CHECK_STEPS: u64 = 3;

/// A published size, with the results that every faithful build gives for it after three steps.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Its letter.
    pub name: &'static str,
    /// Points of the grid in each dimension.
    pub grid: [usize; 3],
    /// Bits of gosa. In single precision the sum stops growing when a term is less than half of its last digit: at L
    /// and XL it has, at a power of two, and is no longer meaningful.
    pub gosa: u32,
    /// Checksum of the pressure, which is meaningful at every size.
    pub pressure: u64,
    /// gosa summed in double precision: a build with another order of additions comes close to it.
    pub sum: f64,
}

pub const SIZES: [Size; 5] = [
    Size { name: "XS", grid: [32, 32, 64], gosa: 0x3bcc_0fd7, pressure: 0xf183_9165_b61f_8052, sum: 6.229796e-3 },
    Size { name: "S", grid: [64, 64, 128], gosa: 0x3b57_8605, pressure: 0xa8ff_ddb3_1a2c_6d9d, sum: 3.296794e-3 },
    Size { name: "M", grid: [128, 128, 256], gosa: 0x3ae3_39ba, pressure: 0xd811_161b_4bb5_9b30, sum: 1.693459e-3 },
    Size { name: "L", grid: [256, 256, 512], gosa: 0x3a00_0000, pressure: 0xf590_f4f0_bc30_18b3, sum: 8.606862e-4 },
    Size { name: "XL", grid: [512, 512, 1024], gosa: 0x3880_0000, pressure: 0x987d_1923_70f4_eaa0, sum: 4.383945e-4 },
];

/// How far a fast-math result may be from the sum in double precision.
const FAST_MATH_TOLERANCE: f64 = 0.005;

/// The grid with its arrays.
#[derive(Debug)]
pub struct Himeno {
    native: Native,
    size: Size,
    arrays: Vec<f32>,
    steps: u64,
    last_gosa: f32,
}

/// A grid that does not fit into memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("Himeno's size {size} needs {needed} bytes of memory, and {available} are available")]
pub struct NoMemory {
    pub size: &'static str,
    /// Bytes.
    pub needed: u64,
    /// Bytes.
    pub available: u64,
}

impl Himeno {
    /// Creates the grid of a named size in its initial state.
    ///
    /// # Errors
    /// There is not enough memory for it.
    pub fn new(native: Native, size: Size) -> Result<Self, NoMemory> {
        let (name, needed, available) = (size.name, bytes(size.grid), available_bytes());
        if needed > available {
            return Err(NoMemory { size: name, needed, available });
        }
        let mut himeno = Self { native, size, arrays: vec![0.0; 14 * points(size.grid)], steps: 0, last_gosa: 0.0 };
        himeno.reset();
        Ok(himeno)
    }

    /// The published start: every coefficient constant, the pressure growing with the square of i. Row by row through all
    /// arrays, as the published programs do: which memory an array gets depends on who writes to it first.
    fn reset(&mut self) {
        let [ni, nj, nk] = self.size.grid;
        let points = points(self.size.grid);
        for i in 0..ni {
            for j in 0..nj {
                let row = (i * (nj + 1) + j) * (nk + 1);
                for (array, values) in self.arrays.chunks_exact_mut(points).enumerate() {
                    values[row..row + nk].fill(match array {
                        0..=2 | 7..=9 | 13 => 1.0,
                        3 => 1.0 / 6.0,
                        10 => (i * i) as f32 / ((ni - 1) * (ni - 1)) as f32,
                        _ => 0.0,
                    });
                }
            }
        }
        self.steps = 0;
    }

    fn step(&mut self, steps: u64) {
        self.last_gosa = self.native.himeno(&mut self.arrays, self.size.grid, steps);
        self.steps += steps;
    }

    /// The checksum of the pressure; see [`super::checksum`].
    fn pressure_checksum(&self) -> u64 {
        let points = points(self.size.grid);
        sum_of_bits(self.arrays[10 * points..11 * points].iter().map(|v| u64::from(v.to_bits())))
    }

    fn summary(&self) -> String {
        let (steps, gosa, bits) = (self.steps, self.last_gosa, self.last_gosa.to_bits());
        let gosa = format_gosa(gosa);
        format!("gosa after {steps} steps {gosa} (bits {bits:08x}), pressure {:016x}", self.pressure_checksum())
    }

    /// gosa after `steps` steps from the start.
    #[cfg(test)]
    pub fn gosa(&mut self, steps: u64) -> f32 {
        self.reset();
        self.step(steps);
        self.last_gosa
    }
}

/// gosa as the benchmark prints it: seven digits, and two of the exponent.
fn format_gosa(gosa: f32) -> String {
    let text = format!("{gosa:.6e}");
    match text.split_once("e-") {
        Some((digits, exponent)) => format!("{digits}e-{exponent:0>2}"),
        None => text,
    }
}

fn points(size: [usize; 3]) -> usize {
    size.iter().map(|n| n + 1).product()
}

/// Bytes of the fourteen arrays.
pub fn bytes(size: [usize; 3]) -> u64 {
    14 * 4 * points(size) as u64
}

impl Load for Himeno {
    fn flop(&self) -> f64 {
        34.0 * self.size.grid.iter().map(|n| (n - 2) as f64).product::<f64>()
    }

    fn run(&mut self, inner: u64, clock: &mut dyn FnMut() -> u64) -> Result<IterationTime, WrongResult> {
        Ok(time(clock, || self.step(inner)).1)
    }

    fn check(&mut self) -> Result<String, WrongResult> {
        self.reset();
        self.step(CHECK_STEPS);
        let (text, Size { gosa, pressure, sum, .. }) = (self.summary(), self.size);
        let right = if self.native.is_exact() {
            self.last_gosa.to_bits() == gosa && self.pressure_checksum() == pressure
        } else {
            (f64::from(self.last_gosa) / sum - 1.0).abs() < FAST_MATH_TOLERANCE
        };
        let known = format_gosa(f32::from_bits(gosa));
        let known = || format!("{known} (bits {gosa:08x}), {pressure:016x}");
        if right { Ok(text) } else { Err(WrongResult::Unexpected { found: text, known: known() }) }
    }

    fn check_data(&mut self) -> Result<String, WrongResult> {
        // The method converges: no step changes more than the first ones.
        let most = 1.01 * self.size.sum.max(f64::from(f32::from_bits(self.size.gosa)));
        let right = self.last_gosa >= 0.0 && f64::from(self.last_gosa) < most;
        if right { Ok(self.summary()) } else { Err(WrongResult::Result(self.summary())) }
    }
}
