/*
 * The LINPACK benchmark again, written independently of Fathom's: a system of 500 equations whose solution is all ones, solved by
 * elimination with partial pivoting column by column. One line of JSON per solution; the matrix is regenerated before each, outside the
 * measured time.
 *
 *     cc -O2 -ffp-contract=off -o linpack linpack.c && ./linpack SOLUTIONS
 */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N = 500 };

/* Stored by columns; the last element of each is never used, so that the distance between columns is not a power of two. */
static double a[N][N + 1], right[N];

/* The published generator. Returns the largest value. */
static double make(void)
{
    int seed = 1325;
    double largest = 0;
    for (int i = 0; i < N; i++)
        right[i] = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i <= N; i++) {
            seed = 3125 * seed % 65536;
            a[j][i] = (seed - 32768.0) / 16384.0;
            if (a[j][i] > largest)
                largest = a[j][i];
            if (i < N)
                right[i] += a[j][i];
        }
    return largest;
}

static void swap(double *x, double *y)
{
    double t = *x;
    *x = *y;
    *y = t;
}

/* y -= t x: the operation that takes nearly all the time. */
static void subtract(int n, double t, const double *restrict x, double *restrict y)
{
    for (int i = 0; i < n; i++)
        y[i] -= t * x[i];
}

/* Solves in place: `right` becomes the solution. The right-hand side is eliminated with the matrix, as an additional column. */
static void solve(void)
{
    for (int k = 0; k < N; k++) {
        int p = k;
        for (int i = k + 1; i < N; i++)
            if (fabs(a[k][i]) > fabs(a[k][p]))
                p = i;
        swap(&a[k][p], &a[k][k]);
        double scale = 1 / a[k][k];
        for (int i = k + 1; i < N; i++)
            a[k][i] *= scale;
        for (int j = k + 1; j <= N; j++) {
            double *column = j < N ? a[j] : right;
            swap(&column[p], &column[k]);
            subtract(N - k - 1, column[k], a[k] + k + 1, column + k + 1);
        }
    }
    for (int k = N - 1; k >= 0; k--) {
        right[k] /= a[k][k];
        subtract(k, right[k], a[k], right);
    }
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    double residual = 0;
    for (int left = atoi(argv[1]); left > 0; left--) {
        make();
        double begin = now_ns();
        solve();
        printf("{\"metric\":\"iteration\",\"unit\":\"ns\",\"v\":%.0f}\n", now_ns() - begin);
    }
    static double x[N];
    for (int i = 0; i < N; i++)
        x[i] = right[i];
    double largest = make(), greatest = 0;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++)
            right[i] -= a[j][i] * x[j];
    for (int i = 0; i < N; i++) {
        residual = fmax(residual, fabs(right[i]));
        greatest = fmax(greatest, fabs(x[i]));
    }
    residual /= N * largest * greatest * DBL_EPSILON;
    int solved = residual < 16;
    printf("{\"verified\":%s,\"by\":\"normalised residual %.3f\"}\n", solved ? "true" : "false", residual);
    return !solved;
}
