//! Himeno's kernel; see `c/himeno.c`.

/// Runs steps of the method on the fourteen arrays (a 0-3, b 0-2, c 0-2, p, source, next, bound), each of `size + 1`
/// points in each dimension; returns the last step's gosa.
pub fn himeno(arrays: &mut [f32], size: [usize; 3], steps: u64) -> f32 {
    let [ni, nj, nk] = size;
    let (sj, si) = (nk + 1, (nj + 1) * (nk + 1));
    let points = (ni + 1) * si;
    let (coefficients, rest) = arrays.split_at_mut(10 * points);
    let (p, rest) = rest.split_at_mut(points);
    let (source, rest) = rest.split_at_mut(points);
    let (next, bound) = rest.split_at_mut(points);
    let mut gosa = 0.0;

    for _ in 0..steps {
        gosa = 0.0_f32;
        for i in 1..ni - 1 {
            for j in 1..nj - 1 {
                let (at, n) = (i * si + j * sj + 1, nk - 2);
                let own = |array: usize| &coefficients[array * points + at..][..n];
                let near = |from: usize| &p[from - 1..][..n + 2];
                let row = Row {
                    a: [own(0), own(1), own(2), own(3)],
                    b: [own(4), own(5), own(6)],
                    c: [own(7), own(8), own(9)],
                    source: &source[at..][..n],
                    bound: &bound[at..][..n],
                    middle: near(at),
                    up: [near(at + si - sj), near(at + si), near(at + si + sj)],
                    side: [near(at - sj), near(at + sj)],
                    down: [near(at - si - sj), near(at - si), near(at - si + sj)],
                };
                gosa = row.step(&mut next[at..][..n], gosa);
            }
        }
        for i in 1..ni - 1 {
            for j in 1..nj - 1 {
                let row = i * si + j * sj;
                p[row + 1..row + nk - 1].copy_from_slice(&next[row + 1..row + nk - 1]);
            }
        }
    }
    gosa
}

/// The inputs of one row of inner points: the row's own coefficients, and the rows of the pressure around it, which
/// have one more neighbour at either end.
struct Row<'a> {
    a: [&'a [f32]; 4],
    b: [&'a [f32]; 3],
    c: [&'a [f32]; 3],
    source: &'a [f32],
    bound: &'a [f32],
    middle: &'a [f32],
    /// At i + 1, for j - 1 to j + 1.
    up: [&'a [f32]; 3],
    /// At i, for j - 1 and j + 1.
    side: [&'a [f32]; 2],
    /// At i - 1, for j - 1 to j + 1.
    down: [&'a [f32]; 3],
}

impl Row<'_> {
    /// A separate function, since the compiler can assume that there is no aliasing only for parameters.
    #[inline(never)]
    fn step(&self, next: &mut [f32], mut gosa: f32) -> f32 {
        let n = next.len();
        // The lengths are repeated, so that bounds are checked once per row and not once per point.
        let ([a0, a1, a2, a3], [b0, b1, b2]) = (self.a.map(|r| &r[..n]), self.b.map(|r| &r[..n]));
        let ([c0, c1, c2], source, bound) = (self.c.map(|r| &r[..n]), &self.source[..n], &self.bound[..n]);
        let ([up_left, up, up_right], [left, right]) = (self.up.map(|r| &r[..n + 2]), self.side.map(|r| &r[..n + 2]));
        let ([down_left, down, down_right], middle) = (self.down.map(|r| &r[..n + 2]), &self.middle[..n + 2]);
        for k in 0..n {
            let s = a0[k] * up[k + 1]
                + a1[k] * right[k + 1]
                + a2[k] * middle[k + 2]
                + b0[k] * (up_right[k + 1] - up_left[k + 1] - down_right[k + 1] + down_left[k + 1])
                + b1[k] * (right[k + 2] - left[k + 2] - right[k] + left[k])
                + b2[k] * (up[k + 2] - down[k + 2] - up[k] + down[k])
                + c0[k] * down[k + 1]
                + c1[k] * left[k + 1]
                + c2[k] * middle[k]
                + source[k];
            let change = (s * a3[k] - middle[k + 1]) * bound[k];
            gosa += change * change;
            next[k] = middle[k + 1] + 0.8 * change;
        }
        gosa
    }
}
