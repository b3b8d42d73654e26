/* Items scattered in memory, fetched ahead of their turn: waiting for each would take longest. */
#include "rows.h"

#include <string.h>
#include "machine.h"

enum {
    AHEAD = 48,   /* items to fetch before they are needed */
    BATCH = 32,   /* points whose addresses are found before the first is read (measured) */
    SOME = 512    /* points that are found along one dimension after the other: in the cache */
};

#define INLINE static inline ALWAYS_INLINE

INLINE ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }

/* Call with the bytes of an item, as a constant if there are so many of a number. */
#define BY_SIZE(item, call)                                                         \
    switch (item) {                                                                 \
    case 1: call(1); break;                                                         \
    case 2: call(2); break;                                                         \
    case 4: call(4); break;                                                         \
    case 8: call(8); break;                                                         \
    case 16: call(16); break;                                                       \
    default: call(item);                                                            \
    }

/* ---- items by their numbers ---- */

INLINE char *place(char *first, const int64_t *numbers, ptrdiff_t i, ptrdiff_t step)
{
    return first + (numbers ? numbers[i] : i) * step;
}

/* Move some items; to and from are those of the moves, or constants NULL, `item` is a constant. */
INLINE void move_some(const Moves *m, const int64_t *to, const int64_t *from, ptrdiff_t item)
{
    ptrdiff_t near = m->count > AHEAD ? m->count - AHEAD : 0;
    char *target = m->target, *source = (char *)m->source;
    for (ptrdiff_t i = 0; i < m->count; i++) {
        if (from && i < near)
            PREFETCH(place(source, from, i + AHEAD, m->source_step));
        if (to && i < near)
            PREFETCH(place(target, to, i + AHEAD, m->target_step));
        memcpy(place(target, to, i, m->target_step), place(source, from, i, m->source_step), item);
    }
}

#define MOVE_ALL(item) move_some(m, NULL, NULL, item)
#define SCATTER(item) move_some(m, m->to, NULL, item)
#define GATHER(item) move_some(m, NULL, m->from, item)
#define MOVE_BOTH(item) move_some(m, m->to, m->from, item)

void moves_run(const Moves *m)
{
    if (m->to && m->from)
        BY_SIZE(m->item, MOVE_BOTH)
    else if (m->to)
        BY_SIZE(m->item, SCATTER)
    else if (m->from)
        BY_SIZE(m->item, GATHER)
    else
        BY_SIZE(m->item, MOVE_ALL)
}

/* ---- points by their coordinates ---- */

/* The last part that begins at or before an index, which is never an empty one. */
INLINE ptrdiff_t part_of(const Along *along, int64_t index)
{
    const int64_t *cuts = along->cuts;
    for (ptrdiff_t parts = along->parts; parts > 1;) {
        ptrdiff_t half = parts / 2;
        cuts += half & -(ptrdiff_t)(cuts[half] <= index); /* a branch would be guessed wrong */
        parts -= half;
    }
    return cuts - along->cuts;
}

/* Find some points along one dimension, after those before it. */
static void locate_along(const Along *along, const int64_t *index, ptrdiff_t count,
                         int64_t *owners, int64_t *offsets)
{
    if (along->parts == 1) {
        int64_t extent = along->cuts[1];
        for (ptrdiff_t i = 0; i < count; i++)
            offsets[i] = offsets[i] * extent + index[i];
        return;
    }
    for (ptrdiff_t i = 0; i < count; i++) {
        ptrdiff_t part = part_of(along, index[i]);
        const int64_t *cut = &along->cuts[part];
        owners[i] += part * along->step;
        offsets[i] = offsets[i] * (cut[1] - cut[0]) + (index[i] - cut[0]);
    }
}

void points_locate(const Points *points, int64_t *owners, int64_t *offsets)
{
    for (ptrdiff_t start = 0; start < points->count; start += SOME) {
        ptrdiff_t count = least(points->count - start, SOME);
        for (ptrdiff_t i = start; i < start + count; i++) {
            owners[i] = points->first;
            offsets[i] = 0;
        }
        for (int dim = 0; dim < points->ndim; dim++)
            locate_along(&points->along[dim], points->coords[dim] + start, count, owners + start,
                         offsets + start);
    }
}

/* Find where a batch of points lies; `ndim` is a constant, or that of the points. */
INLINE void find_some(const Points *points, int ndim, const int64_t *table, ptrdiff_t start,
                      ptrdiff_t count, const char **sources)
{
    for (ptrdiff_t i = start; i < start + count; i++) {
        ptrdiff_t owner = points->first;
        for (int dim = 0; dim < ndim; dim++)
            if (points->along[dim].parts > 1)
                owner += part_of(&points->along[dim], points->coords[dim][i])
                         * points->along[dim].step;
        const int64_t *row = &table[owner * (1 + ndim)];
        int64_t address = row[0];
        for (int dim = 0; dim < ndim; dim++)
            address += points->coords[dim][i] * row[1 + dim];
        sources[i - start] = (const char *)(intptr_t)address;
        PREFETCH(sources[i - start]);
    }
}

static void find(const Points *points, const int64_t *table, ptrdiff_t start, ptrdiff_t count,
                 const char **sources)
{
    switch (points->ndim) {
    case 1: find_some(points, 1, table, start, count, sources); break;
    case 2: find_some(points, 2, table, start, count, sources); break;
    case 3: find_some(points, 3, table, start, count, sources); break;
    default: find_some(points, points->ndim, table, start, count, sources);
    }
}

INLINE void read_some(const char *const *sources, ptrdiff_t count, char *target, ptrdiff_t item,
                      ptrdiff_t step)
{
    for (ptrdiff_t i = 0; i < count; i++)
        memcpy(target + i * step, sources[i], item);
}

#define READ(item)                                                                          \
    read_some(batches[(start / BATCH + 1) % 2], ready, target + (start - BATCH) * step, item, step)

void points_fetch(const Points *points, const int64_t *table, char *target, ptrdiff_t item,
                  ptrdiff_t step)
{
    const char *batches[2][BATCH]; /* one is fetched while the other is read */
    ptrdiff_t ready = 0;
    for (ptrdiff_t start = 0; start < points->count + BATCH; start += BATCH) {
        ptrdiff_t count = least(points->count - start, BATCH);
        if (count > 0)
            find(points, table, start, count, batches[start / BATCH % 2]);
        if (ready > 0)
            BY_SIZE(item, READ)
        ready = count;
    }
}

/* ---- owners ---- */

void owners_sort(const int64_t *owners, ptrdiff_t count, ptrdiff_t size, int64_t *ends,
                 int64_t *order)
{
    int64_t start = 0;
    memset(ends, 0, (size_t)size * sizeof *ends);
    for (ptrdiff_t i = 0; i < count; i++)
        ends[owners[i]]++;
    for (ptrdiff_t owner = 0; owner < size; owner++) {
        int64_t number = ends[owner];
        ends[owner] = start;
        start += number;
    }
    for (ptrdiff_t i = 0; i < count; i++)
        order[ends[owners[i]]++] = i;
}
