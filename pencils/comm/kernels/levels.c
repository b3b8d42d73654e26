/* Which of the compiled copies this processor can run. */
#include "block.h"
#include "machine.h"

extern const Level level_portable, level_avx2, level_avx512;

int levels_available(Level *levels)
{
    int count = 0;
#if X86 && HAVE_VECTORS
    __builtin_cpu_init();
    int fused = __builtin_cpu_supports("fma");
    if (fused && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        levels[count++] = level_avx512;
    if (fused && __builtin_cpu_supports("avx2"))
        levels[count++] = level_avx2;
#endif
    levels[count++] = level_portable;
    return count;
}

void streams_finish(void)
{
#if X86
    _mm_sfence();
#endif
}
