/* For processors with AVX2 and fused multiplication and addition. */
#include "machine.h"

#if X86 && HAVE_VECTORS
#define TARGET __attribute__((target("avx2,fma")))
#define WIDTH 32
#define COPY copy_avx2
#define SUM sum_avx2
#define ADD add_avx2
#define WEIGH_ALL weigh_avx2
#define TOTAL total_avx2
#define FUSED
#define STREAM(to, value) _mm256_stream_si256((__m256i *)(to), (__m256i)(value))
#include "engine.h"
#include "checksum_engine.h"
#include "sums_engine.h"
#include "total_engine.h"
#else
typedef int nothing_here;
#endif
