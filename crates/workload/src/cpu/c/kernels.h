/*
 * The compute kernels in C: the hot loops only. Memory, inputs, checks and the clock are the caller's (Rust), the same for every level.
 * This file is compiled once per level (-O0, -O2, ...); LEVEL names the only table that each object exports, so that all levels can be
 * linked into one program. Keep it in step with native.rs.
 */
#ifndef FATHOM_KERNELS_H
#define FATHOM_KERNELS_H

#include <stdint.h>

struct fathom_kernels {
    /* Facts about this object, which only the preprocessor knows and nobody can pass in from outside. */
    const char *compiler;
    int32_t optimize;  /* __OPTIMIZE__ */
    int32_t fast_math; /* __FAST_MATH__ */
    /* a * b + c: the result shows whether this object rounds once (contracted) or twice. */
    double (*multiply_add)(double a, double b, double c);

    float (*himeno)(float *arrays, int64_t ni, int64_t steps);
    int32_t (*linpack)(double *a, int64_t stride, int64_t n, int32_t *pivot, double *b);
    void (*fft)(double *data, int64_t n, int32_t direction);
    void (*fft_pairs)(double *data, int64_t n, int64_t pairs);
    void (*sor)(double *grid, int64_t m, int64_t n, double omega, int64_t steps);
    int64_t (*montecarlo)(int32_t seed, int64_t samples);
    void (*sparse)(double *y, const double *values, const int32_t *rows, const int32_t *columns, const double *x,
                   int64_t m, int64_t times);
    int32_t (*lu)(const double *a, double *lu, int32_t *pivot, int64_t n, int64_t times);
};

#endif
