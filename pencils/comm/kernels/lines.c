/* Programs brought to sums of rows of a buffer, and their execution on strips of lines. */
#include "lines.h"

#include <stdlib.h>
#include <string.h>

enum { BUFFER, FACTORS, BASES };

/* ---- the program ---- */

static ptrdiff_t least(ptrdiff_t a, ptrdiff_t b) { return a < b ? a : b; }
static ptrdiff_t most(ptrdiff_t a, ptrdiff_t b) { return a > b ? a : b; }
static ptrdiff_t up_to_line(ptrdiff_t bytes) { return (bytes + LINE - 1) / LINE * LINE; }
static int is_complex(Element element) { return element >= COMPLEX_FLOAT; }

static ptrdiff_t size_of(Element element)
{
    static const ptrdiff_t sizes[] = {4, 8, 8, 16};
    return sizes[element];
}

static Prepared check(const Lines *lines)
{
    const Program *program = &lines->program;
    int64_t begin = 0;
    for (int64_t i = 0; i < program->nsteps; i++) {
        if (program->ends[i] < begin || program->ends[i] > program->nterms)
            return BAD_ENDS;
        if (program->targets[i] < 0 || program->targets[i] >= program->rows)
            return BAD_ROW;
        begin = program->ends[i];
    }
    for (int64_t i = 0; i < program->nterms; i++) {
        if (program->rows_of[i] < 0 || program->rows_of[i] >= program->rows)
            return BAD_ROW;
        if (program->factors_of[i] < -1 || program->factors_of[i] >= lines->nfactors)
            return BAD_FACTOR;
    }
    for (int i = 0; i < lines->nsegments; i++) {
        const Segment *segment = &lines->segments[i];
        if (segment->begin < 0 || segment->count > program->rows - segment->begin)
            return BAD_ROW;
    }
    return begin == program->nterms ? PREPARED : BAD_ENDS;
}

static Place row_at(const Lines *lines, int64_t row) { return (Place){BUFFER, row * lines->pitch}; }

/* After the rows come one for parts of long sums, and one of ones for terms without factors. */
static Place part_row(const Lines *lines) { return row_at(lines, lines->program.rows); }
static Place row_of_ones(const Lines *lines) { return row_at(lines, lines->program.rows + 1); }

static Term term_at(const Lines *lines, int64_t i)
{
    const Program *program = &lines->program;
    const double *weight = &program->weights[i << program->complex_weights];
    int64_t number = program->factors_of[i];
    return (Term){row_at(lines, program->rows_of[i]),
                  number < 0 ? row_of_ones(lines) : (Place){FACTORS, number * lines->factor_step},
                  {weight[0], program->complex_weights ? weight[1] : 0}};
}

static SumKind kind_of(const Lines *lines, int64_t begin, int64_t end)
{
    int factors = 0, imag = 0;
    for (int64_t i = begin; i < end; i++) {
        factors |= lines->program.factors_of[i] >= 0;
        imag |= lines->program.complex_weights && lines->program.weights[2 * i + 1] != 0;
    }
    if (is_complex(lines->element) && (imag || factors))
        return factors ? COMPLEX_FACTORS : COMPLEX_SUM;
    return factors ? REAL_FACTORS : REAL_SUM;
}

static void add_sum(Lines *lines, Term **term, Place target, SumKind kind, const Term *first)
{
    Sum *sum = &lines->sums.sums[lines->sums.count++];
    *sum = (Sum){target, kind, (int)(*term - first)};
}

/* Divide a step in sums that are short enough; all but the last one collect what was added so far,
   since the target may be one of the terms that come later. */
static void add_step(Lines *lines, Term **term, int64_t target, int64_t begin, int64_t end)
{
    SumKind kind = kind_of(lines, begin, end);
    int longest = kind == REAL_SUM ? MOST_TERMS : MOST_FACTORS;
    Term *first = *term;
    for (int64_t i = begin; i < end; i++) {
        if (*term - first == longest) {
            add_sum(lines, term, part_row(lines), kind, first);
            first = *term;
            *(*term)++ = (Term){part_row(lines), row_of_ones(lines), {1, 0}};
        }
        *(*term)++ = term_at(lines, i);
    }
    add_sum(lines, term, row_at(lines, target), kind, first);
}

static Prepared add_steps(Lines *lines)
{
    const Program *program = &lines->program;
    lines->sums.element = lines->element;
    /* Each sum but the last of a step has at least three new terms. */
    lines->sums.sums = malloc((size_t)(program->nsteps + program->nterms + 1) * sizeof(Sum));
    lines->sums.terms = malloc((size_t)(2 * program->nterms + 1) * sizeof(Term));
    if (!lines->sums.sums || !lines->sums.terms)
        return NO_MEMORY;
    Term *term = lines->sums.terms;
    for (int64_t i = 0; i < program->nsteps; i++)
        add_step(lines, &term, program->targets[i], i ? program->ends[i - 1] : 0, program->ends[i]);
    return PREPARED;
}

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

