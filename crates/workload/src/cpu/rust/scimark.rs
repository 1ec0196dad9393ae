//! SciMark's five kernels; see `c/scimark.c`, which describes them.

/// Fourier transform in place of interleaved complex numbers; -1 forward, 1 inverse.
pub fn fft(data: &mut [f64], direction: i32) {
    let n = data.len() / 2;
    let mut j = 0;
    for i in 0..n - 1 {
        if i < j {
            data.swap(2 * i, 2 * j);
            data.swap(2 * i + 1, 2 * j + 1);
        }
        let mut bit = n >> 1;
        while bit <= j {
            j -= bit;
            bit >>= 1;
        }
        j += bit;
    }

    let (mut s, mut c) = (0.0_f64, -1.0_f64);
    let mut half = 1;
    while half < n {
        let next_c = if half == 1 { 0.0 } else { ((1.0 + c) / 2.0).sqrt() };
        let next_s = if half == 1 { 1.0 } else { s / (2.0 * next_c) };
        let versine = 2.0 * next_s * next_s;
        let sine = f64::from(direction) * s;
        let (mut w_re, mut w_im) = (1.0, 0.0);
        for b in (0..n).step_by(2 * half) {
            let (i, j) = (2 * b, 2 * (b + half));
            let (re, im) = (data[j], data[j + 1]);
            data[j] = data[i] - re;
            data[j + 1] = data[i + 1] - im;
            data[i] += re;
            data[i + 1] += im;
        }
        for a in 1..half {
            let turned = w_re - sine * w_im - versine * w_re;
            w_im = w_im + sine * w_re - versine * w_im;
            w_re = turned;
            for b in (0..n).step_by(2 * half) {
                let (i, j) = (2 * (b + a), 2 * (b + a + half));
                let re = w_re * data[j] - w_im * data[j + 1];
                let im = w_re * data[j + 1] + w_im * data[j];
                data[j] = data[i] - re;
                data[j + 1] = data[i + 1] - im;
                data[i] += re;
                data[i + 1] += im;
            }
        }
        (s, c) = (next_s, next_c);
        half *= 2;
    }

    if direction > 0 {
        let norm = 1.0 / n as f64;
        for value in data {
            *value *= norm;
        }
    }
}

/// Transforms forward and inverse, `pairs` times.
pub fn fft_pairs(data: &mut [f64], pairs: u64) {
    for _ in 0..pairs {
        fft(data, -1);
        fft(data, 1);
    }
}

/// Over-relaxation steps on a square grid.
pub fn sor(grid: &mut [f64], n: usize, omega: f64, steps: u64) {
    let (quarter, rest) = (omega * 0.25, 1.0 - omega);
    for _ in 0..steps {
        for i in 1..n - 1 {
            let (above, tail) = grid.split_at_mut(i * n);
            let (row, below) = tail.split_at_mut(n);
            let (above, below) = (&above[(i - 1) * n..][..n], &below[..n]);
            for j in 1..n - 1 {
                row[j] = quarter * (above[j] + below[j] + row[j - 1] + row[j + 1]) + rest * row[j];
            }
        }
    }
}

/// Marsaglia's subtractive generator; see `struct lagged` in `c/scimark.c`.
#[derive(Debug, Clone)]
pub struct Random {
    x: [i32; 17],
    i: usize,
    j: usize,
}

impl Random {
    /// Creates the generator, positioned at its first number.
    pub fn new(seed: i32) -> Self {
        let mut x = seed as u32;
        if x.is_multiple_of(2) {
            x = x.wrapping_sub(1);
        }
        let mut values = [0; 17];
        for value in &mut values {
            x = x.wrapping_mul(9069) & 0x7fff_ffff;
            *value = x as i32;
        }
        Self { x: values, i: 4, j: 16 }
    }

    /// The next number, from 0 to 1.
    pub fn draw(&mut self) -> f64 {
        let mut k = self.x[self.i] - self.x[self.j];
        if k < 0 {
            k += 0x7fff_ffff;
        }
        self.x[self.j] = k;
        self.i = if self.i == 0 { 16 } else { self.i - 1 };
        self.j = if self.j == 0 { 16 } else { self.j - 1 };
        (1.0 / 2_147_483_647.0) * f64::from(k)
    }

    /// The next `n` numbers.
    pub fn vector(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.draw()).collect()
    }
}

/// How many of `samples` points lie within the quarter circle.
pub fn montecarlo(seed: i32, samples: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut within = 0;
    for _ in 0..samples {
        let (x, y) = (random.draw(), random.draw());
        if x * x + y * y <= 1.0 {
            within += 1;
        }
    }
    within
}

/// Computes `y = A x`, `times` times.
pub fn sparse(y: &mut [f64], values: &[f64], rows: &[i32], columns: &[i32], x: &[f64], times: u64) {
    for _ in 0..times {
        for (y, row) in y.iter_mut().zip(rows.windows(2)) {
            let row = row[0] as usize..row[1] as usize;
            let mut sum = 0.0;
            for (column, value) in columns[row.clone()].iter().zip(&values[row]) {
                sum += x[*column as usize] * value;
            }
            *y = sum;
        }
    }
}

/// Factors a copy of `a` into `factors`, `times` times; false if it is singular.
pub fn lu(a: &[f64], factors: &mut [f64], pivot: &mut [i32], times: u64) -> bool {
    let mut regular = true;
    for _ in 0..times {
        factors.copy_from_slice(a);
        regular &= lu_factor(factors, pivot);
    }
    regular
}

fn lu_factor(a: &mut [f64], pivot: &mut [i32]) -> bool {
    let n = pivot.len();
    for j in 0..n {
        let mut best = (j, a[j * n + j].abs());
        for i in j + 1..n {
            let value = a[i * n + j].abs();
            if value > best.1 {
                best = (i, value);
            }
        }
        pivot[j] = best.0 as i32;
        if a[best.0 * n + j] == 0.0 {
            return false;
        }
        let (head, rows) = a.split_at_mut((j + 1) * n);
        let upper = &mut head[j * n..];
        if best.0 != j {
            upper.swap_with_slice(&mut rows[(best.0 - j - 1) * n..][..n]);
        }
        let reciprocal = 1.0 / upper[j];
        for row in rows.chunks_exact_mut(n) {
            row[j] *= reciprocal;
        }
        for row in rows.chunks_exact_mut(n) {
            let t = row[j];
            for (value, upper) in row[j + 1..].iter_mut().zip(&upper[j + 1..]) {
                *value -= t * upper;
            }
        }
    }
    true
}
