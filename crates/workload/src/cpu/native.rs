//! The kernels in C: one table of functions per optimisation level, and the proof of the level.
//!
//! The tables come from `c/kernels.c`, which build.rs compiles once per level. A level is accepted if the flags that
//! the compiler wrote into the object match it, and the object itself agrees: whether the preprocessor saw an optimiser
//! and fast mathematics, and whether `a * b + c` rounds once or twice.

use super::himeno::SIZES;
use crate::UnprovenMode;
use std::ffi::{CStr, c_char};

/// `struct fathom_kernels` of `c/kernels.h`; field for field.
#[repr(C)]
#[derive(Debug)]
pub struct Table {
    compiler: *const c_char,
    optimize: i32,
    fast_math: i32,
    multiply_add: unsafe extern "C" fn(f64, f64, f64) -> f64,
    himeno: unsafe extern "C" fn(*mut f32, i64, i64) -> f32,
    linpack: unsafe extern "C" fn(*mut f64, i64, i64, *mut i32, *mut f64) -> i32,
    fft: unsafe extern "C" fn(*mut f64, i64, i32),
    fft_pairs: unsafe extern "C" fn(*mut f64, i64, i64),
    sor: unsafe extern "C" fn(*mut f64, i64, i64, f64, i64),
    montecarlo: unsafe extern "C" fn(i32, i64) -> i64,
    sparse: unsafe extern "C" fn(*mut f64, *const f64, *const i32, *const i32, *const f64, i64, i64),
    lu: unsafe extern "C" fn(*const f64, *mut f64, *mut i32, i64, i64) -> i32,
}

// SAFETY: the tables are constants of the program; nothing writes to them.
unsafe impl Sync for Table {}

unsafe extern "C" {
    static fathom_kernels_O0: Table;
    static fathom_kernels_O2: Table;
    static fathom_kernels_O3: Table;
    static fathom_kernels_fast: Table;
}

/// Level and recorded flags, in the order of build.rs.
const RECORDED_FLAGS: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/levels.rs"));

/// An optimisation level of the C kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// `-O0`.
    O0,
    /// `-O2`.
    O2,
    /// `-O3`.
    O3,
    /// `-O3 -ffast-math`, with contraction: other arithmetic, not comparable with the rest.
    Fast,
}

impl Level {
    fn table(self) -> &'static Table {
        // SAFETY: constants that the C objects define, of the type declared above.
        unsafe {
            match self {
                Self::O0 => &fathom_kernels_O0,
                Self::O2 => &fathom_kernels_O2,
                Self::O3 => &fathom_kernels_O3,
                Self::Fast => &fathom_kernels_fast,
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::O0 => "O0",
            Self::O2 => "O2",
            Self::O3 => "O3",
            Self::Fast => "fast",
        }
    }

    /// Returns the evidence that the kernels are of this level.
    ///
    /// # Errors
    /// The contradiction.
    pub fn proof(self) -> Result<String, UnprovenMode> {
        let table = self.table();
        // SAFETY: a string literal of the object.
        let compiler = unsafe { CStr::from_ptr(table.compiler) }.to_string_lossy();
        let flags = RECORDED_FLAGS.iter().find(|(level, _)| *level == self.name()).map_or("", |(_, flags)| flags);
        self.judge(&compiler, flags, &CompilerFlags::from_table(table))
    }

    fn judge(self, compiler: &str, flags: &str, flags_used: &CompilerFlags) -> Result<String, UnprovenMode> {
        // The last level on a command line takes effect; GCC records none at all for -O0.
        let last = flags.split(' ').rfind(|f| f.starts_with("-O")).unwrap_or("-O0");
        let (level, fast) = match self {
            Self::O0 => ("-O0", false),
            Self::O2 => ("-O2", false),
            Self::O3 => ("-O3", false),
            Self::Fast => ("-O3", true),
        };
        let text = format!(
            "{compiler}; recorded in the object: {flags}; __OPTIMIZE__ {}, __FAST_MATH__ {}, a*b+c rounds {}",
            if flags_used.optimize { "set" } else { "not set" },
            if flags_used.fast_math { "set" } else { "not set" },
            if flags_used.contracted { "once" } else { "twice" },
        );
        let holds = last == level && flags_used.optimize == (level != "-O0") && flags_used.fast_math == fast;
        // Whether fast mathematics actually contracts depends on the machine; the others must not.
        if holds && (fast || !flags_used.contracted) { Ok(text) } else { Err(UnprovenMode(text)) }
    }

    /// Runs steps of Himeno's method on one of the published sizes; returns the last step's gosa. `arrays` holds the
    /// fourteen arrays, each one point larger in each dimension than the grid.
    pub fn himeno(self, arrays: &mut [f32], grid: [usize; 3], steps: u64) -> f32 {
        let points = grid.iter().map(|n| n + 1).product::<usize>();
        assert!(SIZES.iter().any(|s| s.grid == grid) && arrays.len() == 14 * points, "fourteen arrays of a known size");
        // SAFETY: the kernel of that size stays within the fourteen arrays that were just counted.
        unsafe { (self.table().himeno)(arrays.as_mut_ptr(), grid[0] as i64, steps as i64) }
    }

