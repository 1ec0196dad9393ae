/* Himeno's kernel: Jacobi's method with a 19-point stencil for Poisson's equation, in single precision.
 *
 * The sum of the squared changes (gosa) is taken in the order i, j, k in single precision: with the order and without
 * contraction, its bits are the same in every language. */
static float himeno_steps(const float *restrict a0, const float *restrict a1, const float *restrict a2,
                          const float *restrict a3, const float *restrict b0, const float *restrict b1,
                          const float *restrict b2, const float *restrict c0, const float *restrict c1,
                          const float *restrict c2, float *restrict p, const float *restrict source,
                          float *restrict next, const float *restrict bound, const int64_t size[3], int64_t steps)
{
    const int64_t ni = size[0], nj = size[1], nk = size[2];
    const int64_t sj = nk + 1, si = (nj + 1) * sj;
    const float omega = 0.8f;
    float gosa = 0.0f;

    for (int64_t step = 0; step < steps; step++) {
        gosa = 0.0f;
        for (int64_t i = 1; i < ni - 1; i++) {
            for (int64_t j = 1; j < nj - 1; j++) {
                const int64_t row = i * si + j * sj;
                for (int64_t at = row + 1; at < row + nk - 1; at++) {
                    float s = a0[at] * p[at + si] + a1[at] * p[at + sj] + a2[at] * p[at + 1]
                        + b0[at] * (p[at + si + sj] - p[at + si - sj] - p[at - si + sj] + p[at - si - sj])
                        + b1[at] * (p[at + sj + 1] - p[at - sj + 1] - p[at + sj - 1] + p[at - sj - 1])
                        + b2[at] * (p[at + si + 1] - p[at - si + 1] - p[at + si - 1] + p[at - si - 1])
                        + c0[at] * p[at - si] + c1[at] * p[at - sj] + c2[at] * p[at - 1] + source[at];
                    float change = (s * a3[at] - p[at]) * bound[at];
                    gosa += change * change;
                    next[at] = p[at] + omega * change;
                }
            }
        }
        for (int64_t i = 1; i < ni - 1; i++) {
            for (int64_t j = 1; j < nj - 1; j++) {
                const int64_t row = i * si + j * sj;
                for (int64_t at = row + 1; at < row + nk - 1; at++)
                    p[at] = next[at];
            }
        }
    }
    return gosa;
}

/* The fourteen arrays stand one behind the other in the order of the parameters above. */
static float himeno(float *arrays, const int64_t size[3], int64_t steps)
{
    const int64_t n = (size[0] + 1) * (size[1] + 1) * (size[2] + 1);
    return himeno_steps(arrays, arrays + n, arrays + 2 * n, arrays + 3 * n, arrays + 4 * n, arrays + 5 * n,
                        arrays + 6 * n, arrays + 7 * n, arrays + 8 * n, arrays + 9 * n, arrays + 10 * n,
                        arrays + 11 * n, arrays + 12 * n, arrays + 13 * n, size, steps);
}
