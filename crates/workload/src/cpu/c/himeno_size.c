/*
 * Himeno's kernel for one size: Jacobi's method with a 19-point stencil for Poisson's equation, in single precision. NAME, NI, NJ and NK
 * are set by himeno.c: as in the published programs, the compiler knows the size, and that the arrays do not overlap. (With sizes passed
 * at run time GCC's -O2 takes twice the time.)
 *
 * The sum of the squared changes (gosa) is computed in the order i, j, k in single precision: with this order and without contraction,
 * its bits are the same in every language.
 */
#define JOIN_NAMES(a, b) a##b
#define JOIN(a, b) JOIN_NAMES(a, b)

struct JOIN(NAME, _arrays) {
    float a[4][NI + 1][NJ + 1][NK + 1], b[3][NI + 1][NJ + 1][NK + 1], c[3][NI + 1][NJ + 1][NK + 1];
    float p[NI + 1][NJ + 1][NK + 1], source[NI + 1][NJ + 1][NK + 1], next[NI + 1][NJ + 1][NK + 1];
    float bound[NI + 1][NJ + 1][NK + 1];
};

__attribute__((noinline)) static float NAME(struct JOIN(NAME, _arrays) *g, int64_t steps)
{
    const float omega = 0.8f;
    float gosa = 0.0f;

    for (int64_t step = 0; step < steps; step++) {
        gosa = 0.0f;
        for (int i = 1; i < NI - 1; i++) {
            for (int j = 1; j < NJ - 1; j++) {
                for (int k = 1; k < NK - 1; k++) {
                    float s = g->a[0][i][j][k] * g->p[i + 1][j][k] + g->a[1][i][j][k] * g->p[i][j + 1][k]
                        + g->a[2][i][j][k] * g->p[i][j][k + 1]
                        + g->b[0][i][j][k]
                            * (g->p[i + 1][j + 1][k] - g->p[i + 1][j - 1][k] - g->p[i - 1][j + 1][k]
                               + g->p[i - 1][j - 1][k])
                        + g->b[1][i][j][k]
                            * (g->p[i][j + 1][k + 1] - g->p[i][j - 1][k + 1] - g->p[i][j + 1][k - 1]
                               + g->p[i][j - 1][k - 1])
                        + g->b[2][i][j][k]
                            * (g->p[i + 1][j][k + 1] - g->p[i - 1][j][k + 1] - g->p[i + 1][j][k - 1]
                               + g->p[i - 1][j][k - 1])
                        + g->c[0][i][j][k] * g->p[i - 1][j][k] + g->c[1][i][j][k] * g->p[i][j - 1][k]
                        + g->c[2][i][j][k] * g->p[i][j][k - 1] + g->source[i][j][k];
                    float change = (s * g->a[3][i][j][k] - g->p[i][j][k]) * g->bound[i][j][k];
                    gosa += change * change;
                    g->next[i][j][k] = g->p[i][j][k] + omega * change;
                }
            }
        }
        for (int i = 1; i < NI - 1; i++)
            for (int j = 1; j < NJ - 1; j++)
                for (int k = 1; k < NK - 1; k++)
                    g->p[i][j][k] = g->next[i][j][k];
    }
    return gosa;
}

#undef JOIN_NAMES
#undef JOIN
#undef NAME
#undef NI
#undef NJ
#undef NK
