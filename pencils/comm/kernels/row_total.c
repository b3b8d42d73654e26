/* Sums of all elements of a block, of which some come at a time, in the order of memory.

   They are added as NumPy adds all of them at once: see total_engine.h. Its halves are divided until
   they are leaves, whose elements are collected; sums of left halves wait for those of right ones. */
#include "arguments.h"

#include <fenv.h>
#include <stdint.h>
#include <string.h>
#include "row_program.h"

enum { UNDIVIDED = 128, COLUMNS = 8, DEPTH = 64 };

typedef struct {
    int64_t count;    /* of all elements, */
    double sum;       /* and their sum in the end */
    int64_t overflow, invalid; /* whether additions raised these exceptions */
    int64_t leaf, filled, depth;
    double elements[UNDIVIDED];
    struct {
        int64_t right; /* elements of the right half; 0 while they are added */
        double left;   /* the sum of the left half */
    } halves[DEPTH];
} Total;

size_t row_total_size(void) { return sizeof(Total); }

/* Find the first leaf of so many elements. */
static void descend(Total *total, int64_t count)
{
    while (count > UNDIVIDED && total->depth < DEPTH) {
        int64_t half = count / 2 / COLUMNS * COLUMNS;
        total->halves[total->depth++].right = count - half;
        count = half;
    }
    total->leaf = count;
    total->filled = 0;
}

/* Take the sum of a leaf, and find the next one. */
static void ascend(Total *total, double sum)
{
    for (; total->depth; total->depth--) {
        int64_t right = total->halves[total->depth - 1].right;
        double *left = &total->halves[total->depth - 1].left;
        if (right) {
            *left = sum;
            total->halves[total->depth - 1].right = 0;
            descend(total, right);
            return;
        }
        sum = *left + sum;
    }
    total->sum = 0.0 + sum; /* NumPy adds to 0 */
    total->leaf = total->filled = 0;
}

static void add_row(Total *total, const char *from, ptrdiff_t left, ptrdiff_t step)
{
    while (left > 0 && total->leaf) {
        int64_t some = total->leaf - total->filled;
        if (left < some)
            some = left;
        const double *leaf = (const double *)from;
        if (some < total->leaf || step != sizeof(double)) {
            double *to = total->elements + total->filled;
            if (step == sizeof(double))
                memcpy(to, from, (size_t)some * sizeof(double));
            else
                for (int64_t i = 0; i < some; i++)
                    to[i] = *(const double *)(from + i * step);
            leaf = total->elements;
        }
        total->filled += some;
        from += some * step;
        left -= some;
        if (total->filled == total->leaf)
            ascend(total, level.total(leaf, total->leaf));
    }
}

void row_total(char **places, const ptrdiff_t *dimensions, const ptrdiff_t *steps,
               void *Py_UNUSED(data))
{
    Total *total = (Total *)places[1];
    if (!total->leaf)
        descend(total, total->count);
    for (ptrdiff_t row = 0; row < dimensions[1]; row++)
        add_row(total, places[0] + row * steps[2], dimensions[0], steps[0]);
    int raised = fetestexcept(FE_OVERFLOW | FE_INVALID);
    if (!raised)
        return;
    total->overflow |= (raised & FE_OVERFLOW) != 0;
    total->invalid |= (raised & FE_INVALID) != 0;
    feclearexcept(FE_ALL_EXCEPT);
}
