/* For every processor: plain C, with 16-byte vectors where the compiler has them. */
#include "machine.h"

#define TARGET
#define WIDTH 16
#define COPY copy_portable
#define SUM sum_portable
#define ADD add_portable
#define WEIGH_ALL weigh_portable
#define TOTAL total_portable
#if X86
#define STREAM(to, value) _mm_stream_si128((__m128i *)(to), (__m128i)(value))
#else
#define STREAM(to, value) (*(Wide *)(to) = (value))
#endif
#include "engine.h"
#include "checksum_engine.h"
#include "sums_engine.h"
#include "total_engine.h"
