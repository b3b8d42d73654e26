/* Rows read and written by their numbers, and points found by their coordinates. Plain C: knows
   nothing of Python. */
#ifndef PENCILS_ROWS_H
#define PENCILS_ROWS_H

#include <stddef.h>
#include <stdint.h>

/* Copies of single items: item `from[i]` of the source becomes item `to[i]` of the target. Without
   such a list the number is `i`. Steps are the bytes from one item to the next. */
typedef struct {
    char *target;
    const char *source;
    const int64_t *to, *from;
    ptrdiff_t target_step, source_step;
    ptrdiff_t item, count;
} Moves;

void moves_run(const Moves *moves);

/* How one dimension is cut: part p holds `cuts[p] .. cuts[p + 1] - 1`, and owners of neighbouring
   parts are `step` apart. */
typedef struct {
    const int64_t *cuts;
    ptrdiff_t parts;
    ptrdiff_t step;
} Along;

/* Points by their coordinates along each dimension. `first` owns the first part along all. */
typedef struct {
    int ndim;
    ptrdiff_t count;
    const int64_t *const *coords;
    const Along *along;
    ptrdiff_t first;
} Points;

/* Find who owns each point, and its number in the block there: the last dimension is fastest. */
void points_locate(const Points *points, int64_t *owners, int64_t *offsets);

/* Read points where they lie. The table has a row for each owner: the address at which the point
   with all coordinates 0 would lie, and the bytes from one point to the next along each dimension. */
void points_fetch(const Points *points, const int64_t *table, char *target, ptrdiff_t item,
                  ptrdiff_t step);

/* Sort numbers 0 .. count - 1 by their owner, one of `size`, stably, and tell where the numbers of
   each owner end. */
void owners_sort(const int64_t *owners, ptrdiff_t count, ptrdiff_t size, int64_t *ends,
                 int64_t *order);

#endif
