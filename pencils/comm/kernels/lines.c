/* Lines divided in strips, on which a program is executed. */
#include "lines.h"

#include <stdlib.h>

enum {
    IN_PLACE = 4,  /* times more bytes for buffers if rows are read and written in place */
    ONCE = 4,      /* times fewer if copied rows are read once: for the first-level cache */
    LONGEST = 4096 /* bytes of a row in place */
};

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static ptrdiff_t up_to_line(ptrdiff_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }

/* ---- the lines ---- */

/* Whether an axis and the next are one axis in all arrays. */
static int one_axis(const Lines *lines, int axis)
{
    for (int i = 0; i < lines->nsegments; i++) {
        const ptrdiff_t *strides = &lines->segments[i].strides[axis];
        if (strides[0] != lines->extents[axis + 1] * strides[1])
            return 0;
    }
    return 1;
}

static void drop_axis(Lines *lines, int axis)
{
    lines->naxes--;
    for (int to = axis; to < lines->naxes; to++) {
        lines->extents[to] = lines->extents[to + 1];
        for (int i = 0; i < lines->nsegments; i++)
            lines->segments[i].strides[to] = lines->segments[i].strides[to + 1];
    }
}

/* Join axes that number the lines, so that strips are as simple as can be. */
static void merge(Lines *lines)
{
    for (int axis = lines->naxes - 1; axis >= 0; axis--)
        if (lines->naxes > 1 && lines->extents[axis] == 1)
            drop_axis(lines, axis);
    for (int axis = lines->naxes - 2; axis >= 0; axis--)
        if (one_axis(lines, axis)) {
            lines->extents[axis + 1] *= lines->extents[axis];
            drop_axis(lines, axis);
        }
}

/* ---- segments that are read and written where they lie ---- */

typedef struct {
    uintptr_t first, end;
} Range;

static Range range_of(const Lines *lines, const Segment *segment)
{
    uintptr_t first = (uintptr_t)segment->first, end = first + size_of(lines->element);
    for (int i = -1; i < lines->naxes; i++) {
        ptrdiff_t last = (i < 0 ? segment->count : lines->extents[i]) - 1;
        ptrdiff_t way = last * (i < 0 ? segment->step : segment->strides[i]);
        if (last < 0)
            return (Range){0, 0};
        *(way < 0 ? &first : &end) += way;
    }
    return (Range){first, end};
}

static int apart(const Lines *lines, const Segment *a, const Segment *b)
{
    Range one = range_of(lines, a), other = range_of(lines, b);
    return one.end <= other.first || other.end <= one.first;
}

/* Whether each row has the same place in both. */
static int alike(const Lines *lines, const Segment *a, const Segment *b)
{
    if (a->step != b->step || a->step == 0
        || a->first - a->begin * a->step != b->first - b->begin * b->step)
        return 0;
    for (int i = 0; i < lines->naxes; i++)
        if (a->strides[i] != b->strides[i])
            return 0;
    return 1;
}

/* Decide which segments stay in place: their lines lie side by side, and no row is written where
   another one may be read later. */
static void choose_in_place(Lines *lines)
{
    ptrdiff_t size = size_of(lines->element), last = lines->naxes - 1;
    int many = lines->extents[last] * size >= LONG_RUN, overlap = 0;
    Segment *segments = lines->segments, *targets = segments + lines->nsources;
    int ntargets = lines->nsegments - lines->nsources;
    for (int i = 0; i < ntargets; i++)
        for (int j = 0; j < i; j++)
            overlap |= targets[i].begin < targets[j].begin + targets[j].count
                       && targets[j].begin < targets[i].begin + targets[i].count;
    for (int i = 0; i < lines->nsegments; i++) {
        segments[i].in_place = many && segments[i].strides[last] == size;
        if (i >= lines->nsources && (overlap || segments[i].step == 0))
            segments[i].in_place = 0;
    }
    for (int i = 0; i < lines->nsources; i++)
        for (int j = 0; j < ntargets; j++)
            if (!apart(lines, &segments[i], &targets[j])) {
                lines->stream = 0;
                if (targets[j].in_place)
                    segments[i].in_place &= alike(lines, &segments[i], &targets[j]);
            }
}

