/* For processors with the AVX-512 of 2017 servers and later. */
#include "machine.h"

#if X86 && HAVE_VECTORS
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define WIDTH 64
#define COPY copy_avx512
#define SUM sum_avx512
#define ADD add_avx512
#define WEIGH_ALL weigh_avx512
#define TOTAL total_avx512
#define FUSED
#define STREAM(to, value) _mm512_stream_si512((__m512i *)(to), (__m512i)(value))
#include "engine.h"
#include "checksum_engine.h"
#include "sums_engine.h"
#include "total_engine.h"
#else
typedef int nothing_here;
#endif
