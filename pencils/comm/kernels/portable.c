/* For every processor: plain C, with 16-byte vectors where the compiler has them. */
#include "machine.h"

#define NAME "portable"
#define LEVEL level_portable
#define TARGET
#define WIDTH 16
#if X86
#define STREAM(to, value) _mm_stream_si128((__m128i *)(to), (__m128i)(value))
#else
#define STREAM(to, value) (*(Wide *)(to) = (value))
#endif
#include "engines.h"
