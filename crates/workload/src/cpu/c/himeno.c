/* The published sizes of Himeno's benchmark, each compiled separately. */
#define NAME himeno_xs
#define NI 32
#define NJ 32
#define NK 64
#include "himeno_size.c"
#define NAME himeno_s
#define NI 64
#define NJ 64
#define NK 128
#include "himeno_size.c"
#define NAME himeno_m
#define NI 128
#define NJ 128
#define NK 256
#include "himeno_size.c"
#define NAME himeno_l
#define NI 256
#define NJ 256
#define NK 512
#include "himeno_size.c"
#define NAME himeno_xl
#define NI 512
#define NJ 512
#define NK 1024
#include "himeno_size.c"

/* The fourteen arrays follow one another at `arrays`; `ni` selects the size. Returns a negative value if there is no such size. */
static float himeno(float *arrays, int64_t ni, int64_t steps)
{
    switch (ni) {
    case 32: return himeno_xs((void *)arrays, steps);
    case 64: return himeno_s((void *)arrays, steps);
    case 128: return himeno_m((void *)arrays, steps);
    case 256: return himeno_l((void *)arrays, steps);
    case 512: return himeno_xl((void *)arrays, steps);
    default: return -1.0f;
    }
}
