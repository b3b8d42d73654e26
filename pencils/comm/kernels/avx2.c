/* For processors with AVX2 and fused multiplication and addition. */
#include "machine.h"

#if X86 && HAVE_VECTORS
#define NAME "avx2"
#define LEVEL level_avx2
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 32
#define FUSED
#define STREAM(to, value) _mm256_stream_si256((__m256i *)(to), (__m256i)(value))
#include "engines.h"
#else
typedef int nothing_here;
#endif