/* Choose strips: axes from `cut` on are whole. */
static void divide(Lines *lines)
{
    ptrdiff_t row = most(1, lines->program.rows) * size_of(lines->element);
    ptrdiff_t wanted = least(most(lines->bytes / row, lines->fewest), lines->most);
    lines->inner = 1;
    lines->cut = lines->naxes;
    while (lines->cut > 1 && lines->inner * lines->extents[lines->cut - 1] <= wanted)
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

static Prepared prepare_blocks(Lines *lines)
{
    for (int i = 0; i < lines->nsegments; i++) {
        Segment *segment = &lines->segments[i];
        segment->axes = malloc(2 * (size_t)(lines->naxes + 1) * sizeof(Axis));
        if (!segment->axes)
            return NO_MEMORY;
        for (int rest = 0; rest < 2; rest++)
            prepare_block(lines, segment, rest, i >= lines->nsources);
    }
    return PREPARED;
}

static void fill_with_ones(const Lines *lines)
{
    char *row = lines->buffer + row_of_ones(lines).offset;
    ptrdiff_t size = size_of(lines->element);
    for (ptrdiff_t at = 0; at + size <= lines->pitch; at += size) {
        if (lines->element == FLOAT || lines->element == COMPLEX_FLOAT)
            *(float *)(row + at) = 1;
        else
            *(double *)(row + at) = 1;
    }
}

static Prepared allocate(Lines *lines)
{
    size_t rows = (size_t)lines->program.rows + 2, pitch = (size_t)most(LINE, lines->pitch);
    if (rows > (PTRDIFF_MAX - 2 * LINE) / pitch)
        return NO_MEMORY;
    lines->memory = calloc(rows * pitch + LINE, 1);
    lines->bases = malloc(BASES * sizeof *lines->bases);
    if (!lines->memory || !lines->bases)
        return NO_MEMORY;
    lines->buffer = lines->memory + (LINE - (uintptr_t)lines->memory % LINE) % LINE;
    lines->bases[BUFFER] = lines->buffer;
    fill_with_ones(lines);
    return PREPARED;
}

Prepared lines_prepare(Lines *lines)
{
    Prepared status = check(lines);
    if (status != PREPARED)
        return status;
    merge(lines);
    divide(lines);
    status = allocate(lines);
    if (status == PREPARED)
        status = prepare_blocks(lines);
    return status == PREPARED ? add_steps(lines) : status;
}

void lines_free(Lines *lines)
{
    for (int i = 0; lines->segments && i < lines->nsegments; i++)
        free(lines->segments[i].axes);
    free(lines->memory);
    free(lines->bases);
    free(lines->sums.sums);
    free(lines->sums.terms);
    lines->memory = NULL;
    lines->bases = NULL;
    lines->sums.sums = NULL;
    lines->sums.terms = NULL;
}

/* ---- execution ---- */

/* Where a strip begins: a point of all axes that are not whole. */
typedef struct {
    ptrdiff_t at[MOST_AXES + 1];
    ptrdiff_t number; /* of its first line */
} Strip;

static ptrdiff_t place_of(const Lines *lines, const Segment *segment, const Strip *strip)
{
    ptrdiff_t place = 0;
    for (int i = 0; i < lines->cut; i++)
        place += strip->at[i] * segment->strides[i];
    return place;
}

static void copy_segment(const Lines *lines, const Segment *segment, const Strip *strip, int rest,
                         int is_target, Copier *copy)
{
    Block block = segment->blocks[rest];
    ptrdiff_t place = place_of(lines, segment, strip);
    if (is_target)
        block.target += place;
    else
        block.source += place;
    copy(&block, 0);
}

static void run_strip(const Lines *lines, const Strip *strip, ptrdiff_t points, Copier *copy,
                      Adder *add)
{
    int rest = points != lines->step;
    for (int i = 0; i < lines->nsources; i++)
        copy_segment(lines, &lines->segments[i], strip, rest, 0, copy);
    if (lines->factors)
        lines->bases[FACTORS] = (char *)lines->factors + strip->number * size_of(lines->element);
    add(&lines->sums, lines->bases, points * lines->inner);
    for (int i = lines->nsources; i < lines->nsegments; i++)
        copy_segment(lines, &lines->segments[i], strip, rest, 1, copy);
}

void lines_run(const Lines *lines, Copier *copy, Adder *add)
{
    Strip strip = {{0}, 0};
    int last = lines->cut - 1, axis = last;
    for (int i = 0; i < lines->naxes; i++)
        if (lines->extents[i] == 0)
            return;
    while (axis >= 0) {
        for (ptrdiff_t points; strip.at[last] < lines->extents[last]; strip.at[last] += points) {
            points = least(lines->step, lines->extents[last] - strip.at[last]);
            run_strip(lines, &strip, points, copy, add);
            strip.number += points * lines->inner;
        }
        strip.at[last] = 0;
        for (axis = last - 1; axis >= 0 && ++strip.at[axis] == lines->extents[axis]; axis--)
            strip.at[axis] = 0;
    }
}
