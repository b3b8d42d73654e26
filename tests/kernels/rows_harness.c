/* Compare rows and points with plain loops, for many random cases; for sanitizers.

   rows_harness CASES */
#include "../../pencils/comm/kernels/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4, PARTS = 4 };

static uint64_t state = 1;

static int64_t random_below(int64_t bound)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)bound);
}

static char *random_bytes(ptrdiff_t count)
{
    char *bytes = malloc((size_t)count);
    for (ptrdiff_t i = 0; i < count; i++)
        bytes[i] = (char)random_below(256);
    return bytes;
}

static int64_t *numbers(ptrdiff_t count, int64_t bound)
{
    int64_t *found = malloc((size_t)count * sizeof *found);
    for (ptrdiff_t i = 0; i < count; i++)
        found[i] = random_below(bound);
    return found;
}

static int check_moves(void)
{
    static const ptrdiff_t items[] = {1, 2, 3, 4, 8, 12, 16, 40};
    ptrdiff_t item = items[random_below(8)], count = 1 + random_below(200);
    ptrdiff_t target_step = item * (1 + random_below(2)), source_step = item * (1 + random_below(2));
    char *source = random_bytes(count * source_step), *target = random_bytes(count * target_step);
    char *expected = malloc((size_t)(count * target_step));
    int64_t *to = random_below(2) ? numbers(count, count) : NULL;
    int64_t *from = random_below(2) ? numbers(count, count) : NULL;
    memcpy(expected, target, (size_t)(count * target_step));
    for (ptrdiff_t i = 0; i < count; i++)
        memcpy(expected + (to ? to[i] : i) * target_step, source + (from ? from[i] : i) * source_step,
               (size_t)item);
    moves_run(&(Moves){target, source, to, from, target_step, source_step, item, count});
    int right = memcmp(expected, target, (size_t)(count * target_step)) == 0;
    free(source), free(target), free(expected), free(to), free(from);
    return right;
}

/* The part that holds an index, found by looking at all. */
static ptrdiff_t part_of(const Along *along, int64_t index)
{
    ptrdiff_t part = 0;
    while (along->cuts[part + 1] <= index)
        part++;
    return part;
}

static int check_points(void)
{
    int64_t cuts[MOST][PARTS + 1], *coords[MOST];
    Along along[MOST];
    int ndim = 1 + (int)random_below(MOST);
    ptrdiff_t count = random_below(3) ? random_below(50) : 5000, size = 1;
    for (int dim = 0; dim < ndim; dim++) {
        ptrdiff_t parts = 1 + random_below(PARTS);
        cuts[dim][0] = 0;
        for (ptrdiff_t part = 0; part < parts; part++)
            cuts[dim][part + 1] = cuts[dim][part] + random_below(4);
        cuts[dim][parts] += 1;
        coords[dim] = numbers(count, cuts[dim][parts]);
        along[dim] = (Along){cuts[dim], parts, size};
        size *= parts;
    }
    Points points = {ndim, count, (const int64_t *const *)coords, along, 0};
    int64_t *owners = numbers(count, 1), *offsets = numbers(count, 1), *order = numbers(count, 1);
    int64_t *ends = numbers(size, 1), *table = numbers(size * (1 + ndim), 3), *found;
    int64_t *memory = numbers(1000, 1 << 20);
    for (ptrdiff_t owner = 0; owner < size; owner++)
        table[owner * (1 + ndim)] = (int64_t)(intptr_t)(memory + owner % 100);
    for (ptrdiff_t i = 0; i < size * (1 + ndim); i++)
        if (i % (1 + ndim))
            table[i] *= (int64_t)sizeof *memory;
    found = numbers(count, 1);
    points_locate(&points, owners, offsets);
    points_fetch(&points, table, (char *)found, sizeof *found, sizeof *found);
    owners_sort(owners, count, size, ends, order);
    int right = 1;
    for (ptrdiff_t i = 0; i < count; i++) {
        int64_t owner = 0, offset = 0;
        for (int dim = 0; dim < ndim; dim++) {
            ptrdiff_t part = part_of(&along[dim], coords[dim][i]);
            owner += part * along[dim].step;
            offset = offset * (cuts[dim][part + 1] - cuts[dim][part]) + coords[dim][i]
                     - cuts[dim][part];
        }
        const int64_t *row = &table[owner * (1 + ndim)];
        int64_t address = row[0];
        for (int dim = 0; dim < ndim; dim++)
            address += row[1 + dim] * coords[dim][i];
        right &= owners[i] == owner && offsets[i] == offset;
        right &= found[i] == *(int64_t *)(intptr_t)address;
        if (i > 0) {
            int64_t one = order[i - 1], other = order[i];
            right &= owners[one] < owners[other] || (owners[one] == owners[other] && one < other);
        }
    }
    right &= count == 0 || ends[size - 1] == count;
    for (int dim = 0; dim < ndim; dim++)
        free(coords[dim]);
    free(owners), free(offsets), free(order), free(ends), free(table), free(found), free(memory);
    return right;
}

int main(int argc, char **argv)
{
    int cases = argc > 1 ? atoi(argv[1]) : 100;
    for (int n = 0; n < cases; n++)
        if (!check_moves() || !check_points()) {
            printf("case %d is wrong\n", n);
            return 1;
        }
    return 0;
}
