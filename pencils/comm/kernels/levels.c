/* Which of the compiled copies this processor can run. */
#include "block.h"
#include "machine.h"

Copier copy_portable, copy_avx2, copy_avx512;
Summer sum_portable, sum_avx2, sum_avx512;
Adder add_portable, add_avx2, add_avx512;
Weigher weigh_portable, weigh_avx2, weigh_avx512;
Totaler total_portable, total_avx2, total_avx512;

int levels_available(Level *levels)
{
    int count = 0;
#if X86 && HAVE_VECTORS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")
        && __builtin_cpu_supports("fma"))
        levels[count++]
            = (Level){"avx512", copy_avx512, sum_avx512, add_avx512, weigh_avx512, total_avx512};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        levels[count++]
            = (Level){"avx2", copy_avx2, sum_avx2, add_avx2, weigh_avx2, total_avx2};
#endif
    levels[count++]
        = (Level){"portable", copy_portable, sum_portable, add_portable, weigh_portable,
                  total_portable};
    return count;
}

void streams_finish(void)
{
#if X86
    _mm_sfence();
#endif
}
