#include "kernels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "himeno.c"
#include "linpack.c"
#include "scimark.c"

#ifdef __OPTIMIZE__
#define OPTIMIZE 1
#else
#define OPTIMIZE 0
#endif
#ifdef __FAST_MATH__
#define FAST_MATH 1
#else
#define FAST_MATH 0
#endif
#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "GCC " __VERSION__
#endif

static double multiply_add(double a, double b, double c)
{
    return a * b + c;
}

#define NAME_OF(level) fathom_kernels_##level
#define NAME(level) NAME_OF(level)

const struct fathom_kernels NAME(LEVEL) = {
    .compiler = COMPILER,
    .optimize = OPTIMIZE,
    .fast_math = FAST_MATH,
    .multiply_add = multiply_add,
    .himeno = himeno,
    .linpack = linpack,
    .fft = fft,
    .fft_pairs = fft_pairs,
    .sor = sor,
    .montecarlo = montecarlo,
    .sparse = sparse,
    .lu = lu,
};
