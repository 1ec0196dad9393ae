/*
 * SciMark 2's five kernels again, written independently of Fathom's: the library's sine, another order of loops where the definition
 * leaves it open. The small sizes. One line of JSON per iteration: the time in which the work of all five would be done at the mean of
 * their rates, a unit of work being as many of a kernel's own as make a million operations.
 *
 *     cc -O2 -ffp-contract=off -o scimark scimark.c -lm && ./scimark ITERATIONS UNITS
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FFT = 1024, GRID = 100, ROWS = 1000, IN_ROW = 5, LU = 100, KERNELS = 5 };

static const double PI = 3.14159265358979323846;

/* The generator: x(k) = x(k - 5) - x(k - 17) modulo 2^31 - 1; the index of the newest value counts down from 16. */
struct generator {
    int x[17], oldest, fifth;
};

static struct generator seeded(unsigned x)
{
    struct generator g = {.oldest = 16, .fifth = 4};
    for (int k = 0; k < 17; k++)
        g.x[k] = (int)(x = 9069u * x & 0x7fffffffu);
    return g;
}

static double next(struct generator *g)
{
    int k = g->x[g->fifth] - g->x[g->oldest];
    if (k < 0)
        k += 0x7fffffff;
    g->x[g->oldest] = k;
    g->oldest = g->oldest ? g->oldest - 1 : 16;
    g->fifth = g->fifth ? g->fifth - 1 : 16;
    return k * (1.0 / 2147483647);
}

static void fill(struct generator *g, double *values, int count)
{
    while (count-- > 0)
        *values++ = next(g);
}

static double first[2 * FFT], data[2 * FFT], grid[GRID][GRID], a[LU][LU], factors[LU][LU];
static double x[ROWS], y[ROWS], values[ROWS * IN_ROW];
static int column[ROWS * IN_ROW], row[ROWS + 1], pivot[LU];
static long within, samples;

/* Radix 2, in place; a twiddle factor is advanced by multiplication with e^(i angle) - 1, which keeps its digits. */
static void transform(double *d, int n, int sign)
{
    for (int i = 0, j = 0; i < n; i++) {
        if (i < j)
            for (int part = 0; part < 2; part++) {
                double t = d[2 * i + part];
                d[2 * i + part] = d[2 * j + part];
                d[2 * j + part] = t;
            }
        int bit = n / 2;
        for (; bit && j & bit; bit /= 2)
            j -= bit;
        j += bit;
    }
    for (int half = 1; half < n; half *= 2) {
        double angle = sign * PI / half, s = sin(angle), v = -2 * sin(angle / 2) * sin(angle / 2);
        double wr = 1, wi = 0;
        for (int k = 0; k < half; k++) {
            for (int i = k; i < n; i += 2 * half) {
                double *p = d + 2 * i, *q = d + 2 * (i + half);
                double re = wr * q[0] - wi * q[1], im = wr * q[1] + wi * q[0];
                q[0] = p[0] - re;
                q[1] = p[1] - im;
                p[0] += re;
                p[1] += im;
            }
            double t = wr + (v * wr - s * wi);
            wi += v * wi + s * wr;
            wr = t;
        }
    }
    if (sign > 0)
        for (int i = 0; i < 2 * n; i++)
            d[i] *= 1.0 / n;
}

static void fft(long times)
{
    while (times-- > 0) {
        transform(data, FFT, -1);
        transform(data, FFT, 1);
    }
}

static void relax(double *g, int n, double omega)
{
    const double share = omega / 4, own = 1 - omega;
    for (int i = 1; i < n - 1; i++)
        for (int j = 1; j < n - 1; j++) {
            double *at = g + i * n + j;
            *at = share * (at[-n] + at[n] + at[-1] + at[1]) + own * *at;
        }
}

static void sor(long times)
{
    while (times-- > 0)
        relax(grid[0], GRID, 1.25);
}

static void montecarlo(long times)
{
    struct generator g = seeded(101009);
    long in = 0;
    samples = times;
    while (times-- > 0) {
        double px = next(&g), py = next(&g);
        if (px * px + py * py <= 1)
            in++;
    }
    within = in;
}