/* Whether there is little to write, so that rows are read once. */
static int writes_little(const Lines *lines)
{
    ptrdiff_t read = 0, written = 0;
    for (int i = 0; i < lines->nsegments; i++)
        *(i < lines->nsources ? &read : &written) += lines->segments[i].count;
    return written < read / 8;
}

/* Lines that are treated at once. Rows in place are better long, but the buffer has to stay in the
   cache; blocks that are copied need the cache for themselves, too. */
static ptrdiff_t lines_of_strip(const Lines *lines, int in_place)
{
    ptrdiff_t size = size_of(lines->element), row = most(1, lines->slots - 2) * size;
    ptrdiff_t bytes = in_place ? IN_PLACE * lines->bytes : lines->bytes;
    if (!in_place && writes_little(lines))
        bytes /= ONCE;
    ptrdiff_t wanted = most(bytes / row, lines->fewest);
    wanted = least(wanted, in_place ? LONGEST / size : lines->most);
    return wanted > LINE / size ? wanted - wanted % (LINE / size) : wanted;
}

/* Choose strips: axes from `cut` on are whole. */
static void divide(Lines *lines)
{
    int some = 0, all = 1;
    for (int i = 0; i < lines->nsegments; i++) {
        some |= lines->segments[i].in_place;
        all &= lines->segments[i].in_place;
    }
    ptrdiff_t wanted = lines_of_strip(lines, all);
    lines->inner = 1;
    lines->cut = lines->naxes;
    while (!some && lines->cut > 1
           && lines->inner * lines->extents[lines->cut - 1] <= wanted)
        lines->inner *= lines->extents[--lines->cut];
    lines->step = most(1, wanted / most(1, lines->inner));
    lines->step = most(1, least(lines->step, lines->extents[lines->cut - 1]));
    lines->pitch = up_to_line(lines->step * lines->inner * size_of(lines->element));
}

static void prepare_block(const Lines *lines, Segment *segment, int rest, int is_target)
{
    ptrdiff_t size = size_of(lines->element), along = size * lines->inner;
    ptrdiff_t points = rest ? lines->extents[lines->cut - 1] % lines->step : lines->step;
    Axis *axes = segment->axes + (rest ? lines->naxes + 1 : 0);
    char *buffer = lines->buffer + segment->begin * lines->pitch;
    int naxes = 0;
    axes[naxes++] = (Axis){segment->count, lines->pitch, segment->step};
    for (int i = lines->cut - 1; i < lines->naxes; i++) {
        axes[naxes++] = (Axis){i < lines->cut ? points : lines->extents[i], along,
                               segment->strides[i]};
        along /= i + 1 < lines->naxes ? most(1, lines->extents[i + 1]) : 1;
    }
    for (int i = 0; is_target && i < naxes; i++)
        axes[i] = (Axis){axes[i].extent, axes[i].source, axes[i].target};
    block_prepare(&segment->blocks[rest], is_target ? segment->first : buffer,
                  is_target ? buffer : segment->first, size, naxes, axes);
}

static int prepare_blocks(Lines *lines)
{
    lines->copied = 0;
    for (int i = 0; i < lines->nsegments; i++) {
        Segment *segment = &lines->segments[i];
        lines->copied |= !segment->in_place;
        segment->axes = malloc(2 * (size_t)(lines->naxes + 1) * sizeof(Axis));
        if (!segment->axes)
            return 0;
        for (int rest = 0; !segment->in_place && rest < 2; rest++)
            prepare_block(lines, segment, rest, i >= lines->nsources);
    }
    return 1;
}

static void fill_with_ones(const Lines *lines)
{
    char *row = lines->buffer + (lines->slots - 1) * lines->pitch;
    ptrdiff_t size = size_of(lines->element);
    for (ptrdiff_t at = 0; at + size <= lines->pitch; at += size) {
        if (lines->element == FLOAT || lines->element == COMPLEX_FLOAT)
            *(float *)(row + at) = 1;
        else
            *(double *)(row + at) = 1;
    }
}

