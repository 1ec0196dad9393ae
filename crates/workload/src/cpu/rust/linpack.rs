//! LINPACK's kernel; see `c/linpack.c`.

fn index_of_largest(x: &[f64]) -> usize {
    let mut best = (0, x.first().map_or(0.0, |v| v.abs()));
    for (i, v) in x.iter().enumerate().skip(1) {
        if v.abs() > best.1 {
            best = (i, v.abs());
        }
    }
    best.0
}

/// `y += t x`
fn add_scaled(t: f64, x: &[f64], y: &mut [f64]) {
    if t == 0.0 {
        return;
    }
    for (y, x) in y.iter_mut().zip(x) {
        *y += t * x;
    }
}

/// Solves `a x = b` in place; false if the matrix is singular. `a` is stored by columns, `stride` apart.
pub fn linpack(a: &mut [f64], stride: usize, pivot: &mut [i32], b: &mut [f64]) -> bool {
    let n = b.len();
    if !factor(a, stride, n, pivot) {
        return false;
    }
    for k in 0..n - 1 {
        let l = pivot[k] as usize;
        let t = b[l];
        if l != k {
            b[l] = b[k];
            b[k] = t;
        }
        add_scaled(t, &a[stride * k + k + 1..stride * k + n], &mut b[k + 1..]);
    }
    for k in (0..n).rev() {
        b[k] /= a[stride * k + k];
        let t = -b[k];
        add_scaled(t, &a[stride * k..][..k], &mut b[..k]);
    }
    true
}

fn factor(a: &mut [f64], stride: usize, n: usize, pivot: &mut [i32]) -> bool {
    for k in 0..n - 1 {
        let (left, right) = a.split_at_mut(stride * (k + 1));
        let column = &mut left[stride * k..][..n];
        let l = k + index_of_largest(&column[k..]);
        pivot[k] = l as i32;
        if column[l] == 0.0 {
            return false;
        }
        column.swap(l, k);
        let t = -1.0 / column[k];
        for value in &mut column[k + 1..] {
            *value *= t;
        }
        for j in k + 1..n {
            let other = &mut right[stride * (j - k - 1)..][..n];
            let t = other[l];
            if l != k {
                other[l] = other[k];
                other[k] = t;
            }
            add_scaled(t, &column[k + 1..], &mut other[k + 1..]);
        }
    }
    pivot[n - 1] = n as i32 - 1;
    a[stride * (n - 1) + n - 1] != 0.0
}
