/* For processors with the AVX-512 of 2017 servers and later. */
#include "machine.h"

#if X86 && HAVE_VECTORS
#define NAME "avx512"
#define LEVEL level_avx512
#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,fma")))
#define WIDTH 64
#define FUSED
#define STREAM(to, value) _mm512_stream_si512((__m512i *)(to), (__m512i)(value))
#include "engines.h"
#else
typedef int nothing_here;
#endif
