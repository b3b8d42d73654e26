/* Weighted sums of rows. */
#include "sums.h"

#include <stdint.h>
#include <string.h>
#include "machine.h"

#define SUM_INLINE static inline ALWAYS_INLINE TARGET

/* Numbers of lanes, for each lane of a vector: with real and imaginary parts exchanged, with the
   real part twice, and with the imaginary part twice. */
#define OTHER_2 1, 0
#define OTHER_4 OTHER_2, 3, 2
#define OTHER_8 OTHER_4, 5, 4, 7, 6
#define OTHER_16 OTHER_8, 9, 8, 11, 10, 13, 12, 15, 14
#define FIRST_2 0, 0
#define FIRST_4 FIRST_2, 2, 2
#define FIRST_8 FIRST_4, 4, 4, 6, 6
#define FIRST_16 FIRST_8, 8, 8, 10, 10, 12, 12, 14, 14
#define SECOND_2 1, 1
#define SECOND_4 SECOND_2, 3, 3
#define SECOND_8 SECOND_4, 5, 5, 7, 7
#define SECOND_16 SECOND_8, 9, 9, 11, 11, 13, 13, 15, 15

#if HAVE_VECTORS && defined(FUSED) && WIDTH == 64
#define FUSED_FLOAT(a, b, c) _mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c))
#define FUSED_DOUBLE(a, b, c) _mm512_fmadd_pd((__m512d)(a), (__m512d)(b), (__m512d)(c))
#elif HAVE_VECTORS && defined(FUSED)
#define FUSED_FLOAT(a, b, c) _mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c))
#define FUSED_DOUBLE(a, b, c) _mm256_fmadd_pd((__m256d)(a), (__m256d)(b), (__m256d)(c))
#else
#define FUSED_FLOAT(a, b, c) ((a) * (b) + (c))
#define FUSED_DOUBLE(a, b, c) ((a) * (b) + (c))
#endif
#ifdef FUSED
#define NUMBER_FUSED_FLOAT(a, b, c) __builtin_fmaf(a, b, c)
#define NUMBER_FUSED_DOUBLE(a, b, c) __builtin_fma(a, b, c)
#else
#define NUMBER_FUSED_FLOAT(a, b, c) ((a) * (b) + (c))
#define NUMBER_FUSED_DOUBLE(a, b, c) ((a) * (b) + (c))
#endif

/* For each lane of a vector, what a macro makes of its number. */
#define EACH_2(make, ...) make(0, __VA_ARGS__), make(1, __VA_ARGS__)
#define EACH_4(make, ...) EACH_2(make, __VA_ARGS__), make(2, __VA_ARGS__), make(3, __VA_ARGS__)
#define EACH_8(make, ...)                                                                     \
    EACH_4(make, __VA_ARGS__), make(4, __VA_ARGS__), make(5, __VA_ARGS__),                    \
        make(6, __VA_ARGS__), make(7, __VA_ARGS__)
#define EACH_16(make, ...)                                                                    \
    EACH_8(make, __VA_ARGS__), make(8, __VA_ARGS__), make(9, __VA_ARGS__),                    \
        make(10, __VA_ARGS__), make(11, __VA_ARGS__), make(12, __VA_ARGS__),                  \
        make(13, __VA_ARGS__), make(14, __VA_ARGS__), make(15, __VA_ARGS__)

/* Elements of two vectors, whose numbers a macro makes of those of lanes. */
#define LANES ((int)(WIDTH / sizeof(REAL)))
#define SHUFFLED(a, b, ...) __builtin_shufflevector(a, b, PAIRED(EACH)(__VA_ARGS__))

/* Rows that are fetched while a sum of few terms is computed. */
enum { MOST_FETCHED = 3, APART = COMPLEX_FACTORS + 1, NEARBY = 2 };
typedef struct {
    const char *rows[MOST_TERMS];
    int count;
} Ahead;

SUM_INLINE void fetch_ahead(const Ahead *ahead, ptrdiff_t at)
{
    if ((at & (LINE - 1)) >= WIDTH) /* once for a line */
        return;
    for (int i = 0; i < ahead->count; i++)
        PREFETCH(ahead->rows[i] + at);
}

#if HAVE_VECTORS
#define STREAM_VECTOR(to, value) STREAM(to, (Wide)(value))
#else
#define STREAM_VECTOR(to, value) ((void)(to), (void)(value))
#endif

#define REAL float
#define VECTOR_MULTIPLY_ADD FUSED_FLOAT
#define NUMBER_MULTIPLY_ADD NUMBER_FUSED_FLOAT
#define NAMED(name) name##_float
#if WIDTH == 64
#define PAIRED(lanes) lanes##_16
#elif WIDTH == 32
#define PAIRED(lanes) lanes##_8
#else
#define PAIRED(lanes) lanes##_4
#endif
#include "sums_of.h"
#include "strides_of.h"
#include "windows_of.h"
#undef REAL
#undef NAMED
#undef PAIRED
#undef VECTOR_MULTIPLY_ADD
#undef NUMBER_MULTIPLY_ADD

#define REAL double
#define VECTOR_MULTIPLY_ADD FUSED_DOUBLE
#define NUMBER_MULTIPLY_ADD NUMBER_FUSED_DOUBLE
#define NAMED(name) name##_double
#if WIDTH == 64
#define PAIRED(lanes) lanes##_8
#elif WIDTH == 32
#define PAIRED(lanes) lanes##_4
#else
#define PAIRED(lanes) lanes##_2
#endif
#include "sums_of.h"
#include "strides_of.h"
#include "windows_of.h"
#undef REAL
#undef NAMED
#undef PAIRED
#undef VECTOR_MULTIPLY_ADD
#undef NUMBER_MULTIPLY_ADD

static TARGET void add_sums(const Sums *sums, char *const *bases, ptrdiff_t width)
{
    switch (sums->element) {
    case FLOAT: add_all_float(sums, bases, width * (ptrdiff_t)sizeof(float)); break;
    case DOUBLE: add_all_double(sums, bases, width * (ptrdiff_t)sizeof(double)); break;
    case COMPLEX_FLOAT: add_all_float(sums, bases, width * 2 * (ptrdiff_t)sizeof(float)); break;
    default: add_all_double(sums, bases, width * 2 * (ptrdiff_t)sizeof(double));
    }
}

static TARGET void weigh(const Weighted *sum, int is_double)
{
    if (is_double)
        weigh_double(sum);
    else
        weigh_float(sum);
}

static TARGET void stride(const Strided *sums, int is_double)
{
    if (is_double)
        stride_double(sums);
    else
        stride_float(sums);
}

static TARGET void add_windows(const Windows *sums, int is_double)
{
    if (is_double)
        add_windows_double(sums);
    else
        add_windows_float(sums);
}
