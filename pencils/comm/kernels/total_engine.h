/* Sums of contiguous numbers.

   Numbers are added pairwise in the order of NumPy: up to UNDIVIDED of them in eight columns, more
   of them as two halves. So the result is that of NumPy to the last bit, and as accurate. */
#include "sums.h"

#include <string.h>
#include "machine.h"

#if HAVE_VECTORS
typedef double Columns __attribute__((vector_size(WIDTH), aligned(8), may_alias));
#else
typedef double Columns;
#endif
enum { COLUMNS = 8, VECTORS = COLUMNS * sizeof(double) / sizeof(Columns), UNDIVIDED = 128 };

static inline ALWAYS_INLINE TARGET double total_undivided(const double *numbers, ptrdiff_t count)
{
    double column[COLUMNS], total = -0.0;
    ptrdiff_t at = 0;
    if (count >= COLUMNS) {
        Columns sum[VECTORS];
        const Columns *row = (const Columns *)numbers;
        UNROLL for (int i = 0; i < VECTORS; i++)
            sum[i] = row[i];
        for (at = COLUMNS; at + COLUMNS <= count; at += COLUMNS) {
            row += VECTORS;
            UNROLL for (int i = 0; i < VECTORS; i++)
                sum[i] += row[i];
        }
        memcpy(column, sum, sizeof column);
        total = ((column[0] + column[1]) + (column[2] + column[3]))
                + ((column[4] + column[5]) + (column[6] + column[7]));
    }
    for (; at < count; at++)
        total += numbers[at];
    return total;
}

static TARGET double total_of(const double *numbers, ptrdiff_t count)
{
    if (count <= UNDIVIDED)
        return total_undivided(numbers, count);
    ptrdiff_t half = count / 2 / COLUMNS * COLUMNS;
    return total_of(numbers, half) + total_of(numbers + half, count - half);
}