    /// Solves `a x = b` in place; false if the matrix is singular. `a` is stored by columns, `stride` apart.
    pub fn linpack(self, a: &mut [f64], stride: usize, pivot: &mut [i32], b: &mut [f64]) -> bool {
        let n = b.len();
        assert!(n > 0 && stride >= n && a.len() >= stride * n && pivot.len() == n, "a matrix and its vectors");
        // SAFETY: the kernel stays within n columns of n rows, n pivots and n values; pivots are written before read.
        unsafe {
            (self.table().linpack)(a.as_mut_ptr(), stride as i64, n as i64, pivot.as_mut_ptr(), b.as_mut_ptr()) == 0
        }
    }

    /// Fourier transform in place of interleaved complex numbers; -1 forward, 1 inverse.
    pub fn fft(self, data: &mut [f64], direction: i32) {
        let n = data.len() / 2;
        assert!(n.is_power_of_two() && data.len() == 2 * n, "a power of two");
        // SAFETY: n complex numbers, as counted.
        unsafe { (self.table().fft)(data.as_mut_ptr(), n as i64, direction) }
    }

    /// Transforms forward and inverse, `pairs` times.
    pub fn fft_pairs(self, data: &mut [f64], pairs: u64) {
        let n = data.len() / 2;
        assert!(n.is_power_of_two() && data.len() == 2 * n, "a power of two");
        // SAFETY: n complex numbers, as counted.
        unsafe { (self.table().fft_pairs)(data.as_mut_ptr(), n as i64, pairs as i64) }
    }

    /// Over-relaxation steps on a square grid.
    pub fn sor(self, grid: &mut [f64], n: usize, omega: f64, steps: u64) {
        assert_eq!(grid.len(), n * n, "a square");
        // SAFETY: n rows of n values, as counted.
        unsafe { (self.table().sor)(grid.as_mut_ptr(), n as i64, n as i64, omega, steps as i64) }
    }

    /// How many of `samples` points lie within the quarter circle.
    pub fn montecarlo(self, seed: i32, samples: u64) -> u64 {
        // SAFETY: the kernel touches its own stack only.
        unsafe { (self.table().montecarlo)(seed, samples as i64) as u64 }
    }

    /// Computes `y = A x`, `times` times.
    pub fn sparse(self, y: &mut [f64], values: &[f64], rows: &[i32], columns: &[i32], x: &[f64], times: u64) {
        let inside = |i: &i32| usize::try_from(*i).is_ok_and(|i| i < x.len());
        assert!(rows.len() == y.len() + 1 && columns.len() == values.len() && columns.iter().all(inside), "a matrix");
        assert!(rows.is_sorted() && rows[0] >= 0 && rows[y.len()] as usize <= values.len(), "rows within the values");
        let m = y.len() as i64;
        // SAFETY: every row lies within the values and every column within x, as just checked.
        unsafe {
            (self.table().sparse)(
                y.as_mut_ptr(),
                values.as_ptr(),
                rows.as_ptr(),
                columns.as_ptr(),
                x.as_ptr(),
                m,
                times as i64,
            );
        }
    }

    /// Factors a copy of `a` into `factors`, `times` times; false if it is singular.
    pub fn lu(self, a: &[f64], factors: &mut [f64], pivot: &mut [i32], times: u64) -> bool {
        let n = pivot.len();
        assert!(a.len() == n * n && factors.len() == n * n, "two squares");
        // SAFETY: n rows of n values in both, and n pivots, as counted.
        unsafe { (self.table().lu)(a.as_ptr(), factors.as_mut_ptr(), pivot.as_mut_ptr(), n as i64, times as i64) == 0 }
    }
}

/// Properties of an object, as the object itself reports them.
#[derive(Debug, Clone, Copy)]
struct CompilerFlags {
    optimize: bool,
    fast_math: bool,
    contracted: bool,
}

impl CompilerFlags {
    fn from_table(table: &Table) -> Self {
        // (1 + 2^-27)(1 - 2^-27) is 1 - 2^-54, which rounds to 1 unless the sum is taken before rounding.
        let small = f64::EPSILON * 2.0_f64.powi(25);
        // SAFETY: a function of three numbers.
        let rest = unsafe { (table.multiply_add)(1.0 + small, 1.0 - small, -1.0) };
        Self { optimize: table.optimize != 0, fast_math: table.fast_math != 0, contracted: rest != 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_optimization_level_proves_itself() {
        for level in [Level::O0, Level::O2, Level::O3, Level::Fast] {
            let proof = level.proof().unwrap();
            assert!(proof.contains("recorded in the object: -") && !proof.contains('/'), "{proof}");
        }
    }

    #[test]
    fn contradicting_flags_macros_and_arithmetic_are_detected() {
        let plain = CompilerFlags { optimize: true, fast_math: false, contracted: false };
        assert!(Level::O2.judge("c", "-O2", &plain).is_ok());
        // The compiler uses the last level, -O3 after -O2; a wrapper may add it.
        assert!(Level::O2.judge("c", "-O2 -O3", &plain).is_err());
        assert!(Level::O0.judge("c", "-mtune=generic", &plain).is_err());
        assert!(Level::O0.judge("c", "-mtune=generic", &CompilerFlags { optimize: false, ..plain }).is_ok());
        assert!(Level::O3.judge("c", "-O3", &CompilerFlags { fast_math: true, ..plain }).is_err());
        assert!(Level::O3.judge("c", "-O3", &CompilerFlags { contracted: true, ..plain }).is_err());
        assert!(
            Level::Fast
                .judge("c", "-O3 -ffast-math", &CompilerFlags { fast_math: true, contracted: true, ..plain })
                .is_ok()
        );
    }
}
