/*
 * LINPACK's kernel: Gaussian elimination with partial pivoting (dgefa) and the two substitutions (dgesl) on a matrix stored by columns,
 * built from the vector operations of the Level 1 BLAS, as the benchmark defines them.
 */

static int64_t index_of_largest(int64_t n, const double *x)
{
    int64_t best = 0;
    double largest = n > 0 ? fabs(x[0]) : 0.0;
    for (int64_t i = 1; i < n; i++) {
        if (fabs(x[i]) > largest) {
            largest = fabs(x[i]);
            best = i;
        }
    }
    return best;
}

/* y += t x */
static void add_scaled(int64_t n, double t, const double *restrict x, double *restrict y)
{
    if (t == 0.0)
        return;
    for (int64_t i = 0; i < n; i++)
        y[i] += t * x[i];
}

static int32_t factor(double *a, int64_t stride, int64_t n, int32_t *pivot)
{
    for (int64_t k = 0; k < n - 1; k++) {
        double *column = a + stride * k;
        const int64_t l = k + index_of_largest(n - k, column + k);
        pivot[k] = (int32_t)l;
        if (column[l] == 0.0)
            return 1;
        if (l != k) {
            const double t = column[l];
            column[l] = column[k];
            column[k] = t;
        }
        const double t = -1.0 / column[k];
        for (int64_t i = k + 1; i < n; i++)
            column[i] *= t;
        for (int64_t j = k + 1; j < n; j++) {
            double *other = a + stride * j;
            const double t = other[l];
            if (l != k) {
                other[l] = other[k];
                other[k] = t;
            }
            add_scaled(n - k - 1, t, column + k + 1, other + k + 1);
        }
    }
    pivot[n - 1] = (int32_t)(n - 1);
    return a[stride * (n - 1) + n - 1] == 0.0;
}

static void solve(const double *a, int64_t stride, int64_t n, const int32_t *pivot, double *b)
{
    for (int64_t k = 0; k < n - 1; k++) {
        const int64_t l = pivot[k];
        const double t = b[l];
        if (l != k) {
            b[l] = b[k];
            b[k] = t;
        }
        add_scaled(n - k - 1, t, a + stride * k + k + 1, b + k + 1);
    }
    for (int64_t k = n - 1; k >= 0; k--) {
        b[k] /= a[stride * k + k];
        add_scaled(k, -b[k], a + stride * k, b);
    }
}

/* The solution replaces b, the factors replace a. Returns 1 if the matrix is singular. */
static int32_t linpack(double *a, int64_t stride, int64_t n, int32_t *pivot, double *b)
{
    if (factor(a, stride, n, pivot))
        return 1;
    solve(a, stride, n, pivot, b);
    return 0;
}