static int allocate(Lines *lines)
{
    size_t rows = (size_t)lines->slots, pitch = (size_t)most(LINE, lines->pitch);
    if (rows > (PTRDIFF_MAX - 2 * LINE) / pitch)
        return 0;
    lines->memory = calloc(rows * pitch + LINE, 1);
    lines->bases = calloc(SEGMENTS + (size_t)lines->nsegments, sizeof *lines->bases);
    if (!lines->memory || !lines->bases)
        return 0;
    lines->buffer = lines->memory + (LINE - (uintptr_t)lines->memory % LINE) % LINE;
    lines->bases[BUFFER] = lines->buffer;
    fill_with_ones(lines);
    return 1;
}

int lines_prepare(Lines *lines)
{
    merge(lines);
    choose_in_place(lines);
    if (!lines_translate(lines))
        return 0;
    divide(lines);
    return lines_place(lines) && allocate(lines) && prepare_blocks(lines);
}

void lines_free(Lines *lines)
{
    for (int i = 0; lines->segments && i < lines->nsegments; i++)
        free(lines->segments[i].axes);
    free(lines->memory);
    free(lines->bases);
    free(lines->sums.sums);
    free(lines->sums.terms);
    free(lines->sums.fetches);
    lines->memory = NULL;
    lines->bases = NULL;
    lines->sums.sums = NULL;
    lines->sums.terms = NULL;
    lines->sums.fetches = NULL;
}

/* ---- execution ---- */

static void copy_segment(const Segment *segment, char *first, int rest, int is_target,
                         Copier *copy, int stream)
{
    Block block = segment->blocks[rest];
    if (segment->in_place)
        return;
    if (is_target)
        block.target += first - segment->first;
    else
        block.source += first - segment->first;
    copy(&block, stream);
}

static void run_strip(const Lines *lines, ptrdiff_t points, Copier *copy, Adder *add)
{
    char *const *first = &lines->bases[SEGMENTS];
    int rest = points != lines->step;
    for (int i = 0; i < lines->nsources && lines->copied; i++)
        copy_segment(&lines->segments[i], first[i], rest, 0, copy, 0);
    add(&lines->sums, lines->bases, points * lines->inner);
    for (int i = lines->nsources; i < lines->nsegments && lines->copied; i++)
        copy_segment(&lines->segments[i], first[i], rest, 1, copy, lines->stream);
}

/* Execute the program on rows of strips, of which the first begins at a point of the axes. */
static void run_strips(const Lines *lines, const ptrdiff_t *at, Copier *copy, Adder *add)
{
    int last = lines->cut - 1;
    ptrdiff_t rows = last > 0 ? lines->extents[last - 1] : 1;
    char **first = &lines->bases[SEGMENTS];
    for (int i = 0; i < lines->nsegments; i++) {
        first[i] = lines->segments[i].first;
        for (int axis = 0; axis < last - 1; axis++)
            first[i] += at[axis] * lines->segments[i].strides[axis];
    }
    for (ptrdiff_t row = 0; row < rows; row++) {
        for (ptrdiff_t done = 0, points; done < lines->extents[last]; done += points) {
            points = least(lines->step, lines->extents[last] - done);
            run_strip(lines, points, copy, add);
            for (int i = 0; i < lines->nsegments; i++)
                first[i] += points * lines->segments[i].strides[last];
            if (lines->factors)
                lines->bases[FACTORS] += points * lines->inner * size_of(lines->element);
        }
        for (int i = 0; i < lines->nsegments && last > 0; i++) {
            const ptrdiff_t *strides = &lines->segments[i].strides[last - 1];
            first[i] += strides[0] - lines->extents[last] * strides[1];
        }
    }
}

void lines_run(const Lines *lines, Copier *copy, Adder *add)
{
    ptrdiff_t at[MOST_AXES + 1] = {0};
    int axis = 0;
    for (int i = 0; i < lines->naxes; i++)
        if (lines->extents[i] == 0)
            return;
    lines->bases[FACTORS] = (char *)lines->factors;
    while (axis >= 0) {
        run_strips(lines, at, copy, add);
        for (axis = lines->cut - 3; axis >= 0 && ++at[axis] == lines->extents[axis]; axis--)
            at[axis] = 0;
    }
    if (lines->stream)
        streams_finish();
}
