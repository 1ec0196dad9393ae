/* SciMark 2's five kernels, from their definitions. */

/* Radix 2, decimation in time, in place, on interleaved complex numbers, with the twiddle factors by Singleton's
 * recurrence. The sines that start each recurrence come by halving angles (see turn), so that they, and with them
 * every bit of the result, are the same in every language; a library's sin() is not. */
static void fft(double *data, int64_t n, int32_t direction)
{
    for (int64_t i = 0, j = 0; i < n - 1; i++) {
        if (i < j) {
            const double re = data[2 * i], im = data[2 * i + 1];
            data[2 * i] = data[2 * j];
            data[2 * i + 1] = data[2 * j + 1];
            data[2 * j] = re;
            data[2 * j + 1] = im;
        }
        int64_t bit = n >> 1;
        while (bit <= j) {
            j -= bit;
            bit >>= 1;
        }
        j += bit;
    }

    /* sin and cos of pi / half: exact for pi, then halved by c' = sqrt((1 + c) / 2), s' = s / 2c'. */
    double s = 0.0, c = -1.0;
    for (int64_t half = 1; half < n; half *= 2) {
        /* sin and cos of half the angle, which 1 - cos = 2 sin^2 needs. For pi itself there is no such quotient. */
        const double next_c = half == 1 ? 0.0 : sqrt((1.0 + c) / 2.0);
        const double next_s = half == 1 ? 1.0 : s / (2.0 * next_c);
        const double versine = 2.0 * next_s * next_s;
        const double sine = direction * s;
        double w_re = 1.0, w_im = 0.0;

        for (int64_t b = 0; b < n; b += 2 * half) {
            const int64_t i = 2 * b, j = 2 * (b + half);
            const double re = data[j], im = data[j + 1];
            data[j] = data[i] - re;
            data[j + 1] = data[i + 1] - im;
            data[i] += re;
            data[i + 1] += im;
        }
        for (int64_t a = 1; a < half; a++) {
            const double turned = w_re - sine * w_im - versine * w_re;
            w_im = w_im + sine * w_re - versine * w_im;
            w_re = turned;
            for (int64_t b = 0; b < n; b += 2 * half) {
                const int64_t i = 2 * (b + a), j = 2 * (b + a + half);
                const double re = w_re * data[j] - w_im * data[j + 1];
                const double im = w_re * data[j + 1] + w_im * data[j];
                data[j] = data[i] - re;
                data[j + 1] = data[i + 1] - im;
                data[i] += re;
                data[i + 1] += im;
            }
        }
        s = next_s;
        c = next_c;
    }

    if (direction > 0) {
        const double norm = 1.0 / (double)n;
        for (int64_t i = 0; i < 2 * n; i++)
            data[i] *= norm;
    }
}

static void fft_pairs(double *data, int64_t n, int64_t pairs)
{
    for (int64_t i = 0; i < pairs; i++) {
        fft(data, n, -1);
        fft(data, n, 1);
    }
}

/* Successive over-relaxation of Laplace's equation, in place, row by row. */
static void sor(double *grid, int64_t m, int64_t n, double omega, int64_t steps)
{
    const double quarter = omega * 0.25, rest = 1.0 - omega;
    for (int64_t step = 0; step < steps; step++) {
        for (int64_t i = 1; i < m - 1; i++) {
            double *row = grid + i * n;
            const double *above = row - n, *below = row + n;
            for (int64_t j = 1; j < n - 1; j++)
                row[j] = quarter * (above[j] + below[j] + row[j - 1] + row[j + 1]) + rest * row[j];
        }
    }
}

/* Marsaglia's subtractive generator x(k) = x(k-5) - x(k-17) modulo 2^31 - 1, whose first 17 values come from the
 * multiplicative generator 9069 x modulo 2^31 on an odd seed. */
struct lagged {
    int32_t x[17];
    int32_t i, j;
};

static void lagged_seed(struct lagged *r, int32_t seed)
{
    uint32_t x = (uint32_t)seed;
    if (x % 2 == 0)
        x--;
    for (int32_t k = 0; k < 17; k++) {
        x = (x * 9069u) & 0x7fffffffu;
        r->x[k] = (int32_t)x;
    }
    r->i = 4;
    r->j = 16;
}

static double lagged_next(struct lagged *r)
{
    int32_t k = r->x[r->i] - r->x[r->j];
    if (k < 0)
        k += 0x7fffffff;
    r->x[r->j] = k;
    r->i = r->i == 0 ? 16 : r->i - 1;
    r->j = r->j == 0 ? 16 : r->j - 1;
    return (1.0 / 2147483647.0) * k;
}

/* Returns how many of `samples` random points of the unit square lie within the quarter circle. */
static int64_t montecarlo(int32_t seed, int64_t samples)
{
    struct lagged random;
    int64_t within = 0;
    lagged_seed(&random, seed);
    for (int64_t i = 0; i < samples; i++) {
        const double x = lagged_next(&random), y = lagged_next(&random);
        if (x * x + y * y <= 1.0)
            within++;
    }
    return within;
}

/* y = A x for a matrix in compressed row storage. */
static void sparse(double *y, const double *values, const int32_t *rows, const int32_t *columns, const double *x,
                   int64_t m, int64_t times)
{
    for (int64_t time = 0; time < times; time++) {
        for (int64_t r = 0; r < m; r++) {
            double sum = 0.0;
            for (int32_t i = rows[r]; i < rows[r + 1]; i++)
                sum += x[columns[i]] * values[i];
            y[r] = sum;
        }
    }
}

/* LU factors by rows with partial pivoting, of a copy of `a`. Rows are swapped by value. Returns 1 if the matrix is singular. */
static int32_t lu_factor(double *a, int32_t *pivot, int64_t n)
{
    for (int64_t j = 0; j < n; j++) {
        int64_t best = j;
        double largest = fabs(a[j * n + j]);
        for (int64_t i = j + 1; i < n; i++) {
            if (fabs(a[i * n + j]) > largest) {
                largest = fabs(a[i * n + j]);
                best = i;
            }
        }
        pivot[j] = (int32_t)best;
        if (a[best * n + j] == 0.0)
            return 1;
        if (best != j) {
            for (int64_t k = 0; k < n; k++) {
                const double t = a[j * n + k];
                a[j * n + k] = a[best * n + k];
                a[best * n + k] = t;
            }
        }
        const double reciprocal = 1.0 / a[j * n + j];
        for (int64_t i = j + 1; i < n; i++)
            a[i * n + j] *= reciprocal;
        for (int64_t i = j + 1; i < n; i++) {
            const double *restrict upper = a + j * n;
            double *restrict row = a + i * n;
            const double t = row[j];
            for (int64_t k = j + 1; k < n; k++)
                row[k] -= t * upper[k];
        }
    }
    return 0;
}

static int32_t lu(const double *a, double *factors, int32_t *pivot, int64_t n, int64_t times)
{
    int32_t singular = 0;
    for (int64_t time = 0; time < times; time++) {
        memcpy(factors, a, (size_t)(n * n) * sizeof *a);
        singular |= lu_factor(factors, pivot, n);
    }
    return singular;
}
