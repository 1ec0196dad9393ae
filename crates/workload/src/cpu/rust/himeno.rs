//! Himeno's kernel; see `c/himeno.c`.

/// Steps of the method on the fourteen arrays (a 0-3, b 0-2, c 0-2, p, source, next, bound), each of `(size + 1)` points
/// each way; returns the last step's gosa.
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
                let at = i * si + j * sj + 1;
                let n = nk - 2;
                // Rows of one length, so that the compiler checks a row's bounds once.
                let own = |array: usize| &coefficients[array * points + at..][..n];
                let [a0, a1, a2, a3] = [own(0), own(1), own(2), own(3)];
                let [b0, b1, b2] = [own(4), own(5), own(6)];
                let [c0, c1, c2] = [own(7), own(8), own(9)];
                let (source, bound, next) = (&source[at..][..n], &bound[at..][..n], &mut next[at..][..n]);
                // Named by what is added to i and to j; the neighbours in k are the middle row's own.
                let row = |from: usize| &p[from - 1..][..n + 2];
                let (middle, up, down) = (row(at), row(at + si), row(at - si));
                let (right, left) = (row(at + sj), row(at - sj));
                let (up_right, up_left) = (row(at + si + sj), row(at + si - sj));
                let (down_right, down_left) = (row(at - si + sj), row(at - si - sj));
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