static void multiply(int n, double *to, const double *v, const int *starts, const int *places, const double *from)
{
    for (int r = 0; r < n; r++) {
        double sum = 0;
        for (int i = starts[r]; i < starts[r + 1]; i++)
            sum += v[i] * from[places[i]];
        to[r] = sum;
    }
}

static void sparse(long times)
{
    while (times-- > 0)
        multiply(ROWS, y, values, row, column, x);
}

static void factor(double *m, int n, int *exchanged)
{
    for (int k = 0; k < n; k++) {
        double *own = m + k * n;
        int p = k;
        for (int i = k + 1; i < n; i++)
            if (fabs(m[i * n + k]) > fabs(m[p * n + k]))
                p = i;
        exchanged[k] = p;
        if (p != k)
            for (int j = 0; j < n; j++) {
                double t = own[j];
                own[j] = m[p * n + j];
                m[p * n + j] = t;
            }
        double scale = 1 / own[k];
        for (int i = k + 1; i < n; i++) {
            double *restrict other = m + i * n;
            double t = other[k] *= scale;
            for (int j = k + 1; j < n; j++)
                other[j] -= t * own[j];
        }
    }
}

static void lu(long times)
{
    while (times-- > 0) {
        memcpy(factors, a, sizeof a);
        factor(factors[0], LU, pivot);
    }
}

static const struct {
    void (*run)(long times);
    double flop;
} kernels[KERNELS] = {
    {fft, (5.0 * FFT - 2) * 10 + 2 * (FFT + 1)},
    {sor, 6.0 * (GRID - 1) * (GRID - 1)},
    {montecarlo, 4},
    {sparse, 2.0 * ROWS * IN_ROW},
    {lu, 2.0 * LU * LU * LU / 3},
};

/* Returns how far LU's factors are from the matrix with its rows swapped. */
static double residual(void)
{
    static double exchanged[LU][LU];
    double off = 0;
    memcpy(exchanged, a, sizeof a);
    for (int k = 0; k < LU; k++)
        for (int j = 0; j < LU; j++) {
            double t = exchanged[k][j];
            exchanged[k][j] = exchanged[pivot[k]][j];
            exchanged[pivot[k]][j] = t;
        }
    for (int i = 0; i < LU; i++)
        for (int j = 0; j < LU; j++) {
            double sum = i <= j ? factors[i][j] : 0;
            for (int k = 0; k < i && k <= j; k++)
                sum += factors[i][k] * factors[k][j];
            off = fmax(off, fabs(sum - exchanged[i][j]));
        }
    return off;
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    int iterations = atoi(argv[1]), units = atoi(argv[2]);
    struct generator g = seeded(101009);
    fill(&g, first, 2 * FFT);
    memcpy(data, first, sizeof data);
    g = seeded(101009);
    fill(&g, grid[0], GRID * GRID);
    g = seeded(101009);
    fill(&g, x, ROWS);
    fill(&g, values, ROWS * IN_ROW);
    for (int r = 0; r < ROWS; r++)
        for (int i = 0; i < IN_ROW; i++)
            column[r * IN_ROW + i] = i * (r / IN_ROW > 1 ? r / IN_ROW : 1);
    for (int r = 0; r <= ROWS; r++)
        row[r] = r * IN_ROW;
    g = seeded(101009);
    fill(&g, a[0], LU * LU);
    for (int n = 0; n < iterations; n++) {
        double work = 0, rates = 0;
        for (int k = 0; k < KERNELS; k++) {
            long times = units * (long)ceil(1e6 / kernels[k].flop);
            double begin = now_ns();
            kernels[k].run(times);
            work += times * kernels[k].flop;
            rates += times * kernels[k].flop / (now_ns() - begin);
        }
        printf("{\"metric\":\"iteration\",\"unit\":\"ns\",\"v\":%.0f}\n", work / (rates / KERNELS));
    }
    double off = 0, pi = 4.0 * within / samples;
    for (int i = 0; i < 2 * FFT; i++)
        off = fmax(off, fabs(data[i] - first[i]));
    int right = off < 1e-8 && residual() < 1e-10 && fabs(pi - PI) < 0.01 && y[ROWS - 1] != 0 && isfinite(grid[50][50]);
    printf("{\"verified\":%s,\"by\":\"forward and back off by %.1e, LU off by %.1e, pi %.4f\"}\n", right ? "true" : "false", off,
           residual(), pi);
    return !right;
}
